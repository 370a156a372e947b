"""NVIDIA's driver as Debian packages of its CUDA repository, for one driver version.

Names, splits and dependencies are those of the Debian 12 and 13 repositories, as far as a server without a
display installs them: nvidia-driver and its X and OpenGL packages are left out of the metapackages.
Metapackages bound their dependencies from below only, as NVIDIA's do, so that an older metapackage asked for
by itself brings the newest components. Names since branch 590 are from public descriptions (NVIDIA Driver
Installation Guide, "Recent Updates"); which packages replace which there is an assumption.
"""

from __future__ import annotations

import hashlib

from clusterlab.sources import contents, scripts
from clusterlab.sources.deb import Link, Package, PackageFile

LIBRARIES = "/usr/lib/x86_64-linux-gnu/nvidia/current"
UNITS = "/lib/systemd/system"

# Since this branch no name has the branch in it, and pinning packages keep a node on one.
UNVERSIONED_FROM = 590
NUMBERED_BRANCHES = ("570", "580")

PINNED = (
    "*nvidia* libcuda* libcudadebugger* libnv* libxnvctrl* cuda-drivers* firmware-nvidia-gsp nvidia-open*"
)


def is_unversioned(version: str) -> bool:
    """Whether the names of this driver's packages have no branch."""
    return int(version.split(".", 1)[0]) >= UNVERSIONED_FROM


def packages(version: str) -> list[Package]:
    """All packages of one driver version, such as 580.95.05."""
    branch = version.split(".", 1)[0]
    return [
        *_metapackages(version, branch),
        *_libraries(version),
        *_programs(version),
        *_kernel(version),
        *_switch(version, branch),
        *fabric(version, f"{version}-1"),
        pinning(version),
    ]


def pinning(target: str) -> Package:
    """nvidia-driver-pinning-<target>: apt preferences for a branch (580) or a version (580.95.05)."""
    text = (
        f"# Locks the driver to {target}.\nPackage: {PINNED}\nPin: version {target}"
        f"{'.*' if '.' not in target else '-*'}\nPin-Priority: 1000\n"
    )
    return Package(
        name=f"nvidia-driver-pinning-{target}",
        version=f"{target}-1",
        architecture="all",
        description=f"Pin the NVIDIA driver to {target}",
        fields={
            "Provides": "nvidia-driver-pinning",
            "Conflicts": "nvidia-driver-pinning",
            "Replaces": "nvidia-driver-pinning",
        },
        # No conffile: one pinning package must be able to take the place of another.
        files={"/usr/share/nvidia-driver-pinning/preferences": PackageFile(text)},
        scripts={
            "postinst": (
                "#!/bin/sh\nset -e\ncp /usr/share/nvidia-driver-pinning/preferences "
                "/etc/apt/preferences.d/nvidia-driver-pinning\n"
            ),
            "prerm": "#!/bin/sh\nset -e\nrm -f /etc/apt/preferences.d/nvidia-driver-pinning\n",
        },
    )


def source_version(flavor: str, version: str) -> str:
    """What a module says of the source that it was built from."""
    return hashlib.sha256(f"{flavor} {version}".encode()).hexdigest()[:23].upper()


def _package(name: str, version: str, description: str, **parts: object) -> Package:
    return Package(name=name, version=f"{version}-1", description=description, **parts)  # type: ignore[arg-type]


def _metapackages(version: str, branch: str) -> list[Package]:
    found = []
    for name, kernel in (("nvidia-open", "nvidia-kernel-open-dkms"), ("cuda-drivers", "nvidia-kernel-dkms")):
        depends = f"nvidia-driver-cuda (>= {version}), {kernel} (>= {version})"
        text = f"NVIDIA driver meta-package, {'open' if 'open' in name else 'proprietary'} kernel modules"
        found += [
            _package(item, version, text, section="metapackages", fields={"Depends": depends})
            for item in ((name,) if is_unversioned(version) else (name, f"{name}-{branch}"))
        ]
    return found


