# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE)
"""What the plan of a driver is made from, the request and the node's facts, and what it holds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ansible_collections.clusterctl.cluster.plugins.module_utils.apt_packages import matching, upstream
from ansible_collections.clusterctl.cluster.plugins.module_utils.prebuilt_modules import Builds

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


def has_driver_version(version: str) -> bool:
    """Whether a package's version is a driver's, such as 580.95.05-1."""
    return bool(DRIVER_VERSION.fullmatch(upstream(version)))


def driver_packages(versions: Mapping[str, str], compat: dict[str, Any]) -> list[str]:
    """Packages that move with the driver, of these with their versions, sorted."""
    other = set(matching(versions, compat["driver_packages_by_version"]))
    return [
        name
        for name in matching(versions, compat["driver_packages"], compat["other_packages"])
        if name not in other or has_driver_version(versions[name])
    ]


def add_problem(plan: Plan, what: str, remedy: str, code: str = "") -> None:
    """One more reason why the plan cannot be done."""
    plan.problems.append({"what": what, "remedy": remedy, "code": code})


def fill(alternatives: list[list[str]], request: Request) -> list[list[str]]:
    """Names of packages with the branch in them."""
    return [[name.format(branch=request.branch) for name in names] for names in alternatives]
