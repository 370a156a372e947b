"""What nodes and ranks say: one of three nodes says anything, and the other two are judged as without it."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

from tests.fuzz.target import Target, encoded
from tests.support.hostile import require_plain, texts_of
from tests.support.validation_in_memory import FakeLauncher, FakeTransport, Says, records

from clustercheck.checks.all import CHECKS
from clustercheck.checks.base import Check, evaluate
from clustercheck.evidence.cluster import Evidence
from clustercheck.evidence.collect import collect
from clustercheck.launch.agent import Agent, NodeActionError, StartedContainer
from clustercheck.launch.answers import WaitAnswer
from clustercheck.launch.docker import DockerLauncher
from clustercheck.launch.first_failure import RankEvidence, judge_group, judge_ranks
from clustercheck.launch.model import JobOutcome, JobSpec, RankState
from clustercheck.launch.outcomes import Missing, make_evidence
from clustercheck.launch.placement import Placement, RankPlace
from clustercheck.launch.transport import Completed
from clustercheck.model import Result, Verdict
from clustercheck.result.document import plain
from clustercheck.result.environment import describe
from clustercheck.result.reading import read
from clustercheck.running import suites
from clustercheck.running.job_runner import unreadable
from clustercheck.running.session import validate
from clustercheck.samples import gpus, sample, smi

NODES = ("gpu01", "gpu02", "gpu03")
HOSTILE = "gpu02"
OTHERS = frozenset(NODES) - {HOSTILE}
OF_PROBE = tuple(check for check in CHECKS if not check.job)
# These compare a node with its equals: what one says may change what is said of the others, not fail them.
COMPARING = frozenset(
    {
        "clock",
        "driver-version",
        "firmware-alike",
        "gpu-vbios",
        "huge-pages",
        "infiniband-firmware",
        "infiniband-port",
        "limits",
        "memory",
        "mtu-alike",
        "numa",
        "nvlink",
        "os-alike",
        "pci-manifest",
        "rails-alike",
        "roce",
        "roce-flow-control",
    }
)
# Two nodes that say that they are the same machine: nobody can tell which of them lies.
UNDECIDABLE = frozenset({"node-identity"})
MAX_RESULT_CHARS = 100_000
MAX_DOCUMENT_CHARS = 4_000_000


def text_of(data: bytes) -> str:
    """As the transport hands output on."""
    return data.decode("utf-8", "replace")


def judged(evidence: Evidence, checks: Sequence[Check]) -> list[Result]:
    return [result for check in checks for result in evaluate(check, evidence)]


def require_sound(results: Sequence[Result]) -> None:
    """No check fails itself, and what is said is short and plain."""
    for result in results:
        assert "the check itself failed" not in result.because, (
            f"{result.check} {result.subject}: {result.because}"
        )
        require_plain(
            [result.because, result.measured, result.expected, result.remedy, plain(result.evidence)]
        )
        size = sum(map(len, texts_of([result.because, result.remedy, plain(result.evidence)])))
        assert size <= MAX_RESULT_CHARS, f"{result.check} {result.subject} has {size} characters"


def of_others(results: Sequence[Result]) -> dict[tuple[str, Any], str]:
    """What is said of the other nodes, byte for byte; of what compares nodes, whether it failed."""
    return {
        (r.check, r.subject): str(r.verdict is Verdict.FAIL) if r.check in COMPARING else repr(r)
        for r in results
        if r.subject.node in OTHERS and r.check not in UNDECIDABLE
    }


def require_same(found: Mapping[tuple[str, Any], str], wanted: Mapping[tuple[str, Any], str]) -> None:
    """The same is said of the same."""
    for key in found.keys() | wanted.keys():
        assert found.get(key) == wanted.get(key), (
            f"{key} is {found.get(key)}, without the hostile node {wanted.get(key)}"
        )


def with_record(node: Any) -> Evidence:
    healthy = sample.healthy()
    nodes = {**healthy.nodes, HOSTILE: node}
    return replace(healthy, nodes=nodes, later={**nodes})


# --- the probe's record


@cache
def probe_reference() -> dict[tuple[str, Any], str]:
    return of_others(judged(sample.healthy(), OF_PROBE))


def run_probe_record(data: bytes) -> None:
    """The probe of one node prints this."""
    events: list[Mapping[str, Any]] = []
    found = collect([HOSTILE], Says(text_of(data)), options={}, limit_s=5.0, on_event=events.append)
    require_plain(events)
    node = replace(found[HOSTILE], asked=(sample.NOON, sample.NOON + 1.6))
    evidence = with_record(node)
    results = judged(evidence, OF_PROBE)
    require_sound(results)
    require_same(of_others(results), probe_reference())
    require_plain(describe(evidence))


def probe_seeds() -> list[bytes]:
    record = sample.probe_record(2)
    parts = [
        {"probe": 1, "errors": {}, name: part}
        for name, part in record.items()
        if name not in ("probe", "errors")
    ]
    texts_of_errors = {
        "probe": 1,
        "errors": {"nvidia_smi": "x" * 100_000, "docker": "\x1b[2J\x1b]0;t\x07 \u202e"},
    }
    return encoded(record, texts_of_errors, *parts)


# --- the answers to the launcher

ENDED = {"exit_code": 0, "order": 0, "killed": "", "state": ""}
GOOD: dict[str, dict[str, Any]] = {
    "prepare": {
        "ok": True,
        "interface": "eth0",
        "address": "192.0.2.2",
        "interface_because": "carries the node's address",
        "ports": [4000, 4001],
        "memlock": -1,
        "infiniband": False,
        "framework": {"version": "3.3.1", "cuda": False, "gpus": 0, "devices": 0},
        "pulled": False,
        "removed": ["container aaa of run r0"],
    },
    "start": {"ok": True, "container": "abc123"},
    "wait": {
        "ok": True,
        "ended": True,
        "exit_code": 0,
        "out_of_memory": False,
        "log_tail": "bye\n",
        "ranks": {
            "1": {
                "verdict": {"rank": 1, "ok": True, "because": ""},
                "end": ENDED,
                "progress": {"counter": 3, "phase": "done", "collective": True},
                "stack": "Thread 0x1 (most recent call first):\n",
                "log_tail": "line\n",
                "nccl_log": "",
            }
        },
    },
    "stop": {"ok": True, "stopped": "abc123"},
    "remove": {"ok": True, "removed": "abc123"},
}
REFUSED = {"ok": False, "because": "docker run: no such image", "busy": False}


class AnsweringNodes:
    """A transport of three nodes that answer the launcher; the hostile one gives ``said`` to one action."""

    def __init__(self, action: str, said: str) -> None:
        self._action, self._said = action, said

    def run(self, node: str, argv: Sequence[str], *, stdin: str = "", timeout_s: float) -> Completed:
        request = json.loads(ast.literal_eval(stdin.rpartition("sys.exit(main(")[2].rpartition("))")[0]))
        if node == HOSTILE and request["action"] == self._action:
            return Completed(0, self._said, "")
        return Completed(0, json.dumps(self._answer(node, request)), "")

    @staticmethod
    def _answer(node: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        answer = GOOD[request["action"]]
        if request["action"] == "prepare":
            return {**answer, "address": f"192.0.2.{node[-1]}"}
        if request["action"] == "wait":
            return {**answer, "ranks": {str(rank): answer["ranks"]["1"] for rank in request["ranks"]}}
        return answer


def run_launcher_answer(action: str, data: bytes) -> None:
    """A job on three nodes, of which one gives this answer."""
    text = text_of(data)
    events: list[Mapping[str, Any]] = []
    addresses = {node: f"192.0.2.{node[-1]}" for node in NODES}
    launcher = DockerLauncher(AnsweringNodes(action, text), run_id="r", addresses=addresses)
    spec = JobSpec("all-reduce", "all_reduce.py", NODES, "image@sha256:0", 5.0, {"sizes_bytes": [8]})
    outcome = launcher.run(spec, on_event=events.append)
    require_plain([[repr(rank) for rank in outcome.ranks], dict(outcome.facts), events])
    for rank in outcome.ranks:
        assert len(rank.because) <= 1000
        if rank.node in OTHERS:
            assert rank.state in (RankState.OK, RankState.KILLED), rank
    json.dumps(events, allow_nan=False)


def answer_seeds(action: str) -> list[bytes]:
    return encoded(GOOD[action], REFUSED, {**REFUSED, "busy": True})


# --- what ranks write


def split(data: bytes) -> tuple[str, str]:
    """The job that an input names in its first line, and the verdict after it."""
    name, _, text = text_of(data).partition("\n")
    jobs = [*sorted(sample.healthy().jobs), GPU_PROGRAMS]
    return (name if name in jobs else jobs[sum(data) % len(jobs)]), text


def outcome_with(healthy: JobOutcome, record: str) -> JobOutcome:
    """The job's outcome where the hostile node's ranks left this record, read by the launcher."""
    mine = tuple(rank for rank in healthy.ranks if rank.node == HOSTILE)
    alone = healthy.facts.get("backend") == "gpu"
    whole = (
        '{"ok": true, "exit_code": 0, "ranks": {'
        + ", ".join(f'"{rank.rank}": {record}' for rank in mine)
        + "}}"
    )
    answer: WaitAnswer | Missing
    try:
        answer = Agent(Says(whole)).ask(HOSTILE, {}, WaitAnswer, 5.0)
    except NodeActionError as error:
        answer = Missing(str(error))
    started = StartedContainer(HOSTILE, "c", "/d", tuple(rank.rank for rank in mine))
    places = tuple(RankPlace(rank.rank, rank.node, rank.gpu, {}) for rank in mine)
    evidence = [
        *make_evidence(started, answer, Placement("gloo", "", places, ""), 0),
        *(
            RankEvidence(
                rank.rank,
                rank.node,
                rank.gpu,
                verdict=rank.verdict,
                end=ENDED,
                nccl_log=rank.nccl_log,
                arrival=1,
            )
            for rank in healthy.ranks
            if rank.node != HOSTILE
        ),
    ]
    ranks, first = judge_ranks(evidence) if alone else judge_group(evidence, is_late=False)
    return replace(healthy, ranks=ranks, first_failure=first)


class HostileLauncher(FakeLauncher):
    """A launcher whose jobs of one program have the hostile node's record."""

    def __init__(self, program: str, record: str, backend: str) -> None:
        super().__init__(change=lambda _spec, _node, verdict: verdict.setdefault("backend", backend))
        self._program, self._record = program, record

    def run(self, spec: JobSpec, *, on_event: Callable[[Mapping[str, Any]], None]) -> JobOutcome:
        outcome = super().run(spec, on_event=on_event)
        is_mine = spec.program == self._program and HOSTILE in spec.nodes
        return outcome_with(outcome, self._record) if is_mine else outcome


