"""Training from files: does every sample come once and as it was written, and does training wait for them?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from clustercheck.checks import storage_io
from clustercheck.checks.base import (
    Check,
    Finding,
    SeededFault,
    every_node,
    failed,
    warned,
)
from clustercheck.checks.support import seeding, seeding_figures
from clustercheck.checks.support.job import ended_badly, outcome_of, ranks_of
from clustercheck.evidence.cluster import Evidence
from clustercheck.evidence.gpu_jobs import is_positive
from clustercheck.expect.effects import effect
from clustercheck.expect.training import loading_floor
from clustercheck.jobs.data_loading import MEMORY, place_problem
from clustercheck.launch.model import RankOutcome, RankState
from clustercheck.model import Figure, Limit, Scope, Section, Severity, Subject, Verdict
from clustercheck.parse.reading import CannotReadError, is_number

JOB = "data_loading"
COUNTS = ("samples", "wrong", "missing", "twice")
UNIT = "of data that is there"
WRONG = (
    "Pull the training image again on this node; then look at its memory and its storage (memory-errors, "
    "storage-io)."
)

Place = Mapping[str, Any]


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """Every sample first; then the slowest rank at each place against the same training without loading."""
    if (finding := ended_badly(evidence, JOB, subject, least=1)) is not None:
        return finding
    node = str(subject.node)
    # Declared path by where the job's container has it.
    names = {here: path for path, here in storage_io.places_of(evidence, [node]).get(node, {}).items()}
    places = {MEMORY: MEMORY, **names}
    read: list[tuple[RankOutcome, Mapping[str, Place]]] = []
    unread: list[CannotReadError] = []
    for rank in ranks_of(outcome_of(evidence, JOB), node):
        try:
            read.append((rank, _places_of(rank, list(places))))
        except CannotReadError as error:
            unread.append(error)
    for rank, found in read:
        for here, each in found.items():
            if because := place_problem(each):
                because = f"{_place(rank)}: {places[here]}: {because}"
                return failed(because, "wrong", "each sample once", remedy=WRONG)
    if unread:
        raise unread[0]
    return _judge_speed(places, read)


def _judge_speed(
    places: Mapping[str, str], read: Sequence[tuple[RankOutcome, Mapping[str, Place]]]
) -> Finding:
    nccl = all((rank.verdict or {}).get("backend") == "nccl" for rank, _ in read)
    floor = loading_floor()
    figures, slow, unable = [], [], []
    for here, path in places.items():
        if reasons := [found[here]["unable"] for _, found in read if found[here]["unable"]]:
            unable.append(f"{path}: not measured: {reasons[0]}")
            continue
        part, rank = min(((_part(rank, found[here]), rank) for rank, found in read), key=lambda pair: pair[0])
        figures.append(_figure(path, part, rank, nccl, floor))
        if nccl and part < floor.reference:
            waits = max(found[here]["wait_part"] for _, found in read)
            slow.append(
                f"loading from {path} is the bottleneck: {_place(rank)} trains at {part:.0%} of its speed "
                f"with data that is there, and waits for data up to {waits:.0%} of the time"
            )
    evidence = {
        "places": [
            {"rank": rank.rank, "path": places[here], **each}
            for rank, found in read
            for here, each in found.items()
        ]
    }
    if slow:
        worst = min(figure.measured for figure in figures)
        return warned(
            "; ".join(slow),
            round(worst, 4),
            floor.reference,
            unit=UNIT,
            source=floor.source,
            figures=tuple(figures),
            evidence=evidence,
        )
    verdict = Verdict.NOT_RUN if unable else Verdict.PASS
    return Finding(verdict, "; ".join(unable), figures=tuple(figures), evidence=evidence)


def _places_of(rank: RankOutcome, wanted: Sequence[str]) -> Mapping[str, Place]:
    """What came of each place. Raises CannotReadError where the rank does not say it of all."""
    answer = rank.verdict or {}
    loading = answer.get("loading")
    if not isinstance(loading, Mapping) or not is_positive(answer.get("synthetic_step_s")):
        raise CannotReadError(f"rank {rank.rank} loaded nothing")
    if not is_positive(answer.get("workers")) or not is_positive(answer.get("batch")):
        raise CannotReadError(f"rank {rank.rank} does not say how it loaded")
    if not all(_is_whole(loading.get(here)) for here in wanted):
        raise CannotReadError(f"rank {rank.rank} did not report every place")
    return {here: loading[here] for here in wanted}


def _is_whole(found: object) -> bool:
    if not isinstance(found, Mapping) or not isinstance(found.get("unable"), str):
        return False
    if found["unable"]:
        return True
    counts = [found.get(key) for key in COUNTS]
    return (
        is_positive(found.get("step_s"))
        and is_number(found.get("wait_part"))
        and all(isinstance(count, int) and count >= 0 for count in counts)
    )


def _part(rank: RankOutcome, found: Place) -> float:
    return float((rank.verdict or {})["synthetic_step_s"] / found["step_s"])


def _place(rank: RankOutcome) -> str:
    return f"rank {rank.rank}" if rank.gpu is None else f"GPU {rank.gpu}"


def _figure(path: str, part: float, rank: RankOutcome, nccl: bool, floor: Limit) -> Figure:
    """Its limit is in the finding: what is slower is a warning, which figures do not know."""
    answer = rank.verdict or {}
    lacking = f"; {floor.reference:.0%} expected on GPUs" if nccl else "; on a CPU: it says nothing of GPUs"
    return Figure(
        metric=f"loading_{path}",
        measured=part,
        unit=UNIT,
        method=f"DataLoader with {answer['workers']} workers, {answer['batch']} pictures a batch, all ranks "
        f"at once{lacking}",
        label=f"from {path} on {_place(rank)}",
        effect=effect("host" if path == MEMORY else "storage") if nccl else None,
        conditions={"path": path, "batch": answer["batch"], "workers": answer["workers"], "nccl": nccl},
    )


def _at(here: str, change: Callable[[seeding.Raw, seeding.Raw], None]) -> seeding.Inject:
    """Change what came of a place on a node's first GPU; the whole verdict is given, too."""

    def on(rank: RankOutcome, verdict: seeding.Raw) -> None:
        if rank.node == "gpu02" and not rank.gpu:
            change(verdict["loading"][here], verdict)

    return seeding.verdicts(JOB, on)


