"""Connects ranks without a framework: they exchange values over TCP and start the first rank's commands.

Shipped to the node with rank.py: stdlib only. Each two ranks have a key that no other rank has, in a file
that only root reads; until a peer proves that it knows theirs, it is a stranger, whether it comes or listens.
What a peer says is its word: whoever uses it checks it.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import queue
import re
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import IO, Any, TypeVar

CONNECT_S = 30.0
# All peers read at once when a rank sends to them: they have nothing else to do.
SEND_S = 10.0
SENDERS = 32  # peers that are sent to at a time
TICK_S = 5.0
MAX_VALUE = 64 * 1024  # bytes of what one rank says
MAX_PROOF = 1024  # bytes of a stranger's message
STRANGERS = 256  # who may prove themselves at a time
MAX_SAID, READ = 4 * 1024, 64 * 1024  # bytes that are printed of what a command prints, and read at a time
RETRY_S = 0.2  # no event shows when a starting peer listens
NONCE = re.compile(r"[0-9a-f]{32}")
COMES, LISTENS = "comes", "listens"  # the two ends of a connection
# By each other rank: the key that it and this rank alone have.
KEYS_FILE = "keys.json"

T = TypeVar("T")


class MeetingError(Exception):
    """A peer did not connect, or violated the protocol."""


class Connection:
    """One connection: messages are lines, most of them JSON, of at most so many bytes."""

    def __init__(self, connection: socket.socket, most: int = MAX_VALUE) -> None:
        self._socket = connection
        self._buffer = b""
        self.most = most

    def send(self, message: Any) -> None:
        """Send one message."""
        self.send_lines(json.dumps(message).encode())

    def send_lines(self, *lines: bytes) -> None:
        """Send messages as they are."""
        self.send_bytes(b"".join(line + b"\n" for line in lines))

    def send_bytes(self, some: bytes, limit_s: float = CONNECT_S) -> None:
        """Send a part of a message, or several of them."""
        self._socket.settimeout(limit_s)
        self._socket.sendall(some)

    def send_or_end(self, some: bytes) -> None:
        """Send to a peer that waits for it; one that does not take it in time hears nothing more."""
        try:
            self.send_bytes(some, SEND_S)
        except OSError:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def receive(self, limit_s: float, tick: Callable[[], None] = lambda: None) -> Any:
        """The next message, read. Raises MeetingError."""
        try:
            return read_line(self.receive_line(limit_s, tick))
        except (ValueError, RecursionError):
            raise MeetingError("unreadable message from a peer") from None

    def receive_line(self, limit_s: float, tick: Callable[[], None] = lambda: None) -> bytes:
        """The next message; ``tick`` is called every few seconds meanwhile. Raises MeetingError."""
        end = time.monotonic() + limit_s
        next_tick = time.monotonic() + TICK_S
        while b"\n" not in self._buffer[: self.most + 1]:
            now = time.monotonic()
            if now >= end or len(self._buffer) > self.most:
                raise MeetingError(
                    "a peer did not answer in time" if now >= end else "too long a message from a peer"
                )
            if now >= next_tick:  # also while a peer sends a byte at a time
                tick()
                next_tick = now + TICK_S
            self._socket.settimeout(max(0.001, min(next_tick, end) - now))
            try:
                read = self._socket.recv(READ)
            except (TimeoutError, socket.timeout):  # two errors before Python 3.10
                continue
            except OSError:
                read = b""
            if not read:
                raise MeetingError("a peer disconnected")
            self._buffer += read
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def detach(self, reader: socket.socket) -> socket.socket:
        """The socket, for other than messages; ``reader`` gets what was read ahead. Raises OSError."""
        reader.sendall(self._buffer)
        self._socket.settimeout(None)
        return self._socket

    def ends(self) -> tuple[tuple[str, int], tuple[str, int]]:
        """This end's address, and the other's. Raises OSError."""
        return self._socket.getsockname(), self._socket.getpeername()

    def close(self) -> None:
        """End the connection."""
        self._socket.close()


def read_line(line: bytes) -> Any:
    """The JSON in a message. Raises ValueError, RecursionError; also for text that is no Unicode."""
    value = json.loads(line.decode("utf-8"))
    # Escapes of half characters are JSON, and end whoever encodes them again.
    json.dumps(value, ensure_ascii=False).encode("utf-8")
    return value


def sign(key: str, role: str, at: tuple[str, int], nonces: tuple[str, str], what: str) -> str:
    """The proof of knowing the key, by one end of a connection to the listener ``at`` an address.

    It serves for nothing else: not for the other end, or for another listener that has the same key.
    """
    return hmac.new(key.encode(), json.dumps([role, at, nonces, what]).encode(), hashlib.sha256).hexdigest()


def is_proof(said: Any, proof: str) -> bool:
    """Whether a stranger says that; takes the same time for all that it may say."""
    return hmac.compare_digest(str(said).encode(), proof.encode())


def read_keys(directory: Path) -> dict[str, str]:
    """This rank's keys, by the other ranks. Raises OSError, ValueError."""
    keys: dict[str, str] = json.loads((directory / KEYS_FILE).read_text(encoding="utf-8"))
    return keys


