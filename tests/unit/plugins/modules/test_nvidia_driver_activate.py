"""What activation does to modules and services, on a fake node."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from ansible_collections.clusterctl.cluster.plugins.module_utils import driver_node, driver_reload
from ansible_collections.clusterctl.cluster.plugins.modules import nvidia_driver_activate as activate

BANNER = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {}  Release Build\n"
PARAMS = {
    "version": "580.105.08",
    "flavor": "open",
    "persistence": True,
    "peermem": "auto",
    "fabric_manager": True,
    "nvlsm": False,
    "imex": False,
    "imex_nodes": [],
    "services": ["slurmd", "nvidia-fabricmanager", "nvidia-persistenced"],
    "reboot": "",
    "holders_ignored": [],
    "changed_packages": [],
}


class Ended(Exception):
    """The module has ended, with its result."""


class FakeModule:
    """A node of files under a directory, and systemd with its units in a dictionary."""

    def __init__(self, root: Path, units: dict[str, str], disk: str = "580.105.08") -> None:
        self.root, self.units, self.disk = root, units, disk
        self.check_mode, self.params = False, dict(PARAMS)
        self.warned: list[str] = []
        self.containers: list[dict[str, object]] = []
        self.patch: pytest.MonkeyPatch
        self.commands: list[str] = []
        self.refused: set[str] = set()

    def run_command(self, argv: list[str], **_: object) -> tuple[int, str, str]:
        words = " ".join(argv)
        unit = argv[-1].removesuffix(".service")
        if argv[:2] == ["systemctl", "show"]:
            state = self.units.get(unit)
            loaded = "loaded" if state else "not-found"
            return 0, f"LoadState={loaded}\nActiveState={state or 'inactive'}\nUnitFileState=enabled\n", ""
        if argv[0] in ("nvidia-smi", "nv-fabricmanager", "nvidia-imex"):
            return 0, f"{self.disk}\n", ""
        self.commands.append(words)
        if argv[0] == "systemctl" and argv[1] in ("start", "stop"):
            self.units[unit] = "active" if argv[1] == "start" else "inactive"
        if words == "modprobe nvidia":
            self.load(self.disk)
        if argv[0] == "docker" and "docker" in self.refused:
            return 1, "", "no such device"
        if argv[0] in ("rmmod", "modprobe") and argv[-1] in self.refused:
            return 1, "", f"could not insert '{argv[-1]}': Invalid argument"
        if argv[0] == "rmmod":
            (self.root / "sys/module" / argv[1]).rmdir()
        elif argv[0] == "modprobe" and argv[1] != "-r":
            (self.root / "sys/module" / argv[1]).mkdir(parents=True, exist_ok=True)
        return 0, "", ""

    def load(self, version: str) -> None:
        """The kernel runs this driver."""
        (self.root / "proc/driver/nvidia").mkdir(parents=True, exist_ok=True)
        (self.root / "proc/driver/nvidia/version").write_text(BANNER.format(version))
        (self.root / "sys/module/nvidia").mkdir(parents=True, exist_ok=True)

    def warn(self, text: str) -> None:
        self.warned.append(text)

    def exit_json(self, **result: object) -> None:
        raise Ended(result)

    def fail_json(self, **result: object) -> None:
        raise Ended(result["msg"])


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeModule:
    monkeypatch.setattr(activate, "ROOT", tmp_path)
    (tmp_path / "proc").mkdir()
    fake = FakeModule(tmp_path, dict.fromkeys(PARAMS["services"], "active"))
    fake.patch = monkeypatch
    monkeypatch.setattr(driver_reload, "gpu_containers", lambda run: fake.containers)
    monkeypatch.setattr(driver_node, "run_bounded", lambda argv, seconds, environment: fake.run_command(argv))
    return fake


def bring(module: FakeModule) -> tuple[str, list[str]]:
    """Activation as main() does it: why a reboot is needed, and the commands that changed something."""
    node = driver_node.Node(module, module.root)
    reason = driver_reload.differs(module.root, PARAMS["version"], PARAMS["flavor"])
    stays = driver_reload.settle_modules(node, reason, PARAMS["version"], PARAMS["services"])
    if not stays:
        activate.settle_peermem(node, module.params)
        activate.settle_umad(node, module.params["nvlsm"])
        activate.start_services(node, module.params)
    return stays, module.commands


def test_a_driver_that_somebody_else_loads_meanwhile_needs_no_reboot(module: FakeModule) -> None:
    stop_holders = driver_reload.stop_holders

    def and_it_is_loaded(*arguments: object, **options: object) -> None:
        stop_holders(*arguments, **options)
        module.load("580.105.08")
        module.refused = {"nvidia"}

    module.patch.setattr(driver_reload, "stop_holders", and_it_is_loaded)
    loads: list[str] = []
    module.patch.setattr(driver_reload, "load", lambda _, version: loads.append(version))
    assert bring(module)[0] == ""
    assert loads == ["580.105.08"], "its other modules are still to be loaded"


def test_a_driver_that_runs_is_left_alone(module: FakeModule) -> None:
    module.load("580.105.08")
    assert bring(module) == ("", [])


def test_services_stop_before_the_modules_go_and_start_after_they_came(module: FakeModule) -> None:
    module.load("580.95.05")
    assert bring(module)[1] == [
        "systemctl stop slurmd.service",
        "systemctl stop nvidia-fabricmanager.service",
        "systemctl stop nvidia-persistenced.service",
        "rmmod nvidia",
        "modprobe nvidia",
        "modprobe nvidia_uvm",
        "systemctl start nvidia-persistenced.service",
        "systemctl start nvidia-fabricmanager.service",
        "systemctl start slurmd.service",
    ]


@pytest.fixture
def divided(module: FakeModule) -> FakeModule:
    """The old driver, on a node whose GPUs the unit of role mig divides."""
    module.load("580.95.05")
    module.units["clusterctl-mig"] = "active"
    return module


@pytest.mark.parametrize("state", ["active", "failed", "inactive"])
def test_the_mig_layout_is_restored_before_services_that_count_devices(
    divided: FakeModule, state: str
) -> None:
    divided.units["clusterctl-mig"] = state
    assert bring(divided)[1][3:] == [
        "systemctl stop clusterctl-mig.service",
        "rmmod nvidia",
        "modprobe nvidia",
        "modprobe nvidia_uvm",
        "systemctl start nvidia-persistenced.service",
        "systemctl start nvidia-fabricmanager.service",
        "systemctl start clusterctl-mig.service",
        "systemctl start slurmd.service",
    ]
    divided.commands.clear()
    assert bring(divided)[1] == []


def test_a_mig_layout_that_is_not_restored_is_told_when_services_run_and_tried_again(
    divided: FakeModule,
) -> None:
    start, refused = divided.run_command, [True]

    def run_command(argv: list[str], **more: object) -> tuple[int, str, str]:
        if argv[0] == "journalctl":
            return 0, "Starting MIG layout\n0000:07:00.0: Insufficient Resources\n", ""
        if refused[0] and argv[1:] == ["start", "clusterctl-mig.service"]:
            return 1, "", "Job failed"
        return start(argv, **more)

    divided.run_command = run_command  # type: ignore[method-assign]
    for _ in range(2):
        with pytest.raises(
            Ended, match=r"layout is not restored: 0000:07:00\.0: Insufficient Resources\. See"
        ):
            bring(divided)
        assert divided.units["slurmd"] == "active"
    refused[0] = False
    assert bring(divided)[1][-1] == "systemctl start clusterctl-mig.service"
    assert not (divided.root / driver_reload.STOPPED).exists()


@pytest.mark.parametrize(
    "at", ["rmmod nvidia", "modprobe nvidia_uvm", "systemctl start clusterctl-mig.service"]
)
def test_a_reload_that_was_killed_is_completed_with_the_mig_layout_and_all_services(
    divided: FakeModule, at: str
) -> None:
    run = divided.run_command

    def killed(argv: list[str], **more: object) -> tuple[int, str, str]:
        if " ".join(argv) == at:
            raise KeyboardInterrupt
        return run(argv, **more)

    divided.run_command = killed  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        bring(divided)
    divided.run_command = run  # type: ignore[method-assign]
    divided.units["nvidia-persistenced"] = "active"  # as udev starts it
    assert bring(divided)[0] == ""
    assert set(divided.units.values()) == {"active"}
    assert "systemctl start clusterctl-mig.service" in divided.commands


def test_where_the_modules_stay_the_mig_unit_is_started_again(divided: FakeModule) -> None:
    divided.refused = {"nvidia"}
    assert bring(divided)[0].startswith("nvidia cannot be unloaded")
    assert divided.units["clusterctl-mig"] == "active"


def test_a_reload_is_told_to_those_who_plan_after_it(divided: FakeModule) -> None:
    divided.patch.setattr(activate, "AnsibleModule", lambda *_, **__: divided)
    divided.patch.setattr(activate, "busy_reasons", lambda root, run, ignored: [])
    divided.params["force_busy"] = False
    for check, reloads in ((True, True), (False, True), (False, False)):
        divided.check_mode = check
        with pytest.raises(Ended) as ended:
            activate.main()
        assert ended.value.args[0]["reloads"] is reloads


def test_ib_umad_is_there_before_fabric_manager_starts_nvlsm_and_at_boot(module: FakeModule) -> None:
    module.load("580.105.08")
    module.units["nvidia-fabricmanager"] = "inactive"
    module.params["nvlsm"] = True
    assert bring(module)[1] == ["modprobe ib_umad", "systemctl start nvidia-fabricmanager.service"]
    at_boot = module.root / "etc/modules-load.d/clusterctl-ib-umad.conf"
    assert at_boot.read_text().splitlines()[-1] == "ib_umad"
    module.commands.clear()
    assert bring(module)[1] == []
    module.params["nvlsm"] = False
    bring(module)
    assert not at_boot.exists()


def test_a_kernel_without_ib_umad_is_said_before_fabric_manager_fails(module: FakeModule) -> None:
    module.load("580.105.08")
    module.params["nvlsm"] = True
    module.refused.add("ib_umad")
    with pytest.raises(Ended, match="linux-modules-extra on Ubuntu"):
        bring(module)


NODES = ["192.0.2.1", "192.0.2.2"]


def test_imex_runs_for_the_declared_nodes_and_restarts_with_others(module: FakeModule) -> None:
    module.load("580.105.08")
    module.units["nvidia-imex"] = "inactive"
    module.params.update(fabric_manager=False, imex=True, imex_nodes=NODES)
    assert bring(module)[1] == ["systemctl start nvidia-imex.service"]
    config = module.root / "etc/nvidia-imex/nodes_config.cfg"
    assert config.read_text() == "192.0.2.1\n192.0.2.2\n"
    module.commands.clear()
    assert bring(module)[1] == []
    module.params["imex_nodes"] = NODES[:1]
    assert bring(module)[1] == ["systemctl stop nvidia-imex.service", "systemctl start nvidia-imex.service"]


def test_without_declared_nodes_imex_is_left_to_others(module: FakeModule) -> None:
    module.load("580.105.08")
    module.units["nvidia-imex"] = "inactive"
    module.params.update(fabric_manager=False, imex=True)
    config = module.root / "etc/nvidia-imex/nodes_config.cfg"
    config.parent.mkdir(parents=True)
    config.write_text("192.0.2.9\n")
    assert bring(module)[1] == []
    assert config.read_text() == "192.0.2.9\n"


def test_a_job_keeps_imex_from_restarting_with_other_nodes(module: FakeModule) -> None:
    module.load("580.105.08")
    module.units["nvidia-imex"] = "active"
    module.params.update(fabric_manager=False, imex=True, imex_nodes=NODES, force_busy=False)
    module.patch.setattr(activate, "AnsibleModule", lambda *arguments, **words: module)
    module.patch.setattr(activate, "busy_reasons", lambda *arguments: ["1 compute process"])
    with pytest.raises(Ended) as ended:
        activate.main()
    (result,) = ended.value.args
    assert result["left_alone"] and not result["changed"] and module.commands == []
    assert result["clusterctl"]["busy"].startswith("1 compute process (IMEX restarts with other nodes")


def test_imex_of_another_version_than_the_driver_is_said(module: FakeModule) -> None:
    module.load("580.105.08")
    module.params.update(imex=True, imex_nodes=NODES, fabric_manager=False)
    module.disk = "580.95.05"
    node = driver_node.Node(module, module.root)
    with pytest.raises(Ended, match=r"imex says 580\.95\.05"):
        activate.read_back(node, module.params)


OTHERS = ("nvidia_fs", "gdrdrv", "nvidia_peermem", "nvidia_drm", "nvidia_modeset")


def loaded(module: FakeModule) -> set[str]:
    return {path.name for path in (module.root / "sys/module").iterdir()}


@pytest.fixture
def with_others(module: FakeModule) -> FakeModule:
    """The old driver, with all the modules that may stand on it."""
    module.load("580.95.05")
    for name in (*OTHERS, "nvidia_uvm"):
        (module.root / "sys/module" / name).mkdir(parents=True)
    return module


def test_what_was_loaded_beside_the_driver_is_loaded_again(with_others: FakeModule) -> None:
    commands = bring(with_others)[1]
    assert loaded(with_others) == {"nvidia", "nvidia_uvm", *OTHERS}
    again = [words.split()[1] for words in commands if words.startswith("modprobe")]
    assert again == ["nvidia", "nvidia_uvm", *reversed(OTHERS)]


def test_a_module_that_does_not_load_again_is_named(with_others: FakeModule) -> None:
    with_others.refused = {"nvidia_peermem"}
    (with_others.root / "sys/module/nvidia_peermem").rmdir()
    assert bring(with_others)[0] == "", "it was not loaded before"
    (with_others.root / "sys/module/nvidia_peermem").mkdir()
    with_others.load("580.95.05")
    with_others.refused = set()
    refuse = with_others.run_command

    def run_command(argv: list[str], **more: object) -> tuple[int, str, str]:
        with_others.refused = {"nvidia_peermem"} if argv[0] == "modprobe" else set()
        return refuse(argv, **more)

    with_others.run_command = run_command  # type: ignore[method-assign]
    with pytest.raises(
        Ended, match=r"do not load with driver 580\.105\.08: nvidia_peermem \(could not insert"
    ):
        bring(with_others)
    # The driver runs as asked for now: the next run tries what is missing again all the same.
    before = list(with_others.commands)
    with pytest.raises(Ended, match="nvidia_peermem"):
        bring(with_others)
    with_others.run_command = refuse  # type: ignore[method-assign]
    with_others.refused = set()
    bring(with_others)
    changed = [words for words in with_others.commands[len(before) :] if not words.startswith("journalctl")]
    assert changed == ["modprobe nvidia_peermem"] * 2
    assert loaded(with_others) == {"nvidia", "nvidia_uvm", *OTHERS}
    assert bring(with_others)[1] == with_others.commands and not driver_reload.owed(with_others.root)


def test_what_a_killed_run_had_unloaded_is_loaded_by_the_next(
    with_others: FakeModule, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(_node: object, _version: str) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(driver_reload, "load", killed)
        with pytest.raises(KeyboardInterrupt):
            bring(with_others)
    assert loaded(with_others) == set()
    bring(with_others)
    assert loaded(with_others) == {"nvidia", "nvidia_uvm", *OTHERS}


def test_where_a_module_stays_those_that_went_come_back(with_others: FakeModule) -> None:
    with_others.refused = {"nvidia_drm"}
    assert bring(with_others)[0].startswith("nvidia_drm cannot be unloaded")
    assert loaded(with_others) == {"nvidia", "nvidia_uvm", *OTHERS}


def test_nothing_is_stopped_while_somebody_holds_a_gpu(module: FakeModule) -> None:
    module.load("580.95.05")
    fd = module.root / "proc/77/fd"
    fd.mkdir(parents=True)
    (module.root / "proc/77/comm").write_text("python3\n")
    (fd / "5").symlink_to("/dev/nvidia0")
    assert bring(module) == ("the GPUs are in use by python3 (77)", [])


@pytest.mark.parametrize("forced", [False, True])
def test_a_job_that_began_during_the_install_keeps_its_node_unless_forced(
    module: FakeModule, monkeypatch: pytest.MonkeyPatch, forced: bool
) -> None:
    module.load("580.95.05")
    module.params = {**PARAMS, "force_busy": forced}
    monkeypatch.setattr(activate, "AnsibleModule", lambda *_, **__: module)
    monkeypatch.setattr(activate, "busy_reasons", lambda root, run, ignored: ["Slurm jobs: 4711"])
    with pytest.raises(Ended) as ended:
        activate.main()
    result = ended.value.args[0]
    assert result["left_alone"] is not forced
    assert ("Slurm jobs: 4711" in result["clusterctl"].get("busy", "")) is not forced
    assert bool(module.commands) is forced


def test_a_driver_that_runs_stays_until_the_reboot_into_a_kernel_with_the_new_one(
    module: FakeModule, monkeypatch: pytest.MonkeyPatch
) -> None:
    module.load("580.95.05")
    module.params = {**PARAMS, "force_busy": False, "reboot": "kernel A has no modules, kernel B does"}
    monkeypatch.setattr(activate, "AnsibleModule", lambda *_, **__: module)
    monkeypatch.setattr(activate, "busy_reasons", lambda root, run, ignored: [])
    with pytest.raises(Ended) as ended:
        activate.main()
    result = ended.value.args[0]
    assert result["reboot_required"].endswith("kernel A has no modules, kernel B does")
    assert (module.commands, result["changed"]) == ([], False)
    module.load("580.105.08")
    with pytest.raises(Ended) as ended:
        activate.main()
    assert ended.value.args[0]["reboot_required"] == ""


def test_nouveau_leaves_the_initramfs_too(module: FakeModule) -> None:
    (module.root / "sys/module/nouveau").mkdir(parents=True)
    assert driver_reload.differs(module.root, "580.105.08", "open") == "nouveau drives the GPUs"
    commands = bring(module)[1]
    assert commands.index("update-initramfs -u -k all") < commands.index("modprobe -r nouveau")


def test_the_version_is_read_back_from_the_kernel(module: FakeModule) -> None:
    module.load("580.95.05")
    module.disk = "580.82.07"
    with pytest.raises(Ended, match=r"loaded driver 580\.82\.07 although 580\.105\.08 is installed"):
        bring(module)


def test_check_mode_says_the_same_and_does_nothing(module: FakeModule) -> None:
    module.load("580.95.05")
    module.check_mode = True
    node = driver_node.Node(module, module.root)
    driver_reload.reload_modules(node, PARAMS["version"], PARAMS["services"])
    activate.start_services(node, PARAMS)
    assert module.commands == []
    assert node.actions == [
        "stop slurmd",
        "stop nvidia-fabricmanager",
        "stop nvidia-persistenced",
        "unload nvidia",
        "load nvidia",
        "load nvidia_uvm",
        "start nvidia-persistenced",
        "start nvidia-fabricmanager",
        "start slurmd",
    ]


# As nvidia-compute-utils of Ubuntu has it.
UNIT = """\
[Unit]
Description=NVIDIA Persistence Daemon
Wants=syslog.target
StopWhenUnneeded=true
Before=systemd-backlight@backlight:nvidia_0.service

