"""Whose values are the right ones: a node has one vote, however many ranks it claims."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import pytest

from clustercheck.checks.all import CHECKS
from clustercheck.checks.base import Check, evaluate
from clustercheck.checks.data_parallel import JOB, commonest_parameters
from clustercheck.checks.support import seeding
from clustercheck.checks.support.job import are_on_gpus, backend_of
from clustercheck.evidence.cluster import Evidence
from clustercheck.launch.model import JobOutcome, RankOutcome, RankState
from clustercheck.model import Verdict
from clustercheck.parse.reading import CannotReadError
from clustercheck.samples import sample
from clustercheck.samples.verdicts import all_reduce_verdict

HONEST = "a" * 64
OTHER = "f" * 64
TIMED = {
    "training-step": "step_trace",
    "inference-latency": "inference",
    "paddle-inference": "paddle_inference",
}


def with_ranks(parameters: dict[str, list[str]]) -> Evidence:
    """The healthy sample with these hashes of parameters, a rank each."""
    evidence = sample.healthy()
    outcome = evidence.jobs[JOB]
    like = outcome.ranks[0]
    ranks: list[RankOutcome] = []
    for node, hashes in parameters.items():
        for gpu, parameters_sha256 in enumerate(hashes):
            verdict = {**(like.verdict or {}), "parameters_sha256": parameters_sha256}
            ranks.append(replace(like, rank=len(ranks), node=node, gpu=gpu, verdict=verdict))
    return replace(evidence, jobs={**evidence.jobs, JOB: replace(outcome, ranks=tuple(ranks))})


def test_a_node_that_claims_64_ranks_does_not_outvote_three_others() -> None:
    evidence = with_ranks({"gpu01": [HONEST] * 8, "gpu02": [OTHER] * 64, "gpu03": [HONEST] * 8})
    assert commonest_parameters(evidence) == {HONEST}
    (check,) = (check for check in CHECKS if check.id == "data-parallel")
    verdicts = {result.subject.node: result.verdict for result in evaluate(check, evidence)}
    assert verdicts["gpu02"] is Verdict.FAIL
    assert Verdict.FAIL not in (verdicts["gpu01"], verdicts["gpu03"])


@pytest.mark.parametrize(
    ("parameters", "common"),
    [
        ({"gpu01": [HONEST] * 7 + [OTHER]}, {HONEST}),
        ({"gpu01": [HONEST, OTHER]}, {HONEST, OTHER}),
        ({"gpu01": ["b" * 64, HONEST, OTHER]}, set()),
        ({"gpu01": [HONEST] * 8, "gpu02": [HONEST] * 4 + [OTHER] * 4}, {HONEST}),
        ({"gpu01": [HONEST] * 8, "gpu02": [OTHER] * 64}, {HONEST, OTHER}),
        ({"gpu01": [HONEST] * 8, "gpu02": [""] * 8}, {HONEST}),
        ({"gpu01": [""], "gpu02": [""]}, set()),
    ],
)
def test_the_commonest_parameters(parameters: dict[str, list[str]], common: set[str]) -> None:
    assert commonest_parameters(with_ranks(parameters)) == common


@pytest.mark.parametrize(
    ("job", "identity", "lie"),
    [
        ("training_paddle", "training-numerics", {"parameters_sha256": OTHER}),
        ("inference", "inference-latency", {"output_mean": 7.0}),
    ],
)
def test_nor_on_what_models_compute(job: str, identity: str, lie: dict[str, object]) -> None:
    evidence = sample.healthy()
    outcome = evidence.jobs[job]
    liar = next(rank for rank in outcome.ranks if rank.node == "gpu02")
    told = {**(liar.verdict or {}), "cases": [{**case, **lie} for case in (liar.verdict or {})["cases"]]}
    others = [rank for rank in outcome.ranks if rank.node != "gpu02"]
    many = [replace(liar, rank=100 + gpu, gpu=gpu, verdict=told) for gpu in range(64)]
    changed = replace(outcome, ranks=(*others, *many))
    (check,) = (check for check in CHECKS if check.id == identity)
    results = evaluate(check, replace(evidence, jobs={**evidence.jobs, job: changed}))
    verdicts = {result.subject.node: result.verdict for result in results}
    assert verdicts["gpu02"] is Verdict.FAIL
    assert Verdict.FAIL not in (verdicts["gpu01"], verdicts["gpu03"])


NASTY: tuple[Any, ...] = (None, True, -1, 0, 1e308, 2**64, float("nan"), "", "x", "NaN", [], {}, [[]])
GONE = object()
TRIED = 25  # nasty reports of each job
SAYS = re.compile("(gpu02|the job failed: no rank reported why)")
# Of these a node's word is about the ways to others as well: what they are told of it names the node.
OF_WAYS = {"peer-ports", "pair-bandwidth"}


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path to the parts of a report; of a list those of its first and last."""
    inside: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        inside = list(value.items())
    elif isinstance(value, list) and value:
        inside = list({0: value[0], len(value) - 1: value[-1]}.items())
    for key, part in inside:
        yield (*path, key)
        yield from places(part, (*path, key))


