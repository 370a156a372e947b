"""`clusterctl images bundle`: over an air gap, on media that fail, cut off in the middle."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.registries import (
    Fault,
    Proxy,
    Running,
    bytes_of,
    cluster_directory,
    environment,
    put_image,
    put_index,
)

from clusterctl.registry.images.spool import Spool
from clusterctl.registry.oci.manifest import Blob

from .driving import MB, call, error, good, locked_site, records, site


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """What goes along: an installer, and a tree of packages."""
    root = tmp_path / "srv"
    (root / "apt/pool").mkdir(parents=True)
    (root / "apt/pool/driver.deb").write_bytes(bytes_of("deb", 2 * MB + 17))
    (root / "apt/Release").write_bytes(b"")
    (root / "install.sh").write_text("#!/bin/sh\n")
    (root / "install.sh").chmod(0o755)
    return root


def create(directory: Path, bundle: Path, *more: str):
    return call(directory, "images", "bundle", "create", str(bundle), "--part-size", "1", "--json", *more)


def load(directory: Path, to: Running | Proxy, *more: str):
    """What happens to a bundle that is trusted; of its signature is `test_bundle_signed`."""
    words = ("--allow-unsigned", "--to", f"http://{to.host}", "--json")
    return call(directory, "images", "bundle", "load", *words, *more)


def other_side(tmp_path: Path, directory: Path) -> Path:
    """The cluster directory beyond the gap: the same settings, no lock, nothing that was brought."""
    there = tmp_path / "there"
    shutil.copytree(directory, there, ignore=shutil.ignore_patterns(".clusterctl", "clusterctl.lock"))
    return there


def parts_of(bundle: Path) -> list[Path]:
    return sorted((bundle / "parts").iterdir())


@pytest.mark.drawn("bundles")
def test_a_bundle_carries_images_and_files_over_the_gap(
    tmp_path: Path, source: Running, before_source: Proxy, destination: Running, files: Path
) -> None:
    shared = bytes_of("base", 3 * MB + 5)
    one = put_image(source.host, "t/one", "1", [shared, bytes_of(1, MB)])
    arm = put_image(source.host, "t/two", "arm64", [shared, bytes_of(2, MB)], architecture="arm64")
    amd = put_image(source.host, "t/two", "amd64", [shared, bytes_of(3, MB)])
    index = put_index(source.host, "t/two", "1", {"linux/amd64": amd, "linux/arm64": arm})
    directory = cluster_directory(
        tmp_path / "site",
        [
            {"source": f"http://{before_source.host}/t/one:1", "target": "mirrored/one"},
            {
                "source": f"http://{before_source.host}/t/two:1",
                "target": "mirrored/two",
                "platforms": ["all"],
            },
        ],
    )
    good(call(directory, "lock"))
    bundle = tmp_path / "usb"
    include = ("--include", f"apt={files / 'apt'}", "--include", f"installer={files / 'install.sh'}")
    done = records(good(create(directory, bundle, *include)))[-1]
    assert done["finished"] is True
    assert (done["images"], done["files"]) == (2, 3)
    assert max(path.stat().st_size for path in parts_of(bundle)) <= 1_000_000
    assert not (bundle / "incoming").exists()
    come = before_source.blob_bytes()
    assert records(good(create(directory, bundle, *include)))[-1]["finished"] is True
    assert before_source.blob_bytes() == come  # what was finished here is not asked for again
    asked = len(before_source.seen)

    there = other_side(tmp_path, directory)
    assert records(good(load(there, destination, str(bundle), "--check")))[-1]["parts"] == len(
        parts_of(bundle)
    )
    target = tmp_path / "unpacked"
    loaded = records(good(load(there, destination, str(bundle), "--files", str(target))))
    assert [one["state"] for one in loaded[:-1]] == ["copied", "copied"]
    assert len(before_source.seen) == asked  # nobody asked the source
    assert (there / "clusterctl.lock").read_text() == (directory / "clusterctl.lock").read_text()
    assert (target / "apt/pool/driver.deb").read_bytes() == (files / "apt/pool/driver.deb").read_bytes()
    assert (target / "apt/Release").read_bytes() == b""
    assert (target / "installer/install.sh").stat().st_mode & 0o777 == 0o755
    with destination.client() as client:
        assert client.manifest("mirrored/two", "1").digest == index
        assert client.manifest("mirrored/one", "1").digest == one.digest
    good(call(there, "images", "verify", "--deep", "--to", f"http://{destination.host}"))
    again = load(there, destination, str(bundle), "--files", str(target))
    assert [one["state"] for one in records(good(again))[:-1]] == ["there", "there"]
    assert "0 of them new" in again.stderr


@pytest.mark.drawn("bundles")
def test_a_bundle_on_two_media_is_one(tmp_path: Path, source: Running, destination: Running) -> None:
    put_image(source.host, "t/one", "1", [bytes_of(1, 5 * MB)])
    directory = locked_site(tmp_path, source.host, "one")
    first, second = tmp_path / "first", tmp_path / "second"
    good(create(directory, first))
    (second / "parts").mkdir(parents=True)
    for path in parts_of(first)[::2]:
        path.rename(second / "parts" / path.name)
    there = other_side(tmp_path, directory)
    alone = error(load(there, destination, str(first)))
    assert (alone.code, alone.exit_code) == ("images.bundle", 2)
    assert "missing" in alone.what
    good(load(there, destination, str(second), str(first)))


@pytest.mark.drawn("bundles")
def test_a_damaged_part_is_named_and_the_next_load_mends_it(
    tmp_path: Path, source: Running, destination: Running, files: Path
) -> None:
    made = {n: put_image(source.host, f"t/{n}", "1", [bytes_of(n, 3 * MB)]) for n in ("bad", "good")}
    directory = locked_site(tmp_path, source.host, "bad", "good")
    bundle = tmp_path / "usb"
    good(create(directory, bundle, "--include", f"apt={files / 'apt'}"))
    index = json.loads((bundle / "bundle.json").read_text())
    item = next(i for i in index["blobs"] if f"sha256:{i['sha256']}" == made["bad"].layers[0].digest)
    part = bundle / "parts" / item["parts"][1]["sha256"]
    whole = part.read_bytes()
    part.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    there = other_side(tmp_path, directory)
    checked = load(there, destination, str(bundle), "--check")
    assert checked.return_value == 1
    assert records(checked)[0]["where"] == str(part)
    done = load(there, destination, str(bundle))
    assert done.return_value == 1
    found = {one["name"]: one for one in records(done)[:-1]}
    assert (found["bad"]["state"], found["good"]["state"]) == ("failed", "copied")
    assert (found["bad"]["code"], found["bad"]["where"]) == ("images.bundle-damaged", str(part))
    with destination.client() as client:
        assert not client.has_manifest("mirrored/bad", made["bad"].digest)
    part.write_bytes(whole[:-1])
    assert error(load(there, destination, str(bundle))).code == "images.bundle"
    part.write_bytes(whole)
    assert [one["state"] for one in records(good(load(there, destination, str(bundle))))[:-1]] == [
        "there", "copied"
    ]  # fmt: skip


@pytest.mark.drawn("bundles")
def test_making_a_bundle_that_was_killed_goes_on_where_it_was(
    tmp_path: Path, source: Running, before_source: Proxy, files: Path
) -> None:
    made = put_image(source.host, "t/big", "1", [bytes_of("small", 2 * MB), bytes_of("big", 24 * MB)])
    directory = locked_site(tmp_path, before_source.host, "big")
    small, big = (layer.digest for layer in made.layers)
    before_source.fault = lambda _m, path, _n: Fault(slow_bytes_s=16 * MB) if big in path else None
    bundle = tmp_path / "usb"
    incoming = bundle / "incoming"
    part = Spool(incoming).part(Blob(big, 24 * MB), f"{before_source.host}/t/big")
    note = incoming / f"{small.removeprefix('sha256:')}.done"
    process = subprocess.Popen(
        [str(Path(sys.executable).with_name("clusterctl")), "-C", str(directory), "images", "bundle",
         "create", str(bundle), "--part-size", "1"],
        env=environment(), start_new_session=True,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while not (note.exists() and part.exists() and part.stat().st_size > 6 * MB):
        assert time.monotonic() < deadline
        assert process.poll() is None
        threading.Event().wait(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (bundle / "bundle.json").exists()
    assert error(load(directory, before_source, str(bundle))).code == "images.bundle"
    come = part.stat().st_size
    before_source.fault = lambda *_: None
    assert (
        records(good(create(directory, bundle, "--include", f"apt={files / 'apt'}")))[-1]["finished"] is True
    )
    asked = [
        (path.rpartition("/")[2], r) for m, path, r in before_source.seen if m == "GET" and "/blobs/" in path
    ]
    assert [r for digest, r in asked if digest == big] == ["", f"bytes={come}-"]
    assert [r for digest, r in asked if digest == small] == [""]


def test_an_image_that_does_not_come_leaves_the_bundle_unfinished(
    tmp_path: Path, source: Running, before_source: Proxy
) -> None:
    made = {n: put_image(source.host, f"t/{n}", "1", [bytes_of(n, MB)]) for n in ("bad", "good")}
    directory = locked_site(tmp_path, before_source.host, "bad", "good")
    bad = made["bad"].layers[0].digest
    before_source.fault = lambda _m, path, _n: Fault(status=404) if bad in path else None
    bundle = tmp_path / "usb"
    done = create(directory, bundle)
    assert done.return_value == 1
    assert {one["name"]: one["state"] for one in records(done)[:-1]} == {"bad": "failed", "good": "copied"}
    assert not (bundle / "bundle.json").exists()
    before_source.fault = lambda *_: None
    good(create(directory, bundle))


def changed(bundle: Path, change: Callable[[dict], None]) -> None:
    """What somebody who has the medium can do to an index."""
    said = json.loads((bundle / "bundle.json").read_text())
    change(said)
    (bundle / "bundle.json").write_text(json.dumps(said))


def test_an_index_that_was_changed_is_refused(
    tmp_path: Path, source: Running, destination: Running, files: Path
) -> None:
    put_image(source.host, "t/one", "1", [bytes_of(1, MB)])
    directory = locked_site(tmp_path, source.host, "one")
    bundle, target = tmp_path / "usb", tmp_path / "unpacked"
    made = records(good(create(directory, bundle, "--include", f"apt={files / 'apt'}")))[-1]
    whole = ("--sha256", made["index_sha256"].upper())
    good(load(directory, destination, str(bundle), *whole, "--check"))
    # Parts that are whole, of another thing than the one that is named.
    deb = next(i for i, one in enumerate(said_files(bundle)) if one["path"].endswith(".deb"))

    def swap(said: dict) -> None:
        parts = said["files"][deb]["item"]["parts"]
        parts[0], parts[1] = parts[1], parts[0]

    changed(bundle, swap)
    assert load(directory, destination, str(bundle), "--check").return_value == 2
    assert error(load(directory, destination, str(bundle), "--files", str(target))).code == "images.bundle"
    assert not list(target.rglob("*.deb"))
    assert error(load(directory, destination, str(bundle), *whole)).code == "images.bundle-changed"
    changed(bundle, lambda said: said["files"][deb]["item"].update(size=7))
    assert error(load(directory, destination, str(bundle))).code == "images.bundle"


def said_files(bundle: Path) -> list[dict]:
    return json.loads((bundle / "bundle.json").read_text())["files"]


def test_a_bundle_of_another_lock_is_refused(tmp_path: Path, source: Running, destination: Running) -> None:
    put_image(source.host, "t/one", "1", [bytes_of(1, MB)])
    directory = locked_site(tmp_path, source.host, "one")
    bundle = tmp_path / "usb"
    good(create(directory, bundle))
    put_image(source.host, "t/one", "1", [bytes_of(2, MB)])
    good(call(directory, "lock", "--upgrade"))
    assert error(load(directory, destination, str(bundle))).code == "images.bundle-lock"


def test_a_bundle_whose_lock_is_not_that_of_the_settings_leaves_none(
    tmp_path: Path, source: Running, destination: Running
) -> None:
    put_image(source.host, "t/one", "1", [bytes_of(1, MB)], environment=("NVIDIA_REQUIRE_CUDA=cuda>=13.0",))
    directory = locked_site(tmp_path, source.host, "one")
    good(create(directory, tmp_path / "usb"))
    for names, branch, code in (
        (("one",), "570", "images.driver"),
        (("one", "two"), "580", "images.stale-lock"),
    ):
        there = tmp_path / code
        there.mkdir()
        beyond = site(there, source.host, *names, nvidia_driver_branch=branch)
        assert error(load(beyond, destination, str(tmp_path / "usb"))).code == code
        assert not (beyond / "clusterctl.lock").exists()


@pytest.mark.parametrize("path", ["../../etc/cron.d/x", "/etc/cron.d/x", "a/../../x", ""])
def test_no_bundle_writes_outside_its_directory(
    path: str, tmp_path: Path, source: Running, destination: Running, files: Path
) -> None:
    put_image(source.host, "t/one", "1", [bytes_of(1, 100)])
    directory = locked_site(tmp_path, source.host, "one")
    bundle = tmp_path / "usb"
    good(create(directory, bundle, "--include", f"installer={files / 'install.sh'}"))
    index = json.loads((bundle / "bundle.json").read_text())
    index["files"][0]["path"] = path
    (bundle / "bundle.json").write_text(json.dumps(index))
    target = tmp_path / "deep/er/unpacked"
    refused = error(load(directory, destination, str(bundle), "--files", str(target)))
    assert refused.code == "images.bundle"
    assert not target.exists()
    assert not (tmp_path / "deep/x").exists()
