"""Injecting and clearing faults, on hosts of this machine's lab alone; and the book of what is in place."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from clusterctl.cluster.bounded_file import UnusableFileError, describe_unusable
from clusterctl.cluster.state_reading import read_yaml
from clusterctl.errors import ClusterctlError
from clusterlab import docker, faults, hardware
from clusterlab.cache import locked
from clusterlab.faults.base import FaultTarget, LabFault
from clusterlab.names import LABEL_LAB, LABEL_NODE
from clusterlab.state import InjectedFault, LabDirectory, LabNode, LabState

WHOLE_HOST = ("node-down", "node-hung")


def inject(
    lab: LabDirectory, inventory: Path, name: str, kind: str, *, gpu: int | None, peer: str | None
) -> InjectedFault:
    """Put a fault in place on one host. ``inventory`` is the hosts.yml that the person works with.

    It is on the book before anything is touched: an injection that is killed can still be cleared.
    Raises ClusterctlError: a host that is not this lab's, an unknown kind, a wrong or missing GPU or peer,
    or the fault in place already.
    """
    with locked(f"lab-{lab.names.suffix}"):
        return _inject(lab, lab.require(), inventory, name, kind, gpu=gpu, peer=peer)


def _inject(
    lab: LabDirectory,
    state: LabState,
    inventory: Path,
    name: str,
    kind: str,
    *,
    gpu: int | None,
    peer: str | None,
) -> InjectedFault:
    node = require_ours(lab, state, inventory, name)
    fault = require_kind(kind)
    gpus = [one.index for one in hardware.load(lab.hardware(name)).gpus]
    check_request(gpus, state, fault, name, gpu=gpu, peer=peer)
    known = next((one for one in state.faults if _same(one, name, kind, gpu, peer)), None)
    if known is not None:
        raise ClusterctlError(
            f"{kind} is {known.state} on {name} already",
            code="lab.fault-in-place",
            where=name,
            hint=f"Take it away with: clusterctl lab fault clear {name}",
        )
    moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    record = InjectedFault(node=name, kind=kind, gpu=gpu, peer=peer, since=moment, state="being injected")
    state.faults.append(record)
    lab.save(state)
    target = _target(lab, state, node, record)
    try:
        fault.inject(target)
    except ClusterctlError:
        # Half a fault is taken back; where that fails too, it stays on the book, to be cleared later.
        fault.clear(target)
        state.faults.remove(record)
        lab.save(state)
        raise
    record.state = "in place"
    lab.save(state)
    return record


def clear(lab: LabDirectory, inventory: Path, name: str | None) -> list[InjectedFault]:
    """Take away every fault, or those of one host, newest first; returns them. Raises ClusterctlError."""
    with locked(f"lab-{lab.names.suffix}"):
        return _clear(lab, lab.require(), inventory, name)


def _clear(lab: LabDirectory, state: LabState, inventory: Path, name: str | None) -> list[InjectedFault]:
    if name is not None:
        require_ours(lab, state, inventory, name)
    # A host that is off or hangs comes first: the other faults need it running.
    chosen = [one for one in reversed(state.faults) if name in (None, one.node)]
    for record in sorted(chosen, key=lambda one: one.kind not in WHOLE_HOST):
        node = require_ours(lab, state, inventory, record.node)
        fault = require_kind(record.kind)
        fault.clear(_target(lab, state, node, record))
        state.faults.remove(record)
        lab.save(state)
    return chosen


def require_kind(kind: str) -> LabFault:
    """The fault of that kind. Raises ClusterctlError (``lab.unknown-fault``)."""
    all_faults = faults.known()
    if kind not in all_faults:
        raise ClusterctlError(
            f"there is no fault {kind!r}",
            code="lab.unknown-fault",
            hint=f"Known: {', '.join(all_faults)}.",
        )
    return all_faults[kind]


def require_ours(lab: LabDirectory, state: LabState, inventory: Path, name: str) -> LabNode:
    """The lab's host of that name, if the inventory means that very host and this machine's lab made it.

    Raises ClusterctlError (``lab.not-ours``, or ``lab.unknown-node``).
    """
    addresses = dict(inventory_addresses(_read_yaml(inventory)))
    found = docker.inspect("container", [lab.names.container(name)], missing_ok=True)
    why = refusal(name, state, addresses, found[0] if found else None)
    if why:
        raise ClusterctlError(
            f"{name} is not a host that this machine's lab made: {why}",
            code="lab.not-ours",
            where=str(inventory),
            hint="Faults are injected only on the lab's hosts; clusterctl lab status names them.",
        )
    return state.require_host(name)


def refusal(
    name: str, state: LabState, addresses: Mapping[str, str | None], container: Mapping[str, Any] | None
) -> str:
    """Why a host must not be touched; empty where it is the lab's own.

    ``addresses`` are the inventory's (None: the host has no ansible_host); ``container`` is what the engine
    says of the container that has the host's name, if there is one.
    """
    node = state.node(name)
    if node is None or node.role == "depot":
        return "the lab's state does not know it"
    if name not in addresses:
        return "the inventory does not have it"
    if addresses[name] != node.address:
        elsewhere = addresses[name] or "an address of its own"
        return f"the inventory has it at {elsewhere}, the lab at {node.address}"
    if container is None:
        return "there is no container of it"
    labels = container["Config"].get("Labels") or {}
    if labels.get(LABEL_LAB) != state.suffix or labels.get(LABEL_NODE) != name:
        return "its container does not have the lab's labels"
    return ""


def inventory_addresses(content: Any) -> Iterator[tuple[str, str | None]]:
    """Every host of a YAML inventory with its ansible_host, None where it has none."""
    if not isinstance(content, Mapping):
        return
    for key, value in content.items():
        if key == "hosts" and isinstance(value, Mapping):
            for host, variables in value.items():
                address = variables.get("ansible_host") if isinstance(variables, Mapping) else None
                yield str(host), str(address) if address is not None else None
        elif isinstance(value, Mapping):
            yield from inventory_addresses(value)


def check_request(
    gpus: Collection[int], state: LabState, fault: LabFault, node: str, *, gpu: int | None, peer: str | None
) -> None:
    """Whether what was named suits the fault's scope; ``gpus`` are the node's.

    Raises ClusterctlError (``lab.fault-scope``).
    """
    problem = ""
    if fault.scope == "gpu":
        if not gpus:
            problem = f"{node} has no GPUs"
        elif gpu is None:
            problem = f"{fault.kind} needs a GPU: --gpu {min(gpus)} to {max(gpus)}"
        elif gpu not in gpus:
            problem = f"{node} has no GPU {gpu}"
    elif gpu is not None:
        problem = f"{fault.kind} concerns the whole {fault.scope}, not a GPU"
    if not problem and fault.scope == "link" and peer is None:
        problem = f"{fault.kind} needs the host at the link's other end: --peer NODE"
    elif not problem and peer is not None:
        if fault.scope != "link":
            problem = f"{fault.kind} concerns no peer"
        elif peer == node or state.node(peer) is None:
            problem = f"{peer!r} is not another host of the lab"
    if problem:
        raise ClusterctlError(
            problem,
            code="lab.fault-scope",
            where=node,
            hint="clusterctl lab fault list shows what each kind applies to.",
        )


def _same(one: InjectedFault, node: str, kind: str, gpu: int | None, peer: str | None) -> bool:
    return (one.node, one.kind, one.gpu, one.peer) == (node, kind, gpu, peer)


def _target(lab: LabDirectory, state: LabState, node: LabNode, record: InjectedFault) -> FaultTarget:
    other = state.node(record.peer) if record.peer else None
    return FaultTarget(
        node=node.name,
        container=lab.names.container(node.name),
        hardware_file=lab.hardware(node.name),
        gpu=record.gpu,
        peer=record.peer,
        peer_address=other.address if other else None,
        undo=record.undo,
    )


def _read_yaml(path: Path) -> Any:
    try:
        return read_yaml(path, TypeAdapter(Any))
    except (OSError, UnusableFileError) as error:
        raise ClusterctlError(
            f"the inventory cannot be read: {describe_unusable(error)}",
            code="lab.inventory-unreadable",
            where=str(path),
            hint="Name another cluster directory with -C DIR.",
        ) from error
