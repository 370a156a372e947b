"""DCGM's own diagnostic, where DCGM is installed: every test it ran on each GPU, and on the node."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from clustercheck.checks.base import (
    Check,
    Finding,
    SeededFault,
    every_gpu,
    failed,
    not_applicable,
    not_run,
    passed,
)
from clustercheck.checks.support import seeding
from clustercheck.checks.support.gpu import gpu_of
from clustercheck.evidence.cluster import Evidence
from clustercheck.model import Scope, Section, Subject, Verdict
from clustercheck.parse.dcgm import Diag, DiagResult, DiagStatus, parse_dcgm
from clustercheck.parse.reading import NotDoneError, program_output
from clustercheck.samples.dcgm import dcgm3_text, dcgm4_text

NOT_INSTALLED = "DCGM is not installed on this node: there is no dcgmi"
SOURCE = "NVIDIA, dcgmi diag reference: levels 1 (seconds), 2 (about two minutes), 3 (about 15 minutes)"
DEPLOYMENT = "Deployment"
DEPLOYMENT_LEVEL = "1"  # it may have no test of a GPU


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """A warning counts as a failure: DCGM asks to act on it. What was skipped on every GPU is not a pass."""
    name = str(subject.node)
    part = evidence.nodes[name].mapping("dcgm")
    version = part.get("version")
    if isinstance(version, Mapping) and version.get("missing"):
        return not_applicable(NOT_INSTALLED)
    gpu = gpu_of(evidence, subject)
    if gpu.mig == "Enabled":
        return not_applicable("MIG is on, which DCGM's diagnostic does not test")
    if name in evidence.left_out:
        return not_run(evidence.left_out[name])
    if part.get("failed"):
        raise NotDoneError(f"DCGM's diagnostic could not be run: {part['failed']}")
    if "diag" not in part:
        raise NotDoneError("DCGM's diagnostic was not run")
    diag = evidence.once(
        lambda _: _read(part["diag"], len(evidence.nodes[name].smi().gpus)), ("dcgm-diag", name)
    )
    return _judged(diag, gpu.index, str(part.get("level")))


def _read(record: Any, gpus: int) -> Diag:
    """The diagnostic, also where its exit code says that a test failed. Raises CannotReadError."""
    answer = record.get("stdout") if isinstance(record, Mapping) else None
    if (
        isinstance(record, Mapping)
        and isinstance(answer, str)
        and "{" in answer
        and not record.get("timed_out")
    ):
        return parse_dcgm(answer, gpus)
    return parse_dcgm(program_output(record, "dcgmi diag"), gpus)


def _judged(diag: Diag, gpu: int, level: str) -> Finding:
    mine = diag.of_gpu(gpu)
    of_node = tuple(result for result in diag.results if result.gpu is None)
    wrong = [result for result in (*mine, *of_node) if result.said in (DiagStatus.FAIL, DiagStatus.WARN)]
    passed_tests = sorted({result.test for result in (*mine, *of_node) if result.said is DiagStatus.PASS})
    more = {
        "level": level,
        "dcgm": diag.version,
        "passed": passed_tests,
        "skipped": sorted({result.test for result in mine if result.said is DiagStatus.SKIP}),
    }
    if wrong:
        told = "; ".join(map(_told, wrong[:3]))
        return failed(told, len(wrong), 0, unit="tests", source=SOURCE, evidence=more)
    silent = [result.test for result in mine if result.said is DiagStatus.NOT_RUN and result.messages]
    if silent:
        return not_run(f"DCGM reports nothing about this GPU's {', '.join(silent[:4])}", evidence=more)
    # That software is in place, which comes first, tests no GPU.
    tested = [result.said for result in mine if result.category != DEPLOYMENT]
    if not passed_tests or (DiagStatus.SKIP in tested and DiagStatus.PASS not in tested):
        return not_run("DCGM skipped every test of this GPU", evidence=more)
    if level != DEPLOYMENT_LEVEL and DiagStatus.PASS not in tested:
        return not_run("DCGM tested only the software, not this GPU", evidence=more)
    return passed(0, 0, unit="tests", source=SOURCE, evidence=more)


def _told(result: DiagResult) -> str:
    where = result.entity or ("the node" if result.gpu is None else "")
    message = f": {result.messages[0]}" if result.messages else ""
    return f"DCGM's {result.test}" + (f" ({where})" if where else "") + f": {result.said}{message}"


def _printed(node: str, text: str, **how: Any) -> seeding.Inject:
    return seeding.edit(node, lambda raw: raw["dcgm"]["diag"].update({"stdout": text, **how}))


def _busy(evidence: Evidence) -> Evidence:
    return replace(evidence, left_out={"gpu03": "the node is busy: Slurm job(s): 7"})


def _no_daemon(raw: seeding.Raw) -> None:
    error = "Error: unable to establish a connection to the specified host: localhost"
    raw["dcgm"]["diag"].update(rc=1, stdout="", stderr=error)


_DEPLOYMENT_ALONE = json.loads(dcgm4_text(8))
_DEPLOYMENT_ALONE["DCGM Diagnostic"]["test_categories"].pop()
CHECK = Check(
    id="dcgm-diag",
    title="DCGM's diagnostic",
    section=Section.GPU_STATE,
    scope=Scope.GPU,
    measures="what NVIDIA's DCGM finds when it tests each GPU, at the level that the suite names",
    method="dcgmi diag -r LEVEL -j, of DCGM 3 or 4, on all idle nodes at once",
    requires="DCGM with its daemon running, an idle node, MIG off",
    expectation="no test failed, none warned",
    remedy="Run `dcgmi diag -r 3` on the drained node and do what it names; where it is seen again after a "
    "reset or reboot, hand its output to the supplier.",
    subjects=every_gpu,
    judge=judge,
    faults=(
        SeededFault(
            "memory-test-fails",
            _printed("gpu01", dcgm4_text(8, memory={3: "Fail"}), rc=226),
            Subject("gpu01", 3),
        ),
        SeededFault(
            "memory-test-fails-dcgm-3",
            _printed("gpu02", dcgm3_text(8, memory={5: "Fail"}), rc=226),
            Subject("gpu02", 5),
        ),
        SeededFault("warning", _printed("gpu02", dcgm4_text(8, memory={0: "Warn"})), Subject("gpu02", 0)),
        SeededFault(
            "nothing-but-skipped",
            _printed("gpu01", dcgm4_text(8, memory={2: "Skip"})),
            Subject("gpu01", 2),
            Verdict.NOT_RUN,
        ),
        SeededFault(
            "nothing-but-skipped-dcgm-3",
            _printed("gpu03", dcgm3_text(8, memory={2: "Skip"})),
            Subject("gpu03", 2),
            Verdict.NOT_RUN,
        ),
        SeededFault(
            "software-alone",
            seeding.chain(
                _printed("gpu02", json.dumps(_DEPLOYMENT_ALONE)),
                seeding.edit("gpu02", lambda raw: raw["dcgm"].update(level=2)),
            ),
            Subject("gpu02", 3),
            Verdict.NOT_RUN,
        ),
        SeededFault(
            "a-gpu-passed-over", _printed("gpu02", dcgm3_text(7)), Subject("gpu02", 7), Verdict.NOT_RUN
        ),
        SeededFault(
            "output-cut-off", _printed("gpu03", dcgm4_text(8)[:700]), Subject("gpu03", 0), Verdict.NOT_RUN
        ),
        SeededFault(
            "no-answer", _printed("gpu03", "", timed_out=True, rc=124), Subject("gpu03", 1), Verdict.NOT_RUN
        ),
        SeededFault("no-daemon", seeding.edit("gpu03", _no_daemon), Subject("gpu03", 2), Verdict.NOT_RUN),
        SeededFault("busy", _busy, Subject("gpu03", 4), Verdict.NOT_RUN),
        SeededFault(
            "not-installed",
            seeding.edit("gpu01", lambda raw: raw["dcgm"]["version"].update(missing=True, rc=None)),
            Subject("gpu01", 0),
            Verdict.EXCLUDED,
        ),
    ),
)
