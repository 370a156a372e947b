"""Declared storage under load: does every block come back as it was written, and as fast as elsewhere?"""

from __future__ import annotations

import errno
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from clustercheck.checks.base import Check, Finding, SeededFault, every_node, failed, not_applicable, not_run
from clustercheck.checks.support import seeding, seeding_figures
from clustercheck.checks.support.job import failed_on, outcome_of, ranks_of
from clustercheck.evidence.cluster import Evidence
from clustercheck.expect.effects import effect
from clustercheck.launch.model import RankOutcome, RankState
from clustercheck.model import Figure, Scope, Section, Severity, Subject, Verdict
from clustercheck.parse.fio import CHECKSUM_DIFFERS, FioRun, parse_fio
from clustercheck.parse.reading import CannotReadError, NotDoneError, first_line
from clustercheck.samples.fio import fio_text

JOB = "storage_io"
METHOD = "fio: 4 files in blocks of 1 MiB (psync), then read back with the checksum of every block (crc32c)"
HERE = "/mnt/clusterctl-storage-"  # where the job's container has the declared paths
FIO = "Put fio into the training image: packages of image_builds."
NOT_MEASURED = "no mount is declared to be measured (`measure` of validation_mounts)"
NOT_IN_OPTIONS = (",", '"', "\n")  # docker's --mount takes them for its own
# What a site decides, or a full file system: no fault of the storage.
NOT_THE_STORAGE = {errno.EACCES, errno.EPERM, errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EINVAL}


def places_of(evidence: Evidence, nodes: Sequence[str]) -> dict[str, dict[str, str]]:
    """By node that has any: declared paths that the probe found mounted, and where the container has them."""
    found = {}
    for node in nodes:
        wanted = [mount.path for mount in evidence.spec.settings_of(node).mounts if mount.measure]
        try:
            records = {str(each.get("path")): each for each in evidence.nodes[node].records("mounts")}
        except CannotReadError:
            continue
        fit = [path for path in wanted if _is_fit(path, records.get(path))]
        if fit:
            found[node] = {path: f"{HERE}{number}" for number, path in enumerate(fit)}
    return found


def _is_fit(path: str, record: Mapping[str, Any] | None) -> bool:
    """Whether it is mounted and answers: a container that touches what hangs cannot be ended."""
    touched = record.get("touched") if record is not None else None
    answers = isinstance(touched, Mapping) and touched.get("rc") == 0 and not touched.get("timed_out")
    plain = path.startswith("/") and not any(mark in path for mark in NOT_IN_OPTIONS)
    return plain and answers and record is not None and isinstance(record.get("mounted"), Mapping)


def mount_arguments(places: Mapping[str, str]) -> tuple[str, ...]:
    """For docker: the declared paths, which must be there."""
    options = [f"type=bind,source={path},target={here}" for path, here in sorted(places.items())]
    return tuple(word for option in options for word in ("--mount", option))


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """Every block as it was written, on every declared path; then how fast."""
    node = str(subject.node)
    wanted = [mount.path for mount in evidence.spec.settings_of(node).mounts if mount.measure]
    if not wanted:
        return not_applicable(NOT_MEASURED)
    if node not in places_of(evidence, [node]):
        return not_run("none of the declared mounts is mounted and answers (mounts)")
    if (finding := failed_on(evidence, JOB, subject)) is not None:
        return finding
    ranks = ranks_of(outcome_of(evidence, JOB), node)
    answer = ranks[0].verdict or {}
    places = answer.get("places")
    if not isinstance(answer.get("without"), str) or not isinstance(places, Mapping):
        raise CannotReadError("the rank did not report what it measured")
    if answer["without"]:
        return not_run(str(answer["without"]), remedy=FIO)
    return _judge_places(wanted, places, len(outcome_of(evidence, JOB).ranks))


def _judge_places(wanted: Sequence[str], places: Mapping[str, Any], nodes: int) -> Finding:
    figures: list[Figure] = []
    doubts, problems = [], []
    for path in wanted:
        try:
            found = _read(path, places.get(path))
        except (CannotReadError, NotDoneError) as error:
            doubts.append(f"{path}: {error}")
            continue
        if found.error == CHECKSUM_DIFFERS:
            problems.append(f"{path} returns other data than was written")
        elif found.error in NOT_THE_STORAGE:
            doubts.append(f"{path}: fio ended with {errno.errorcode[found.error]}")
        elif found.error:
            problems.append(f"{path}: fio ended with {errno.errorcode.get(found.error, found.error)}")
        else:
            direct = str(places[path].get("direct"))
            figures += [_figure(path, way, found, direct, nodes) for way in ("write", "read")]
    if problems:
        return failed("; ".join(problems), len(wanted) - len(problems), len(wanted), unit="mounts")
    verdict = Verdict.NOT_RUN if doubts else Verdict.PASS
    return Finding(verdict, "; ".join(doubts), figures=tuple(figures))


