"""Connects Open MPI's mpirun on the first node with its daemons on the others, past all strangers.

Shipped to the node with rank.py: stdlib only. Open MPI knows no keys, so its programs listen at the loopback
address alone (loopback_only.py). On the first node the rank, which knows the keys, takes commands from what
mpirun calls in place of ssh (mpi_agent.py) and passes them on to the ranks that they are for; each of those
carries the connection of the daemon that it starts back to mpirun.
"""

from __future__ import annotations

import importlib
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clustercheck.jobs import meeting, mpi_agent, unprivileged
else:  # on a node they are single files, not a package
    meeting, mpi_agent, unprivileged = (
        importlib.import_module(f"{__package__}.{name}" if __package__ else name)
        for name in ("meeting", "mpi_agent", "unprivileged")
    )

LOOPBACK = "127.0.0.1"
MAX_OF_ONE_NODE = 4  # connections: a daemon has one, and tries again where it is lost
DAEMON = re.compile(r"(^|[\s/])(orted|prted)\s")
# mpirun's addresses in such a command: one port for IPv4, and another for IPv6.
MPIRUN_AT, MPIRUN_AT_6 = re.compile(r"tcp://[0-9.,]+:(\d{1,5})"), re.compile(r";?tcp6://[^\s\"';]+")
# Of a line of /proc/net/tcp [proc_pid_net, Linux]
LOCAL, REMOTE, STATE, OWNER = 1, 2, 3, 7
ESTABLISHED, LISTENS = "01", "0A"


