"""The depot's RPMs: Rocky's own, EPEL's, NVIDIA's, Docker's and the toolkit's, each at its publisher's place.

Docker's RPMs and dnf's plugin carry the files of Debian's packages.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from clusterlab.process import call
from clusterlab.sources import rhel_driver, rhel_packages, rpm_repository, signing
from clusterlab.sources.deb import FAILED, HINT
from clusterlab.systems import RockyPersonality

# Debian's packages whose files are in the RPMs, besides those that a Debian host installs too.
DEBIAN_PACKAGES = ("dnf-plugins-core",)
# RPM, path there: Debian's package, path there.
FROM_DEBIAN: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "docker-ce": {
        "/usr/bin/dockerd": ("docker.io", "usr/sbin/dockerd"),
        "/usr/bin/docker-proxy": ("docker.io", "usr/sbin/docker-proxy"),
        "/usr/bin/docker-init": ("tini", "usr/bin/tini-static"),
        f"{rhel_packages.UNITS}/docker.socket": ("docker.io", "lib/systemd/system/docker.socket"),
    },
    "docker-ce-cli": {"/usr/bin/docker": ("docker.io", "usr/bin/docker")},
    "containerd.io": {
        **{
            f"/usr/bin/{name}": ("containerd", f"usr/bin/{name}")
            for name in ("containerd", "containerd-shim-runc-v2", "ctr")
        },
        "/usr/bin/runc": ("runc", "usr/sbin/runc"),
        f"{rhel_packages.UNITS}/containerd.service": ("containerd", "lib/systemd/system/containerd.service"),
    },
    "python3-dnf-plugin-versionlock": {
        path: ("dnf-plugins-core", path.removeprefix("/"))
        for path in (
            "/usr/lib/python3/dist-packages/dnf-plugins/versionlock.py",
            "/usr/lib/python3/dist-packages/dnfpluginscore/__init__.py",
            "/etc/dnf/plugins/versionlock.conf",
        )
    },
}


@dataclass(frozen=True)
class Versions:
    """What NVIDIA's repositories have: drivers and toolkits."""

    drivers: Sequence[str]
    toolkits: Sequence[str]


def lay_out(
    tree: Path, system: RockyPersonality, debs: Sequence[Path], key: signing.SigningKey, versions: Versions
) -> None:
    """Build all repositories below `tree`; `debs` are Debian's packages as files.

    Raises ClusterctlError where a program fails.
    """
    unpacked = tree / ".debian"
    files = _debian_files(debs, unpacked)
    docker, containerd = (_version(debs, name) for name in ("docker.io", "containerd"))
    rocky, vendor = tree / "rocky/9", "Rocky Enterprise Software Foundation"
    plugin = rhel_packages.versionlock(files["python3-dnf-plugin-versionlock"])
    base = [*rhel_packages.release(system), plugin]
    appstream = rhel_packages.appstream()
    for evr in system.kernels:
        base += rhel_packages.kernel(evr)
        appstream += rhel_packages.kernel_devel(evr)
    rpm_repository.publish(rocky / "BaseOS/x86_64/os", base, key, vendor)
    rpm_repository.publish(rocky / "AppStream/x86_64/os", appstream, key, vendor)
    epel = tree / "epel/9/Everything/x86_64"
    rpm_repository.publish(epel, [rhel_packages.dkms()], key, "Fedora Project")
    stable = tree / "docker/9/x86_64/stable"
    rpm_repository.publish(stable, rhel_packages.docker(docker, containerd, files), key, "Docker")
    toolkit = [package for version in versions.toolkits for package in rhel_packages.toolkit(version)]
    rpm_repository.publish(tree / "libnvidia-container/stable/rpm/x86_64", toolkit, key, "NVIDIA CORPORATION")
    cuda = tree / "cuda/repos/rhel9/x86_64"
    packages, streams = rhel_driver.repository(versions.drivers, system.kernels[0])
    rpm_repository.publish(cuda, packages, key, "NVIDIA", module=rhel_driver.MODULE, streams=streams)
    keys = ("cuda/repos/rhel9/x86_64/D42D0685.pub", "docker/gpg", "libnvidia-container/gpgkey")
    for place in (*keys, "libnvidia-container/stable/deb/gpgkey", "epel/RPM-GPG-KEY-EPEL-9"):
        (tree / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(key.armored, tree / place)
    shutil.rmtree(unpacked)


def _debian_files(debs: Sequence[Path], unpacked: Path) -> dict[str, dict[str, Path]]:
    """FROM_DEBIAN as files of this machine."""
    unpacked.mkdir(parents=True)
    for name in {name for files in FROM_DEBIAN.values() for name, _ in files.values()}:
        deb = next(path for path in debs if path.name.startswith(f"{name}_"))
        call(["dpkg-deb", "-x", str(deb), str(unpacked / name)], code=FAILED, hint=HINT)
    return {
        rpm: {path: unpacked / name / inside for path, (name, inside) in files.items()}
        for rpm, files in FROM_DEBIAN.items()
    }


def _version(debs: Sequence[Path], name: str) -> str:
    """The upstream version of one of Debian's packages, such as 20.10.24."""
    pattern = re.compile(rf"{re.escape(name)}_(\d+(?:\.\d+)+)")
    return next(match[1] for path in debs if (match := pattern.match(path.name)))
