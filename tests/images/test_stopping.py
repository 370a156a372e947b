"""An end that somebody wants while a registry is silent: within seconds, and all that has come is kept."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.registries import Proxy, Running, bytes_of, environment, proxy, put_image

from .driving import MB, call, good, journal, locked_site, mirror, records, site

# Of the program's own end; what stalls would take minutes.
PROMPT_S = 15.0


@pytest.fixture
def silence() -> Iterator[threading.Event]:
    """Until it is set, who waits for it is silent."""
    event = threading.Event()
    yield event
    event.set()


def stopped(command: list[str], by: signal.Signals, stalled: Callable[[], bool]) -> tuple[int, float, str]:
    """Run it, end it once it is stalled: its exit code, how long the end took, and what it said."""
    process = subprocess.Popen(
        [str(Path(sys.executable).with_name("clusterctl")), *command],
        env=environment(), start_new_session=True, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while not stalled():
        assert time.monotonic() < deadline
        assert process.poll() is None
        threading.Event().wait(0.02)
    threading.Event().wait(1.0)  # so that the sockets are full
    process.send_signal(by)
    began = time.monotonic()
    try:
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
    return process.returncode, time.monotonic() - began, said


@pytest.mark.parametrize(
    ("by", "size"),
    [(signal.SIGINT, 24 * MB), (signal.SIGTERM, MB)],
    ids=["while it sends", "while it waits for the answer"],
)
def test_a_mirror_into_a_registry_that_stalls_is_ended_at_once(
    by: signal.Signals, size: int, tmp_path: Path, destination: Running, request: pytest.FixtureRequest
) -> None:
    source, silence = (request.getfixturevalue(name) for name in ("source", "silence"))
    made = put_image(source.host, "t/one", "1", [bytes_of(1, size)])
    directory = locked_site(tmp_path, source.host, "one")
    asked = threading.Event()

    def stall(method: str, _path: str, _number: int) -> None:
        if method == "PUT":
            asked.set()
            silence.wait(120)

    with proxy(destination.port) as before:
        before.fault = stall
        command = ["-C", str(directory), "images", "mirror", "--to", f"http://{before.host}", "--jobs", "1"]
        code, took, said = stopped(command, by, asked.is_set)
        silence.set()
    assert (code, took < PROMPT_S) == (130, True), (took, said)
    assert "images.stopped" in said
    layer = made.layers[0].digest
    assert [one["event"] for one in journal(directory) if one["blob"] == layer][-1] == "kept"
    come = (directory / ".clusterctl/images/spool").glob(f"{layer.removeprefix('sha256:')}*")
    assert sum(path.stat().st_size for path in come) > 0
    assert records(good(mirror(directory, destination)))[-1]["failed"] == 0
    good(call(directory, "images", "verify", "--deep", "--to", f"http://{destination.host}"))


def test_a_mirror_whose_source_is_silent_is_ended_at_once(
    tmp_path: Path, source: Running, before_source: Proxy, destination: Running, silence: threading.Event
) -> None:
    put_image(source.host, "t/one", "1", [bytes_of(1, MB)])
    directory = locked_site(tmp_path, before_source.host, "one")
    asked = threading.Event()

    def stall(*_: object) -> None:
        asked.set()
        silence.wait(120)

    before_source.fault = stall
    command = ["-C", str(directory), "images", "mirror", "--to", f"http://{destination.host}"]
    code, took, said = stopped(command, signal.SIGINT, asked.is_set)
    assert (code, took < PROMPT_S) == (130, True), (took, said)
    silence.set()
    before_source.fault = lambda *_: None
    bundle = tmp_path / "usb"
    silence.clear()
    asked.clear()
    before_source.fault = stall
    command = ["-C", str(directory), "images", "bundle", "create", str(bundle)]
    code, took, said = stopped(command, signal.SIGTERM, asked.is_set)
    assert (code, took < PROMPT_S) == (130, True), (took, said)
    assert "images.stopped" in said


def test_a_lock_whose_source_is_silent_is_ended_at_once(
    tmp_path: Path, source: Running, before_source: Proxy, silence: threading.Event
) -> None:
    put_image(source.host, "t/one", "1", [bytes_of(1, MB)])
    directory = site(tmp_path, before_source.host, "one")
    asked = threading.Event()

    def stall(*_: object) -> None:
        asked.set()
        silence.wait(120)

    before_source.fault = stall
    code, took, said = stopped(["-C", str(directory), "lock"], signal.SIGINT, asked.is_set)
    assert (code, took < PROMPT_S) == (130, True), (took, said)


def test_a_registry_that_takes_nothing_is_left_before_it_would_have_to_answer(
    tmp_path: Path, source: Running, destination: Running, silence: threading.Event, monkeypatch
) -> None:
    from clusterctl.registry.oci import client

    made = put_image(source.host, "t/one", "1", [bytes_of(1, 24 * MB)])
    layer = made.layers[0].digest.removeprefix("sha256:")
    directory = locked_site(tmp_path, source.host, "one")
    monkeypatch.setattr(client, "TAKING_S", 0.2)

    def stall(method: str, path: str, _number: int) -> None:
        if method == "PUT" and layer in path:
            silence.wait(120)

    with proxy(destination.port) as before:
        before.fault = stall
        began = time.monotonic()
        done = mirror(directory, before)
        silence.set()
    assert time.monotonic() - began < 60
    assert records(done)[0]["code"] == "images.unreachable"
