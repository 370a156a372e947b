"""What operators put on their nodes before clusterctl comes: packages, archives, containers, programs."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from clusterlab.images import debian
from clusterlab.sources import deb, repository, scripts, signing
from clusterlab.sources.deb import Package, PackageFile
from clusterlab.sources.distribution import KEYRING

# As Docker's package brings it.
CONTAINERD_CONFIGURATION = """#   Copyright 2018-2022 Docker Inc.

disabled_plugins = ["cri"]

#root = "/var/lib/containerd"
#state = "/run/containerd"
#[grpc]
#  address = "/run/containerd/containerd.sock"
"""
# As in Docker's archive for Ubuntu 22.04; the programs are those of the lab's docker.io.
DOCKER_CE = "5:20.10.24~3-0~ubuntu-jammy"
OFED = "24.10.OFED.24.10.2.1.8.1"
OFED_MODULES = ("mlx5_core", "ib_core", "ib_uverbs")
# Monitoring in a container, as far as a driver's reload meets it: a process that keeps a GPU open.
EXPORTER = """
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>
static void end(int number) { _exit(number == SIGTERM ? 0 : 1); }
int main(void)
{
    signal(SIGTERM, end);
    if (open("/dev/nvidia0", O_RDWR) < 0)
        return 1;
    for (;;)
        pause();
}
"""
EXPORTER_IMAGE = "nvcr.io/nvidia/k8s/dcgm-exporter:4.4.1-4.6.0-ubuntu22.04"
# shim's answers while Secure Boot is on and no key of the machine's owner is enrolled.
MOKUTIL = """#!/bin/sh
case "$1" in
--sb-state) echo "SecureBoot enabled" ;;
--test-key) echo "$2 is not enrolled" ;;
*) exit 255 ;;
esac
"""
# Xorg opens each card as soon as it is there.
DISPLAY = """[Unit]
Description=GNOME Display Manager
[Service]
ExecStart=/bin/sh -c 'while [ ! -e /dev/nvidia0 ]; do sleep 1; done; exec 3</dev/nvidia0; \
exec /usr/lib/xorg/Xorg infinity'
[Install]
Alias=display-manager.service
WantedBy=multi-user.target
"""
# A firmware with EFI variables, of which one says that Secure Boot is on; made at each boot.
SECURE_BOOT_UNIT = """[Unit]
Description=Firmware with Secure Boot
DefaultDependencies=no
Before=sysinit.target
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -c 'mount -t tmpfs firmware /sys/firmware && mkdir -p /sys/firmware/efi/efivars && \
printf "\\\\006\\\\000\\\\000\\\\000\\\\001" >\
/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c'
[Install]
WantedBy=sysinit.target
"""

# firewalld as it is asked: what is bound to which zone is in a file, now and for later boots alike.
FIREWALLD_UNIT = "[Service]\nExecStart=/usr/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n"
FIREWALLD_SOURCES = "/etc/firewalld/sources"
FIREWALL_CMD = r"""#!/bin/sh
bound=/etc/firewalld/sources
[ "$1" = --permanent ] && shift
case "$*" in
--state) echo running ;;
--get-zone-of-source=*) grep " ${1##*=}$" $bound | cut -d ' ' -f 1 | grep . || exit 2 ;;
"--zone=trusted --add-source="*) grep -q " ${2##*=}$" $bound || echo "trusted ${2##*=}" >>$bound ;;
*) exit 1 ;;
esac
"""


def archive(directory: Path, origin: str) -> bytes:
    """Makes a directory of packages a signed archive of its own; returns its public key."""
    key = signing.ensure(directory.parent / f"{directory.name}-key")
    repository.index(directory, repository.Identity(origin, origin), key, {})
    deb.open_to_all(directory)
    return key.armored.read_bytes()


def docker_ce(distribution: Path, target: Path) -> bytes:
    """Docker's own archive: docker-ce, docker-ce-cli and containerd.io; returns its key."""
    target.mkdir(parents=True)
    found = {name: next(distribution.glob(f"{name}_*.deb")) for name in ("docker.io", "containerd", "runc")}
    with tempfile.TemporaryDirectory() as name:
        trees = {package: Path(name) / package for package in (*found, "cli")}
        for package, path in found.items():
            subprocess.run(["dpkg-deb", "--raw-extract", path, trees[package]], check=True, timeout=60)
        (trees["cli"] / "usr/bin").mkdir(parents=True)
        (trees["docker.io"] / "usr/bin/docker").rename(trees["cli"] / "usr/bin/docker")
        (trees["runc"] / "usr/sbin/runc").rename(trees["containerd"] / "usr/bin/runc")
        # Docker's own package has the daemon elsewhere.
        (trees["docker.io"] / "usr/sbin/dockerd").rename(trees["docker.io"] / "usr/bin/dockerd")
        unit = next(trees["docker.io"].rglob("docker.service"))
        unit.write_text(unit.read_text().replace("/usr/sbin/dockerd", "/usr/bin/dockerd"))
        others = re.search(r"^Depends: (.*)$", (trees["docker.io"] / "DEBIAN/control").read_text(), re.M)
        assert others
        needs = [one for one in others[1].split(", ") if not one.startswith(("containerd", "runc"))]
        rename(trees["docker.io"], "docker-ce", DOCKER_CE, ["containerd.io", "docker-ce-cli", *needs])
        rename(trees["cli"], "docker-ce-cli", DOCKER_CE, ["libc6"])
        rename(trees["containerd"], "containerd.io", "1.6.20-1", ["libc6"], also="containerd, runc")
        for package in ("docker.io", "cli", "containerd"):
            command = ["dpkg-deb", "--root-owner-group", "-Znone", "--build", trees[package], target]
            subprocess.run(command, check=True, capture_output=True, timeout=120)
    return archive(target, "Docker")


