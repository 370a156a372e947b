"""The files that training is loaded from: what is written, read back, counted and removed."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from clustercheck.jobs import data_loading as program
from clustercheck.jobs import scratch

CHOSEN = {"samples": 4, "side": 2}


def world(rank: int = 3) -> SimpleNamespace:
    return SimpleNamespace(rank=rank, set_phase=lambda *_args, **_more: None)


@pytest.fixture
def own(tmp_path: Path) -> Iterator[scratch.Scratch]:
    with scratch.make_scratch(tmp_path, program.PREFIX, program.NAMES) as made:
        yield made


def test_samples_are_read_back_as_they_were_written(own: scratch.Scratch) -> None:
    program.write_samples(own, 3, 12)
    assert sorted(path.name for path in own.path.iterdir()) == [
        f"clusterctl.{number}.sample" for number in range(3)
    ]
    contents = {program.read_sample(own.path, number) for number in range(3)}
    assert len(contents) == 3
    assert all(len(content) == 12 and right for content, right in contents)


def test_another_byte_and_another_file_are_noticed(own: scratch.Scratch) -> None:
    directory = own.path
    program.write_samples(own, 2, 12)
    first, second = (directory / program.NAME.format(number) for number in range(2))
    content = bytearray(first.read_bytes())
    content[9] ^= 1
    first.write_bytes(content)
    assert program.read_sample(directory, 0)[1] is False
    first.write_bytes(second.read_bytes())
    assert program.read_sample(directory, 0)[1] is False
    assert program.read_sample(directory, 1)[1] is True


@pytest.mark.parametrize(
    ("numbers", "right", "counts"),
    [
        ([0, 1, 2], 3, (0, 0, 0)),
        ([0, 2], 2, (0, 1, 0)),
        ([0, 1, 2, 2, 2], 5, (0, 0, 1)),
        ([2, 1, 0], 2, (1, 0, 0)),
    ],
)
def test_samples_are_counted(numbers: list[int], right: int, counts: tuple[int, int, int]) -> None:
    found = program.count_samples(numbers, right, 3)
    assert (found["wrong"], found["missing"], found["twice"]) == counts
    assert bool(program.place_problem({"unable": "", **found})) is any(counts)


def test_a_ranks_directory_is_its_own_and_is_removed_whatever_happens(tmp_path: Path) -> None:
    prefix = f"{program.PREFIX}{socket.gethostname()}-3"
    left = tmp_path / f"{prefix}-0123456789abcdef"
    left.mkdir(mode=0o700)
    (left / program.NAME.format(0)).touch()
    (tmp_path / "of others").touch()
    with pytest.raises(ValueError, match="stop"), program._prepare(world(), str(tmp_path), CHOSEN) as found:
        directory, unable = found
        assert (directory.parent, unable) == (tmp_path, "")
        assert directory.name.startswith(f"{prefix}-") and not left.exists()
        assert len(list(directory.iterdir())) == 4
        raise ValueError("stop")
    assert [path.name for path in tmp_path.iterdir()] == ["of others"]


def test_where_it_cannot_write_it_says_why(tmp_path: Path) -> None:
    with program._prepare(world(), str(tmp_path / "none"), CHOSEN) as (_, unable):
        assert unable == "FileNotFoundError: No such file or directory"
    with program._prepare(world(), str(tmp_path), {**CHOSEN, "samples": 1 << 50}) as (_, unable):
        assert "bytes are free" in unable
    assert list(tmp_path.iterdir()) == []


def test_storage_is_found_by_how_its_path_begins(tmp_path: Path) -> None:
    for name in ("storage-1", "storage-0", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "storage-2").touch()
    found = program.find_storage(str(tmp_path / "storage-"))
    assert found == [str(tmp_path / "storage-0"), str(tmp_path / "storage-1")]


def test_ranks_meet_as_often_as_the_launcher_says_whatever_they_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No rank is asked how many places it has: it could say 2^62, and the others would wait for ever."""
    monkeypatch.setattr(program, "measure_place", lambda *_: {"step_s": 1.0})
    places = [tmp_path / name for name in ("a", "b", "c")]
    for place in places:
        place.mkdir()
    met: list[str] = []
    ranks = SimpleNamespace(**vars(world()), barrier=lambda: met.append("met"))
    for own in range(4):
        met.clear()
        found = program.load_from(ranks, [str(each) for each in places[:own]], 2, print, CHOSEN)
        assert len(met) == 2
        assert list(found) == [str(each) for each in places[: min(own, 2)]]
