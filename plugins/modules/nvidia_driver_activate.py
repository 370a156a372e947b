#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE)
"""Ansible module: makes the kernel run the installed driver, and starts its services in order."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.clusterctl.cluster.plugins.module_utils import gpu_node
from ansible_collections.clusterctl.cluster.plugins.module_utils.bounded import late, run_bounded
from ansible_collections.clusterctl.cluster.plugins.module_utils.driver_boot import (
    DROP_IN,
    HEAD,
    PEERMEM,
    PEERMEM_AT_BOOT,
    PERSISTENCE,
    WANTED_AT_BOOT,
    has_peer_memory,
    needs_peermem,
    packaged_unit,
    persistence_drop_in,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.gpu_busy import (
    CannotTellError,
    Holder,
    ask,
    busy_reasons,
    device_holders,
    gpu_containers,
    sort_users,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.node_files import read_file, replace_file
from ansible_collections.clusterctl.cluster.plugins.module_utils.service_unit import (
    RunFull,
    active_units,
    journal,
    unit_state,
)

DOCUMENTATION = r"""
module: nvidia_driver_activate
short_description: Makes the kernel run the installed NVIDIA driver
description:
  - Compares the running module with the version asked for, reloads the modules where they differ, and says
    C(reboot_required) where they cannot be unloaded.
  - Services that hold the device are stopped before and started after.
  - Asks again who uses the GPUs before it stops anything, for a job may have started since the plan; a busy
    node is left alone and said to be busy.
  - Reads the version back from the running module. Check mode is supported.
options:
  version: {description: Version that the kernel must run., type: str, required: true}
  flavor: {description: Kind of kernel modules., type: str, choices: [open, proprietary], required: true}
  persistence:
    description: Whether nvidia-persistenced runs and sets persistence mode, also where its unit forbids that.
    type: bool
    default: true
  peermem:
    description: Whether nvidia_peermem is loaded now and at boot; auto where GPUDirect RDMA depends on it.
    type: str
    choices: [auto, "true", "false"]
    default: auto
  fabric_manager: {description: Whether Fabric Manager runs., type: bool, default: false}
  services:
    description: Units that hold the device in the order to stop them.
    type: list
    elements: str
    default: []
  force_busy: {description: Continue although the node is busy., type: bool, default: false}
  holders_ignored:
    description: Names of what holds GPUs and is no job, besides those that are known; globs are allowed.
    type: list
    elements: str
    default: []
  reboot:
    description: Why only a reboot brings this driver, as into a kernel that has its modules; empty otherwise.
    type: str
    default: ""
  changed_packages:
    description: Packages that were just changed.
    type: list
    elements: str
    default: []
author: [the clusterctl authors]
"""

EXAMPLES = r"""
- name: Activate
  clusterctl.cluster.nvidia_driver_activate:
    version: 580.95.05
    flavor: open
"""

RETURN = r"""
loaded: {description: Version that the kernel runs now., type: str, returned: always}
reboot_required: {description: Why only a reboot helps; else empty., type: str, returned: always}
left_alone: {description: Whether nothing was done because the node is busy., type: bool, returned: always}
actions: {description: What was done or would be., type: list, returned: always}
code:
  description: "Stable code of the failure: task.timed-out"
  returned: when the cause is known
  type: str