def listen(address: str, port: int) -> socket.socket:
    """A socket that listens at the node's own address."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((address, port))
    listener.listen(128)
    return listener


def connect(address: str, port: int, key: str, what: str, limit_s: float | None = None) -> Connection:
    """A connection to the listener there, as soon as it lets this one in and proves that it has the key, too.

    Raises MeetingError.
    """
    end = time.monotonic() + (CONNECT_S if limit_s is None else limit_s)
    while True:
        line = None
        try:
            line = Connection(socket.create_connection((address, port), timeout=TICK_S))
            _prove_each_other(line, key, what, end)
        except (OSError, MeetingError) as error:
            if line is not None:
                line.close()
            if time.monotonic() > end:
                raise MeetingError(f"{address}:{port} cannot be reached: {error}") from None
            time.sleep(RETRY_S)
        else:
            return line


def _prove_each_other(line: Connection, key: str, what: str, end: float) -> None:
    """Say what this end comes for, prove it, and require the same of who listens. Raises MeetingError."""
    nonce = _read_nonce(line.receive(max(TICK_S, end - time.monotonic())))
    nonces, at = (nonce, secrets.token_hex(16)), line.ends()[1]
    line.send({"what": what, "nonce": nonces[1], "proof": sign(key, COMES, at, nonces, what)})
    answer = line.receive(max(TICK_S, end - time.monotonic()))
    if not is_proof(answer, sign(key, LISTENS, at, nonces, what)):
        raise MeetingError("who listens there is no peer")


def _read_nonce(message: Any) -> str:
    if not isinstance(message, str) or not NONCE.fullmatch(message):
        raise MeetingError("a peer does not ask for a proof")
    return message


class Door:
    """Lets in who knows a key, with what it is there for; silent strangers hold up nobody."""

    def __init__(
        self, listener: socket.socket, key_of: Callable[[str], str | None], most: int = MAX_PROOF
    ) -> None:
        """``key_of`` what a stranger is there for, if there is such a thing; ``most`` bytes say what."""
        self._listener, self._key_of, self._most = listener, key_of, most
        self._let_in: queue.Queue[tuple[Connection, str]] = queue.Queue()
        self._strangers: dict[socket.socket, None] = {}  # in the order in which they came
        self._lock = threading.Lock()
        self._closed = False
        threading.Thread(target=self._serve, daemon=True).start()

    def next(self, limit_s: float | None = None) -> tuple[Connection, str] | None:
        """Who comes in next, and what for; None if nobody does within the time limit."""
        with suppress(queue.Empty):
            return self._let_in.get(timeout=None if limit_s is None else max(0.0, limit_s))
        return None

    def close(self) -> None:
        """Let in nobody else."""
        self._closed = True
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes who waits for a connection
        self._listener.close()

    def _serve(self) -> None:
        while not self._closed:
            with suppress(OSError, RuntimeError):  # a connection that ended already; no thread more
                connection, _ = self._listener.accept()
                self._admit(connection)
                threading.Thread(target=self._prove, args=(connection,), daemon=True).start()

    def _admit(self, connection: socket.socket) -> None:
        """Among the strangers, in place of the one who is silent longest."""
        with self._lock:
            self._strangers[connection] = None
            if len(self._strangers) > STRANGERS:
                oldest = next(iter(self._strangers))
                del self._strangers[oldest]
                with suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)  # which ends its thread

    def _prove(self, connection: socket.socket) -> None:
        line, nonce = Connection(connection, self._most), secrets.token_hex(16)
        what = None
        with suppress(MeetingError, OSError, AttributeError, ValueError):
            line.send(nonce)
            request, at = line.receive(TICK_S), line.ends()[0]
            asked, nonces = str(request.get("what")), (nonce, _read_nonce(request.get("nonce")))
            key = self._key_of(asked)
            if key is not None and is_proof(request.get("proof"), sign(key, COMES, at, nonces, asked)):
                what, answer = asked, sign(key, LISTENS, at, nonces, asked)
        with self._lock:  # so they come in in the order in which they hear that they may
            is_here = connection in self._strangers
            self._strangers.pop(connection, None)
            if what is not None and is_here:
                line.most = MAX_VALUE
                with suppress(OSError):
                    line.send(answer)
                    self._let_in.put((line, what))
                return
        line.close()


class Meeting:
    """All ranks, connected through the first one. ``keys`` are this rank's, by the other ranks."""

    def __init__(self, rank: int, size: int, master: tuple[str, int], keys: Mapping[str, str]) -> None:
        self.rank, self.size = rank, size
        self._peers: dict[int, Connection] = {}
        if rank:
            self._peers[0] = connect(*master, keys["0"], str(rank))
            # So all wait at one place for the last one, for as long as the first rank does.
            self._peers[0].receive_line(2 * CONNECT_S)
        elif size > 1:
            self._wait_for_all(Door(listen(*master), keys.get))

    def _wait_for_all(self, door: Door) -> None:
        end = time.monotonic() + CONNECT_S
        with closing(door):
            while len(self._peers) < self.size - 1:
                came = door.next(end - time.monotonic())
                if came is None:
                    missing = min(set(range(1, self.size)) - set(self._peers))
                    raise MeetingError(f"a peer, rank {missing}, did not connect within {CONNECT_S:.0f} s")
                line, rank = came
                if int(rank) in self._peers:
                    self._peers[int(rank)].close()  # it gave up that connection before it was let in
                self._peers[int(rank)] = line
        self._send_to_all(b'"all are here"')

    def exchange(
        self, value: Any, read: Callable[[Any], T], limit_s: float, tick: Callable[[], None] = lambda: None
    ) -> list[T | None]:
        """What ``read`` makes of the values of all ranks, in order of rank. Raises MeetingError.

        None is what it raises TypeError or ValueError for, or what is no JSON. The first rank passes on what
        ranks say as it comes: no value grows on its way, or is read by one of them for the others.
        """
        lines = [json.dumps(value).encode()]
        end = time.monotonic() + limit_s
        if self.rank:
            self._peers[0].send_lines(*lines)
            lines = [self._hear(0, end, tick) for _ in range(self.size)]
        else:
            lines += [self._hear(rank, end, tick) for rank in range(1, self.size)]
            self._send_to_all(*lines)
        return [_understand(line, read) for line in lines]

    def close(self) -> None:
        """Leave."""
        for peer in self._peers.values():
            peer.close()

    def _send_to_all(self, *lines: bytes) -> None:
        """Send to all peers at once: one that does not read keeps nobody waiting, and is missed when it is
        to speak next, as all others wait for it."""
        some = b"".join(line + b"\n" for line in lines)
        with ThreadPoolExecutor(SENDERS) as pool:
            for peer in self._peers.values():
                pool.submit(peer.send_or_end, some)

    def _hear(self, rank: int, end: float, tick: Callable[[], None]) -> bytes:
        try:
            return self._peers[rank].receive_line(max(0.1, end - time.monotonic()), tick)
        except MeetingError as error:
            raise MeetingError(f"{error} (rank {rank})") from None


