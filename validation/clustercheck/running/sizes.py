"""Limits message sizes to the memory of the GPUs that take part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from clustercheck.evidence.cluster import Evidence
from clustercheck.parse.reading import CannotReadError

MIB = 1 << 20
# Copies of the largest message that a program holds (jobs/collectives.py): the common data, its input, its
# output and one being computed; the rest is for the framework and NCCL.
COPIES = 4


def limit_sizes(arguments: Mapping[str, Any], evidence: Evidence, nodes: Sequence[str]) -> Mapping[str, Any]:
    """The arguments without sizes that are too large for the smallest GPU; the smallest size stays.

    Unchanged if no driver reports the amount of memory.
    """
    sizes, memory = arguments.get("sizes_bytes"), _find_least_memory(evidence, nodes)
    if not sizes or memory is None:
        return arguments
    fit = [size for size in sizes if COPIES * size <= memory]
    return {**arguments, "sizes_bytes": fit or [min(sizes)]}


def _find_least_memory(evidence: Evidence, nodes: Sequence[str]) -> int | None:
    """Bytes of the GPU with the least memory."""
    sizes = []
    for node in nodes:
        try:
            sizes += [gpu.memory_mib * MIB for gpu in evidence.nodes[node].smi().gpus if gpu.memory_mib]
        except (CannotReadError, KeyError):
            continue
    return min(sizes, default=None)
