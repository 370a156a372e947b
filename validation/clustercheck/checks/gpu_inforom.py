"""Can each GPU's InfoROM be read: the board's memory of its configuration and of its errors?"""

from __future__ import annotations

from clustercheck.checks.base import Check, Finding, SeededFault, every_gpu, failed, not_applicable, passed
from clustercheck.checks.support import seeding
from clustercheck.checks.support.gpu import gpu_of
from clustercheck.evidence.cluster import Evidence
from clustercheck.model import Scope, Section, Subject, Verdict
from clustercheck.parse.reading import CORRUPT_INFOROM, CannotReadError

SOURCE = "NVIDIA/DCGM, DcgmHealthWatch, DCGM_FR_CORRUPT_INFOROM"


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """nvidia-smi warns of one that is corrupted; its versions are told where it is not."""
    gpu = gpu_of(evidence, subject)
    versions = {name: value for name, value in (gpu.inforom or {}).items() if value not in ("", "N/A")}
    corrupted = [name for name, value in versions.items() if "corrupt" in value.lower()]
    if gpu.corrupt_inforom or corrupted:
        where = f" ({', '.join(corrupted)})" if corrupted else ""
        because = f"the InfoROM is corrupted{where}: the board no longer records its errors and repairs"
        return failed(because, "corrupted", "can be read", source=SOURCE, evidence=versions)
    if gpu.inforom is None:
        raise CannotReadError("the versions of the InfoROM are not printed")
    if not versions:
        return not_applicable("this GPU reports no InfoROM")
    return passed(versions.get("img_version", "can be read"), "can be read", source=SOURCE, evidence=versions)


def _warned(node: str, address: str) -> seeding.Inject:
    """As nvidia-smi prints it, and how it ends."""

    def change(raw: seeding.Raw) -> None:
        raw["nvidia_smi"]["stdout"] += f"WARNING: {CORRUPT_INFOROM} at gpu {address}\n"
        raw["nvidia_smi"]["rc"] = 14

    return seeding.edit(node, change)


CHECK = Check(
    id="gpu-inforom",
    title="InfoROM",
    section=Section.GPU_STATE,
    scope=Scope.GPU,
    measures="whether the InfoROM of each GPU is whole, and its versions",
    method="nvidia-smi -q -x, inforom_version and its warning",
    requires="GPUs that report an InfoROM",
    expectation="no warning that it is corrupted",
    remedy="Drain the node and power-cycle it; if the warning stays, have the supplier write the InfoROM "
    "again or replace the GPU: until then it keeps no record of retired memory.",
    subjects=every_gpu,
    judge=judge,
    faults=(
        SeededFault("corrupted", _warned("gpu02", "0000:47:00.0"), Subject("gpu02", 2)),
        SeededFault(
            "corrupted-in-a-field",
            seeding.smi("gpu01", 6, "inforom_version/ecc_object", "Corrupted"),
            Subject("gpu01", 6),
        ),
        SeededFault(
            "not-told", seeding.smi("gpu03", 1, "inforom_version", None), Subject("gpu03", 1), Verdict.NOT_RUN
        ),
    ),
)