def run_rank_record(data: bytes) -> None:
    """The ranks of one node leave this record, in a job that the input names."""
    job, record = split(data)
    if job == GPU_PROGRAMS:
        require_sound_validation(gpus.JOBS, f"{job}.py", record)
        return
    healthy = sample.healthy()
    evidence = replace(healthy, jobs={**healthy.jobs, job: outcome_with(healthy.jobs[job], record)})
    results = judged(evidence, CHECKS)
    require_sound(results)
    reference = whole_reference()
    readers = {job.removesuffix("_one"), *READ_BY.get(job, ())}
    mine = {check.id for check in CHECKS if check.job in readers}
    found = {key: text for key, text in of_others(results).items() if key[0] not in mine}
    require_same(found, {key: text for key, text in reference.items() if key[0] not in mine})
    require_plain(describe(evidence))
    if job not in (*gpus.JOBS, *NOT_IN_SUITE):
        require_sound_validation([job], f"{job}.py", record)


NO_FORM = unreadable(ValueError()).rpartition(":")[0]
GPU_PROGRAMS = "gpu_programs"  # in one launch, each with its part of the verdict
# Checks of these jobs read that one's outcome, too.
READ_BY = {"nccl_transport": ("all_reduce", "collectives", "nccl_tests")}
NOT_IN_SUITE = ("nccl_tests", "nccl_transport", "pairs")


