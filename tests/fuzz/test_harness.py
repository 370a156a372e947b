"""The fuzzer finds what is broken: an exception, an endless loop, memory without end."""

from __future__ import annotations

import json
import random
import signal
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


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(child, "CPU_S", 0.2)
    signal.signal(signal.SIGVTALRM, child._too_long)


@pytest.mark.parametrize(("run", "because"), [(careless, "TypeError"), (endless, "more than 0.2 s of CPU")])
def test_a_broken_reader_is_found(run, because) -> None:
    record = child.fuzz(Target("broken", lambda: SEEDS, run), SEEDS, generator(1), 400)
    assert any(because in failure["because"] for failure in record["failures"])
    assert Path(f"failed-broken-{record['failures'][0]['number']}").exists()


def test_mutants_are_the_same_for_the_same_seed_and_differ_from_their_seed() -> None:
    first, second = ([mutant(SEEDS, generator(seed)) for seed in range(300)] for _ in range(2))
    assert first == second
    assert len(set(first)) > 200
    assert sum(each not in SEEDS for each in first) > 290
