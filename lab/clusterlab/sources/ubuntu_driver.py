"""NVIDIA's driver as Ubuntu's archive has it (580-server) and as NVIDIA's repository for Ubuntu does (580).

Names, versions and relations are those of the archives, as far as a server without a display installs them:
the packages that bring X and Mesa are left out. Libraries lie where Debian's packages have them.
"""

from __future__ import annotations

from dataclasses import dataclass

from clusterlab.sources import contents, driver_packages, scripts
from clusterlab.sources.deb import Link, Package, PackageFile

LIBRARIES = driver_packages.LIBRARIES
UNITS = driver_packages.UNITS
FLAVORS = {"-open": "open", "": "proprietary"}


@dataclass(frozen=True)
class PackageOrigin:
    """Who packages the driver: what follows the branch in names, the revision, and which dkms it needs."""

    suffix: str
    revision: str
    dkms: str


NVIDIA = PackageOrigin("", "0ubuntu1", "dkms (>= 3.1.8)")


def ubuntu(revision: str) -> PackageOrigin:
    """Ubuntu's own archive; its packages of one driver have this revision."""
    return PackageOrigin("-server", revision, "dkms (>= 2.1.1.2)")


def packages(driver: str, origin: PackageOrigin) -> list[Package]:
    """All packages of one driver version, such as 580.95.05."""
    made = _Maker(driver, origin)
    found = [*made.libraries(), *made.programs(), *made.kernel(), *made.headless(), *made.switch()]
    if origin == NVIDIA:
        found += [*made.metapackages(), driver_packages.pinning(driver)]
        found += driver_packages.fabric(driver, made.own)
    else:
        found.append(driver_packages.imex(made.branch, made.own))
    return found


