"""ib_write_bw with GPU memory: can the adapter next to each GPU read and write it at the wire's rate?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clustercheck.checks.base import Check, Finding, SeededFault, every_gpu, failed, not_applicable, not_run
from clustercheck.checks.rdma_write import NEAR, PERFTEST, asked
from clustercheck.checks.support import seeding, seeding_figures
from clustercheck.checks.support.gpu import gpu_of, number_of
from clustercheck.checks.support.job import failed_on, outcome_of, ranks_of
from clustercheck.checks.support.nccl import NEAR as NEAR_GPU
from clustercheck.checks.support.nccl import WITHOUT_GPUDIRECT
from clustercheck.checks.support.rdma import Link, links_of, name_of, without_adapter
from clustercheck.checks.support.rdma_writes import failure_of
from clustercheck.evidence.cluster import Evidence
from clustercheck.evidence.rails import adapters_of, declared_rails
from clustercheck.expect.effects import effect
from clustercheck.expect.physics import pcie_gbps
from clustercheck.jobs.rdma_write import SIZE_BYTES
from clustercheck.launch.model import RankOutcome, RankState
from clustercheck.model import Figure, Limit, Scope, Section, Subject, Verdict
from clustercheck.parse.perftest import PerftestRequest, parse_write_bandwidth
from clustercheck.parse.reading import CannotReadError, NotDoneError
from clustercheck.samples.rdma import GBPS, gpu_text

JOB = "gpudirect_write"
METHOD = (
    f"ib_write_bw --use_cuda of {SIZE_BYTES} bytes from a GPU's memory into the same, the adapter next to it "
    f"with itself, both ends {NEAR}, average"
)
# By the port's rate in Gb/s: the part of it that is asked [Azure/azurehpc-health-checks, check_ib_bw_gdr].
FLOORS = {
    200.0: (0.9, "Azure/azurehpc-health-checks, nd96asr_v4: >= 180 Gb/s at 8 MiB of HDR 200"),
    400.0: (0.95, "Azure/azurehpc-health-checks, nd96isr_h100_v5: >= 380 Gb/s at 8 MiB of NDR 400"),
}
# Of these GPUs the same gate asks less.
FLOORS_OF_H200 = {
    400.0: (0.9, "Azure/azurehpc-health-checks, nd96isr_h200_v5: >= 360 Gb/s at 8 MiB of NDR 400"),
}
ABOVE_CEILING = 0.02
OF_PCIE = 0.8  # of the GPU's link is its own limit: below it the port is, and its floor holds
WITH_CUDA = (
    "Build perftest with CUDA into the training image (configure it with CUDA_H_PATH, the path of cuda.h), "
    "and load nvidia_peermem on the node where the driver is not the open one."
)


@dataclass(frozen=True)
class NearPort:
    """The port on whose rail a GPU is: ``number`` is CUDA's of the GPU, ``near`` without the CPU between."""

    link: Link
    number: int
    near: bool