def spoilt(verdict: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    whole = copy.deepcopy(verdict)
    inside: Any = whole
    for key in path[:-1]:
        inside = inside[key]
    if value is GONE:
        del inside[path[-1]]
    else:
        inside[path[-1]] = value
    return whole


def reports(verdict: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Nasty reports: some of all, evenly taken, and always a few that are nothing at all."""
    every = [(path, value) for path in places(verdict) for value in (*NASTY, GONE)]
    some = every[:: max(1, len(every) // TRIED)]
    return [
        ("nothing", {}),
        ("other names", {"x": 1}),
        *((f"{path} = {value!r:.20}", spoilt(verdict, path, value)) for path, value in some),
    ]


def told(check: Check, evidence: Evidence) -> dict[Any, tuple[Verdict, str]]:
    return {
        result.subject: (result.verdict, result.because)
        for result in evaluate(check, evidence)
        if result.subject.node not in (None, "gpu02") and result.subject.peer != "gpu02"
    }


@pytest.mark.parametrize("job", sorted({check.job for check in CHECKS if check.job}))
def test_what_one_node_reports_changes_no_verdict_of_the_others(job: str) -> None:
    healthy = sample.healthy()
    outcome = healthy.jobs[job]
    honest = next(dict(rank.verdict or {}) for rank in outcome.ranks if rank.node == "gpu02")
    checks = [check for check in CHECKS if check.job == job]
    reference = {check.id: told(check, healthy) for check in checks}
    for name, report in reports(honest):
        require_same(checks, with_report(healthy, job, report), reference, f"{job}: {name}")


def with_report(healthy: Evidence, job: str, report: dict[str, Any]) -> Evidence:
    """The healthy sample where all ranks of gpu02 report this."""
    outcome = healthy.jobs[job]
    ranks = tuple(replace(rank, verdict=report) if rank.node == "gpu02" else rank for rank in outcome.ranks)
    return replace(healthy, jobs={**healthy.jobs, job: replace(outcome, ranks=ranks)})


def require_same(
    checks: Sequence[Check],
    evidence: Evidence,
    reference: Mapping[str, dict[Any, tuple[Verdict, str]]],
    name: str,
) -> None:
    for check in checks:
        found = told(check, evidence)
        assert found.keys() >= reference[check.id].keys() or check.id in OF_WAYS, (name, check.id)
        for subject, (verdict, because) in found.items():
            is_same = (verdict, because) == reference[check.id].get(subject)
            assert is_same or (check.id in OF_WAYS and SAYS.search(because)), (
                name,
                check.id,
                subject,
                because,
            )
        own = [result for result in evaluate(check, evidence) if result.subject.node == "gpu02"]
        assert not any("the check itself failed" in result.because for result in own), (name, check.id)


@pytest.mark.parametrize(
    ("job", "identity", "change"),
    [
        ("paddle_launch", "paddle-launch", {"trainers": []}),
        ("paddle_launch", "paddle-launch", {"trainers": None}),
        ("paddle_launch", "paddle-launch", {"all_processes": 2}),
        ("paddle_launch", "paddle-launch", {"samples": 7}),
        ("paddle_launch", "paddle-launch", {"epochs": 2**64}),
        ("inference", "inference-latency", {"backend": "x"}),
        ("paddle_inference", "paddle-inference", {"backend": None}),
        ("paddle_inference", "paddle-inference", {"cases": [{"model": "ocr_det", "p50_s": 2**64}]}),
        ("peer_ports", "peer-ports", {"reached": {"0": 7}}),
        ("peer_ports", "peer-ports", {"reached": {"99": ""}}),
    ],
)
def test_nonsense_is_that_nodes_alone(job: str, identity: str, change: dict[str, Any]) -> None:
    healthy = sample.healthy()
    honest = next(dict(rank.verdict or {}) for rank in healthy.jobs[job].ranks if rank.node == "gpu02")
    (check,) = (check for check in CHECKS if check.id == identity)
    found = {r.subject.node: r for r in evaluate(check, with_report(healthy, job, {**honest, **change}))}
    assert {found[node].verdict for node in ("gpu01", "gpu03")} == {Verdict.PASS}
    assert found["gpu02"].verdict in (Verdict.FAIL, Verdict.NOT_RUN)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"losses": [0.5, 1e308]}, "did not report all of their training"),
        ({"losses": [0.5, 2**64]}, "did not report all of their training"),
        ({"losses": [0.5, float("nan")]}, "did not report all of their training"),
        ({"seen": [[0] * 9, [0] * 9]}, "it trained on 9 samples in epoch 1, 5 expected"),
        ({"seen": [[-1, 10**9, 1, 2, 3]] * 2}, "samples in epoch 1 that there are not (2)"),
    ],
)
def test_what_its_processes_say_of_their_training_is_that_nodes_alone(
    change: dict[str, Any], said: str
) -> None:
    healthy = sample.healthy()
    ranks = healthy.jobs["paddle_launch"].ranks
    honest = next(dict(rank.verdict or {}) for rank in ranks if rank.node == "gpu02")
    lies = {**honest, "trainers": [{**trainer, **change} for trainer in honest["trainers"]]}
    (check,) = (check for check in CHECKS if check.id == "paddle-launch")
    found = {r.subject.node: r for r in evaluate(check, with_report(healthy, "paddle_launch", lies))}
    assert {found[node].verdict for node in ("gpu01", "gpu03")} == {Verdict.PASS}
    assert said in found["gpu02"].because


def verdicts_of_others(check: str, evidence: Evidence) -> set[Verdict]:
    (found,) = (each for each in CHECKS if each.id == check)
    return {result.verdict for result in evaluate(found, evidence) if result.subject.node != "gpu03"}


def test_a_node_that_lists_48_gpus_does_not_say_which_vbios_is_right() -> None:
    def many(root: ElementTree.Element) -> None:
        for gpu in root.findall("gpu"):
            seeding_text(gpu, "vbios_version", "66.66.66.66.66")
            for number in range(1, 6):
                more = copy.deepcopy(gpu)
                address = f"{number:08X}:{str(gpu.get('id')).partition(':')[2]}"
                more.set("id", address)
                seeding_text(more, "pci/pci_bus_id", address)
                seeding_text(more, "uuid", f"{gpu.findtext('uuid')}-{number}")
                root.append(more)
        seeding_text(root, "attached_gpus", "48")

    lying = seeding.smi_root("gpu03", many)(sample.healthy())
    assert len(lying.nodes["gpu03"].smi().gpus) == 48
    assert verdicts_of_others("gpu-vbios", lying) == {Verdict.PASS}
    (check,) = (each for each in CHECKS if each.id == "gpu-vbios")
    own = [result for result in evaluate(check, lying) if result.subject.node == "gpu03"]
    assert {result.verdict for result in own} == {Verdict.FAIL}


def seeding_text(element: ElementTree.Element, path: str, text: str) -> None:
    found = element.find(path)
    assert found is not None
    found.text = text


@pytest.mark.parametrize(
    ("check", "firmware", "ports"),
    [("infiniband-firmware", "20.99.9999", 1), ("infiniband-port", "20.43.2026", 29)],
)
def test_nor_which_firmware_and_rate_equal_adapters_have(check: str, firmware: str, ports: int) -> None:
    def many(raw: dict[str, Any]) -> None:
        devices = raw["infiniband"]["devices"]
        like = devices[0]
        fast = [
            {**like["ports"][0], "port": str(port), "rate": "400 Gb/sec (4X NDR)"}
            for port in range(1, ports + 1)
        ]
        for number in range(64 - len(devices)):
            address = {"name": f"mlx5_{100 + number}", "address": f"0001:{number:02x}:00.0"}
            devices.append({**copy.deepcopy(like), **address, "fw_ver": firmware, "ports": fast})

    assert verdicts_of_others(check, seeding.edit("gpu03", many)(sample.healthy())) == {Verdict.PASS}


@pytest.mark.parametrize("liar", ["gpu01", "gpu02", "gpu03"])
@pytest.mark.parametrize("backend", ["nccl", "gloo", "", None, [], "x" * 99])
@pytest.mark.parametrize(
    ("check", "job"),
    [
        ("pair-bandwidth", "pairs"), ("pair-bandwidth", "all_reduce"), ("all-reduce-bandwidth", "all_reduce"),
        ("all-gather-bandwidth", "collectives"),
    ],
)  # fmt: skip
def test_over_what_a_node_says_that_ranks_met_changes_no_result(
    liar: str, backend: Any, check: str, job: str
) -> None:
    """Nor which sizes it names: it is the first node whose word once counted."""

    def lies(rank: RankOutcome, verdict: seeding.Raw) -> None:
        if rank.node == liar:
            verdict["backend"] = backend
            for trial in verdict.get("trials", ()):
                trial["bytes"] = 7

    (found,) = (each for each in CHECKS if each.id == check)
    healthy = sample.healthy()
    lying = seeding.verdicts(job, lies)(healthy)
    assert evaluate(found, lying) == evaluate(found, healthy)
    assert are_on_gpus(lying.jobs[job]) is are_on_gpus(healthy.jobs[job])


@pytest.mark.parametrize("gpus", [(2, 2, 8), (8, 8), (1, 8)])
@pytest.mark.parametrize("slow", [1.0, 0.05])
@pytest.mark.parametrize("named", [(), ((1 << 30) + 4,)])
def test_which_sizes_the_node_with_most_ranks_names_changes_no_result(
    gpus: tuple[int, ...], slow: float, named: tuple[int, ...]
) -> None:
    """Nor does one of two hide a slow size by naming another one."""
    healthy = sample.healthy(len(gpus))
    counts = dict(zip(healthy.nodes, gpus, strict=True))
    liar = list(counts)[-1]
    nodes = tuple(replace(n, gpu_count=counts[n.name], profile="") for n in healthy.spec.nodes)
    bare = replace(healthy, spec=replace(healthy.spec, nodes=nodes))

    def group(*, lies: bool) -> Evidence:
        ranks: list[RankOutcome] = []
        for node, count in counts.items():
            for gpu in range(count):
                verdict = {
                    **all_reduce_verdict(len(ranks), sum(gpus), (16 << 20, 1 << 30), slow * 32.0),
                    "backend": "nccl",
                }
                if lies and node == liar:
                    points = all_reduce_verdict(len(ranks), sum(gpus), (16 << 20, *named), 40.0)["points"]
                    verdict["points"] = points
                ranks.append(RankOutcome(len(ranks), node, RankState.OK, gpu=gpu, verdict=verdict))
        return seeding.with_job(bare, JobOutcome("all_reduce", tuple(ranks), 5.0))

    check = next(each for each in CHECKS if each.id == "all-reduce-bandwidth")
    (honest,), (lying,) = evaluate(check, group(lies=False)), evaluate(check, group(lies=True))
    assert lying.verdict is honest.verdict is (Verdict.PASS if slow == 1.0 else Verdict.FAIL)


@pytest.mark.parametrize(("identity", "job"), TIMED.items())
@pytest.mark.parametrize("counts", [(2, 2, 8), (8, 8, 56)])
def test_a_node_with_more_ranks_than_all_others_does_not_say_how_long_a_step_takes(
    identity: str, job: str, counts: tuple[int, ...]
) -> None:
    """More GPUs are declared of it, or its GPUs are split (MIG)."""
    healthy = sample.healthy()
    gpus = dict(zip(healthy.nodes, counts, strict=True))
    like, ranks = healthy.jobs[job].ranks[0], list[RankOutcome]()
    for node, count in gpus.items():
        for gpu in range(count):
            verdict = {**copy.deepcopy(dict(like.verdict or {})), "backend": "nccl"}
            for timed in verdict.get("cases", [verdict]) if node == "gpu03" else ():
                timed.update({key: 0.4 * timed[key] for key in ("median_s", "p50_s") if key in timed})
            ranks.append(replace(like, rank=len(ranks), node=node, gpu=gpu, verdict=verdict))
    nodes = tuple(replace(n, gpu_count=min(8, gpus[n.name]), profile="") for n in healthy.spec.nodes)
    lying = replace(healthy, spec=replace(healthy.spec, nodes=nodes))
    lying = seeding.with_job(lying, replace(healthy.jobs[job], ranks=tuple(ranks)))
    check = next(each for each in CHECKS if each.id == identity)
    assert {result.verdict for result in evaluate(check, lying)} == {Verdict.PASS}


def test_where_no_backend_has_most_votes_the_launcher_says_which_it_was() -> None:
    outcome = sample.healthy(2).jobs["all_reduce"]
    differ = {"gpu01": "gloo", "gpu02": "nccl"}
    ranks = tuple(
        replace(rank, verdict={**(rank.verdict or {}), "backend": differ[rank.node]})
        for rank in outcome.ranks
    )
    with pytest.raises(CannotReadError, match="differ in their backend: gloo, nccl"):
        backend_of(replace(outcome, ranks=ranks))
    assert backend_of(replace(outcome, ranks=ranks, facts={"backend": "nccl"})) == "nccl"
