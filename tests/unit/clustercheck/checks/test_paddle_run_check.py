"""Paddle's run_check: started outside of any group, read, and judged."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustercheck.checks import paddle_run_check
from clustercheck.checks.base import evaluate
from clustercheck.checks.paddle_run_check import CHECK, INSTALLED, JOB
from clustercheck.checks.support import seeding
from clustercheck.jobs import run_check
from clustercheck.model import Result, Verdict
from clustercheck.parse.paddle_check import PaddleCheck, parse_run_check
from clustercheck.parse.reading import CannotReadError
from clustercheck.samples import sample

# Printed by Paddle 3.3.1 on a processor, 2026-11-22.
ON_CPU = (
    "Running verify PaddlePaddle program ... \n"
    "I1122 14:57:57.777624 25846 pir_interpreter.cc:1529] New Executor is Running ...\n"
    f"PaddlePaddle works well on 1 CPU.\n{INSTALLED}"
)


class World(SimpleNamespace):
    """What the program needs of a rank."""

    def set_phase(self, phase: str, *, collective: bool = False) -> None:
        self.phase = phase

    def beat(self) -> None:
        pass


@pytest.fixture
def paddle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module called paddle whose check is what the test writes there."""
    (tmp_path / "paddle").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("PADDLE_TRAINER_ID", "3")
    monkeypatch.setenv("FLAGS_selected_gpus", "3")
    monkeypatch.setenv("NCCL_DEBUG_FILE", "x")
    return tmp_path / "paddle/__init__.py"


def test_fewer_gpus_are_no_fault_where_they_are_split_into_instances() -> None:
    def one_works(rank: Any, said: dict[str, Any]) -> None:
        said["check"]["text"] = said["check"]["text"].replace("on 8 GPUs", "on 1 GPU")

    alone = seeding.verdicts(JOB, one_works)(sample.healthy())
    assert {result.verdict for result in evaluate(CHECK, alone)} == {Verdict.FAIL}
    split = seeding.chain(*(seeding.smi("gpu02", gpu, "mig_mode/current_mig", "Enabled") for gpu in range(8)))
    verdicts = {result.subject.node: result.verdict for result in evaluate(CHECK, split(alone))}
    assert verdicts == {"gpu01": Verdict.FAIL, "gpu02": Verdict.PASS, "gpu03": Verdict.FAIL}


def reported(paddle: Path, body: str, limit_s: float) -> dict[str, Any]:
    """What the job reports where run_check is this body."""
    lines = "".join(f"        {line}\n" for line in body.splitlines())
    paddle.write_text(
        f"import os, sys, time\nclass utils:\n    @staticmethod\n    def run_check():\n{lines}", "utf-8"
    )
    return dict(run_check.run(World(), {"limit_each_s": limit_s}))  # type: ignore[arg-type]


def asked(paddle: Path, body: str, limit_s: float = 30) -> dict[str, Any]:
    return dict(reported(paddle, body, limit_s)["check"])


def test_it_runs_as_a_plain_process_that_is_no_rank(paddle: Path) -> None:
    names = "[n for n in os.environ if n.startswith(('PADDLE_', 'FLAGS_sel', 'NCCL_'))]"
    said = asked(paddle, f"print({names})\nprint('to the other stream', file=sys.stderr)")
    assert said["exit_code"] == 0
    assert sorted(said["text"].splitlines()) == ["[]", "to the other stream"]
    assert said["command"].endswith(f"{sys.executable} -c {shlex.quote(run_check.PROGRAM)}")


def test_what_raises_or_hangs_is_told_and_ended(paddle: Path) -> None:
    raised = asked(paddle, "raise OSError('unhandled system error')")
    assert raised["exit_code"] == 1
    assert "OSError: unhandled system error" in raised["text"]
    hung = asked(paddle, "print('begun', flush=True)\ntime.sleep(600)", limit_s=2)
    assert (hung["exit_code"], hung["text"]) == (None, "begun\n")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (ON_CPU, PaddleCheck("CPU", 1, alone=False)),
        (f"PaddlePaddle works well on 1 GPU.\nPaddlePaddle works well on 8 GPUs.\n{INSTALLED}",
         PaddleCheck("GPU", 8, alone=False)),
        ("PaddlePaddle works well on 1 GPU.\nPaddlePaddle is installed successfully ONLY for single GPU!",
         PaddleCheck("GPU", 1, alone=True)),
    ],
)  # fmt: skip
def test_what_it_prints_is_read(text: str, found: PaddleCheck) -> None:
    assert parse_run_check(text) == found


@pytest.mark.parametrize(
    "text", ["", INSTALLED, "PaddlePaddle works well on 8 GPUs.\n", ON_CPU.replace("well", "")]
)
def test_what_says_less_is_not_read(text: str) -> None:
    with pytest.raises(CannotReadError):
        parse_run_check(text)


@given(st.text() | st.sampled_from(ON_CPU.splitlines()).map(lambda line: line * 3))
def test_no_text_is_a_traceback(text: str) -> None:
    try:
        parse_run_check(text)
    except CannotReadError as error:
        assert str(error)


def judged(**said: Any) -> Result:
    def change(_rank: Any, verdict: seeding.Raw) -> None:
        verdict["check"].update(said)

    return evaluate(CHECK, seeding.verdicts(JOB, change)(sample.healthy(1)))[0]


