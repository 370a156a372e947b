"""Ranks that meet without a framework: who is let in, and what each hears."""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.support.two_ranks import ADDRESSES, free_port

from clustercheck.jobs import meeting
from clustercheck.jobs.rank import Progress
from clustercheck.launch.requests import make_keys


def test_every_rank_hears_what_every_rank_gives() -> None:
    master = (ADDRESSES[0], free_port())

    def rank(number: int) -> list[list[Any]]:
        group = meeting.Meeting(number, 3, master, make_keys("s3cret", number, 3))
        return [group.exchange([number, word], list, 20) for word in ("one", "two")]

    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(rank, range(3)))
    assert found == [[[[n, word] for n in range(3)] for word in ("one", "two")]] * 3


def lone_door() -> tuple[meeting.Door, int]:
    listener = meeting.listen(ADDRESSES[0], 0)
    return meeting.Door(listener, {"1": "s3cret", "2": "of rank 2"}.get), listener.getsockname()[1]


@pytest.mark.parametrize(("rank", "key"), [("1", "another"), ("2", "s3cret"), ("3", "s3cret"), ("3", "")])
def test_a_peer_comes_in_by_its_own_key_alone(rank: str, key: str) -> None:
    door, port = lone_door()
    with contextlib.closing(door):
        with pytest.raises(meeting.MeetingError, match="a peer disconnected"):
            meeting.connect(ADDRESSES[0], port, key, rank, 0)
        meeting.connect(ADDRESSES[0], port, "s3cret", "1")
        came = door.next(20)
        assert came is not None and came[1] == "1"
        assert door.next(0) is None


def test_the_longest_silent_strangers_make_room_for_who_has_a_key() -> None:
    door, port = lone_door()
    with contextlib.ExitStack() as stack:
        stack.callback(door.close)
        strangers = [
            stack.enter_context(socket.create_connection((ADDRESSES[0], port)))
            for _ in range(meeting.STRANGERS + 40)
        ]
        stack.callback(meeting.connect(ADDRESSES[0], port, "s3cret", "1").close)
        came = door.next(20)
        assert came is not None and came[1] == "1"
        assert len(strangers[0].recv(1024)) > 0  # the nonce, and then the end
        assert strangers[0].recv(1024) == b""


def test_of_a_rank_that_comes_twice_the_later_connection_is_heard() -> None:
    port, keys = free_port(), make_keys("s3cret", 0, 3)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(meeting.Meeting, 0, 3, (ADDRESSES[0], port), keys)
        lines = [meeting.connect(ADDRESSES[0], port, keys[rank], rank) for rank in ("1", "1", "2")]
        group = first.result(60)
        for line in lines[1:]:
            assert line.receive(20) == "all are here"
            line.send("here")
        assert group.exchange("first", str, 20) == ["first", "here", "here"]
        with pytest.raises((meeting.MeetingError, OSError)):
            lines[0].receive(20)
        for line in lines:
            line.close()


def meet_hostile(
    honest: Callable[[meeting.Meeting], Any], hostile: Callable[[meeting.Connection], None]
) -> list[Any]:
    """What ranks 0 and 2 make of a meeting with a rank 1 that does as it likes."""
    port = free_port()
    keys = [make_keys("s3cret", rank, 3) for rank in range(3)]

    def come() -> None:
        line = meeting.connect(ADDRESSES[0], port, keys[1]["0"], "1")
        assert line.receive(60) == "all are here"
        with contextlib.suppress(meeting.MeetingError, OSError):
            hostile(line)
            line.receive_line(60)  # until the first rank has gone

    with ThreadPoolExecutor(3) as pool:
        groups = [pool.submit(meeting.Meeting, rank, 3, (ADDRESSES[0], port), keys[rank]) for rank in (0, 2)]
        pool.submit(come)
        found = list(pool.map(lambda group: honest(group.result(60)), groups))
        for group in groups:
            group.result().close()
    return found


@pytest.mark.parametrize(
    ("says", "understood"),
    [
        (b"[" + b",".join([b"1e15"] * 13_000) + b"]", [1e15] * 13_000),
        (b'"' + "\u00e9".encode() * 30_000 + b'"', "\u00e9" * 30_000),
        (b"9" * 5_000, None),
        (b"[" * 60_000, None),
        (b"\xff", None),
        (b"", None),
        (b'{"name": "\\ud800"}', None),
    ],
    ids=[
        "numbers that grow",
        "letters that grow",
        "digits",
        "deep",
        "no text",
        "nothing",
        "half a character",
    ],
)
def test_what_one_rank_says_reaches_the_others_as_it_is_and_ends_none(says: bytes, understood: Any) -> None:
    found = meet_hostile(
        lambda group: group.exchange(group.rank, lambda value: value, 60),
        lambda line: line.send_lines(says),
    )
    assert found == [[0, understood, 2]] * 2


