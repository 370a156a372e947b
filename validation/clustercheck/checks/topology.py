"""Does the driver reach each GPU over all of its NVLinks, where a switch joins them all?"""

from __future__ import annotations

from clustercheck.checks import seeding
from clustercheck.checks.base import Check, Fault, Finding, bad, every_gpu, excluded, good
from clustercheck.checks.of_gpu import gpu_of
from clustercheck.evidence import Evidence
from clustercheck.model import Scope, Subject, Verdict
from clustercheck.parse.reading import CannotReadError


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """A GPU most of whose connections lack links is the fault; one with a single poor peer is not."""
    name = str(subject.node)
    profile = evidence.profile(name)
    if profile is None or profile.nvlink is None or not profile.nvswitches:
        return excluded("the hardware profile names no NVSwitch that joins all GPUs")
    gpu = gpu_of(evidence, subject)
    if gpu.mig == "Enabled":
        return excluded("MIG is on, which switches NVLink off")
    matrix = evidence.nodes[name].topology()
    mine, links = f"GPU{gpu.index}", profile.nvlink.links
    if mine not in matrix.gpus:
        raise CannotReadError(f"nvidia-smi topo -m does not list {mine}")
    peers = [other for other in matrix.gpus if other != mine]
    poor = {other: matrix.connections[mine][other] for other in peers if matrix.nvlinks(mine, other) < links}
    expected, more = f"NV{links} to every GPU", {"peers": len(peers), "poor": poor}
    if poor and 2 * len(poor) > len(peers):
        said = ", ".join(sorted(set(poor.values())))
        return bad(f"{said} to {len(poor)} of {len(peers)} GPUs", said, expected, evidence=more)
    return good(f"NV{links}", expected, source=profile.nvlink.source, evidence=more)


def _behind_pcie(raw: seeding.Raw) -> None:
    lines = raw["topology"]["stdout"].split("\n")
    lines[3] = lines[3].replace("NV12", "SYS")
    raw["topology"]["stdout"] = "\n".join(lines)


CHECK = Check(
    id="gpu-topology",
    title="GPU topology",
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
        Fault("gpu-behind-pcie", seeding.edit("gpu02", _behind_pcie), Subject("gpu02", 2)),
        Fault(
            "matrix-cut-off",
            seeding.stdout("gpu01", "topology", "GPU7\tNV12\tNV12", "GPU7\tNV12"),
            Subject("gpu01", 0),
            Verdict.NOT_RUN,
        ),
    ),
)
