"""The module mig_partition on a fake node: simulated GPUs, systemd with its units in a dictionary."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.clusterctl.cluster.plugins.module_utils import (
    driver_node,
    driver_reload,
    mig_restore,
)
from ansible_collections.clusterctl.cluster.plugins.modules import mig_partition
from tests.support.called_module import called
from tests.support.simulated_smi import SimulatedSmi

A100, H100 = "hgx-a100-80gb", "h100-sxm5-80gb"
UNIT = "clusterctl-mig"
SWITCH = "0000:c4:00.0"


class FakeNode:
    """A node whose unit runs what the file says, as the program does."""

    def __init__(self, root: Path, profile: str) -> None:
        self.root, self.smi = root, SimulatedSmi(root / "machine", profile)
        self.units = {"slurmd": "active", "nvidia-dcgm": "inactive", "nvidia-fabricmanager": "active"}
        self.enabled: set[str] = set()
        self.commands: list[str] = []
        self.said = ""
        self.killed = False
        devices = [(bus, "0x030200") for bus in self.smi.buses] + [(SWITCH, "0x068000")]
        for bus, kind in devices:
            directory = root / "sys/bus/pci/devices" / bus
            directory.mkdir(parents=True)
            (directory / "vendor").write_text("0x10de\n")
            (directory / "class").write_text(f"{kind}\n")
        (root / "proc/driver/nvidia").mkdir(parents=True)
        (root / "proc/driver/nvidia/version").write_text("NVRM version: NVIDIA Module  580.95.05  Release\n")

    def run(self, argv: list[str], _seconds: float, _environment: dict[str, str]) -> tuple[int, str, str]:
        if argv[0] == "nvidia-smi":
            code, output = self.smi.run(argv)
            return code, output, ""
        unit = argv[-1].removesuffix(".service")
        if argv[0] == "journalctl":
            return 0, self.said, ""
        if argv[:2] == ["systemctl", "show"]:
            state = self.units.get(unit, "inactive")
            file = "enabled" if unit in self.enabled else "disabled"
            return 0, f"LoadState=loaded\nActiveState={state}\nUnitFileState={file}\n", ""
        self.commands.append(" ".join(argv).removesuffix(".service"))
        if argv[1] in ("start", "stop"):
            self.units[unit] = "active" if argv[1] == "start" else "inactive"
        elif argv[1] == "enable":
            self.enabled.add(unit)
        elif argv[1] == "disable":
            self.enabled.discard(unit)
            self.units[unit] = "inactive"
        elif argv[1] == "restart":
            if self.killed:
                raise KeyboardInterrupt
            self.restore()
        return 0, "", ""

    def restore(self) -> None:
        """The unit runs."""
        gpus = json.loads((self.root / mig_partition.LAYOUT_FILE).read_text())["gpus"]
        failed = mig_restore.restore(self.smi.run, gpus, lambda _line: None)
        self.said = "\n".join(failed)
        self.units[UNIT] = "failed" if failed else "active"

    def reload_driver(self) -> None:
        """The driver is loaded again, and its activation starts the unit, if it is installed."""
        self.smi.boot()
        if (self.root / mig_partition.UNIT_FILE).exists():
            self.restore()


@pytest.fixture(params=[A100, H100])
def node(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNode:
    fake = FakeNode(tmp_path / "node", request.param)
    monkeypatch.setattr(mig_partition, "ROOT", fake.root)
    monkeypatch.setattr(driver_node, "run_bounded", fake.run)
    monkeypatch.setattr(driver_reload, "gpu_containers", lambda run: [])
    monkeypatch.setattr(mig_partition, "busy_reasons", lambda root, ask, ignored: [])
    return fake


@pytest.fixture
def apply(node: FakeNode, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    def applied(layout: Any, *, check: bool = False, **more: Any) -> dict[str, Any]:
        arguments = {
            "layout": layout, "program": "import sys\n", "unit": "[Unit]\n",
            "services": ["slurmd", "nvidia-dcgm"], **more,
        }  # fmt: skip
        return called(mig_partition, arguments, tmp_path, capsys, check=check)

    return applied


def test_gpus_are_divided_by_the_unit_while_no_service_uses_them(node: FakeNode, apply: Any) -> None:
    said = apply({0: "all-1g.10gb", "all": "disabled"})
    assert said["changed"]
    assert said["gpus"] == {"0": "7x1g.10gb", **dict.fromkeys(map(str, range(1, 8)), "disabled")}
    assert node.commands == [
        "systemctl stop slurmd",
        "systemctl daemon-reload",
        f"systemctl enable {UNIT}",
        f"systemctl restart {UNIT}",
        "systemctl start slurmd",
    ]
    assert (node.root / mig_partition.PROGRAM_FILE).read_text() == "import sys\n"
    assert (node.root / mig_partition.UNIT_FILE).read_text() == "[Unit]\n"


def test_a_second_run_changes_nothing_and_stops_nothing(node: FakeNode, apply: Any) -> None:
    apply("2x3g.40gb")
    node.commands.clear()
    again = apply("2x3g.40gb")
    assert (again["changed"], again["actions"], node.commands) == (False, [], [])


def test_check_mode_says_what_would_be_done_and_touches_nothing(node: FakeNode, apply: Any) -> None:
    said = apply({3: "3g.40gb"}, check=True)
    assert said["changed"]
    assert said["diff"]["before"] == "GPU 3: disabled\n"
    assert said["diff"]["after"].startswith("GPU 3: 3g.40gb\nstop slurmd\n")
    assert said["actions"][1:3] == ["GPU 3: enable MIG", "GPU 3: create 3g.40gb at 0"]
    assert node.commands == []
    assert not (node.root / "etc").exists()


def test_a_busy_node_is_left_alone_with_the_names_of_who_uses_it(
    node: FakeNode, apply: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = "1 compute process: python (4711)"
    monkeypatch.setattr(mig_partition, "busy_reasons", lambda root, ask, ignored: [busy])
    said = apply("2x3g.40gb")
    assert (said["changed"], said["left_alone"], node.commands) == (False, True, [])
    assert said["clusterctl"]["busy"].startswith(f"{busy} (its MIG layout differs")
    assert apply("disabled")["left_alone"] is False  # nothing would change
    assert apply("2x3g.40gb", force_busy=True)["gpus"]["0"] == "2x3g.40gb"


@pytest.mark.parametrize("check", [False, True])
def test_a_process_that_only_its_user_can_stop_leaves_the_node_alone_and_the_wave_goes_on(
    node: FakeNode, apply: Any, check: bool
) -> None:
    process = node.root / "proc/4711"
    (process / "fd").mkdir(parents=True)
    (process / "fd/3").symlink_to("/dev/nvidia0")
    (process / "comm").write_text("node_exporter\n")
    (process / "cgroup").write_text("0::/user.slice/user-4711.slice/session-1.scope\n")
    said = apply("2x3g.40gb", check=check)
    assert (said["changed"], said["left_alone"], node.commands) == (False, True, [])
    assert said["clusterctl"]["busy"].startswith(
        "the GPUs are in use by node_exporter (its MIG layout differs"
    )


def test_whole_gpus_need_no_unit(node: FakeNode, apply: Any) -> None:
    apply("2x3g.40gb")
    node.commands.clear()
    said = apply("disabled")
    assert set(said["gpus"].values()) == {"disabled"}
    assert f"systemctl disable --now {UNIT}" in node.commands
    assert not any(
        (node.root / path).exists() for path in (mig_partition.LAYOUT_FILE, mig_partition.UNIT_FILE)
    )
    assert apply("disabled")["changed"] is False


def test_what_is_no_longer_declared_is_left_as_it_is_and_not_restored(node: FakeNode, apply: Any) -> None:
    apply("2x3g.40gb")
    assert apply("")["gpus"] == {}
    assert not (node.root / mig_partition.LAYOUT_FILE).exists()
    assert node.smi.run(["nvidia-smi", "-L"])[1].count("MIG 3g.40gb") == 16
    assert apply("")["changed"] is False


def test_a_run_that_was_killed_is_completed_with_the_services_that_it_stopped(
    node: FakeNode, apply: Any
) -> None:
    node.killed = True
    with pytest.raises(KeyboardInterrupt):
        apply("2x3g.40gb")
    assert node.units["slurmd"] == "inactive"
    node.killed = False
    assert apply("2x3g.40gb")["gpus"]["7"] == "2x3g.40gb"
    assert node.units["slurmd"] == "active"


def test_services_that_a_killed_run_stopped_are_started_where_nothing_else_is_left(
    node: FakeNode, apply: Any
) -> None:
    apply("2x3g.40gb")
    node.units["slurmd"] = "inactive"
    (node.root / driver_reload.STOPPED).parent.mkdir(parents=True, exist_ok=True)
    (node.root / driver_reload.STOPPED).write_text("unit slurmd\n")
    assert apply("2x3g.40gb")["actions"] == ["start slurmd"]
    assert node.units["slurmd"] == "active"


def test_a_unit_that_fails_is_told_in_its_words_after_services_are_back(node: FakeNode, apply: Any) -> None:
    apply("2x3g.40gb")
    node.smi.occupy(2)
    said = apply("all-1g.10gb")
    assert "In use by another client" in said["msg"]
    assert node.units["slurmd"] == "active"


@pytest.mark.parametrize(
    ("layout", "words"),
    [
        ("7x1g.5gb", "hardware_mig: GPU 0: this GPU has no profile 1g.5gb"),
        ("8x1g.10gb", "room for 7"),
        ({9: "3g.40gb"}, "GPU 9 is declared, and the node has 8 GPUs"),
        ("off", "hardware_mig: 'off' is not a MIG instance"),
    ],
)
def test_a_layout_that_cannot_be_changes_nothing(node: FakeNode, apply: Any, layout: Any, words: str) -> None:
    said = apply(layout)
    assert said["failed"]
    assert words in said["msg"]
    assert node.commands == []


def test_behind_nvswitch_fabric_manager_must_run(node: FakeNode, apply: Any) -> None:
    node.units["nvidia-fabricmanager"] = "failed"
    assert "takes Fabric Manager, which does not run" in apply("3g.40gb")["msg"]
    assert node.commands == []


def test_without_a_driver_check_mode_says_that_it_comes_later(node: FakeNode, apply: Any) -> None:
    (node.root / "proc/driver/nvidia/version").unlink()
    assert apply("3g.40gb", check=True)["actions"] == ["divide the GPUs by MIG when the driver runs"]
    assert "none is loaded" in apply("3g.40gb")["msg"]
    assert apply("")["changed"] is False


def test_without_a_driver_a_layout_that_the_unit_restores_is_no_change(node: FakeNode, apply: Any) -> None:
    apply({0: "all-1g.10gb", "all": "disabled"})
    (node.root / "proc/driver/nvidia/version").unlink()
    node.units[UNIT] = "failed"  # the boot found no driver
    same = apply({0: "all-1g.10gb", "all": "disabled"}, check=True, driver_reloads=True)
    assert (same["changed"], same["actions"]) == (False, [])
    other = apply({0: "2x3g.40gb", "all": "disabled"}, check=True, driver_reloads=True)
    assert other["actions"] == ["divide the GPUs by MIG when the driver runs"]
    assert (node.root / mig_partition.UNIT_FILE).exists()


def test_without_a_driver_whole_gpus_are_no_change(node: FakeNode, apply: Any) -> None:
    (node.root / "proc/driver/nvidia/version").unlink()
    assert apply("disabled", check=True)["changed"] is False


DIVIDED = {"0-1": "2x3g.40gb", "2": "enabled"}
BY_HAND = {
    "nothing": [],
    "destroyed": ["-i 1 -dci", "-i 1 -dgi"],
    "created": ["-i 2 -cgi 1g.10gb -C"],
}


@pytest.mark.parametrize("by_hand", BY_HAND)
@pytest.mark.parametrize("unit", ["active", "failed"])
@pytest.mark.parametrize("declared", [DIVIDED, {"0-1": "all-1g.10gb", "2": "enabled"}, "disabled", ""])
def test_a_plan_with_a_reload_of_the_driver_says_what_the_apply_after_it_does(
    node: FakeNode, apply: Any, declared: Any, unit: str, by_hand: str
) -> None:
    apply(DIVIDED)
    for words in BY_HAND[by_hand]:
        assert node.smi.run(["nvidia-smi", "mig", *words.split()])[0] == 0
    node.units[UNIT] = unit
    plan = apply(declared, check=True, driver_reloads=True)
    node.reload_driver()
    applied = apply(declared)
    assert (plan["changed"], plan["regrouped"]) == (applied["changed"], applied["regrouped"])
    assert plan["actions"] == applied["actions"]
    assert plan["changed"] is (declared != DIVIDED)


@pytest.mark.parametrize("reloads", [True, False])
def test_what_an_interrupted_change_of_the_driver_stopped_is_started_by_the_next_one(
    node: FakeNode, apply: Any, reloads: bool
) -> None:
    """The driver runs, its services and the unit of MIG do not: the next activation starts them, not MIG."""
    apply(DIVIDED)
    node.smi.boot()
    node.units |= {UNIT: "inactive", "slurmd": "inactive"}
    stopped = node.root / driver_reload.STOPPED
    stopped.parent.mkdir(parents=True, exist_ok=True)
    stopped.write_text(f"unit slurmd\nunit {UNIT}\n")
    plan = apply(DIVIDED, check=True, driver_activated=True, driver_reloads=reloads)
    other = apply("all-1g.10gb", check=True, driver_activated=True, driver_reloads=reloads)
    assert apply(DIVIDED, check=True)["changed"] is True, "without the driver's part MIG's starts them"
    node.reload_driver()
    node.units["slurmd"] = "active"
    stopped.unlink()
    assert apply(DIVIDED)["actions"] == plan["actions"] == []
    gpus = [action for action in other["actions"] if action.startswith("GPU")]
    assert [one for one in apply("all-1g.10gb", check=True)["actions"] if one.startswith("GPU")] == gpus != []


@pytest.mark.parametrize("declared", ["disabled", "enabled", "2x3g.40gb"])
def test_what_nobody_restores_is_gone_after_a_reload_and_the_plan_knows(
    node: FakeNode, apply: Any, declared: str
) -> None:
    """A mode that was switched on by hand stays on Ampere, and goes with the driver from Hopper on."""
    assert node.smi.run(["nvidia-smi", "-i", "0", "-mig", "1"])[0] == 0
    assert node.smi.run(["nvidia-smi", "mig", "-i", "0", "-cgi", "3g.40gb,3g.40gb", "-C"])[0] == 0
    assert apply({0: declared}, check=True)["changed"] is True
    plan = apply({0: declared}, check=True, driver_reloads=True)
    node.reload_driver()
    applied = apply({0: declared})
    assert plan["actions"] == applied["actions"]
    hopper = node.smi.profile == H100
    assert plan["changed"] is not (hopper and declared == "disabled")


def test_where_profiles_are_listed_only_with_the_mode_on_they_are_planned_then(
    node: FakeNode, apply: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(argv: list[str], seconds: float, environment: dict[str, str]) -> tuple[int, str, str]:
        code, output, error = node.run(argv, seconds, environment)
        listed = node.smi.run([*argv[:-1], "-lgi"])[1] if "-lgip" in argv else ""
        return (6, listed, "") if "No MIG-enabled" in listed else (code, output, error)

    monkeypatch.setattr(driver_node, "run_bounded", run)
    assert apply("all-1g.10gb")["gpus"]["5"] == "7x1g.10gb"
