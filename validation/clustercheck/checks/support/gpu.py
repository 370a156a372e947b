"""Finding the driver's entry for a GPU by its number on the node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from clustercheck.evidence.cluster import Evidence
from clustercheck.evidence.node import NodeEvidence
from clustercheck.model import Subject
from clustercheck.parse.nvidia_smi import SmiGpu
from clustercheck.parse.nvlink import Listed
from clustercheck.parse.reading import CannotReadError, NotDoneError, ended_well

L = TypeVar("L", bound=Listed)


def gpu_of(evidence: Evidence, subject: Subject) -> SmiGpu:
    """What the driver says of this GPU. Raises NotDoneError where the driver does not list it."""
    node, number = str(subject.node), int(subject.gpu or 0)
    slots = evidence.slots(node)
    gpus = evidence.nodes[node].smi().by_address
    if number >= len(slots) or slots[number] not in gpus:
        raise NotDoneError("the driver does not list this GPU")
    if gpus[slots[number]].lost:
        raise NotDoneError(f"the driver has lost this GPU: {gpus[slots[number]].lost}")
    return gpus[slots[number]]


def number_of(evidence: Evidence, node: str, address: str) -> int | None:
    """The number of the GPU at this PCI address, None if no GPU of the node is there."""
    slots = evidence.slots(node)
    return slots.index(address) if address in slots else None


def listed_for(gpu: SmiGpu, listed: Sequence[L]) -> L | None:
    """This GPU's part of what was printed GPU by GPU: by its UUID, by its number if there is none."""
    return next(
        (
            each
            for each in listed
            if (each.uuid and each.uuid == gpu.uuid) or (not each.uuid and each.index == gpu.index)
        ),
        None,
    )


def explain_no_nvlink(evidence: Evidence, gpu: SmiGpu, name: str, part: str) -> str:
    """Why this GPU rightly has no NVLinks; empty if it should have some.

    Driver 580.159.04 prints nothing of an H200 that was given to a virtual machine without its NVSwitches.
    """
    if gpu.mig == "Enabled":
        return "MIG is on, which switches NVLink off"
    record = evidence.nodes[name].part(part)
    is_mute = (
        isinstance(record, Mapping) and ended_well(record) and not str(record.get("stdout") or "").strip()
    )
    return (
        "the driver shows no NVLink of the node's one GPU"
        if is_mute and evidence.gpu_count(name) == 1
        else ""
    )


def require_all_listed(node: NodeEvidence, listed: Sequence[Listed], what: str) -> None:
    """Raises CannotReadError where one of the driver's GPUs is missing there, except those that are lost."""
    lost = node.lost_gpus()
    answering = [gpu for gpu in node.smi().gpus if not gpu.lost and gpu.address not in lost]
    uuids = {each.uuid for each in listed if each.uuid}
    numbers = {each.index for each in listed if not each.uuid}
    found = [gpu for gpu in answering if gpu.uuid in uuids or gpu.index in numbers]
    if len(found) < len(answering):
        raise CannotReadError(f"{what} lists {len(found)} of {len(answering)} GPUs")
