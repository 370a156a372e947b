#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE)
"""Ansible module: the GPUs of a node in their declared MIG layout, now and after a boot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.clusterctl.cluster.plugins.module_utils import (
    gpu_node,
    mig_layout,
    mig_plan,
    mig_restore,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.driver_node import Node
from ansible_collections.clusterctl.cluster.plugins.module_utils.driver_reload import (
    FABRIC_MANAGER,
    MIG,
    STOPPED,
    in_use,
    start_stopped,
    stop_holders,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.gpu_busy import ask, busy_reasons
from ansible_collections.clusterctl.cluster.plugins.module_utils.mig_plan import Step
from ansible_collections.clusterctl.cluster.plugins.module_utils.node_files import read_file
from ansible_collections.clusterctl.cluster.plugins.module_utils.service_unit import journal, unit_state

DOCUMENTATION = r"""
module: mig_partition
short_description: Divides the GPUs of a node by MIG as declared
description:
  - Reads modes and instances, checks the layout against the profiles that each GPU lists, and changes what
    differs. Instances that are declared and there already stay.
  - The change is made by a systemd unit, which restores modes and instances at boot, too.
  - A node whose GPUs are in use is left alone and said to be busy. Services that use GPUs are stopped and
    started again. Check mode is supported.
options:
  layout: {description: The value of hardware_mig; empty leaves the GPUs as they are., type: raw, default: ""}
  program: {description: The text of the program that the unit runs., type: str, required: true}
  unit: {description: The text of the unit., type: str, required: true}
  services:
    description: Units that use the GPUs, in the order to stop them.
    type: list
    elements: str
    default: []
  driver_reloads:
    description:
      - Whether this play loads the driver again before. Check mode then judges the GPUs as they will be, with
        what the unit restores; otherwise they are read as they are.
    type: bool
    default: false
  driver_activated:
    description: Whether this play activates the driver before, which starts what an interrupted run stopped.
    type: bool
    default: false
  force_busy: {description: Continue although the node is busy., type: bool, default: false}
  holders_ignored:
    description: Names of what holds GPUs and is no job, besides those that are known; globs are allowed.
    type: list
    elements: str
    default: []
author: [the clusterctl authors]
"""

EXAMPLES = r"""
- name: Divide every GPU
  clusterctl.cluster.mig_partition:
    layout: all-1g.10gb
    program: "{{ lookup('ansible.builtin.file', 'clusterctl-mig.py') }}"
    unit: "{{ lookup('ansible.builtin.template', 'clusterctl-mig.service.j2') }}"
"""

RETURN = r"""
gpus: {description: The layout of each declared GPU by index., type: dict, returned: always}
left_alone: {description: Whether nothing was done because the node is busy., type: bool, returned: always}
actions: {description: What was done or would be., type: list, returned: always}
regrouped:
  description: Whether instances are created or destroyed, so that other MIG devices are there.
  type: bool
  returned: always
code:
  description: "Stable code of the failure: task.timed-out"
  returned: when the cause is known
  type: str
"""

ARGUMENTS: dict[str, Any] = {
    "layout": {"type": "raw", "default": ""},
    "program": {"type": "str", "required": True},
    "unit": {"type": "str", "required": True},
    "services": {"type": "list", "elements": "str", "default": []},
    "driver_reloads": {"type": "bool", "default": False},
    "driver_activated": {"type": "bool", "default": False},
    "force_busy": {"type": "bool", "default": False},
    "holders_ignored": {"type": "list", "elements": "str", "default": []},
}
ROOT = Path("/")
LAYOUT_FILE = "etc/clusterctl/mig.json"
PROGRAM_FILE = "usr/local/lib/clusterctl/clusterctl-mig.py"
UNIT_FILE = f"etc/systemd/system/{MIG}.service"


def main() -> None:
    """Entry point."""
    module = AnsibleModule(ARGUMENTS, supports_check_mode=True)
    node = Node(module, ROOT)
    try:
        rules = mig_layout.parse(module.params["layout"])
        steps = planned(node, rules)
        if any(step.actions for step in steps):
            leave_alone_if_busy(module, steps)
            after = apply(node, rules, steps)
        else:
            after = steps
            if not waits_for_driver(node, rules):
                settle_files(node, mig_plan.document(steps))
            if (node.root / STOPPED).exists() and not activates(node):  # of a run that was interrupted
                start_stopped(node, (MIG,))
    except mig_layout.LayoutError as error:
        node.fail(f"hardware_mig: {error}.")
    except mig_restore.MigError as error:
        node.fail(f"{error}. See what the driver says: `nvidia-smi`, `journalctl -k`.")
    others = [action for action in node.actions if not action.startswith("GPU ")]
    module.exit_json(
        changed=bool(node.actions),
        gpus=layouts(after),
        left_alone=False,
        actions=node.actions,
        regrouped=any(step.actions and (step.gpu.instances or step.instances != ()) for step in steps),
        diff={
            "before": "".join(f"GPU {step.gpu.index}: {step.gpu.shown}\n" for step in steps),
            "after": "".join(f"GPU {step.gpu.index}: {step.target}\n" for step in steps)
            + "".join(f"{action}\n" for action in others),
        },
    )


def layouts(steps: Sequence[Step]) -> dict[str, str]:
    """What each GPU is, by index."""
    return {str(step.gpu.index): step.gpu.shown for step in steps}


def declared(node: Node, rules: Sequence[mig_layout.Rule]) -> tuple[list[str], dict[int, str]]:
    """The node's GPUs by bus, and the declared layouts by index. Raises LayoutError."""
    buses = [one["address"] for one in gpu_node.gpus(gpu_node.pci_devices(node.root))]
    named = {gpu for rule in rules for gpu in rule.gpus or ()}
    if missing := sorted(gpu for gpu in named if gpu >= len(buses)):
        raise mig_layout.LayoutError(f"GPU {missing[0]} is declared, and the node has {len(buses)} GPUs")
    layouts_of = ((gpu, mig_layout.layout_of(rules, gpu)) for gpu in range(len(buses)))
    return buses, {gpu: layout for gpu, layout in layouts_of if layout}


