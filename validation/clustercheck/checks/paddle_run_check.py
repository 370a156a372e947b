"""Paddle's run_check of its installation, on each node with all its GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clustercheck.checks.base import Check, Finding, SeededFault, every_node, failed, passed
from clustercheck.checks.support import seeding
from clustercheck.checks.support.job import failed_on, has_mig, outcome_of, ranks_of
from clustercheck.evidence.cluster import Evidence
from clustercheck.launch.model import RankOutcome, RankState
from clustercheck.model import Scope, Section, Subject, Verdict
from clustercheck.parse.gpu_list import parse_gpu_list
from clustercheck.parse.paddle_check import parse_run_check
from clustercheck.parse.reading import CannotReadError, NotDoneError, program_output

JOB = "run_check"
SAID = 600  # characters of what it printed, the last


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """It must succeed, on every GPU that the node should have."""
    node = str(subject.node)
    if (finding := failed_on(evidence, JOB, subject)) is not None:
        return finding
    ranks = ranks_of(outcome_of(evidence, JOB), node)
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
    profiles = _profiles(evidence, node)
    works = passed(found.devices, gpus, unit="GPUs")
    return _inside_instances(ranks[0].verdict or {}, profiles) if profiles else works


def _profiles(evidence: Evidence, node: str) -> set[str]:
    """The profiles of the node's MIG devices; none where it has none, or they cannot be read (gpu-mig)."""
    if not has_mig(evidence, node):
        return set()
    try:
        listed = parse_gpu_list(program_output(evidence.nodes[node].part("gpu_list"), "nvidia-smi -L"))
    except CannotReadError:
        return set()
    return {profile for profiles in listed.values() for profile in profiles}


def _inside_instances(verdict: Mapping[str, Any], profiles: set[str]) -> Finding:
    """Paddle must work inside one instance of each profile."""
    ran = verdict.get("instances")
    listed = ran if isinstance(ran, list) else []
    ends = {str(one.get("profile")): one for one in listed if isinstance(one, Mapping)}
    if missing := sorted(profiles - set(ends)):
        raise NotDoneError(f"the container saw no MIG device {', '.join(missing)} to run inside")
    # Failures first: output of another instance that cannot be read does not hide them.
    for profile, one in sorted(ends.items(), key=lambda end: (end[1].get("exit_code") == 0, end[0])):
        text = str(one.get("text") or "")
        more = {"printed": text[-SAID:], "device": str(one.get("device"))}
        if one.get("exit_code") is None:
            because = f"run_check inside MIG {profile} did not end within {one.get('limit_s')} s"
            return failed(because, "no end", "works well", evidence=more)
        if one["exit_code"] != 0:
            because = f"run_check inside MIG {profile} ended with {one['exit_code']}: {_last_line(text)}"
            return failed(because, "it failed", "works well", evidence=more)
        if (device := parse_run_check(text).device) != "GPU":
            return failed(f"inside MIG {profile} Paddle works on the {device}", device, "GPU", evidence=more)
    names = ", ".join(sorted(ends))
    return passed(f"works inside {names}", f"inside one instance of each profile: {names}")


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""


def _ends(exit_code: int | None, text: str) -> seeding.Inject:
    def change(rank: RankOutcome, record: seeding.Raw) -> None:
        if rank.node == "gpu02":
            record["check"].update(exit_code=exit_code, text=text)

    return seeding.verdicts(JOB, change)


def _inside(exit_code: int | None, *profiles: str) -> seeding.Inject:
    """GPU 3 of gpu02 is split into 3g.40gb and 1g.10gb, and Paddle ran inside these with this end."""

    def change(rank: RankOutcome, record: seeding.Raw) -> None:
        if rank.node == "gpu02":
            ended = {
                "exit_code": exit_code,
                "limit_s": 60.0,
                "text": ONE + INSTALLED if exit_code == 0 else "",
            }
            record["instances"] = [{"profile": name, "device": f"MIG-{name}", **ended} for name in profiles]

    return seeding.chain(seeding.split_gpu("gpu02", 3, "3g.40gb", "1g.10gb"), seeding.verdicts(JOB, change))


def _forget(_rank: RankOutcome, record: dict[str, Any]) -> None:
    record.pop("check")


RAISED = "Traceback (most recent call last):\nOSError: (External) NCCL error(2), unhandled system error."
SEVEN = "PaddlePaddle works well on 1 GPU.\nPaddlePaddle works well on 7 GPUs.\n"
INSTALLED = "PaddlePaddle is installed successfully! Let's start deep learning with PaddlePaddle now.\n"
ONE = "PaddlePaddle works well on 1 GPU.\n"
SINGLE = "PaddlePaddle works well on 1 GPU.\nPaddlePaddle is installed successfully ONLY for single GPU!\n"
GPU02 = Subject("gpu02")
CHECK = Check(
    id="paddle-run-check",
    title="Paddle's run_check",
    section=Section.TRAINING,
    scope=Scope.HOST,
    measures="whether Paddle trains a step on one device of the node, and on all of them together",
    method=(
        "paddle.utils.run_check() once a node, as a plain process in the training image; where GPUs are "
        "divided by MIG, also inside one instance of each profile (CUDA_VISIBLE_DEVICES of its UUID)"
    ),
    requires="a training image with Paddle",
    expectation="it succeeds and names every GPU of the node, and succeeds inside MIG instances",
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
        SeededFault("instance-fails", _inside(1, "1g.10gb", "3g.40gb"), GPU02),
        SeededFault("instance-hangs", _inside(None, "1g.10gb", "3g.40gb"), GPU02),
        SeededFault("instance-not-seen", _inside(0, "3g.40gb"), GPU02, Verdict.NOT_RUN),
        SeededFault("instances-work", _inside(0, "1g.10gb", "3g.40gb"), GPU02, Verdict.PASS),
        SeededFault(
            "rank-crashes", seeding.rank(JOB, "gpu02", RankState.CRASHED, "killed by SIGKILL"), GPU02
        ),
    ),
)
