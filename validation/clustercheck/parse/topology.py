"""`nvidia-smi topo -m`: how GPUs and network adapters reach each other."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from clustercheck.parse.reading import MAX_GPUS, CannotReadError, lines_of

MAX_COLUMNS = 256  # GPUs and adapters, each joined with each
_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
_CONNECTION = re.compile(r"X|NV\d{1,3}|SYS|NODE|PHB|PXB|PIX|PSB")


@dataclass(frozen=True)
class Topology:
    """Connections between devices: ``connections[a][b]`` is NV12, SYS, NODE, PHB, PXB, PIX or X."""

    gpus: tuple[str, ...]
    connections: dict[str, dict[str, str]]

    def nvlinks(self, a: str, b: str) -> int:
        """How many NVLinks join two GPUs, directly or through a switch."""
        answer = self.connections.get(a, {}).get(b, "")
        return int(answer[2:]) if answer.startswith("NV") else 0


@lru_cache(maxsize=16)  # healthy nodes of a kind all print the same
def parse_topology(text: str) -> Topology:
    """Read the matrix. Raises CannotReadError where rows and columns do not fit each other."""
    lines = [line for line in lines_of(_ESCAPE.sub("", text), "nvidia-smi topo -m") if line.strip()]
    if not lines:
        raise CannotReadError("nvidia-smi topo -m printed nothing")
    header = [name.strip() for name in lines[0].split("\t") if name.strip()]
    columns = header[: next((i for i, name in enumerate(header) if "Affinity" in name), len(header))]
    gpus = tuple(name for name in columns if re.fullmatch(r"GPU\d{1,4}", name))
    if not gpus:
        raise CannotReadError("nvidia-smi topo -m names no GPU in its first line")
    if len(gpus) > MAX_GPUS or len(columns) > MAX_COLUMNS:
        raise CannotReadError(f"nvidia-smi topo -m has {len(columns)} columns, {len(gpus)} of GPUs")
    connections: dict[str, dict[str, str]] = {}
    for line in lines[1 : 1 + len(columns)]:
        name, *cells = [cell.strip() for cell in line.split("\t")]
        values = cells[: len(columns)]
        if len(values) < len(columns) or not all(_CONNECTION.fullmatch(value) for value in values):
            raise CannotReadError(f"nvidia-smi topo -m: the row of {name[:20]!r} does not fit the columns")
        connections.setdefault(name, dict(zip(columns, values)))
    missing = [gpu for gpu in gpus if gpu not in connections]
    if missing:
        raise CannotReadError(f"nvidia-smi topo -m has no row of {', '.join(missing)}")
    return Topology(gpus, connections)
