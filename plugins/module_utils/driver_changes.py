# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE)
"""What a transaction of the driver may change, and what is held after it; alike for apt and dnf. Pure."""

from __future__ import annotations

import re
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

# The core of a kernel, which RHEL's packages require without the rest of it.
KERNEL = re.compile(r"kernel-core-\d")


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
    if kernels := sorted(name for name, (_, after) in changes.items() if after and KERNEL.match(name)):
        reasons.append(f"{manager.name} would install {', '.join(kernels)}, a kernel without its modules")
    if mixed := [f"{name} {after}" for name, after in sorted(other_versions(changes, params).items())]:
        reasons.append(
            f"{manager.name} would mix versions: {', '.join(mixed[:5])} next to {params['version']}"
        )
    return reasons


def other_versions(changes: dict[str, Change], params: dict[str, Any]) -> dict[str, str]:
    """Parts of the driver that a transaction brings in another version than the driver's, by name."""
    ours = changed_driver_packages(changes, params["compat"])
    after = {name: changes[name][1] for name in ours if changes[name][1] and params["source"] == "cuda"}
    return {name: version for name, version in after.items() if upstream(version) != params["version"]}


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