"""

ARGUMENTS: dict[str, Any] = {
    "version": {"type": "str", "required": True},
    "flavor": {"type": "str", "choices": ["open", "proprietary"], "required": True},
    "persistence": {"type": "bool", "default": True},
    "peermem": {"type": "str", "choices": ["auto", "true", "false"], "default": "auto"},
    "fabric_manager": {"type": "bool", "default": False},
    "services": {"type": "list", "elements": "str", "default": []},
    "force_busy": {"type": "bool", "default": False},
    "holders_ignored": {"type": "list", "elements": "str", "default": []},
    "reboot": {"type": "str", "default": ""},
    "changed_packages": {"type": "list", "elements": "str", "default": []},
}
ROOT = Path("/")
LIMIT_S = 60
# Fabric Manager trains every link before its unit has started; every kernel gets its initramfs.
LIMITS_S = {"systemctl": 600, "docker": 120, "update-initramfs": 900, "modprobe": 300, "rmmod": 120}
# In the order in which they must go: users of a module before the module.
MODULES = ("nvidia_fs", "gdrdrv", "nvidia_peermem", "nvidia_uvm", "nvidia_drm", "nvidia_modeset", "nvidia")
OWN = ("nvidia", "nvidia_uvm")
# Other modules that were unloaded and are not loaded yet: the next run does it, where this one was killed.
OWED = "run/clusterctl/driver-modules"
# What was stopped for the reload and is not started yet, in the order in which it was stopped.
STOPPED = "run/clusterctl/driver-stopped"
FABRIC_MANAGER = "nvidia-fabricmanager"


class Node:
    """The node under change: runs programs, remembers what was done."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        self.actions: list[str] = []
        self.stopped: list[str] = []
        self.containers: list[str] = []
        self.unloaded: list[str] = []
        self.missing: list[str] = []
        self.late: dict[str, str] = {}

    def run(self, argv: list[str]) -> tuple[int, str, str]:
        """Runs a program within its time limit."""
        code, output, error = run_bounded(argv, LIMITS_S.get(argv[0], LIMIT_S), {"LC_ALL": "C"})
        self.late = self.late or late(code)
        return code, output, error

    def fail(self, msg: str) -> None:
        """Ends the module; a program that did not end in time is the cause."""
        self.module.fail_json(msg=msg, **self.late)

    def do(self, what: str, argv: list[str]) -> tuple[int, str]:
        """Runs a program that changes; in check mode only notes that it would."""
        self.actions.append(what)
        if self.module.check_mode:
            return 0, ""
        code, output, error = self.run(argv)
        return code, (error or output).strip()

    def write(self, path: str, content: str) -> bool:
        """Brings a file to this content, or removes it where that is empty; whether that is a change."""
        file = ROOT / path
        if read_file(file) == content:
            return False
        self.actions.append(f"{'write' if content else 'remove'} /{path}")
        if not self.module.check_mode:
            if content:
                replace_file(file, content, 0o644)
            else:
                file.unlink()
        return True


def kernel_words(run: RunFull) -> str:
    """What the kernel said last about the driver."""
    _, output, _ = run(["journalctl", "-k", "-n", "200", "--no-pager", "-o", "cat"])
    lines = [line.strip() for line in output.splitlines() if "nvidia" in line.lower() or "NVRM" in line]
    return "; ".join(lines[-4:])


def owed() -> list[str]:
    """Modules that an earlier run unloaded and did not load again, in the order in which they go."""
    named = read_file(ROOT / OWED).split()
    return [name for name in MODULES if name in named and not gpu_node.module_loaded(ROOT, name)]


def owe(node: Node, names: list[str]) -> None:
    """Remember these for the next run, until they are loaded."""
    if node.module.check_mode:
        return
    if names:
        replace_file(ROOT / OWED, "".join(f"{name}\n" for name in names), 0o644)
    else:
        (ROOT / OWED).unlink(missing_ok=True)


def differs(version: str, flavor: str) -> str:
    """Why the modules must be reloaded; empty where the kernel runs what was asked for."""
    loaded, kind = gpu_node.loaded_driver(ROOT), gpu_node.loaded_flavor(ROOT)
    if gpu_node.module_loaded(ROOT, "nouveau"):
        return "nouveau drives the GPUs"
    if loaded != version:
        return f"the kernel runs {loaded or 'no NVIDIA driver'}"
    return f"the kernel runs the {kind} modules" if kind not in ("", flavor) else ""


def in_use(ignored: list[str]) -> tuple[str, list[Holder]]:
    """Who holds the GPUs and cannot be stopped, empty if nobody does; and the holders that can."""
    try:
        containers = gpu_containers(ask)
    except CannotTellError:  # then the processes in them count
        containers = []
    users = sort_users(ROOT, device_holders(ROOT), containers, ignored)
    others = [f"{who} ({pid})" for pid, who in sorted(users.processes.items())]
    others += [holder.name for holder in users.holders if not holder.unit and not holder.container]
    return ", ".join(others[:5]), [holder for holder in users.holders if holder.unit or holder.container]


