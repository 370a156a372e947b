# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE)
"""Facts of a node and the operator's request in, the driver plan out. Pure: it reads and changes nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from ansible_collections.clusterctl.cluster.plugins.module_utils.apt_packages import matching, upstream
from ansible_collections.clusterctl.cluster.plugins.module_utils.gpu_node import version_key
from ansible_collections.clusterctl.cluster.plugins.module_utils.nvlink_fabric import (
    IMEX,
    NVLSM,
    nvlink_fabric,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.prebuilt_modules import (
    NAME,
    PRECOMPILED,
    Builds,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.supported_systems import (
    CODE as UNSUPPORTED_SYSTEM,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.supported_systems import refusal

WITHOUT_FABRIC = (
    "set nvidia_driver_source: cuda, or nvidia_driver_fabric_manager: false to do without the fabric"
)
NODE_ADDRESS = re.compile(r"[A-Za-z0-9][A-Za-z0-9.:-]*")
DRIVER_VERSION = re.compile(r"\d{3}(\.\d+){1,2}")


@dataclass(frozen=True)
class Request:
    """What the operator asked for; the options of the role without its prefix."""

    source: str
    flavor: str
    branch: str
    version: str
    scope: str
    fabric_manager: str
    hold: bool
    hold_kernel: bool
    kernel_header_packages: list[str]
    load: bool
    existing: str
    precompiled: bool = False
    imex_nodes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Facts:
    """What the node is. `available`: the source's versions by package; `record`: what we did before.

    `nvswitch_bridges`: adapters that lead to NVSwitches; `imex_nodes`: the nodes that IMEX is configured for.
    `builds`: prebuilt modules, installed and offered; `kernel_metapackages`: the kernel of each by flavour.
    `stream`: of the dnf module nvidia-driver, the one that is enabled; `streams`: those offered, if known.
    """

    os: dict[str, str]
    kernels: list[str]
    headers: dict[str, bool]
    gpus: list[dict[str, str]]
    nvswitches: int
    installed: dict[str, str]
    held: set[str]
    record: dict[str, Any]
    loaded: str
    loaded_flavor: str
    nouveau: bool
    runfile: bool
    available: dict[str, list[str]]
    secure_boot: bool = False
    nvswitch_bridges: int = 0
    imex_nodes: list[str] = field(default_factory=list)
    builds: Builds = field(default_factory=dict)
    kernel_metapackages: dict[str, str] = field(default_factory=dict)
    stream: str = ""
    streams: list[str] = field(default_factory=list)


@dataclass
class Plan:
    """What is to be done. `packages`: exact version by name, empty for any; `problems`: why it cannot be.

    `nvlsm`: whether Fabric Manager needs NVLSM; `imex`: whether IMEX does what Fabric Manager does elsewhere.
    `signing`: whether Secure Boot must trust the key of modules that are built here.
    `reboot`: why only a reboot brings the driver, empty otherwise; `warnings`: what the operator should know.
    `stream`: the stream of the dnf module nvidia-driver to enable; empty with apt.
    """

    version: str = ""
    stream: str = ""
    packages: dict[str, str] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    remove: list[str] = field(default_factory=list)
    hold: list[str] = field(default_factory=list)
    fabric_manager: bool = False
    nvlsm: bool = False
    imex: bool = False
    transaction: bool = False
    activation: bool = False
    refresh: bool = False
    signing: bool = False
    reboot: str = ""
    warnings: list[str] = field(default_factory=list)
    problems: list[dict[str, str]] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """The plan as a module returns it."""
        return asdict(self)


def make_plan(request: Request, facts: Facts, compat: dict[str, Any]) -> Plan:
    """Decides packages, versions, holds and activation; every reason why not stands in `problems`."""
    plan = Plan()
    packages = _package_sets(request, facts, compat, plan)
    if request.version and not _in_branch(request.version, request.branch):
        _problem(
            plan,
            f"nvidia_driver_version {request.version} is not of nvidia_driver_branch {request.branch}",
            "set both to the same branch",
        )
    _check_hardware(request, facts, compat, plan)
    if plan.problems:
        return plan

    plan.stream = _stream(packages, request, facts, plan)
    _choose_fabric(request, facts, compat, plan)
    driver = _fill(packages[request.scope][request.flavor], request)
    prebuilt = _prebuilt(packages, request.flavor, request)
    plan.version = _version(driver[0], prebuilt, request, facts, plan)
    if plan.problems:
        return plan
    if prebuilt:
        _choose_prebuilt(prebuilt, facts, plan)
    exact = driver + _fabric(packages, request, facts, plan)
    for alternatives in exact:
        _choose(alternatives, request, facts, plan)
    _choose_skewed(_foreign(packages, request, facts), request, facts, compat, plan)
    for name in [*_unversioned(packages, request, facts), *_with_nvlsm(packages, facts, compat, plan)]:
        plan.packages.setdefault(name, "")
    plan.remove = _removals(packages, request, facts, compat, plan)
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


def imex_differs(imex: bool, wanted: list[str], configured: list[str]) -> bool:
    """Whether IMEX must be told its nodes; without any declared, others such as Slurm tell it."""
    return imex and bool(wanted) and configured != wanted


def driver_packages(installed: Iterable[str], compat: dict[str, Any]) -> list[str]:
    """Installed packages that move with the driver."""
    return matching(installed, compat["driver_packages"], compat["other_packages"])


def _package_sets(request: Request, facts: Facts, compat: dict[str, Any], plan: Plan) -> dict[str, Any]:
    if unsupported := refusal(facts.os, compat):
        what = f"this system is not supported ({unsupported.found})"
        _problem(plan, what, f"{unsupported.remedy}: {unsupported.expected}", code=UNSUPPORTED_SYSTEM)
        return {}
    packages = compat["packages"][request.source].get(facts.os["id"], {})
    if not packages:
        _problem(plan, f"{facts.os['name']} packages no driver itself", "set nvidia_driver_source: cuda")
    elif request.precompiled:
        return _precompiled(packages, request, facts, plan)
    return packages


def _precompiled(packages: dict[str, Any], request: Request, facts: Facts, plan: Plan) -> dict[str, Any]:
    """The sets with NVIDIA's precompiled modules in place of those that DKMS builds."""
    instead = packages.get("precompiled", {})
    if not instead or request.flavor not in instead["streams"]:
        _problem(
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
        _problem(
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
        _problem(plan, "no NVIDIA GPU is on the PCI bus", "seat the GPUs, or take the host out of gpu_nodes")
    if request.flavor == "open" and ids and min(ids) < limits["first_device_id"]:
        _problem(
            plan,
            "the open kernel modules do not drive GPUs older than Turing",
            "set nvidia_driver_flavor: proprietary",
        )
    if request.flavor == "open" and int(request.branch) < limits["first_branch"]:
        _problem(
            plan,
            f"branch {request.branch} has no open kernel modules",
            "set nvidia_driver_flavor: proprietary",
        )
    if request.flavor == "proprietary" and ids and max(ids) >= limits["required_from_device_id"]:
        _problem(plan, "GPUs since Blackwell need the open kernel modules", "set nvidia_driver_flavor: open")
    if facts.runfile:
        _problem(
            plan,
            "a driver of NVIDIA's .run installer is on this node",
            "remove it with nvidia-uninstall, then run again",
        )


def _choose_fabric(request: Request, facts: Facts, compat: dict[str, Any], plan: Plan) -> None:
    """Fabric Manager where this node manages its switches, with NVLSM or not; IMEX where its rack does."""
    fabric = nvlink_fabric(facts.gpus, facts.nvswitches, facts.nvswitch_bridges, compat)
    plan.imex = fabric == IMEX
    asked = request.fabric_manager
    plan.fabric_manager = asked == "true" or (asked == "auto" and bool(fabric) and not plan.imex)
    plan.nvlsm = plan.fabric_manager and fabric == NVLSM
    if plan.imex and plan.fabric_manager:
        _problem(
            plan,
            "the switch trays of this rack run Fabric Manager, and its nodes cannot",
            "set nvidia_driver_fabric_manager: auto",
        )
    if unfit := [node for node in request.imex_nodes if not NODE_ADDRESS.fullmatch(node)]:
        _problem(
            plan,
            f"nvidia_driver_imex_nodes has {unfit[0]!r}",
            "list one address or host name per node of the NVLink domain",
        )


def _fabric(packages: dict[str, Any], request: Request, facts: Facts, plan: Plan) -> list[list[str]]:
    """What the node's NVLink fabric needs in the driver's version."""
    found: list[list[str]] = []
    if plan.fabric_manager:
        found += _fabric_manager(packages, request, facts, plan)
    if plan.nvlsm:
        if packages["fabric_manager"] and not packages["nvlsm"]:
            _problem(
                plan,
                f"{facts.os['name']} packages no NVLSM, and Fabric Manager of this node needs it",
                WITHOUT_FABRIC,
            )
        found += _fill(packages["nvlsm"], request)
    if plan.imex:
        if not packages["imex"]:
            _problem(
                plan,
                f"{facts.os['name']} packages no IMEX, and this node is one of a rack that needs it",
                "set nvidia_driver_source: cuda",
            )
        found += _fill(packages["imex"], request)
    return found


def _with_nvlsm(packages: dict[str, Any], facts: Facts, compat: dict[str, Any], plan: Plan) -> list[str]:
    """What NVLSM needs in versions of their own; others' packages, as OFED's, stay as they are."""
    names = packages["with_nvlsm"] if plan.nvlsm else []
    return [name for name in names if name in compat["held_with_driver"] or name not in facts.installed]


def _fabric_manager(packages: dict[str, Any], request: Request, facts: Facts, plan: Plan) -> list[list[str]]:
    if not packages["fabric_manager"]:
        switches = f"{facts.nvswitches} NVSwitches" if facts.nvswitches else "an NVLink fabric to manage"
        _problem(
            plan,
            f"{facts.os['name']} packages no Fabric Manager, and this node has {switches}",
            WITHOUT_FABRIC,
        )
    return _fill(packages["fabric_manager"], request)


def _fill(alternatives: list[list[str]], request: Request) -> list[list[str]]:
    return [[name.format(branch=request.branch) for name in names] for names in alternatives]


def _prebuilt(packages: dict[str, Any], flavor: str, request: Request) -> str:
    """What the names of this flavour's prebuilt modules begin with; empty where DKMS builds them."""
    return packages["prebuilt"].get(flavor, "").format(branch=request.branch)


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


def _fits(prefix: str, version: str, kernels: list[str], facts: Facts) -> bool:
    return not prefix or any(version in _built_for(prefix, kernel, facts) for kernel in kernels)


def _choose_prebuilt(prefix: str, facts: Facts, plan: Plan) -> None:
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
        _no_prebuilt(prefix, f"driver {plan.version}", facts, plan)
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


def _no_prebuilt(prefix: str, wanted: str, facts: Facts, plan: Plan) -> None:
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
    _problem(plan, what, remedy, code="packages.not-offered")


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
        if _in_branch(version, request.branch) and _fits(prebuilt, version, facts.kernels, facts):
            return version
    offered = {upstream(v) for name in anchor for v in facts.available.get(name, [])}
    of_branch = sorted((v for v in offered if _in_branch(v, request.branch)), key=version_key)
    if not of_branch:
        _not_offered(plan, anchor, f"branch {request.branch}", facts, request)
        return ""
    for kernel in facts.kernels:
        if fitting := [version for version in of_branch if _fits(prebuilt, version, [kernel], facts)]:
            return fitting[-1]
    _no_prebuilt(prebuilt, f"a driver of branch {request.branch} that it has the libraries of", facts, plan)
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
    _problem(
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
        version = upstream(facts.installed[name])
        alike = DRIVER_VERSION.fullmatch(version)
        if name in plan.packages or name in foreign or version == plan.version or not alike:
            continue
        wanted = [v for v in facts.available.get(name, []) if upstream(v) == plan.version]
        if wanted and _branch_of(name) in ("", request.branch):
            plan.packages[name] = wanted[0]


def _unversioned(packages: dict[str, Any], request: Request, facts: Facts) -> list[str]:
    names = list(packages["with_driver"])
    pinning = packages["pinning"].format(branch=request.branch)
    if pinning and (pinning in facts.available or pinning in facts.installed):
        names.append(pinning)
    if packages["dkms"]:
        names += request.kernel_header_packages or [
            packages["headers"].format(kernel=kernel)
            for kernel in facts.kernels
            if not facts.headers.get(kernel)
        ]
    return names


def _branch_of(name: str) -> str:
    # The kernel's ABI is a number too: linux-signatures-nvidia-5.15.0-204-generic.
    match = re.search(r"-nvidia-(\d{3})-" if name.startswith("linux-") else r"-(\d{3})(?=$|-)", name)
    return match.group(1) if match else ""


def _removals(
    packages: dict[str, Any], request: Request, facts: Facts, compat: dict[str, Any], plan: Plan
) -> list[str]:
    """Packages of another branch, and the other flavour's own: apt must be told, or it keeps what it can."""
    foreign = _foreign(packages, request, facts)
    if plan.nvlsm:  # libnvsdm-570 became libnvsdm: both have the same files
        foreign |= {name for names in _fill(packages["nvlsm"], request) for name in names}
    return sorted(
        name
        for name in driver_packages(facts.installed, compat)
        if name not in plan.packages
        and (
            _branch_of(name) not in ("", request.branch)
            or name in foreign
            or _other_driver(name, facts, plan)
            or _named_by_version(name) not in ("", plan.version)
            or (plan.stream and _other_version(name, facts, plan))
        )
    )


def _other_version(name: str, facts: Facts, plan: Plan) -> bool:
    """Whether this is a part of another driver, and this one has none: RPMs have no branch in their names."""
    version = upstream(facts.installed[name])
    return bool(DRIVER_VERSION.fullmatch(version)) and version != plan.version


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
    """Packages that only the other flavour needs, and modules of DKMS where prebuilt ones replace them."""
    other = "proprietary" if request.flavor == "open" else "open"
    names = _named(packages, other, request) - _named(packages, request.flavor, request)
    if packages.get("precompiled") and not packages["prebuilt"]:
        names |= {name for name in facts.installed if PRECOMPILED.match(name)}
    if packages["prebuilt"]:
        names |= {name.format(branch=request.branch) for name in packages["built_here"]}
        opened = _prebuilt(packages, "open", request)
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
        for names in _fill(packages[scope][flavor], request)
        for name in names
    }


def _is_installed(installed: dict[str, str], name: str, version: str) -> bool:
    return name in installed and version in ("", installed[name])


def _holds(request: Request, facts: Facts, compat: dict[str, Any], plan: Plan) -> list[str]:
    """What is to be held of what is installed or named; the transaction adds what apt brings."""
    if not request.hold:
        return []
    present = {name for name in facts.installed if name not in plan.remove} | set(plan.packages)
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
        _problem(
            plan,
            f"a driver that clusterctl did not install is on this node: {listed}",
            "set nvidia_driver_existing: adopt to have it replaced, or ask for its version",
        )
    foreign_holds = sorted(
        (set(plan.missing) | set(plan.remove)) & (facts.held - set(facts.record.get("held", [])))
    )
    if foreign_holds:
        unhold = "dnf versionlock delete" if plan.stream else "apt-mark unhold"
        _problem(
            plan,
            f"held by someone else: {', '.join(foreign_holds[:5])}",
            f"release them if they may change: {unhold} {' '.join(foreign_holds[:5])}",
            code="packages.held",
        )


def _problem(plan: Plan, what: str, remedy: str, code: str = "") -> None:
    plan.problems.append({"what": what, "remedy": remedy, "code": code})
