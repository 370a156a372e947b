"""GPUs of a node are divided by MIG: as declared, again after a power cycle, and after a killed change."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from .conftest import RunningLab, json_lines
from .on_node import NODE, Apply, changes, inside, until
from .validating import failed_of, power_cycle, validated

pytestmark = [pytest.mark.lab, pytest.mark.drawn("packages and images")]

LAYOUT = {"all": "disabled", "0": ["3g.40gb", "2x2g.20gb"], "1-2": "all-1g.10gb"}
INSTANCES = {0: 3, 1: 7, 2: 7}
UNIT = "clusterctl-mig"
NEW = "580.105.08"  # the lab's depot has it; its nodes run an older one of the branch
DROP_IN = "/etc/systemd/system/nvidia-fabricmanager.service.d/test.conf"
NOT_THE_NEW_ONE = f'[Service]\\nExecStartPre=/bin/sh -c "! nv-fabricmanager --version | grep -q {NEW}"\\n'
COUNT = "nvidia-smi -L | grep -c '  MIG '"


@pytest.fixture
def declared(applied_lab: RunningLab) -> Iterator[RunningLab]:
    """A lab whose settings divide three GPUs of one node; afterwards all are whole again."""
    file = applied_lab.cluster / "host_vars" / f"{NODE}.yml"
    file.parent.mkdir(exist_ok=True)
    before = file.read_text(encoding="utf-8") if file.exists() else None
    settings = yaml.safe_load(before or "{}")
    try:
        file.write_text(yaml.safe_dump({**settings, "hardware_mig": LAYOUT}), encoding="utf-8")
        yield applied_lab
    finally:
        file.write_text(yaml.safe_dump({**settings, "hardware_mig": "disabled"}), encoding="utf-8")
        changed(applied_lab)
        file.unlink() if before is None else file.write_text(before, encoding="utf-8")
    assert instances(applied_lab) == {}
    assert inside(applied_lab, f"systemctl cat {UNIT}", check=False) == ""


def changed(lab: RunningLab) -> int:
    """How many tasks an apply of MIG to the node changed."""
    return int(json_lines_of(lab, "mig", "apply", "--yes")[-1]["changed"])


def json_lines_of(lab: RunningLab, *arguments: str) -> list[dict[str, Any]]:
    done = lab.clusterctl(*arguments, "--json", "--limit", NODE)
    assert done.returncode == 0, done.stderr
    return json_lines(done)


def instances(lab: RunningLab) -> dict[int, int]:
    """How many instances each divided GPU of the node has, as its driver lists them."""
    found: dict[int, int] = {}
    gpu = -1
    for line in inside(lab, "nvidia-smi -L").splitlines():
        if line.startswith("GPU "):
            gpu = int(line.split()[1].rstrip(":"))
        elif line.startswith("  MIG "):
            found[gpu] = found.get(gpu, 0) + 1
    return found


def test_gpus_are_divided_as_declared_and_the_layout_is_judged(declared: RunningLab) -> None:
    planned = declared.done("mig", "plan", "--limit", NODE)
    assert instances(declared) == {}, "a plan changes nothing"
    assert changed(declared) > 0
    assert instances(declared) == INSTANCES
    assert "3g.40gb" in planned
    assert changed(declared) == 0
    layouts = json_lines_of(declared, "mig", "status")
    assert {one["verdict"] for one in layouts} == {"pass"}, layouts

    code, document = validated(declared)

    results = [one for one in document["results"] if one["subject"]["node"] == NODE]
    judged = {one["subject"]["gpu"]: one["verdict"] for one in results if one["check"] == "gpu-mig"}
    assert judged == dict.fromkeys(range(8), "pass")
    assert (code, failed_of(document)) == (0, [])
    # A program that changes them behind apply's back is found.
    inside(declared, "nvidia-smi mig -i 1 -dci; nvidia-smi mig -i 1 -dgi")
    assert declared.clusterctl("mig", "status", "--limit", NODE).returncode == 1
    assert changed(declared) > 0


def test_instances_are_back_after_a_power_cycle(declared: RunningLab) -> None:
    assert changed(declared) > 0
    power_cycle(declared, NODE)
    assert instances(declared) == INSTANCES
    assert changed(declared) == 0


def test_instances_stay_as_declared_when_the_driver_changes(declared: RunningLab) -> None:
    assert changed(declared) > 0
    file = declared.cluster / "host_vars" / f"{NODE}.yml"
    layout = file.read_text(encoding="utf-8")
    try:
        file.write_text(f"{layout}nvidia_driver_version: {NEW}\n", encoding="utf-8")
        assert_planned_is_applied(declared, "--only", "driver")
        assert instances(declared) == INSTANCES
        assert instances(declared) == INSTANCES
    finally:  # by a whole apply, and to the version of the group
        file.write_text(layout, encoding="utf-8")
        assert_planned_is_applied(declared)
    assert instances(declared) == INSTANCES
    assert_containers_get_instances(declared)


def test_the_layout_is_back_when_a_change_of_the_driver_fails_midway_and_goes_back(
    declared: RunningLab,
) -> None:
    """Fabric Manager of the new version does not start, when the new module is loaded already."""
    assert changed(declared) > 0
    file = declared.cluster / "host_vars" / f"{NODE}.yml"
    layout = file.read_text(encoding="utf-8")
    inside(declared, f"mkdir -p $(dirname {DROP_IN}) && printf '{NOT_THE_NEW_ONE}' >{DROP_IN}")
    inside(declared, "systemctl daemon-reload")
    try:
        file.write_text(f"{layout}nvidia_driver_version: {NEW}\n", encoding="utf-8")
        failed = declared.clusterctl("apply", "--yes", "--only", "driver", "--limit", NODE)
        assert failed.returncode == 1
        assert "nvidia-fabricmanager does not start" in " ".join(failed.stderr.split())
        assert inside(declared, "cat /sys/module/nvidia/version") == NEW
        assert instances(declared) != INSTANCES
    finally:
        file.write_text(layout, encoding="utf-8")
        assert_planned_is_applied(declared)
        inside(declared, f"rm {DROP_IN} && systemctl daemon-reload")
    assert instances(declared) == INSTANCES
    assert_containers_get_instances(declared)
    assert inside(declared, "systemctl --failed --plain --no-legend") == ""


def assert_containers_get_instances(lab: RunningLab) -> None:
    """The specification of devices names each instance, and no file of another driver."""
    devices = inside(lab, "grep -c 'name: \"[0-9]*:[0-9]*\"' /var/run/cdi/nvidia.yaml")
    assert int(devices) == sum(INSTANCES.values())
    running = inside(lab, "cat /sys/module/nvidia/version")
    libraries = inside(lab, r"grep -o 'libcuda.so.[0-9.]*[0-9]' /var/run/cdi/nvidia.yaml | sort -u")
    assert libraries == f"libcuda.so.{running}"


def assert_planned_is_applied(lab: RunningLab, *parts: str) -> None:
    """A plan names the tasks that the apply then changes, some of them, and another apply changes nothing."""
    would = json_lines_of(lab, "plan", *parts)
    planned = {(line["host"], line["task"]) for line in would if line["type"] == "change"}
    assert changes(json_lines_of(lab, "apply", "--yes", *parts)) == planned != set()
    assert changes(json_lines_of(lab, "apply", "--yes")) == set()


def test_a_killed_change_is_completed_by_the_next_apply(declared: RunningLab) -> None:
    arguments = ("mig", "apply", "--yes", "--json", "--limit", NODE)
    with Apply(declared, *arguments) as running:
        until(declared, f"[ $({COUNT}) -ge 2 ]")
        running.kill(signal.SIGKILL)
        inside(declared, f"systemctl kill --signal KILL {UNIT}", check=False)
    changed(declared)
    assert instances(declared) == INSTANCES
    assert changed(declared) == 0