def joined_gpus(evidence: Evidence, nodes: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
    """By node: its GPUs that have an adapter next to them, each with its port."""
    found = {}
    for node in nodes:
        try:
            ports = _ports(evidence, node)
        except CannotReadError:
            continue
        if ports:
            site = evidence.spec.settings_of(node).environment
            found[node] = [{"gpu": port.number, **asked(port.link, site)} for port in ports.values()]
    return found


def _ports(evidence: Evidence, node: str) -> dict[int, NearPort]:
    """By number of the GPU. Raises CannotReadError where GPUs, adapters or their topology cannot be read."""
    up = {f"{a.name}:{p.number}": (a, p) for a, p in links_of(evidence, Subject(node)) if p.up}
    if not up:
        return {}
    evidence.nodes[node].records("rdma")  # without these, no rail is known
    topology = evidence.nodes[node].topology()
    rails = adapters_of(evidence.nodes[node], declared_rails(evidence, node))
    if not rails.of_gpus:
        return {}
    addresses = sorted(evidence.nodes[node].smi().by_address)
    if len(addresses) != rails.gpus:
        raise CannotReadError("nvidia-smi lists other GPUs than its topology shows")
    found = {}
    for number, (address, gpu) in enumerate(zip(addresses, topology.gpus)):
        rail = number * len(rails.of_gpus) // rails.gpus
        link = up.get(rails.of_gpus[rail])
        place = number_of(evidence, node, address)
        if link is not None and place is not None:
            way = topology.connections[gpu][rails.columns[rail]]
            found[place] = NearPort(link, number, way in NEAR_GPU)
    return found


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """One GPU by its adapter."""
    if isinstance(port := _port_of(evidence, subject), Finding):
        return port
    if isinstance(answer := _answer(evidence, subject, port), Finding):
        return answer
    code, text, way = answer.get("exit_code"), str(answer.get("text") or ""), str(answer.get("way") or "")
    device = port.link[0].name
    if answer.get("device") != device:
        raise CannotReadError(f"the GPU was measured by {answer.get('device')}, not by {device}")
    if code != 0:
        because = f"{name_of(port.link)} with the GPU's memory by {way}: {failure_of(code, text)}"
        return failed(because, "no bandwidth", "GPUDirect RDMA", evidence={"log": text[-600:]})
    asked_for = PerftestRequest(device, (SIZE_BYTES,), gpu=port.number)
    gbps = parse_write_bandwidth(text, asked_for).rows[0].average_gbps
    figure = _figure(evidence, subject, port, gbps)
    more = {"port": name_of(port.link), "memory_by": way}
    if (why := str(answer.get("unpinned") or "")) and figure.floor and gbps / 8 < figure.floor.reference:
        return not_run(f"{gbps:g} Gb/s from a CPU that may be far: {why}", evidence=more)
    return Finding(Verdict.PASS, figures=(figure,), evidence=more)


def _port_of(evidence: Evidence, subject: Subject) -> NearPort | Finding:
    """The port that is next to the GPU; the finding if there is none, or nothing to ask of it."""
    if not evidence.nodes[str(subject.node)].rdma():
        return without_adapter(evidence, subject)
    driver = gpu_of(evidence, subject)
    if driver.mig == "Enabled":
        return not_applicable("MIG is on: perftest measures whole GPUs")
    if any(word in driver.model for word in WITHOUT_GPUDIRECT):
        return not_applicable(f"{driver.model} has no GPUDirect RDMA")
    port = _ports(evidence, str(subject.node)).get(int(subject.gpu or 0))
    return port or not_applicable("no RDMA port that is up is next to this GPU by nvidia-smi topo -m")


def _answer(evidence: Evidence, subject: Subject, port: NearPort) -> Mapping[str, Any] | Finding:
    """What the node's rank says of this GPU; the finding if it says nothing."""
    if (finding := failed_on(evidence, JOB, subject)) is not None:
        return finding
    ranks = ranks_of(outcome_of(evidence, JOB), str(subject.node))
    verdict = ranks[0].verdict or {}
    writes = verdict.get("writes")
    if not isinstance(writes, list) or not all(
        isinstance(verdict.get(key), str) for key in ("without", "unable")
    ):
        raise CannotReadError("the rank did not report what it measured")
    if verdict["without"]:
        return not_applicable(str(verdict["without"]), remedy=PERFTEST)
    if verdict["unable"]:
        return not_run(str(verdict["unable"]), remedy=WITH_CUDA)
    mine = [each for each in writes if isinstance(each, Mapping) and each.get("gpu") == port.number]
    if not mine:
        raise NotDoneError("it was not its turn before others took too long")
    if len(mine) != 1:
        raise CannotReadError(f"the rank names GPU {subject.gpu} {len(mine)} times")
    found: Mapping[str, Any] = mine[0]
    return found


def _figure(evidence: Evidence, subject: Subject, near: NearPort, gbps: float) -> Figure:
    """In GB/s, as all bandwidths are."""
    port, name = near.link[1], name_of(near.link)
    profile = evidence.profile(str(subject.node))
    of_gpu = pcie_gbps(profile.pcie.generation, profile.pcie.width) if profile is not None else None
    floors = FLOORS | (FLOORS_OF_H200 if "H200" in gpu_of(evidence, subject).model else {})
    part, source = floors.get(port.rate_gbps, (0.0, ""))
    floor = part * port.rate_gbps / 8
    holds = (
        near.near
        and floor
        and port.link_layer == "InfiniBand"
        and of_gpu is not None
        and floor <= OF_PCIE * of_gpu
    )
    return Figure(
        metric="gpudirect_write",
        measured=gbps / 8,
        unit="GB/s",
        method=METHOD,
        label=f"by {name}",
        ceiling=Limit(
            min(port.rate_gbps / 8, of_gpu or port.rate_gbps),
            f"rate of the port, {port.rate_gbps:g} Gb/s, and the GPU's PCIe link",
            "what the links carry",
            ABOVE_CEILING,
        ),
        floor=Limit(floor, source, METHOD) if holds else None,
        nominal=port.rate_gbps / 8,
        effect=effect("rdma"),
        conditions={"port": name, "rate_gbps": f"{port.rate_gbps:g}"},
    )


def _of(gpu: int, **answer: Any) -> seeding.Inject:
    """What gpu02 says of one GPU."""

    def change(rank: RankOutcome, verdict: seeding.Raw) -> None:
        if rank.node == "gpu02":
            verdict["writes"][gpu].update(answer)

    return seeding.verdicts(JOB, change)


def _at(gpu: int, gbps: float) -> seeding.Inject:
    return _of(gpu, text=gpu_text(f"mlx5_{gpu // 4}", gbps, gpu))


def _in_host_memory(evidence: Evidence) -> Evidence:
    """perftest that measured the host's memory, whatever it was asked for."""
    text = gpu_text("mlx5_0", GBPS["mlx5_0"], 2).partition("allocated GPU")
    return _of(2, text=f"{text[0]}{text[2].partition(chr(10))[2]}")(evidence)


def _no_adapters(evidence: Evidence) -> Evidence:
    empty: seeding.Raw = {"devices": [], "left_out": []}
    return seeding.chain(
        *(seeding.edit(node, lambda raw: raw["infiniband"].update(empty)) for node in evidence.nodes)
    )(evidence)


def _scale(_metric: str, factors: Mapping[Subject, float]) -> seeding.Inject:
    """A node's one rank says it of all its GPUs."""

    def change(rank: RankOutcome, verdict: seeding.Raw) -> None:
        for each in verdict["writes"]:
            if (factor := factors.get(Subject(rank.node, each["gpu"]))) is not None:
                each["text"] = seeding_figures.scale_write_text(each["text"], factor)

    return seeding.verdicts(JOB, change, factors)


_GPU = Subject("gpu02", 2)
CHECK = Check(
    id="gpudirect-write",
    title="RDMA, GPU memory",
    section=Section.COLLECTIVES,
    scope=Scope.LINK,
    measures="bandwidth of the RDMA port next to each GPU out of and into that GPU's memory",
    method=METHOD,
    requires="an RDMA port that is up next to the GPU, perftest built with CUDA in the training image, "
    "nvidia_peermem or DMA-BUF, /dev/infiniband in containers",
    expectation="GPU memory can be registered; InfiniBand HDR reaches 90 % of its rate, NDR 400 95 % "
    "(beside H200 90 %); other ports have no floor with a source: not behind equal GPUs, nor behind itself "
    "when it was good; never above the port's rate",
    remedy="Compare with host memory (rdma-loopback): if only GPU memory is slow or refused, load "
    "nvidia_peermem or use the open driver (DMA-BUF), switch off ACS and the IOMMU between GPU and adapter "
    "(pcie-acs, iommu), and see the GPU's PCIe link (pcie-link).",
    subjects=every_gpu,
    judge=judge,
    job=JOB,
    scale=_scale,
    faults=(
        SeededFault("just-below-the-floor", _at(2, 0.95 * 180.0), _GPU),
        SeededFault("gpudirect-lost", _at(2, 10.0), _GPU),
        SeededFault("too-fast", _at(2, 1.05 * 1.02 * 200.0), _GPU, Verdict.NOT_RUN),
        SeededFault("refused", _of(2, exit_code=1, text="Couldn't allocate MR\nfailed to create mr\n"), _GPU),
        SeededFault("does-not-end", _of(2, exit_code=None), _GPU),
        SeededFault("cut-off", _of(2, text=gpu_text("mlx5_0", 196.0, 2)[:500]), _GPU, Verdict.NOT_RUN),
        SeededFault("in-host-memory", _in_host_memory, _GPU, Verdict.NOT_RUN),
        SeededFault(
            "perftest-without-cuda",
            seeding.all_say(JOB, unable="this ib_write_bw was built without CUDA", writes=[]),
            _GPU,
            Verdict.NOT_RUN,
        ),
        SeededFault(
            "no-perftest",
            seeding.all_say(JOB, without="the image has no ib_write_bw"),
            _GPU,
            Verdict.EXCLUDED,
        ),
        SeededFault("no-adapter", _no_adapters, _GPU, Verdict.EXCLUDED),
        SeededFault(
            "rank-crashes", seeding.rank(JOB, "gpu02", RankState.CRASHED, "killed by signal 9"), _GPU
        ),
        SeededFault("not-run", lambda e: seeding.without_job(e, JOB), _GPU, Verdict.NOT_RUN),
    ),
)
