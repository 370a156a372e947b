"""The image that every node boots: a bare Debian server as hosters hand it over, and one layer of ours."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from clusterlab import docker
from clusterlab.cache import content_hash, ended, locked, scratch
from clusterlab.images import debian, personality, trees
from clusterlab.images.debian import bootstrap, recipe
from clusterlab.images.trees import ImageFile, pack
from clusterlab.names import BUILD_PREFIX
from clusterlab.progress import LabProgress
from clusterlab.systems import base_of

OPERATOR = "ops"
OPERATOR_ID = 1000
ROOTFS = Path(__file__).parent / "rootfs" / "node"

PACKAGES = (
    "systemd-sysv", "dbus", "udev", "openssh-server", "sudo", "python3", "python3-apt", "ca-certificates",
    "iproute2", "iputils-ping", "procps", "kmod", "pciutils", "cron", "less", "gnupg",
    "util-linux-extra", "rsync", "libfaketime", "systemd-journal-remote",
)  # fmt: skip
HOOKS = (
    f'chroot "$1" useradd --uid {OPERATOR_ID} --create-home --shell /bin/bash {OPERATOR}',
    f'chroot "$1" install -d -m 0700 -o {OPERATOR} -g {OPERATOR} /home/{OPERATOR}/.ssh',
    'install -d -m 0700 "$1"/root/.ssh',
    'rm -f "$1"/etc/ssh/ssh_host_*',
    # Unattended apt runs would hold apt's lock at moments of their own choosing, on two cores.
    'chroot "$1" systemctl mask apt-daily.timer apt-daily-upgrade.timer systemd-journal-remote.socket',
)
DIRECTORIES = ("/var/log/journal", "/opt/clusterlab")
REPOSITORY = "clusterlab/node"
BASE_REPOSITORY = "clusterlab/base"
# How an image is made is in the code: a change there is a change of the image.
BUILDERS = [Path(module) for module in (__file__, debian.__file__, trees.__file__)]


def firmware() -> list[Path]:
    """The simulated hardware's root file system, which is laid over the base image."""
    found = importlib.util.find_spec("clusterlab.simulated")
    roots = [Path(p) / "firmware" for p in (found.submodule_search_locations or [])] if found else []
    return [root for root in roots if root.is_dir()]


def base_tag(system: str) -> str:
    """The image of mmdebstrap's root file system, by what goes into it."""
    packages = personality.packages(system, PACKAGES)
    parts: list[str | Path] = [*recipe(base_of(system), packages), *BUILDERS, *personality.recipe(system)]
    return f"{BASE_REPOSITORY}:{system}-{content_hash(parts)}"


def node_tag(system: str) -> str:
    """The image that nodes boot, by what goes into it."""
    return f"{REPOSITORY}:{system}-{content_hash([base_tag(system), *_trees(system)])}"


def ensure_node_image(system: str, progress: LabProgress) -> str:
    """The tag of the node image, built where the engine does not have it. Raises ClusterctlError."""
    tag = node_tag(system)
    with locked(f"node-{system}"):
        remove_abandoned_builds()
        if docker.exists("image", tag):
            return tag
        base = base_tag(system)
        if not docker.exists("image", base):
            with progress.step(f"building the {system} server image"), scratch(f"base-{system}") as directory:
                tar = directory / "root.tar"
                hooks = [*HOOKS, *personality.hooks(system, directory)]
                packages, options = personality.packages(system, PACKAGES), personality.options(system)
                bootstrap(base_of(system), packages, tar, hooks=hooks, options=options)
                docker.run(["import", "-c", 'CMD ["/sbin/init"]', str(tar), base], timeout_s=300)
        _add_layer(base, tag, _trees(system))
    return tag


def remove_abandoned_builds() -> None:
    """Remove the containers of builds that were killed."""
    listed = docker.output(["ps", "--all", "--filter", f"name=^{BUILD_PREFIX}", "--format", "{{.Names}}"])
    for name in listed.split():
        if name.startswith(BUILD_PREFIX) and ended(name.removeprefix(BUILD_PREFIX)):
            docker.run(["rm", "--force", name], check=False)


def _trees(system: str) -> list[Path]:
    return [ROOTFS, *personality.rootfs(system), *firmware()]


def _add_layer(base: str, tag: str, layers: list[Path]) -> None:
    """Lay boot units and simulated hardware over ``base``."""
    # An empty machine-id: systemd gives each node its own when it first boots.
    layer = pack(layers, [ImageFile("/etc/machine-id", b"")], DIRECTORIES)
    container = docker.output(["create", "--name", f"{BUILD_PREFIX}{os.getpid()}", base])
    try:
        docker.run(["cp", "-", f"{container}:/"], stdin=layer)
        docker.run(["commit", "-c", 'CMD ["/sbin/init"]', "-c", "ENV container=docker", container, tag])
    finally:
        docker.run(["rm", "--force", container], check=False)
