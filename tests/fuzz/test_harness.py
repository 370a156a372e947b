"""The fuzzer finds what is broken: an exception, an endless loop, memory without end."""

from __future__ import annotations

import contextlib
import json
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fuzz import child
from tests.fuzz.mutants import mutant
from tests.fuzz.target import Target

SEEDS = [b'{"name": "gpu01", "gpus": 8, "ports": [1, 2]}']


def generator(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311 - no secret


def careless(data: bytes) -> None:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return
    assert document["gpus"] + 1


def endless(data: bytes) -> None:
    while b"8" not in data:
        pass


def swallowing(data: bytes) -> None:
    """Goes on whatever is raised; it ends by itself, so that without a limit the test fails, not hangs."""
    until = time.process_time() + 2
    while b"8" not in data and time.process_time() < until:
        with contextlib.suppress(Exception):
            while time.process_time() < until:
                pass


class Dropped:
    def __del__(self) -> None:
        endless_for(0.3)


def endless_for(seconds: float) -> None:
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass


def in_a_destructor(data: bytes) -> None:
    """The first signal comes where Python drops what is raised."""
    if b"8" not in data:
        Dropped()
        endless_for(2)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(child, "CPU_S", 0.2)
    monkeypatch.setattr(child, "CPU_AGAIN_S", 0.1)
    before = signal.getsignal(signal.SIGPROF)
    child.limit_cpu()
    yield
    signal.signal(signal.SIGPROF, before)


TOO_LONG = "CpuLimitError: it took more than 0.2 s of CPU"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("run", "because"),
    [(careless, "TypeError"), (endless, TOO_LONG), (swallowing, TOO_LONG), (in_a_destructor, TOO_LONG)],
)
def test_a_broken_reader_is_found(run, because) -> None:
    record = child.fuzz(Target("broken", lambda: SEEDS, run), SEEDS, generator(1), 400)
    assert any(because in failure["because"] for failure in record["failures"])
    assert Path(f"failed-broken-{record['failures'][0]['number']}").exists()


def test_mutants_are_the_same_for_the_same_seed_and_differ_from_their_seed() -> None:
    first, second = ([mutant(SEEDS, generator(seed)) for seed in range(300)] for _ in range(2))
    assert first == second
    assert len(set(first)) > 200
    assert sum(each not in SEEDS for each in first) > 290
