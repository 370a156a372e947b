"""What carries the connections of Open MPI's daemons to mpirun, and whom it lets in."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest

from clustercheck.jobs import meeting, mpi_daemons, unprivileged
from clustercheck.launch.requests import make_keys

pytestmark = pytest.mark.needs("root")

FIRST, OTHER = "127.0.0.1", "127.0.0.2"  # two nodes, as far as addresses go
KEYS = make_keys("s3cret", 0, 3)
PYTHON = shutil.which("python3", path=os.defpath) or sys.executable
# mpirun, as far as its daemons see it: it repeats what each says.
REPEATS = """import socket, threading
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
def repeat(one):
    while some := one.recv(4096):
        one.sendall(some)
    one.close()
while True:
    threading.Thread(target=repeat, args=(listener.accept()[0],), daemon=True).start()
"""
# A daemon: it connects to where its command says, and prints what it hears.
SAYS = """import re, socket, sys
host, port = re.search(r"tcp://([0-9.]+):(\\d+)", sys.argv[1]).groups()
with socket.create_connection((host, int(port)), timeout=60) as one:
    one.sendall(b"x" * 300_000 + b"end")
    heard = b""
    while not heard.endswith(b"end") and (some := one.recv(65536)):
        heard += some
print(len(heard), flush=True)
"""


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[unprivileged.Workplace]:
    monkeypatch.setattr(sys, "executable", PYTHON)
    with unprivileged.Workplace() as place:
        (place.path / "orted").write_text(f"#!{PYTHON}\n{SAYS}", encoding="ascii")
        (place.path / "orted").chmod(0o755)
        yield place


@pytest.fixture
def mpirun(place: unprivileged.Workplace) -> Iterator[int]:
    process = place.start([PYTHON, "-c", REPEATS], stdout=subprocess.PIPE)
    assert process.stdout is not None
    yield int(process.stdout.readline())
    meeting.kill_group(process)
    process.stdout.close()


@pytest.fixture
def tunnels(mpirun: int) -> Iterator[tuple[mpi_daemons.TunnelServer, int]]:
    with socket.socket() as one:
        one.bind((FIRST, 0))
        port = one.getsockname()[1]
    with closing(mpi_daemons.TunnelServer(FIRST, port, KEYS)) as server:
        server.mpirun_port = mpirun
        yield server, port


@pytest.fixture
def starter(
    place: unprivileged.Workplace, tunnels: tuple[mpi_daemons.TunnelServer, int]
) -> Iterator[mpi_daemons.DaemonStarter]:
    def connect() -> meeting.Connection:
        return meeting.connect(FIRST, tunnels[1], KEYS["1"], "1", 0)

    with closing(mpi_daemons.DaemonStarter(place, OTHER, connect)) as starter:
        yield starter


def start(starter: mpi_daemons.DaemonStarter, place: unprivileged.Workplace) -> str:
    process = starter.start(f'{place.path}/orted "1.0;tcp://10.0.0.1,10.9.9.9:7:24;tcp6://[fd00::1]:8"')
    return process.communicate(timeout=60)[0].decode()


def test_a_daemon_hears_mpirun_through_both_ranks(
    place: unprivileged.Workplace, starter: mpi_daemons.DaemonStarter
) -> None:
    assert start(starter, place) == "300003\n"
    assert start(starter, place) == "300003\n"


def ask(address: tuple[str, int]) -> bytes:
    with socket.create_connection(address, timeout=60) as one:
        one.settimeout(60)
        try:
            one.sendall(b"hello")
            return one.recv(64)
        except ConnectionError:
            return b""


def test_no_other_user_of_a_node_and_no_other_host_is_carried_to_mpirun(
    starter: mpi_daemons.DaemonStarter, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ask(starter._at) == b""  # root is not that user either
    monkeypatch.setattr(unprivileged, "USER", os.getuid())
    monkeypatch.setattr(mpi_daemons, "LOOPBACK", "127.0.0.9")
    assert ask(starter._at) == b""  # from 127.0.0.1, which is now another host's


def test_no_daemon_is_let_in_where_another_user_listens_in_mpiruns_place(
    place: unprivileged.Workplace,
    starter: mpi_daemons.DaemonStarter,
    tunnels: tuple[mpi_daemons.TunnelServer, int],
) -> None:
    with meeting.listen(FIRST, 0) as planted:
        tunnels[0].mpirun_port = planted.getsockname()[1]
        assert start(starter, place) != "300003\n"
        planted.setblocking(False)
        with pytest.raises(BlockingIOError):
            planted.accept()


def test_without_a_key_nobody_reaches_mpirun(tunnels: tuple[mpi_daemons.TunnelServer, int]) -> None:
    with pytest.raises(meeting.MeetingError):
        meeting.connect(FIRST, tunnels[1], KEYS["2"], "1", 0)
    line = meeting.connect(FIRST, tunnels[1], KEYS["2"], "2", 0)
    line.send_bytes(b"hello\n")
    assert line.receive_line(60) == b"hello"
    line.close()


def test_a_node_has_no_more_connections_than_its_part(
    tunnels: tuple[mpi_daemons.TunnelServer, int],
) -> None:
    def come(rank: str) -> tuple[meeting.Connection, bool]:
        line = meeting.connect(FIRST, tunnels[1], KEYS[rank], rank, 0)
        try:
            line.send_bytes(b"hello\n")
            return line, line.receive_line(60) == b"hello"
        except (meeting.MeetingError, OSError):
            return line, False

    with ExitStack() as stack:
        came = [come("1") for _ in range(mpi_daemons.MAX_OF_ONE_NODE + 2)] + [come("2")]
        for line, _ in came:
            stack.callback(line.close)
        assert [heard for _, heard in came] == [True] * mpi_daemons.MAX_OF_ONE_NODE + [False] * 2 + [True]
        tunnels[0].close()
        with pytest.raises(meeting.MeetingError, match="disconnected"):
            came[0][0].receive_line(60)


def test_a_relay_ends_with_either_of_its_ends() -> None:
    relays = mpi_daemons.Relays()
    (ours, one), (other, theirs) = socket.socketpair(), socket.socketpair()
    relays.join("1", one, other)
    with ours, theirs:
        ours.sendall(b"last")
        ours.close()
        theirs.settimeout(60)
        assert (theirs.recv(64), theirs.recv(64)) == (b"last", b"")


@pytest.mark.parametrize(
    ("command", "port"),
    [
        (
            'orted --daemonize -mca ess "env" -mca orte_hnp_uri "12.0;tcp://10.0.0.1,10.1.0.1:32909" -mca x',
            32909,
        ),
        (
            '( . ./.profile; /opt/bin/prted --prtemca prte_hnp_uri "prterun-a@0.0;tcp://10.0.0.1:3763:24" )',
            3763,
        ),
        ('orted -mca orte_hnp_uri "12.0;tcp://10.0.0.1:5;tcp6://[fd00::1]:6"', 5),
    ],
)
def test_a_daemons_command_says_where_mpirun_is(command: str, port: int) -> None:
    assert mpi_daemons.read_mpirun_port(command) == port


@pytest.mark.parametrize(
    "command",
    ["", "id", "orted -mca x", 'orted "tcp://10.0.0.1:5" "tcp://10.0.0.1:6"', 'sh "tcp://10.0.0.1:5"'],
)
def test_another_command_starts_nothing(command: str, starter: mpi_daemons.DaemonStarter) -> None:
    with pytest.raises(meeting.MeetingError, match="no command that starts a daemon"):
        starter.start(command)


def test_the_owner_of_a_connection_is_found_by_both_ends(place: unprivileged.Workplace, mpirun: int) -> None:
    assert mpi_daemons.find_owner((FIRST, mpirun), None) == unprivileged.USER
    with socket.create_connection((FIRST, mpirun)) as one:
        assert mpi_daemons.find_owner(one.getsockname(), (FIRST, mpirun)) == os.getuid()
        assert mpi_daemons.find_owner(one.getsockname(), (FIRST, 1)) is None
        assert mpi_daemons.find_owner(one.getsockname(), None) is None