def stop_holders(node: Node, holders: list[Holder], services: list[str]) -> None:
    """Stops services and holders, on record before: the next run starts them if this one is killed."""
    units = dict.fromkeys([*(holder.unit for holder in holders if holder.unit), *services])
    active = active_units(node.run, units)
    containers = [holder.container for holder in holders if holder.container]
    if not node.module.check_mode and (active or containers):
        lines = [*(f"container {name}" for name in containers), *(f"unit {unit}" for unit in active)]
        replace_file(ROOT / STOPPED, "".join(f"{line}\n" for line in lines), 0o644)
    for name in containers:
        node.do(f"stop container {name}", ["docker", "stop", name])
        node.containers.append(name)
    for unit in active:
        stop(node, unit)


def start_stopped(node: Node, but_not: tuple[str, ...]) -> None:
    """Starts what was stopped, now or by a run that was killed, the last first."""
    recorded = [line.split(" ", 1) for line in read_file(ROOT / STOPPED).splitlines() if " " in line]
    units = [name for kind, name in recorded if kind == "unit"] or list(node.stopped)
    for unit in reversed([unit for unit in units if unit not in but_not]):
        if unit in node.stopped or not active_units(node.run, [unit]):
            start(node, unit)
    containers = [name for kind, name in recorded if kind == "container"] or node.containers
    for name in reversed(containers):
        code, error = node.do(f"start container {name}", ["docker", "start", name])
        if code != 0:  # it is monitoring: no reason to keep the node from its jobs
            node.module.warn(f"Container {name}, which held GPUs, does not start again: {error}.")
    if not node.module.check_mode:
        (ROOT / STOPPED).unlink(missing_ok=True)


def unload(node: Node) -> str:
    """Unloads nouveau and NVIDIA's modules; says why where one stays."""
    if gpu_node.module_loaded(ROOT, "nouveau"):
        node.do("write the initramfs without nouveau", ["update-initramfs", "-u", "-k", "all"])
        code, error = node.do("unload nouveau", ["modprobe", "-r", "nouveau"])
        if code != 0:
            return f"nouveau is in use and cannot be unloaded ({error})"
    before = owed()
    going = [name for name in MODULES if gpu_node.module_loaded(ROOT, name)]
    owe(node, [name for name in MODULES if name in (*before, *going) and name not in OWN])
    node.unloaded += before
    for name in going:
        code, error = node.do(f"unload {name}", ["rmmod", name])
        if code != 0:
            return f"{name} cannot be unloaded ({error})"
        node.unloaded.append(name)
    return ""


def load_again(node: Node) -> list[str]:
    """Loads what was unloaded next to the driver itself; returns what cannot be, with the reason.

    Without nvidia_peermem GPUDirect is lost, and nobody says so; the others serve storage and displays.
    """
    failed = {}
    unwanted = {PEERMEM} if node.module.params["peermem"] == "false" else set()
    for name in sorted(set(node.unloaded) - unwanted, key=MODULES.index, reverse=True):
        if gpu_node.module_loaded(ROOT, name) and not node.module.check_mode:
            continue  # as a module of its own that modprobe brought with another
        code, error = node.do(f"load {name}", ["modprobe", name])
        if code != 0:
            failed[name] = f"{name} ({error or 'modprobe failed'})"
    node.unloaded.clear()
    owe(node, list(failed))
    return list(failed.values())


def load(node: Node, version: str) -> None:
    """Loads the driver; ends the module where the kernel refuses it or runs another one."""
    code, error = node.do("load nvidia", ["modprobe", "nvidia"])
    if code != 0:
        built = node.run(["modinfo", "-F", "version", "nvidia"])[1].strip()
        hint = (
            f"The module on disk is {built}. Secure Boot may refuse its key (mokutil --import), or another "
            "driver holds the GPUs"
            if built
            else f"No module is there for kernel {os.uname().release}: see `dkms status`, or reboot into a "
            "kernel that has one"
        )
        node.fail(
            f"The kernel does not load driver {version}: {error or 'modprobe failed'}. {hint}. "
            f"The kernel said: {kernel_words(node.run) or 'nothing'}"
        )
    node.do("load nvidia_uvm", ["modprobe", "nvidia_uvm"])
    node.unloaded = [name for name in node.unloaded if name not in OWN]
    node.missing = load_again(node)
    loaded = gpu_node.loaded_driver(ROOT)
    if loaded != version and not node.module.check_mode:
        node.fail(
            f"The kernel loaded driver {loaded or 'none'} although {version} is installed: another "
            f"module comes first. Look at `modinfo nvidia` and `dkms status` ({os.uname().release})."
        )


