"""Whose the nodes are while an apply works, and whose they stay. Ansible is played by data."""

from __future__ import annotations

import pytest

from clusterctl.engine import lease_book, mutex
from clusterctl.engine.events import (
    HostStarted,
    JobStarted,
    Stats,
    TaskResult,
)
from clusterctl.engine.lease import lease_of
from clusterctl.engine.ledger import HostState
from clusterctl.engine.playbook import PlaybookOutcome
from clusterctl.runs.store import RunStore

from .played import begun, lease_of_another, records


def test_a_second_operator_is_refused_before_any_host_is_touched(clusterctl, cluster, ansible, capsys):
    with mutex.held(cluster, "apply"):
        assert clusterctl("apply", "--yes") == 2
    assert "has been running apply on this cluster since" in capsys.readouterr().err
    assert ansible.requests == []
    assert RunStore(cluster).list() == []


def test_apply_holds_its_nodes_while_it_changes_them_and_not_longer(clusterctl, ansible):
    def during(request, *listeners):
        if request.playbook != "leases.yml":
            held.append((request.playbook, sorted(ansible.holds)))
        return ansible(request, *listeners)

    held = []
    assert clusterctl("apply", "--yes", "--limit", "gpu01,gpu02", runner=during) == 0
    assert held == [("preflight.yml", []), *[("site.yml", ["gpu01", "gpu02"])] * 2]
    assert ansible.lease_requests == [
        ("taken", ("gpu01", "gpu02")), ("taken", ("gpu02",)), ("freed", ("gpu01", "gpu02"))
    ], "each wave but the first makes sure"  # fmt: skip
    assert ansible.holds == {}


@pytest.mark.parametrize("ending", [KeyboardInterrupt, RuntimeError])
def test_nodes_are_given_back_however_apply_ends(clusterctl, ansible, ending):
    def breaks(request, *listeners):
        if request.playbook == "site.yml":
            assert ansible.holds
            raise ending
        return ansible(request, *listeners)

    assert clusterctl("apply", "--yes", runner=breaks) != 0
    assert ansible.holds == {}


def on_site(ansible, then):
    """A runner with ``then(request, tell)`` in the place of the site; it returns an outcome, or raises."""

    def plays(request, on_event, on_tick=None):
        if request.playbook != "site.yml":
            return ansible(request, on_event, on_tick)
        ledger, tell = begun(request, on_event, "Install packages", "command")
        states = then(request, tell) or dict.fromkeys(request.hosts, HostState.INTERRUPTED)
        cut = HostState.INTERRUPTED in states.values()
        return PlaybookOutcome(states, dict.fromkeys(states, "stopped"), ledger, 0, cut, False, 1.0)

    return plays


ONE_WAVE = ["--yes", "--json", "--limit", "gpu01,gpu02,gpu03", "--canary", "0"]


@pytest.mark.parametrize("raises", [None, KeyboardInterrupt, RuntimeError])
def test_a_node_on_which_our_work_goes_on_stays_ours(clusterctl, cluster, ansible, capsys, raises):
    def cut_off(_request, tell):
        tell(JobStarted(2.0, "gpu01", "j1.2"))
        tell(HostStarted(2.0, "gpu02", "t"))
        tell(HostStarted(2.0, "gpu03", "t"))
        tell(TaskResult(3.0, "gpu03", "t", "ok"))
        if raises:
            raise raises

    code = clusterctl("apply", *ONE_WAVE, runner=on_site(ansible, cut_off))
    lines, messages = records(capsys)
    assert sorted(ansible.holds) == ["gpu01", "gpu02"], "gpu03 was between two tasks"
    run_id = ansible.holds["gpu01"]["run"]
    assert "gpu01: the lease is kept, and other runs refused: job j1.2 continues" in messages
    assert (
        "gpu02: the lease is kept, and other runs refused: it was interrupted in: a_role: Install" in messages
    )
    assert f"clusterctl leases release {run_id}" in messages
    if raises is None:
        assert (code, lines[-1]["exit"]) == (130, 130)
        assert lines[-1]["leased"] == {
            "gpu01": "job j1.2 continues", "gpu02": "it was interrupted in: a_role: Install packages",
        }  # fmt: skip
    (entry,) = lease_book.entries(cluster)
    assert entry.hosts == ("gpu01", "gpu02")
    ansible.says = {"gpu01": {"facts": {"jobs": [{"id": "j1.2", "state": "finished", "rc": 0}]}}}
    assert clusterctl("apply", *ONE_WAVE) == 0
    messages = capsys.readouterr().err
    assert f"releasing the lease on gpu01, gpu02, left by run {run_id}" in messages
    assert (ansible.holds, lease_book.entries(cluster)) == ({}, [])