@pytest.mark.parametrize("deep", [1_000, 1_497, 5_000, 9_998])
def test_no_depth_is_read_by_one_rank_and_ends_it_as_it_is_passed_on(deep: int) -> None:
    found = meet_hostile(
        lambda group: group.exchange(group.rank, lambda value: type(value).__name__, 60),
        lambda line: line.send_lines(b"[" * deep + b"]" * deep),
    )
    assert found[0] == found[1]
    assert (found[0][0], found[0][2]) == ("int", "int")


def test_who_drips_keeps_no_rank_from_showing_that_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meeting, "TICK_S", 0.05)

    def honest(group: meeting.Meeting) -> int:
        ticks: list[float] = []
        with pytest.raises(meeting.MeetingError, match=r"a peer (did not answer in time|disconnected)"):
            group.exchange(0, int, 1.0 if group.rank == 0 else 60, lambda: ticks.append(time.monotonic()))
        group.close()
        return len(ticks)

    def drip(line: meeting.Connection) -> None:
        for _ in range(100):
            line.send_bytes(b" ")
            time.sleep(0.02)  # the pace of who drips is what is tested

    assert all(count > 5 for count in meet_hostile(honest, drip))


def test_who_does_not_read_is_missed_by_all_others_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meeting, "SEND_S", 0.5, raising=False)
    listen, says, over = meeting.listen, "x" * 60_000, threading.Barrier(3)

    def listen_with_little_room(address: str, port: int) -> socket.socket:
        listener = listen(address, port)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        return listener

    monkeypatch.setattr(meeting, "listen", listen_with_little_room)

    def honest(group: meeting.Meeting) -> Any:
        heard = group.exchange(says, len, 60)
        with pytest.raises((meeting.MeetingError, OSError), match="a peer disconnected"):
            group.exchange(says, len, 60)
        group.close()
        over.wait(60)
        return heard

    def stay(line: meeting.Connection) -> None:
        line.send(says)
        over.wait(120)

    assert meet_hostile(honest, stay) == [[len(says)] * 3] * 2


def test_work_of_its_own_is_no_progress_among_peers(tmp_path: Path) -> None:
    progress = Progress(tmp_path / "progress")
    progress.set_phase("joining", collective=True)
    before = progress.counter
    progress.set_phase("measuring alone")
    assert progress.counter == before
    progress.set_phase("waiting for the others", collective=True)
    assert progress.counter == before + 1


def test_a_rank_that_waits_shows_it_without_progress(tmp_path: Path) -> None:
    progress = Progress(tmp_path / "progress")
    progress.set_phase("meeting", collective=True)
    before = (tmp_path / "progress").read_text(encoding="utf-8")
    progress.beat()
    after = (tmp_path / "progress").read_text(encoding="utf-8")
    assert after != before
    assert {**json.loads(after), "beats": 0} == json.loads(before)


def test_each_two_ranks_have_a_key_that_no_other_has() -> None:
    keys = {rank: make_keys("s3cret", rank, 4) for rank in range(4)}
    for rank, own in keys.items():
        assert sorted(own) == sorted(str(other) for other in range(4) if other != rank)
        assert all(keys[int(other)][str(rank)] == key for other, key in own.items())
    assert len({key for own in keys.values() for key in own.values()}) == 6
    assert set(keys[1].values()).isdisjoint(make_keys("another", 1, 4).values())


@pytest.mark.parametrize(
    "sent",
    [
        b"[" * 60_000,
        b"[" * 900 + b"\n",
        b'{"what": 1, "proof": "\xc3\xa9"}\n',
        b"\xff\n",
        b"7\n",
        b"null\n",
        b'{"what": "\\ud800", "proof": ""}\n',
        b"",
    ],
    ids=["long", "deep", "not ASCII", "no text", "a number", "null", "half a character", "silent"],
)
def test_no_stranger_ends_or_holds_up_who_waits(sent: bytes) -> None:
    door, port = lone_door()
    with contextlib.ExitStack() as stack:
        stack.callback(door.close)
        for _ in range(40):
            stranger = stack.enter_context(socket.create_connection((ADDRESSES[0], port)))
            with contextlib.suppress(OSError):
                stranger.sendall(sent)
        meeting.connect(ADDRESSES[0], port, "s3cret", "1")
        # One after another the silent ones would take 40 times as long as each may.
        came = door.next(2 * meeting.TICK_S)
        assert came is not None and came[1] == "1"


def say_in_turn(listener: socket.socket, *said: bytes) -> None:
    """A stranger who listens: what it says, each after an answer to the one before."""
    connection, _ = listener.accept()
    with connection, contextlib.suppress(OSError):
        connection.settimeout(20)
        for one in said:
            connection.sendall(one)
            connection.recv(1024)


