"""A GPU that is gone is that GPU's fault: no other check turns it into one of the node."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clustercheck.checks.all import BY_ID, CHECKS
from clustercheck.checks.base import evaluate, every_gpu_node
from clustercheck.checks.support import seeding
from clustercheck.evidence.cluster import Evidence
from clustercheck.expect.baseline import Baseline, BaselineGpu, BaselineNode
from clustercheck.locate.culprits import find_culprits
from clustercheck.model import Culprit, Result, Scope, Subject, Verdict
from clustercheck.samples import sample

REFUSED = (
    "docker: Error response from daemon: error gathering device information while adding custom device "
    '"/dev/nvidia3": no such file or directory'
)
LOST = "Unable to determine the device handle for GPU3: 0000:4E:00.0: GPU is lost.  Reboot the system"


def judged(evidence: Evidence) -> list[Result]:
    checks = [check for check in CHECKS if check.scope in (Scope.HOST, Scope.GPU) and not check.job]
    return [result for check in checks for result in evaluate(check, evidence)]


def culprits(evidence: Evidence) -> list[Culprit]:
    return find_culprits(judged(evidence), None, group_is_slow=False)


def refused(raw: seeding.Raw) -> None:
    for part in ("container_gpus", "container_gpus_as_user"):
        raw[part].update(rc=125, stdout="", stderr=REFUSED)


def seven_of_eight(raw: seeding.Raw) -> None:
    """As nvidia-smi -L in a container says it beside a lost GPU."""
    lines = raw["container_gpus"]["stdout"].splitlines(keepends=True)
    for part in ("container_gpus", "container_gpus_as_user"):
        raw[part].update(rc=15, stdout="".join([*lines[:3], f"{LOST}\n", *lines[4:]]))


@pytest.mark.parametrize("said", [refused, seven_of_eight])
@pytest.mark.parametrize(
    "fault",
    [seeding.lose_gpu("gpu02", 3, from_bus=True), seeding.lose_gpu("gpu02", 3, from_bus=False),
     seeding.smi("gpu02", 3, "serial", "GPU is lost"), seeding.fall_off_bus("gpu02", 3)],
    ids=["gone", "gone from the driver", "lost", "fell off"],
)  # fmt: skip
def test_the_gpu_is_named_and_the_node_is_not(fault: seeding.Inject, said: object) -> None:
    evidence = seeding.chain(fault, seeding.edit("gpu02", said))(sample.healthy())  # type: ignore[arg-type]
    assert {(culprit.node, culprit.gpu) for culprit in culprits(evidence)} == {("gpu02", 3)}
    (containers,) = [
        one for one in judged(evidence) if one.check == "container-gpus" and one.subject.node == "gpu02"
    ]
    assert containers.verdict in (Verdict.NOT_RUN, Verdict.PASS)
    if said is refused:
        assert containers.because.startswith("GPU 3 is gone or lost") and "gpu-present" in containers.remedy


def test_a_gpu_that_containers_lack_beside_a_gone_one_is_the_runtimes() -> None:
    def without_the_last(raw: seeding.Raw) -> None:
        lines = raw["container_gpus"]["stdout"].splitlines(keepends=True)
        raw["container_gpus"]["stdout"] = "".join([*lines[:3], *lines[4:-1]])

    lost = seeding.lose_gpu("gpu02", 3, from_bus=True)
    evidence = seeding.chain(lost, seeding.edit("gpu02", without_the_last))(sample.healthy())
    found = {(culprit.node, culprit.gpu): culprit for culprit in culprits(evidence)}
    assert set(found) == {("gpu02", None), ("gpu02", 3)}
    assert "without GPU 7" in found["gpu02", None].because


def test_a_refusal_with_all_gpus_there_is_the_runtimes() -> None:
    evidence = seeding.edit("gpu02", refused)(sample.healthy())
    assert {(culprit.node, culprit.gpu) for culprit in culprits(evidence)} == {("gpu02", None)}


@pytest.mark.parametrize(("count", "asked"), [(0, False), (None, True), (8, True)])
def test_a_node_that_is_away_has_gpus_unless_it_is_declared_to_have_none(
    count: int | None, *, asked: bool
) -> None:
    evidence = seeding.unreachable("gpu02")(sample.healthy())
    nodes = tuple(
        replace(node, gpu_count=count, profile="") if node.name == "gpu02" else node
        for node in evidence.spec.nodes
    )
    evidence = replace(evidence, spec=replace(evidence.spec, nodes=nodes))
    assert (Subject("gpu02") in every_gpu_node(evidence)) is asked


def moved(raw: seeding.Raw) -> None:
    """A whole node that lists its first GPU at another address than all others."""
    next(device for device in raw["pci"] if device["class"].startswith("0x0302"))["address"] = "0000:01:00.0"


LIES = seeding.edit("gpu03", moved)
HAD = {"gpu02": BaselineNode(gpus=dict.fromkeys(sample.healthy().slots("gpu02"), BaselineGpu()))}


@pytest.mark.parametrize(
    ("nodes", "known", "gone"), [(3, False, 7), (3, True, 0), (4, False, 0), (4, True, 0)]
)
def test_one_node_does_not_number_the_gpus_of_another_that_lost_one(
    nodes: int, gone: int, *, known: bool
) -> None:
    """More than half of the whole ones do, or the node's own baseline; else its place is not known."""
    evidence = seeding.chain(seeding.lose_gpu("gpu02", 0, from_bus=True), LIES)(sample.healthy(nodes))
    if known:
        then = Baseline("r1", "2026-11-01T00:00:00Z", False, {}, HAD)
        evidence = replace(evidence, baseline=then)
    results = evaluate(BY_ID["gpu-present"], evidence)
    assert [r.subject.gpu for r in results if r.verdict is Verdict.FAIL and r.subject.node == "gpu02"] == [
        gone
    ]
    assert "0000:01:00.0" not in evidence.slots("gpu02")
    honest = [result for result in judged(LIES(sample.healthy(nodes))) if result.subject.node == "gpu01"]
    assert {result.verdict for result in honest} <= {Verdict.PASS, Verdict.EXCLUDED}
