"""`clusterctl images prune`: what we brought and want no more goes; everything else stays."""

from __future__ import annotations

from pathlib import Path

import pytest
from driving import MB, call, error, good, mirror, records
from registries import Running, bytes_of, cluster_directory, put_image, put_index, registry


def prune(directory: Path, to: Running, *more: str):
    return call(directory, "images", "prune", "--to", f"http://{to.host}", "--json", *more)


@pytest.fixture
def directory(tmp_path: Path, source: Running, destination: Running) -> Path:
    """A cluster that has mirrored a list of two images, and now wants one of them alone."""
    made = {
        f"linux/{name}": put_image(source.host, "t/many", name, [bytes_of(name, MB)], architecture=name)
        for name in ("amd64", "arm64")
    }
    put_index(source.host, "t/many", "1", made)
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
    assert [(one["target"], one["removed"]) for one in checked[:-1]] == [("m/many", False), ("m/old", False)]
    alone = prune(directory, destination)
    assert alone.return_value == 1  # nobody agreed
    assert "m/old" in {one["target"] for one in records(alone)[:-1]}
    assert tags(destination, "m/old") == {"1"}
    spool = directory / ".clusterctl/images/spool"
    (spool / f"{'a' * 64}.part").write_bytes(b"left behind")
    done = records(good(prune(directory, destination, "--yes")))
    assert (done[-1]["removed"], done[-1]["swept"]) == (2, 1)
    # The image that stays was in the list that went; what others put beside it is theirs.
    good(call(directory, "images", "verify", "--deep", "--to", f"http://{destination.host}"))
    assert tags(destination, "m/old") == set()
    assert tags(destination, "m/many") == {"1", "theirs"}
    assert tags(destination, "others/theirs") == {"1"}
    assert records(good(prune(directory, destination, "--yes")))[-1]["removed"] == 0


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
