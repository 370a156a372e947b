# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE)
"""Installed RPMs, by keys that a plan can use: the name, and for kernels the name with the release."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ansible_collections.clusterctl.cluster.plugins.module_utils.apt_view import RunFull
from ansible_collections.clusterctl.cluster.plugins.module_utils.gpu_node import version_key
from ansible_collections.clusterctl.cluster.plugins.module_utils.version_locks import is_locked, read_locks

DATABASES = ("var/lib/rpm", "usr/lib/sysimage/rpm")
# Between the bars of the format stands what is printed if there is an epoch.
QUERY = ["rpm", "-qa", "--qf", r"%{NAME}|%|EPOCH?{%{EPOCH}:}:{}|%{VERSION}-%{RELEASE}|%{ARCH}\n"]
# The keys that RPM verifies packages with, whatever repository they come from, are packages to it.
KEY_QUERY = ["rpm", "-qa", "gpg-pubkey", "--qf", r"%{NAME}-%{VERSION}-%{RELEASE}\n"]
# A package's name, or its version with epoch and release: all that RPM allows in them.
WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+~^:-]*")
# Several versions of these are installed side by side.
KERNEL = re.compile(
    r"kernel(-(rt|64k|debug))*(-(core|modules|modules-core|modules-extra|devel|devel-matched))?"
)


@dataclass(frozen=True)
class Rpm:
    """One installed package. `evr` is [epoch:]version-release as dnf prints it."""

    name: str
    evr: str
    architecture: str

    @property
    def key(self) -> str:
        """nvidia-driver-cuda, or kernel-core-5.14.0-570.12.1.el9_6.x86_64."""
        if not KERNEL.fullmatch(self.name):
            return self.name
        return f"{self.name}-{self.evr}.{self.architecture}"


def has_rpm(root: Path) -> bool:
    """Whether packages come by RPM on this system."""
    return not (root / "var/lib/dpkg/status").exists() and any((root / one).is_dir() for one in DATABASES)


def parse_rpms(output: str) -> list[Rpm]:
    """What QUERY prints; the keys that RPM keeps as packages are left out."""
    rows = [line.split("|") for line in output.splitlines() if line.count("|") == 2]
    return [Rpm(name, evr.removeprefix("0:"), arch) for name, evr, arch in rows if name != "gpg-pubkey"]


def installed_rpms(run: RunFull) -> list[Rpm]:
    """Every installed package; empty where there is no rpm."""
    return parse_rpms(run(QUERY)[1])


def public_keys(run: RunFull) -> dict[str, bytes]:
    """The keys that RPM knows, in ASCII armour, by the name that RPM has them under."""
    names = run(KEY_QUERY)[1].split()
    return {
        name: run(["rpm", "-q", name, "--qf", "%{DESCRIPTION}"])[1].encode(errors="replace") for name in names
    }


def by_key(rpms: Iterable[Rpm]) -> dict[str, str]:
    """Versions by key; the lowest if a transaction was interrupted between two."""
    newest_first = sorted(rpms, key=lambda rpm: version_key(rpm.evr.rpartition(":")[2]), reverse=True)
    return {rpm.key: rpm.evr for rpm in newest_first}


def leftovers(rpms: Sequence[Rpm], wanted: Mapping[str, str]) -> list[str]:
    """What a transaction that was interrupted did not remove: the wanted version is there, too."""
    there = {(rpm.key, rpm.evr) for rpm in rpms}
    return [
        f"{rpm.name}-{rpm.evr}.{rpm.architecture}"
        for rpm in rpms
        if wanted.get(rpm.key) and rpm.evr != wanted[rpm.key] and (rpm.key, wanted[rpm.key]) in there
    ]


def rpm_packages(run: RunFull, root: Path) -> tuple[dict[str, str], set[str]]:
    """Installed packages with their versions by key, and those that dnf's versionlock holds."""
    rpms = installed_rpms(run)
    lines = read_locks(root)
    held = {rpm.key for rpm in rpms if is_locked(rpm.name, rpm.evr, rpm.architecture, lines)}
    return by_key(rpms), held