def reload_modules(node: Node, version: str, services: list[str]) -> str:
    """Stops services and holders and reloads the modules; says why where only a reboot helps."""
    ignored = node.module.params["holders_ignored"]
    users, holders = in_use(ignored)
    if users:  # their modules stay, and a Fabric Manager that is stopped now would not start again
        return f"the GPUs are in use by {users}"
    stop_holders(node, holders, services)
    stays = unload(node)
    if stays:  # Fabric Manager of the new version refuses the old module: it waits for the reboot
        if failed := load_again(node):
            stays += f"; meanwhile these are not loaded: {', '.join(failed)}"
        start_stopped(node, (FABRIC_MANAGER,))
    else:
        load(node, version)
    return stays


def settle_modules(node: Node, reason: str, version: str, services: list[str]) -> str:
    """Reloads the modules if there is a reason, else loads what an earlier run left unloaded."""
    if reason:
        return reload_modules(node, version, services)
    if missing := owed():
        node.unloaded = missing
        node.missing = load_again(node)
    return ""


def stop(node: Node, unit: str) -> None:
    """Stops a unit."""
    node.do(f"stop {unit}", ["systemctl", "stop", f"{unit}.service"])
    node.stopped.append(unit)


def start(node: Node, unit: str) -> None:
    """Starts a unit; ends the module with its journal where it fails."""
    code, error = node.do(f"start {unit}", ["systemctl", "start", f"{unit}.service"])
    if code != 0:
        node.fail(
            f"{unit} does not start: {(journal(node.run, unit) or error).rstrip('.')}. "
            f"See `journalctl -u {unit}`; driver and Fabric Manager must be of one version."
        )


def service(node: Node, unit: str, wanted: bool, restart: bool) -> None:
    """Brings a unit of the driver to its declared state."""
    state = unit_state(node.run, unit)
    if not wanted and state.get("LoadState") != "loaded":
        return
    enabled = state.get("UnitFileState") == "enabled"
    active = state.get("ActiveState") == "active" and unit not in node.stopped
    if wanted and not enabled and state.get("UnitFileState") != "static":
        node.do(f"enable {unit}", ["systemctl", "enable", f"{unit}.service"])
    if wanted and active and restart:
        stop(node, unit)
        active = False
    if wanted and not active:
        start(node, unit)
    if not wanted and (enabled or active):
        node.do(f"disable {unit}", ["systemctl", "disable", "--now", f"{unit}.service"])


def settle_persistence(node: Node, wanted: bool) -> bool:
    """Makes the packaged daemon set persistence mode, now and at boot; whether it must start again."""
    unit = packaged_unit(ROOT, PERSISTENCE)
    changed = node.write(DROP_IN, persistence_drop_in(unit) if wanted else "")
    if changed:
        node.do("reload systemd", ["systemctl", "daemon-reload"])
    static = bool(unit) and "[Install]" not in unit
    linked = (ROOT / WANTED_AT_BOOT).is_symlink()
    if wanted and static and not linked:
        target = ["multi-user.target", f"{PERSISTENCE}.service"]
        node.do(f"start {PERSISTENCE} at boot", ["systemctl", "add-wants", *target])
    if static and linked and not wanted:
        node.do(f"do not start {PERSISTENCE} at boot", ["systemctl", "disable", f"{PERSISTENCE}.service"])
    return changed


def settle_peermem(node: Node, params: dict[str, Any]) -> None:
    """Loads nvidia_peermem now and at boot where it is wanted; nothing else loads it by itself."""
    wanted = params["peermem"] == "true"
    if params["peermem"] == "auto" and needs_peermem(ROOT, params["flavor"], os.uname().release):
        wanted = has_peer_memory(ROOT)
        if not wanted:
            node.module.warn(
                "GPUDirect RDMA is not served: nvidia_peermem needs the RDMA stack of MLNX_OFED or DOCA. "
                "Without it, use the open kernel modules (nvidia_driver_flavor) on kernel 5.12 or newer."
            )
    node.write(PEERMEM_AT_BOOT, f"{HEAD}{PEERMEM}\n" if wanted else "")
    if not wanted or gpu_node.module_loaded(ROOT, PEERMEM) or any(PEERMEM in one for one in node.missing):
        return
    code, error = node.do(f"load {PEERMEM}", ["modprobe", PEERMEM])
    if code != 0:
        node.missing.append(f"{PEERMEM} ({error or 'modprobe failed'})")


