"""Packages besides the driver: keyring, dkms, kernel headers, and the container toolkit."""

from __future__ import annotations

import re

from clusterlab.sources import contents, scripts
from clusterlab.sources.deb import Link, Package, PackageFile

PIN = """# Installed by cuda-keyring.
Package: *
Pin: release l=NVIDIA CUDA
Pin-Priority: 600
"""


def keyring(os: str, base_url: str, key: bytes) -> Package:
    """cuda-keyring: NVIDIA's key, apt source and pin."""
    url = f"{base_url}/cuda/repos/{os}/x86_64/"
    source = f"deb [signed-by=/usr/share/keyrings/cuda-archive-keyring.gpg] {url} /\n"
    return Package(
        name="cuda-keyring",
        version="1.1-1",
        architecture="all",
        description="GPG keyring for the CUDA repository",
        files={
            "/usr/share/keyrings/cuda-archive-keyring.gpg": PackageFile(key),
            f"/etc/apt/sources.list.d/cuda-{os}-x86_64.list": PackageFile(source),
            "/etc/apt/preferences.d/cuda-repository-pin-600": PackageFile(PIN),
        },
    )


def dkms(version: str = "3.3.0-1") -> Package:
    """The dkms that NVIDIA's repository brings, or a distribution's own by its version."""
    return Package(
        name="dkms",
        version=version,
        architecture="all",
        section="kernel",
        description="Dynamic Kernel Module System (DKMS)",
        fields={"Depends": "python3"},
        files={
            "/usr/sbin/dkms": contents.program("driver/dkms", version.split("-", maxsplit=1)[0]),
            "/etc/kernel/header_postinst.d/dkms": PackageFile(scripts.DKMS_HEADER_HOOK, 0o755),
        },
    )


def kernel_headers(kernel: str) -> Package:
    """linux-headers of the kernel that the lab's machine runs, for no distribution packages that one."""
    source = f"/usr/src/linux-headers-{kernel}"
    # A release may hold what names and versions of packages may not, as in 6.12.9_custom.
    number = re.match(r"\d+(\.\d+)*", kernel)
    return Package(
        name=f"linux-headers-{kernel.replace('_', '-')}",
        version=f"{number[0] if number else 0}-1",
        section="kernel",
        description=f"Header files for Linux {kernel}",
        files={
            f"{source}/Makefile": PackageFile(f"# Simulated by clusterlab.\nKERNELRELEASE = {kernel}\n"),
            f"{source}/include/generated/utsrelease.h": PackageFile(f'#define UTS_RELEASE "{kernel}"\n'),
            f"/lib/modules/{kernel}/build": Link(source),
        },
        scripts={"postinst": scripts.KERNEL_HEADERS.replace("@KERNEL@", kernel)},
    )


def toolkit(version: str) -> list[Package]:
    """NVIDIA Container Toolkit of one version, such as 1.18.1."""
    full, exact = f"{version}-1", f"(= {version}-1)"
    refresh = tuple(int(part) for part in version.split(".")) >= (1, 18, 0)
    base_files = {
        f"/usr/bin/{name}": contents.program(f"toolkit/{name}", version)
        for name in ("nvidia-ctk", "nvidia-container-runtime")
    }
    base_files |= contents.modules(
        "toolkit/clusterlab_toolkit", "/usr/lib/clusterlab/toolkit/clusterlab_toolkit"
    )
    base_files["/etc/nvidia-container-runtime/config.toml"] = contents.plain("toolkit/config.toml")
    if refresh:
        for unit in ("nvidia-cdi-refresh.service", "nvidia-cdi-refresh.path"):
            base_files[f"/lib/systemd/system/{unit}"] = contents.plain(f"toolkit/{unit}")
    return [
        Package(
            name="nvidia-container-toolkit-base",
            version=full,
            description="NVIDIA Container Toolkit Base",
            fields={"Depends": "python3"},
            files=base_files,
            scripts=_refresh_scripts() if refresh else {},
        ),
        Package(
            name="nvidia-container-toolkit",
            version=full,
            description="NVIDIA Container toolkit",
            fields={
                "Depends": (
                    f"nvidia-container-toolkit-base {exact}, libnvidia-container-tools (>= {full}), "
                    "libnvidia-container-tools (<< 2.0.0)"
                )
            },
            files={
                "/usr/bin/nvidia-container-runtime-hook": contents.program(
                    "toolkit/nvidia-container-runtime-hook", version
                ),
                "/usr/bin/nvidia-container-toolkit": Link("nvidia-container-runtime-hook"),
            },
        ),
        Package(
            name="libnvidia-container-tools",
            version=full,
            description="NVIDIA container runtime library (command-line tools)",
            fields={"Depends": f"libnvidia-container1 (>= {full})"},
            files={
                "/usr/bin/nvidia-container-cli": contents.program("toolkit/nvidia-container-cli", version)
            },
        ),
        Package(
            name="libnvidia-container1",
            version=full,
            section="libs",
            description="NVIDIA container runtime library",
            files={
                "/usr/share/doc/libnvidia-container1/README.simulated": PackageFile(
                    "simulated by clusterlab\n"
                )
            },
        ),
    ]


def _refresh_scripts() -> dict[str, str]:
    units = "nvidia-cdi-refresh.path nvidia-cdi-refresh.service"
    return {
        "postinst": f"""#!/bin/sh
set -e
if [ "$1" = configure ]; then
    for unit in {units}; do
        deb-systemd-helper enable "$unit" >/dev/null || true
    done
    if [ -d /run/systemd/system ]; then
        systemctl --system daemon-reload >/dev/null || true
        deb-systemd-invoke start {units} >/dev/null || true
    fi
fi
""",
        "prerm": f"""#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
    deb-systemd-invoke stop {units} >/dev/null || true
fi
""",
        "postrm": f"""#!/bin/sh
set -e
if [ "$1" = purge ] && [ -x /usr/bin/deb-systemd-helper ]; then
    for unit in {units}; do
        deb-systemd-helper purge "$unit" >/dev/null || true
    done
fi
""",
    }
