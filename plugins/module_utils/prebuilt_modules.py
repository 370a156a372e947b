# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE)
"""Kernel modules that come built and signed: which driver each package has, and for which kernel.

Ubuntu's packages have the kernel's version; the driver's stands in what they provide and depend on. NVIDIA's
for RHEL have both in their names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ansible_collections.clusterctl.cluster.plugins.module_utils.apt_packages import VERSION, upstream

NAME = "linux-modules-nvidia-"
KERNEL = re.compile(r"(?<=-)\d+\.\d+\.\d+-\d+-[a-z0-9-]+")
PROVIDED = re.compile(r"\bnvidia-dkms-\S+ \(= (\S+)\)")
NEEDED = re.compile(r"\bnvidia-kernel-common-\S+ \(>= (\S+)\)")
PRECOMPILED = re.compile(r"kmod-nvidia-(?:open-)?(\d+(?:\.\d+)+)-(\d+(?:\.\d+)+-[\d.]+)")
EXACT = re.compile(r"(linux-(?:modules|objects|signatures)-nvidia-\S+) \(= (\S+)\)")


@dataclass(frozen=True)
class Build:
    """One version of such a package. `parts`: the packages that it needs in an exact version of their own."""

    driver: str
    kernel: str
    parts: dict[str, str] = field(default_factory=dict)


# By the package's name and version.
Builds = dict[str, dict[str, Build]]


def stanzas(text: str) -> Iterator[dict[str, str]]:
    """The packages in dpkg's status file, or in what `apt-cache show` prints; continued lines left out."""
    fields: dict[str, str] = {}
    for line in [*text.splitlines(), ""]:
        if not line and fields:
            yield fields
            fields = {}
        elif line[:1].strip() and ":" in line:
            name, _, value = line.partition(":")
            fields[name] = value.strip()


def parse_builds(text: str) -> Builds:
    """Packages of prebuilt modules in such a text; those that do not say their driver are left out."""
    found: Builds = {}
    for fields in stanzas(text):
        name, depends = fields.get("Package", ""), fields.get("Depends", "")
        if not name.startswith(NAME) or not VERSION.fullmatch(fields.get("Version", "")):
            continue
        driver = PROVIDED.search(fields.get("Provides", "")) or NEEDED.search(depends)
        kernel = KERNEL.search(name) or KERNEL.search(depends)
        if driver and kernel:
            build = Build(upstream(driver.group(1)), kernel.group(), dict(EXACT.findall(depends)))
            found.setdefault(name, {})[fields["Version"]] = build
    return found


def precompiled_builds(offered: Mapping[str, list[str]], architecture: str) -> Builds:
    """NVIDIA's precompiled modules among RPMs, `offered` being versions by name.

    kmod-nvidia-580.95.05-5.14.0-570.12.1 of version 3:580.95.05-3.el9_6 is for kernel
    5.14.0-570.12.1.el9_6.x86_64.
    """
    found: Builds = {}
    for name, versions in offered.items():
        match = PRECOMPILED.fullmatch(name)
        for version in versions if match else []:
            kernel = f"{match.group(2)}.{version.rpartition('.')[2]}.{architecture}"
            found.setdefault(name, {})[version] = Build(match.group(1), kernel)
    return found


def parse_kernel_metapackages(text: str) -> dict[str, str]:
    """Installed metapackages of kernels: generic-hwe-24.04 -> the kernel that it installed."""
    found = {}
    for fields in stanzas(text):
        flavour = re.fullmatch(r"linux-image-([a-z]\S*)", fields.get("Package", ""))
        kernel = re.search(r"\blinux-image-(?:unsigned-)?(\d\S+)", fields.get("Depends", ""))
        if flavour and kernel and fields.get("Status", "").endswith(" installed"):
            found[flavour.group(1)] = kernel.group(1).rstrip(",")
    return found


def merge(*several: Builds) -> Builds:
    """Those of all; of one package the earlier ones come first."""
    merged: Builds = {}
    for builds in several:
        for name, versions in builds.items():
            merged[name] = {**merged.get(name, {}), **versions}
    return merged
