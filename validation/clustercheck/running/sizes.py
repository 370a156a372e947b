"""Sizes of messages that fit into every GPU that takes part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from clustercheck.evidence.cluster import Evidence
from clustercheck.parse.reading import CannotReadError

MIB = 1 << 20
# What a program holds of the largest message at once (jobs/collectives.py): the common data, its input, its
# output and one in the making; what is left over is the framework's and NCCL's.
COPIES = 4


def fitting(arguments: Mapping[str, Any], evidence: Evidence, nodes: Sequence[str]) -> Mapping[str, Any]:
    """The arguments without sizes that are too large for the smallest GPU; the least size stays.

    As they are where no driver tells how much memory there is.
    """
    sizes, memory = arguments.get("sizes_bytes"), _least_memory(evidence, nodes)
    if not sizes or memory is None:
        return arguments
    fit = [size for size in sizes if COPIES * size <= memory]
    return {**arguments, "sizes_bytes": fit or [min(sizes)]}


def _least_memory(evidence: Evidence, nodes: Sequence[str]) -> int | None:
    """Bytes of the GPU that has least."""
    told = []
    for node in nodes:
        try:
            told += [gpu.memory_mib * MIB for gpu in evidence.nodes[node].smi().gpus if gpu.memory_mib]
        except (CannotReadError, KeyError):
            continue
    return min(told, default=None)