def _understand(line: bytes, read: Callable[[Any], T]) -> T | None:
    try:
        return read(read_line(line))
    except (TypeError, ValueError, RecursionError):
        return None


class CommandServer:
    """Starts commands for the first rank, by ``key``, until it is closed; running ones are then killed."""

    def __init__(
        self, address: str, port: int, key: str, start: Callable[[str], subprocess.Popen[bytes]]
    ) -> None:
        """``start`` starts a command in a session of its own; it may raise MeetingError, OSError."""
        self._door = Door(listen(address, port), lambda _command: key, MAX_VALUE)
        self._start_command = start
        self._started: list[subprocess.Popen[bytes]] = []
        self._lock = threading.Lock()  # a command that starts during close would not be killed
        self._closed = False
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while (came := self._door.next()) is not None:
            threading.Thread(target=self._start, args=came, daemon=True).start()

    def _start(self, line: Connection, command: str) -> None:
        with self._lock:
            if self._closed:
                line.close()
                return
            try:
                process = self._start_command(command)
            except (MeetingError, OSError) as error:
                print(f"not started: {error}", flush=True)
                line.close()
                return
            self._started.append(process)
        if process.stdout is not None:
            copy_start(process.stdout, sys.stdout.buffer, MAX_SAID)
        with suppress(OSError):
            line.send(process.wait())

    def close(self) -> None:
        """Start no more commands, and kill running ones."""
        self._door.close()
        with self._lock:
            self._closed = True
        for process in self._started:
            kill_group(process)


def copy_start(source: IO[bytes], sink: IO[bytes], most: int) -> None:
    """Copy the first ``most`` bytes, and read all the rest: who writes them may write without end."""
    with source:
        while some := os.read(source.fileno(), READ):
            sink.write(some[:most])
            sink.flush()
            most -= len(some[:most])


def kill_group(process: subprocess.Popen[Any]) -> None:
    """Kill a process and everything in its session."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
