"""NVIDIA's driver as its repository for RHEL 9 has it: RPMs, and the streams of the module nvidia-driver.

Names, epochs, relations and streams are those of the repository, as far as a server without a display
installs them. Libraries lie where Debian's packages have them.
"""

from __future__ import annotations

from collections.abc import Sequence

from clusterlab.sources import driver_packages, rpm_scripts, ubuntu_kernel
from clusterlab.sources.deb import PackageFile
from clusterlab.sources.rpm import RpmPackage
from clusterlab.sources.rpm_repository import Stream

MODULE = "nvidia-driver"
OPEN, PROPRIETARY = "kmod-nvidia-open-dkms", "kmod-nvidia-latest-dkms"


def repository(drivers: Sequence[str], kernel: str) -> tuple[list[RpmPackage], dict[str, Stream]]:
    """All packages of these driver versions, and the module's streams.

    kernel: the one for which NVIDIA has compiled modules, such as 5.14.0-570.12.1.el9_6.
    """
    packages, artifacts = [], dict[str, list[RpmPackage]]()
    for version in drivers:
        common, of_streams = _common(version), _of_streams(version, kernel)
        packages += [*common, *(one for own in of_streams.values() for one in own)]
        for stream, own in of_streams.items():
            artifacts.setdefault(stream, []).extend([*common, *own])
    streams = {}
    for name, found in artifacts.items():
        fabric_manager = next(one.name for one in found if one.name.startswith("nvidia-fabric"))
        profiles = {"default": ["nvidia-driver"], "fm": ["nvidia-driver", fabric_manager]}
        streams[name] = Stream(found, profiles)
    return packages, streams


def _common(version: str) -> list[RpmPackage]:
    """What all streams of a branch share."""
    branch, exact, evr = version.split(".", maxsplit=1)[0], f"3:{version}", f"3:{version}-1.el9"
    contents = {package.name: package.files for package in driver_packages.packages(version)}
    libraries = ("libcuda1", "libnvidia-cfg1", "libnvidia-nvvm4", "libnvidia-ptxjitcompiler1")
    numbered = "" if driver_packages.is_unversioned(version) else f"-{branch}"  # as Debian's packages
    # The names without a number came with branch 580.
    manager, nscq = (
        ("nvidia-fabricmanager", "libnvidia-nscq")
        if int(branch) >= 580
        else ("nvidia-fabric-manager", f"libnvidia-nscq-{branch}")
    )
    parts = ("nvidia-driver-cuda-libs", "nvidia-kmod-common", "nvidia-persistenced", "libnvidia-ml")
    return [
        RpmPackage(
            "nvidia-driver-cuda-libs",
            evr,
            files={path: item for name in libraries for path, item in contents[name].items()},
        ),
        RpmPackage("libnvidia-ml", evr, files=contents["libnvidia-ml1"]),
        RpmPackage("nvidia-modprobe", evr, files=contents["nvidia-modprobe"]),
        RpmPackage(
            "nvidia-persistenced",
            evr,
            files=contents["nvidia-persistenced"],
            scripts=rpm_scripts.service("nvidia-persistenced.service", restart=True),
        ),
        RpmPackage(
            "nvidia-kmod-common",
            evr,
            "noarch",
            ("linux-firmware", "nvidia-modprobe", f"nvidia-kmod = {exact}"),
            files={**contents["nvidia-kernel-support"], **contents["firmware-nvidia-gsp"]},
        ),
        RpmPackage(
            "nvidia-driver-cuda",
            evr,
            requires=tuple(f"{name} = {exact}" for name in parts),
            files=contents["nvidia-driver-cuda"],
        ),
        RpmPackage("nvidia-driver", evr, requires=(f"nvidia-kmod-common = {exact}",)),
        RpmPackage(
            manager,
            f"{version}-1",
            files=contents[f"nvidia-fabricmanager{numbered}"],
            scripts=rpm_scripts.service("nvidia-fabricmanager.service"),
        ),
        RpmPackage(nscq, f"{version}-1", files=contents[f"libnvidia-nscq{numbered}"]),
    ]


def _of_streams(version: str, kernel: str) -> dict[str, list[RpmPackage]]:
    """The packages that a stream of the branch has by itself."""
    branch, exact, evr = version.split(".", maxsplit=1)[0], f"3:{version}", f"3:{version}-1.el9"
    provides = (f"nvidia-kmod = {exact}",)
    whole = (f"nvidia-driver-cuda = {exact}", f"nvidia-driver = {exact}")
    built, number = kernel.rpartition(".")[0], kernel.rpartition(".")[2]
    place = f"/lib/modules/{kernel}.x86_64/extra/drivers/video/nvidia"
    return {
        f"{branch}-open": [
            _dkms(OPEN, version, "nvidia-open", "open", PROPRIETARY),
            RpmPackage("nvidia-open", evr, "noarch", (*whole, f"{OPEN} = {exact}")),
        ],
        f"{branch}-dkms": [
            _dkms(PROPRIETARY, version, "nvidia", "proprietary", OPEN),
            RpmPackage("cuda-drivers", evr, "noarch", (*whole, f"{PROPRIETARY} = {exact}")),
        ],
        branch: [
            RpmPackage(
                f"kmod-nvidia-{version}-{built}",
                f"3:{version}-3.{number}",
                requires=(f"(kernel = {kernel} if kernel)",),
                provides=(*provides, f"kernel-modules = {kernel}.x86_64"),
                conflicts=(OPEN, PROPRIETARY),
                files={
                    f"{place}/{name}.ko": PackageFile(
                        ubuntu_kernel.module_text(name, version, "proprietary", f"{kernel}.x86_64")
                    )
                    for name in ubuntu_kernel.MODULES
                },
            )
        ],
    }


def _dkms(name: str, version: str, module: str, flavor: str, other: str) -> RpmPackage:
    source = f"/usr/src/{module}-{version}"
    return RpmPackage(
        name,
        f"3:{version}-1.el9",
        "noarch",
        ("dkms >= 3.1.8",),
        (f"nvidia-kmod = 3:{version}",),
        (other,),
        files={
            f"{source}/dkms.conf": PackageFile(
                f'PACKAGE_NAME="{module}"\nPACKAGE_VERSION="{version}"\nAUTOINSTALL="yes"\n'
            ),
            f"{source}/clusterlab.conf": PackageFile(
                f"flavor={flavor}\nsrcversion={driver_packages.source_version(flavor, version)}\n"
            ),
        },
        scripts=rpm_scripts.dkms(module, version),
    )
