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
from ansible_collections.clusterctl.cluster.plugins.module_utils.driver_boot import (
    DROP_IN,
    HEAD,
    IMEX_NODES,
    PEERMEM,
    PEERMEM_AT_BOOT,
    PERSISTENCE,
    UMAD,
    UMAD_AT_BOOT,
    WANTED_AT_BOOT,
    has_peer_memory,
    imex_nodes,
    needs_peermem,
    packaged_unit,
    persistence_drop_in,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.driver_fabric import imex_differs
from ansible_collections.clusterctl.cluster.plugins.module_utils.driver_node import Node
from ansible_collections.clusterctl.cluster.plugins.module_utils.driver_reload import (
    FABRIC_MANAGER,
    IMEX,
    differs,
    kernel_words,
    settle_modules,
    start_stopped,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.gpu_busy import (
    ask,
    busy_reasons,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.service_unit import (
    RunFull,
    journal,
    unit_state,
)

DOCUMENTATION = r"""
module: nvidia_driver_activate
short_description: Makes the kernel run the installed NVIDIA driver
description:
  - Compares the running module with the version asked for, reloads the modules where they differ, and says
    C(reboot_required) where they cannot be unloaded.
  - Services that hold the device are stopped before and started after; the unit that restores the MIG layout
    (role mig) is started again, if it is installed.
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
    choices: [auto, "on", "off", "true", "false"]
    default: auto
  fabric_manager: {description: Whether Fabric Manager runs., type: bool, default: false}
  nvlsm:
    description: Whether Fabric Manager starts NVLSM, which needs the kernel module ib_umad.
    type: bool
    default: false
  imex: {description: Whether the node is one of a rack that runs IMEX., type: bool, default: false}
  imex_nodes:
    description: Nodes of the NVLink domain that IMEX runs for; without any its service is left alone.
    type: list
    elements: str
    default: []
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
reloads:
  description: Whether the driver is loaded again, now or by a reboot, and loses what only it knows.
  type: bool
  returned: always
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
    "peermem": {"type": "str", "choices": ["auto", "on", "off", "true", "false"], "default": "auto"},
    "fabric_manager": {"type": "bool", "default": False},
    "nvlsm": {"type": "bool", "default": False},
    "imex": {"type": "bool", "default": False},
    "imex_nodes": {"type": "list", "elements": "str", "default": []},
    "services": {"type": "list", "elements": "str", "default": []},
    "force_busy": {"type": "bool", "default": False},
    "holders_ignored": {"type": "list", "elements": "str", "default": []},
    "reboot": {"type": "str", "default": ""},
    "changed_packages": {"type": "list", "elements": "str", "default": []},
}
ROOT = Path("/")


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
        node.stop(unit)
        active = False
    if wanted and not active:
        node.start(unit)
    if not wanted and (enabled or active):
        node.do(f"disable {unit}", ["systemctl", "disable", "--now", f"{unit}.service"])


def settle_persistence(node: Node, wanted: bool) -> bool:
    """Makes the packaged daemon set persistence mode, now and at boot; whether it must start again."""
    unit = packaged_unit(node.root, PERSISTENCE)
    changed = node.write(DROP_IN, persistence_drop_in(unit) if wanted else "")
    if changed:
        node.do("reload systemd", ["systemctl", "daemon-reload"])
    static = bool(unit) and "[Install]" not in unit
    linked = (node.root / WANTED_AT_BOOT).is_symlink()
    if wanted and static and not linked:
        target = ["multi-user.target", f"{PERSISTENCE}.service"]
        node.do(f"start {PERSISTENCE} at boot", ["systemctl", "add-wants", *target])
    if static and linked and not wanted:
        node.do(f"do not start {PERSISTENCE} at boot", ["systemctl", "disable", f"{PERSISTENCE}.service"])
    return changed


def settle_peermem(node: Node, params: dict[str, Any]) -> None:
    """Loads nvidia_peermem now and at boot where it is wanted; nothing else loads it by itself."""
    wanted = params["peermem"] in ("on", "true")
    if params["peermem"] == "auto" and needs_peermem(node.root, params["flavor"], os.uname().release):
        wanted = has_peer_memory(node.root)
        if not wanted:
            node.module.warn(
                "GPUDirect RDMA is not served: nvidia_peermem needs the RDMA stack of MLNX_OFED or DOCA. "
                "Without it, use the open kernel modules (nvidia_driver_flavor) on kernel 5.12 or newer."
            )
    node.write(PEERMEM_AT_BOOT, f"{HEAD}{PEERMEM}\n" if wanted else "")
    if (
        not wanted
        or gpu_node.module_loaded(node.root, PEERMEM)
        or any(PEERMEM in one for one in node.missing)
    ):
        return
    code, error = node.do(f"load {PEERMEM}", ["modprobe", PEERMEM])
    if code != 0:
        node.missing.append(f"{PEERMEM} ({error or 'modprobe failed'})")


def settle_umad(node: Node, wanted: bool) -> None:
    """Loads ib_umad now and at boot where NVLSM needs it; ends the module where the kernel has none."""
    node.write(UMAD_AT_BOOT, f"{HEAD}{UMAD}\n" if wanted else "")
    if not wanted or gpu_node.module_loaded(node.root, UMAD):
        return
    code, error = node.do(f"load {UMAD}", ["modprobe", UMAD])
    if code != 0:
        node.fail(
            f"NVLSM cannot reach the NVSwitches: {UMAD} does not load ({error or 'modprobe failed'}). "
            "Install the kernel's extra modules (linux-modules-extra on Ubuntu), or MLNX_OFED or DOCA, and "
            "apply again."
        )


def runs_imex(params: dict[str, Any]) -> bool:
    """Whether IMEX always runs here: where no nodes are declared, Slurm or Kubernetes start it for a job."""
    return bool(params["imex"] and params["imex_nodes"])


def read_back(node: Node, params: dict[str, Any]) -> dict[str, str]:
    """Versions as the running things print them; ends the module where they are not the one asked for."""
    found = {"driver": gpu_node.loaded_driver(node.root)}
    code, output, error = node.run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"])
    lines = sorted({line.strip() for line in output.splitlines() if line.strip()})
    found["nvidia_smi"] = ", ".join(lines) if code == 0 else (output or error).strip()
    if params["fabric_manager"]:
        _, output, error = node.run(["nv-fabricmanager", "--version"])
        found["fabric_manager"] = (output or error).strip().rsplit(" ", 1)[-1]
    if runs_imex(params):
        _, output, error = node.run(["nvidia-imex", "--version"])
        found["imex"] = (output or error).strip().rsplit(" ", 1)[-1]
    wrong = [
        f"{what} says {version or 'nothing'}"
        for what, version in found.items()
        if version != params["version"]
    ]
    if wrong:
        node.fail(
            f"The node does not run driver {params['version']}: {', '.join(wrong)}. "
            "Libraries and module must be of one version: check `dpkg -l '*nvidia*'` (`rpm -qa '*nvidia*'`) "
            "and reboot the node."
        )
    return found


def own_units(params: dict[str, Any]) -> tuple[str, ...]:
    """The driver's services that this module starts; others are only started again."""
    return (PERSISTENCE, FABRIC_MANAGER, *([IMEX] if runs_imex(params) else []))


def start_services(node: Node, params: dict[str, Any]) -> None:
    """The driver's own services as declared, then those stopped for the reload, the last stopped first."""
    own = own_units(params)
    changed = {unit for unit in own if any(name.startswith(unit) for name in params["changed_packages"])}
    restart = settle_persistence(node, params["persistence"]) or PERSISTENCE in changed
    service(node, PERSISTENCE, params["persistence"], restart)
    if params["fabric_manager"]:
        service(node, FABRIC_MANAGER, True, FABRIC_MANAGER in changed)
    if runs_imex(params):
        told = node.write(IMEX_NODES, "".join(f"{name}\n" for name in params["imex_nodes"]))
        service(node, IMEX, True, told or IMEX in changed)
    layout_lost = start_stopped(node, own)
    if node.missing:  # said when the node serves again
        node.fail(
            f"Modules that were loaded before, or are wanted, do not load with driver {params['version']}: "
            f"{', '.join(node.missing)}. Build them for it (dkms status). The kernel said: "
            f"{kernel_words(node.run) or 'nothing'}"
        )
    if layout_lost:
        node.fail(layout_lost)


def main() -> None:
    """Entry point."""
    module = AnsibleModule(ARGUMENTS, supports_check_mode=True)
    params = module.params
    node = Node(module, ROOT)
    version = params["version"]

    run: RunFull = node.run
    reason = differs(ROOT, version, params["flavor"])
    why = reason
    if not why and imex_differs(params["imex"], params["imex_nodes"], imex_nodes(ROOT)):
        why = "IMEX restarts with other nodes"
    busy = busy_reasons(ROOT, ask, params["holders_ignored"]) if why and not params["force_busy"] else []
    if busy:
        module.exit_json(
            changed=False,
            loaded=gpu_node.loaded_driver(ROOT),
            reboot_required="",
            reloads=False,
            left_alone=True,
            actions=[],
            clusterctl={"busy": f"{'; '.join(busy)} ({why}: apply again when the node is idle)"},
        )
    # A driver that runs is better than none: its modules stay until the reboot.
    waits = bool(reason and params["reboot"])
    stays = params["reboot"] if waits else settle_modules(node, reason, version, params["services"])
    if stays:
        module.exit_json(
            changed=bool(node.actions),
            loaded=gpu_node.loaded_driver(ROOT),
            reboot_required=f"{reason}; {stays}",
            reloads=True,
            left_alone=False,
            actions=node.actions,
            clusterctl={"reboot": f"{reason}; {stays}"},
        )
    settle_peermem(node, params)
    settle_umad(node, params["nvlsm"])
    start_services(node, params)
    # Check mode reads back what is there, unless something would be done that it only pretends.
    pretended = module.check_mode and bool(node.actions)
    facts = {} if pretended else read_back(node, params)
    own = () if pretended else own_units(params)
    failed = [unit for unit in own if unit_state(run, unit).get("ActiveState") == "failed"]
    for unit in failed:
        node.fail(f"{unit} has failed: {journal(run, unit)}. See `journalctl -u {unit}`.")
    module.exit_json(
        changed=bool(node.actions),
        loaded=gpu_node.loaded_driver(ROOT),
        reboot_required="",
        reloads=bool(reason),
        left_alone=False,
        actions=node.actions,
        clusterctl={"facts": facts},
        diff={"before": "", "after": "".join(f"{action}\n" for action in node.actions)},
    )


if __name__ == "__main__":
    main()