def read_back(node: Node, params: dict[str, Any]) -> dict[str, str]:
    """Versions as the running things print them; ends the module where they are not the one asked for."""
    found = {"driver": gpu_node.loaded_driver(ROOT)}
    code, output, error = node.run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"])
    lines = sorted({line.strip() for line in output.splitlines() if line.strip()})
    found["nvidia_smi"] = ", ".join(lines) if code == 0 else (output or error).strip()
    if params["fabric_manager"]:
        _, output, error = node.run(["nv-fabricmanager", "--version"])
        found["fabric_manager"] = (output or error).strip().rsplit(" ", 1)[-1]
    wrong = [
        f"{what} says {version or 'nothing'}"
        for what, version in found.items()
        if version != params["version"]
    ]
    if wrong:
        node.fail(
            f"The node does not run driver {params['version']}: {', '.join(wrong)}. "
            "Libraries and module must be of one version: check `dpkg -l '*nvidia*'` and reboot the node."
        )
    return found


def start_services(node: Node, params: dict[str, Any]) -> None:
    """The driver's own services as declared, then those stopped for the reload, the last stopped first."""
    own = (PERSISTENCE, FABRIC_MANAGER)
    changed = {unit for unit in own if any(name.startswith(unit) for name in params["changed_packages"])}
    restart = settle_persistence(node, params["persistence"]) or PERSISTENCE in changed
    service(node, PERSISTENCE, params["persistence"], restart)
    if params["fabric_manager"]:
        service(node, FABRIC_MANAGER, True, FABRIC_MANAGER in changed)
    start_stopped(node, own)
    if node.missing:  # said when the node serves again
        node.fail(
            f"Modules that were loaded before, or are wanted, do not load with driver {params['version']}: "
            f"{', '.join(node.missing)}. Build them for it (dkms status). The kernel said: "
            f"{kernel_words(node.run) or 'nothing'}"
        )


def main() -> None:
    """Entry point."""
    module = AnsibleModule(ARGUMENTS, supports_check_mode=True)
    params = module.params
    node = Node(module)
    version = params["version"]

    run: RunFull = node.run
    reason = differs(version, params["flavor"])
    busy = busy_reasons(ROOT, ask, params["holders_ignored"]) if reason and not params["force_busy"] else []
    if busy:
        module.exit_json(
            changed=False,
            loaded=gpu_node.loaded_driver(ROOT),
            reboot_required="",
            left_alone=True,
            actions=[],
            clusterctl={"busy": f"{'; '.join(busy)} ({reason}: apply again when the node is idle)"},
        )
    # A driver that runs is better than none: its modules stay until the reboot.
    waits = bool(reason and params["reboot"])
    stays = params["reboot"] if waits else settle_modules(node, reason, version, params["services"])
    if stays:
        module.exit_json(
            changed=bool(node.actions),
            loaded=gpu_node.loaded_driver(ROOT),
            reboot_required=f"{reason}; {stays}",
            left_alone=False,
            actions=node.actions,
            clusterctl={"reboot": f"{reason}; {stays}"},
        )
    settle_peermem(node, params)
    start_services(node, params)
    # Check mode reads back what is there, unless something would be done that it only pretends.
    pretended = module.check_mode and bool(node.actions)
    facts = {} if pretended else read_back(node, params)
    own = () if pretended else (PERSISTENCE, FABRIC_MANAGER)
    failed = [unit for unit in own if unit_state(run, unit).get("ActiveState") == "failed"]
    for unit in failed:
        node.fail(f"{unit} has failed: {journal(run, unit)}. See `journalctl -u {unit}`.")
    module.exit_json(
        changed=bool(node.actions),
        loaded=gpu_node.loaded_driver(ROOT),
        reboot_required="",
        left_alone=False,
        actions=node.actions,
        clusterctl={"facts": facts},
        diff={"before": "", "after": "".join(f"{action}\n" for action in node.actions)},
    )


if __name__ == "__main__":
    main()
