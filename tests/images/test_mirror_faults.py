"""`images mirror` against real registries with what goes wrong: kills, cuts, damage, a source that fails."""

from __future__ import annotations

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
    Made,
    Proxy,
    Running,
    bytes_of,
    environment,
    put_image,
)

from clusterctl.registry.images import spool
from clusterctl.registry.images.spool import Spool
from clusterctl.registry.oci.manifest import Blob
from clusterctl.registry.oci.retry import RetryPolicy

from .driving import MB, call, good, journal, locked_site, mirror, records, site, spooled


def test_a_mirror_that_was_killed_goes_on_where_it_was(
    tmp_path: Path, source: Running, before_source: Proxy, destination: Running
) -> None:
    made = put_image(source.host, "t/big", "1", [bytes_of("big", 24 * MB), bytes_of("small", MB)])
    directory = locked_site(tmp_path, before_source.host, "big")
    big = made.layers[0].digest
    before_source.fault = lambda _m, path, _n: Fault(slow_bytes_s=16 * MB) if big in path else None
    part = Spool(directory / ".clusterctl/images/spool").part(
        Blob(big, 24 * MB), f"{before_source.host}/t/big"
    )
    command = [str(Path(sys.executable).with_name("clusterctl")), "-C", str(directory), "images", "mirror"]
    process = subprocess.Popen(
        [*command, "--to", f"http://{destination.host}"], env=environment(), start_new_session=True
    )
    deadline = time.monotonic() + 60
    while not (part.exists() and part.stat().st_size > 6 * MB):
        assert time.monotonic() < deadline
        assert process.poll() is None
        threading.Event().wait(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    come = part.stat().st_size
    before_source.fault = lambda *_: None
    done = records(good(mirror(directory, destination)))
    assert done[-1]["failed"] == 0
    assert done[-1]["bytes"] <= made.size + made.config.size - come
    ranges = [r for method, path, r in before_source.seen if method == "GET" and big in path]
    assert ranges == ["", f"bytes={come}-"]
    assert [e["event"] for e in journal(directory) if e["blob"] == big] == [
        "begun", "resumed", "come", "settled"
    ]  # fmt: skip
    assert spooled(directory) == []


def test_what_a_kill_left_half_written_is_found_out(
    tmp_path: Path, source: Running, before_source: Proxy, destination: Running
) -> None:
    made = put_image(source.host, "t/one", "1", [bytes_of(1, 2 * MB)])
    directory = locked_site(tmp_path, before_source.host, "one")
    spool = directory / ".clusterctl/images/spool"
    spool.mkdir(parents=True)
    # As after a power cut: the length is there, the bytes are not.
    Spool(spool).part(made.layers[0], f"{before_source.host}/t/one").write_bytes(b"\0" * MB)
    assert records(good(mirror(directory, destination)))[-1]["failed"] == 0
    assert "corrupt" in [event["event"] for event in journal(directory)]
    good(call(directory, "images", "verify", "--deep", "--to", f"http://{destination.host}"))


def test_one_bad_image_stops_no_other_and_nothing_of_it_is_kept(
    tmp_path: Path, source: Running, before_source: Proxy, destination: Running
) -> None:
    shared = bytes_of("base", MB)
    made = {
        n: put_image(source.host, f"t/{n}", "1", [shared, bytes_of(n, MB)]) for n in ("bad", "good", "gone")
    }
    directory = locked_site(tmp_path, before_source.host, "bad", "good", "gone")
    bad, gone = made["bad"].layers[1].digest, made["gone"].layers[1].digest
    before_source.fault = lambda _m, path, _n: (
        Fault(flip=True) if bad in path else Fault(status=404) if gone in path else None
    )
    done = mirror(directory, destination)
    assert done.return_value == 1
    states = {one["name"]: (one["state"], one.get("code")) for one in records(done)[:-1]}
    assert states == {
        "bad": ("failed", "images.corrupt"), "good": ("copied", None), "gone": ("failed", "images.not-found")
    }  # fmt: skip
    corrupt = next(one for one in records(done) if one.get("code") == "images.corrupt")
    assert before_source.host in corrupt["where"]
    assert bad in corrupt["where"]
    assert spooled(directory) == []
    with destination.client() as client:
        assert client.has_manifest("mirrored/good", made["good"].digest)
        assert not client.has_manifest("mirrored/bad", made["bad"].digest)
    before_source.fault = lambda *_: None
    fixed = records(good(mirror(directory, destination)))
    assert [one["state"] for one in fixed[:-1]] == ["there", "copied", "copied"]


@pytest.mark.parametrize("status", [429, 500, 502, 503])
def test_a_source_that_recovers_is_asked_again_and_one_that_does_not_is_told(
    status: int, tmp_path: Path, source: Running, before_source: Proxy, destination: Running
) -> None:
    put_image(source.host, "t/one", "1", [bytes_of(1, MB)])
    directory = site(tmp_path, before_source.host, "one")
    before_source.fault = lambda _m, _p, number: (
        Fault(status=status, headers={"Retry-After": "1"}) if number <= 2 else None
    )
    good(call(directory, "lock"))
    before_source.fault = lambda _m, path, _n: Fault(status=status) if "/blobs/" in path else None
    done = mirror(directory, destination)
    assert done.return_value == 1
    code = "images.rate-limited" if status == 429 else "images.registry-fails"
    assert records(done)[0]["code"] == code
    before_source.fault = lambda _m, _p, number: Fault(status=status) if number % 3 else None
    assert records(good(mirror(directory, destination)))[-1]["failed"] == 0


def test_a_connection_that_is_cut_again_and_again_gets_there(
    tmp_path: Path, source: Running, before_source: Proxy, destination: Running
) -> None:
    made = put_image(source.host, "t/one", "1", [bytes_of(1, 8 * MB)])
    directory = locked_site(tmp_path, before_source.host, "one")
    layer = made.layers[0].digest
    before_source.fault = lambda _m, path, _n: Fault(cut=700_000) if layer in path else None
    assert records(good(mirror(directory, destination)))[-1]["failed"] == 0
    # Every byte came once: each attempt continues where the last was cut.
    assert before_source.sent[f"/v2/t/one/blobs/{layer}"] == 8 * MB


def test_a_source_that_drips_is_not_asked_for_ever(
    tmp_path: Path, source: Running, before_source: Proxy, destination: Running
) -> None:
    made = put_image(source.host, "t/one", "1", [bytes_of(1, MB)])
    directory = locked_site(tmp_path, before_source.host, "one")
    layer = made.layers[0].digest
    before_source.fault = lambda _m, path, _n: Fault(cut=1) if layer in path else None
    done = mirror(directory, destination)
    assert (done.return_value, records(done)[0]["code"]) == (1, "images.unreachable")
    asked = [path for method, path, _ in before_source.seen if method == "GET" and layer in path]
    assert len(asked) <= 2 * RetryPolicy().attempts


def test_a_source_that_gives_next_to_nothing_is_left(
    tmp_path: Path, source: Running, before_source: Proxy, destination: Running, monkeypatch
) -> None:
    from clusterctl.registry.images import spool
    from clusterctl.registry.oci import rate

    # So large that what comes while the machine is busy, in all attempts together, is never the whole.
    made = put_image(source.host, "t/one", "1", [bytes_of(1, 16 * MB)])
    directory = locked_site(tmp_path, before_source.host, "one")
    monkeypatch.setattr(rate, "RATE_SEEN_S", 0.5)
    monkeypatch.setattr(rate, "LEAST_RATE", 100e6)
    monkeypatch.setattr(spool, "LEAST_PROGRESS", 16 * MB)
    before_source.fault = lambda _m, path, _n: (
        Fault(slow_bytes_s=MB / 4) if made.layers[0].digest in path else None
    )
    done = records(mirror(directory, destination))
    assert done[0]["code"] == "images.unreachable"
    assert "bytes a second" in done[0]["what"]


def test_room_is_asked_again_before_each_blob(
    tmp_path: Path, source: Running, before_source: Proxy, destination: Running, monkeypatch
) -> None:
    from clusterctl.registry.images import spool

    put_image(source.host, "t/one", "1", [bytes_of(1, 2 * MB)])
    directory = locked_site(tmp_path, before_source.host, "one")
    before = before_source.blob_bytes()
    # Enough as it starts; then somebody has filled the disk.
    rooms = iter([10 * MB])
    monkeypatch.setattr(spool, "free_on", lambda _: next(rooms, MB // 8))
    done = mirror(directory, destination, "--jobs", "1")
    assert (done.return_value, records(done)[0]["code"]) == (1, "images.no-space")
    assert "transferred data is kept" in records(done)[0]["what"]
    assert before_source.blob_bytes() - before < MB


def test_the_registry_killed_in_the_middle_fails_the_mirror_and_the_next_one_mends_it(
    tmp_path: Path, source: Running, before_source: Proxy, destination: Running
) -> None:
    made = [put_image(source.host, f"t/{n}", "1", [bytes_of(n, 4 * MB), bytes_of(-n, MB)]) for n in (1, 2, 3)]
    directory = locked_site(tmp_path, before_source.host, "1", "2", "3")
    kill_at = made[1].layers[0].digest

    def fault(_method: str, path: str, _number: int) -> None:
        if kill_at in path:
            destination.kill()

    before_source.fault = fault
    done = mirror(directory, destination, "--jobs", "1")
    assert done.return_value == 1
    failed = [one for one in records(done)[:-1] if one["state"] == "failed"]
    assert failed
    assert {one["code"] for one in failed} == {"images.unreachable"}
    destination.start_again()
    before_source.fault = lambda *_: None
    kept = next(path for path in spooled(directory) if path.startswith(kill_at.removeprefix("sha256:")))
    come = (directory / ".clusterctl/images/spool" / kept).stat().st_size
    assert come > 0
    assert records(good(mirror(directory, destination)))[-1]["failed"] == 0
    ranges = [r for method, path, r in before_source.seen if method == "GET" and kill_at in path]
    assert ranges == ["", f"bytes={come}-"] or (come == 4 * MB and ranges == [""])
    good(call(directory, "images", "verify", "--deep", "--to", f"http://{destination.host}"))


def test_damage_in_our_registry_is_named_by_verify(
    tmp_path: Path, source: Running, destination: Running
) -> None:
    made = {n: put_image(source.host, f"t/{n}", "1", [bytes_of(n, MB)]) for n in ("one", "two", "three")}
    directory = locked_site(tmp_path, source.host, "one", "two", "three")
    good(mirror(directory, destination))
    file = destination.blob_file(made["one"].layers[0].digest)
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    destination.blob_file(made["two"].layers[0].digest).unlink()
    destination.kill()
    destination.start_again()
    deep = call(directory, "images", "verify", "--deep", "--to", f"http://{destination.host}", "--json")
    assert deep.return_value == 1
    found = {one["name"]: (one["state"], one.get("code")) for one in records(deep)[:-1]}
    assert found == {
        "one": ("failed", "images.corrupt"), "two": ("failed", "images.not-found"), "three": ("there", None)
    }  # fmt: skip
    destination.kill()
    silent = call(directory, "images", "verify", "--to", f"http://{destination.host}", "--json")
    assert silent.return_value == 3
    assert {one["state"] for one in records(silent)[:-1]} == {"unknown"}


def broken_off(made: Made, after: int) -> Callable[[str, str, int], Fault | None]:
    """The image's first layer comes up to there, and then never again."""
    layer = made.layers[0].digest

    def fault(_method: str, path: str, number: int) -> Fault | None:
        if layer not in path:
            return None
        return Fault(cut=after) if number == 1 else Fault(status=403)

    return fault


def test_a_blob_that_its_source_breaks_off_is_sent_again_only_once_it_is_whole(
    tmp_path: Path, source: Running, before_source: Proxy, destination: Running
) -> None:
    made = put_image(source.host, "t/one", "1", [bytes_of("one", 8 * MB)])
    directory = locked_site(tmp_path, before_source.host, "one")
    before_source.fault = broken_off(made, 6 * MB)
    unfinished = []
    for _ in range(3):
        assert mirror(directory, destination).return_value != 0
        unfinished.append(len([*destination.storage.rglob("_uploads/*/data")]))
    assert unfinished == [1, 1, 1]
    before_source.fault = lambda *_: None
    assert records(good(mirror(directory, destination)))[-1]["failed"] == 0


def test_what_a_source_left_unfinished_keeps_no_room_from_the_others(
    tmp_path: Path,
    source: Running,
    before_source: Proxy,
    destination: Running,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = put_image(source.host, "t/bad", "1", [bytes_of("bad", 12 * MB)])
    put_image(source.host, "t/good", "1", [bytes_of("good", 6 * MB)])
    directory = locked_site(tmp_path, before_source.host, "bad", "good")
    before_source.fault = broken_off(made, 10 * MB)
    assert mirror(directory, destination, "bad").return_value != 0
    spool_directory = directory / ".clusterctl/images/spool"

    def free(path: Path) -> int:
        return 14 * MB - sum(one.stat().st_size for one in spool_directory.iterdir())

    assert 3 * MB < free(spool_directory) < 6 * MB
    monkeypatch.setattr(spool, "free_on", free)
    done = records(mirror(directory, destination))
    found = {one["name"]: one["state"] for one in done if one["type"] == "image"}
    assert found == {"bad": "failed", "good": "copied"}
    assert [event["event"] for event in journal(directory)].count("forgotten") == 1