def test_one_node_is_judged_by_itself_and_on_every_gpu() -> None:
    good = judged()
    assert (good.verdict, good.measured, good.expected) == (Verdict.PASS, 8, 8)
    few = judged(text=f"PaddlePaddle works well on 1 GPU.\nPaddlePaddle works well on 6 GPUs.\n{INSTALLED}")
    assert (few.verdict, few.because) == (Verdict.FAIL, "Paddle works on 6 of 8 GPUs")


def test_a_processor_is_no_gpu_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where GPUs were not used, what passed on the CPU proves nothing of them: as for every job."""
    evidence = sample.healthy(1)
    evidence = seeding.with_facts(evidence, JOB, backend="gloo")

    def change(_rank: Any, verdict: seeding.Raw) -> None:
        verdict["check"]["text"] = ON_CPU

    result = evaluate(CHECK, seeding.verdicts(JOB, change)(evidence))[0]
    assert result.verdict is Verdict.NOT_RUN
    assert "GPUs not used" in result.because


LISTED = """GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-5c89852c-d268-c3f3-1b07-005d5ae1dc3f)
  MIG 3g.40gb     Device  0: (UUID: MIG-c7384736-a75d-5afc-978f-d2f1294409fd)
  MIG 1g.10gb     Device  1: (UUID: MIG-a2ff5f9f-c2a5-5ac7-8a9e-3a6e1a8f9a10)
  MIG 1g.10gb     Device  2: (UUID: MIG-93ad8fdf-c3a4-51ca-8b2b-3e1ec0d5fb62)
"""


FIRST, SECOND = "MIG-c7384736-a75d-5afc-978f-d2f1294409fd", "MIG-a2ff5f9f-c2a5-5ac7-8a9e-3a6e1a8f9a10"


@pytest.fixture
def divided(paddle: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A container that sees three MIG devices; returns the program that lists them."""
    program = tmp_path / "bin/nvidia-smi"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ncat <<'LIST'\n{LISTED}LIST\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return program


DEVICE = "device = os.environ.get('CUDA_VISIBLE_DEVICES')\nprint('on', device, flush=True)"


def test_it_runs_inside_one_instance_of_each_profile_in_equal_shares_of_the_time(
    paddle: Path, divided: Path
) -> None:
    verdict = reported(paddle, DEVICE, limit_s=90)
    assert (verdict["check"]["text"], verdict["check"]["limit_s"]) == ("on None\n", 30.0)
    assert [(one["profile"], one["device"], one["text"], one["limit_s"]) for one in verdict["instances"]] == [
        ("3g.40gb", FIRST, f"on {FIRST}\n", 30.0),
        ("1g.10gb", SECOND, f"on {SECOND}\n", 30.0),
    ]


@pytest.mark.parametrize(
    ("inside", "exit_code", "because"),
    [
        (
            "raise OSError('no kernel image')",
            1,
            "run_check inside MIG 3g.40gb ended with 1: OSError: no kernel image",
        ),
        ("time.sleep(600)", None, "run_check inside MIG 3g.40gb did not end within 2.0 s"),
    ],
)
def test_an_instance_that_fails_or_hangs_is_named_and_the_next_one_still_runs(
    paddle: Path, divided: Path, inside: str, exit_code: int | None, because: str
) -> None:
    verdict = reported(paddle, f"{DEVICE}\nif device == {FIRST!r}: {inside}", limit_s=6)
    assert verdict["check"]["exit_code"] == 0
    ends = {one["profile"]: (one["exit_code"], one["text"].splitlines()[0]) for one in verdict["instances"]}
    assert ends == {"3g.40gb": (exit_code, f"on {FIRST}"), "1g.10gb": (0, f"on {SECOND}")}

    def as_reported(rank: Any, record: dict[str, Any]) -> None:
        if rank.node == "gpu02":
            record["instances"] = verdict["instances"]

    split = seeding.split_gpu("gpu02", 3, "3g.40gb", "1g.10gb")
    evidence = seeding.chain(split, seeding.verdicts(JOB, as_reported))(sample.healthy())
    (result,) = [one for one in evaluate(CHECK, evidence) if one.subject.node == "gpu02"]
    assert result.verdict is Verdict.FAIL
    assert result.because == because


@pytest.mark.parametrize("listing", ["exit 9", "sleep 600"])
def test_without_a_list_of_instances_it_runs_once_with_all_the_time(
    paddle: Path, divided: Path, monkeypatch: pytest.MonkeyPatch, listing: str
) -> None:
    monkeypatch.setattr(run_check, "LIST_LIMIT_S", 1)
    divided.write_text(f"#!/bin/sh\nexec {listing}\n" if "sleep" in listing else f"#!/bin/sh\n{listing}\n")
    verdict = reported(paddle, DEVICE, limit_s=30)
    assert (verdict["check"]["limit_s"], verdict["instances"]) == (30.0, [])


def test_paddle_on_the_processor_is_not_inside_an_instance() -> None:
    inside = paddle_run_check._inside(0, "1g.10gb", "3g.40gb")(sample.healthy())

    def on_cpu(rank: Any, record: dict[str, Any]) -> None:
        for one in record.get("instances", []):
            one["text"] = one["text"].replace("1 GPU", "1 CPU")

    found = {one.subject.node: one for one in evaluate(CHECK, seeding.verdicts(JOB, on_cpu)(inside))}
    assert found["gpu02"].verdict is Verdict.FAIL
    assert found["gpu02"].because == "inside MIG 1g.10gb Paddle works on the CPU"
    assert found["gpu01"].verdict is Verdict.PASS
