"""Ranks that meet without a framework: values exchanged over TCP, and commands that one has another start.

Shipped to the node beside rank.py: stdlib alone. Who connects proves that it knows the run's secret, which
lies in the job's arguments, that root alone reads. As a program it is what Open MPI calls in place of ssh:
``python meeting.py HOST COMMAND ...`` has the rank at HOST start the command, and ends as that ends.
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
LONGEST = 4 * 1024 * 1024  # bytes of one message
AGENTS = "CLUSTERCTL_AGENTS"  # by address: the port at which its rank starts commands


class MeetingError(Exception):
    """A peer did not come, or spoke otherwise than it should."""


class Line:
    """One connection: JSON, a line a message."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._kept = b""

    def send(self, message: Any) -> None:
        """Send one message."""
        self._socket.sendall(json.dumps(message).encode() + b"\n")

    def receive(self, limit_s: float, tick: Callable[[], None] = lambda: None) -> Any:
        """The next message; ``tick`` is called every few seconds meanwhile. Raises MeetingError."""
        end = time.monotonic() + limit_s
        while b"\n" not in self._kept:
            left = end - time.monotonic()
            if left <= 0 or len(self._kept) > LONGEST:
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
            self._kept += read
        line, _, self._kept = self._kept.partition(b"\n")
        try:
            return json.loads(line)
        except ValueError:
            raise MeetingError("unreadable message from a peer") from None

    def close(self) -> None:
        """End the connection."""
        self._socket.close()


def proof(secret: str, nonce: str, what: str) -> str:
    """What only who knows the secret can say of a nonce."""
    return hmac.new(secret.encode(), f"{nonce} {what}".encode(), hashlib.sha256).hexdigest()


def listen(address: str, port: int) -> socket.socket:
    """A socket that waits for connections at the node's own address."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((address, port))
    listener.listen(128)
    return listener


def connect(address: str, port: int, secret: str, what: str, limit_s: float | None = None) -> Line:
    """A connection to who listens there, as soon as it does. Raises MeetingError."""
    end = time.monotonic() + (CONNECT_S if limit_s is None else limit_s)
    while True:
        try:
            line = Line(socket.create_connection((address, port), timeout=5))
            break
        except OSError as error:
            if time.monotonic() > end:
                raise MeetingError(f"{address}:{port} cannot be reached: {error}") from None
            time.sleep(0.2)  # a peer that is still starting tells nobody when it listens
    nonce = str(line.receive(CONNECT_S))
    line.send({"what": what, "proof": proof(secret, nonce, what)})
    return line


def accept(listener: socket.socket, secret: str) -> tuple[Line, str] | None:
    """The next connection of who knows the secret, and what it wants; None where a stranger came."""
    connection, _ = listener.accept()
    line, nonce = Line(connection), secrets.token_hex(16)
    with suppress(MeetingError, OSError, AttributeError, TypeError):
        line.send(nonce)
        said = line.receive(TICK_S)
        what = str(said.get("what"))
        if hmac.compare_digest(str(said.get("proof")), proof(secret, nonce, what)):
            return line, what
    line.close()
    return None


class Meeting:
    """All ranks, the first of which hears every other."""

    def __init__(self, rank: int, size: int, master: tuple[str, int], secret: str) -> None:
        self.rank, self.size, self.secret = rank, size, secret
        self._peers: dict[int, Line] = {}
        if rank:
            self._peers[0] = connect(*master, secret, str(rank))
        elif size > 1:
            self._wait_for_all(listen(*master))

    def _wait_for_all(self, listener: socket.socket) -> None:
        end = time.monotonic() + CONNECT_S
        listener.settimeout(CONNECT_S)
        while len(self._peers) < self.size - 1:
            try:
                came = accept(listener, self.secret)
            except TimeoutError:
                came = None
            if came is not None and came[1].isdigit() and 0 < int(came[1]) < self.size:
                self._peers[int(came[1])] = came[0]
            elif time.monotonic() > end:
                missing = sorted(set(range(1, self.size)) - set(self._peers))
                raise MeetingError(f"rank {missing[0]} did not connect within {CONNECT_S:.0f} s")
        listener.close()

    def exchange(self, value: Any, limit_s: float, tick: Callable[[], None] = lambda: None) -> list[Any]:
        """What every rank gives, in order of rank. Raises MeetingError."""
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


class Starter:
    """Starts what peers ask for, until it is closed; what then still runs is ended."""

    def __init__(self, address: str, port: int, secret: str) -> None:
        self._listener = listen(address, port)
        self._secret = secret
        self._started: list[subprocess.Popen[bytes]] = []
        self._lock = threading.Lock()  # what is being started when it is closed would run on
        self._closed = False
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):  # closed
            while True:
                came = accept(self._listener, self._secret)
                if came is not None:
                    threading.Thread(target=self._start, args=came, daemon=True).start()

    def _start(self, line: Line, command: str) -> None:
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
        """Start nothing more, and end what runs."""
        self._listener.close()
        with self._lock:
            self._closed = True
        for process in self._started:
            end(process)


def end(process: subprocess.Popen[Any]) -> None:
    """End a process and all that it started in its session."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def main(words: Sequence[str]) -> int:
    """Have the rank at an address start a command; its exit code."""
    host, *command = words
    arguments = json.loads(Path(__file__).with_name("arguments.json").read_text(encoding="utf-8"))
    port = json.loads(os.environ[AGENTS])[host]
    line = connect(host, int(port), str(arguments["secret"]), " ".join(command))
    return int(line.receive(float(arguments["limit_s"])))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
