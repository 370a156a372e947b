"""Answers of hosts that no module gives: each costs its own host, and is told in words."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from tests.support.drift_answers import read_recorded
from tests.support.hostile import acting_characters

from clustercheck.launch.transport import Completed
from clusterctl.cluster.inventory import Host
from clusterctl.engine.events import JobStarted
from clusterctl.engine.lease_nodes import _answer
from clusterctl.engine.ledger import HostRecord, HostState, Ledger
from clusterctl.engine.recovery import (
    MAX_HOST_JOBS,
    MAX_REASON,
    JobAnswer,
    LeftBehind,
    _finished,
    read_jobs,
    recover,
)
from clusterctl.errors import ClusterctlError
from clusterctl.rollout import pulls
from clusterctl.rollout.drift.calls import CONTROLLER, PREFLIGHT
from clusterctl.rollout.drift.replay import read_answers
from clusterctl.rollout.drift.report import build_report, fingerprint_answers
from clusterctl.rollout.waves import Wave
from clusterctl.runs.store import UnreadableRun

ODD = [None, True, 1, "x", [], [1], {}, {"a": 1}, [[]], "\x1b[2J"]


@pytest.fixture(scope="module")
def recorded():
    found = read_recorded()
    return found["gpu01"], found["registry01"]


def report_of(recorded, answer):
    """The drift probe's report where the first host answers this."""
    one, other = recorded
    calls = [call for call in one.record.calls if call.at != CONTROLLER]
    answers = read_answers(Completed(0, json.dumps(answer), "", 0.0), calls)
    controller = {**one.answers[CONTROLLER], **other.answers[CONTROLLER]}
    records = {"gpu01": one.record, "registry01": other.record}
    fingerprint_answers(one.record.calls, {"": answers, CONTROLLER: controller})
    return build_report(records, controller, {"gpu01": answers, "registry01": other.answers[""]})


def test_a_good_answer_takes_no_host_the_whole_way(recorded):
    report = report_of(recorded, {"answers": recorded[0].answers[""]})
    assert set(report.quiet) == {"gpu01", "registry01"}


@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_an_unreadable_answer_takes_its_host_the_whole_way_and_no_other(recorded, odd):
    whole = recorded[0].answers[""]
    (check,) = (call for call in recorded[0].record.calls if call.module == PREFLIGHT)
    report = whole[check.identity]
    answers = [odd, {"answers": odd}, {"answers": dict.fromkeys(whole, odd)}]
    answers.append({"answers": {**whole, check.identity: {**report, "clusterctl": odd}}})
    if odd not in ([], {}):
        facts = {"findings": [odd], "busy": ""}
        answers.append({"answers": {**whole, check.identity: {**report, "clusterctl": facts}}})
    for answer in answers:
        found = report_of(recorded, answer)
        assert set(found.quiet) == {"registry01"}, answer
        assert acting_characters("".join(found.differing["gpu01"])) == []


def test_a_job_of_which_nothing_can_be_read_stays_open():
    good = {"id": "j1.2", "state": "finished", "rc": 3, "failed": True, "msg": "\x1b[2Jno\n"}
    odd = [{**good, name: value} for name in good for value in ({}, [1], 10**30, "j1.2/../x")]
    known = [job for job in read_jobs([*odd, *ODD, good]) if job.msg == "no\n"]
    assert JobAnswer(id="j1.2", state="finished", rc=3, failed=True, msg="no\n") in known
    for job in read_jobs(odd):
        ended = _finished("gpu01", job)
        assert isinstance(ended.msg, str)
        assert ended.rc is None or isinstance(ended.rc, int)
    for odd_answer in ODD:
        assert read_jobs(odd_answer) == []


