"""Training from files with Paddle's own DataLoader and its worker processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clustercheck.jobs import data_loading

pytestmark = pytest.mark.paddle
SIZES = {"width": 8, "blocks": [1, 1, 1, 1], "classes": 10}
CHOSEN = {
    "samples": 64,
    "batch": 4,
    "side": 32,
    "workers": 2,
    "warmup": 4,
    "precision": "fp32",
    "sizes": SIZES,
}
SMALL = {"seed": 1, "on_cpu": CHOSEN}
# Storage that answers with another file's content.
SWAPS = (
    "import data_loading\n"
    "join = data_loading.join\n"
    "def run(world, arguments):\n"
    "    read = data_loading.read_sample\n"
    "    data_loading.read_sample = lambda directory, number: (\n"
    "        (read(directory, number)[0], read(directory, 8)[1] and number != 7)\n"
    "    )\n"
    "    return data_loading.run(world, arguments)\n"
)


def test_each_sample_comes_once_from_memory_and_from_storage(tmp_path: Path, ranks_of_a_job: Any) -> None:
    storage = [tmp_path / "storage-0", tmp_path / "storage-1"]
    for place in storage:
        place.mkdir()
    verdicts = ranks_of_a_job(
        tmp_path / "job", "data_loading", {**SMALL, "storage": str(tmp_path / "storage-"), "meetings": 3}
    )
    for verdict in verdicts:
        assert (verdict["ok"], verdict["because"]) == (True, "")
        assert list(verdict["loading"]) == [data_loading.MEMORY, *map(str, storage)]
        for found in verdict["loading"].values():
            assert found["step_s"] > 0 and 0 <= found["wait_part"] <= 1
            counts = [found[key] for key in ("unable", "samples", "wrong", "missing", "twice")]
            assert counts == ["", 64, 0, 0, 0]
    assert not any(list(place.iterdir()) for place in storage)


def test_a_sample_that_is_another_is_found(tmp_path: Path, ranks_of_a_job: Any) -> None:
    arguments = {**SMALL, "storage": str(tmp_path / "none-"), "meetings": 1}
    (verdict,) = ranks_of_a_job(tmp_path / "job", "swaps", arguments, ranks=1, programs={"swaps": SWAPS})
    assert verdict["ok"] is False
    assert verdict["because"] == "/dev/shm: 1 of 64 samples differ from what was written"
