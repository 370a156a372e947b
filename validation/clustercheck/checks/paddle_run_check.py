"""Paddle's run_check of its installation, on each node with all its GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clustercheck.checks.base import Check, Finding, SeededFault, every_node, failed, passed
from clustercheck.checks.support import seeding
from clustercheck.checks.support.job import broken, has_mig, outcome_of, ranks_of
from clustercheck.evidence.cluster import Evidence
from clustercheck.launch.model import RankOutcome, RankState
from clustercheck.model import Scope, Section, Subject, Verdict
from clustercheck.parse.paddle_check import parse_run_check
from clustercheck.parse.reading import CannotReadError, NotDoneError

JOB = "run_check"
SAID = 600  # characters of what it printed, the last


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """It must succeed, on every GPU that the node should have."""
    node = str(subject.node)
    outcome = outcome_of(evidence, JOB)
    ranks = ranks_of(outcome, node)
    if not ranks:
        raise NotDoneError(evidence.dropped.get(node, "no rank ran on this node"))
    if not outcome.good:
        return broken(outcome, subject)
    run = (ranks[0].verdict or {}).get("check")
    if not isinstance(run, Mapping) or "exit_code" not in run:
        raise CannotReadError("the rank did not report the outcome of run_check")
    text = str(run.get("text") or "")
    expected, more = "works well", {"printed": text[-SAID:]}
    if run["exit_code"] is None:
        return failed(
            f"run_check did not end within {run.get('limit_s')} s", "no end", expected, evidence=more
        )
    if run["exit_code"] != 0:
        because = f"run_check ended with {run['exit_code']}: {_last_line(text) or 'it said nothing'}"
        return failed(because, f"exit code {run['exit_code']}", expected, evidence=more)
    found = parse_run_check(text)
    if found.device != "GPU":
        return passed(f"{found.devices} {found.device}", expected)
    gpus = evidence.gpu_count(node)
    if (found.alone or found.devices < gpus) and not has_mig(evidence, node):
        because = f"Paddle works on {1 if found.alone else found.devices} of {gpus} GPUs"
        return failed(because, found.devices, gpus, unit="GPUs", evidence=more)
    return passed(found.devices, gpus, unit="GPUs")


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""


def _ends(exit_code: int | None, text: str) -> seeding.Inject:
    def change(rank: RankOutcome, record: seeding.Raw) -> None:
        if rank.node == "gpu02":
            record["check"].update(exit_code=exit_code, text=text)

    return seeding.verdicts(JOB, change)


def _forget(_rank: RankOutcome, record: dict[str, Any]) -> None:
    record.pop("check")


RAISED = "Traceback (most recent call last):\nOSError: (External) NCCL error(2), unhandled system error."
SEVEN = "PaddlePaddle works well on 1 GPU.\nPaddlePaddle works well on 7 GPUs.\n"
INSTALLED = "PaddlePaddle is installed successfully! Let's start deep learning with PaddlePaddle now.\n"
SINGLE = "PaddlePaddle works well on 1 GPU.\nPaddlePaddle is installed successfully ONLY for single GPU!\n"
GPU02 = Subject("gpu02")
CHECK = Check(
    id="paddle-run-check",
    title="Paddle's run_check",
    section=Section.TRAINING,
    scope=Scope.HOST,
    measures="whether Paddle trains a step on one device of the node, and on all of them together",
    method="paddle.utils.run_check() once a node, as a plain process in the training image",
    requires="a training image with Paddle",
    expectation="it succeeds and names every GPU of the node",
    remedy=(
        "Read its output: check NCCL or the driver if all GPUs together fail, the image (CUDA, compute "
        "capability) if one GPU fails, container-gpus if it sees too few."
    ),
    subjects=every_node,
    judge=judge,
    job=JOB,
    faults=(
        SeededFault("raises", _ends(1, RAISED), GPU02),
        SeededFault("hangs", _ends(None, "Running verify PaddlePaddle program ...\n"), GPU02),
        SeededFault("too-few-gpus", _ends(0, SEVEN + INSTALLED), GPU02),
        SeededFault("one-gpu-alone", _ends(0, SINGLE), GPU02),
        SeededFault("says-something-else", _ends(0, "PaddlePaddle is fine.\n"), GPU02, Verdict.NOT_RUN),
        SeededFault("says-nothing", seeding.verdicts(JOB, _forget), Subject("gpu01"), Verdict.NOT_RUN),
        SeededFault(
            "rank-crashes", seeding.rank(JOB, "gpu02", RankState.CRASHED, "killed by SIGKILL"), GPU02
        ),
    ),
)
