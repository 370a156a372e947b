"""Builds the depot's sources once per content, and lays them out as their publishers do."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from clusterlab import systems
from clusterlab.cache import cache_root, content_hash, locked, scratch
from clusterlab.images import debian
from clusterlab.sources import (
    deb,
    distribution,
    driver_packages,
    other_packages,
    repository,
    rhel_archive,
    signing,
    ubuntu_driver,
    ubuntu_kernel,
)
from clusterlab.sources.contents import SIMULATED
from clusterlab.systems import PERSONALITIES, RPM_PERSONALITIES, Personality, base_of

DRIVER_VERSIONS = ("570.148.08", "580.95.05", "580.105.08", "590.48.01")
TOOLKIT_VERSIONS = ("1.17.8", "1.18.1")
BASE_URL = "http://depot"
KEY_FINGERPRINT = "archive-keyring.fingerprint"
# Each build of Ubuntu's modules has one driver per branch; the next build follows a newer driver.
UBUNTU_BUILDS = (("570.148.08", "580.95.05"), ("570.148.08", "580.105.08"))
UBUNTU_DRIVERS = tuple(sorted({driver for drivers in UBUNTU_BUILDS for driver in drivers}))
UBUNTU_DKMS = {"jammy": "2.8.7-2ubuntu2.2", "noble": "3.0.11-1ubuntu13"}


@dataclass(frozen=True)
class SourcesReport:
    """What was laid out."""

    directory: Path
    packages: int
    size_bytes: int
    from_cache: bool


def build(
    target: Path,
    *,
    os: str,
    kernel: str,
    base_url: str = BASE_URL,
) -> SourcesReport:
    """Lay the sources out under target: cuda/, libnvidia-container/, distribution/; with RPMs also those of
    the system, of EPEL and of Docker.

    os: a Debian or a personality of clusterlab.systems.
    kernel: the release that the machine runs on (uname -r): hosts of Debian get headers of its name.
    base_url: where the depot will serve target.
    Raises ClusterctlError: DistributionError when Debian's packages cannot be had, else what dpkg-deb or
    gpg says.
    """
    base = base_of(os)
    names = distribution.wanted(base)
    if os in RPM_PERSONALITIES:
        names += rhel_archive.DEBIAN_PACKAGES
    recipe = [Path(__file__).parent, SIMULATED, Path(debian.__file__), Path(systems.__file__)]
    key = content_hash([os, kernel, base_url, *names, *debian.sources(base), *recipe])
    made = cache_root() / "sources" / key
    with locked(f"sources-{key}"):
        from_cache = made.is_dir()
        if not from_cache:
            made.parent.mkdir(parents=True, exist_ok=True)
            with scratch(f"sources-{key}") as directory:
                _build(directory / "tree", os, kernel, base_url, _debian(names, base))
                deb.open_to_all(directory / "tree")
                (directory / "tree").rename(made)
    files = [path for path in made.rglob("*") if path.is_file()]
    shutil.rmtree(target, ignore_errors=True)
    for path in files:
        deb.link_or_copy(path, target / path.relative_to(made))
    deb.open_to_all(target)
    return SourcesReport(
        directory=target,
        packages=sum(1 for path in files if path.suffix in {".deb", ".rpm"}),
        size_bytes=sum(path.stat().st_size for path in files),
        from_cache=from_cache,
    )


def _debian(names: list[str], os: str) -> list[Path]:
    """Debian's own packages, kept apart: they change less often than ours."""
    recipe = [Path(__file__), Path(distribution.__file__)]
    key = content_hash([os, *debian.sources(os), *sorted(names), *recipe])
    made = cache_root() / "distribution" / key
    with locked(f"distribution-{key}"):
        if not made.is_dir():
            made.parent.mkdir(parents=True, exist_ok=True)
            with scratch(f"distribution-{key}") as directory:
                kept = directory / "debs"
                kept.mkdir()
                for path in distribution.download(names, os, directory):
                    # apt writes epochs into file names, archives do not.
                    shutil.move(path, kept / re.sub(r"_\d+%3a", "_", path.name))
                kept.rename(made)
    return sorted(made.glob("*.deb"))


