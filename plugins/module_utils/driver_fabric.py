# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE)
"""What manages a node's NVLink switches in the plan of a driver: Fabric Manager, NVLSM or IMEX."""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.clusterctl.cluster.plugins.module_utils.driver_plan import (
    Facts,
    Plan,
    Request,
    add_problem,
    fill,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.nvlink_fabric import (
    IMEX,
    NVLSM,
    nvlink_fabric,
)

WITHOUT_FABRIC = (
    "set nvidia_driver_source: cuda, or nvidia_driver_fabric_manager: false to do without the fabric"
)
NODE_ADDRESS = re.compile(r"[A-Za-z0-9][A-Za-z0-9.:-]*")


def choose_fabric(request: Request, facts: Facts, compat: dict[str, Any], plan: Plan) -> None:
    """Fabric Manager where this node manages its switches, with NVLSM or not; IMEX where its rack does."""
    fabric = nvlink_fabric(facts.gpus, facts.nvswitches, facts.nvswitch_bridges, compat)
    plan.imex = fabric == IMEX
    asked = request.fabric_manager
    plan.fabric_manager = asked == "true" or (asked == "auto" and bool(fabric) and not plan.imex)
    plan.nvlsm = plan.fabric_manager and fabric == NVLSM
    if plan.imex and plan.fabric_manager:
        add_problem(
            plan,
            "the switch trays of this rack run Fabric Manager, and its nodes cannot",
            "set nvidia_driver_fabric_manager: auto",
        )
    if unfit := [node for node in request.imex_nodes if not NODE_ADDRESS.fullmatch(node)]:
        add_problem(
            plan,
            f"nvidia_driver_imex_nodes has {unfit[0]!r}",
            "list one address or host name per node of the NVLink domain",
        )


def fabric_packages(packages: dict[str, Any], request: Request, facts: Facts, plan: Plan) -> list[list[str]]:
    """What the node's NVLink fabric needs in the driver's version."""
    found: list[list[str]] = []
    if plan.fabric_manager:
        found += _fabric_manager(packages, request, facts, plan)
    if plan.nvlsm:
        if packages["fabric_manager"] and not packages["nvlsm"]:
            add_problem(
                plan,
                f"{facts.os['name']} packages no NVLSM, and Fabric Manager of this node needs it",
                WITHOUT_FABRIC,
            )
        found += fill(packages["nvlsm"], request)
    if plan.imex:
        if not packages["imex"]:
            add_problem(
                plan,
                f"{facts.os['name']} packages no IMEX, and this node is one of a rack that needs it",
                "set nvidia_driver_source: cuda",
            )
        found += fill(packages["imex"], request)
    return found


def with_nvlsm(packages: dict[str, Any], facts: Facts, compat: dict[str, Any], plan: Plan) -> list[str]:
    """What NVLSM needs in versions of their own; others' packages, as OFED's, stay as they are."""
    names = packages["with_nvlsm"] if plan.nvlsm else []
    return [name for name in names if name in compat["held_with_driver"] or name not in facts.installed]


def _fabric_manager(packages: dict[str, Any], request: Request, facts: Facts, plan: Plan) -> list[list[str]]:
    if not packages["fabric_manager"]:
        switches = f"{facts.nvswitches} NVSwitches" if facts.nvswitches else "an NVLink fabric to manage"
        add_problem(
            plan,
            f"{facts.os['name']} packages no Fabric Manager, and this node has {switches}",
            WITHOUT_FABRIC,
        )
    return fill(packages["fabric_manager"], request)


def imex_differs(imex: bool, wanted: list[str], configured: list[str]) -> bool:
    """Whether IMEX must be told its nodes; without any declared, others such as Slurm tell it."""
    return imex and bool(wanted) and configured != wanted
