"""Debian packages in a bundle: apt reads the tree, trusts it by the source's own key, and lacks nothing."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from tests.support.programs import require_program
from tests.support.registries import Running, bytes_of, put_image

from clusterctl.errors import ClusterctlError
from clusterctl.registry.images import apt_tree
from clusterlab.sources import deb, repository, signing

from .driving import MB, call, error, good, locked_site, records, site


@pytest.fixture(scope="module")
def mirrored(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A signed source of four packages, and its key."""
    for name in ("apt-get", "dpkg-deb", "gpg"):
        require_program(name)
    root = tmp_path_factory.mktemp("mirror")
    flat = root / "repos" / "debian12"
    flat.mkdir(parents=True)
    for name, needs in {"driver": "library (>= 1)", "library": "", "base": "", "other": ""}.items():
        fields = {"Depends": needs} if needs else {}
        deb.build(deb.Package(name, "1:1.0-1", name, fields=fields), flat)
    key = signing.ensure(root / "key")
    repository.index(flat, repository.Identity("test", "test"), key, {})
    return flat, key.binary


@pytest.fixture(scope="module")
def served(mirrored: tuple[Path, Path]) -> Iterator[tuple[str, Path]]:
    """The same over HTTP on loopback: its address, and its key."""
    flat, key = mirrored
    with serving(flat.parent.parent) as address:
        yield f"{address}/repos/debian12", key


