"""NVIDIA's driver as Ubuntu's archive has it (580-server) and as NVIDIA's repository for Ubuntu does (580).

Names, versions and relations are those of the archives, as far as a server without a display installs them:
the packages that bring X and Mesa are left out. Libraries lie where Debian's packages have them. From branch
590 on the names of NVIDIA's have no branch; these are from public descriptions (NVIDIA Driver Installation
Guide, "Recent Updates"), and which packages replace which there is an assumption.
"""

from __future__ import annotations

from dataclasses import dataclass

from clusterlab.sources import contents, driver_packages, scripts
from clusterlab.sources.deb import Link, Package, PackageFile

LIBRARIES = driver_packages.LIBRARIES
UNITS = driver_packages.UNITS
NUMBERED = driver_packages.NUMBERED_BRANCHES
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
        found.append(driver_packages.imex(f"nvidia-imex-{made.branch}", made.own))
    return found


class _Maker:
    """The packages of one driver by one packager."""

    def __init__(self, driver: str, origin: PackageOrigin) -> None:
        self.driver, self.origin = driver, origin
        self.branch = driver.split(".", 1)[0]
        self.own = f"{driver}-{origin.revision}"
        self.exact = f"(= {self.own})"
        self.unversioned = origin == NVIDIA and driver_packages.is_unversioned(driver)

    def named(self, stem: str, flavor: str = "") -> str:
        """nvidia-dkms -> nvidia-dkms-580-server-open, or nvidia-dkms-open where names have no branch."""
        return f"{stem}{flavor}" if self.unversioned else f"{stem}-{self.branch}{self.origin.suffix}{flavor}"

    def package(self, name: str, description: str, **parts: object) -> Package:
        return Package(name=name, version=self.own, description=description, **parts)  # type: ignore[arg-type]

    def alone(self, stem: str, depends: str = "", provides: str = "", instead_of: str = "") -> dict[str, str]:
        """Fields of a package that takes the place of that of any other branch, and of another name's."""
        replaced = ", ".join(filter(None, [stem, instead_of]))
        provided = ", ".join(filter(None, ["" if self.unversioned else stem, provides]))
        fields = {"Provides": provided, "Conflicts": replaced, "Replaces": replaced, "Depends": depends}
        return {name: value for name, value in fields.items() if value}

    def libraries(self) -> list[Package]:
        nvml = f"{LIBRARIES}/libnvidia-ml.so"
        files: dict[str, PackageFile | Link] = {
            f"{nvml}.{self.driver}": contents.nvml_library(self.driver),
            f"{nvml}.1": Link(f"libnvidia-ml.so.{self.driver}"),
        }
        for library in ("libcuda", "libnvidia-nvvm", "libnvidia-ptxjitcompiler"):
            files |= self.library(library)
        needs = instead_of = ""
        if self.unversioned:
            # nvidia-utils is no more: what it had came here.
            files |= self.utilities()
            needs, instead_of = f"libnvidia-cfg1 {self.exact}, python3", "nvidia-utils"
        return [
            self.package(
                self.named("libnvidia-compute"),
                "NVIDIA libcompute package",
                section="libs",
                fields=self.alone("libnvidia-compute", needs, "libcuda1, libnvidia-ml1", instead_of),
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

    def utilities(self) -> dict[str, PackageFile | Link]:
        """nvidia-smi, and what gathers a report."""
        return {
            f"/usr/bin/{name}": contents.program(f"driver/{name}", self.driver)
            for name in ("nvidia-smi", "nvidia-bug-report.sh")
        }

    def persistence(self) -> dict[str, PackageFile | Link]:
        """The persistence daemon and its unit."""
        unit = contents.plain("driver/ubuntu-nvidia-persistenced.service")
        return {
            "/usr/bin/nvidia-persistenced": contents.program("driver/nvidia-persistenced", self.driver),
            f"{UNITS}/nvidia-persistenced.service": unit,
        }

    def programs(self) -> list[Package]:
        compute = self.named("libnvidia-compute")
        # A rule of udev starts it with the first GPU: the unit cannot be enabled.
        unit = scripts.service("nvidia-persistenced.service", start=False)
        if self.unversioned:
            needs = f"libnvidia-cfg1 {self.exact}, python3"
            modprobe = contents.program("driver/nvidia-modprobe", self.driver)
            instead_of = ", ".join(f"nvidia-kernel-common-{branch}" for branch in NUMBERED)
            return [
                self.package(
                    "nvidia-persistenced",
                    "daemon to maintain persistent software state in the NVIDIA driver",
                    fields=self.alone("nvidia-compute-utils", needs),
                    files=self.persistence(),
                    scripts=unit,
                ),
                self.package(
                    "nvidia-modprobe",
                    "utility to load NVIDIA kernel modules and create device nodes",
                    fields={"Conflicts": instead_of, "Replaces": instead_of},
                    files={"/usr/bin/nvidia-modprobe": modprobe},
                ),
            ]
        return [
            self.package(
                self.named("nvidia-utils"),
                "NVIDIA driver support binaries",
                fields=self.alone("nvidia-utils", f"{compute}, python3"),
                files=self.utilities(),
            ),
            self.package(
                self.named("nvidia-compute-utils"),
                "NVIDIA compute utilities",
                fields=self.alone("nvidia-compute-utils", f"{compute}, python3"),
                files=self.persistence(),
                scripts=unit,
            ),
        ]

    def kernel(self) -> list[Package]:
        common, firmware = self.named("nvidia-kernel-common"), self.named("nvidia-firmware")
        shared: dict[str, PackageFile | Link] = {
            "/lib/modprobe.d/nvidia-kernel-common.conf": PackageFile(
                "options nvidia-drm modeset=1\nblacklist nouveau\n"
            )
        }
        needs = f"{firmware} {self.exact}, nvidia-modprobe {self.exact}"
        if not self.unversioned:
            firmware = f"{firmware}-{self.driver}"
            needs = f"{firmware} {self.exact}"
            shared["/usr/bin/nvidia-modprobe"] = contents.program("driver/nvidia-modprobe", self.driver)
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
                fields=self.alone("nvidia-kernel-common", needs),
                files=shared,
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
        if self.unversioned:
            return []
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
        found = []
        for stem, description, needs, parts in (
            (
                "nvidia-fabricmanager",
                "Fabric Manager for NVSwitch based systems",
                "python3",
                driver_packages.fabric_manager(self.driver),
            ),
            (
                "libnvidia-nscq",
                "NVSwitch Configuration and Query library",
                "",
                driver_packages.switch_library(self.driver),
            ),
        ):
            # "-server" is not a part of the name of these.
            numbered = f"{stem}-{self.branch}"
            name, provides = (stem, numbered) if self.unversioned else (numbered, "")
            found.append(self.package(name, description, fields=self.alone(stem, needs, provides), **parts))
        return found

    def metapackages(self) -> list[Package]:
        """NVIDIA's, which bound their dependencies from below only."""
        found = []
        parts = ["libnvidia-compute", "nvidia-utils", "nvidia-compute-utils"]
        if self.unversioned:
            parts = ["libnvidia-compute", "nvidia-persistenced"]
        for name, flavor in (("nvidia-open", "-open"), ("cuda-drivers", "")):
            needed = [self.named(stem) for stem in parts] + [self.named("nvidia-dkms", flavor)]
            depends = ", ".join(f"{needs} (>= {self.driver})" for needs in needed)
            names = (name,) if self.unversioned else (name, f"{name}-{self.branch}")
            found += [
                self.package(
                    item, "NVIDIA driver meta-package", section="metapackages", fields={"Depends": depends}
                )
                for item in names
            ]
        return found
