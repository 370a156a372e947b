"""In which order hosts are changed: pure, from the inventory to a list of waves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

MAX_WAVE = 64


@dataclass(frozen=True)
class Wave:
    """Hosts that one process changes at once."""

    name: str
    hosts: tuple[str, ...]


@dataclass(frozen=True)
class WavePlan:
    """Waves in order, and who stays out of all of them with the reason."""

    waves: tuple[Wave, ...]
    left_out: Mapping[str, str]

    @property
    def hosts(self) -> tuple[str, ...]:
        """Every host of every wave, in order."""
        return tuple(host for wave in self.waves for host in wave.hosts)


def plan_waves(
    hosts: Sequence[str],
    *,
    registry: Iterable[str] = (),
    gpu_nodes: Iterable[str] = (),
    left_out: Mapping[str, str] | None = None,
    canaries: int = 1,
    size: int = MAX_WAVE,
) -> WavePlan:
    """Registry hosts first, since nodes pull from them; then hosts of no GPU; a canary; the rest by ``size``.

    ``left_out`` (host -> reason) is respected before all else. One GPU node alone is a wave, not a canary.
    """
    out = {host: reason for host, reason in (left_out or {}).items() if host in hosts}
    there = list(dict.fromkeys(host for host in hosts if host not in out))
    first, gpu = set(registry), set(gpu_nodes)
    registries = [host for host in there if host in first]
    nodes = [host for host in there if host in gpu and host not in first]
    others = [host for host in there if host not in gpu and host not in first]
    ahead = nodes[:canaries] if len(nodes) > canaries else []
    rest = nodes[len(ahead) :]
    waves = [
        *_split("registry", registries, size),
        *_split("services", others, size),
        *_split("canary", ahead, size),
        *_split("nodes", rest, size),
    ]
    return WavePlan(tuple(waves), out)


def _split(name: str, hosts: Sequence[str], size: int) -> list[Wave]:
    parts = [tuple(hosts[start : start + size]) for start in range(0, len(hosts), size)]
    if len(parts) == 1:
        return [Wave(name, parts[0])]
    return [Wave(f"{name} {number}", part) for number, part in enumerate(parts, 1)]
