"""`runs`, `report` and `validate` as a person calls them."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from clustercheck.model import Coverage, Culprit
from clustercheck.result.document import Document
from clustercheck.running import session
from clusterctl import main
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.report import files
from clusterctl.runs.events import EventLog, open_containers, read_events
from clusterctl.runs.state import RunState, duration_s, state_of
from clusterctl.runs.store import RunStore

HOSTS = """
all:
  children:
    gpu_nodes:
      hosts:
        gpu01: {ansible_host: 192.0.2.11}
        gpu02: {ansible_host: 192.0.2.12}
"""


def result(run: str, verdict: str = "pass") -> Document:
    failed = int(verdict == "fail")
    return Document(
        run=run,
        started="2026-11-20T19:57:00Z",
        finished="2026-11-20T19:58:12Z",
        cluster="mysite",
        suite="quick",
        coverage=Coverage(2, 2 - failed, failed, 0, 0),
        culprits=(Culprit("node", "gpu02", "it crashed", "look"),) if failed else (),
        results=(),
        environment={},
    )


@pytest.fixture
def site(tmp_path) -> ClusterDirectory:
    (tmp_path / "hosts.yml").write_text(HOSTS)
    return ClusterDirectory(tmp_path)


def call(site: ClusterDirectory, *words: str) -> int:
    return main.run(["-C", str(site.root), *words])


def validated(site: ClusterDirectory, verdict: str = "pass") -> str:
    store = RunStore(site)
    run = store.create("validate", ["--suite", "quick"])
    files.write_result(run, result(run.id, verdict))
    files.write_reports(run, result(run.id, verdict))
    store.finish(run, 0 if verdict == "pass" else 1, {"verdict": verdict, "culprits": ["gpu02"]})
    return run.id


def test_a_run_leaves_its_result_and_every_report(site):
    run = RunStore(site).get(validated(site))
    names = {path.name for path in run.directory.iterdir()}
    assert {"run.json", "result.json", "report.html", "junit.xml", "report.md", "metrics.prom"} <= names
    assert replace(files.load(run), chain_head="") == result(run.id)


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


def test_the_last_report_is_of_the_last_run_that_has_one(site, capsys):
    validated(site, "fail")
    RunStore(site).create("apply", [])
    assert call(site, "report") == 0
    assert capsys.readouterr().out.startswith("FAIL")


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
    identity = validated(site)
    path = RunStore(site).get(identity).path("result.json")
    document = json.loads(path.read_text())
    edit(document)
    path.write_text(json.dumps(document))
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


def test_runs_are_listed_oldest_first_with_how_they_ended(site, capsys):
    first, second = validated(site, "fail"), RunStore(site).create("apply", ["--yes"]).id
    assert call(site, "runs", "list") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith(first)
    assert lines[1].endswith("fail: gpu02")
    assert lines[2].startswith(second)
    assert lines[2].endswith("running")
    assert call(site, "runs", "list", "--json") == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [record["id"] for record in records] == sorted([first, second])
    assert {record["type"] for record in records} == {"run"}


def test_a_run_is_one_line_of_the_list_whatever_its_record_says(site, capsys):
    store = RunStore(site)
    run = store.create("apply", ["--limit", "a\nb"])
    record = json.loads(run.path("run.json").read_text())
    run.path("run.json").write_text(json.dumps({**record, "operator": "anna\nrun\twhat"}))
    store.finish(store.get(run.id), 1, {"verdict": "fail", "culprits": ["gpu01\nPASS"]})
    assert call(site, "runs", "list") == 0
    _, line = capsys.readouterr().out.splitlines()
    assert line.endswith("anna run what  1     fail: gpu01 PASS")
    assert call(site, "runs", "show", run.id) == 0
    assert "command    apply --limit a b\n" in capsys.readouterr().out


def test_a_run_is_shown_with_its_verdict(site, capsys):
    identity = validated(site, "fail")
    assert call(site, "runs", "show", identity) == 0
    shown = capsys.readouterr().out
    assert identity in shown
    assert "FAIL" in shown
    assert call(site, "runs", "show", identity, "--json") == 0
    record, document = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert record["exit_code"] == 1
    assert document["schema"] == "clusterctl/result/1"


@pytest.mark.parametrize("words", [["runs", "list"], ["report"], ["validate"], ["hosts", "list"]])
def test_another_users_state_is_said_plainly(site, capsys, monkeypatch, words):
    """As where .clusterctl is root's; the tests may run as root, whom no mode stops."""
    site.ensure_state()

    def refused(path, *_arguments, **_options):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    for owner, name in ((Path, "iterdir"), (Path, "mkdir"), (Path, "read_text"), (os, "open")):
        real = getattr(owner, name)
        monkeypatch.setattr(
            owner,
            name,
            lambda path, *a, real=real, **o: (refused if ".clusterctl" in str(path) else real)(path, *a, **o),
        )
    assert call(site, *words) == 2
    said = capsys.readouterr().err
    assert "cluster.state-not-permitted" in said
    assert "with sudo" in said
    assert "clusterctl itself failed" not in said