def _build(tree: Path, os: str, kernel: str, base_url: str, downloaded: list[Path]) -> None:
    with locked("signing-key"):
        key = signing.ensure(cache_root() / "signing-key")
    _distribution(tree / "distribution", os, kernel, downloaded, key)
    if os in RPM_PERSONALITIES:
        system = RPM_PERSONALITIES[os]
        versions = rhel_archive.Versions(DRIVER_VERSIONS, TOOLKIT_VERSIONS)
        rhel_archive.lay_out(tree, system, downloaded, key, versions)
        return
    personality = PERSONALITIES.get(os)
    cuda = tree / "cuda/repos" / os / "x86_64"
    packages = nvidia_repository(personality)
    packages += [other_packages.dkms(), other_packages.keyring(os, base_url, key.binary.read_bytes())]
    _publish(cuda, packages, repository.Identity("NVIDIA", "NVIDIA CUDA"), key)
    shutil.copy2(key.armored, cuda / "3bf863cc.pub")

    toolkit = tree / "libnvidia-container/stable/deb/amd64"
    packages = [package for version in TOOLKIT_VERSIONS for package in other_packages.toolkit(version)]
    identity = repository.Identity(
        "https://nvidia.github.io/libnvidia-container", "nvidia.github.io", "bookworm"
    )
    _publish(toolkit, packages, identity, key)
    shutil.copy2(key.armored, tree / "libnvidia-container/gpgkey")
    shutil.copy2(key.armored, tree / "libnvidia-container/stable/deb/gpgkey")


def _distribution(
    subset: Path, os: str, kernel: str, downloaded: list[Path], key: signing.SigningKey
) -> None:
    """The distribution's own packages for apt; where nodes have RPMs, those of the registry host."""
    personality = PERSONALITIES.get(os)
    subset.mkdir(parents=True)
    for path in downloaded:
        # Ubuntu's docker.io has the client in it, which is a package of its own since Debian 13.
        if personality and path.name.startswith("docker.io_") and base_of(os) == "debian13":
            deb.add_dependency(path, "docker-cli", subset)
        else:
            deb.link_or_copy(path, subset / path.name)
    identity = repository.Identity("Debian", "Debian", distribution.CODENAMES[base_of(os)])
    own = [other_packages.kernel_headers(kernel)]
    if personality:
        identity = repository.Identity("Ubuntu", "Ubuntu", personality.codename)
        own = ubuntu_archive(personality)
    _publish(subset, own, identity, key)
    shutil.copy2(key.binary, subset / "archive-keyring.gpg")
    shutil.copy2(key.armored, subset / "archive-keyring.asc")
    (subset / KEY_FINGERPRINT).write_text(f"{signing.fingerprint(key)}\n", encoding="ascii")


def nvidia_repository(personality: Personality | None) -> list[deb.Package]:
    """The driver as NVIDIA's repository for that system has it."""
    branches = sorted({version.split(".", 1)[0] for version in DRIVER_VERSIONS})
    packages = [driver_packages.pinning(branch) for branch in branches]
    packages.append(driver_packages.subnet_manager())
    for version in DRIVER_VERSIONS:
        packages += (
            ubuntu_driver.packages(version, ubuntu_driver.NVIDIA)
            if personality
            else driver_packages.packages(version)
        )
    return packages


def ubuntu_archive(personality: Personality) -> list[deb.Package]:
    """What Ubuntu's archive has that Debian's has not: its kernels, and the driver with signed modules."""
    packages = [other_packages.dkms(UBUNTU_DKMS[personality.codename])]
    for version in UBUNTU_DRIVERS:
        packages += ubuntu_driver.packages(version, ubuntu_driver.ubuntu(personality.revision))
    for kernel in personality.kernels:
        packages += ubuntu_kernel.kernel_packages(kernel)
        # No module is built any more for a kernel that no metapackage installs.
        for number, drivers in enumerate(UBUNTU_BUILDS if kernel.flavour else UBUNTU_BUILDS[:1]):
            build = ubuntu_kernel.ModuleBuild(kernel, number, personality.revision)
            packages += ubuntu_kernel.module_packages(build, drivers)
    return packages


def _publish(
    directory: Path,
    packages: list[deb.Package],
    identity: repository.Identity,
    key: signing.SigningKey,
) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for package in packages:
        deb.build(package, directory)
    known = {package.filename: deb.control(package) for package in packages}
    repository.index(directory, identity, key, known)
