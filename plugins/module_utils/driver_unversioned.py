# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE)
"""Parts of a driver whose names have no branch: what pins them to one, and which are another driver's. Pure.

Since branch 590 NVIDIA's packages for apt are such, and only a package `nvidia-driver-pinning-<branch or
version>` keeps a node on a branch (NVIDIA Driver Installation Guide, "Recent Updates").
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ansible_collections.clusterctl.cluster.plugins.module_utils.apt_packages import upstream
from ansible_collections.clusterctl.cluster.plugins.module_utils.driver_plan import (
    Facts,
    Plan,
    Request,
    has_driver_version,
)


def pinning_package(packages: dict[str, Any], request: Request, facts: Facts, plan: Plan) -> list[str]:
    """The package that pins the branch, if there is one and no other pins this very version already."""
    name = packages["pinning"].format(branch=request.branch)
    if name in facts.installed:
        return [name]
    pinned = set(_installed_pins(packages, facts)) - other_pins(packages, facts, plan)
    return [name] if name in facts.available and not pinned else []


def other_pins(packages: dict[str, Any], facts: Facts, plan: Plan) -> set[str]:
    """Installed packages that pin another driver than the planned one: apt would follow them."""
    pins = _installed_pins(packages, facts)
    return {name for name, target in pins.items() if not f"{plan.version}.".startswith(f"{target}.")}


def _installed_pins(packages: dict[str, Any], facts: Facts) -> dict[str, str]:
    """The branch or version that each installed pinning package pins."""
    prefix = packages["pinning"].format(branch="")
    return {
        name: name[len(prefix) :] for name in sorted(facts.installed) if prefix and name.startswith(prefix)
    }


def superseded(sets: Iterable[list[str]], request: Request, facts: Facts, plan: Plan) -> set[str]:
    """Installed packages of another branch in whose place one of another name was chosen."""
    names = {name for alternatives in sets for name in alternatives} & set(facts.installed)
    return {
        name
        for name in names - set(plan.packages)
        if upstream(facts.installed[name]).partition(".")[0] != request.branch
    }


def is_of_another_driver(name: str, request: Request, facts: Facts, plan: Plan) -> bool:
    """Whether this package is a part of another driver, and the planned one has none of this name.

    A distribution versions some parts by themselves. What others installed besides stays, unless their driver
    is adopted: it may be no part of the driver that this program installed.
    """
    version = facts.installed[name]
    if not has_driver_version(version) or upstream(version) == plan.version:
        return False
    ours = name in facts.record.get("packages", []) if facts.record else request.existing == "adopt"
    return bool(plan.stream) or (request.source == "cuda" and ours)
