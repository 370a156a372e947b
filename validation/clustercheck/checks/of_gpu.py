"""Finding the driver's entry for a GPU by its number on the node."""

from __future__ import annotations

from clustercheck.evidence import Evidence
from clustercheck.model import Subject
from clustercheck.parse.nvidia_smi import Gpu
from clustercheck.parse.reading import NotDoneError


def gpu_of(evidence: Evidence, subject: Subject) -> Gpu:
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
    """The number of the GPU at this PCI address, None where no GPU of the node is there."""
    slots = evidence.slots(node)
    return slots.index(address) if address in slots else None
