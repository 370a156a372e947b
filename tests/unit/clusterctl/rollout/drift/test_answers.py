"""Which calls can be repeated before an apply, and which answer means no change. No host is reached."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clusterctl.rollout.drift.answers import fingerprint, pending_change
from clusterctl.rollout.drift.calls import CONTROLLER, NotRepeatableError, select_calls
from clusterctl.rollout.drift.report import build_report, find_differences

from .drift_stage import asked_of, call, log_entry, recorded


def test_modules_of_the_controller_and_follow_ups_are_not_repeated():
    modules = ("assert", "include_tasks", "debug", "async_status", "reboot")
    job = log_entry("container_image", job=True)
    assert [c.module for c in asked_of("gpu01", *map(log_entry, modules), job)] == ["node_preflight"]


def test_the_controllers_own_calls_are_every_hosts():
    local = log_entry("cluster_certificate", host="gpu02", at=CONTROLLER)
    other = log_entry("debian_packages", host="gpu02")
    assert [(c.at, c.module) for c in asked_of("gpu01", local, other)] == [
        ("", "node_preflight"),
        (CONTROLLER, "cluster_certificate"),
    ]


def test_equal_calls_are_repeated_once_and_counted():
    calls = asked_of("gpu01", log_entry("container_engine_facts"), log_entry("container_engine_facts"))
    assert [(c.module, c.times) for c in calls] == [("node_preflight", 1), ("container_engine_facts", 2)]


@pytest.mark.parametrize(
    "call",
    [
        log_entry("debian_packages", hidden=True),
        log_entry("debian_packages", failed=True),
        log_entry("apt"),
        log_entry("command"),
        log_entry("uri", args={"method": "POST"}),
        log_entry("template"),
        log_entry("file", at="gpu02"),
        log_entry("apt_source", args={"http_proxy": {"sha256": "0" * 64}}),
    ],
    ids=["no_log", "rescued", "unknown", "changes", "post", "no-content", "delegated", "secret"],
)
def test_a_call_that_may_change_something_is_not_repeated(call):
    with pytest.raises(NotRepeatableError, match="r: "):
        asked_of("gpu01", call)


def test_a_host_with_rdma_adapters_can_be_recorded():
    """container_runtime counts them with ``find``, whose results also hold times of access."""
    (_, adapters) = asked_of("gpu01", log_entry("find", args={"paths": ["/sys/class/infiniband"]}))
    assert adapters.check
    one = {"matched": 1, "files": [{"path": "/sys/class/infiniband/mlx5_0", "atime": 1.0}]}
    later = {"matched": 1, "files": [{"path": "/sys/class/infiniband/mlx5_0", "atime": 2.0}]}
    assert fingerprint(adapters, one) == fingerprint(adapters, later)
    assert fingerprint(adapters, one) != fingerprint(adapters, {"matched": 0, "files": []})


def test_a_host_without_logged_calls_is_not_recorded():
    with pytest.raises(NotRepeatableError):
        select_calls("gpu01", [])


def test_arguments_that_report_a_change_are_empty_when_repeated():
    (_, call) = asked_of(
        "gpu01", log_entry("nvidia_driver_activate", args={"changed_packages": ["x"], "version": "1"})
    )
    assert call.args == {"changed_packages": [], "version": "1"}


def test_every_fact_that_a_condition_of_a_role_uses_is_compared(repository):
    """Roles may ask the system what /etc/os-release, uname and Python say: replay.py compares those."""
    import re

    asked = set()
    for path in (repository / "roles").rglob("*.yml"):
        asked |= set(re.findall(r"ansible_facts\[.(\w+).\]", path.read_text(encoding="utf-8")))
    assert asked
    compared = {"architecture", "os_family", "python_version"}
    assert {name for name in asked if not name.startswith("distribution")} <= compared


# Which answer means that nothing is to be done


@pytest.mark.parametrize(
    ("module", "result", "quiet"),
    [
        ("file", {"changed": False}, True),
        ("file", {"changed": True}, False),
        ("file", {"failed": True, "msg": "no"}, False),
        ("container_image", {"changed": False, "wanted": True}, False),
        ("nvidia_driver_plan", {"changed": False, "plan": {"transaction": False, "activation": False}}, True),
        ("nvidia_driver_plan", {"changed": False, "plan": {"transaction": True}}, False),
        ("nvidia_driver_plan", {"changed": False, "plan": {"activation": True}}, False),
        ("nvidia_driver_activate", {"changed": False, "reboot_required": "new kernel"}, False),
        ("nvidia_driver_activate", {"changed": False, "left_alone": True}, False),
        ("registry_trust", {"changed": False, "left_alone": ["/etc/containerd/certs.d/x/hosts.toml"]}, True),
        ("docker_daemon_config", {"changed": False, "clusterctl": {"busy": "a container"}}, False),
        ("command", {"changed": True, "failed": True, "rc": 3}, True),
        ("command", {"failed": True, "msg": "it did not answer in time"}, False),
        ("node_preflight", {"changed": False, "clusterctl": {"findings": [{"severity": "warning"}]}}, True),
        ("node_preflight", {"clusterctl": {"findings": [{"severity": "error", "subject": "dns"}]}}, False),
        ("node_preflight", {"clusterctl": {"findings": [{"severity": "grave"}]}}, False),
        ("node_preflight", {"clusterctl": {"findings": [], "busy": "a job"}}, False),
        ("node_preflight", {"clusterctl": {"findings": [], "facts": {"lease": {"run": "x"}}}}, False),
        ("node_preflight", {"changed": False}, False),
        ("node_preflight", {"clusterctl": {"findings": "none", "facts": []}}, False),
        ("container_image", {"changed": False, "clusterctl": ["busy"], "plan": "none"}, True),
    ],
)
def test_an_answer_is_quiet_or_says_why_not(module, result, quiet):
    assert (pending_change(call(module), result) == "") is quiet


def test_an_answer_that_later_tasks_decide_by_must_be_the_same():
    before = {"changed": False, "engine": {"cdi": "never", "containers_running": 0}}
    same = {"changed": False, "engine": {"cdi": "never", "containers_running": 3}}
    other = {"changed": False, "engine": {"cdi": "option", "containers_running": 0}}
    facts = call("container_engine_facts")
    assert fingerprint(facts, before) == fingerprint(facts, same)
    assert fingerprint(facts, before) != fingerprint(facts, other)
    stat = call("stat")
    assert fingerprint(stat, {"stat": {"exists": True, "atime": 1}}) == fingerprint(
        stat, {"stat": {"exists": True}}
    )
    assert fingerprint(stat, {"stat": {"exists": True}}) != fingerprint(stat, {"stat": {"exists": False}})
    assert fingerprint(call("command"), {"rc": 3, "delta": 1}) != fingerprint(
        call("command"), {"rc": 0, "delta": 1}
    )


def test_only_a_host_of_which_every_answer_is_as_it_was_is_done():
    own, local = call("debian_packages"), call("cluster_certificate", at=CONTROLLER)
    record = recorded("gpu01", own, local)
    good = {own.identity: {"changed": False}}
    here = {local.identity: {"changed": False}}
    known = {"gpu01": record, "gpu02": replace(record, host="gpu02"), "gpu03": replace(record, host="gpu03")}
    drifted = {own.identity: {"changed": True}}
    dead = "its SSH port refuses connections"
    report = build_report(known, here, {"gpu01": good, "gpu02": drifted, "gpu03": dead})
    assert list(report.quiet) == ["gpu01"]
    assert report.quiet["gpu01"].ok == 2
    assert report.differing["gpu02"] == ("role: debian_packages: it would change something",)
    assert report.differing["gpu03"] == (dead,)
    assert report.rest(["gpu03", "gpu01", "gpu02"]) == ("gpu03", "gpu02")


def test_a_change_on_the_controller_is_every_hosts():
    own, local = call("debian_packages"), call("cluster_certificate", at=CONTROLLER)
    known = {name: replace(recorded(name, own, local), host=name) for name in ("gpu01", "gpu02")}
    answers = {name: {own.identity: {"changed": False}} for name in known}
    assert build_report(known, {local.identity: {"changed": True}}, answers).quiet == {}


def test_an_answer_that_did_not_come_is_no_good_answer():
    record = recorded("gpu01", call("debian_packages"))
    assert find_differences(record, {"": {}, CONTROLLER: {}}) == ("role: debian_packages: no answer",)
