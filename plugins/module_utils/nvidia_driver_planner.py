# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE)
"""Facts of a node and the operator's request in, the driver plan out. Pure: it reads and changes nothing."""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.clusterctl.cluster.plugins.module_utils.apt_packages import matching, upstream
from ansible_collections.clusterctl.cluster.plugins.module_utils.driver_fabric import (
    choose_fabric,
    fabric_packages,
    imex_differs,
    with_nvlsm,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.driver_plan import (
    Facts,
    Plan,
    Request,
    add_problem,
    driver_packages,
    fill,
    has_driver_version,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.driver_prebuilt import (
    choose_prebuilt,
    fits,
    no_prebuilt,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.driver_unversioned import (
    is_of_another_driver,
    other_pins,
    pinning_package,
    superseded,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.gpu_node import version_key
from ansible_collections.clusterctl.cluster.plugins.module_utils.package_managers import APT, DNF
from ansible_collections.clusterctl.cluster.plugins.module_utils.prebuilt_modules import NAME, PRECOMPILED
from ansible_collections.clusterctl.cluster.plugins.module_utils.supported_systems import (
    CODE as UNSUPPORTED_SYSTEM,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.supported_systems import refusal


def make_plan(request: Request, facts: Facts, compat: dict[str, Any]) -> Plan:
    """Decides packages, versions, holds and activation; every reason why not stands in `problems`."""
    plan = Plan()
    packages = _package_sets(request, facts, compat, plan)
    if request.version and not _in_branch(request.version, request.branch):
        add_problem(
            plan,
            f"nvidia_driver_version {request.version} is not of nvidia_driver_branch {request.branch}",
            "set both to the same branch",
        )
    _check_hardware(request, facts, compat, plan)
    if plan.problems:
        return plan

    plan.stream = _stream(packages, request, facts, plan)
    choose_fabric(request, facts, compat, plan)
    driver = fill(packages[request.scope][request.flavor], request)
    prebuilt = prebuilt_prefix(packages, request.flavor, request)
    plan.version = _version(driver[0], prebuilt, request, facts, plan)
    if plan.problems:
        return plan
    if prebuilt:
        choose_prebuilt(prebuilt, facts, plan)
    exact = driver + fabric_packages(packages, request, facts, plan)
    for alternatives in exact:
        _choose(alternatives, request, facts, plan)
    foreign = _foreign(packages, request, facts)
    _choose_skewed(foreign, request, facts, compat, plan)
    own_versions = _with_own_versions(packages, request, facts)
    own_versions += pinning_package(packages, request, facts, plan)
    for name in [*own_versions, *with_nvlsm(packages, facts, compat, plan)]:
        plan.packages.setdefault(name, "")
    unwanted = foreign | superseded(exact, request, facts, plan)
    if plan.nvlsm:  # libnvsdm-570 became libnvsdm: both have the same files
        unwanted |= {name for names in fill(packages["nvlsm"], request) for name in names}
    removed = _removals(unwanted, request, facts, compat, plan) | other_pins(packages, facts, plan)
    plan.remove = sorted(removed - set(plan.packages))
    plan.missing = sorted(
        name for name, version in plan.packages.items() if not _is_installed(facts.installed, name, version)
    )
    plan.hold = _holds(request, facts, compat, plan)
    _check_existing(request, facts, compat, plan)
    if plan.problems:
        return plan
    released = (set(facts.record.get("held", [])) & facts.held) - set(plan.hold)
    plan.transaction = bool(
        plan.missing
        or plan.remove
        or released
        or set(plan.hold) - facts.held
        or plan.stream not in ("", facts.stream)
    )
    loading = request.load and (
        facts.nouveau
        or facts.loaded != plan.version
        or facts.loaded_flavor not in ("", request.flavor)
        or bool(plan.missing or plan.remove)
    )
    # Another list of nodes restarts IMEX, and with it what jobs have imported of other nodes is gone.
    plan.activation = loading or (
        request.load and imex_differs(plan.imex, request.imex_nodes, facts.imex_nodes)
    )
    plan.signing = facts.secure_boot and packages["dkms"] and loading
    return plan


def _package_sets(request: Request, facts: Facts, compat: dict[str, Any], plan: Plan) -> dict[str, Any]:
    if unsupported := refusal(facts.os, compat):
        what = f"this system is not supported ({unsupported.found})"
        add_problem(plan, what, f"{unsupported.remedy}: {unsupported.expected}", code=UNSUPPORTED_SYSTEM)
        return {}
    packages = compat["packages"][request.source].get(facts.os["id"], {})
    if not packages:
        add_problem(plan, f"{facts.os['name']} packages no driver itself", "set nvidia_driver_source: cuda")
    elif request.precompiled:
        return _precompiled(packages, request, facts, plan)
    return packages


def _precompiled(packages: dict[str, Any], request: Request, facts: Facts, plan: Plan) -> dict[str, Any]:
    """The sets with NVIDIA's precompiled modules in place of those that DKMS builds."""
    instead = packages.get("precompiled", {})
    if not instead or request.flavor not in instead["streams"]:
        add_problem(
            plan,
            "NVIDIA precompiles modules only for RHEL 9 and its rebuilds, and only the proprietary ones",
            "set nvidia_driver_precompiled: false, or nvidia_driver_flavor: proprietary",
        )
    elif facts.secure_boot:
        plan.warnings.append(
            "Secure Boot loads precompiled modules only if NVIDIA's key is enrolled (mokutil --list-enrolled)"
        )
    return {**packages, **instead}


def _stream(packages: dict[str, Any], request: Request, facts: Facts, plan: Plan) -> str:
    """The stream of the dnf module that this driver is of; empty where packages do not come by modules."""
    stream: str = packages.get("streams", {}).get(request.flavor, "").format(branch=request.branch)
    if stream and facts.streams and stream not in facts.streams:
        of_branch = [one for one in facts.streams if one.partition("-")[0] == request.branch]
        add_problem(
            plan,
            f"the package source has no stream nvidia-driver:{stream}; "
            f"it has {', '.join(of_branch or facts.streams)}",
            "set nvidia_driver_branch and nvidia_driver_flavor to what the source has, or update the mirror",
            code="packages.not-offered",
        )
    return stream


def _check_hardware(request: Request, facts: Facts, compat: dict[str, Any], plan: Plan) -> None:
    limits = compat["open_kernel_modules"]
    ids = [int(gpu["device"], 16) for gpu in facts.gpus if gpu["device"]]
    if request.load and not facts.gpus:
        add_problem(
            plan, "no NVIDIA GPU is on the PCI bus", "seat the GPUs, or take the host out of gpu_nodes"
        )
    if request.flavor == "open" and ids and min(ids) < limits["first_device_id"]:
        add_problem(
            plan,
            "the open kernel modules do not drive GPUs older than Turing",
            "set nvidia_driver_flavor: proprietary",
        )
    if request.flavor == "open" and int(request.branch) < limits["first_branch"]:
        add_problem(
            plan,
            f"branch {request.branch} has no open kernel modules",
            "set nvidia_driver_flavor: proprietary",
        )
    if request.flavor == "proprietary" and ids and max(ids) >= limits["required_from_device_id"]:
        add_problem(
            plan, "GPUs since Blackwell need the open kernel modules", "set nvidia_driver_flavor: open"
        )
    if facts.runfile:
        add_problem(
            plan,
            "a driver of NVIDIA's .run installer is on this node",
            "remove it with nvidia-uninstall, then run again",
        )


def prebuilt_prefix(packages: dict[str, Any], flavor: str, request: Request) -> str:
    """What the names of this flavour's prebuilt modules begin with; empty where DKMS builds them."""
    return packages["prebuilt"].get(flavor, "").format(branch=request.branch)


def _in_branch(version: str, branch: str) -> bool:
    return version.split(".", maxsplit=1)[0] == branch


def _version(anchor: list[str], prebuilt: str, request: Request, facts: Facts, plan: Plan) -> str:
    """The exact driver version: as asked, else the installed one of the branch, else the newest offered.

    With prebuilt modules: of those that a kernel of this node has, that of the running one if it has any.
    """
    if request.version:
        return request.version
    for name in anchor:
        version = upstream(facts.installed.get(name, ""))
        if _in_branch(version, request.branch) and fits(prebuilt, version, facts.kernels, facts):
            return version
    named = {v for name in anchor for v in facts.available.get(name, [])}
    offered = {upstream(v) for v in named if has_driver_version(v)}
    of_branch = sorted((v for v in offered if _in_branch(v, request.branch)), key=version_key)
    if not of_branch:
        _not_offered(plan, anchor, f"branch {request.branch}", facts, request)
        return ""
    for kernel in facts.kernels:
        if fitting := [version for version in of_branch if fits(prebuilt, version, [kernel], facts)]:
            return fitting[-1]
    no_prebuilt(prebuilt, f"a driver of branch {request.branch} that it has the libraries of", facts, plan)
    return ""


def _choose(alternatives: list[str], request: Request, facts: Facts, plan: Plan) -> None:
    for name in alternatives:
        if upstream(facts.installed.get(name, "")) == plan.version:
            plan.packages[name] = facts.installed[name]
            return
    for name in alternatives:
        for version in facts.available.get(name, []):
            if upstream(version) == plan.version:
                plan.packages[name] = version
                return
    _not_offered(plan, alternatives, plan.version, facts, request)


def _not_offered(plan: Plan, names: list[str], wanted: str, facts: Facts, request: Request) -> None:
    offered = sorted({upstream(v) for n in names for v in facts.available.get(n, [])}, key=version_key)
    if offered:
        found = f"it has {', '.join(offered)}"
    elif request.source == "distribution" and facts.os["id"] == "debian":
        found = "it has none: are contrib and non-free among its components?"
    else:
        found = "it has none"
    add_problem(
        plan,
        f"the package source offers no {' or '.join(names)} of {wanted}; {found}",
        "set nvidia_driver_branch and nvidia_driver_version to what the source has, or update the mirror",
        code="packages.not-offered",
    )


def _choose_skewed(
    foreign: set[str], request: Request, facts: Facts, compat: dict[str, Any], plan: Plan
) -> None:
    """Names every installed part that the source has in this version: apt leaves alone what is held."""
    for name in driver_packages(facts.installed, compat):
        version = facts.installed[name]
        settled = upstream(version) == plan.version or not has_driver_version(version)
        if settled or name in plan.packages or name in foreign:
            continue
        wanted = [v for v in facts.available.get(name, []) if upstream(v) == plan.version]
        if wanted and _branch_of(name) in ("", request.branch):
            plan.packages[name] = wanted[0]


def _with_own_versions(packages: dict[str, Any], request: Request, facts: Facts) -> list[str]:
    names = list(packages["with_driver"])
    if packages["dkms"]:
        names += request.kernel_header_packages or [
            packages["headers"].format(kernel=kernel)
            for kernel in facts.kernels
            if not facts.headers.get(kernel)
        ]
        names += _with_dkms(packages.get("with_dkms", ""), request, facts)
    return names


def _with_dkms(form: str, request: Request, facts: Facts) -> list[str]:
    """The package that dkms requires besides headers, for the newest kernel; none where one is installed."""
    stem = form.partition("{")[0]
    if not form or request.kernel_header_packages or any(name.startswith(stem) for name in facts.installed):
        return []
    return [form.format(kernel=facts.kernels[-1])]


def _branch_of(name: str) -> str:
    # The kernel's ABI is a number too: linux-signatures-nvidia-5.15.0-204-generic.
    match = re.search(r"-nvidia-(\d{3})-" if name.startswith("linux-") else r"-(\d{3})(?=$|-)", name)
    return match.group(1) if match else ""


def _removals(
    unwanted: set[str], request: Request, facts: Facts, compat: dict[str, Any], plan: Plan
) -> set[str]:
    """Packages of another branch, and what is unwanted: apt must be told, or it keeps what it can."""
    return {
        name
        for name in driver_packages(facts.installed, compat)
        if _branch_of(name) not in ("", request.branch)
        or name in unwanted
        or _other_driver(name, facts, plan)
        or _named_by_version(name) not in ("", plan.version)
        or is_of_another_driver(name, request, facts, plan)
    }


def _named_by_version(name: str) -> str:
    """The driver's version in a name, as in nvidia-firmware-580-server-580.95.05."""
    # A kernel's release looks alike: kmod-nvidia-580.95.05-5.14.0-570.12.1.
    match = re.search(r"-(\d{3}(?:\.\d+){1,2})$", name) if not name.startswith("kmod-") else None
    return match.group(1) if match else ""


def _other_driver(name: str, facts: Facts, plan: Plan) -> bool:
    """Whether these are prebuilt modules of another driver, as for a kernel that is kept besides."""
    build = facts.builds.get(name, {}).get(facts.installed[name])
    return build is not None and build.driver != plan.version


def _foreign(packages: dict[str, Any], request: Request, facts: Facts) -> set[str]:
    """What only the other flavour or another source has, and modules of DKMS where others replace them."""
    other = "proprietary" if request.flavor == "open" else "open"
    names = _named(packages, other, request) - _named(packages, request.flavor, request)
    alike = [*fill(packages["fabric_manager"], request), *fill(packages["imex"], request)]
    here = {name for names in alike for name in names}
    elsewhere = [name.format(branch=request.branch) for name in packages.get("elsewhere", [])]
    names |= set(matching(facts.installed, elsewhere, [])) - here
    if packages.get("precompiled") and not packages["prebuilt"]:
        names |= {name for name in facts.installed if PRECOMPILED.match(name)}
    if packages["prebuilt"]:
        names |= {name.format(branch=request.branch) for name in packages["built_here"]}
        opened = prebuilt_prefix(packages, "open", request)
        names |= {
            name
            for name in facts.installed
            if name.startswith(NAME) and (request.flavor == "open") is not name.startswith(f"{opened}-")
        }
    return names


def _named(packages: dict[str, Any], flavor: str, request: Request) -> set[str]:
    return {
        name
        for scope in ("full", "compute")
        for names in fill(packages[scope][flavor], request)
        for name in names
    }


def _is_installed(installed: dict[str, str], name: str, version: str) -> bool:
    return name in installed and version in ("", installed[name])


def _holds(request: Request, facts: Facts, compat: dict[str, Any], plan: Plan) -> list[str]:
    """What is to be held of what is installed or named; the transaction adds what apt brings."""
    if not request.hold:
        return []
    present = {name: own for name, own in facts.installed.items() if name not in plan.remove}
    present |= plan.packages
    names = set(driver_packages(present, compat)) | set(matching(present, compat["held_with_driver"]))
    if request.hold_kernel:
        names |= set(matching(present, compat["kernel_metapackages"]))
    return sorted(names)


def _check_existing(request: Request, facts: Facts, compat: dict[str, Any], plan: Plan) -> None:
    """A driver that somebody else installed is changed only with the operator's word."""
    theirs = {
        name: facts.installed[name]
        for name in driver_packages(facts.installed, compat)
        if name not in facts.record.get("packages", [])
    }
    touched = [n for n in theirs if n in plan.remove or (n in plan.packages and n in plan.missing)]
    if touched and not facts.record and request.existing == "refuse":
        listed = ", ".join(f"{name} {theirs[name]}" for name in touched[:3])
        add_problem(
            plan,
            f"a driver that clusterctl did not install is on this node: {listed}",
            "set nvidia_driver_existing: adopt to have it replaced, or ask for its version",
        )
    foreign_holds = sorted(
        (set(plan.missing) | set(plan.remove)) & (facts.held - set(facts.record.get("held", [])))
    )
    if foreign_holds:
        manager = DNF if plan.stream else APT
        add_problem(
            plan,
            f"held by someone else: {', '.join(foreign_holds[:5])}",
            f"release them if they may change: {manager.unhold} {' '.join(foreign_holds[:5])}",
            code="packages.held",
        )