def _libraries(version: str) -> list[Package]:
    nvml = f"{LIBRARIES}/libnvidia-ml.so"
    found = [
        _package(
            "libnvidia-ml1",
            version,
            "NVIDIA Management Library (NVML) runtime library",
            section="libs",
            fields={"Provides": f"libnvidia-ml.so.1 (= {version})"},
            files={
                f"{nvml}.{version}": contents.nvml_library(version),
                f"{nvml}.1": Link(f"libnvidia-ml.so.{version}"),
            },
        )
    ]
    plain = {
        "libcuda1": ("libcuda.so", "NVIDIA CUDA Driver Library"),
        "libnvidia-cfg1": ("libnvidia-cfg.so", "NVIDIA binary OpenGL/GLX configuration library"),
        "libnvidia-nvvm4": ("libnvidia-nvvm.so", "NVIDIA NVVM Compiler library"),
        "libnvidia-ptxjitcompiler1": ("libnvidia-ptxjitcompiler.so", "NVIDIA PTX JIT Compiler library"),
    }
    for name, (library, description) in plain.items():
        needs = "libnvidia-nvvm4, libnvidia-ptxjitcompiler1" if name == "libcuda1" else ""
        exact = ", ".join(f"{item} (= {version}-1)" for item in needs.split(", ") if item)
        found.append(
            _package(
                name,
                version,
                description,
                section="libs",
                fields={"Depends": exact} if exact else {},
                files={
                    f"{LIBRARIES}/{library}.{version}": PackageFile(
                        f"{library} {version}, simulated by clusterlab\n"
                    ),
                    f"{LIBRARIES}/{library}.1": Link(f"{library}.{version}"),
                },
            )
        )
    return found


def _programs(version: str) -> list[Package]:
    exact = f"(= {version}-1)"
    return [
        _package(
            "nvidia-driver-cuda",
            version,
            "NVIDIA driver CUDA integration components",
            fields={
                "Depends": ", ".join(
                    [
                        "python3",
                        *(
                            f"{name} {exact}"
                            for name in (
                                "libcuda1",
                                "libnvidia-ml1",
                                "libnvidia-cfg1",
                                "nvidia-modprobe",
                                "nvidia-persistenced",
                            )
                        ),
                    ]
                ),
                "Recommends": f"nvidia-kernel-open-dkms {exact} | nvidia-kernel-dkms {exact}",
            },
            files={
                "/usr/bin/nvidia-smi": contents.program("driver/nvidia-smi", version),
                "/usr/bin/nvidia-bug-report.sh": contents.program("driver/nvidia-bug-report.sh", version),
            },
        ),
        _package(
            "nvidia-modprobe",
            version,
            "utility to load NVIDIA kernel modules and create device nodes",
            files={"/usr/bin/nvidia-modprobe": contents.program("driver/nvidia-modprobe", version)},
        ),
        _package(
            "nvidia-persistenced",
            version,
            "daemon to maintain persistent software state in the NVIDIA driver",
            fields={"Depends": f"libnvidia-cfg1 {exact}, nvidia-modprobe {exact}, python3"},
            files={
                "/usr/bin/nvidia-persistenced": contents.program("driver/nvidia-persistenced", version),
                f"{UNITS}/nvidia-persistenced.service": contents.plain("driver/nvidia-persistenced.service"),
            },
            scripts=scripts.service("nvidia-persistenced.service", start=True),
        ),
    ]


def _kernel(version: str) -> list[Package]:
    exact = f"(= {version}-1)"
    found = [
        _package(
            "firmware-nvidia-gsp",
            version,
            "NVIDIA GSP firmware",
            section="kernel",
            files={f"/lib/firmware/nvidia/{version}/gsp_ga10x.bin": PackageFile("simulated by clusterlab\n")},
        ),
        _package(
            "nvidia-kernel-support",
            version,
            "NVIDIA binary kernel module support files",
            section="kernel",
            fields={"Depends": f"nvidia-modprobe {exact}"},
            files={
                "/etc/modprobe.d/nvidia.conf": PackageFile("options nvidia-drm modeset=1\n"),
                "/etc/modprobe.d/nvidia-blacklists-nouveau.conf": PackageFile(
                    '# You need to run "update-initramfs -u" after editing this file.\nblacklist nouveau\n'
                ),
            },
        ),
    ]
    for name, flavor, other in (
        ("nvidia-kernel-open-dkms", "open", "nvidia-kernel-dkms"),
        ("nvidia-kernel-dkms", "proprietary", "nvidia-kernel-open-dkms"),
    ):
        found.append(
            _package(
                name,
                version,
                f"NVIDIA binary kernel module DKMS source{' open flavor' if flavor == 'open' else ''}",
                section="kernel",
                fields={
                    "Depends": f"dkms (>= 3.1.8), nvidia-kernel-support {exact}, firmware-nvidia-gsp {exact}",
                    "Provides": f"nvidia-kernel-{version}",
                    "Conflicts": other,
                    "Replaces": other,
                },
                files={
                    f"/usr/src/nvidia-{version}/dkms.conf": PackageFile(
                        f'PACKAGE_NAME="nvidia"\nPACKAGE_VERSION="{version}"\nAUTOINSTALL="yes"\n'
                    ),
                    f"/usr/src/nvidia-{version}/clusterlab.conf": PackageFile(
                        f"flavor={flavor}\nsrcversion={source_version(flavor, version)}\n"
                    ),
                },
                scripts=scripts.dkms("nvidia", version),
            )
        )
    return found