def _read(path: str, answer: object) -> FioRun:
    """What fio said of one path. Raises NotDoneError where it did not run, CannotReadError."""
    if not isinstance(answer, Mapping) or not isinstance(answer.get("unable"), str):
        raise CannotReadError("the rank does not say what became of it")
    if answer["unable"]:
        raise NotDoneError(f"not measured: {answer['unable']}")
    if answer.get("exit_code") is None:
        raise NotDoneError(f"fio did not end within {answer.get('limit_s')} s")
    if not answer.get("json"):
        raise NotDoneError(f"fio wrote no result: {first_line(str(answer.get('text'))) or 'it said nothing'}")
    found = parse_fio(str(answer["json"]))
    if found.error == 0 and (answer["exit_code"] != 0 or not found.written_bytes == found.read_bytes > 0):
        raise CannotReadError("fio does not say that it read all that it wrote")
    return found


def _figure(path: str, way: str, found: FioRun, direct: str, nodes: int) -> Figure:
    return Figure(
        metric=f"{way}_{path}",
        measured=found.write_gbps if way == "write" else found.read_gbps,
        unit="GB/s",
        method=METHOD,
        label=f"of {path}, {'written' if way == 'write' else 'read back'}",
        effect=effect("storage"),
        conditions={"path": path, "direct": direct, "nodes": str(nodes), "bytes": str(found.written_bytes)},
    )


def _of(path: str, **answer: Any) -> seeding.Inject:
    def change(rank: RankOutcome, verdict: seeding.Raw) -> None:
        if rank.node == "gpu02":
            verdict["places"][path].update(answer)

    return seeding.verdicts(JOB, change)


def _ends(error: int) -> seeding.Inject:
    """fio ends with an errno on one path of gpu02."""
    document = json.loads(fio_text(1.8, 2.9))
    document["jobs"][0]["error"] = error
    return _of("/scratch", exit_code=1, json=json.dumps(document))


def _scale(verdict: seeding.Raw, metric: str, factor: float) -> None:
    way, _, path = metric.partition("_")
    place = verdict["places"][path]
    place["json"] = seeding_figures.scale_fio_text(place["json"], way, factor)


def _not_declared(evidence: Evidence) -> Evidence:
    mounts = tuple(replace(mount, measure=False) for mount in evidence.spec.mounts)
    return replace(evidence, spec=replace(evidence.spec, mounts=mounts))


_NODE = Subject("gpu02")
CHECK = Check(
    id="storage-io",
    title="Storage under load",
    section=Section.SYSTEM,
    scope=Scope.HOST,
    severity=Severity.CRITICAL,
    measures="whether declared storage returns every block as it was written, and its bandwidth",
    method=f"{METHOD}, in a directory of its own that is removed, on all nodes at the same time",
    requires="a mount with `measure` in validation_mounts, fio in the training image, room for ten times "
    "what is written",
    expectation="every checksum right; what storage must reach only its site knows, so there is no floor: "
    "not behind equal nodes, nor behind itself when it was good",
    remedy="Wrong data: stop using that storage, see the kernel log and `smartctl -a` of the device, or the "
    "server's log. Slow: compare with equal nodes, see its mount options, its network and who else uses it.",
    subjects=every_node,
    judge=judge,
    job=JOB,
    scale=seeding_figures.in_verdicts(JOB, _scale),
    faults=(
        SeededFault("checksum-differs", _ends(CHECKSUM_DIFFERS), _NODE),
        SeededFault("input-output-error", _ends(errno.EIO), _NODE),
        SeededFault("no-room", _ends(errno.ENOSPC), _NODE, Verdict.NOT_RUN),
        SeededFault("slower-than-before", seeding.with_baseline("storage-io", judge, _NODE, 2.5), _NODE),
        SeededFault("does-not-end", _of("/scratch", exit_code=None), _NODE, Verdict.NOT_RUN),
        SeededFault("cut-off", _of("/scratch", json=fio_text(1.8, 2.9)[:200]), _NODE, Verdict.NOT_RUN),
        SeededFault("not-permitted", _of("/data", unable="PermissionError"), _NODE, Verdict.NOT_RUN),
        SeededFault("no-fio", seeding.all_say(JOB, without="the image has no fio"), _NODE, Verdict.NOT_RUN),
        SeededFault("not-declared", _not_declared, _NODE, Verdict.EXCLUDED),
        SeededFault(
            "rank-crashes", seeding.rank(JOB, "gpu02", RankState.CRASHED, "killed by signal 9"), _NODE
        ),
        SeededFault("not-run", lambda e: seeding.without_job(e, JOB), _NODE, Verdict.NOT_RUN),
    ),
)
