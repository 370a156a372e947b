"""What the tests of scanning share: real SSH servers on the loopback interface, keys, and hosts at them."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import paramiko

from clusterctl.cluster import known_hosts
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.cluster.inventory import Host, from_listing
from clusterctl.cluster.known_hosts import HostKey
from clusterctl.cluster.scan import Reached, scan

ANSWER = "hello from .bashrc\n@@clusterctl\nos=Test OS 1\nkernel=6.1.0\npython=3.11.2\nsudo=root\n@@end\n"
LIMIT_S = 5.0


@dataclass
class Served:
    """What a server saw, and how to reach it."""

    port: int
    logins: list[str] = field(default_factory=list)
    passwords: list[str] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)
    inputs: list[bytes] = field(default_factory=list)


class Session(paramiko.ServerInterface):
    def __init__(
        self, served: Served, users: Mapping[str, paramiko.PKey], passwords: Mapping[str, str]
    ) -> None:
        self.served, self.users, self.passwords = served, users, passwords
        self.command = threading.Event()

    def get_allowed_auths(self, username: str) -> str:
        return "publickey,password" if self.passwords else "publickey"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        self.served.logins.append(f"{username}:publickey")
        wanted = self.users.get(username)
        good = wanted is not None and wanted.asbytes() == key.asbytes()
        return paramiko.AUTH_SUCCESSFUL if good else paramiko.AUTH_FAILED

    def check_auth_password(self, username: str, password: str) -> int:
        self.served.logins.append(f"{username}:password")
        self.served.passwords.append(password)
        good = self.passwords.get(username) == password
        return paramiko.AUTH_SUCCESSFUL if good else paramiko.AUTH_FAILED

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return paramiko.OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        self.served.commands.append(command.decode())
        self.command.set()
        return True


@contextlib.contextmanager
def listening(talk: Callable[[socket.socket, Served], None], stop: threading.Event) -> Iterator[Served]:
    server = socket.create_server(("127.0.0.1", 0))
    server.settimeout(0.05)
    served = Served(server.getsockname()[1])

    def attend(client: socket.socket) -> None:
        try:
            talk(client, served)
        finally:
            client.close()

    def accept() -> None:
        while not stop.is_set():
            with contextlib.suppress(TimeoutError):
                client, _ = server.accept()
                threading.Thread(target=attend, args=(client,), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield served
    finally:
        stop.set()
        thread.join(2)
        server.close()


@contextlib.contextmanager
def ssh_server(
    keys: Sequence[paramiko.PKey],
    users: Mapping[str, paramiko.PKey] | None = None,
    passwords: Mapping[str, str] | None = None,
    answer: str | None = ANSWER,
    exchanges: Sequence[str] = (),
    *,
    sudo: Callable[[], str] | None = None,
) -> Iterator[Served]:
    """Serve SSH until the block ends. ``answer`` is what any command prints; None: it never ends.

    ``sudo`` says what its sudo makes of a password that a command is given.
    ``exchanges`` are the key exchanges that it offers, all where it names none.
    """
    stop = threading.Event()

    def talk(client: socket.socket, served: Served) -> None:
        transport = paramiko.Transport(client)
        if exchanges:
            transport.get_security_options().kex = tuple(exchanges)
        for key in keys:
            transport.add_server_key(key)
        session = Session(served, users or {}, passwords or {})
        with contextlib.suppress(paramiko.SSHException, EOFError, OSError):
            transport.start_server(server=session)
        while transport.is_active() and not stop.is_set():
            channel = transport.accept(0.02)
            if channel is None:
                continue
            session.command.wait(2)
            if answer is None:
                stop.wait(10)
            channel.settimeout(2)
            heard = b""
            with contextlib.suppress(TimeoutError):
                while chunk := channel.recv(1024):
                    heard += chunk
            served.inputs.append(heard)
            with contextlib.suppress(OSError, EOFError):
                said = ANSWER.replace("root", sudo()) if heard and sudo else answer
                channel.sendall((said or "").encode())
                channel.send_exit_status(0)
                channel.close()
        transport.close()

    with listening(talk, stop) as served:
        yield served


@contextlib.contextmanager
def raw_server(greeting: bytes, *, hang_up: bool) -> Iterator[Served]:
    """A port that says ``greeting``, and then nothing, or hangs up."""
    stop = threading.Event()

    def talk(client: socket.socket, served: Served) -> None:
        with contextlib.suppress(ConnectionError):
            # Who has left did not hear all of it.
            client.sendall(greeting)
        if not hang_up:
            stop.wait(20)

    with listening(talk, stop) as served:
        yield served


@dataclass(frozen=True)
class Keys:
    host: paramiko.PKey
    ecdsa: paramiko.PKey
    other: paramiko.PKey
    user: paramiko.PKey
    user_file: Path
    locked_file: Path


def hosts(directory: ClusterDirectory, keys: Keys, *ports: int, **variables: Any) -> tuple[Host, ...]:
    """One host a port, gpu01 first."""
    common = {
        "ansible_host": "127.0.0.1",
        "ansible_user": "ops",
        "ansible_ssh_private_key_file": str(keys.user_file),
        # The machine's own configuration has no say in tests.
        "ansible_ssh_common_args": "-F /dev/null",
        **variables,
    }
    named = {f"gpu{n:02}": {**common, "ansible_port": port} for n, port in enumerate(ports, 1)}
    groups = {"all": {"children": ["gpu_nodes"]}, "gpu_nodes": {"hosts": list(named)}}
    return from_listing(directory, {"_meta": {"hostvars": named}, **groups}).hosts


def pin(directory: ClusterDirectory, port: int, *pinned: paramiko.PKey) -> None:
    known_hosts.pin(directory, f"[127.0.0.1]:{port}", [as_host_key(key) for key in pinned], "gpu01")


def as_host_key(key: paramiko.PKey) -> HostKey:
    return HostKey(key.get_name(), key.get_base64())


def one(directory: ClusterDirectory, keys: Keys, port: int, limit_s: float = LIMIT_S, **more: Any) -> Reached:
    passwords = more.pop("passwords", None)
    (reached,) = scan(directory, hosts(directory, keys, port, **more), passwords, limit_s=limit_s)
    return reached
