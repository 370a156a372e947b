"""Is each GPU of the declared model?"""

from __future__ import annotations

from clustercheck.checks.base import Check, Finding, SeededFault, every_gpu, failed, not_applicable, passed
from clustercheck.checks.support import seeding
from clustercheck.checks.support.gpu import gpu_of
from clustercheck.evidence.cluster import Evidence
from clustercheck.model import Scope, Section, Severity, Subject
from clustercheck.parse.nvidia_smi import plain_model


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """The model's name as the driver prints it, against the inventory, else against the profile."""
    node = str(subject.node)
    gpu = gpu_of(evidence, subject)
    declared, profile = evidence.declared[node].gpu_model, evidence.profile(node)
    allowed = (declared,) if declared else profile.gpu_models if profile else ()
    more = {"address": gpu.address, "serial": gpu.serial, "vbios": gpu.vbios}
    if not allowed:
        return not_applicable(
            "neither a model nor a profile is declared for this node", measured=gpu.model, evidence=more
        )
    expected = " or ".join(allowed)
    if plain_model(gpu.model) not in map(plain_model, allowed):
        return failed(f"it is a {gpu.model}", gpu.model, expected, evidence=more)
    return passed(gpu.model, expected, evidence=more)


CHECK = Check(
    id="gpu-model",
    title="GPU model",
    section=Section.DRIVER,
    scope=Scope.GPU,
    severity=Severity.CRITICAL,
    measures="the model's name of each GPU",
    method="nvidia-smi -q -x, product_name",
    requires="the NVIDIA driver",
    expectation="hardware_gpu_model, else a model of the hardware profile",
    remedy="Correct the inventory if it is wrong; otherwise this GPU is not the ordered model.",
    subjects=every_gpu,
    judge=judge,
    faults=(
        SeededFault(
            "wrong-model",
            seeding.smi("gpu01", 2, "product_name", "NVIDIA A100-SXM4-40GB"),
            Subject("gpu01", 2),
        ),
    ),
)
