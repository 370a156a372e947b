# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE)
"""Prebuilt kernel modules in the plan of a driver: which packages of them, for which kernels of the node."""

from __future__ import annotations

import re

from ansible_collections.clusterctl.cluster.plugins.module_utils.driver_plan import Facts, Plan, add_problem
from ansible_collections.clusterctl.cluster.plugins.module_utils.gpu_node import version_key


def prebuilt_names(prefix: str, kernels: list[str], flavours: list[str]) -> list[str]:
    """Packages of prebuilt modules that matter to a node: those of its kernels and of its metapackages."""
    return [f"{prefix}-{suffix}" for suffix in (*kernels, *flavours)]


def _modules_of(prefix: str, kernel: str, facts: Facts) -> list[str]:
    """Packages of prebuilt modules for one kernel: Ubuntu names them by it, NVIDIA by the driver, too."""
    named = re.compile(rf"{re.escape(prefix)}-\d")
    return [
        name
        for name, builds in facts.builds.items()
        if named.match(name) and any(build.kernel == kernel for build in builds.values())
    ]


def _built_for(prefix: str, kernel: str, facts: Facts) -> set[str]:
    """Driver versions whose prebuilt modules can be had for a kernel."""
    names = _modules_of(prefix, kernel, facts)
    return {build.driver for name in names for build in facts.builds[name].values() if build.kernel == kernel}


def fits(prefix: str, version: str, kernels: list[str], facts: Facts) -> bool:
    """Whether one of the kernels can have this driver's modules; any can where DKMS builds them."""
    return not prefix or any(version in _built_for(prefix, kernel, facts) for kernel in kernels)


def choose_prebuilt(prefix: str, facts: Facts, plan: Plan) -> None:
    """The modules of each kernel, and of the metapackages that bring no kernel that is not there."""
    served = [
        kernel
        for kernel in facts.kernels
        if any(_take(name, kernel, facts, plan) for name in _modules_of(prefix, kernel, facts))
    ]
    for flavour, kernel in facts.kernel_metapackages.items():
        if kernel in served:
            _take(f"{prefix}-{flavour}", kernel, facts, plan)
    running, newest = facts.kernels[0], facts.kernels[-1]
    if not served:
        no_prebuilt(prefix, f"driver {plan.version}", facts, plan)
    elif running not in served:
        plan.reboot = (
            f"kernel {running} has no prebuilt modules of driver {plan.version}, kernel {newest} does"
        )
    elif newest not in served:
        plan.warnings.append(
            f"kernel {newest}, which the next reboot starts, has no prebuilt modules of driver {plan.version}"
        )


def _take(name: str, kernel: str, facts: Facts, plan: Plan) -> bool:
    """Adds one package of prebuilt modules with its exact parts, the installed version of it first."""
    builds = facts.builds.get(name, {})
    fitting = [own for own, build in builds.items() if (build.driver, build.kernel) == (plan.version, kernel)]
    if not fitting:
        return False
    own = facts.installed[name] if facts.installed.get(name) in fitting else fitting[0]
    plan.packages[name] = own
    plan.packages.update(builds[own].parts)
    return True


def no_prebuilt(prefix: str, wanted: str, facts: Facts, plan: Plan) -> None:
    """The remedy is a kernel that has modules: headers do not help."""
    offered = [found for name, found in facts.builds.items() if name.startswith(prefix)]
    kernels = {build.kernel for builds in offered for build in builds.values()} - set(facts.kernels)
    found = "and for no other kernel of this flavour"
    install, remedy = (
        (
            "dnf install kernel-",
            "build them with DKMS (nvidia_driver_precompiled: false), or update the mirror",
        )
        if prefix.startswith("kmod-")
        else (
            "apt-get install linux-image-",
            "boot one of Ubuntu's kernels (generic, lowlatency, nvidia), or update the mirror",
        )
    )
    if kernels:
        newest = sorted(kernels, key=version_key)[-1]
        found = f"and one for kernel {newest}"
        remedy = f"install that kernel ({install}{newest}), reboot and apply again"
    what = f"the archive has no {prefix}-{facts.kernels[0]} of {wanted}, {found}"
    add_problem(plan, what, remedy, code="packages.not-offered")