@contextmanager
def serving(root: Path) -> Iterator[str]:
    """A directory over HTTP on loopback, as a site would serve what was unpacked."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(root)))
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.mark.drawn("a bundle's packages")
def test_a_proxy_s_password_is_nowhere_in_a_bundle(
    tmp_path: Path, served: tuple[str, Path], source: Running
) -> None:
    put_image(source.host, "t/one", "1", [bytes_of(1, MB)])
    directory = site(
        tmp_path,
        source.host,
        "one",
        site_http_proxy="http://me:a-word@127.0.0.1:9",
        site_no_proxy="127.0.0.1",
    )
    good(call(directory, "lock"))
    bundle, listed = tmp_path / "usb", sources(tmp_path, *served)
    words = ("images", "bundle", "create", str(bundle), "--apt-sources", str(listed), "--package")
    assert error(call(directory, *words, "no-such-package")).code == "images.packages"
    for _ in range(2):
        assert not [p for p in bundle.rglob("*") if p.is_file() and b"a-word" in p.read_bytes()]
        good(call(directory, *words, "driver"))
    assert not (bundle / "incoming").exists()


def sources(tmp_path: Path, address: str, key: Path) -> Path:
    file = tmp_path / "nodes.list"
    file.write_text(f"deb [arch=amd64 signed-by={key}] {address} ./\n")
    return file


@pytest.mark.drawn("a bundle's packages")
def test_packages_come_with_what_they_need_and_are_installed_from_the_tree(
    tmp_path: Path, served: tuple[str, Path], source: Running, destination: Running
) -> None:
    address, key = served
    put_image(source.host, "t/one", "1", [bytes_of(1, MB)])
    directory = locked_site(tmp_path, source.host, "one")
    listed = sources(tmp_path, address, key)
    bundle = tmp_path / "usb"
    create = ("images", "bundle", "create", str(bundle))
    made = (*create, "--apt-sources", str(listed), "--package", "driver")
    good(call(directory, *made))
    again = records(good(call(directory, *made, "--json")))[-1]
    assert again["finished"] is True
    target = tmp_path / "unpacked"
    to = f"http://{destination.host}"
    load = ("images", "bundle", "load", str(bundle), "--allow-unsigned")
    good(call(directory, *load, "--files", str(target), "--to", to))
    tree = target / "apt/127.0.0.1/repos/debian12"
    names = sorted(path.name for path in tree.glob("*.deb"))
    assert names == ["driver_1.0-1_amd64.deb", "library_1.0-1_amd64.deb"]
    # Beyond the gap: apt with the source's own key, and no other place to ask.
    with serving(tree) as there:
        beyond = apt_tree.PackageRequest(sources(tmp_path, there, key), ("driver",))
        found = apt_tree.tree(beyond, tmp_path / "node")
    assert sorted(path.name for path in found.rglob("*.deb")) == names


@pytest.mark.drawn("a bundle's packages")
@pytest.mark.parametrize("wrong", ["name", "key", "address"])
def test_packages_that_cannot_be_had_are_said(wrong: str, tmp_path: Path, served: tuple[str, Path]) -> None:
    address, key = served
    if wrong == "key":
        key = signing.ensure(tmp_path / "another").binary
    address = "http://127.0.0.1:9/x" if wrong == "address" else address
    listed = sources(tmp_path, address, key)
    with pytest.raises(ClusterctlError) as refused:
        apt_tree.tree(
            apt_tree.PackageRequest(listed, ("drivver" if wrong == "name" else "driver",)), tmp_path / "work"
        )
    assert refused.value.code == "images.packages"
    assert {"name": "drivver", "key": "is not signed", "address": "127.0.0.1"}[wrong] in refused.value.what


def test_a_source_on_this_machine_is_copied_or_refused(tmp_path: Path, mirrored: tuple[Path, Path]) -> None:
    """apt keeps no copy of what it reads by file: the hint names the way that works."""
    flat, key = mirrored
    with pytest.raises(ClusterctlError) as refused:
        apt_tree.tree(
            apt_tree.PackageRequest(sources(tmp_path, f"file:{flat}", key), ("driver",)), tmp_path / "work"
        )
    assert refused.value.code == "images.packages"
    assert "copy:/PATH" in refused.value.hint
    copied = apt_tree.PackageRequest(sources(tmp_path, f"copy:{flat}", key), ("driver",))
    found = apt_tree.tree(copied, tmp_path / "work")
    assert len(list(found.rglob("*.deb"))) == 2


@pytest.mark.parametrize("bound", ["release", "words"])
def test_a_source_that_is_too_large_is_said_with_the_limit(
    bound: str, tmp_path: Path, served: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apt_tree, "MAX_RELEASE_BYTES" if bound == "release" else "MAX_OUTPUT_BYTES", 100)
    with pytest.raises(ClusterctlError) as refused:
        apt_tree.tree(apt_tree.PackageRequest(sources(tmp_path, *served), ("driver",)), tmp_path / "work")
    assert refused.value.code == "images.packages"
    assert "100 bytes" in refused.value.what + refused.value.hint
    assert "--apt-sources" in refused.value.hint


def test_an_index_that_would_fill_the_disk_ends_with_the_limit(
    tmp_path: Path, served: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apt_tree, "MAX_INDEX_BYTES", 512)
    with pytest.raises(ClusterctlError) as refused:
        apt_tree.tree(apt_tree.PackageRequest(sources(tmp_path, *served), ("driver",)), tmp_path / "work")
    assert (refused.value.code, "512 bytes" in refused.value.what) == ("images.packages", True)


def test_names_and_sources_go_together(tmp_path: Path, source: Running) -> None:
    put_image(source.host, "t/one", "1", [bytes_of(1, 100)])
    directory = locked_site(tmp_path, source.host, "one")
    alone = call(directory, "images", "bundle", "create", str(tmp_path / "usb"), "--package", "driver")
    assert error(alone).code == "images.bundle-tree"


def test_this_machine_s_apt_is_left_alone(tmp_path: Path, served: tuple[str, Path]) -> None:
    before = subprocess.run(["apt-config", "dump"], capture_output=True, check=True).stdout
    lists = sorted(Path("/var/lib/apt/lists").glob("*127.0.0.1*"))
    apt_tree.tree(apt_tree.PackageRequest(sources(tmp_path, *served), ("base",)), tmp_path / "work")
    assert subprocess.run(["apt-config", "dump"], capture_output=True, check=True).stdout == before
    assert sorted(Path("/var/lib/apt/lists").glob("*127.0.0.1*")) == lists == []
