"""`report` as a person calls it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.validated_site import call, result, validated

from clustercheck.result.document import Document
from clustercheck.running.suites import load
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.commands import report
from clusterctl.errors import ClusterctlError, ExplainedError
from clusterctl.report import baselines, files
from clusterctl.runs.chain import chain_file
from clusterctl.runs.store import RunStore
from clusterctl.runs.verification import verify


def test_a_run_leaves_its_result_and_every_report(site):
    run = RunStore(site).get(validated(site))
    names = {path.name for path in run.directory.iterdir()}
    assert {"run.json", "result.json", "report.html", "junit.xml", "report.md", "metrics.prom"} <= names
    loaded = files.load(run)
    assert replace(loaded, chain_head="") == result(run.id)
    assert loaded.chain_head == verify(site).newest


@pytest.mark.parametrize(
    ("form", "begins"),
    [
        ("table", "PASS"),
        ("html", "<!doctype"),
        ("junit", "<?xml"),
        ("markdown", "# PASS"),
        ("prometheus", "# HELP"),
        ("json", "{"),
    ],
)
def test_a_report_in_each_form(site, capsys, form, begins):
    identity = validated(site)
    assert call(site, "report", identity, "--format", form) == 0
    assert capsys.readouterr().out.lstrip().lower().startswith(begins.lower())


@pytest.mark.parametrize("form", ["table", "json"])
def test_a_result_that_was_changed_since_it_was_recorded_is_not_reported(site, capsys, form):
    run = RunStore(site).get(validated(site, "fail"))
    path = run.path(files.RESULT)
    path.write_text(path.read_text().replace('"fail"', '"pass"'))
    assert call(site, "report", run.id, "--format", form) == 2
    said = capsys.readouterr()
    assert "report.changed" in said.err
    assert "PASS" not in said.out
    with pytest.raises(ClusterctlError, match="is not the one that was recorded"):
        baselines.chosen(site, run.id, load("quick"), ["gpu01"])


def test_the_last_report_is_of_the_last_run_that_has_one(site, capsys):
    validated(site, "fail")
    RunStore(site).create("apply", [])
    assert call(site, "report") == 0
    assert capsys.readouterr().out.startswith("FAIL")


def test_a_result_of_a_run_that_did_not_end_is_neither_the_last_nor_a_baseline(site, capsys, monkeypatch):
    read, load_json = [], files.load_json
    monkeypatch.setattr(files, "load_json", lambda run: [load_json(run), read.append(run.id)][0])
    validated(site, "fail")
    added = RunStore(site).create("validate", [])
    files.write_result(added, result(added.id))
    record = json.loads(added.path("run.json").read_text())
    added.path("run.json").write_text(json.dumps({**record, "summary": {"verdict": "pass"}}))
    assert call(site, "report") == 0
    assert capsys.readouterr().out.startswith("FAIL")
    baselines.chosen(site, None, load("quick"), ["gpu01"])
    assert read == []
    RunStore(site).finish(added, 0, {"verdict": "pass"})
    assert call(site, "report") == 0
    assert capsys.readouterr().out.startswith("PASS")
    baselines.chosen(site, None, load("quick"), ["gpu01"])
    assert read == [added.id]


@pytest.mark.parametrize("depth", [250, 984])
def test_a_result_that_could_not_be_written_again_is_unreadable(site, capsys, depth):
    identity = validated(site)
    result_of_others(site, identity, f"{'[' * depth}{']' * depth}")
    for command in (("report", identity, "--format", "json"), ("runs", "show", identity, "--json")):
        assert call(site, *command) == 2
        assert "report.unreadable" in capsys.readouterr().err


@pytest.mark.parametrize("values", ["[],", "0,", "{},"])
def test_a_result_with_more_values_than_any_is_unreadable(site, capsys, values):
    identity = validated(site)
    result_of_others(site, identity, f"[{values * 300_000}0]")
    for command in (
        ("report", identity),
        ("report", identity, "--format", "json"),
        ("runs", "show", identity),
    ):
        assert call(site, *command) == 2
        assert "far more values" in capsys.readouterr().err
    with pytest.raises(ExplainedError, match="far more values"):
        baselines.chosen(site, identity, load("quick"), ["gpu01"])
    with pytest.raises(ExplainedError, match="far more values"):
        baselines.chosen(site, str(RunStore(site).get(identity).path(files.RESULT)), load("quick"), ["gpu01"])


def result_of_others(site, identity, member):
    path = RunStore(site).get(identity).path(files.RESULT)
    chain_file(site).unlink()  # else it is not the one that was recorded
    path.write_text(path.read_text().replace('"environment": {', f'"environment": {{"x": {member},', 1))
    assert member in path.read_text()


def test_a_report_into_a_file(site, tmp_path, capsys):
    target = tmp_path / "out.html"
    assert call(site, "report", validated(site), "--format", "html", "--output", str(target)) == 0
    assert target.read_text().lower().startswith("<!doctype html>")
    assert capsys.readouterr().out == ""
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".out")] == []
    assert call(site, "report", "--output", str(tmp_path / "no" / "such")) == 2
    assert "report.not-written" in capsys.readouterr().err


def test_a_report_goes_where_the_operators_own_link_leads_and_not_where_anothers_does(
    site, tmp_path, capsys, monkeypatch
):
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("mine")
    link.symlink_to("target")
    identity = validated(site)
    assert call(site, "report", identity, "--output", str(link)) == 0
    assert (link.is_symlink(), "PASS" in target.read_text()) == (True, True)
    target.write_text("mine")
    monkeypatch.setattr("clusterctl.commands.report.trusted_users", frozenset)
    assert call(site, "report", identity, "--output", str(link)) == 2
    said = capsys.readouterr().err
    assert "report.not-written" in said
    assert "link that another user made" in said
    assert target.read_text() == "mine"


def test_no_name_that_can_be_guessed_is_written_through(site, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    for name in (f".out.{os.getpid()}", ".out", ".out.new", ".out.tmp"):
        (tmp_path / name).symlink_to("victim")
    assert call(site, "report", validated(site), "--output", str(tmp_path / "out")) == 0
    assert victim.read_text() == "mine"


def test_no_report_goes_through_another_users_link_to_a_directory(site, tmp_path, capsys, monkeypatch):
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim/report").write_text("mine")
    way, lstat = tmp_path / "way", Path.lstat
    way.symlink_to("victim")
    (tmp_path / "own").symlink_to("way/report")
    identity = validated(site)
    assert call(site, "report", identity, "--output", str(way / "new")) == 0
    assert "PASS" in (tmp_path / "victim/new").read_text()

    def of_another(path):
        state = lstat(path)
        return os.stat_result((*state[:4], 64001, *state[5:])) if path == way else state

    monkeypatch.setattr(Path, "lstat", of_another)
    for output in (way / "report", tmp_path / "own"):
        assert call(site, "report", identity, "--output", str(output)) == 2
        assert f"{way} is a link that another user made" in capsys.readouterr().err
    assert (tmp_path / "victim/report").read_text() == "mine"


@pytest.mark.parametrize("look", ["stat", "fstat"])
def test_a_file_that_becomes_a_link_after_it_was_looked_at_is_not_followed(site, tmp_path, monkeypatch, look):
    victim, target = tmp_path / "victim", tmp_path / "report.md"
    victim.write_text("mine")
    target.write_text("an earlier report")
    identity, looked_at = validated(site), target.stat().st_ino
    of_kernel = getattr(os, look)

    def exchanged(what, **more):
        state = of_kernel(what, **more)
        of_itself = look == "fstat" or more.get("follow_symlinks") is False
        if state.st_ino == looked_at and of_itself and not os.path.islink(target):  # noqa: PTH114
            target.unlink()
            target.symlink_to("victim")
        return state

    monkeypatch.setattr(os, look, exchanged)
    assert call(site, "report", identity, "--output", str(target)) == 0
    assert victim.read_text() == "mine"
    assert "PASS" in target.read_text()


def test_a_directory_that_becomes_a_link_after_it_was_looked_at_is_not_followed(
    site, tmp_path, capsys, monkeypatch
):
    way, victim = tmp_path / "way", tmp_path / "victim"
    for directory in (way, victim):
        directory.mkdir()
        (directory / "report.md").write_text("mine")
    identity, of_walk = validated(site), report.follow_own_links

    def exchanged(path):
        found = of_walk(path)
        way.rename(tmp_path / "gone")
        way.symlink_to("victim")
        return found

    monkeypatch.setattr(report, "follow_own_links", exchanged)
    assert call(site, "report", identity, "--output", str(way / "report.md")) == 2
    assert "report.not-written" in capsys.readouterr().err
    assert (victim / "report.md").read_text() == "mine"


def test_a_report_into_a_pipe(site, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        form = ["--format", "prometheus", "--output", str(pipe)]
        assert call(site, "report", validated(site), *form) == 0
        assert b"clusterctl_validation_verdict" in os.read(reader, 1 << 16)
    finally:
        os.close(reader)
    assert pipe.is_fifo()


def test_no_report_waits_at_another_users_pipe(site, tmp_path, capsys, monkeypatch):
    os.mkfifo(pipe := tmp_path / "pipe")
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)  # else the test would wait, too
    identity = validated(site)
    monkeypatch.setattr("clusterctl.commands.report.trusted_users", frozenset)
    try:
        assert call(site, "report", identity, "--output", str(pipe)) == 2
    finally:
        os.close(reader)
    assert "is a pipe that another user made" in capsys.readouterr().err


def test_a_report_into_what_is_open_already(site, tmp_path):
    """As with --output >(program), and --output /dev/stdout with a redirection."""
    reader, writer = os.pipe()
    redirected = os.open(tmp_path / "out", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(redirected, b"before\n")
    try:
        for descriptor in (writer, redirected):
            target = f"/dev/fd/{descriptor}"
            assert call(site, "report", validated(site), "--format", "markdown", "--output", target) == 0
        os.write(redirected, b"after\n")
        assert b"PASS" in os.read(reader, 1 << 16).upper()
    finally:
        for descriptor in (reader, writer, redirected):
            os.close(descriptor)
    before, *report, after = (tmp_path / "out").read_text().splitlines()
    assert (before, after) == ("before", "after")
    assert "PASS" in "\n".join(report).upper()


def test_a_report_into_a_device(site):
    assert call(site, "report", validated(site), "--output", "/dev/null") == 0
    assert Path("/dev/null").is_char_device()


def test_links_in_a_circle_are_no_file(site, tmp_path, capsys):
    (circle := tmp_path / "circle").symlink_to("circle")
    assert call(site, "report", validated(site), "--output", str(circle)) == 2
    assert "report.not-written" in capsys.readouterr().err
    assert circle.is_symlink()


def test_a_run_without_a_result_is_explained(site, capsys):
    run = RunStore(site).create("apply", [])
    assert call(site, "report", run.id) == 2
    assert "report.no-result" in capsys.readouterr().err
    run.path("result.json").write_text("{}")
    assert call(site, "report", run.id) == 2
    assert "report.unreadable" in capsys.readouterr().err


def changed_result(site: ClusterDirectory, edit: Callable[[dict], object]) -> str:
    """A run whose result is not as it was written, and of which no chain says so."""
    identity = validated(site)
    path = RunStore(site).get(identity).path("result.json")
    document = json.loads(path.read_text())
    edit(document)
    path.write_text(json.dumps(document))
    chain_file(site).unlink()
    return identity


@pytest.mark.parametrize("words", [["report"], ["report", "--format", "json"], ["runs", "show"]])
def test_the_result_of_another_run_is_not_this_ones(site, capsys, words):
    identity = changed_result(site, lambda document: document.update(run="x` [click](http://192.0.2.1)"))
    assert call(site, *words, identity) == 2
    assert "report.unreadable" in capsys.readouterr().err


@pytest.mark.parametrize("form", [*files.REPORTS, "table"])
@pytest.mark.parametrize(
    "edit",
    [
        lambda document: document["coverage"].update(expected=10**400, warning=10**400 - 2),
        lambda document: document["environment"].update(nodes={"gpu01": {"gpus": [[]]}}),
        lambda document: document["environment"].update(nodes={"gpu01": {"gpus": 10**400}}),
    ],
    ids=["a figure of 400 digits", "a list for a GPU", "a number for GPUs"],
)
def test_a_damaged_result_is_shown_or_explained(site, capsys, form, edit):
    code = call(site, "report", changed_result(site, edit), "--format", form)
    said = capsys.readouterr()
    assert code == 0 or (code == 2 and "report.unreadable" in said.err), said.err


def test_a_result_of_which_no_report_can_be_made_is_explained(site, capsys, monkeypatch):
    def broken(_document: Document, **_options: object) -> str:
        raise OverflowError("int too large to convert to float")

    monkeypatch.setattr("clusterctl.report.terminal.render", broken)
    identity = validated(site)
    for words in (["report", identity], ["runs", "show", identity]):
        assert call(site, *words) == 2
        assert "no report can be made of it: OverflowError: int too large" in capsys.readouterr().err