def restored(node: Node) -> dict[str, Mapping[str, Any]]:
    """What the unit restores when the driver is loaded, by bus; nothing where it is not installed."""
    if not (node.root / UNIT_FILE).is_file():
        return {}
    return mig_plan.parse_document(read_file(node.root / LAYOUT_FILE))


def waits_for_driver(node: Node, rules: Sequence[mig_layout.Rule]) -> bool:
    """Whether GPUs cannot be asked yet, in check mode; notes a layout that the unit does not restore."""
    buses, layouts_of = declared(node, rules)
    if not layouts_of or gpu_node.loaded_driver(node.root):
        return False
    wanted = {buses[gpu]: layout for gpu, layout in layouts_of.items()}
    if set(wanted.values()) == {mig_layout.DISABLED}:  # whole GPUs are not recorded
        wanted = {}
    if wanted != {bus: record.get("layout") for bus, record in restored(node).items()}:
        node.actions.append("divide the GPUs by MIG when the driver runs")
    return True


def planned(node: Node, rules: Sequence[mig_layout.Rule]) -> list[Step]:
    """What each declared GPU needs. Ends the module where no driver runs that could be asked."""
    buses, layouts_of = declared(node, rules)
    if not layouts_of:
        return []
    if not gpu_node.loaded_driver(node.root):
        if not node.module.check_mode:
            node.fail("MIG needs a driver that runs, and none is loaded: apply the part driver first.")
        return []
    run = runner(node)
    gpus = mig_plan.read_gpus(run, buses, list(layouts_of))
    if reloads(node):
        records = restored(node)
        gpus = [mig_plan.after_reload(gpu, records.get(gpu.bus)) for gpu in gpus]
    elif starts_unit(node):
        records = restored(node)
        gpus = [mig_plan.after_reload(gpu, records[gpu.bus]) if gpu.bus in records else gpu for gpu in gpus]
    steps = []
    for gpu in gpus:
        layout = layouts_of[gpu.index]
        known = mig_plan.with_profiles(run, gpu) if gpu.mode is not None and layout != "disabled" else gpu
        steps.append(mig_plan.plan(known, layout))
    return [step for step in steps if step is not None]


def reloads(node: Node) -> bool:
    """Whether the driver is loaded again before an apply comes here."""
    return bool(node.module.check_mode and node.module.params["driver_reloads"])


def activates(node: Node) -> bool:
    """Whether an apply starts what an interrupted run stopped before it comes here."""
    return bool(node.module.check_mode and node.module.params["driver_activated"])


def starts_unit(node: Node) -> bool:
    """Whether the unit is among what is started then, and restores the layout."""
    return activates(node) and f"unit {MIG}" in read_file(node.root / STOPPED).splitlines()


def runner(node: Node) -> mig_restore.Run:
    """Programs of the node, with what they print."""

    def run(argv: Sequence[str]) -> tuple[int, str]:
        code, output, error = node.run(list(argv))
        return code, output or error

    return run


def leave_alone_if_busy(module: AnsibleModule, steps: Sequence[Step]) -> None:
    """Ends the module where somebody uses the GPUs, with who it is."""
    if not module.params["force_busy"] and (
        busy := busy_reasons(ROOT, ask, module.params["holders_ignored"])
    ):
        leave_alone(module, steps, "; ".join(busy))


