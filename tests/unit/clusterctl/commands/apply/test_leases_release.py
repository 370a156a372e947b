"""clusterctl leases release, with Ansible played by data."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from clusterctl.cluster import quarantine
from clusterctl.engine.lease import _born, lease_of
from clusterctl.runs.store import RunStore

from .played import lease_of_another, records


def test_unlock_frees_exactly_the_nodes_of_that_run(clusterctl, ansible, capsys):
    ansible.holds = {host: lease_of_another() for host in ("gpu01", "gpu03")}
    ansible.holds["gpu02"] = other = lease_of_another(run="another", nonce="m")
    run_id = lease_of_another()["run"]
    assert clusterctl("leases", "release", run_id, "--yes", "--json") == 0
    lines, messages = records(capsys)
    assert "(apply) of anna on ctrl2, since 2026-01-01T00:00:00Z, holds gpu01, gpu03" in messages
    assert (lines[-1]["freed"], lines[-1]["left"], lines[-1]["exit"]) == (["gpu01", "gpu03"], {}, 0)
    assert ansible.holds == {"gpu02": other}
    assert clusterctl("leases", "release", run_id, "--yes") == 2
    assert "no node holds a lease of" in capsys.readouterr().err


def test_a_node_whose_lease_names_a_living_process_keeps_no_other_node(clusterctl, ansible, capsys):
    dead = lease_of_another()
    lying = {**dead, "pid": 1, "born": _born(1)}
    ansible.holds = {"gpu01": dead, "gpu02": lying, "gpu03": dead}
    assert clusterctl("leases", "release", dead["run"], "--yes", "--dead", "--json") == 3
    lines, messages = records(capsys)
    assert lines[-1]["freed"] == ["gpu01", "gpu03"]
    assert "is still at work" in lines[-1]["left"]["gpu02"]
    assert "gpu02: not released: " in messages
    assert ansible.holds == {"gpu02": lying}


def test_unlock_asks_and_takes_no_for_an_answer(clusterctl, ansible, monkeypatch, capsys):
    ansible.holds = {"gpu01": lease_of_another()}
    monkeypatch.setattr("click.confirm", lambda *_args, **_options: False)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    assert clusterctl("leases", "release", lease_of_another()["run"]) == 3
    assert "nothing was freed" in capsys.readouterr().err
    assert list(ansible.holds) == ["gpu01"]
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False)
    assert clusterctl("leases", "release", lease_of_another()["run"]) == 2


def test_unlock_frees_no_node_on_which_a_job_of_the_run_lives(clusterctl, ansible, capsys):
    ansible.holds = {host: lease_of_another() for host in ("gpu01", "gpu02")}
    ansible.jobs = {"gpu01": ["j1.2"], "gpu03": ["j3.4"]}
    run_id = lease_of_another()["run"]
    assert clusterctl("leases", "release", run_id, "--yes", "--json") == 3
    lines, messages = records(capsys)
    assert "gpu01: not released: job j1.2 still runs on it; run this again when it has finished" in messages
    assert (lines[-1]["freed"], lines[-1]["left"]) == (["gpu02"], {"gpu01": "job j1.2 still runs on it"})
    assert list(ansible.holds) == ["gpu01"]
    ansible.jobs = {}
    assert clusterctl("leases", "release", run_id, "--yes") == 0
    assert ansible.holds == {}


@pytest.mark.parametrize("answers", [True, False])
def test_unlock_asks_nodes_in_quarantine_too(clusterctl, cluster, ansible, capsys, answers):
    quarantine.put(cluster, "gpu03", "broken fan")
    ansible.holds = {"gpu03": lease_of_another()}
    ansible.breaks = {} if answers else {"gpu03": "No route to host"}
    done = clusterctl("leases", "release", lease_of_another()["run"], "--yes", "--json")
    lines, messages = records(capsys)
    assert done == (0 if answers else 3)
    assert lines[-1]["freed"] == (["gpu03"] if answers else [])
    assert lines[-1]["left"] == ({} if answers else {"gpu03": "No route to host"})
    assert "skipped" not in messages


def test_a_run_that_cannot_be_seen_is_unlocked_by_an_explicit_word_alone(
    clusterctl, cluster, ansible, capsys
):
    unseen = replace(lease_of(RunStore(cluster).create("apply", []), cluster), pid=1, space="pid:[1]")
    ansible.holds = {"gpu01": unseen.as_record()}
    assert clusterctl("leases", "release", unseen.run, "--yes") == 2
    messages = capsys.readouterr().err
    assert "unlock.unseen" in messages
    assert "add --dead" in messages
    assert ansible.holds
    assert clusterctl("leases", "release", unseen.run, "--yes", "--dead") == 0
    assert ansible.holds == {}


def test_a_run_that_lives_on_this_machine_is_not_unlocked(clusterctl, cluster, ansible, capsys):
    alive = lease_of(RunStore(cluster).create("apply", []), cluster)
    ansible.holds = {"gpu01": alive.as_record()}
    assert clusterctl("leases", "release", alive.run, "--yes", "--dead") == 2
    assert "is still at work" in capsys.readouterr().err
    assert ansible.holds