[Service]
Type=forking
ExecStart=/usr/bin/nvidia-persistenced --user nvidia-persistenced --no-persistence-mode --verbose
ExecStopPost=/bin/rm -rf /var/run/nvidia-persistenced
"""
DROP_IN = """\
# Managed by clusterctl (role nvidia_driver).
[Unit]
StopWhenUnneeded=no
[Service]
ExecStart=
ExecStart=/usr/bin/nvidia-persistenced --user nvidia-persistenced --verbose
"""


def test_a_unit_that_forbids_persistence_mode_gets_a_drop_in_once(module: FakeModule) -> None:
    module.load("580.105.08")
    unit = module.root / "lib/systemd/system/nvidia-persistenced.service"
    unit.parent.mkdir(parents=True)
    unit.write_text(UNIT)
    restarted = ["stop nvidia-persistenced.service", "start nvidia-persistenced.service"]
    at_boot = "add-wants multi-user.target nvidia-persistenced.service"
    assert bring(module)[1] == [f"systemctl {words}" for words in ("daemon-reload", at_boot, *restarted)]
    drop_in = module.root / "etc/systemd/system/nvidia-persistenced.service.d/clusterctl.conf"
    assert drop_in.read_text() == DROP_IN
    link = module.root / "etc/systemd/system/multi-user.target.wants/nvidia-persistenced.service"
    link.parent.mkdir(parents=True)
    link.symlink_to(unit)
    module.commands.clear()
    assert bring(module)[1] == []
    # As NVIDIA's own unit is: the drop-in goes.
    unit.write_text(UNIT.replace(" --no-persistence-mode", "").replace("StopWhenUnneeded=true\n", ""))
    assert bring(module)[1] == [f"systemctl {words}" for words in ("daemon-reload", *restarted)]
    assert not drop_in.exists()


def test_a_unit_of_the_operators_own_is_left_as_it_is(module: FakeModule) -> None:
    module.load("580.105.08")
    for place in ("lib", "etc"):
        unit = module.root / place / "systemd/system/nvidia-persistenced.service"
        unit.parent.mkdir(parents=True)
        unit.write_text(UNIT)
    assert bring(module)[1] == []


PEERMEM_FILE = "etc/modules-load.d/clusterctl-nvidia-peermem.conf"


@pytest.mark.parametrize(
    ("asked", "kernel", "has", "loads"),
    [
        ({"flavor": "proprietary"}, "5.15.0-204-generic", "adapter ofed", True),
        ({"flavor": "open"}, "5.15.0-204-generic", "adapter ofed", False),
        ({"flavor": "open"}, "5.4.0-216-generic", "adapter ofed", True),
        ({"flavor": "proprietary"}, "5.15.0-204-generic", "ofed", False),
        ({"flavor": "proprietary"}, "5.15.0-204-generic", "adapter", False),
        ({"flavor": "open", "peermem": "true"}, "5.15.0-204-generic", "", True),
        ({"flavor": "open", "peermem": "on"}, "5.15.0-204-generic", "", True),
        ({"flavor": "proprietary", "peermem": "false"}, "5.15.0-204-generic", "adapter ofed", False),
        ({"flavor": "proprietary", "peermem": "off"}, "5.15.0-204-generic", "adapter ofed", False),
    ],
)
def test_peermem_is_loaded_now_and_at_boot_where_gpudirect_depends_on_it(
    module: FakeModule, asked: dict[str, str], kernel: str, has: str, *, loads: bool
) -> None:
    module.patch.setattr(activate.os, "uname", lambda: SimpleNamespace(release=kernel))
    module.load("580.105.08")
    device = module.root / "sys/bus/pci/devices/0000:41:00.0"
    device.mkdir(parents=True)
    for name, value in (("vendor", "0x15b3" if "adapter" in has else "0x8086"), ("class", "0x020000")):
        (device / name).write_text(f"{value}\n")
    symbol = "ib_register_peer_memory_client" if "ofed" in has else "ib_register_client"
    (module.root / "proc/kallsyms").write_text(f"ffffffffc0a1b2c0 T {symbol}\t[ib_core]\n")
    params = {**PARAMS, **asked}
    for commands in (["modprobe nvidia_peermem"] if loads else [], []):
        module.commands.clear()
        activate.settle_peermem(driver_node.Node(module, module.root), params)
        assert module.commands == commands
        assert (module.root / PEERMEM_FILE).exists() is loads
    assert bool(module.warned) is (has == "adapter")
    if loads:
        assert (module.root / PEERMEM_FILE).read_text().splitlines()[1:] == ["nvidia_peermem"]
        activate.settle_peermem(driver_node.Node(module, module.root), {**params, "peermem": "false"})
        assert not (module.root / PEERMEM_FILE).exists()


def test_peermem_that_is_wanted_and_does_not_load_is_named(module: FakeModule) -> None:
    module.load("580.105.08")
    module.refused = {"nvidia_peermem"}
    module.params["peermem"] = "true"
    with pytest.raises(Ended, match=r"or are wanted, do not load .*nvidia_peermem \(could not insert"):
        bring(module)


def test_peermem_that_is_not_wanted_is_not_loaded_again(with_others: FakeModule) -> None:
    with_others.params["peermem"] = "false"
    bring(with_others)
    assert "nvidia_peermem" not in loaded(with_others)
    assert "gdrdrv" in loaded(with_others)


def hold(module: FakeModule, pid: int, name: str, cgroup: str) -> None:
    """A process that has a GPU open."""
    descriptors = module.root / f"proc/{pid}/fd"
    descriptors.mkdir(parents=True)
    (module.root / f"proc/{pid}/comm").write_text(f"{name}\n")
    (module.root / f"proc/{pid}/cgroup").write_text(f"{cgroup}\n")
    (descriptors / "5").symlink_to("/dev/nvidia0")


@pytest.fixture
def monitored(module: FakeModule) -> FakeModule:
    """The old driver, held by a node exporter, a display and dcgm-exporter in a container."""
    module.load("580.95.05")
    identity = "ab" * 32
    hold(module, 31, "node_exporter", "0::/system.slice/node_exporter.service")
    hold(module, 32, "Xorg", "0::/user.slice/user-1000.slice/session-2.scope")
    (module.root / "proc/32/status").write_text("Uid:\t1000\t1000\t1000\t1000\n")
    sessions = module.root / "run/systemd/sessions"
    sessions.mkdir(parents=True)
    (sessions / "2").write_text("UID=1000\nSERVICE=gdm-password\n")
    hold(module, 33, "dcgm-exporter", f"0::/system.slice/docker-{identity}.scope")
    image = {"Image": "nvcr.io/nvidia/k8s/dcgm-exporter:4.2.0"}
    module.containers = [{"Id": identity, "Name": "/watch", "Config": image, "HostConfig": {}}]
    module.units |= dict.fromkeys(("node_exporter", "display-manager"), "active")
    return module


STOPS = [
    "docker stop watch",
    "systemctl stop node_exporter.service",
    "systemctl stop display-manager.service",
]
STARTS = ["systemctl start display-manager.service", "systemctl start node_exporter.service"]


def test_holders_are_stopped_for_the_reload_and_started_after(monitored: FakeModule) -> None:
    stays, commands = bring(monitored)
    assert stays == ""
    assert commands[:3] == STOPS
    assert commands[-4:] == ["systemctl start slurmd.service", *STARTS, "docker start watch"]
    assert not (monitored.root / driver_reload.STOPPED).exists()


def test_what_a_killed_run_had_stopped_is_started_by_the_next(monitored: FakeModule) -> None:
    def killed(_node: object, _version: str) -> None:
        raise KeyboardInterrupt

    with monitored.patch.context() as patch:
        patch.setattr(driver_reload, "load", killed)
        with pytest.raises(KeyboardInterrupt):
            bring(monitored)
    monitored.load("580.105.08")  # by a reboot, say
    monitored.commands.clear()
    commands = bring(monitored)[1]
    assert [words for words in commands if words.split()[-1] in "watch node_exporter.service"] == [
        "systemctl start node_exporter.service",
        "docker start watch",
    ]
    assert "systemctl start slurmd.service" in commands
    monitored.commands.clear()
    assert bring(monitored)[1] == []


def test_a_container_that_does_not_start_again_is_a_warning(monitored: FakeModule) -> None:
    monitored.refused = {"docker"}
    bring(monitored)
    assert "watch" in monitored.warned[0] and "no such device" in monitored.warned[0]


def test_a_holder_that_nobody_can_start_again_is_left_and_only_a_reboot_helps(monitored: FakeModule) -> None:
    hold(monitored, 34, "node_exporter", "0::/user.slice/user-1000.slice/session-3.scope")
    assert bring(monitored) == ("the GPUs are in use by node_exporter", [])


@pytest.mark.parametrize("unit", ["dcgm", "nvidia-dcgm"])
def test_dcgms_host_engine_stops_after_its_exporter_and_starts_before(module: FakeModule, unit: str) -> None:
    module.load("580.95.05")
    hold(module, 41, "nv-hostengine", f"0::/system.slice/{unit}.service")
    hold(module, 42, "dcgm-exporter", "0::/system.slice/dcgm-exporter.service")
    module.units |= dict.fromkeys((unit, "dcgm-exporter"), "active")
    stays, commands = bring(module)
    assert stays == ""
    of_dcgm = [words for words in commands if "dcgm" in words]
    assert of_dcgm == [
        "systemctl stop dcgm-exporter.service",
        f"systemctl stop {unit}.service",
        f"systemctl start {unit}.service",
        "systemctl start dcgm-exporter.service",
    ]
    modules = [words for words in commands if "nvidia" in words and "mod" in words]
    assert commands.index(of_dcgm[1]) < commands.index(modules[0])
    assert commands.index(modules[-1]) < commands.index(of_dcgm[2])


def test_dcgms_host_engine_in_a_container_is_stopped_and_started(module: FakeModule) -> None:
    module.load("580.95.05")
    identity = "cd" * 32
    hold(module, 43, "nv-hostengine", f"0::/system.slice/docker-{identity}.scope")
    image = {"Image": "nvcr.io/nvidia/cloud-native/dcgm:4.2.3-1-ubuntu22.04"}
    module.containers = [{"Id": identity, "Name": "/metrics", "Config": image, "HostConfig": {}}]
    stays, commands = bring(module)
    assert (stays, commands[0], commands[-1]) == ("", "docker stop metrics", "docker start metrics")


def test_a_host_engine_that_somebody_started_by_hand_is_named(module: FakeModule) -> None:
    module.load("580.95.05")
    hold(module, 44, "nv-hostengine", "0::/user.slice/user-0.slice/session-7.scope")
    assert bring(module) == ("the GPUs are in use by nv-hostengine", [])
