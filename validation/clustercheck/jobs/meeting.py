"""Connects ranks without a framework: they exchange values over TCP and start commands for each other.

Shipped to the node with rank.py: stdlib only. A peer proves that it knows the run's secret, which is in the
job's arguments, readable only by root. As a program it is what Open MPI calls in place of ssh:
``python meeting.py HOST COMMAND ...`` makes the rank at HOST start the command, and exits with its code.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

CONNECT_S = 30.0
TICK_S = 5.0
MAX_MESSAGE = 4 * 1024 * 1024  # bytes of one message
AGENTS_VARIABLE = "CLUSTERCTL_AGENTS"  # by address: the port at which its rank starts commands


class MeetingError(Exception):
    """A peer did not connect, or violated the protocol."""


class Connection:
    """One connection: JSON, one message per line."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._buffer = b""

    def send(self, message: Any) -> None:
        """Send one message."""
        self._socket.sendall(json.dumps(message).encode() + b"\n")

    def receive(self, limit_s: float, tick: Callable[[], None] = lambda: None) -> Any:
        """The next message; ``tick`` is called every few seconds meanwhile. Raises MeetingError."""
        end = time.monotonic() + limit_s
        while b"\n" not in self._buffer:
            left = end - time.monotonic()
            if left <= 0 or len(self._buffer) > MAX_MESSAGE:
                raise MeetingError(
                    "a peer did not answer in time" if left <= 0 else "too long a message from a peer"
                )
            self._socket.settimeout(min(TICK_S, left))
            try:
                read = self._socket.recv(65536)
            except TimeoutError:
                tick()
                continue
            if not read:
                raise MeetingError("a peer disconnected")
            self._buffer += read
        text, _, self._buffer = self._buffer.partition(b"\n")
        try:
            return json.loads(text)
        except ValueError:
            raise MeetingError("unreadable message from a peer") from None

    def close(self) -> None:
        """End the connection."""
        self._socket.close()


def sign(secret: str, nonce: str, what: str) -> str:
    """The proof of knowing the secret, for a nonce."""
    return hmac.new(secret.encode(), f"{nonce} {what}".encode(), hashlib.sha256).hexdigest()


def listen(address: str, port: int) -> socket.socket:
    """A socket that listens at the node's own address."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((address, port))
    listener.listen(128)
    return listener


def connect(address: str, port: int, secret: str, what: str, limit_s: float | None = None) -> Connection:
    """A connection to the listener there, as soon as it listens. Raises MeetingError."""
    end = time.monotonic() + (CONNECT_S if limit_s is None else limit_s)
    while True:
        try:
            line = Connection(socket.create_connection((address, port), timeout=5))
            break
        except OSError as error:
            if time.monotonic() > end:
                raise MeetingError(f"{address}:{port} cannot be reached: {error}") from None
            time.sleep(0.2)  # no event shows when a starting peer listens
    nonce = str(line.receive(CONNECT_S))
    line.send({"what": what, "proof": sign(secret, nonce, what)})
    return line


def accept(listener: socket.socket, secret: str) -> tuple[Connection, str] | None:
    """The next connection whose peer knows the secret, and its request; None if the peer does not."""
    connection, _ = listener.accept()
    line, nonce = Connection(connection), secrets.token_hex(16)
    with suppress(MeetingError, OSError, AttributeError, TypeError):
        line.send(nonce)
        request = line.receive(TICK_S)
        what = str(request.get("what"))
        if hmac.compare_digest(str(request.get("proof")), sign(secret, nonce, what)):
            return line, what
    line.close()
    return None


class Meeting:
    """All ranks, connected through the first one."""

    def __init__(self, rank: int, size: int, master: tuple[str, int], secret: str) -> None:
        self.rank, self.size, self.secret = rank, size, secret
        self._peers: dict[int, Connection] = {}
        if rank:
            self._peers[0] = connect(*master, secret, str(rank))
        elif size > 1:
            self._wait_for_all(listen(*master))

    def _wait_for_all(self, listener: socket.socket) -> None:
        end = time.monotonic() + CONNECT_S
        listener.settimeout(CONNECT_S)
        while len(self._peers) < self.size - 1:
            try:
                accepted = accept(listener, self.secret)
            except TimeoutError:
                accepted = None
            if accepted is not None and accepted[1].isdigit() and 0 < int(accepted[1]) < self.size:
                self._peers[int(accepted[1])] = accepted[0]
            elif time.monotonic() > end:
                missing = sorted(set(range(1, self.size)) - set(self._peers))
                raise MeetingError(f"rank {missing[0]} did not connect within {CONNECT_S:.0f} s")
        listener.close()

    def exchange(self, value: Any, limit_s: float, tick: Callable[[], None] = lambda: None) -> list[Any]:
        """The values of all ranks, in order of rank. Raises MeetingError."""
        if self.size == 1:
            return [value]
        if self.rank:
            self._peers[0].send(value)
            return list(self._peers[0].receive(limit_s, tick))
        end = time.monotonic() + limit_s
        values = [value] + [
            self._peers[rank].receive(max(0.1, end - time.monotonic()), tick) for rank in range(1, self.size)
        ]
        for peer in self._peers.values():
            peer.send(values)
        return values


class CommandServer:
    """Starts commands for peers until it is closed; those still running are then killed."""

    def __init__(self, address: str, port: int, secret: str) -> None:
        self._listener = listen(address, port)
        self._secret = secret
        self._started: list[subprocess.Popen[bytes]] = []
        self._lock = threading.Lock()  # a command that starts during close would not be killed
        self._closed = False
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):  # closed
            while True:
                accepted = accept(self._listener, self._secret)
                if accepted is not None:
                    threading.Thread(target=self._start, args=accepted, daemon=True).start()

    def _start(self, line: Connection, command: str) -> None:
        with self._lock:
            if self._closed:
                line.close()
                return
            process = subprocess.Popen(
                ["/bin/sh", "-c", command], stdin=subprocess.DEVNULL, start_new_session=True
            )
            self._started.append(process)
        with suppress(OSError):
            line.send(process.wait())

    def close(self) -> None:
        """Start no more commands, and kill running ones."""
        self._listener.close()
        with self._lock:
            self._closed = True
        for process in self._started:
            kill_group(process)


def kill_group(process: subprocess.Popen[Any]) -> None:
    """Kill a process and everything in its session."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def main(argv: Sequence[str]) -> int:
    """Make the rank at an address start a command; returns its exit code."""
    host, *command = argv
    arguments = json.loads(Path(__file__).with_name("arguments.json").read_text(encoding="utf-8"))
    port = json.loads(os.environ[AGENTS_VARIABLE])[host]
    line = connect(host, int(port), str(arguments["secret"]), " ".join(command))
    return int(line.receive(float(arguments["limit_s"])))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
