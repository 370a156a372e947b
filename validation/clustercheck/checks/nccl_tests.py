"""NVIDIA's nccl-tests, of which the field's figures are: within each node, and across all of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from clustercheck.checks import bandwidth, collective_bandwidth
from clustercheck.checks.base import (
    GROUP,
    Check,
    Finding,
    Scale,
    SeededFault,
    every_gpu_node,
    failed,
    not_applicable,
)
from clustercheck.checks.support import seeding, seeding_figures
from clustercheck.checks.support.job import failed_on, outcome_of, ranks_of
from clustercheck.checks.support.nccl import no_nccl
from clustercheck.evidence.cluster import Evidence
from clustercheck.launch.model import JobOutcome, RankOutcome, RankState
from clustercheck.model import Scope, Section, Severity, Subject, Verdict
from clustercheck.parse.nccl_tests import NcclTest
from clustercheck.parse.nccl_tests_json import parse_nccl_tests_json
from clustercheck.parse.nccl_tests_text import parse_nccl_tests
from clustercheck.parse.reading import CannotReadError, NotDoneError, first_line
from clustercheck.samples.nccl_tests import ACROSS_GBPS, WITHIN_GBPS, table

JOB = "nccl_tests"
PROGRAMS = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "all_to_all": "alltoall",
    "broadcast": "broadcast",
}
# Across nodes smaller ones are bound by latency: 4 DGX A100 show 191 GB/s at 4 GiB [deepops], two nodes 183
# at 1 GiB [gcm]; within a node the profile says which sizes have a floor.
ACROSS_FROM_BYTES = 1 << 30
METHOD = (
    "nccl-tests, float32, values checked, the better of in place and out of place; bus bandwidth by its "
    "formulas"
)
IN_IMAGE = (
    "Have it built into the training image: nccl_tests of image_builds, with Open MPI among its packages."
)
FOR_ALL_USERS = (
    "Let all users use the devices of GPUs and adapters, as the drivers do, and the image's programs; across "
    "nodes Open MPI runs without root, on Linux 5.9 or later."
)


def every_node_and_the_group(evidence: Evidence) -> Iterable[Subject]:
    """Each node by itself, then all together."""
    return [*every_gpu_node(evidence), GROUP]


def _said(rank: RankOutcome, key: str) -> Any:
    """A part of what a rank says. Raises CannotReadError where it has an unexpected form."""
    value = (rank.verdict or {}).get(key)
    kind = {"within": Mapping, "across": Mapping, "gpus": int, "world_gpus": int}.get(key, str)
    if not isinstance(value, kind):
        raise CannotReadError(f"rank {rank.rank} does not say {key}")
    return value


def _lacks(ranks: tuple[RankOutcome, ...], *, across: bool) -> str:
    """What these ranks' image lacks, as all of them say: a single rank excuses no other.

    Raises NotDoneError where only some say it, CannotReadError where one has an unexpected form.
    """
    said = [str(_said(rank, "without") or (across and _said(rank, "without_mpi")) or "") for rank in ranks]
    reasons = sorted(set(said) - {""})
    if reasons and not all(said):
        raise NotDoneError(f"only {sum(map(bool, said))} of {len(said)} nodes say: {'; '.join(reasons)}")
    return "; ".join(reasons)


def read_run(run: Mapping[str, Any], program: str, ranks: int) -> NcclTest:
    """The file that it wrote, or else what it printed. Raises CannotReadError."""
    if written := str(run.get("json") or ""):
        try:
            return parse_nccl_tests_json(written, program, ranks)
        except CannotReadError as error:
            try:
                return parse_nccl_tests(str(run.get("text") or ""), program, ranks)
            except CannotReadError:
                raise error from None
    return parse_nccl_tests(str(run.get("text") or ""), program, ranks)


def _check(name: str) -> Check:
    program, identity = PROGRAMS[name], f"nccl-tests-{name.replace('_', '-')}"

    def judge(evidence: Evidence, subject: Subject) -> Finding:
        """Values first, then every size that has a floor."""
        if JOB not in evidence.jobs and JOB not in evidence.skipped:
            return no_nccl(evidence, subject)
        if (finding := failed_on(evidence, JOB, subject)) is not None:
            return finding
        outcome = outcome_of(evidence, JOB)
        ranks = outcome.ranks if subject.node is None else ranks_of(outcome, subject.node)
        if because := _lacks(ranks, across=subject.node is None):
            is_closed = "without root" in because
            return not_applicable(because, remedy=FOR_ALL_USERS if is_closed else IN_IMAGE)
        return _of_gpus(evidence, subject, ranks)

    def _of_gpus(evidence: Evidence, subject: Subject, ranks: tuple[RankOutcome, ...]) -> Finding:
        gpus = int(_said(ranks[0], "world_gpus" if subject.node is None else "gpus"))
        declared = sum(evidence.gpu_count(rank.node) for rank in ranks)
        if gpus < declared:
            return failed(f"{gpus} of {declared} GPUs were used", gpus, declared, unit="GPUs")
        if gpus < 2:
            return not_applicable("one GPU: there is nothing to connect")
        return _judged(evidence, subject, ranks, gpus)

    def _judged(evidence: Evidence, subject: Subject, ranks: tuple[RankOutcome, ...], gpus: int) -> Finding:
        across = len(ranks) > 1 or not _said(ranks[0], "within")
        run = _said(ranks[0], "across" if across else "within").get(program)
        if not isinstance(run, Mapping):
            raise NotDoneError(f"{program}_perf was not run")
        code, more = run.get("exit_code"), {"command": str(run.get("command"))}
        if code is None:
            return failed(f"{program}_perf did not end within {run.get('limit_s')} s", evidence=more)
        try:
            test = read_run(run, program, gpus)
        except CannotReadError:
            if code == 0:
                raise
            last = first_line("\n".join(reversed(str(run.get("text") or "").splitlines())))
            return failed(f"{program}_perf ended with {code}: {last or 'it said nothing'}", evidence=more)
        if not test.sweep.validated:
            raise CannotReadError(f"{program}_perf checked no values")
        if test.out_of_bounds:
            because = f"{program}_perf found {test.out_of_bounds} wrong values"
            return failed(because, test.out_of_bounds, 0, unit="values", evidence=more)
        if code != 0:
            return failed(
                f"{program}_perf ended with {code}: {test.error or 'it said nothing'}", evidence=more
            )
        group = _as_ranks(evidence, ranks)
        points, limits = _points(test), _limits(evidence, name, group, test)
        return bandwidth.compare(evidence, identity, points, limits, group, subject=subject)

    return Check(
        id=identity,
        title=f"nccl-tests {name.replace('_', '-')}",
        section=Section.COLLECTIVES,
        scope=Scope.GROUP,
        severity=Severity.CRITICAL,
        measures=f"values and bus bandwidth of NVIDIA's {program}_perf, within each node and across all",
        method=METHOD,
        requires="nccl-tests in the training image (image_builds); across nodes its Open MPI; two GPUs",
        expectation="no wrong value; at each fixed size the floor of the node's profile, or of the network",
        remedy=(
            "Compare with the same collective of the framework: if both are slow, see the pairs and the "
            "culprits; if only this one is, NCCL's transports (nccl-transport) and the NCCL_* variables "
            "of the image."
        ),
        subjects=every_node_and_the_group,
        judge=judge,
        job=JOB,
        quantities="sizes",
        scale=_scaling(program),
        faults=_faults(program),
    )


def _points(test: NcclTest) -> dict[int, dict[str, Any]]:
    """By nominal size in bytes: nccl-tests rounds down to whole elements a rank."""
    sweep, points, nominal = test.sweep, dict[int, dict[str, Any]](), test.sweep.least
    for row in test.rows:
        points[nominal] = {
            "bytes": row.size_bytes,
            "time_s_median": float(row.out_of_place.time_us) / 1e6,
            "algbw_gbps": float(row.out_of_place.algbw),
            "busbw_gbps": row.busbw,
            "correct": True,
        }
        nominal = nominal * sweep.step if sweep.by_factor else nominal + sweep.step
    return points


def _as_ranks(evidence: Evidence, ranks: tuple[RankOutcome, ...]) -> JobOutcome:
    """The group that nccl-tests made: a rank a GPU over NCCL."""
    seats = [(rank, gpu) for rank in ranks for gpu in range(evidence.gpu_count(rank.node))]
    record = {"backend": "nccl", "interface": str((ranks[0].verdict or {}).get("interface") or "")}
    return JobOutcome(
        JOB,
        tuple(
            RankOutcome(number, rank.node, RankState.OK, gpu=gpu, verdict=record)
            for number, (rank, gpu) in enumerate(seats)
        ),
        0.0,
    )


def _limits(
    evidence: Evidence, name: str, group: JobOutcome, test: NcclTest
) -> dict[int, bandwidth.GroupLimits]:
    """What holds each size; across nodes small ones measure the latency."""
    judged = {}
    across = len({rank.node for rank in group.ranks}) > 1
    for size in _points(test):
        if across and size < ACROSS_FROM_BYTES:
            continue
        if name == "all_reduce":
            limits = bandwidth.limits_at(evidence, group, size)
        else:
            limits = collective_bandwidth.limits_at(evidence, group, name, size)
        if limits is not None:
            judged[size] = limits
    return judged


def _of(node: str, part: str, program: str, **answer: Any) -> seeding.Inject:
    def change(rank: RankOutcome, verdict: seeding.Raw) -> None:
        if rank.node == node:
            verdict[part][program].update(answer)

    return seeding.verdicts(JOB, change)


def _faults(program: str) -> tuple[SeededFault, ...]:
    nodes, node = ["gpu01", "gpu02", "gpu03"], Subject("gpu02")
    slow = table(program, ["gpu02"], 8, WITHIN_GBPS * 0.3)
    wrong = table(program, ["gpu02"], 8, WITHIN_GBPS, wrong=7)
    crawls = table(program, nodes, 8, ACROSS_GBPS * 0.02)
    tail = "gpu02: Test NCCL failure common.cu:958 'unhandled cuda error'"
    return (
        SeededFault("slow-node", _of("gpu02", "within", program, text=slow), node),
        SeededFault("wrong-values", _of("gpu02", "within", program, text=wrong, exit_code=1), node),
        SeededFault("slow-across", _of("gpu01", "across", program, text=crawls), GROUP),
        SeededFault("nccl-fails", _of("gpu02", "within", program, text=tail, exit_code=3), node),
        SeededFault("does-not-end", _of("gpu02", "within", program, exit_code=None), node),
        SeededFault("gpu-left-out", seeding.verdicts(JOB, _one_less), node),
        SeededFault("cut-off", _of("gpu02", "within", program, text=slow[:700]), node, Verdict.NOT_RUN),
        SeededFault(
            "not-built-in",
            seeding.all_say(JOB, without="the image has no nccl-tests"),
            node,
            Verdict.EXCLUDED,
        ),
        SeededFault(
            "no-mpi", seeding.all_say(JOB, without_mpi="the image has no mpirun"), GROUP, Verdict.EXCLUDED
        ),
        SeededFault("over-gloo", _not_run, node, Verdict.EXCLUDED),
        SeededFault(
            "rank-crashes", seeding.rank(JOB, "gpu02", RankState.CRASHED, "killed by signal 9"), node
        ),
    )


def _scaling(program: str) -> Scale:
    """Of a node in what its rank says of itself, of the group in what the first says of all."""

    def scale(metric: str, factors: Mapping[Subject, float]) -> seeding.Inject:
        size = int(metric.removeprefix(bandwidth.METRIC))

        def change(rank: RankOutcome, verdict: seeding.Raw) -> None:
            for part, subject in (("within", Subject(rank.node)), ("across", GROUP)):
                run = verdict[part].get(program)
                if run is not None and subject in factors:
                    text = seeding_figures.scale_nccl_tests_text(run["text"], program, size, factors[subject])
                    run["text"] = text

        return seeding.verdicts(JOB, change, factors)

    return scale


def _one_less(rank: RankOutcome, verdict: seeding.Raw) -> None:
    if rank.node == "gpu02":
        verdict["gpus"] -= 1


def _not_run(evidence: Evidence) -> Evidence:
    return seeding.without_job(evidence, JOB)


CHECKS = tuple(_check(name) for name in PROGRAMS)