def containerd_io(distribution: Path, target: Path) -> str:
    """Docker's archive with containerd.io 2, its programs being Debian's; returns its key's fingerprint."""
    target.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as name:
        tree, runc = Path(name) / "containerd", Path(name) / "runc"
        found = fetch("containerd", "forky", Path(name) / "apt")
        for package, unpacked in ((found, tree), (next(distribution.glob("runc_*.deb")), runc)):
            subprocess.run(["dpkg-deb", "--raw-extract", package, unpacked], check=True, timeout=60)
        (runc / "usr/sbin/runc").rename(tree / "usr/bin/runc")
        (tree / "etc/containerd/config.toml").write_text(CONTAINERD_CONFIGURATION)
        version = f"{found.name.split('_')[1].partition('+')[0]}-1~debian.12~bookworm"
        rename(tree, "containerd.io", version, ["libc6"], also="containerd, runc")
        command = ["dpkg-deb", "--root-owner-group", "-Znone", "--build", tree, target]
        subprocess.run(command, check=True, capture_output=True, timeout=120)
    (target / "gpg").write_bytes(archive(target, "Docker"))
    return signing.fingerprint(signing.ensure(target.parent / f"{target.name}-key"))


def fetch(package: str, suite: str, directory: Path) -> Path:
    """A package of a release of Debian, verified by apt, which knows nothing of this machine here."""
    (directory / "lists/partial").mkdir(parents=True)
    (directory / "status").touch()
    line = f"deb [arch=amd64 signed-by={KEYRING}] {debian.mirror()} {suite} main\n"
    (directory / "sources.list").write_text(line)
    settings = {
        "Dir::State": directory, "Dir::State::status": directory / "status", "Dir::Cache": directory,
        "Dir::Etc::sourcelist": directory / "sources.list", "Dir::Etc::sourceparts": "/dev/null",
        "Dir::Etc::preferences": "/dev/null", "Dir::Etc::preferencesparts": "/dev/null",
        "APT::Architectures": "amd64", "APT::Sandbox::User": "", "Acquire::Languages": "none",
    }  # fmt: skip
    options = [f"-o{key}={value}" for key, value in settings.items()]
    for command in (["update"], ["download", package]):
        subprocess.run(
            ["apt-get", "-q", *options, *command], cwd=directory, check=True, capture_output=True, timeout=300
        )
    return next(directory.glob("*.deb"))


def rename(tree: Path, name: str, version: str, depends: list[str], also: str = "") -> None:
    """Gives an unpacked package another name; `also` are those that it takes the place of."""
    (tree / "DEBIAN").mkdir(exist_ok=True)
    others = {"Provides": also, "Conflicts": also, "Replaces": also} if also else {}
    fields = {"Depends": ", ".join(depends), **others}
    package = Package(name=name, version=version, description=name, fields=fields)
    (tree / "DEBIAN/control").write_text(deb.control(package))


def ofed(target: Path) -> bytes:
    """DOCA's archive: OFED's scripts, and kernel modules that dkms builds; returns its key."""
    target.mkdir(parents=True)
    source = f"/usr/src/mlnx-ofed-kernel-{OFED}"
    build = {
        f"{source}/dkms.conf": f'PACKAGE_NAME="mlnx-ofed-kernel"\nPACKAGE_VERSION="{OFED}"\n'
        'AUTOINSTALL="yes"\n',
        f"{source}/clusterlab.conf": f"flavor=open\nsrcversion=0FED\nmodules={' '.join(OFED_MODULES)}\n",
    }
    packages = [
        made("mlnx-ofed-kernel-utils", {"/etc/infiniband/info": "#!/bin/bash\necho prefix=/usr\n"}),
        made(
            "mlnx-ofed-kernel-dkms",
            build,
            "dkms, mlnx-ofed-kernel-utils",
            scripts.dkms("mlnx-ofed-kernel", OFED),
        ),
    ]
    for package in packages:
        deb.build(package, target)
    return archive(target, "Mellanox Technologies")


def made(
    name: str, files: Mapping[str, str], depends: str = "", hooks: Mapping[str, str] | None = None
) -> Package:
    """A package of OFED's."""
    fields = {"Depends": depends} if depends else {}
    contents = {path: PackageFile(text) for path, text in files.items()}
    return Package(
        name=name, version=OFED, description=name, fields=fields, files=contents, scripts=hooks or {}
    )


def exporter_image(directory: Path) -> Path:
    """The root file system of a container with dcgm-exporter, as a tar file."""
    root = directory / "exporter"
    (root / "usr/bin").mkdir(parents=True)
    (directory / "exporter.c").write_text(EXPORTER)
    program = root / "usr/bin/dcgm-exporter"
    command = ["gcc", "-static", "-O2", "-o", program, directory / "exporter.c"]
    subprocess.run(command, check=True, timeout=60, env={**os.environ, "LC_ALL": "C"})
    subprocess.run(["tar", "-C", root, "-cf", directory / "exporter.tar", "."], check=True, timeout=60)
    return directory / "exporter.tar"
