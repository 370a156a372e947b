"""`clusterctl images prune`: what we brought and want no more goes; everything else stays."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.registries import (
    Proxy,
    Running,
    bytes_of,
    cluster_directory,
    put_image,
    registry,
)

from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.errors import ClusterctlError
from clusterctl.registry.images.registries import Destination
from clusterctl.registry.oci.client import Registry
from clusterctl.registry.oci.manifest import Manifest
from clusterctl.runs.store import RunStore

from .driving import MB, call, error, good, mirror, put_list, records


def prune(directory: Path, to: Running, *more: str):
    return call(directory, "images", "prune", "--to", f"http://{to.host}", "--json", *more)


@pytest.fixture
def directory(tmp_path: Path, source: Running, destination: Running) -> Path:
    """A cluster that has mirrored a list of two images, and now wants one of them alone."""
    put_list(source)
    put_image(source.host, "t/old", "1", [bytes_of("old", MB)])
    put_image(destination.host, "others/theirs", "1", [bytes_of("theirs", MB)])
    put_image(destination.host, "m/many", "theirs", [bytes_of("theirs", MB)])
    root = tmp_path / "site"
    many = {"source": f"http://{source.host}/t/many:1", "target": "m/many"}
    cluster_directory(
        root, [many | {"platforms": ["all"]}, {"source": f"http://{source.host}/t/old:1", "target": "m/old"}]
    )
    good(call(root, "lock"))
    good(mirror(root, destination))
    cluster_directory(root, [many])
    good(call(root, "lock"))
    good(mirror(root, destination))
    return root


def tags(host: Running, repository: str) -> set[str]:
    place = host.storage / "docker/registry/v2/repositories" / repository / "_manifests/tags"
    return {path.name for path in place.iterdir()} if place.is_dir() else set()


def test_what_the_lock_names_no_more_goes_and_all_else_stays(
    tmp_path: Path, directory: Path, destination: Running
) -> None:
    checked = records(good(prune(directory, destination, "--check")))
    found = sorted((one["target"], one["removed"]) for one in checked[:-1])  # they are asked in parallel
    assert found == [("m/many", False), ("m/old", False)]
    alone = prune(directory, destination)
    assert alone.return_value == 1  # nobody agreed
    assert "m/old" in {one["target"] for one in records(alone)[:-1]}
    assert tags(destination, "m/old") == {"1"}
    spool = directory / ".clusterctl/images/spool"
    (spool / f"{'a' * 64}.part").write_bytes(b"left behind")
    done = records(good(prune(directory, destination, "--yes")))
    assert (done[-1]["removed"], done[-1]["swept"]) == (2, 1)
    # The image that stays was in the list that went; what others put next to it is theirs.
    good(call(directory, "images", "verify", "--deep", "--to", f"http://{destination.host}"))
    assert tags(destination, "m/old") == set()
    assert tags(destination, "m/many") == {"1", "theirs"}
    assert tags(destination, "others/theirs") == {"1"}
    assert records(good(prune(directory, destination, "--yes")))[-1]["removed"] == 0


def test_what_others_pushed_stays_also_where_an_image_of_ours_lists_it(
    tmp_path: Path, source: Running, destination: Running
) -> None:
    """A source lists what it likes."""
    made = put_list(source)
    theirs = put_image(destination.host, "m/many", "theirs", [bytes_of("arm64", MB)], architecture="arm64")
    assert theirs.digest == made["linux/arm64"].digest
    root = tmp_path / "site"
    many = {"source": f"http://{source.host}/t/many:1", "target": "m/many", "platforms": ["all"]}
    cluster_directory(root, [many])
    good(call(root, "lock"))
    good(mirror(root, destination))
    cluster_directory(root, [])
    good(call(root, "lock"))
    assert records(good(prune(root, destination, "--yes")))[-1]["removed"] == 1
    with destination.client() as client:
        assert not client.has_manifest("m/many", made["linux/amd64"].digest)
        assert client.has_manifest("m/many", theirs.digest)
    assert tags(destination, "m/many") == {"theirs"}


def test_what_an_interrupted_mirror_wrote_is_remembered_and_goes(
    tmp_path: Path, source: Running, destination: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_list(source)
    root = tmp_path / "site"
    many = {"source": f"http://{source.host}/t/many:1", "target": "m/many", "platforms": ["all"]}
    cluster_directory(root, [many])
    good(call(root, "lock"))
    put = Registry.put_manifest
    written: list[str] = []

    def dies(self: Registry, repository: str, found: Manifest, name: str = "") -> None:
        put(self, repository, found, name)
        written.append(found.digest)
        raise KeyboardInterrupt

    monkeypatch.setattr(Registry, "put_manifest", dies)
    cut_off = call(root, "images", "mirror", "--to", f"http://{destination.host}")
    assert (error(cut_off).code, error(cut_off).exit_code) == ("images.stopped", 130)
    monkeypatch.setattr(Registry, "put_manifest", put)
    (run,) = RunStore(ClusterDirectory(root)).list()
    assert run.exit_code == 130
    with destination.client() as client:
        assert client.has_manifest("m/many", written[0])
        cluster_directory(root, [])
        good(call(root, "lock"))
        assert records(good(prune(root, destination, "--yes")))[-1]["removed"] == 1
        assert not client.has_manifest("m/many", written[0])


def test_what_was_not_collected_is_collected_the_next_time(
    directory: Path, destination: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def refused() -> None:
        asked.append("collect")
        raise ClusterctlError("the registry's space was not freed", code="images.not-collected")

    @contextmanager
    def writable(*_: object) -> Iterator[Destination]:
        with destination.client() as client:
            yield Destination(client, f"http://{destination.host}", collect=refused)

    monkeypatch.setattr("clusterctl.commands.images.prune.writable", writable)
    for _ in range(2):
        assert error(call(directory, "images", "prune", "--yes")).code == "images.not-collected"
    assert asked == ["collect", "collect"]


def test_a_record_that_cannot_be_read_is_said_before_anything_moves(
    tmp_path: Path, source: Running, before_source: Proxy, destination: Running
) -> None:
    put_image(source.host, "t/one", "1", [bytes_of(1, MB)])
    root = tmp_path / "site"
    cluster_directory(root, [{"source": f"http://{before_source.host}/t/one:1", "target": "m/one"}])
    good(call(root, "lock"))
    (root / ".clusterctl/images").mkdir(parents=True, exist_ok=True)
    (root / ".clusterctl/images/mirrored.json").write_text("[7]")
    before = before_source.blob_bytes()
    assert error(mirror(root, destination)).code == "images.record-unreadable"
    assert before_source.blob_bytes() == before


def test_a_run_that_ends_by_a_fault_of_ours_is_finished_too(
    tmp_path: Path, source: Running, destination: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_image(source.host, "t/one", "1", [bytes_of(1, MB)])
    root = tmp_path / "site"
    cluster_directory(root, [{"source": f"http://{source.host}/t/one:1", "target": "m/one"}])
    good(call(root, "lock"))

    def broken(*_: object) -> None:
        raise RuntimeError("a fault")

    monkeypatch.setattr(Registry, "put_manifest", broken)
    assert mirror(root, destination).exception is not None
    (run,) = RunStore(ClusterDirectory(root)).list()
    assert (run.exit_code, run.summary["error"]) == (3, "RuntimeError: a fault")


def test_a_registry_that_lets_nothing_go_is_said(tmp_path: Path, source: Running) -> None:
    with registry(
        tmp_path / "closed", storage={"filesystem": {"rootdirectory": str(tmp_path / "closed/data")}}
    ) as closed:
        put_image(source.host, "t/one", "1", [bytes_of(1, MB)])
        put_image(source.host, "t/two", "1", [bytes_of(2, MB)])
        root = tmp_path / "site"
        two = {"source": f"http://{source.host}/t/two:1", "target": "m/two"}
        cluster_directory(root, [{"source": f"http://{source.host}/t/one:1", "target": "m/one"}, two])
        good(call(root, "lock"))
        good(mirror(root, closed))
        cluster_directory(root, [two])
        assert error(prune(root, closed)).code == "images.stale-lock"
        good(call(root, "lock"))
        done = prune(root, closed, "--yes")
        assert done.return_value == 1
        assert records(done)[0]["code"] == "images.refused"
        assert tags(closed, "m/one") == {"1"}