def test_a_node_that_was_lost_in_a_task_stays_ours(clusterctl, ansible):
    def lost(request, tell):
        for host in request.hosts:
            tell(HostStarted(2.0, host, "t"))
            tell(TaskResult(3.0, host, "t", "unreachable" if host == "gpu02" else "ok", "Broken pipe"))
        tell(Stats(4.0, {}))
        return {host: HostState.UNREACHABLE if host == "gpu02" else HostState.GOOD for host in request.hosts}

    assert clusterctl("apply", *ONE_WAVE, runner=on_site(ansible, lost)) == 1
    assert list(ansible.holds) == ["gpu02"]


def test_apply_is_refused_where_what_an_earlier_run_began_still_runs(clusterctl, cluster, ansible, capsys):
    ansible.jobs = {"gpu02": ["j1.2"]}
    assert clusterctl("apply", "--yes") == 2
    messages = capsys.readouterr().err
    assert "what an earlier run started still runs on gpu02, and nothing was touched" in messages
    assert "engine.job-left" in messages
    assert "gpu02: job j1.2" in messages
    assert (ansible.touched, ansible.holds, lease_book.entries(cluster)) == ([], {}, [])


@pytest.mark.parametrize("when", ["before its wave", "after its wave", "unlocked"])
def test_a_lease_that_is_taken_from_us_is_noticed(clusterctl, ansible, capsys, when):
    theirs = lease_of_another()

    def taken_over(request, tell):
        if request.hosts == ("gpu01",) and when == "before its wave":
            ansible.holds["gpu02"] = theirs
        if request.hosts != ("gpu01",) and when == "after its wave":
            ansible.holds["gpu01"] = theirs
        if request.hosts != ("gpu01",) and when == "unlocked":
            del ansible.holds["gpu01"]
        waves.append(request.hosts)
        return dict.fromkeys(request.hosts, HostState.GOOD)

    waves = []
    words = ["--yes", "--json", "--limit", "gpu01,gpu02,gpu03"]
    assert clusterctl("apply", *words, runner=on_site(ansible, taken_over)) == 1
    lines, messages = records(capsys)
    assert "engine.lease-lost" in messages
    how = "released by another run" if when == "unlocked" else "taken from us by run"
    assert f"its lease was {how}" in messages
    host = "gpu02" if when == "before its wave" else "gpu01"
    assert lines[-1]["hosts"][host]["failed"] == lines[-1]["failed"] == 1
    assert waves == [("gpu01",), *([("gpu02", "gpu03")] if when != "before its wave" else [])]
    assert theirs in ansible.holds.values() or when == "unlocked"


@pytest.mark.parametrize("seen_in_preflight", [True, False])
def test_apply_is_refused_where_another_controller_is_at_work(
    clusterctl, cluster, ansible, capsys, seen_in_preflight
):
    ansible.holds["gpu02"] = theirs = lease_of_another()
    if seen_in_preflight:
        broken = {"severity": "error", "subject": "apt", "found": "dpkg is at work"}
        ansible.says = {"gpu02": {"facts": {"lease": theirs}, "findings": [broken]}}
    assert clusterctl("apply", "--yes") == 2
    messages = capsys.readouterr().err
    assert "another run holds gpu02, and nothing was touched" in messages
    assert "(apply) of anna on ctrl2, since 2026-01-01T00:00:00Z" in messages
    assert f"clusterctl leases release {theirs['run']}" in messages
    assert ansible.touched == []
    assert ansible.holds == {"gpu02": theirs}
    assert RunStore(cluster).get("last").exit_code == 2


def test_a_host_whose_lease_cannot_be_taken_has_failed_and_no_other_is_touched(
    clusterctl, cluster, ansible, capsys
):
    ansible.breaks = {"gpu02": "the lease cannot be used: Read-only file system"}
    assert clusterctl("apply", "--yes", "--json") == 1
    lines, messages = records(capsys)
    assert "gpu02: Take the lease" in messages
    assert "host.read-only" in messages
    assert lines[-1]["hosts"]["gpu02"]["failed"] == lines[-1]["failed"] == 1
    assert ansible.touched == []
    assert ansible.holds == {}
    ansible.breaks = {}
    assert clusterctl("apply", "--yes") == 0
    assert lease_book.entries(cluster) == []


def test_what_a_dead_run_of_this_directory_holds_is_given_back_by_the_next(
    clusterctl, cluster, ansible, capsys
):
    dead = lease_of(RunStore(cluster).create("apply", []), cluster)
    lease_book.note(cluster, dead, ["gpu01", "gpu02", "gone01"])
    ansible.holds |= dict.fromkeys(("gpu01", "gpu02"), dead.as_record())
    assert clusterctl("apply", "--yes", "--limit", "gpu01") == 0
    assert f"releasing the lease on gpu01, left by {dead.holder}" in capsys.readouterr().err
    assert list(ansible.holds) == ["gpu02"], "it was not asked yet"
    assert clusterctl("apply", "--yes") == 0
    assert ansible.holds == {}
    assert lease_book.entries(cluster) == []