def leave_alone(module: AnsibleModule, steps: Sequence[Step], busy: str) -> NoReturn:
    """Ends the module without a change."""
    module.exit_json(
        changed=False,
        gpus=layouts(steps),
        left_alone=True,
        actions=[],
        regrouped=False,
        clusterctl={"busy": f"{busy} (its MIG layout differs: apply again when the node is idle)"},
    )


def apply(node: Node, rules: Sequence[mig_layout.Rule], steps: Sequence[Step]) -> Sequence[Step]:
    """Stops what uses the GPUs, has the unit change them, starts what was stopped; returns how they are."""
    require_fabric_manager(node, steps)
    users, holders = in_use(node.root, node.module.params["holders_ignored"])
    if users and not node.module.params["force_busy"]:
        leave_alone(node.module, steps, f"the GPUs are in use by {users}")
    stop_holders(node, holders, node.module.params["services"])
    for step in steps:
        node.actions += step.actions
    try:
        failed = settle(node, steps)
        if not failed and any(step.instances is None for step in steps) and not node.module.check_mode:
            # This driver lists the profiles of a GPU only while its mode is on.
            failed = settle(node, planned(node, rules))
        after = steps if node.module.check_mode or failed else planned(node, rules)
    except (mig_layout.LayoutError, mig_restore.MigError):
        start_stopped(node, (MIG,))
        raise
    start_stopped(node, (MIG,))
    if failed:
        node.fail(failed)
    left = [] if node.module.check_mode else [action for step in after for action in step.actions]
    if left:
        node.fail(f"The GPUs are not as declared after the change: {'; '.join(left)}.")
    return after


def require_fabric_manager(node: Node, steps: Sequence[Step]) -> None:
    """Ends the module where a GPU must be reset on a board whose Fabric Manager takes part, and does not run.

    Only Ampere's boards need it [nvidia-smi(1), --gpu-reset]; on later ones it runs as well.
    """
    if not any(step.switches for step in steps) or not gpu_node.nvswitches(gpu_node.pci_devices(node.root)):
        return
    if unit_state(node.run, FABRIC_MANAGER).get("ActiveState") != "active":
        node.fail(
            "MIG cannot be switched: behind NVSwitch that takes Fabric Manager, which does not run. "
            f"See `journalctl -u {FABRIC_MANAGER}`, then apply the part driver."
        )


def settle(node: Node, steps: Sequence[Step]) -> str:
    """Has the unit bring the GPUs to their layout; says why it did not."""
    kept = mig_plan.document(steps)
    if kept:
        settle_files(node, kept, restart=True)
        return failure_of_unit(node)
    # Whole GPUs: nothing is left for a unit to restore.
    records = [step.record for step in steps]
    settle_files(node, kept)
    if node.module.check_mode:
        return ""
    return ". ".join(mig_restore.restore(runner(node), records, lambda _line: None))


def settle_files(node: Node, kept: str, *, restart: bool = False) -> None:
    """Writes the unit and what it restores, or removes them; starts it where it does not run yet."""
    installed = (node.root / UNIT_FILE).is_file()
    program, unit = node.module.params["program"], node.module.params["unit"]
    if not kept and installed:
        node.do(f"disable {MIG}", ["systemctl", "disable", "--now", f"{MIG}.service"])
    written = [
        node.write(path, text if kept else "")
        for path, text in (
            (LAYOUT_FILE, kept),
            (PROGRAM_FILE, program),
            (UNIT_FILE, unit),
        )
    ]
    if written[-1]:
        node.do("reload systemd", ["systemctl", "daemon-reload"])
    if not kept:
        return
    state = unit_state(node.run, MIG)
    if state.get("UnitFileState") != "enabled":
        node.do(f"enable {MIG}", ["systemctl", "enable", f"{MIG}.service"])
    # The driver's activation starts an installed unit.
    active = state.get("ActiveState") == "active" or (installed and (reloads(node) or starts_unit(node)))
    if restart or not active:
        node.do(f"run {MIG}", ["systemctl", "restart", f"{MIG}.service"])


def failure_of_unit(node: Node) -> str:
    """Why the unit failed, in its own words; empty where it did not."""
    if node.module.check_mode or unit_state(node.run, MIG).get("ActiveState") == "active":
        return ""
    return (
        f"{MIG} failed: {journal(node.run, MIG) or 'it said nothing'}. A GPU that is in use keeps its mode "
        "and instances; one that cannot be reset, as in a virtual machine, needs a reboot. "
        f"See `journalctl -u {MIG}`."
    )


if __name__ == "__main__":
    main()
