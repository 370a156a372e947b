"""The lab's cluster directory: inventory, settings and pinned host keys, written as an operator would.

What an operator has changed since is kept.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.cluster.state_files import replace_file
from clusterlab.images.harbor import Installer
from clusterlab.images.node import OPERATOR
from clusterlab.names import DEPOT, SCRATCH
from clusterlab.state import LabNode, LabState
from clusterlab.systems import RPM_PERSONALITIES

DRIVER_BRANCH = "580"
DRIVER_VERSION = "580.95.05"
TOOLKIT_VERSION = "1.18.1"
REGISTRY_PORT = 5000
# From the cluster directory on: it is in the lab's.
AUTHORITY = "../authority/ca.crt"


@dataclass(frozen=True)
class Offer:
    """What the lab's hardware and depot offer, as the settings name it."""

    gpu_model: str
    gpu_count: int
    image_repository: str
    image_digest: str
    key_fingerprint: str
    harbor: Installer | None = None


def inventory(nodes: Sequence[LabNode]) -> dict[str, Any]:
    """hosts.yml's contents: the groups gpu_nodes and registry, each host with its address."""

    def group(role: str) -> dict[str, Any]:
        return {"hosts": {node.name: {"ansible_host": node.address} for node in nodes if node.role == role}}

    return {"all": {"children": {"gpu_nodes": group("gpu"), "registry": group("registry")}}}


def settings(state: LabState, offer: Offer) -> dict[str, dict[str, Any]]:
    """Group variables by group: what a site declares."""
    return {
        "all": {
            "cluster_name": "lab",
            "ansible_user": OPERATOR,
            "ansible_ssh_private_key_file": "{{ inventory_dir }}/ssh/id_ed25519",
            "ansible_ssh_common_args": "-o UserKnownHostsFile={{ inventory_dir }}/.clusterctl/known_hosts"
            " -o StrictHostKeyChecking=yes",
            "nvidia_driver_repository_url": f"http://{DEPOT}/cuda/repos",
            # The depot signs with a key of its own.
            "nvidia_driver_repository_key_fingerprints": [offer.key_fingerprint],
            "nvidia_driver_branch": DRIVER_BRANCH,
            "nvidia_driver_version": DRIVER_VERSION,
            "nvidia_container_toolkit_repository_url": f"http://{DEPOT}/libnvidia-container/stable/deb",
            "nvidia_container_toolkit_repository_key_fingerprints": [offer.key_fingerprint],
            "nvidia_container_toolkit_version": TOOLKIT_VERSION,
            "training_image_source": f"{DEPOT}:{REGISTRY_PORT}/{offer.image_repository}",
            "training_image_digest": offer.image_digest,
            **depot_settings(state),
            **(harbor_settings(offer.harbor) if offer.harbor else {}),
        },
        "gpu_nodes": {
            "hardware_profile": state.hardware,
            "hardware_gpu_model": offer.gpu_model,
            "hardware_gpu_count": offer.gpu_count,
            "hardware_mig": "disabled",
            # The simulated PCI bus has InfiniBand controllers, as the real server has; no driver serves them.
            "hardware_rdma_ports": 0,
            "validation_mounts": [{"path": SCRATCH, "type": "tmpfs", "user": OPERATOR}],
            **(rpm_settings(offer) if state.system in RPM_PERSONALITIES else {}),
        },
    }


def rpm_settings(offer: Offer) -> dict[str, Any]:
    """What a site declares whose GPU nodes have RPMs: its mirrors of EPEL and of Docker's repository."""
    return {
        "nvidia_driver_epel_url": f"http://{DEPOT}/epel",
        "nvidia_driver_epel_key_fingerprints": [offer.key_fingerprint],
        "container_runtime_repository_url": f"http://{DEPOT}/docker",
        "container_runtime_repository_key_fingerprints": [offer.key_fingerprint],
    }


def depot_settings(state: LabState) -> dict[str, Any]:
    """How the controller asks the depot's registry: neither its name nor its authority is known here."""
    depot = next((node for node in state.nodes if node.role == "depot"), None)
    if depot is None:
        return {}
    return {
        "images_source_addresses": {f"{DEPOT}:{REGISTRY_PORT}": f"{depot.address}:{REGISTRY_PORT}"},
        "images_ca_file": AUTHORITY,
    }


def harbor_settings(installer: Installer) -> dict[str, Any]:
    """What a site declares that has Harbor, of a release that the depot serves."""
    return {
        "registry_kind": "harbor",
        "harbor_version": installer.version,
        "harbor_installer_url": f"http://{DEPOT}/harbor/{installer.file}",
        "harbor_installer_sha256": installer.sha256,
        "harbor_min_free_gb": 2,
    }


def known_hosts_line(node: LabNode, key: str) -> str:
    """One line of known_hosts: the host by address and by name."""
    return f"{node.address},{node.name} {key}"


def pin(existing: str, nodes: Mapping[str, LabNode], keys: Mapping[str, Sequence[str]]) -> str:
    """known_hosts' text with those hosts pinned that ``keys`` names; lines about others stay."""
    ours = {name for node in nodes.values() if node.name in keys for name in (node.name, node.address)}
    kept = [line for line in existing.splitlines() if not ours & set(line.partition(" ")[0].split(","))]
    added = [known_hosts_line(nodes[name], key) for name in sorted(keys) for key in keys[name]]
    return "\n".join([*kept, *added]) + "\n"


def write(
    root: Path, state: LabState, offer: Offer, keys: Mapping[str, Sequence[str]]
) -> tuple[dict[str, str], list[str]]:
    """Write the cluster directory.

    Returns the SHA-256 of each file as we have written it, and the files that were kept because somebody
    has changed them since.
    """
    cluster = ClusterDirectory(root)
    cluster.ensure_state()
    cluster.group_vars.mkdir(parents=True, exist_ok=True)
    wanted = {"hosts.yml": _document("The lab's hosts.", inventory(state.hosts))}
    for group, values in settings(state, offer).items():
        wanted[f"group_vars/{group}.yml"] = _document(f"What {group} of the lab should be.", values)
    written, kept = dict(state.written), []
    for name, text in wanted.items():
        if _is_edited(root / name, state.written.get(name)):
            kept.append(name)
        else:
            _replace(root / name, text)
            written[name] = _digest(text)
    nodes = {node.name: node for node in state.hosts}
    before = cluster.known_hosts.read_text(encoding="utf-8") if cluster.known_hosts.exists() else ""
    _replace(cluster.known_hosts, pin(before, nodes, keys))
    return written, kept


def _is_edited(path: Path, ours: str | None) -> bool:
    return path.exists() and _digest(path.read_text(encoding="utf-8")) != ours


def _document(comment: str, values: Mapping[str, Any]) -> str:
    return f"---\n# {comment} Written by clusterctl lab up; what you change here stays.\n" + yaml.safe_dump(
        dict(values), sort_keys=False, default_flow_style=False, width=110
    )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _replace(path: Path, text: str) -> None:
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return
    replace_file(path, text, 0o644)
