"""A disk that fills up in the middle, here and there: said plainly, and fixed by the next run."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.registries import Proxy, Running, bytes_of, put_image, registry

from .driving import MB, call, good, locked_site, mirror, records


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 12 MB."""
    place = tmp_path / "small"
    place.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", str(place)], capture_output=True, check=False
    )
    assert made.returncode == 0, made.stderr.decode()
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def fill(disk: Path) -> Path:
    """Somebody else takes what is left."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as stream:
        try:
            while True:
                stream.write(b"\0" * 65536)
        except OSError:
            return filler


def images(source: Running, before: Proxy, tmp_path: Path) -> Path:
    """A cluster of two images; the blobs of the second are larger."""
    put_image(source.host, "t/one", "1", [bytes_of(1, MB)])
    put_image(source.host, "t/two", "1", [bytes_of(2, 4 * MB)])
    return locked_site(tmp_path, before.host, "one", "two")


def fill_in_the_middle(disk: Path, before: Proxy) -> None:
    """Fill the disk when the source is asked for a blob of the second image for the first time."""
    fillers: list[Path] = []

    def fault(_method: str, path: str, _number: int) -> None:
        if "/t/two/blobs/" in path and not fillers:
            fillers.append(fill(disk))

    before.fault = fault


def test_our_disk_fills_up_in_the_middle(
    tmp_path: Path, source: Running, before_source: Proxy, destination: Running, small_disk: Path
) -> None:
    directory = images(source, before_source, tmp_path)
    fill_in_the_middle(small_disk, before_source)
    spool = ("--spool", str(small_disk / "spool"), "--jobs", "1")
    done = mirror(directory, destination, *spool)
    assert done.return_value == 1
    found = {one["name"]: (one["state"], one.get("code")) for one in records(done)[:-1]}
    assert found == {"one": ("copied", None), "two": ("failed", "images.no-space")}
    assert "disk is full" in records(done)[1]["what"]
    before_source.fault = lambda *_: None
    (small_disk / "filler").unlink()
    assert [one["state"] for one in records(good(mirror(directory, destination, *spool)))[:-1]] == [
        "there", "copied"
    ]  # fmt: skip
    good(call(directory, "images", "verify", "--deep", "--to", f"http://{destination.host}"))


def test_the_registry_s_disk_fills_up_in_the_middle(
    tmp_path: Path, source: Running, before_source: Proxy, small_disk: Path
) -> None:
    storage = {"filesystem": {"rootdirectory": str(small_disk / "data")}, "delete": {"enabled": True}}
    with registry(tmp_path / "full", storage=storage) as full:
        directory = images(source, before_source, tmp_path)
        fill_in_the_middle(small_disk, before_source)
        done = mirror(directory, full, "--jobs", "1")
        assert done.return_value == 1
        found = {one["name"]: (one["state"], one.get("code")) for one in records(done)[:-1]}
        assert found["one"] == ("copied", None)
        assert found["two"][0] == "failed"
        assert found["two"][1] == "images.registry-fails"
        two = records(done)[1]
        assert full.host in two["what"]
        assert "disk" in two["hint"]
        (small_disk / "filler").unlink()
        before_source.fault = lambda *_: None
        assert records(good(mirror(directory, full)))[-1]["failed"] == 0
        good(call(directory, "images", "verify", "--deep", "--to", f"http://{full.host}"))