def fabric(version: str, own: str) -> list[Package]:
    """What HGX B200 and racks of GB200 need besides, in the package version `own`; nothing of it runs.

    Since 580 libnvsdm has no branch in its name.
    """
    branch = version.split(".", 1)[0]
    names = ("nvidia-imex",) if is_unversioned(version) else (f"nvidia-imex-{branch}", "nvidia-imex")
    library = "libnvsdm" if int(branch) >= 580 else f"libnvsdm-{branch}"
    return [
        Package(
            name=library,
            version=own,
            description="NVSwitch device monitoring library",
            section="libs",
            files={f"{LIBRARIES}/libnvsdm.so.{version}": PackageFile("simulated by clusterlab\n")},
        ),
        imex(names[0], own),
        *(
            Package(
                name=name,
                version=own,
                description="IMEX meta-package",
                section="metapackages",
                fields={"Depends": f"{names[0]} (= {own})"},
            )
            for name in names[1:]
        ),
    ]


def imex(name: str, own: str) -> Package:
    """nvidia-imex of one branch, which takes the place of that of any other."""
    return Package(
        name=name,
        version=own,
        description="IMEX Manager for NVIDIA based systems",
        fields={"Provides": "nvidia-imex-any", "Conflicts": "nvidia-imex-any", "Replaces": "nvidia-imex-any"},
        files={"/etc/nvidia-imex/config.cfg": PackageFile("# simulated by clusterlab\n")},
    )


def subnet_manager() -> Package:
    """nvlsm, of which NVIDIA's repositories have one for all drivers."""
    return Package(
        name="nvlsm",
        version="2025.06.11-1",
        description="NVLink Subnet Manager",
        files={"/opt/nvidia/nvlsm/sbin/nvlsm": PackageFile("simulated by clusterlab\n")},
    )


def _switch(version: str, branch: str) -> list[Package]:
    numbered = not is_unversioned(version)
    found = []
    for stem, description, parts in (
        ("nvidia-fabricmanager", "Fabric Manager for NVSwitch based systems", fabric_manager(version)),
        ("libnvidia-nscq", "NVSwitch Configuration and Query library", switch_library(version)),
    ):
        others = ", ".join(f"{stem}-{other}" for other in NUMBERED_BRANCHES if other != branch)
        fields = {"Conflicts": others, "Replaces": others}
        fields |= {"Depends": "python3"} if stem == "nvidia-fabricmanager" else {}
        # Dependencies on the numbered name are met, but nobody can ask for a version of it.
        fields |= {} if numbered else {"Provides": f"{stem}-{branch}"}
        name = f"{stem}-{branch}" if numbered else stem
        found.append(_package(name, version, description, fields=fields, **parts))
        if numbered:
            exact = {"Depends": f"{name} (= {version}-1)"}
            found.append(
                _package(stem, version, f"{description} meta-package", section="metapackages", fields=exact)
            )
    return found


def fabric_manager(version: str) -> dict[str, object]:
    """Files and scripts of Fabric Manager, whatever its package is called."""
    return {
        "files": {
            "/usr/bin/nv-fabricmanager": contents.program("driver/nv-fabricmanager", version),
            "/usr/share/nvidia/nvswitch/fabricmanager.cfg": contents.plain("driver/fabricmanager.cfg"),
            f"{UNITS}/nvidia-fabricmanager.service": contents.plain("driver/nvidia-fabricmanager.service"),
        },
        "scripts": scripts.service("nvidia-fabricmanager.service", start=False),
    }


def switch_library(version: str) -> dict[str, object]:
    """Section and files of the library that asks NVSwitches."""
    files = {f"{LIBRARIES}/libnvidia-nscq.so.{version}": PackageFile("simulated by clusterlab\n")}
    return {"section": "libs", "files": files}
