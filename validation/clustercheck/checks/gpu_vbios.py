"""Do equal GPUs run the same VBIOS?"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

from clustercheck.checks.base import Check, Finding, SeededFault, every_gpu, failed, not_applicable, passed
from clustercheck.checks.support import seeding
from clustercheck.checks.support.gpu import gpu_of
from clustercheck.evidence.cluster import Evidence
from clustercheck.expect.votes import count_votes, find_majority
from clustercheck.model import Scope, Section, Severity, Subject, Verdict
from clustercheck.parse.nvidia_smi import SmiGpu, plain_model
from clustercheck.parse.reading import CannotReadError


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """What more than half of the votes are for is right, one for each node that has GPUs of its model, shared
    by these; without such a majority nobody can tell.
    """
    gpu = gpu_of(evidence, subject)
    version = version_of(gpu)
    counts, usual = evidence.once(_versions)[plain_model(gpu.model)]
    total = sum(counts.values())
    if total < 2:
        return not_applicable("no other GPU of its model tells its VBIOS: nothing to compare with")
    more = {"model": gpu.model, "versions": dict(counts)}
    if usual is None:
        others = " and ".join(sorted(set(counts) - {version}))
        because = f"VBIOS {version} here and {others} on equal GPUs: cannot determine which is intended"
        return failed(because, version, "one for all", evidence=more)
    if version != usual:
        because = f"VBIOS {version}, and {usual} on {counts[usual]} of {total} GPUs of this model"
        return failed(because, version, usual, evidence=more)
    return passed(version, usual, evidence=more)


def version_of(gpu: SmiGpu) -> str:
    """The version. Raises CannotReadError where the driver does not tell it."""
    if gpu.vbios in ("", "N/A"):
        raise CannotReadError(f"the VBIOS is {gpu.vbios or 'not printed'}")
    return gpu.vbios


def _versions(evidence: Evidence) -> Mapping[str, tuple[Counter[str], str | None]]:
    """By model: how many GPUs run which version, on all nodes whose driver answers, and the usual one."""
    found: dict[str, list[Counter[str]]] = defaultdict(list)
    for node in evidence.reachable:
        try:
            gpus = evidence.nodes[node].smi().gpus
        except CannotReadError:
            continue
        here: dict[str, Counter[str]] = defaultdict(Counter)
        for gpu in gpus:
            if gpu.vbios not in ("", "N/A"):
                here[plain_model(gpu.model)][gpu.vbios] += 1
        for model, counts in here.items():
            found[model].append(counts)
    return {
        model: (sum(nodes, Counter[str]()), find_majority(count_votes(nodes)))
        for model, nodes in found.items()
    }


_SMI = seeding.smi


def _half_have(version: str) -> seeding.Inject:
    """Twelve of the sample's 24 GPUs."""
    places = [("gpu01", gpu) for gpu in range(8)] + [("gpu02", gpu) for gpu in range(4)]
    return seeding.chain(*(_SMI(node, gpu, "vbios_version", version) for node, gpu in places))


CHECK = Check(
    id="gpu-vbios",
    title="VBIOS alike",
    section=Section.DRIVER,
    scope=Scope.GPU,
    severity=Severity.MINOR,
    measures="the version of each GPU's VBIOS",
    method="nvidia-smi -q -x, vbios_version, compared with all GPUs of the same model",
    requires="a second GPU of the same model",
    expectation="as on more than half of the GPUs of its model, each node with one vote; without such a "
    "majority all differ",
    remedy="Bring all boards to one version with the server maker's firmware bundle (clocks, power and "
    "error handling are the VBIOS's); a single board that differs has often been replaced: ask for the "
    "update with it.",
    subjects=every_gpu,
    judge=judge,
    faults=(
        SeededFault("no-majority", _half_have("92.00.36.00.04"), Subject("gpu01", 0)),
        SeededFault(
            "vbios-differs", _SMI("gpu02", 3, "vbios_version", "92.00.19.00.01"), Subject("gpu02", 3)
        ),
        SeededFault(
            "half-and-half",
            seeding.chain(
                *(
                    _SMI(node, gpu, "vbios_version", "92.00.19.00.01")
                    for node, gpus in (("gpu01", range(8)), ("gpu02", range(4)))
                    for gpu in gpus
                )
            ),
            Subject("gpu03", 0),
        ),
        SeededFault(
            "vbios-not-told", _SMI("gpu01", 2, "vbios_version", None), Subject("gpu01", 2), Verdict.NOT_RUN
        ),
    ),
)
