"""Ubuntu's kernels as packages, and the NVIDIA modules that Ubuntu builds and signs for each of them.

Names, versions and relations are those of Ubuntu's archive. A package of modules has the kernel's version;
the driver's stands in what it provides and depends on. All flavours and branches of one kernel are built
together: each build has one driver per branch, and the next one another version.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from clusterlab.sources.deb import Link, Package, PackageFile
from clusterlab.sources.driver_packages import source_version
from clusterlab.systems import Kernel

MODULES = ("nvidia", "nvidia-uvm", "nvidia-modeset", "nvidia-drm", "nvidia-peermem")
NEEDS = {"nvidia-uvm": "nvidia", "nvidia-modeset": "nvidia", "nvidia-drm": "nvidia-modeset"}
NEEDS["nvidia-peermem"] = "nvidia"
DEPMOD = '#!/bin/sh\nset -e\nif [ "$1" = configure ]; then\n    depmod -a "@KERNEL@"\nfi\n'


def kernel_packages(kernel: Kernel) -> list[Package]:
    """The image, its own modules and headers; metapackages if the kernel is the newest of a flavour."""
    release = kernel.release
    source = f"/usr/src/linux-headers-{release}"
    found = [
        _package(
            f"linux-image-{release}",
            kernel.version,
            f"Signed kernel image {release}",
            depends=f"linux-modules-{release}",
            files={f"/boot/vmlinuz-{release}": PackageFile("simulated by clusterlab\n", 0o600)},
        ),
        _package(
            f"linux-modules-{release}",
            kernel.version,
            f"Linux kernel modules for {release}",
            files={f"/lib/modules/{release}/modules.builtin": PackageFile("kernel/net/ipv6/ipv6.ko\n")},
        ),
        _package(
            f"linux-headers-{release}",
            kernel.version,
            f"Linux kernel headers for {release}",
            files={
                f"{source}/Makefile": PackageFile(f"# Simulated by clusterlab.\nKERNELRELEASE = {release}\n"),
                f"{source}/include/generated/utsrelease.h": PackageFile(f'#define UTS_RELEASE "{release}"\n'),
                f"/lib/modules/{release}/build": Link(source),
            },
            scripts={"postinst": _hooks(release)},
        ),
    ]
    if kernel.flavour:
        exact = f"(= {kernel.version})"
        for name, depends in (
            (f"linux-image-{kernel.flavour}", f"linux-image-{release}"),
            (f"linux-headers-{kernel.flavour}", f"linux-headers-{release}"),
            (
                f"linux-{kernel.flavour}",
                f"linux-image-{kernel.flavour} {exact}, linux-headers-{kernel.flavour} {exact}",
            ),
        ):
            found.append(_package(name, kernel.version, "Kernel metapackage", depends=depends))
    return found


@dataclass(frozen=True)
class ModuleBuild:
    """One build of the modules for a kernel, counted from 0. revision: that of the drivers' packages."""

    kernel: Kernel
    number: int
    revision: str

    @property
    def version(self) -> str:
        """The version of its packages."""
        return f"{self.kernel.version}+{self.number}" if self.number else self.kernel.version


def module_packages(build: ModuleBuild, drivers: Iterable[str]) -> list[Package]:
    """Modules of these drivers, one per branch, open and proprietary."""
    release = build.kernel.release
    text = f"Signatures of NVIDIA's modules for {release}"
    found = [_package(f"linux-signatures-nvidia-{release}", build.version, text)]
    for driver in drivers:
        for flavor in ("open", "proprietary"):
            found += _modules(build, driver, flavor)
    return found


def _modules(build: ModuleBuild, driver: str, flavor: str) -> list[Package]:
    kernel, version, branch = build.kernel, build.version, driver.split(".", 1)[0]
    kind = f"{branch}-server{'-open' if flavor == 'open' else ''}"
    stem, common = f"linux-modules-nvidia-{kind}", f"nvidia-kernel-common-{branch}-server"
    needs = f"{common} (<= {driver}-1), {common} (>= {driver})"
    exact, release = f"(= {version})", kernel.release
    parts = [f"linux-image-{release} | linux-image-unsigned-{release}"]
    found = []
    if flavor == "proprietary":
        # What may not be distributed linked comes in two parts, which are linked at the installation.
        objects = f"linux-objects-nvidia-{kind}-{release}"
        parts += [f"linux-signatures-nvidia-{release} {exact}", f"{objects} {exact}"]
        found.append(_package(objects, version, f"Linux kernel nvidia modules for {release} (objects)"))
    provides = f"nvidia-dkms-{kind} (= {driver}-{build.revision}), nvidia-prebuilt-kernel"
    place = f"/lib/modules/{release}/kernel/nvidia-{branch}srv{'-open' if flavor == 'open' else ''}"
    found.append(
        _package(
            f"{stem}-{release}",
            version,
            f"Linux kernel nvidia modules for {release}",
            depends=", ".join([*parts, needs]),
            provides=provides,
            files={
                f"{place}/{name}.ko": PackageFile(module_text(name, driver, flavor, release))
                for name in MODULES
            },
            scripts={"postinst": DEPMOD.replace("@KERNEL@", release)},
        )
    )
    if kernel.flavour:
        depends = f"{stem}-{release} {exact}, {needs}"
        name, text = f"{stem}-{kernel.flavour}", f"Extra drivers for nvidia-{kind} for the flavour"
        found.append(_package(name, version, text, depends=depends, provides=provides))
    return found


def module_text(name: str, driver: str, flavor: str, release: str) -> str:
    """The text that the lab's kernel takes for a module."""
    fields = {
        "name": name.replace("-", "_"),
        "version": driver,
        "license": "Dual MIT/GPL" if flavor == "open" else "NVIDIA",
        "srcversion": source_version(flavor, driver),
        "depends": NEEDS.get(name, ""),
        "flavor": flavor,
        "vermagic": f"{release} SMP preempt mod_unload",
        "simulated": "clusterlab",
    }
    return "clusterlab simulated kernel module\n" + "".join(
        f"{key}={value}\n" for key, value in fields.items()
    )


def _hooks(release: str) -> str:
    return f"""#!/bin/sh
set -e
if [ "$1" = configure ] && [ -d /etc/kernel/header_postinst.d ]; then
    run-parts --arg={release} /etc/kernel/header_postinst.d
fi
"""


def _package(
    name: str,
    version: str,
    description: str,
    *,
    depends: str = "",
    provides: str = "",
    files: dict[str, PackageFile | Link] | None = None,
    scripts: dict[str, str] | None = None,
) -> Package:
    fields = {"Depends": depends, "Provides": provides}
    return Package(
        name=name,
        version=version,
        description=description,
        section="kernel",
        fields={key: value for key, value in fields.items() if value},
        files=files or {},
        scripts=scripts or {},
    )
