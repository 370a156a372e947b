"""Does the driver reach each GPU over all of its NVLinks, where a switch joins them all?"""

from __future__ import annotations

from clustercheck.checks.base import Check, Finding, SeededFault, every_gpu, failed, not_applicable, passed
from clustercheck.checks.support import seeding
from clustercheck.checks.support.gpu import gpu_of
from clustercheck.evidence.cluster import Evidence
from clustercheck.model import Scope, Section, Subject, Verdict
from clustercheck.parse.reading import CannotReadError
from clustercheck.parse.topology import Topology


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """A GPU is not blamed for peers most of whose own connections lack links; for any other it is."""
    name = str(subject.node)
    profile = evidence.profile(name)
    if profile is None or profile.nvlink is None or not profile.switched:
        return not_applicable("the hardware profile names no NVSwitch that joins all GPUs")
    gpu = gpu_of(evidence, subject)
    if gpu.mig == "Enabled":
        return not_applicable("MIG is on, which switches NVLink off")
    matrix = evidence.nodes[name].topology()
    mine, links = f"GPU{gpu.index}", profile.nvlink.links
    if mine not in matrix.gpus:
        raise CannotReadError(f"nvidia-smi topo -m does not list {mine}")
    peers = [other for other in matrix.gpus if other != mine]
    if not peers:
        return not_applicable("the node has one GPU and no peers")
    poor = {other: matrix.connections[mine][other] for other in peers if matrix.nvlinks(mine, other) < links}
    expected, more = f"NV{links} to every GPU", {"peers": len(peers), "poor": poor}
    whole = not _is_poor(matrix, mine, links)
    guilty = [other for other in poor if not (whole and _is_poor(matrix, other, links))]
    if guilty:
        message = ", ".join(sorted({poor[other] for other in guilty}))
        which = f"{len(guilty)} of {len(peers)} GPUs ({', '.join(guilty)})"
        return failed(f"{message} to {which}", message, expected, evidence=more)
    return passed(f"NV{links}", expected, source=profile.nvlink.source, evidence=more)


def _is_poor(matrix: Topology, gpu: str, links: int) -> bool:
    """Whether most of its connections lack links: then it is the fault, and not its peers."""
    peers = [other for other in matrix.gpus if other != gpu]
    return 2 * sum(matrix.nvlinks(gpu, other) < links for other in peers) > len(peers)


def _one_pair(raw: seeding.Raw) -> None:
    lines = raw["topology"]["stdout"].split("\n")
    for row, column in ((1, 2), (2, 1)):
        cells = lines[row].split("\t")
        cells[column] = "SYS"
        lines[row] = "\t".join(cells)
    raw["topology"]["stdout"] = "\n".join(lines)


def _behind_pcie(raw: seeding.Raw) -> None:
    lines = raw["topology"]["stdout"].split("\n")
    lines[3] = lines[3].replace("NV12", "SYS")
    raw["topology"]["stdout"] = "\n".join(lines)


CHECK = Check(
    id="gpu-topology",
    title="GPU topology",
    section=Section.GPU_STATE,
    scope=Scope.LINK,
    measures="over how many NVLinks the driver reaches the other GPUs of the node",
    method="nvidia-smi topo -m",
    requires="GPUs joined by NVSwitches, MIG off",
    expectation="all NVLinks of the GPU, to every other GPU",
    remedy="Restart Fabric Manager, then reset the GPUs or reboot the node; see the NVLink check for "
    "links that are down.",
    subjects=every_gpu,
    judge=judge,
    faults=(
        SeededFault("gpu-behind-pcie", seeding.edit("gpu02", _behind_pcie), Subject("gpu02", 2)),
        SeededFault("one-pair-apart", seeding.edit("gpu01", _one_pair), Subject("gpu01", 0)),
        SeededFault(
            "matrix-cut-off",
            seeding.stdout("gpu01", "topology", "GPU7\tNV12\tNV12", "GPU7\tNV12"),
            Subject("gpu01", 0),
            Verdict.NOT_RUN,
        ),
    ),
)