@cache
def whole_reference() -> dict[tuple[str, Any], str]:
    return of_others(judged(sample.healthy(), CHECKS))


def require_sound_validation(jobs: Sequence[str], program: str, record: str) -> None:
    """A whole validation of the checks of these jobs ends with a document that can be written and read."""
    checks = [check.id for check in CHECKS if check.job in jobs]
    if not checks:
        return
    suite = next(name for name in ("full", "seeds") if set(jobs) & set(suites.load(name).jobs))
    # Over NCCL jobs are run twice, and their launches merged.
    backend = ("gloo", "nccl")[sum(record.encode(errors="replace")) % 2]
    document = validate(
        sample.spec(),
        transport=FakeTransport(records()),
        launcher=HostileLauncher(program, record, backend),
        run_id="fuzz",
        suite=suite,
        checks=checks,
    )
    written = json.dumps(document.as_json(), allow_nan=False)
    assert len(written) <= MAX_DOCUMENT_CHARS
    assert NO_FORM not in written, "one node's answer costs the others a job"
    require_plain(document.as_json())
    read(written)


def rank_seeds() -> list[bytes]:
    seeds = []
    for job, outcome in sample.healthy().jobs.items():
        rank = next((rank for rank in outcome.ranks if rank.node == HOSTILE), None)
        if rank is not None:
            record = {"verdict": rank.verdict, "end": ENDED, "progress": None, "nccl_log": rank.nccl_log}
            seeds.append(f"{job}\n{json.dumps(record)}".encode())
    buses = [f"0000:{bus}:00.0" for bus in smi.BUSES]
    verdict = {**gpus.described(8, 0, buses[0]), **gpus.programs(gpus.JOBS, 8, buses)}
    seeds.append(f"{GPU_PROGRAMS}\n{json.dumps({'verdict': verdict, 'end': ENDED})}".encode())
    return seeds


TARGETS: dict[str, Target] = {
    "probe-record": Target("probe-record", probe_seeds, run_probe_record),
    "rank-record": Target("rank-record", rank_seeds, run_rank_record),
    **{
        f"launcher-{action}": Target(
            f"launcher-{action}", partial(answer_seeds, action), partial(run_launcher_answer, action)
        )
        for action in GOOD
    },
}
