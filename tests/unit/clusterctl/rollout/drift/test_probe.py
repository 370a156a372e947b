"""The drift probe of hosts with a record: what is sent, kept and removed. SSH is played."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace as Bare

import pytest
import yaml

from clustercheck.launch.transport import Completed
from clusterctl.cluster.access import Passwords
from clusterctl.cluster.sudo_password import PasswordRefusedError
from clusterctl.errors import ClusterctlError
from clusterctl.rollout.drift import replay
from clusterctl.rollout.drift.calls import CONTROLLER, READING_COMMANDS
from clusterctl.rollout.drift.probe import DriftProbe
from clusterctl.rollout.drift.records import load_record, remove_record, save_record

from .drift_stage import answering, call, probe_of, recorded, two_hosts


@pytest.fixture
def inventory(tmp_path):
    return two_hosts(tmp_path)


def test_a_full_disk_is_reported_for_the_host_that_cannot_be_recorded(inventory, monkeypatch):
    def full(_directory, record):
        if record.host == "gpu01":
            raise ClusterctlError("it cannot be written: No space left on device", code="cluster.x")
        kept.append(record.host)

    kept = []
    monkeypatch.setattr("clusterctl.rollout.drift.probe.save_record", full)
    asked = call("debian_packages")
    answers = {name: {asked.identity: {"changed": False}} for name in ("gpu01", "gpu02")}
    monkeypatch.setattr(DriftProbe, "_replay", lambda *_: ({}, answers))
    probe = DriftProbe(
        Bare(run=Bare(id="r")), Bare(directory=inventory.directory), Passwords(), "digest", True, False
    )
    said = probe._record_answers(dict.fromkeys(answers, (asked,)))
    assert said == {"gpu01": "it cannot be written: No space left on device"}
    assert kept == ["gpu02"]


def test_a_password_that_is_wrong_ends_the_inspection(inventory, monkeypatch):
    """Asked on, every host would count a wrong attempt; the whole road would be one more on each."""
    asked = []

    def refused(node, _stdin):
        asked.append(node)
        said = "sudo refuses us: 1 incorrect password attempt"
        raise PasswordRefusedError(node, said, is_wrong=len(asked) > 1)

    answering(monkeypatch, refused)
    monkeypatch.setattr(replay, "MAX_PARALLEL", 2)
    hosts = tuple(replace(inventory.hosts[0], name=f"gpu{number:02d}") for number in range(9))
    with pytest.raises(ClusterctlError, match="sudo refuses us") as caught:
        probe_of(inventory, hosts).inspect()
    assert caught.value.code == "access.sudo-password"
    assert len(asked) <= 4


@pytest.mark.parametrize("is_password_taken", [True, False])
def test_one_host_that_refuses_it_ends_nothing_where_another_takes_it(
    inventory, monkeypatch, is_password_taken
):
    def refused(node, _stdin):
        raise PasswordRefusedError(node, "sudo refuses us: 1 incorrect password attempt")

    answering(monkeypatch, refused, is_password_taken=is_password_taken)
    monkeypatch.setattr("clusterctl.rollout.drift.probe.note", lambda *_: None)
    probe = probe_of(inventory, inventory.hosts[:1])
    if is_password_taken:
        report = probe.inspect()
        assert "sudo refuses us" in str(report.differing["gpu01"])
    else:
        with pytest.raises(ClusterctlError, match="sudo refuses us"):
            probe.inspect()


def test_a_controller_that_hangs_is_a_reason_and_no_error(monkeypatch):
    monkeypatch.setattr(replay, "HOST_LIMIT_S", 0.05)
    monkeypatch.setattr(replay, "ON_CONTROLLER", "import time; time.sleep(5)")
    said = replay.replay_on_controller([call("cluster_certificate", at=CONTROLLER)])
    assert isinstance(said, str)
    assert "no answer" in said


def test_a_record_is_readable_by_its_owner_only_and_is_removed_completely(inventory):
    directory = inventory.directory
    record = recorded("gpu01", call("debian_packages"))
    save_record(directory, record)
    assert load_record(directory, "gpu01") == record
    (path,) = (directory.state / "probe").glob("*.json")
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_text('{"host": "gpu01"')
    assert load_record(directory, "gpu01") is None
    remove_record(directory, "gpu01")
    assert load_record(directory, "gpu01") is None


# What an archive's records could have modules do.
PLANTED = [
    {"module": "command", "check": False, "args": {"_raw_params": "touch /x"}},
    {"module": "command", "check": False,
     "args": {"_raw_params": "systemctl is-active docker-registry.service", "_uses_shell": True}},
    {"module": "command", "check": False, "at": CONTROLLER, "args": {"argv": ["touch", "/x"]}},
    {"module": "uri", "check": False, "args": {"url": "http://10.0.0.1/x", "dest": "/etc/cron.d/x"}},
    {"module": "uri", "check": False, "args": {"url": "http://10.0.0.1/x", "method": "DELETE"}},
    {"module": "file", "check": False, "args": {"path": "/etc", "state": "absent"}},
    {"module": "debian_packages", "check": False},
    {"module": "shell"},
    {"module": "debian_packages", "at": "gpu02"},
    {"module": "debian_packages", "kind": "anything"},
]  # fmt: skip


def test_commands_that_may_be_repeated_are_those_of_roles_that_never_change(repository):
    tasks = [
        task
        for path in (repository / "roles").glob("*/tasks/**/*.yml")
        for task in yaml.safe_load(path.read_text())
        if task.get("changed_when") is False
    ]
    assert {task.get("ansible.builtin.command") for task in tasks} >= READING_COMMANDS


@pytest.mark.parametrize("planted", PLANTED, ids=[f"{n}-{one['module']}" for n, one in enumerate(PLANTED)])
def test_a_record_that_asks_what_no_apply_asks_is_none(inventory, planted):
    record = recorded("gpu01", call("debian_packages"), replace(call("debian_packages"), **planted))
    save_record(inventory.directory, record)
    assert load_record(inventory.directory, "gpu01") is None


def test_the_first_probe_sends_the_code_to_hosts_that_lack_it(inventory, monkeypatch):
    """It is there in every other case, and then nothing more is sent."""
    sent = []

    def answered(node, stdin):
        order, code_sent = stdin.splitlines()[:2]
        sent.append((node, bool(code_sent)))
        answers = {one["id"]: {"changed": False} for one in json.loads(order)["calls"]}
        missing = node == "gpu02" and not code_sent
        return Completed(0, json.dumps({"missing": True} if missing else {"answers": answers}), "")

    answering(monkeypatch, answered)
    monkeypatch.setattr("clusterctl.rollout.drift.probe.note", lambda *_: None)
    report = probe_of(inventory, inventory.hosts).inspect()
    assert set(report.quiet) == {"gpu01", "gpu02"}
    assert sorted(sent) == [("gpu01", False), ("gpu02", False), ("gpu02", True)]