def test_jobs_that_a_node_makes_up_fill_neither_the_terminal_nor_the_journal(tmp_path):
    """As one that names a thousand others each round, and one that never ends."""
    rounds = iter(range(100))
    said, asked = [], []

    def runner(request, _on_event):
        number = next(rounds)
        asked.append(request.extra_vars["clusterctl_jobs"])
        more = [{"id": f"j{number}.{n}", "state": "running" if n % 2 else "finished", "failed": True,
                 "msg": "A" * 900 + "\nB"} for n in range(2, 900)]  # fmt: skip
        mine = {"id": "j0.1", "state": "running" if number < 50 else "finished"}
        ledger = Ledger(request.hosts)
        ledger.hosts["gpu01"].facts = {"jobs": [*(more if number < 50 else []), mine]}
        states = dict.fromkeys(request.hosts, HostState.GOOD)
        return SimpleNamespace(interrupted=False, states=states, ledger=ledger, reasons={})

    run = UnreadableRun(tmp_path, ClusterctlError("it cannot be read", code="runs.unreadable"))
    left = [LeftBehind(run, (JobStarted(at=1.0, host="gpu01", job_id="j0.1"),))]
    ended = recover(
        SimpleNamespace(), left, inventory=tmp_path, hosts=["gpu01"], declared=["gpu01"], forks=1,
        run_directory=tmp_path, say=said.append, runner=runner,
    )  # fmt: skip
    assert len(ended) <= MAX_HOST_JOBS + 1
    assert ("gpu01", "j0.1") in {(job.host, job.job_id) for job in ended}
    assert sum(len(jobs) for each in asked for jobs in each.values()) <= (MAX_HOST_JOBS + 1) * len(asked)
    failures = [line for line in said if "failed" in line]
    assert failures and max(map(len, failures)) <= MAX_REASON + 100


@pytest.mark.parametrize(
    "odd", [1, "x", [], {"taken": 1}, {"holder": 1}, {"jobs": 1}, {"jobs": [1] * 2000}], ids=repr
)
def test_a_lease_of_which_nothing_can_be_read_is_not_taken(odd):
    answer = _answer(HostRecord("gpu01", facts={"lease": odd}), HostState.GOOD, "")
    assert not answer.taken
    assert not answer.freed
    assert answer.failed.startswith("its answer about the lease cannot be read")
    assert answer.code == "task.unreadable"


@pytest.mark.parametrize(
    "odd",
    [
        1,
        [],
        {"layers": {"a": "7"}},
        {"layers": {"a": -7}},
        {"seconds": -1},
        {"link_mbps": "x"},
        {"seconds": 1e300},
    ],
    ids=repr,
)
def test_a_pull_of_which_nothing_can_be_read_is_told_and_left_out(odd, capsys):
    hosts = {name: Host(name, name, 22, "", (), {}) for name in ("gpu01", "gpu02")}
    good = {"layers": {"a": 117_500_000}, "link_mbps": 1000, "seconds": 2.0}
    records = {
        "gpu01": HostRecord("gpu01", facts={"pull": odd}),
        "gpu02": HostRecord("gpu02", facts={"pull": good}),
    }
    (wave,) = pulls.of_waves([Wave("nodes", tuple(hosts))], hosts, records)
    assert [node.host for node in wave.nodes] == ["gpu02"]
    assert "gpu01: what it says of its pull cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize("figure", [5e-324, 1e-9, 0, 0.5])
@pytest.mark.parametrize("name", ["link_mbps", "seconds", "download_s"])
def test_a_pull_by_nearly_nothing_is_told_and_kept(name, figure):
    good = {"layers": {"a": 117_500_000}, "link_mbps": 1000, "seconds": 2.0, "download_s": 1.0}
    hosts = {host: Host(host, host, 22, "", (), {}) for host in ("gpu01", "gpu02")}
    records = {host: HostRecord(host, facts={"pull": dict(good)}) for host in hosts}
    records["gpu02"].facts["pull"][name] = figure
    (wave,) = pulls.of_waves([Wave("nodes", tuple(hosts))], hosts, records)
    assert pulls.told(wave).startswith("nodes: gpu01, gpu02 pulled 117.5 MB in 2 s")
    assert "minimum" in pulls.predicted(wave)
    json.dumps(wave.as_record(), allow_nan=False)
