"""rank.py and supervise.py as real processes, over a stand-in for the framework."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import clustercheck.jobs
from clustercheck.jobs import supervise

JOBS = Path(clustercheck.jobs.__file__).parent

# Enough of Paddle for a group of which nobody waits for anybody.
PADDLE = """
__version__ = "0.stub"
class device:
    @staticmethod
    def set_device(name): pass
class distributed:
    @staticmethod
    def init_parallel_env(): pass
    @staticmethod
    def get_world_size():
        import os
        return int(os.environ["PADDLE_TRAINERS_NUM"])
    @staticmethod
    def barrier(group=None): pass
"""

PROGRAMS = {
    "good": "def run(world, arguments):\n    return {'ok': True, 'because': '', 'seen': arguments['seed']}\n",
    "raises": "def run(world, arguments):\n    world.set_phase('adding', collective=True)\n"
    "    raise RuntimeError('Connection reset by peer')\n",
    "dies": "import os, signal\ndef run(world, arguments):\n    world.set_phase('dying')\n"
    "    if world.rank == 0:\n        os.kill(os.getpid(), signal.SIGKILL)\n"
    "    return {'ok': True, 'because': ''}\n",
    "hangs": "import time\ndef run(world, arguments):\n"
    "    world.set_phase('sleeping for ever')\n    time.sleep(600)\n",
    "dawdles": "import time\ndef run(world, arguments):\n    while True:\n"
    "        world.set_phase('dawdling')\n        time.sleep(0.05)\n",
    "ends_when_looked_at": "import os, signal, time\ndef run(world, arguments):\n"
    "    signal.signal(signal.SIGUSR1, lambda *_: os._exit(1))\n"
    "    world.set_phase('about to end')\n    time.sleep(600)\n",
    "says_nan": "def run(world, arguments):\n    return {'ok': True, 'because': '', 'value': float('nan')}\n",
}


@pytest.fixture
def directory(tmp_path):
    for name in ("rank.py", "supervise.py"):
        shutil.copy(JOBS / name, tmp_path)
    (tmp_path / "paddle.py").write_text(PADDLE)
    for name, source in PROGRAMS.items():
        (tmp_path / f"{name}.py").write_text(source)
    (tmp_path / "arguments.json").write_text('{"seed": 5}')
    return tmp_path


def start(directory: Path, program: str, ranks: int = 1, timeout_s: float = 20.0) -> subprocess.Popen[bytes]:
    environment = {"PADDLE_TRAINERS_NUM": str(ranks), "CLUSTERCTL_BACKEND": "gloo", "PATH": "/nowhere"}
    specs = [{"rank": r, "environment": {**environment, "PADDLE_TRAINER_ID": str(r)}} for r in range(ranks)]
    job = {"program": program, "timeout_s": timeout_s, "ranks": specs}
    (directory / "job.json").write_text(json.dumps(job))
    return subprocess.Popen([sys.executable, str(directory / "supervise.py"), str(directory)])


def left(directory: Path, rank: int, what: str) -> dict:
    return json.loads((directory / f"rank-{rank}.{what}").read_text())


def wait_for(path: Path, text: str) -> None:
    deadline = time.monotonic() + 15
    while not (path.exists() and text in path.read_text()):
        assert time.monotonic() < deadline, f"{path} never said {text!r}"
        time.sleep(0.02)


def test_a_rank_that_ends_well_leaves_its_verdict(directory):
    assert start(directory, "good").wait(20) == 0
    verdict = left(directory, 0, "verdict.json")
    assert verdict["ok"] is True
    assert verdict["seen"] == 5
    assert verdict["framework"] == "paddle 0.stub"
    assert verdict["simulated"] is False
    assert left(directory, 0, "end") == {"exit_code": 0, "order": 0, "killed": "", "state": ""}


def test_an_exception_becomes_a_verdict_with_the_phase(directory):
    assert start(directory, "raises").wait(20) == 1
    verdict = left(directory, 0, "verdict.json")
    assert verdict["ok"] is False
    assert verdict["because"] == "RuntimeError while adding: Connection reset by peer"
    assert verdict["collective"] is True
    assert "Traceback" in (directory / "rank-0.log").read_text()


def test_a_dead_rank_is_recorded_first_and_its_peer_may_still_speak(directory):
    assert start(directory, "dies", ranks=2).wait(30) == 1
    assert left(directory, 0, "end")["exit_code"] == -signal.SIGKILL
    assert not (directory / "rank-0.verdict.json").exists()
    assert left(directory, 0, "progress")["phase"] == "dying"
    assert left(directory, 1, "verdict.json")["ok"] is True


def test_a_rank_past_its_time_is_killed_though_it_gets_on(directory):
    assert start(directory, "dawdles", timeout_s=1.5).wait(20) == 1
    assert left(directory, 0, "end")["killed"] == "deadline"


def test_ranks_that_stand_still_are_not_waited_for_until_the_time_is_up(directory):
    assert start(directory, "hangs", timeout_s=15.0).wait(40) == 1
    end = left(directory, 0, "end")
    assert end["killed"] == "stalled"
    assert end["state"] == "S"
    progress = left(directory, 0, "progress")
    assert (progress["phase"], progress["collective"]) == ("sleeping for ever", False)
    assert "hangs.py" in (directory / "rank-0.stack").read_text()


def test_a_stop_request_dumps_stacks_too(directory):
    process = start(directory, "hangs")
    wait_for(directory / "rank-0.progress", "sleeping")
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 1
    assert left(directory, 0, "end")["killed"] == "told"
    assert "hangs.py" in (directory / "rank-0.stack").read_text()


def test_a_rank_that_ends_by_itself_meanwhile_was_not_ended(directory):
    process = start(directory, "ends_when_looked_at")
    wait_for(directory / "rank-0.progress", "about to end")
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 1
    assert left(directory, 0, "end") == {"exit_code": 1, "order": 0, "killed": "", "state": ""}


@pytest.mark.parametrize(
    ("states", "told"),
    [("DDS", "S"), ("ZDR", "R"), ("SR", "S"), ("D", "D"), ("T", "T"), ("ST", "T"), ("SD", "D")],
    ids=lambda letters: letters,
)
def test_a_moment_in_the_kernel_is_not_taken_for_a_hang(directory, monkeypatch, states, told):
    """The last of the states continues for ever; a rank that runs prints its stack, too."""
    monkeypatch.setattr(supervise, "STACK_S", 0.5)
    stack = directory / "rank-0.stack"
    stack.touch()
    letters = [*states]

    def state(_rank: supervise.Rank) -> str:
        letter = letters.pop(0) if len(letters) > 1 else letters[0]
        if letter in "SR" and letter == states[-1]:
            stack.write_text("a stack")
        return letter

    monkeypatch.setattr(supervise.Rank, "state", state)
    spec = {"rank": 0, "environment": {"CLUSTERCTL_BACKEND": "gloo"}}
    (directory / "rank.py").write_text("import signal\nsignal.pause()\n")
    monkeypatch.setattr(signal, "SIGUSR1", signal.SIGCONT)
    rank = supervise.Rank(directory, "hangs", spec)
    try:
        assert rank.dump_stack() == told
    finally:
        rank.process.kill()
        rank.process.wait()


def test_a_verdict_that_is_not_json_is_a_failure_not_a_pass(directory):
    assert start(directory, "says_nan").wait(20) == 1
    assert left(directory, 0, "verdict.json")["ok"] is False
