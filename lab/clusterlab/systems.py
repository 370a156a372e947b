"""The operating systems of lab hosts: Debian itself, and personalities of other systems over a Debian.

A personality answers as the other system to whoever asks it: os-release, the package manager and its vendor,
the kernel's name. Its programs are Debian's.
"""

from __future__ import annotations

from dataclasses import dataclass

from clusterlab.images.debian import SUITES


@dataclass(frozen=True)
class Kernel:
    """A kernel by its release, the version of its packages, and the flavour whose metapackages install it."""

    release: str
    version: str
    flavour: str = ""


@dataclass(frozen=True)
class Personality:
    """A system that a lab host answers as.

    base: the Debian whose programs it has. revision: what the archive appends to a driver's version.
    kernels: what its archive has; the host is handed over with the first.
    """

    base: str
    name: str
    id: str
    version_id: str
    codename: str
    title: str
    debian_version: str
    revision: str
    kernels: tuple[Kernel, ...]


# Kernels and revisions as Ubuntu's archive had them in November 2026.
PERSONALITIES = {
    "ubuntu2204": Personality(
        base="debian12",
        name="Ubuntu 22.04.5 LTS",
        id="ubuntu",
        version_id="22.04",
        codename="jammy",
        title="22.04.5 LTS (Jammy Jellyfish)",
        debian_version="bookworm/sid",
        revision="0ubuntu0.22.04.1",
        kernels=(
            Kernel("5.15.0-204-generic", "5.15.0-204.214", "generic"),
            Kernel("5.15.0-130-generic", "5.15.0-130.140"),
        ),
    ),
    "ubuntu2404": Personality(
        base="debian13",
        name="Ubuntu 24.04.3 LTS",
        id="ubuntu",
        version_id="24.04",
        codename="noble",
        title="24.04.3 LTS (Noble Numbat)",
        debian_version="trixie/sid",
        revision="0ubuntu0.24.04.1",
        kernels=(
            Kernel("6.8.0-151-generic", "6.8.0-151.151", "generic"),
            Kernel("6.8.0-45-generic", "6.8.0-45.45"),
            Kernel("6.14.0-37-generic", "6.14.0-37.37~24.04.1", "generic-hwe-24.04"),
        ),
    ),
}


@dataclass(frozen=True)
class RockyPersonality:
    """A rebuild of RHEL that a lab host answers as. Packages come by dnf; there is no apt and no dpkg.

    base: the Debian whose programs it has. kernels: what its archive has, as version-release; the host is
    handed over with the first.
    """

    base: str
    name: str
    version_id: str
    codename: str
    kernels: tuple[str, ...]


# As in November 2026; dnf 4.14 is both Rocky's and Debian 12's.
RPM_PERSONALITIES = {
    "rocky9": RockyPersonality(
        base="debian12",
        name="Rocky Linux",
        version_id="9.6",
        codename="Blue Onyx",
        kernels=("5.14.0-570.12.1.el9_6", "5.14.0-611.5.1.el9_7"),
    ),
}
SYSTEMS = tuple(sorted([*SUITES, *PERSONALITIES, *RPM_PERSONALITIES]))


def base_of(system: str) -> str:
    """The Debian whose programs a system's hosts have."""
    personality = PERSONALITIES.get(system) or RPM_PERSONALITIES.get(system)
    return personality.base if personality else system


def registry_system(system: str) -> str:
    """The system of the registry host in a lab of this one: the registry's packages are Debian's."""
    return base_of(system) if system in RPM_PERSONALITIES else system