class _Maker:
    """The packages of one driver by one packager."""

    def __init__(self, driver: str, origin: PackageOrigin) -> None:
        self.driver, self.origin = driver, origin
        self.branch = driver.split(".", 1)[0]
        self.own = f"{driver}-{origin.revision}"
        self.exact = f"(= {self.own})"

    def named(self, stem: str, flavor: str = "") -> str:
        """nvidia-dkms -> nvidia-dkms-580-server-open."""
        return f"{stem}-{self.branch}{self.origin.suffix}{flavor}"

    def package(self, name: str, description: str, **parts: object) -> Package:
        return Package(name=name, version=self.own, description=description, **parts)  # type: ignore[arg-type]

    def alone(self, stem: str, depends: str = "", provides: str = "") -> dict[str, str]:
        """Fields of a package that takes the place of that of any other branch."""
        fields = {"Provides": ", ".join(filter(None, [stem, provides])), "Conflicts": stem, "Replaces": stem}
        return {**({"Depends": depends} if depends else {}), **fields}

    def libraries(self) -> list[Package]:
        nvml = f"{LIBRARIES}/libnvidia-ml.so"
        files: dict[str, PackageFile | Link] = {
            f"{nvml}.{self.driver}": contents.nvml_library(self.driver),
            f"{nvml}.1": Link(f"libnvidia-ml.so.{self.driver}"),
        }
        for library in ("libcuda", "libnvidia-nvvm", "libnvidia-ptxjitcompiler"):
            files |= self.library(library)
        return [
            self.package(
                self.named("libnvidia-compute"),
                "NVIDIA libcompute package",
                section="libs",
                fields=self.alone("libnvidia-compute", provides="libcuda1, libnvidia-ml1"),
                files=files,
            ),
            self.package(
                self.named("libnvidia-cfg1"),
                "NVIDIA binary OpenGL/GLX configuration library",
                section="libs",
                fields=self.alone("libnvidia-cfg1"),
                files=self.library("libnvidia-cfg"),
            ),
        ]

    def library(self, name: str) -> dict[str, PackageFile | Link]:
        return {
            f"{LIBRARIES}/{name}.so.{self.driver}": PackageFile(
                f"{name} {self.driver}, simulated by clusterlab\n"
            ),
            f"{LIBRARIES}/{name}.so.1": Link(f"{name}.so.{self.driver}"),
        }

    def programs(self) -> list[Package]:
        compute = self.named("libnvidia-compute")
        return [
            self.package(
                self.named("nvidia-utils"),
                "NVIDIA driver support binaries",
                fields=self.alone("nvidia-utils", f"{compute}, python3"),
                files={
                    "/usr/bin/nvidia-smi": contents.program("driver/nvidia-smi", self.driver),
                    "/usr/bin/nvidia-bug-report.sh": contents.program(
                        "driver/nvidia-bug-report.sh", self.driver
                    ),
                },
            ),
            self.package(
                self.named("nvidia-compute-utils"),
                "NVIDIA compute utilities",
                fields=self.alone("nvidia-compute-utils", f"{compute}, python3"),
                files={
                    "/usr/bin/nvidia-persistenced": contents.program(
                        "driver/nvidia-persistenced", self.driver
                    ),
                    f"{UNITS}/nvidia-persistenced.service": contents.plain(
                        "driver/ubuntu-nvidia-persistenced.service"
                    ),
                },
                # A rule of udev starts it with the first GPU: the unit cannot be enabled.
                scripts=scripts.service("nvidia-persistenced.service", start=False),
            ),
        ]

    def kernel(self) -> list[Package]:
        common, firmware = (
            self.named("nvidia-kernel-common"),
            f"{self.named('nvidia-firmware')}-{self.driver}",
        )
        found = [
            self.package(
                firmware,
                "Firmware files used by the kernel module",
                section="kernel",
                files={f"/lib/firmware/nvidia/{self.driver}/gsp_ga10x.bin": PackageFile("simulated\n")},
            ),
            self.package(
                common,
                "Shared files used with the kernel module",
                section="kernel",
                fields=self.alone("nvidia-kernel-common", f"{firmware} {self.exact}"),
                files={
                    "/usr/bin/nvidia-modprobe": contents.program("driver/nvidia-modprobe", self.driver),
                    "/lib/modprobe.d/nvidia-kernel-common.conf": PackageFile(
                        "options nvidia-drm modeset=1\nblacklist nouveau\n"
                    ),
                },
            ),
        ]
        for flavor, kind in FLAVORS.items():
            source, dkms = self.named("nvidia-kernel-source", flavor), self.named("nvidia-dkms", flavor)
            where = f"/usr/src/nvidia-{self.driver}"
            found += [
                self.package(
                    source,
                    f"NVIDIA kernel source package ({kind})",
                    section="kernel",
                    fields=self.alone("nvidia-kernel-source"),
                    files={
                        f"{where}/dkms.conf": PackageFile(
                            f'PACKAGE_NAME="nvidia"\nPACKAGE_VERSION="{self.driver}"\nAUTOINSTALL="yes"\n'
                        ),
                        f"{where}/clusterlab.conf": PackageFile(
                            f"flavor={kind}\nsrcversion={driver_packages.source_version(kind, self.driver)}\n"
                        ),
                    },
                ),
                self.package(
                    dkms,
                    f"NVIDIA DKMS package ({kind})",
                    section="kernel",
                    fields=self.alone(
                        "nvidia-dkms-kernel",
                        f"{source} {self.exact}, {common} {self.exact}, {self.origin.dkms}",
                    ),
                    scripts=scripts.dkms("nvidia", self.driver),
                ),
            ]
        return found

    def headless(self) -> list[Package]:
        found = []
        for flavor in FLAVORS:
            parts = ["libnvidia-cfg1", "libnvidia-compute", "nvidia-compute-utils", "nvidia-kernel-common"]
            needed = [self.named(stem) for stem in parts] + [self.named("nvidia-kernel-source", flavor)]
            without = self.named("nvidia-headless-no-dkms", flavor)
            found += [
                self.package(
                    without,
                    "NVIDIA headless metapackage - no DKMS",
                    section="metapackages",
                    fields={"Depends": ", ".join(f"{name} {self.exact}" for name in needed)},
                ),
                self.package(
                    self.named("nvidia-headless", flavor),
                    "NVIDIA headless metapackage",
                    section="metapackages",
                    # Prebuilt modules provide it too.
                    fields={
                        "Depends": f"{without} {self.exact}, {self.named('nvidia-dkms', flavor)} {self.exact}"
                    },
                ),
            ]
        return found

    def switch(self) -> list[Package]:
        manager, query = f"nvidia-fabricmanager-{self.branch}", f"libnvidia-nscq-{self.branch}"
        return [
            self.package(
                manager,
                "Fabric Manager for NVSwitch based systems",
                fields=self.alone("nvidia-fabricmanager", "python3"),
                files={
                    "/usr/bin/nv-fabricmanager": contents.program("driver/nv-fabricmanager", self.driver),
                    "/usr/share/nvidia/nvswitch/fabricmanager.cfg": contents.plain(
                        "driver/fabricmanager.cfg"
                    ),
                    f"{UNITS}/nvidia-fabricmanager.service": contents.plain(
                        "driver/nvidia-fabricmanager.service"
                    ),
                },
                scripts=scripts.service("nvidia-fabricmanager.service", start=False),
            ),
            self.package(
                query,
                "NVSwitch Configuration and Query library",
                section="libs",
                fields=self.alone("libnvidia-nscq"),
                files={
                    f"{LIBRARIES}/libnvidia-nscq.so.{self.driver}": PackageFile("simulated by clusterlab\n")
                },
            ),
        ]

    def metapackages(self) -> list[Package]:
        """NVIDIA's, which bound their dependencies from below only."""
        found = []
        for name, flavor in (("nvidia-open", "-open"), ("cuda-drivers", "")):
            parts = ["libnvidia-compute", "nvidia-utils", "nvidia-compute-utils"]
            needed = [self.named(stem) for stem in parts] + [self.named("nvidia-dkms", flavor)]
            depends = ", ".join(f"{needs} (>= {self.driver})" for needs in needed)
            found += [
                self.package(
                    item, "NVIDIA driver meta-package", section="metapackages", fields={"Depends": depends}
                )
                for item in (name, f"{name}-{self.branch}")
            ]
        return found
