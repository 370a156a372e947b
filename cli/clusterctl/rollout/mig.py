"""MIG layouts of hosts: as declared, and as their GPUs are now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from clustercheck.checks.all import BY_ID
from clustercheck.checks.base import evaluate
from clustercheck.evidence.cluster import Evidence
from clustercheck.evidence.collect import collect
from clustercheck.evidence.node import NodeEvidence
from clustercheck.launch.transport import Transport
from clustercheck.model import Result, Verdict
from clustercheck.parse.plain_text import one_line
from clusterctl.cluster.inventory import Host, Inventory
from clusterctl.cluster.mig_formats import HostLayout, host_layout
from clusterctl.cluster.spec import cluster_spec, declared_gpu_count, mig_of
from clusterctl.errors import ClusterctlError

CHECK = "gpu-mig"
PARTS = ("host", "pci", "nvidia_smi", "gpu_list")
PROBE_LIMIT_S = 60.0
MAX_CELL = 300


@dataclass(frozen=True)
class GpuLayout:
    """One GPU: what it is, what was declared, and what the check gpu-mig says of it.

    ``gpu`` is None for a host that does not answer and does not declare its number of GPUs.
    """

    host: str
    gpu: int | None
    layout: str
    declared: str
    verdict: Verdict
    because: str

    def as_record(self) -> dict[str, Any]:
        """For --json."""
        return {"type": "gpu", **asdict(self), "verdict": self.verdict.value}


def declared_layouts(hosts: Sequence[Host]) -> list[HostLayout]:
    """The layouts of those hosts that declare one. Raises ClusterctlError (``inventory.mig``, exit 2)."""
    declared = [(host, mig_of(host)) for host in hosts]
    found = [host_layout(one, declared_gpu_count(host)) for host, one in declared if one.rules]
    if not found:
        raise ClusterctlError(
            "no host declares a MIG layout",
            code="apply.nothing-to-do",
            hint="Set hardware_mig for a host or a group.",
        )
    return found


def inspect_layouts(inventory: Inventory, hosts: Sequence[str], transport: Transport) -> list[GpuLayout]:
    """The GPUs of those hosts that are GPU nodes, probed in parallel."""
    spec = cluster_spec(inventory)
    spec = replace(spec, nodes=tuple(node for node in spec.nodes if node.name in hosts), exclusions=())
    options = {"parts": list(PARTS), "limit_s": PROBE_LIMIT_S}
    nodes = collect([node.name for node in spec.nodes], transport, options=options, limit_s=PROBE_LIMIT_S)
    found = [_layout(result, spec.nodes) for result in evaluate(BY_ID[CHECK], Evidence(spec, nodes))]
    silent = [name for name in nodes if name not in {one.host for one in found}]
    return [*found, *(_silent(name, nodes[name]) for name in silent)]


def _silent(name: str, node: NodeEvidence) -> GpuLayout:
    because = one_line(node.unreachable, MAX_CELL) or "no GPU is on the host's bus"
    return GpuLayout(name, None, "", "", Verdict.NOT_RUN, because)


def _layout(result: Result, nodes: Sequence[Any]) -> GpuLayout:
    host, gpu = str(result.subject.node), int(result.subject.gpu or 0)
    declared = next(node for node in nodes if node.name == host).mig_of(gpu)
    return GpuLayout(
        host,
        gpu,
        one_line(str(result.measured or ""), MAX_CELL),
        declared,
        result.verdict,
        one_line(result.because, MAX_CELL) if result.verdict is not Verdict.PASS else "",
    )
