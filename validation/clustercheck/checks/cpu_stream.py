"""Bandwidth of the host's memory by NUMA node: is a memory module, a channel or a setting missing?"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from clustercheck.checks.base import Check, Finding, SeededFault, every_node, failed, not_applicable
from clustercheck.checks.support import seeding, seeding_figures
from clustercheck.checks.support.job import failed_on, outcome_of, ranks_of
from clustercheck.checks.support.said_right import excused, without
from clustercheck.evidence.cluster import Evidence
from clustercheck.evidence.gpu_jobs import is_positive
from clustercheck.expect.effects import effect
from clustercheck.launch.model import RankOutcome, RankState
from clustercheck.model import Figure, Scope, Section, Subject, Verdict
from clustercheck.parse.reading import CannotReadError, NotDoneError

JOB = "cpu_stream"
METHOD = (
    "STREAM's triad by NumPy in chunks, a process on each physical core, all NUMA nodes at once, 24 bytes an "
    "element (ordinary stores: less than compiled STREAM shows)"
)
MAX_NUMA_NODES = 64


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """Every element right; then all NUMA nodes together and each by itself."""
    if (finding := failed_on(evidence, JOB, subject)) is not None:
        return finding
    outcome = outcome_of(evidence, JOB)
    answer = ranks_of(outcome, str(subject.node))[0].verdict or {}
    if not isinstance(answer.get("without"), str):
        raise CannotReadError("the rank did not report what it measured")
    if answer["without"] and subject.node not in evidence.once(_excused):
        raise NotDoneError(f"most nodes do not say: {answer['without']}")
    if because := answer["without"] or answer.get("too_small"):
        return not_applicable(str(because))
    if answer.get("undone"):
        raise NotDoneError(str(answer["undone"]))
    places = _places(answer)
    if wrong := {place: each["wrong"] for place, each in places.items() if each["wrong"]}:
        told = ", ".join(f"{n} on NUMA node {place}" for place, n in wrong.items())
        return failed(f"elements of the sum are wrong: {told}", sum(wrong.values()), 0, unit="elements")
    if any(each["failed"] for each in places.values()):
        errors = answer.get("errors")
        why = str(errors[0]) if isinstance(errors, list) and errors else "a process did not end in time"
        raise NotDoneError(f"not every core was measured: {why}")
    shared = {"array_bytes": str(answer.get("array_bytes")), "numpy": str(answer.get("numpy"))}
    cores = sum(each["cores"] for each in places.values())
    total = sum(each["gbps"] for each in places.values())
    figures = [_figure("stream_triad", total, "of all NUMA nodes", {**shared, "cores": str(cores)})]
    if len(places) > 1:
        figures += [
            _figure(
                f"stream_triad_{place}",
                each["gbps"],
                f"of NUMA node {place}",
                {**shared, "cores": str(each["cores"])},
            )
            for place, each in places.items()
        ]
    return Finding(Verdict.PASS, figures=tuple(figures), evidence={"numa_nodes": len(places), "cores": cores})


def _excused(evidence: Evidence) -> Mapping[str, str]:
    return excused(outcome_of(evidence, JOB), without)


def _places(answer: Mapping[str, Any]) -> dict[int, dict[str, Any]]:
    """By number of the NUMA node. Raises CannotReadError."""
    numa = answer.get("numa")
    if not isinstance(numa, Mapping) or not 0 < len(numa) <= MAX_NUMA_NODES:
        raise CannotReadError("the rank names no NUMA nodes")
    found = {}
    for place, each in numa.items():
        counts = (
            [each.get(key) for key in ("cores", "wrong", "failed")] if isinstance(each, Mapping) else [None]
        )
        if not re.fullmatch(r"[0-9]{1,4}", place) or not all(isinstance(n, int) and n >= 0 for n in counts):
            raise CannotReadError("the rank gives no numbers of a NUMA node")
        if not is_positive(each.get("gbps")) and not each["failed"]:
            raise CannotReadError(f"the rank gives no bandwidth of NUMA node {place}")
        found[int(place)] = dict(each)
    return found


def _figure(metric: str, gbps: float, label: str, conditions: Mapping[str, str]) -> Figure:
    return Figure(
        metric=metric,
        measured=gbps,
        unit="GB/s",
        method=METHOD,
        label=label,
        effect=effect("host"),
        conditions=conditions,
    )


def _numa(place: str, **answer: Any) -> seeding.Inject:
    """What gpu02 says of one NUMA node."""

    def change(rank: RankOutcome, verdict: seeding.Raw) -> None:
        if rank.node == "gpu02":
            verdict["numa"][place].update(answer)

    return seeding.verdicts(JOB, change)


def _one_says(rank: RankOutcome, verdict: seeding.Raw, **answer: str) -> None:
    if rank.node == _NODE.node:
        verdict.update(answer)


def _scale(verdict: seeding.Raw, metric: str, factor: float) -> None:
    place = metric.removeprefix("stream_triad").lstrip("_")
    for number, each in verdict["numa"].items():
        if place in ("", number):
            each["gbps"] *= factor


_NODE = Subject("gpu02")
CHECK = Check(
    id="cpu-stream",
    title="CPU memory bandwidth",
    section=Section.SYSTEM,
    scope=Scope.HOST,
    measures="bandwidth of the host's memory, by NUMA node and of all, and whether every element is right",
    method=METHOD,
    requires="the training image on the node, with NumPy; a tenth of the memory available",
    expectation="every element right; no figure of this method has a source, so there is no floor: not "
    "behind equal nodes, nor behind itself when it was good",
    remedy="Compare the memory modules with an equal node's (`dmidecode -t memory`: slots, speed), the "
    "BIOS's settings of memory and NUMA, errors of memory (memory-errors), and the governor (cpu-governor).",
    subjects=every_node,
    judge=judge,
    job=JOB,
    scale=seeding_figures.in_verdicts(JOB, _scale),
    faults=(
        SeededFault("slower-than-before", seeding.with_baseline("cpu-stream", judge, _NODE, 1.25), _NODE),
        SeededFault("wrong-elements", _numa("1", wrong=3), _NODE),
        SeededFault("core-not-measured", _numa("0", failed=1), _NODE, Verdict.NOT_RUN),
        SeededFault("no-numbers", _numa("0", gbps=None), _NODE, Verdict.NOT_RUN),
        SeededFault("nothing-told", seeding.all_say(JOB, numa=None), _NODE, Verdict.NOT_RUN),
        SeededFault(
            "no-numpy",
            seeding.all_say(JOB, without="the image's Python has no NumPy"),
            _NODE,
            Verdict.EXCLUDED,
        ),
        SeededFault(
            "no-numpy-on-one-node",
            seeding.verdicts(JOB, partial(_one_says, without="the image's Python has no NumPy")),
            _NODE,
            Verdict.NOT_RUN,
        ),
        SeededFault(
            "memory-held",
            seeding.verdicts(JOB, partial(_one_says, undone="too little memory was available")),
            _NODE,
            Verdict.NOT_RUN,
        ),
        SeededFault(
            "too-small",
            seeding.verdicts(JOB, partial(_one_says, too_small="too little memory")),
            _NODE,
            Verdict.EXCLUDED,
        ),
        SeededFault(
            "rank-crashes", seeding.rank(JOB, "gpu02", RankState.CRASHED, "killed by signal 9"), _NODE
        ),
        SeededFault("not-run", lambda e: seeding.without_job(e, JOB), _NODE, Verdict.NOT_RUN),
    ),
)
