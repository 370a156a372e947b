"""One host of the lab as a systemd container: made, started, waited for."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from clusterctl.errors import EXIT_INCOMPLETE, ClusterctlError
from clusterlab import docker
from clusterlab.images import rocky
from clusterlab.images.node import OPERATOR, OPERATOR_ID
from clusterlab.images.trees import ImageFile, pack
from clusterlab.machine import capability_flags
from clusterlab.names import LABEL_LAB, LABEL_NODE, SCRATCH, Names
from clusterlab.packages import Packages
from clusterlab.state import LabNode
from clusterlab.systems import RPM_PERSONALITIES, base_of

BOOT_S = 90.0
SSH_S = 30.0
SSH_PORT = 22
# Where cgroups are version 1, systemd of Debian 13 refuses to boot unless it is told twice.
LEGACY_CGROUPS = (
    "SYSTEMD_PROC_CMDLINE=systemd.unified_cgroup_hierarchy=0 SYSTEMD_CGROUP_ENABLE_LEGACY_FORCE=1"
)


@dataclass(frozen=True)
class NodeAccess:
    """What a hoster puts on a server before handing it over."""

    public_key: str
    depot_authority: bytes
    packages: Packages


def server_flags(system: str, cgroup_version: str, bounding: Sequence[str] | frozenset[str]) -> list[str]:
    """Docker's flags that make a container boot and behave like a server, on this machine."""
    flags = [
        *capability_flags(bounding),
        "--security-opt", "seccomp=unconfined",
        "--security-opt", "apparmor=unconfined",
        "--security-opt", "systempaths=unconfined",
        "--device-cgroup-rule", "a *:* rwm",
        "--cgroupns", "private",
        "--stop-signal", "SIGRTMIN+3",
        "--stop-timeout", "20",
        "--restart", "unless-stopped",
        "--shm-size", "1g",
        "--tmpfs", "/run",
        "--tmpfs", "/run/lock",
        "--tmpfs", "/tmp:exec",  # noqa: S108 - the node's own
        # The operator's own: another mode than the usual one would be gone after the first restart.
        "--tmpfs", f"{SCRATCH}:uid={OPERATOR_ID},gid={OPERATOR_ID},mode=0755,size=64m",
    ]  # fmt: skip
    if base_of(system) == "debian13" and cgroup_version == "1":
        flags += ["--env", LEGACY_CGROUPS]
    return flags


def handed_over(system: str, access: NodeAccess) -> bytes:
    """A tar of the files that the hoster puts on a server of that system."""
    key = access.public_key.encode() + b"\n"
    store = rocky.ANCHORS if system in RPM_PERSONALITIES else "/usr/local/share/ca-certificates"
    return pack(
        [],
        [
            ImageFile("/root/.ssh/authorized_keys", key, 0o600),
            ImageFile(f"/home/{OPERATOR}/.ssh/authorized_keys", key, 0o600, OPERATOR_ID),
            ImageFile(f"{store}/clusterlab-depot.crt", access.depot_authority),
            *access.packages.sources(system),
        ],
    )


def create_server(
    names: Names, node: LabNode, directory: Path, flags: Sequence[str], handed_over: bytes
) -> None:
    """Make and start a host's container and its volume, with the files of that tar in it.

    Raises ClusterctlError.
    """
    volume = names.volume(node.name)
    docker.run(["volume", "create", "--label", f"{LABEL_LAB}={names.suffix}", volume])
    mounts = ["-v", f"{volume}:/var/lib/docker", "-v", f"{directory}:/opt/clusterlab/node:ro"]
    _create(names, node, [*flags, *mounts])
    docker.run(["cp", "-", f"{names.container(node.name)}:/"], stdin=handed_over)
    docker.run(["start", names.container(node.name)])


def create_depot(names: Names, node: LabNode, contents: Mapping[str, Path], certificate: Path) -> None:
    """Make and start the depot: packages on http, images on https. Raises ClusterctlError.

    ``contents`` are directories of this machine by their place in it.
    """
    shown = {**contents, "/opt/clusterlab/depot": certificate}
    mounts = [word for place, path in shown.items() for word in ("-v", f"{path}:{place}:ro")]
    _create(names, node, ["--restart", "unless-stopped", *mounts])
    docker.run(["start", names.container(node.name)])


def wait_until_booted(names: Names, node: LabNode) -> str:
    """Wait until systemd says that the host is up, and sshd answers; returns what systemd says.

    Raises ClusterctlError (``lab.boot-failed``).
    """
    container = names.container(node.name)
    deadline = time.monotonic() + BOOT_S
    message = ""
    while message not in ("running", "degraded"):
        if time.monotonic() > deadline:
            raise _boot_failed(node, f"systemd says {message or 'nothing'!r} after {BOOT_S:.0f} s", container)
        answer = docker.execute(container, ["systemctl", "is-system-running"], check=False)
        message = answer.stdout.decode().strip()
        if message not in ("running", "degraded"):
            time.sleep(0.2)
    _wait_for_sshd(node, container)
    return message


def host_keys(names: Names, node: LabNode) -> list[str]:
    """The host's public SSH keys as ``TYPE BASE64``, read inside the host, not over the network."""
    answer = docker.execute(
        names.container(node.name), ["sh", "-c", "cat /etc/ssh/ssh_host_*_key.pub"]
    ).stdout
    return [" ".join(line.split()[:2]) for line in answer.decode().splitlines()]


def is_running(names: Names, node: LabNode) -> bool | None:
    """Whether the host's container runs; None if there is none."""
    found = docker.inspect("container", [names.container(node.name)], missing_ok=True)
    return bool(found[0]["State"]["Running"]) if found else None


def remove(names: Names, node: LabNode) -> None:
    """Remove the host's container and volume, whether it runs or not."""
    docker.run(["rm", "--force", "--volumes", names.container(node.name)], check=False)
    docker.run(["volume", "rm", "--force", names.volume(node.name)], check=False)


def _create(names: Names, node: LabNode, flags: Sequence[str]) -> None:
    docker.run(
        [
            "create",
            "--name", names.container(node.name),
            "--hostname", node.name,
            "--network", names.network,
            "--network-alias", node.name,
            "--ip", node.address,
            "--label", f"{LABEL_LAB}={names.suffix}",
            "--label", f"{LABEL_NODE}={node.name}",
            *flags,
            node.image,
        ]
    )  # fmt: skip


def _wait_for_sshd(node: LabNode, container: str) -> None:
    deadline = time.monotonic() + SSH_S
    while True:
        try:
            with socket.create_connection((node.address, SSH_PORT), timeout=2) as connection:
                if connection.recv(4) == b"SSH-":
                    return
        except OSError:
            pass
        if time.monotonic() > deadline:
            raise _boot_failed(node, f"sshd does not answer on {node.address}:{SSH_PORT}", container)
        time.sleep(0.1)


def _boot_failed(node: LabNode, why: str, container: str) -> ClusterctlError:
    failed = docker.execute(container, ["systemctl", "--failed", "--plain", "--no-legend"], check=False)
    lines = failed.stdout.decode(errors="replace").splitlines()
    units = ", ".join(line.split()[0] for line in lines if line.strip())
    return ClusterctlError(
        f"{node.name} has not booted: {why}" + (f"; failed units: {units}" if units else ""),
        code="lab.boot-failed",
        where=container,
        hint=f"Look inside with: docker exec {container} journalctl -b",
        exit_code=EXIT_INCOMPLETE,
    )
