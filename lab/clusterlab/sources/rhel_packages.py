"""RPMs besides the driver: of Rocky itself, EPEL, Docker and the container toolkit.

Docker's carry Debian's programs, in the version that Debian has; what the system itself needs is the host's.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from clusterlab.sources import contents, other_packages, rpm_scripts
from clusterlab.sources.deb import Link, PackageFile
from clusterlab.sources.rpm import RpmPackage
from clusterlab.systems import RockyPersonality

SELINUX = "container-selinux >= 2:2.74"
UNITS = "/usr/lib/systemd/system"
# What RHEL's daemon is told: there its socket is given by systemd, and containerd has a service of its own.
DOCKER_SERVICE = """[Unit]
Description=Docker Application Container Engine
Documentation=https://docs.docker.com
After=network-online.target containerd.service
Wants=network-online.target containerd.service
Requires=docker.socket

[Service]
Type=notify
ExecStart=/usr/bin/dockerd -H fd:// --containerd=/run/containerd/containerd.sock
ExecReload=/bin/kill -s HUP $MAINPID
TimeoutStartSec=0
RestartSec=2
Restart=always
LimitNOFILE=infinity
LimitNPROC=infinity
LimitCORE=infinity
TasksMax=infinity
Delegate=yes
KillMode=process
OOMScoreAdjust=-500

[Install]
WantedBy=multi-user.target
"""
CONTAINERD_CONFIGURATION = 'disabled_plugins = ["cri"]\n'
# As in the Debian package.
REFRESH = {
    "post": (
        "if [ -d /run/systemd/system ]; then\n    systemctl daemon-reload || :\n"
        "    systemctl enable --now nvidia-cdi-refresh.path nvidia-cdi-refresh.service || :\nfi\n"
    ),
    "preun": (
        "if [ $1 -eq 0 ] && [ -d /run/systemd/system ]; then\n"
        "    systemctl disable --now nvidia-cdi-refresh.path nvidia-cdi-refresh.service || :\nfi\n"
    ),
}
GROUP = "getent group docker >/dev/null || groupadd --system docker\n"


def release(system: RockyPersonality) -> list[RpmPackage]:
    """What is installed on a fresh host: what its programs are, and which release it is."""
    own = f"{system.version_id}-1.3.el9"
    return [
        RpmPackage(
            "rocky-release", own, "noarch",
            provides=(f"system-release = {own}", "system-release(releasever) = 9", "redhat-release = 9"),
        ),
        RpmPackage("bash", "5.1.8-9.el9", provides=("/bin/sh", "/bin/bash")),
        RpmPackage("systemd", "252-51.el9_6.1"),
        RpmPackage("iptables-nft", "1.8.10-11.el9_5", provides=("iptables = 1.8.10-11.el9_5",)),
        RpmPackage("linux-firmware", "20250314-153.el9_6", "noarch"),
        RpmPackage("gcc", "11.5.0-5.el9_5"),
        RpmPackage("make", "1:4.3-8.el9"),
    ]  # fmt: skip


def kernel(evr: str) -> list[RpmPackage]:
    """A kernel that is installed next to others, such as 5.14.0-570.12.1.el9_6."""
    full = f"{evr}.x86_64"
    beside = ("installonlypkg(kernel)",)
    return [
        RpmPackage("kernel", evr, requires=(f"kernel-core = {evr}",), provides=beside),
        RpmPackage(
            "kernel-core",
            evr,
            provides=beside,
            files={
                f"/boot/vmlinuz-{full}": PackageFile("simulated by clusterlab\n", 0o755),
                f"/lib/modules/{full}/modules.builtin": PackageFile("kernel/net/ipv6/ipv6.ko\n"),
                f"/lib/modules/{full}/build": Link(f"/usr/src/kernels/{full}"),
            },
        ),
    ]


def kernel_devel(evr: str) -> list[RpmPackage]:
    """The headers of a kernel, and what ties them to its core; of that only one version is installed."""
    source = f"/usr/src/kernels/{evr}.x86_64"
    return [
        RpmPackage(
            "kernel-devel",
            evr,
            provides=("installonlypkg(kernel)",),
            files={
                f"{source}/Makefile": PackageFile(
                    f"# Simulated by clusterlab.\nKERNELRELEASE = {evr}.x86_64\n"
                ),
                f"{source}/include/generated/utsrelease.h": PackageFile(
                    f'#define UTS_RELEASE "{evr}.x86_64"\n'
                ),
            },
        ),
        RpmPackage("kernel-devel-matched", evr, requires=(f"kernel-devel = {evr}", f"kernel-core = {evr}")),
    ]


def appstream() -> list[RpmPackage]:
    """What AppStream has that Docker's packages need, or that is in their way."""
    return [
        RpmPackage("container-selinux", "4:2.235.0-1.el9_6", "noarch"),
        RpmPackage("runc", "4:1.2.5-1.el9"),
        RpmPackage("podman", "4:5.4.0-1.el9", requires=("runc",)),
        RpmPackage("nvidia-gpu-firmware", "20250812-151.4.el9", "noarch"),
    ]


