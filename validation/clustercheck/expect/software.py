"""What software a cluster runs, as a result document's environment has it, and what of it has changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from clustercheck.parse.plain_text import some_of

# By name in the environment: what people call it, in the order of the report.
OF_CLUSTER = {"image": "image", "nccl": "NCCL", "framework": "framework"}
OF_NODE = {
    "driver": "driver",
    "fabric_manager": "Fabric Manager",
    "kernel": "kernel",
    "os": "operating system",
    "cuda": "CUDA",
    "toolkit": "container toolkit",
    "docker": "Docker",
    "containerd": "containerd",
    "bios": "BIOS",
    "microcode": "CPU microcode",
    "bmc_firmware": "BMC firmware",
    "vbios": "VBIOS",
    "adapter_firmware": "adapter firmware",
}
MAX_NAMED = 4


@dataclass(frozen=True)
class Software:
    """Versions by name: of the whole cluster, and of each node. What is unknown is absent."""

    cluster: Mapping[str, str] = field(default_factory=dict)
    nodes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class EnvironmentChange:
    """One version or variable that is another now, on these nodes; none for what the whole cluster shares."""

    what: str
    before: str
    now: str
    nodes: tuple[str, ...] = ()
    everywhere: bool = True

    @property
    def text(self) -> str:
        """``driver 580.95.05 -> 580.105.08: gpu03``."""
        text = f"{self.what} {self.before} -> {self.now}"
        return text if self.everywhere else f"{text}: {some_of(self.nodes, MAX_NAMED)}"

    def as_json(self) -> dict[str, Any]:
        """As the environment has it."""
        return {
            "what": self.what,
            "before": self.before,
            "now": self.now,
            "nodes": list(self.nodes),
            "everywhere": self.everywhere,
        }


def software_of(environment: Mapping[str, Any]) -> Software:
    """The versions that an environment section names."""
    nodes = environment.get("nodes") or {}
    return Software(
        _known(environment, OF_CLUSTER), {str(name): _of_node(node) for name, node in nodes.items()}
    )


def _of_node(node: Mapping[str, Any]) -> dict[str, str]:
    builds = sorted({str(gpu.get("vbios") or "") for gpu in node.get("gpus") or ()} - {""})
    return _known({**node, "vbios": ", ".join(builds)}, OF_NODE)


def _known(record: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, str]:
    return {name: str(record[name]) for name in names if record.get(name)}


def software_changes(then: Software, now: Software) -> list[EnvironmentChange]:
    """What is another now. What was unknown then, or is now, is not a change."""
    return [*_of_cluster(then, now), *_of_nodes(then, now)]


def _of_cluster(then: Software, now: Software) -> Iterator[EnvironmentChange]:
    for name, what in OF_CLUSTER.items():
        before, after = then.cluster.get(name), now.cluster.get(name)
        if before and after and before != after:
            yield EnvironmentChange(what, before, after)


def _of_nodes(then: Software, now: Software) -> Iterator[EnvironmentChange]:
    """Nodes with the same change are one; of all nodes, where none is without it."""
    for name, what in OF_NODE.items():
        together: dict[tuple[str, str], list[str]] = {}
        for node, versions in now.nodes.items():
            before, after = then.nodes.get(node, {}).get(name), versions.get(name)
            if before and after and before != after:
                together.setdefault((before, after), []).append(node)
        for (before, after), nodes in together.items():
            everywhere = len(nodes) == len(now.nodes)
            yield EnvironmentChange(what, before, after, tuple(nodes), everywhere)
