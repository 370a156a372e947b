"""What our registry has lost or spoilt, and the whole road to where it is good again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.registries import Made, Proxy, Running, bytes_of, put_image, registry

from .driving import MB, call, good, locked_site, mirror, put_list, records


def verify(directory: Path, to: Running, *more: str) -> dict:
    done = call(directory, "images", "verify", "--to", f"http://{to.host}", "--json", *more)
    return {one["name"]: one for one in records(done)[:-1]}


def restart(one: Running) -> None:
    one.kill()
    one.start_again()


@pytest.fixture
def two(tmp_path: Path, source: Running, before_source: Proxy) -> tuple[Path, dict[str, Made]]:
    """A cluster of two images that share a layer."""
    shared = bytes_of("base", MB)
    made = {n: put_image(source.host, f"t/{n}", "1", [shared, bytes_of(n, MB)]) for n in ("one", "two")}
    directory = locked_site(tmp_path, before_source.host, "one", "two")
    return directory, made


@pytest.fixture
def remembering(tmp_path: Path) -> Iterator[Running]:
    """A registry that continues naming a blob that it has lost, as ours and Harbor's do."""
    storage = {
        "filesystem": {"rootdirectory": str(tmp_path / "remembering/data")},
        "delete": {"enabled": True},
        "cache": {"blobdescriptor": "inmemory"},
    }
    with registry(tmp_path / "remembering", storage=storage) as running:
        yield running


@pytest.mark.parametrize("which", ["one's own", "shared"])
def test_a_blob_that_the_storage_has_lost_comes_again_and_nothing_else_does(
    which: str, two: tuple[Path, dict[str, Made]], before_source: Proxy, destination: Running
) -> None:
    directory, made = two
    good(mirror(directory, destination))
    lost = made["one"].layers[0 if which == "shared" else 1]
    destination.blob_file(lost.digest).unlink()
    restart(destination)
    found = verify(directory, destination)
    assert found["one"]["code"] == "images.not-found"
    assert "images mirror copies it again" in found["one"]["hint"]
    before = before_source.blob_bytes()
    done = records(good(mirror(directory, destination)))
    states = {one["name"]: one["state"] for one in done[:-1]}
    assert states == {"one": "copied", "two": "copied" if which == "shared" else "there"}
    assert before_source.blob_bytes() - before == lost.size
    assert {one["state"] for one in verify(directory, destination, "--deep").values()} == {"there"}


def test_a_blob_of_any_image_of_a_list_comes_again(
    tmp_path: Path, source: Running, destination: Running
) -> None:
    from tests.support.registries import cluster_directory

    made = put_list(source)
    many = {"source": f"http://{source.host}/t/many:1", "target": "m/many", "platforms": ["all"]}
    directory = cluster_directory(tmp_path / "site", [many])
    good(call(directory, "lock"))
    good(mirror(directory, destination))
    # Of the platform that the lock has no layers of.
    destination.blob_file(made["linux/arm64"].layers[0].digest).unlink()
    restart(destination)
    assert records(good(mirror(directory, destination)))[-1]["changed"] == 1
    assert {one["state"] for one in verify(directory, destination, "--deep").values()} == {"there"}


def test_a_blob_that_is_damaged_is_mended_as_the_hint_says(
    two: tuple[Path, dict[str, Made]], remembering: Running
) -> None:
    directory, made = two
    good(mirror(directory, remembering))
    file = remembering.blob_file(made["one"].layers[1].digest)
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    found = verify(directory, remembering, "--deep")["one"]
    assert found["code"] == "images.corrupt"
    # A mirror that reads says the same, and does not pretend to have fixed it.
    done = mirror(directory, remembering, "--deep")
    told = {one["name"]: one for one in records(done)[:-1]}
    assert (done.return_value, told["one"]["code"], told["two"]["state"]) == (1, "images.corrupt", "there")
    assert told["one"]["hint"] == found["hint"]
    assert mirror(directory, remembering, "--deep", "--check").return_value == 1
    named = next(word for word in found["hint"].split() if word.startswith("docker/registry/"))
    assert remembering.storage / named == file
    (remembering.storage / named).unlink()
    assert found["hint"].endswith("then: clusterctl images mirror --deep")
    # No restart: it continues naming what was removed, which reading finds out.
    assert records(good(mirror(directory, remembering)))[-1]["changed"] == 0
    assert records(good(mirror(directory, remembering, "--deep")))[-1]["changed"] == 1
    assert {one["state"] for one in verify(directory, remembering, "--deep").values()} == {"there"}


def test_a_tag_that_is_another_image_s_is_said_and_set_again(
    two: tuple[Path, dict[str, Made]], source: Running, before_source: Proxy, destination: Running
) -> None:
    directory, made = two
    good(mirror(directory, destination))
    put_image(destination.host, "mirrored/one", "1", [bytes_of("somebody's", MB)])
    found = verify(directory, destination)
    assert (found["one"]["state"], found["one"]["code"]) == ("failed", "images.tag-moved")
    assert found["two"]["state"] == "there"
    before = before_source.blob_bytes()
    assert records(good(mirror(directory, destination)))[-1]["changed"] == 1
    # Nothing of it came again: the tag alone was written.
    assert before_source.blob_bytes() == before
    assert {one["state"] for one in verify(directory, destination).values()} == {"there"}
    with destination.client() as client:
        assert client.manifest("mirrored/one", "1").digest == made["one"].digest