def _says(here: str, **answer: Any) -> seeding.Inject:
    return _at(here, lambda found, _: found.update(answer))


def _reaches(here: str, part: float) -> seeding.Inject:
    return _at(here, lambda found, verdict: found.update(step_s=verdict["synthetic_step_s"] / part))


def _says_nothing(rank: RankOutcome, verdict: seeding.Raw) -> None:
    if rank.node == "gpu02":
        verdict["loading"] = None


def _scale(verdict: seeding.Raw, metric: str, factor: float) -> None:
    """Of the sample's mounts, `/data` is the container's first and `/scratch` its second."""
    path = metric.removeprefix("loading_")
    here = {"/data": f"{storage_io.HERE}0", "/scratch": f"{storage_io.HERE}1"}.get(path, path)
    verdict["loading"][here]["step_s"] /= factor


def _faults() -> tuple[SeededFault, ...]:
    node, declared = Subject("gpu02"), f"{storage_io.HERE}0"
    low, high = 0.855, 0.945  # 5 % below the floor, and above
    return (
        SeededFault("loader-too-slow", _reaches(MEMORY, low), node, Verdict.WARNING),
        SeededFault("loader-quick-enough", _reaches(MEMORY, high), node, Verdict.PASS),
        SeededFault("storage-too-slow", _reaches(declared, low), node, Verdict.WARNING),
        SeededFault("other-bytes", _says(declared, wrong=1), node),
        SeededFault("sample-missing", _says(MEMORY, missing=1), node),
        SeededFault("sample-twice", _says(MEMORY, twice=1), node),
        SeededFault("slower-than-before", seeding.with_baseline("data-loading", judge, node, 3.0), node),
        SeededFault("no-room", _says(declared, unable="only 10 bytes are free"), node, Verdict.NOT_RUN),
        SeededFault("no-time", _says(MEMORY, step_s=0), node, Verdict.NOT_RUN),
        SeededFault("nothing-told", seeding.verdicts(JOB, _says_nothing), node, Verdict.NOT_RUN),
        SeededFault(
            "worker-killed", seeding.rank(JOB, "gpu02", RankState.FAILED, "a worker was killed"), node
        ),
        SeededFault("not-run", lambda e: seeding.without_job(e, JOB), node, Verdict.NOT_RUN),
    )


CHECK = Check(
    id="data-loading",
    title="Training from files",
    section=Section.TRAINING,
    scope=Scope.GROUP,
    severity=Severity.MAJOR,
    measures="whether training waits for its data, and whether every sample comes once and as it was written",
    method="ResNet-50 on pictures that Paddle's DataLoader reads by worker processes from /dev/shm and from "
    "declared storage (`measure` of validation_mounts), against the same training on a batch in memory; "
    "files with checksums, dropped from the page cache first",
    requires="the training image on every node; ten times as much room as the samples take",
    expectation="each sample once, with its checksum; on a GPU at least 90 % of the speed without loading (a "
    "warning below), and not below the baseline. A loader that decodes JPEG needs more CPUs than this one",
    remedy="If /dev/shm is slow: more workers (`num_workers`), more CPUs, or less work for each picture. If "
    "only storage is: compare storage-io, copy the data to local disks, or pack small files into large ones.",
    subjects=every_node,
    judge=judge,
    job=JOB,
    scale=seeding_figures.in_verdicts(JOB, _scale),
    faults=_faults(),
)