def versionlock(files: Mapping[str, Path] | None = None) -> RpmPackage:
    """dnf's plugin that holds versions; `files` are those of Debian's dnf-plugins-core."""
    return RpmPackage("python3-dnf-plugin-versionlock", "4.3.0-20.el9", "noarch", files=files or {})


def dkms() -> RpmPackage:
    """EPEL's dkms."""
    return RpmPackage(
        "dkms",
        "3.4.1-1.el9",
        "noarch",
        requires=("gcc", "make", "(kernel-devel-matched if kernel-core)"),
        files={"/usr/sbin/dkms": contents.program("driver/dkms", "3.4.1")},
    )


def docker(
    version: str, containerd: str, files: Mapping[str, Mapping[str, Path]] | None = None
) -> list[RpmPackage]:
    """Docker CE and containerd.io; `files` are Debian's programs by package and path."""
    programs = files or {}
    return [
        RpmPackage(
            "docker-ce",
            f"3:{version}-1.el9",
            requires=(SELINUX, "containerd.io >= 1.6.4", "docker-ce-cli", "iptables", "systemd"),
            files={**programs.get("docker-ce", {}), f"{UNITS}/docker.service": PackageFile(DOCKER_SERVICE)},
            scripts={"pre": GROUP, **rpm_scripts.service("docker.service docker.socket", restart=True)},
        ),
        RpmPackage("docker-ce-cli", f"1:{version}-1.el9", files=programs.get("docker-ce-cli", {})),
        RpmPackage(
            "containerd.io",
            f"{containerd}-3.1.el9",
            requires=(SELINUX,),
            conflicts=("runc",),
            files={
                **programs.get("containerd.io", {}),
                "/etc/containerd/config.toml": PackageFile(CONTAINERD_CONFIGURATION),
            },
            scripts=rpm_scripts.service("containerd.service", restart=True),
        ),
    ]


def toolkit(version: str) -> list[RpmPackage]:
    """NVIDIA Container Toolkit of one version; every RPM of it has the files of the Debian package."""
    found = {package.name: package.files for package in other_packages.toolkit(version)}
    exact = f"{version}-1"
    needs = {
        "nvidia-container-toolkit": (
            f"nvidia-container-toolkit-base = {exact}", f"libnvidia-container-tools >= {exact}",
        ),
        "libnvidia-container-tools": (f"libnvidia-container1 >= {exact}",),
    }  # fmt: skip
    refresh = any("nvidia-cdi-refresh" in path for path in found["nvidia-container-toolkit-base"])
    scripts = {"nvidia-container-toolkit-base": REFRESH if refresh else {}}
    return [
        RpmPackage(name, exact, requires=needs.get(name, ()), files=files, scripts=scripts.get(name, {}))
        for name, files in found.items()
    ]
