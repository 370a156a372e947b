"""`images mirror|verify|list` against real registries: what moves, what is refused, who waits for whom."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import yaml
from tests.support.registries import (
    Proxy,
    Running,
    bytes_of,
    cluster_directory,
    put_image,
    put_index,
)

from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.engine import mutex

from .driving import MB, call, error, good, locked_site, mirror, records, site, spooled


def test_an_image_goes_from_tag_to_lock_to_registry_and_a_second_time_nothing_moves(
    tmp_path: Path, source: Running, before_source: Proxy, destination: Running
) -> None:
    shared = bytes_of("base", 3 * MB)
    one = put_image(
        source.host, "t/one", "1", [shared, bytes_of(1, 2 * MB)], environment=("CUDA_VERSION=12.9.1",)
    )
    two = put_image(source.host, "t/two", "1", [shared, bytes_of(2, MB), bytes_of(2, MB)])
    directory = locked_site(tmp_path, before_source.host, "one", "two", nvidia_driver_branch="580")
    locked = yaml.safe_load((directory / "clusterctl.lock").read_text())
    assert [image["digest"] for image in locked["images"]] == [one.digest, two.digest]
    assert locked["driver"] == "580"
    assert locked["images"][0]["cuda"] == "12.9.1"
    assert locked["images"][0]["minimum_driver"] == "525.60.13"
    assert [layer["size"] for layer in locked["images"][0]["layers"]] == [3 * MB, 2 * MB]

    planned = records(good(mirror(directory, destination, "--check")))[-1]
    assert planned["to_bring"] == 2
    done = records(good(mirror(directory, destination)))
    assert [one["state"] for one in done[:-1]] == ["copied", "copied"]
    # The shared layer, and the one that an image holds twice, came once.
    everything = {b.digest: b.size for made in (one, two) for b in (*made.layers, made.config)}
    assert before_source.blob_bytes() == sum(everything.values()) + _configs_of_lock(locked)
    assert done[-1]["bytes"] == planned["bytes"] == sum(everything.values())
    assert spooled(directory) == []
    for made, name in ((one, "one"), (two, "two")):
        for blob in (*made.layers, made.config):
            assert hashlib.sha256(destination.blob_file(blob.digest).read_bytes()).hexdigest() in blob.digest
        with destination.client() as client:
            assert client.manifest(f"mirrored/{name}", "1").digest == made.digest

    asked = len(before_source.seen)
    again = records(good(mirror(directory, destination)))
    assert [one["state"] for one in again[:-1]] == ["there", "there"]
    assert len(before_source.seen) == asked
    verified = call(directory, "images", "verify", "--deep", "--to", f"http://{destination.host}", "--json")
    assert [one["state"] for one in records(good(verified))[:-1]] == ["there", "there"]
    listed = call(directory, "images", "list", "--to", f"http://{destination.host}")
    assert "2 of 2 images" in good(listed).stdout
    kept = json.loads((directory / ".clusterctl/images/mirrored.json").read_text())
    assert {(one["repository"], one["digest"]) for one in kept} == {
        ("mirrored/one", one.digest), ("mirrored/two", two.digest)
    }  # fmt: skip


def _configs_of_lock(locked: dict) -> int:
    """`clusterctl lock` has read the configurations through the same proxy."""
    return sum({image["config"]["digest"]: image["config"]["size"] for image in locked["images"]}.values())


def test_one_image_of_a_list_is_an_image_and_the_list_comes_whole_where_all_is_wanted(
    tmp_path: Path, source: Running, destination: Running
) -> None:
    made = {
        f"linux/{name}": put_image(source.host, "t/many", name, [bytes_of(name, MB)], architecture=name)
        for name in ("amd64", "arm64")
    }
    index = put_index(source.host, "t/many", "1", made)
    images = [
        {"source": f"http://{source.host}/t/many:1", "target": "mirrored/one"},
        {"source": f"http://{source.host}/t/many:1", "target": "mirrored/all", "platforms": ["all"]},
        {"source": f"http://{source.host}/t/many@{index}", "target": "mirrored/pinned"},
    ]
    directory = cluster_directory(tmp_path / "site", images)
    good(call(directory, "lock"))
    one, every, pinned = yaml.safe_load((directory / "clusterctl.lock").read_text())["images"]
    assert (one["index"], one["digest"]) == (index, made["linux/amd64"].digest)
    assert (every["digest"], every["platforms"]) == (index, ["linux/amd64", "linux/arm64"])
    assert pinned["digest"] == index
    good(mirror(directory, destination))
    with destination.client() as client:
        assert not client.has_manifest("mirrored/one", index)
        assert client.manifest("mirrored/all", "1").digest == index
        assert client.has_manifest("mirrored/pinned", index)
        assert client.has_manifest("mirrored/all", made["linux/arm64"].digest)
    good(call(directory, "images", "verify", "--deep", "--to", f"http://{destination.host}"))


def test_an_image_that_the_driver_cannot_run_is_not_copied_and_the_others_are(
    tmp_path: Path, source: Running, before_source: Proxy, destination: Running
) -> None:
    put_image(source.host, "t/new", "1", [bytes_of(1, MB)], environment=("NVIDIA_REQUIRE_CUDA=cuda>=13.0",))
    put_image(source.host, "t/old", "1", [bytes_of(2, MB)], environment=("CUDA_VERSION=11.8.0",))
    directory = site(tmp_path, before_source.host, "new", "old", nvidia_driver_branch="570")
    locked = call(directory, "lock")
    assert locked.return_value == 1
    assert "needs driver 580.65.06" in locked.stderr
    before = before_source.blob_bytes()
    refused = mirror(directory, destination, "new")
    assert refused.return_value == 2
    (image, _) = records(refused)
    assert (image["code"], image["state"]) == ("images.driver", "failed")
    assert "new (CUDA" in image["what"]
    assert "570" in image["what"]
    assert before_source.blob_bytes() == before
    both = mirror(directory, destination)
    assert both.return_value == 2
    assert [(one["name"], one["state"]) for one in records(both)[:-1]] == [
        ("new", "failed"),
        ("old", "copied"),
    ]


def test_a_disk_that_is_too_small_is_refused_before_anything_moves(
    tmp_path: Path, source: Running, before_source: Proxy, destination: Running, monkeypatch
) -> None:
    from clusterctl.registry.images import spool

    put_image(source.host, "t/one", "1", [bytes_of(1, MB)])
    directory = locked_site(tmp_path, before_source.host, "one")
    before = before_source.blob_bytes()
    monkeypatch.setattr(spool, "free_on", lambda _: MB // 2)
    refused = error(mirror(directory, destination))
    assert (refused.code, refused.exit_code) == ("images.no-space", 1)
    assert before_source.blob_bytes() == before


def test_who_writes_into_the_registry_does_so_alone(
    tmp_path: Path, source: Running, destination: Running
) -> None:
    put_image(source.host, "t/one", "1", [bytes_of(1, MB)])
    directory = locked_site(tmp_path, source.host, "one")
    bundle = str(tmp_path / "usb")
    good(call(directory, "images", "bundle", "create", bundle))
    to = ("--to", f"http://{destination.host}")
    load = ("bundle", "load", bundle, "--allow-unsigned")
    with mutex.held(ClusterDirectory(directory), "apply"):
        for words in (("mirror", *to), ("prune", "--yes", *to), (*load, *to)):
            assert error(call(directory, "images", *words)).code == "engine.held"
        good(call(directory, "images", "mirror", "--check", *to))
        good(call(directory, "images", "prune", "--check", *to))


def test_two_mirrors_through_one_spool_are_kept_apart(
    tmp_path: Path, source: Running, destination: Running
) -> None:
    from clusterctl.registry.images.spool import Spool

    put_image(source.host, "t/one", "1", [bytes_of(1, MB)])
    directory = locked_site(tmp_path, source.host, "one")
    with Spool(directory / ".clusterctl/images/spool").held():
        assert error(mirror(directory, destination)).code == "images.held"
    good(mirror(directory, destination))
