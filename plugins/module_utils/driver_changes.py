# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE)
"""What a transaction of the driver may change, and what is held after it; alike for apt and dnf. Pure."""

from __future__ import annotations

from typing import Any

from ansible_collections.clusterctl.cluster.plugins.module_utils.apt_packages import (
    Change,
    matching,
    upstream,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.apt_transaction import (
    foreign_holds,
    removals,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.driver_plan import driver_packages
from ansible_collections.clusterctl.cluster.plugins.module_utils.package_managers import APT, Manager


def changed_driver_packages(changes: dict[str, Change], compat: dict[str, Any]) -> set[str]:
    """Packages of the driver that a transaction installs, changes or removes."""
    return set(driver_packages({name: after or before for name, (before, after) in changes.items()}, compat))


def refusals(
    changes: dict[str, Change],
    params: dict[str, Any],
    held: set[str],
    record: dict[str, Any],
    manager: Manager = APT,
) -> list[str]:
    """Why the simulated transaction must not be done; empty where it may be."""
    compat = params["compat"]
    ours = changed_driver_packages(changes, compat)
    removable = ours | set(matching(changes, ["nvidia-*", "libnvidia-*"], ["*container*"]))
    reasons = []
    if lost := sorted(set(removals(changes)) - removable):
        reasons.append(f"{manager.name} would remove {', '.join(lost)}")
    if foreign := foreign_holds(changes, held, record.get("held", [])):
        reasons.append(f"held by someone else: {', '.join(foreign)} ({manager.unhold} releases them)")
    mixed = [
        f"{name} {after}"
        for name, (_, after) in sorted(changes.items())
        if params["source"] == "cuda" and name in ours and after and upstream(after) != params["version"]
    ]
    if mixed:
        reasons.append(
            f"{manager.name} would mix versions: {', '.join(mixed[:5])} next to {params['version']}"
        )
    return reasons


def rebuilders(changes: dict[str, Change], installed: dict[str, str], compat: dict[str, Any]) -> list[str]:
    """A warning where another dkms takes over the modules that others build with it, as OFED's; else none."""
    before, after = changes.get("dkms", ("", ""))
    ours = driver_packages(installed, compat)
    others = sorted(set(matching(installed, ["*-dkms"])) - set(ours) - {"dh-dkms"})
    if not (before and after and others):
        return []
    return [f"dkms {after} replaces dkms {before} and builds the modules of {', '.join(others)} from now on"]


def wanted_holds(params: dict[str, Any], installed: dict[str, str]) -> set[str]:
    """Packages that move together, of those installed."""
    if not params["hold"]:
        return set()
    compat = params["compat"]
    names = set(driver_packages(installed, compat))
    names |= set(matching(installed, compat["held_with_driver"]))
    return names | set(matching(installed, compat["kernel_metapackages"]) if params["hold_kernel"] else [])


def releases(
    params: dict[str, Any], present: dict[str, str], held: set[str], record: dict[str, Any]
) -> set[str]:
    """Holds of ours that are declared no more; what somebody else holds is never among them."""
    return (set(record.get("held", [])) & held) - wanted_holds(params, present)
