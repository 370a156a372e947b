"""CDI: which engines know it, and when a specification no longer fits the running driver."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.clusterctl.cluster.plugins.module_utils.kubernetes_node import trace_of_kubelet
from ansible_collections.clusterctl.cluster.plugins.modules import container_engine_facts as engine
from ansible_collections.clusterctl.cluster.plugins.modules import nvidia_cdi_spec as module
from tests.support.called_module import called

VERSION = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (dvs-builder@U22)  \n"
    "GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n"
)
SPEC = """\
cdiVersion: 0.5.0
containerEdits:
  hooks:
  - args: [nvidia-cdi-hook, create-symlinks]
    hookName: createContainer
  mounts:
  - containerPath: /usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05
    hostPath: /usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05
devices:
- containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
  name: "0"
- containerEdits:
    deviceNodes:
    - path: /dev/nvidia1
  name: "1"
- name: GPU-6d1c2e0f-1111-2222-3333-444455556666
- name: all
kind: nvidia.com/gpu
"""


def test_a_specification_is_read_without_a_yaml_library() -> None:
    spec = module.parse_spec(SPEC)
    assert spec.devices == ("0", "1", "GPU-6d1c2e0f-1111-2222-3333-444455556666", "all")
    assert spec.gpus == 2
    assert spec.versions == {"580.95.05"}


def test_the_running_drivers_version_is_read() -> None:
    assert module.parse_version(VERSION) == "580.95.05"
    assert module.parse_version("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.309  Fri\n") == "535.309"
    assert module.parse_version("") == ""


def test_it_is_stale_for_another_driver_other_gpus_or_when_missing() -> None:
    spec = module.parse_spec(SPEC)
    assert module.stale(spec, "580.95.05", 2) == []
    assert "580.105.08 runs" in module.stale(spec, "580.105.08", 2)[0]
    assert "2 GPUs, the kernel 8" in module.stale(spec, "580.95.05", 8)[0]
    assert module.stale(None, "580.95.05", 2) == ["there is none"]


@pytest.mark.parametrize(
    ("check", "planned", "before", "changed"),
    [
        (True, "", "", False),
        (True, "580.95.05", "580.95.05", False),
        # What apply will do: the driver that runs now is not the one that will.
        (True, "580.105.08", "580.95.05", True),
        # The unit of the toolkit may have made it again before this task.
        (False, "580.95.05", "580.82.07", True),
        (False, "580.95.05", "580.95.05", False),
        (False, "580.95.05", "", False),
    ],
)
def test_plan_and_apply_report_a_change_of_the_driver_alike(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    check: bool,
    planned: str,
    before: str,
    changed: bool,
) -> None:
    (tmp_path / "driver/gpus/0").mkdir(parents=True)
    (tmp_path / "driver/gpus/1").mkdir()
    (tmp_path / "driver/version").write_text(VERSION)
    (tmp_path / "nvidia.yaml").write_text(SPEC)
    monkeypatch.setattr(module, "run_bounded", lambda *_: (0, "LoadState=loaded\nActiveState=inactive\n", ""))
    monkeypatch.setattr(module.AnsibleModule, "get_bin_path", lambda *_: "/usr/bin/nvidia-ctk")
    paths = {"spec": "nvidia.yaml", "static": "none.yaml", "driver": "driver"}
    arguments = {name: str(tmp_path / path) for name, path in paths.items()}
    told = {"planned": planned, "before": before}
    answer = called(module, {**arguments, **told}, tmp_path, capsys, check=check)
    assert answer["changed"] is changed


@pytest.mark.parametrize("check", [True, False])
def test_check_mode_is_told_that_mig_devices_change_and_apply_sees_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, check: bool
) -> None:
    (tmp_path / "driver/gpus/0").mkdir(parents=True)
    (tmp_path / "driver/gpus/1").mkdir()
    (tmp_path / "driver/version").write_text(VERSION)
    (tmp_path / "nvidia.yaml").write_text(SPEC)
    monkeypatch.setattr(module, "run_bounded", lambda *_: (0, "LoadState=loaded\nActiveState=inactive\n", ""))
    monkeypatch.setattr(module.AnsibleModule, "get_bin_path", lambda *_: "/usr/bin/nvidia-ctk")
    paths = {"spec": "nvidia.yaml", "static": "none.yaml", "driver": "driver"}
    arguments = {name: str(tmp_path / path) for name, path in paths.items()}
    answer = called(module, {**arguments, "regrouped": True}, tmp_path, capsys, check=check)
    assert answer["because"] == (["MIG instances change"] if check else [])


def test_a_watch_that_ended_at_systemds_start_limit_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    driver = tmp_path / "driver"
    for gpu in ("0000:01:00.0", "0000:02:00.0"):
        (driver / "gpus" / gpu).mkdir(parents=True)
    (driver / "version").write_text(VERSION)
    (tmp_path / "spec.yaml").write_text(SPEC)
    states = {module.UNIT: "inactive", module.WATCH: "failed"}
    started: list[str] = []

    def run(argv: list[str], _limit_s: int) -> tuple[int, str, str]:
        if argv[0] == "nvidia-smi":
            return 0, "GPU 0: NVIDIA A100\n", ""
        if argv[1] == "show":
            return 0, f"LoadState=loaded\nActiveState={states[argv[-1]]}\n", ""
        if argv[1] == "is-active":
            return 3, f"{states[argv[-1]]}\n", ""
        if argv[1] == "reset-failed":
            states.update(dict.fromkeys(argv[2:], "inactive"))
        else:
            started.append(argv[-1])
            states[argv[-1]] = "active" if argv[-1] == module.WATCH else "inactive"
        return 0, "", ""

    monkeypatch.setattr(module, "run_bounded", run)
    monkeypatch.setattr(module.AnsibleModule, "get_bin_path", lambda *_: "/usr/bin/nvidia-ctk")
    arguments = {"spec": str(tmp_path / "spec.yaml"), "static": str(tmp_path / "none"), "driver": str(driver)}
    planned = called(module, arguments, tmp_path, capsys, check=True)
    assert (planned["because"], started) == ([f"{module.WATCH} has failed"], [])
    applied = called(module, arguments, tmp_path, capsys)
    assert applied["because"] == planned["because"]
    assert started == [module.WATCH, module.UNIT]
    assert called(module, arguments, tmp_path, capsys)["changed"] is False


def test_mig_devices_are_not_counted_as_gpus() -> None:
    spec = module.parse_spec(SPEC.replace('name: "1"', 'name: "1:0"'))
    assert module.stale(spec, "580.95.05", 2) == []
    assert module.stale(spec, "580.95.05", 2, {"1:0"}) == []


def test_it_is_stale_for_other_mig_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = module.parse_spec(SPEC.replace('name: "1"', 'name: "1:0"'))
    assert module.stale(spec, "580.95.05", 2, set()) == ["it has 1 MIG devices, the driver 0"]
    listed = (
        "GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-6d1c2e0f-1111-2222-3333-444455556666)\n"
        "GPU 1: NVIDIA A100-SXM4-80GB (UUID: GPU-7d1c2e0f-1111-2222-3333-444455556666)\n"
        "  MIG 3g.40gb     Device  0: (UUID: MIG-c7384736-a75d-5afc-978f-d2f1294409fd)\n"
        "  MIG 3g.40gb     Device  1: (UUID: MIG-a28ad590-3fda-56dd-84fc-0a0b96edc58d)\n"
    )
    monkeypatch.setattr(module, "run_bounded", lambda argv, seconds: (0, listed, ""))
    uuids = {"MIG-c7384736-a75d-5afc-978f-d2f1294409fd", "MIG-a28ad590-3fda-56dd-84fc-0a0b96edc58d"}
    assert module.mig_devices() == {"1:0", "1:1", *uuids}
    assert module.stale(spec, "580.95.05", 2, module.mig_devices()) == ["it has 1 MIG devices, the driver 2"]
    # As many instances as before, and others: a specification with UUIDs tells.
    named = module.parse_spec(SPEC.replace('name: "1"', 'name: "1:0"\n- name: MIG-0\n- name: "1:1"'))
    because = module.stale(named, "580.95.05", 2, module.mig_devices())
    assert because == ["it has 2 MIG devices, the driver others"]
    monkeypatch.setattr(module, "run_bounded", lambda argv, seconds: (9, "", ""))
    assert module.mig_devices() is None


@pytest.mark.parametrize(
    ("version", "support"),
    [
        ("", "never"), ("20.10.24+dfsg1", "never"), ("24.0.9", "never"), ("25.0.0", "option"),
        ("26.1.5+dfsg1", "option"), ("28.1.1", "option"), ("28.2.0", "default"), ("29.0.1", "default"),
    ],
)  # fmt: skip
def test_an_engines_knowledge_of_cdi_follows_its_version(version: str, support: str) -> None:
    assert engine.cdi_support(version) == support


def test_an_engine_that_is_absent_stopped_or_running_is_told() -> None:
    assert engine.facts("", {})["version"] == ""
    stopped = engine.facts("Docker version 26.1.5+dfsg1, build a72d7cd", {})
    assert (stopped["version"], stopped["running"]) == ("26.1.5+dfsg1", False)
    running = engine.facts(
        "Docker version 29.0.1, build x",
        {
            "ServerVersion": "29.0.1", "Runtimes": {"runc": {}, "nvidia": {}}, "ContainersRunning": 2,
            "DriverStatus": [["driver-type", "io.containerd.snapshotter.v1"]],
        },
    )  # fmt: skip
    assert running["runtimes"] == ["nvidia", "runc"]
    assert running["image_store_containerd"] is True


@pytest.mark.parametrize(
    ("shown", "after", "expected"),
    [
        ("LoadState=not-found\nActiveState=inactive\n", "", ""),
        ("LoadState=loaded\nActiveState=inactive\n", "", "inactive"),
        ("LoadState=loaded\nActiveState=failed\n", "", "failed"),
        ("LoadState=loaded\nActiveState=activating\n", "failed\n", "failed"),
    ],
)
def test_the_units_state_is_that_after_a_run_under_way(
    monkeypatch: pytest.MonkeyPatch, shown: str, after: str, expected: str
) -> None:
    answers = {"show": (0, shown, ""), "is-active": (3, after, "")}
    asked: list[str] = []

    def run(argv: list[str], _limit_s: int) -> tuple[int, str, str]:
        asked.append(argv[1])
        return answers.get(argv[1], (1, "", ""))

    monkeypatch.setattr(module, "run_bounded", run)
    assert module.settled_state() == expected
    assert ("start" in asked) == ("activating" in shown)


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        (None, ""), ("", ""), ("{", ""), ("[]", ""), ('{"exec-opts": 3}', ""), ("{}", ""),
        ('{"exec-opts": ["isolation=default"]}', ""),
        ('{"exec-opts": ["native.cgroupdriver=systemd"]}', "systemd"),
        ('{"exec-opts": ["native.cgroupdriver=systemd", "native.cgroupdriver=cgroupfs"]}', "cgroupfs"),
    ],
)  # fmt: skip
def test_the_cgroup_driver_that_an_operator_asked_for_is_known(
    tmp_path: Path, text: str | None, asked: str
) -> None:
    if text is not None:
        (tmp_path / "daemon.json").write_text(text, encoding="utf-8")
    assert engine.asked_cgroup_driver(tmp_path / "daemon.json", []) == asked


def test_the_cgroup_driver_that_a_flag_of_the_unit_asks_for_is_known(tmp_path: Path) -> None:
    assert engine.asked_cgroup_driver(tmp_path / "none", ["native.cgroupdriver=systemd"]) == "systemd"
    assert engine.asked_cgroup_driver(tmp_path / "none", ["isolation=default"]) == ""


@pytest.mark.parametrize(
    ("name", "user", "is_one"),
    [("kubelet", 0, True), ("kubelite", 0, True), ("dockerd", 0, False), ("kubelet", 1000, False)],
)
def test_a_kubelet_is_known_by_its_process(tmp_path: Path, name: str, user: int, is_one: bool) -> None:
    (tmp_path / "proc/4711").mkdir(parents=True)
    (tmp_path / "proc/4711/status").write_text(f"Name:\tx\nUid:\t{user}\t0\t0\t0\n", encoding="utf-8")
    (tmp_path / "proc/4711/comm").write_text(f"{name}\n", encoding="utf-8")
    assert engine.has_kubelet(tmp_path) is is_one
    assert trace_of_kubelet(tmp_path) == (name if is_one else "")


def test_an_engine_of_somebody_else_a_kubelet_and_a_docker_that_keeps_devices_are_known(
    tmp_path: Path,
) -> None:
    assert not engine.is_adopted(["docker-ce"], tmp_path)
    status = tmp_path / "var/lib/dpkg/status"
    status.parent.mkdir(parents=True)
    status.write_text("Package: docker-ce\nStatus: deinstall ok config-files\nPriority: x\n\n")
    assert not engine.is_adopted(["docker-ce"], tmp_path), "removed"
    status.write_text("Package: a\nStatus: x ok installed\n\nPackage: docker-ce\nStatus: hold ok installed\n")
    assert engine.is_adopted(["docker-ce"], tmp_path)
    assert not engine.is_adopted(["moby-engine"], tmp_path)
    assert not engine.has_kubelet(tmp_path)
    (tmp_path / "var/lib/kubelet").mkdir(parents=True)
    (tmp_path / "var/lib/kubelet/config.yaml").touch()
    assert engine.has_kubelet(tmp_path)


@pytest.mark.parametrize(("version", "keeps"), [("29.1.3", False), ("29.2.0", True), ("", False)])
def test_from_29_2_on_a_reload_takes_no_gpu_away(version: str, keeps: bool) -> None:
    assert engine.facts("", {"ServerVersion": version})["reload_keeps_devices"] is keeps
