"""`runs` as a person calls it: the list, one run, and what a dead controller left."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest
from tests.support.validated_site import call, validated

from clusterctl.runs.events import EventLog, open_containers, read_events
from clusterctl.runs.state import RunState, duration_s, state_of
from clusterctl.runs.store import RunStore


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