class AgentServer:
    """Passes on what mpirun's agents ask for, ``most`` at a time, until it is closed."""

    def __init__(self, place: unprivileged.Workplace, pass_on: Callable[[str, str], int], most: int) -> None:
        """``pass_on`` has a host run a command and returns its exit code; it may raise MeetingError."""
        self._pass_on = pass_on
        self._free = threading.BoundedSemaphore(most)
        agent = place.path / Path(mpi_agent.__file__).name
        shutil.copyfile(mpi_agent.__file__, agent)
        agent.chmod(0o644)
        self.command = shlex.join([sys.executable, str(agent)])
        path = place.path / mpi_agent.SOCKET
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        path.chmod(0o600)
        os.chown(path, unprivileged.USER, unprivileged.USER)  # who may write there may connect
        self._listener.listen(128)
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        """Take no more commands."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes who waits for a connection
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._free.acquire()
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        line = meeting.Connection(connection)
        try:
            asked = line.receive(meeting.TICK_S)
            line.send(self._pass_on(str(asked["host"]), str(asked["command"])))
        except (meeting.MeetingError, OSError, TypeError, KeyError, ValueError) as error:
            print(f"no daemon of Open MPI was started: {error}", flush=True)
        finally:
            line.close()
            self._free.release()


class Relays:
    """Pairs of connections: what one says, the other hears, until either ends or this is closed."""

    def __init__(self) -> None:
        self._pairs: dict[tuple[socket.socket, socket.socket], str] = {}
        self._lock = threading.Lock()
        self._closed = False

    def join(self, node: str, one: socket.socket, other: socket.socket) -> None:
        """Connect these two; a node has no more than so many pairs."""
        with self._lock:
            if not self._closed and list(self._pairs.values()).count(node) < MAX_OF_ONE_NODE:
                self._pairs[one, other] = node
                threading.Thread(target=self._run, args=(one, other), daemon=True).start()
                return
        one.close()
        other.close()

    def close(self) -> None:
        """End all of them."""
        with self._lock:
            self._closed = True
            for pair in self._pairs:
                _end(*pair)

    def _run(self, one: socket.socket, other: socket.socket) -> None:
        back = threading.Thread(target=_copy, args=(other, one), daemon=True)
        back.start()
        _copy(one, other)
        back.join()
        with self._lock:
            del self._pairs[one, other]
            one.close()
            other.close()


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while some := source.recv(meeting.READ):
            sink.sendall(some)
    _end(source, sink)


def _end(*connections: socket.socket) -> None:
    for connection in connections:
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)


class TunnelServer:
    """On the first node: connects daemons of other nodes, whose ranks prove themselves, with mpirun."""

    def __init__(self, address: str, port: int, keys: Mapping[str, str]) -> None:
        self._door = meeting.Door(meeting.listen(address, port), keys.get)
        self._relays = Relays()
        self.mpirun_port = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        """Let in nobody else, and end all connections."""
        self._door.close()
        self._relays.close()

    def _serve(self) -> None:
        while (came := self._door.next()) is not None:
            line, rank = came
            try:
                # Also that it listens at that address alone.
                if find_owner((LOOPBACK, self.mpirun_port), None) != unprivileged.USER:
                    raise ConnectionRefusedError("mpirun does not listen")
                mpirun = socket.create_connection((LOOPBACK, self.mpirun_port))
                self._relays.join(rank, line.detach(mpirun), mpirun)
            except (OSError, RuntimeError) as error:  # no thread more
                print(f"a daemon of rank {rank} was not let in: {error}", flush=True)
                line.close()


class DaemonStarter:
    """On another node: starts daemons that find mpirun at a port of this rank's, which leads to the first."""

    def __init__(
        self, place: unprivileged.Workplace, address: str, connect: Callable[[], meeting.Connection]
    ) -> None:
        """``address`` is this node's: Open MPI 5 connects to no loopback address. ``connect`` makes a
        connection to the first node's TunnelServer; it may raise MeetingError.
        """
        self._place, self._connect = place, connect
        self._relays = Relays()
        self._listener = meeting.listen(address, 0)
        self._at: tuple[str, int] = self._listener.getsockname()
        threading.Thread(target=self._serve, daemon=True).start()

    def start(self, command: str) -> subprocess.Popen[bytes]:
        """Start a daemon. Raises MeetingError where the command starts none, OSError."""
        read_mpirun_port(command)
        changed = MPIRUN_AT.sub("tcp://{}:{}".format(*self._at), MPIRUN_AT_6.sub("", command))
        # Not this rank's own output: who runs as that user could write there without end.
        return self._place.start(["/bin/sh", "-c", changed], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def close(self) -> None:
        """Carry nothing any more."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes who waits for a connection
        self._listener.close()
        self._relays.close()

    def _serve(self) -> None:
        while True:
            try:
                daemon, peer = self._listener.accept()
            except OSError:
                return
            if peer[0] not in (self._at[0], LOOPBACK) or find_owner(peer, self._at) != unprivileged.USER:
                daemon.close()  # of another host, or of another user of this one
                continue
            try:
                self._relays.join("", daemon, self._connect().detach(daemon))
            except (meeting.MeetingError, OSError, RuntimeError) as error:  # no thread more
                print(f"a daemon of Open MPI cannot reach the first node: {error}", flush=True)
                daemon.close()


def read_mpirun_port(command: str) -> int:
    """At which port of its node mpirun waits for the daemon that a command starts. Raises MeetingError."""
    ports = {int(port) for port in MPIRUN_AT.findall(command)}
    if not DAEMON.search(command) or len(ports) != 1:
        raise meeting.MeetingError(f"no command that starts a daemon: {command[:300]}")
    return ports.pop()


def find_owner(local: tuple[str, int], remote: tuple[str, int] | None) -> int | None:
    """Who has the TCP socket between these two, or that listens if there is no other; None if nobody has."""
    ends = (_in_hex(local), _in_hex(remote or ("0.0.0.0", 0)))  # noqa: S104 - as the kernel writes "any"
    state = LISTENS if remote is None else ESTABLISHED
    with Path("/proc/net/tcp").open(encoding="ascii") as lines:
        for line in lines:
            words = line.split()
            if (words[LOCAL], words[REMOTE], words[STATE]) == (*ends, state):
                return int(words[OWNER])
    return None


def _in_hex(end: tuple[str, int]) -> str:
    """An address and port as the kernel writes them."""
    address = int.from_bytes(socket.inet_aton(end[0]), sys.byteorder)
    return f"{address:08X}:{end[1]:04X}"
