"""The look at hosts that are remembered: what is sent, kept and forgotten. SSH is played."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace as Bare

import pytest

from clustercheck.launch.transport import Completed
from clusterctl.cluster.access import Passwords
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.cluster.ssh import PasswordRefusedError
from clusterctl.errors import ClusterctlError
from clusterctl.rollout.probe import ask, records
from clusterctl.rollout.probe.calls import HERE
from clusterctl.rollout.probe.drift import DriftProbe

from .probe_stage import answering, call, looks_at, remembered, two_hosts


@pytest.fixture
def inventory(tmp_path):
    return two_hosts(tmp_path)


def test_a_disk_that_is_full_is_said_of_the_host_that_cannot_be_remembered(inventory, monkeypatch):
    def full(_directory, record):
        if record.host == "gpu01":
            raise ClusterctlError("it cannot be written: No space left on device", code="cluster.x")
        kept.append(record.host)

    kept = []
    monkeypatch.setattr(records, "save", full)
    asked = call("debian_packages")
    answers = {name: {asked.identity: {"changed": False}} for name in ("gpu01", "gpu02")}
    monkeypatch.setattr(DriftProbe, "_answers", lambda *_: ({}, answers))
    looks = DriftProbe(
        Bare(run=Bare(id="r")), Bare(directory=inventory.directory), Passwords(), "digest", True, False
    )
    said = looks._look_again(dict.fromkeys(answers, (asked,)))
    assert said == {"gpu01": "it cannot be written: No space left on device"}
    assert kept == ["gpu02"]


def test_a_password_that_one_host_refuses_ends_the_look(inventory, monkeypatch):
    """Asked on, every host would count a wrong attempt; the whole road would be one more on each."""
    asked = []

    def refused(node, _stdin):
        asked.append(node)
        raise PasswordRefusedError(node, "sudo refuses us: 1 incorrect password attempt")

    answering(monkeypatch, refused)
    monkeypatch.setattr(ask, "AT_ONCE", 2)
    hosts = tuple(replace(inventory.hosts[0], name=f"gpu{number:02d}") for number in range(9))
    with pytest.raises(ClusterctlError, match="sudo refuses us") as caught:
        looks_at(inventory, hosts).first()
    assert caught.value.code == "access.sudo-password"
    assert len(asked) <= 3


def test_a_controller_that_hangs_is_a_reason_and_no_error(tmp_path, monkeypatch):
    monkeypatch.setattr(ask, "HOST_LIMIT_S", 0.05)
    monkeypatch.setattr(ask, "_launcher", lambda _place: ["-c", "import time; time.sleep(5)"])
    said = ask.ask_here([call("cluster_certificate", at=HERE)], ClusterDirectory(tmp_path))
    assert isinstance(said, str)
    assert "no answer" in said


def test_what_is_remembered_is_the_operators_alone_and_is_forgotten_whole(inventory):
    directory = inventory.directory
    record = remembered("gpu01", call("debian_packages"))
    records.save(directory, record)
    assert records.load(directory, "gpu01") == record
    (path,) = (directory.state / "probe").glob("*.json")
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_text('{"host": "gpu01"')
    assert records.load(directory, "gpu01") is None
    records.forget(directory, "gpu01")
    assert records.load(directory, "gpu01") is None


def test_the_first_look_puts_the_code_where_it_is_missing(inventory, monkeypatch):
    """It is there in every other case, and then nothing more is sent."""
    sent = []

    def answered(node, stdin):
        order, code_sent = stdin.splitlines()[:2]
        sent.append((node, bool(code_sent)))
        answers = {one["id"]: {"changed": False} for one in json.loads(order)["calls"]}
        missing = node == "gpu02" and not code_sent
        return Completed(0, json.dumps({"missing": True} if missing else {"answers": answers}), "")

    answering(monkeypatch, answered)
    monkeypatch.setattr("clusterctl.rollout.probe.drift.note", lambda *_: None)
    look = looks_at(inventory, inventory.hosts).first()
    assert set(look.quiet) == {"gpu01", "gpu02"}
    assert sorted(sent) == [("gpu01", False), ("gpu02", False), ("gpu02", True)]