@pytest.mark.parametrize(
    "nonce",
    [b'"\\ud800"', b"[" * 900 + b"]" * 900, b"9" * 5_000, b'"' + b"a" * 33 + b'"', b"null", b"\xff"],
    ids=["half a character", "deep", "digits", "long", "null", "no text"],
)
def test_whatever_a_listener_asks_for_is_a_peers_error(nonce: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meeting, "RETRY_S", 0.01)
    with contextlib.closing(meeting.listen(ADDRESSES[0], 0)) as listener, ThreadPoolExecutor(1) as pool:
        asked = pool.submit(say_in_turn, listener, nonce + b"\n")
        with pytest.raises(meeting.MeetingError, match=r"cannot be reached: (a|.* from a) peer"):
            meeting.connect(ADDRESSES[0], listener.getsockname()[1], "s3cret", "1", 0)
        asked.result(60)


def relay(listener: socket.socket, there: tuple[str, int], answers: list[bytes]) -> None:
    """A stranger who passes on what a rank that comes here says, and what is answered there."""
    connection, _ = listener.accept()
    with connection, socket.create_connection(there) as other, contextlib.suppress(OSError):
        for one, another in ((other, connection), (connection, other), (other, connection)):
            one.settimeout(20)
            answers.append(one.recv(meeting.READ))
            another.sendall(answers[-1])


@pytest.mark.parametrize("answer", [b'"come in"\n"all are here"\n"x"\n"x"\n"x"\n', b"null\n", b"[]\n", b""])
def test_who_listens_without_the_key_is_no_peer(answer: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meeting, "CONNECT_S", 0.3)
    with contextlib.closing(meeting.listen(ADDRESSES[0], 0)) as listener, ThreadPoolExecutor(1) as pool:
        lied = pool.submit(say_in_turn, listener, b'"' + b"0" * 32 + b'"\n', answer)
        with pytest.raises(meeting.MeetingError, match="cannot be reached"):
            meeting.Meeting(1, 3, listener.getsockname(), {"0": "s3cret", "2": "of rank 2"})
        lied.result(60)


def test_what_one_listener_is_proved_lets_nobody_in_at_another() -> None:
    """Between two ranks both listen, with one key."""
    door, port = lone_door()
    answers: list[bytes] = []
    with (
        contextlib.closing(door),
        contextlib.closing(meeting.listen(ADDRESSES[0], 0)) as listener,
        ThreadPoolExecutor(1) as pool,
    ):
        relayed = pool.submit(relay, listener, (ADDRESSES[0], port), answers)
        with pytest.raises(meeting.MeetingError, match="cannot be reached"):
            meeting.connect(ADDRESSES[0], listener.getsockname()[1], "s3cret", "1", 0)
        relayed.result(60)
        assert door.next(0) is None
    assert b"proof" in answers[1] and answers[2:] == [b""]


def test_a_closed_door_leaves_its_port() -> None:
    door, port = lone_door()
    door.close()
    meeting.listen(ADDRESSES[0], port).close()


def starter_of(port: int, key: str) -> meeting.CommandServer:
    def start(command: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(["/bin/sh", "-c", command], stdout=subprocess.PIPE, start_new_session=True)

    return meeting.CommandServer(ADDRESSES[0], port, key, start)


def test_only_the_first_ranks_key_starts_a_command(tmp_path: Path) -> None:
    port, keys = free_port(), make_keys("s3cret", 1, 3)
    starter = starter_of(port, keys["0"])
    try:
        with pytest.raises(meeting.MeetingError):
            meeting.connect(ADDRESSES[0], port, keys["2"], f"touch {tmp_path}/stolen", 0)
        assert meeting.connect(ADDRESSES[0], port, keys["0"], f"touch {tmp_path}/done").receive(20) == 0
    finally:
        starter.close()
    assert [path.name for path in tmp_path.iterdir()] == ["done"]


def test_a_rank_that_does_not_come_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meeting, "CONNECT_S", 0.3)
    with pytest.raises(meeting.MeetingError, match="a peer, rank 1, did not connect"):
        meeting.Meeting(0, 2, (ADDRESSES[0], free_port()), {"1": "s3cret"})
    with pytest.raises(meeting.MeetingError, match="cannot be reached"):
        meeting.Meeting(1, 2, (ADDRESSES[0], free_port()), {"0": "s3cret"})


def test_what_was_started_for_a_peer_ends_with_the_starter(tmp_path: Path) -> None:
    port, said = free_port(), tmp_path / "said"
    os.mkfifo(said)
    hears = os.open(said, os.O_RDONLY | os.O_NONBLOCK)
    starter = starter_of(port, "s3cret")
    line = meeting.connect(ADDRESSES[0], port, "s3cret", f"echo $$ > {said}; sleep 600; exit 3")
    assert select.select([hears], [], [], 60)[0], "it was not started"
    process = int(os.read(hears, 32))
    os.close(hears)
    watched = os.pidfd_open(process)
    starter.close()
    assert line.receive(60) != 3
    assert select.select([watched], [], [], 60)[0], "it runs on"
    os.close(watched)
