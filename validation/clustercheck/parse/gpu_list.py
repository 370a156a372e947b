"""What `nvidia-smi -L` prints: a line a GPU, and its MIG devices under it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from clustercheck.parse.reading import MAX_GPUS, CannotReadError, lines_of

_GPU = re.compile(r"GPU \d+: .+ \(UUID: (GPU-[0-9a-fA-F-]+)\)(?: \(simulated\))?")
_MIG = re.compile(r"\s+MIG (\d+(?:c\.\d+)?g\.\d+gb\S*)\s+Device\s+\d+: \(UUID: MIG-\S+\)")


def parse_gpu_list(text: str) -> Mapping[str, tuple[str, ...]]:
    """The profiles of the MIG devices of each GPU, by its UUID.

    Raises CannotReadError at the first line that is neither a GPU nor a MIG device, and if there is none.
    """
    found: dict[str, list[str]] = {}
    for line in filter(str.strip, lines_of(text, "nvidia-smi -L")):
        gpu, mig = _GPU.fullmatch(line.rstrip()), _MIG.fullmatch(line.rstrip())
        if gpu:
            if gpu[1] in found:
                raise CannotReadError(f"nvidia-smi -L lists {gpu[1]} twice")
            found[gpu[1]] = []
        elif mig and found:
            found[next(reversed(found))].append(mig[1])
        else:
            raise CannotReadError(f"nvidia-smi -L says {line.strip()[:80]!r}")
    if not found:
        raise CannotReadError("nvidia-smi -L lists no GPU")
    if len(found) > MAX_GPUS:
        raise CannotReadError(f"nvidia-smi -L lists {len(found)} GPUs, at most {MAX_GPUS} are read")
    return {uuid: tuple(profiles) for uuid, profiles in found.items()}