def test_containers_that_a_dead_controller_left_are_shown(site, capsys):
    store = RunStore(site)
    run = store.create("validate", [])
    record = json.loads(run.path("run.json").read_text())
    run.path("run.json").write_text(json.dumps({**record, "pid": 2**22 + 1}))
    log = EventLog(run.journal)
    log.write({"type": "job_started", "job": "done", "node": "gpu01", "container": "aaa"})
    log.write({"type": "job_finished", "job": "done"})
    log.write({"type": "job_started", "job": "pairs", "node": "gpu02", "container": "bbbbbbbbbbbbbbbb"})
    log.close()
    with run.journal.open("a") as stream:
        stream.write('{"type": "job_fini')
    assert len(list(read_events(run.journal))) == 3
    assert [one["node"] for one in open_containers(run.journal)] == ["gpu02"]
    assert state_of(store.get(run.id)) is RunState.CUT_OFF
    assert duration_s(store.get(run.id)) is None
    assert call(site, "runs", "show", run.id) == 0
    assert "left behind: container bbbbbbbbbbbb of job pairs on gpu02" in capsys.readouterr().out


class TestValidate:
    """The command around the session: what it asks for, what it keeps, how it ends."""

    @pytest.fixture(autouse=True)
    def asked(self, monkeypatch):
        calls: list[dict] = []

        def validate(spec, **options):
            calls.append({"spec": spec, **options})
            options["on_event"]({"type": "probe", "node": "gpu01", "unreachable": "", "busy": ""})
            outcome = self.outcome
            if isinstance(outcome, BaseException):
                raise outcome
            return outcome

        monkeypatch.setattr(session, "validate", validate)
        self.calls = calls
        self.outcome = Document(
            run="r", started="2026-11-20T19:57:00Z", finished="2026-11-20T19:58:12Z", cluster="mysite",
            suite="quick", coverage=Coverage(1, 1, 0, 0, 0), culprits=(), results=(), environment={},
        )  # fmt: skip

    def test_a_pass_is_kept_and_shown(self, site, capsys):
        assert call(site, "validate") == 0
        said = capsys.readouterr()
        assert said.out.startswith("PASS")
        page = Path(said.out.splitlines()[-1].removeprefix("report: "))
        assert page.name == "report.html"
        assert page.is_file()
        assert "gpu01: probed" in said.err
        run = RunStore(site).get("last")
        assert run.exit_code == 0
        assert run.summary["verdict"] == "pass"
        assert [event["type"] for event in read_events(run.journal)] == ["probe"]
        (asked,) = self.calls
        assert asked["suite"] == "quick"
        assert asked["busy_policy"] == "skip"
        assert asked["run_id"] == run.id
        assert [node.name for node in asked["spec"].nodes] == ["gpu01", "gpu02"]

    @pytest.mark.parametrize(
        ("coverage", "code"), [(Coverage(2, 1, 1, 0, 0), 1), (Coverage(2, 1, 0, 1, 0), 3)]
    )
    def test_the_exit_code_is_the_verdicts(self, site, coverage, code):
        self.outcome = Document(**{**self.outcome.__dict__, "coverage": coverage})
        assert call(site, "validate") == code

    def test_json_ends_with_the_result(self, site, capsys):
        assert call(site, "validate", "--json", "--limit", "gpu02") == 0
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert lines[0]["type"] == "probe"
        assert lines[-1]["schema"] == "clusterctl/result/1"
        assert [node.name for node in self.calls[0]["spec"].nodes] == ["gpu02"]

    def test_an_interrupt_is_said_and_recorded(self, site, capsys):
        self.outcome = KeyboardInterrupt()
        assert call(site, "validate") == 130
        assert "interrupted" in capsys.readouterr().err
        assert RunStore(site).get("last").exit_code == 130

    def test_an_interrupt_while_reports_are_written_changes_no_verdict(self, site, monkeypatch, capsys):
        def interrupted(*_arguments):
            raise KeyboardInterrupt

        self.outcome = Document(**{**self.outcome.__dict__, "coverage": Coverage(2, 1, 1, 0, 0)})
        monkeypatch.setattr(files, "write_reports", interrupted)
        assert call(site, "validate") == 1
        said = capsys.readouterr()
        run = RunStore(site).get("last")
        assert run.exit_code == 1
        assert said.out.startswith("FAIL")
        assert "report: " not in said.out
        assert "interrupted while the reports were written; the verdict stands" in said.err
        assert "clusterctl report r --format html --output FILE" in said.err

    @pytest.mark.parametrize(
        ("wrong", "code"),
        [
            ("http://127.0.0.1", "settings.value"),
            ("udp://log:port", "settings.value"),
            ("{{ 1 / 0 }}", "inventory.template"),
        ],
    )
    def test_a_wrong_syslog_is_refused_before_anything_runs(self, site, capsys, wrong, code):
        site.group_vars.mkdir()
        (site.group_vars / "all.yml").write_text(f'site_syslog: "{wrong}"\n')
        assert call(site, "validate") == 2
        assert code in capsys.readouterr().err
        assert self.calls == []
        assert RunStore(site).list() == []

    def test_containers_that_an_interrupt_could_not_end_are_named(self, site, monkeypatch, capsys):
        def interrupted(_spec, *, on_event, **_options):
            for node in ("gpu01", "gpu02"):
                on_event({"type": "job_started", "job": "pairs", "node": node, "container": node * 4})
            on_event({"type": "job_removed", "job": "pairs", "node": "gpu01"})
            raise KeyboardInterrupt

        monkeypatch.setattr(session, "validate", interrupted)
        assert call(site, "validate") == 130
        said = capsys.readouterr().err
        assert "could not be ended, and end by their own time limit: gpu02gpu02gp on gpu02\n" in said

    def test_who_declines_has_judged_nothing(self, site, monkeypatch, capsys):
        monkeypatch.setattr("sys.stdin.isatty", lambda: True)
        monkeypatch.setattr("click.confirm", lambda *_args, **_options: False)
        assert call(site, "validate", "--force-busy") == 3
        assert "nothing was run" in capsys.readouterr().err
        assert self.calls == []

    def test_busy_nodes_are_disturbed_only_where_that_is_confirmed(self, site, capsys):
        assert call(site, "validate", "--force-busy") == 2
        assert "validate.not-confirmed" in capsys.readouterr().err
        assert call(site, "validate", "--force-busy", "--yes") == 0
        assert [asked["busy_policy"] for asked in self.calls] == ["force"]

    def test_unknown_suites_and_hosts_are_refused_before_anything_runs(self, site, capsys):
        assert call(site, "validate", "--suite", "quik") == 2
        assert "quick" in capsys.readouterr().err
        assert call(site, "validate", "--limit", "gpu09") == 2
        assert "Did you mean" in capsys.readouterr().err
        assert self.calls == []

    def test_a_cluster_without_gpu_nodes_is_refused(self, tmp_path, capsys):
        (tmp_path / "hosts.yml").write_text(
            "all:\n  children:\n    registry:\n      hosts:\n        registry01: {ansible_host: 192.0.2.5}\n"
        )
        assert call(ClusterDirectory(tmp_path), "validate") == 2
        assert "validate.no-nodes" in capsys.readouterr().err
