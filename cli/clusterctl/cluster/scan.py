"""Who answers, and how: every host at once, nothing trusted before its key is pinned."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import paramiko

from clusterctl.cluster import known_hosts, login_probe
from clusterctl.cluster.access import Passwords
from clusterctl.cluster.captured import OutputTooLongError, run_captured
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.cluster.endpoint import Endpoint, endpoint
from clusterctl.cluster.inventory import Host
from clusterctl.cluster.known_hosts import HostKey, PinnedKeys
from clusterctl.cluster.login_gates import LoginGates
from clusterctl.cluster.reach import (
    KEY_FAMILIES,
    Deadline,
    ReachError,
    handshake,
    host_key,
    log_in,
    offered_keys,
)
from clusterctl.cluster.ssh_failures import KEY_CHANGED, KEY_UNKNOWN, code_of, code_of_state
from clusterctl.cluster.ssh_options import ALONE, as_words
from clusterctl.cluster.sudo_password import PasswordRefusedError, PasswordTrial
from clusterctl.errors import ClusterctlError
from clusterctl.parallel import parallel_map

OK = "ok"
UNPINNED = "unpinned"
CHANGED = "key-changed"
NOT_TRIED = "password not tried"
PARALLEL_HOSTS = 32
LIMIT_S = 15.0
AGENT_TIMEOUT_S = 5.0


@dataclass(frozen=True)
class Reached:
    """What became of one host. ``state`` is ``ok``, ``unpinned``, ``key-changed`` or why it failed, ``code``
    the error code of that.

    ``keys`` are those that it offers, ``pinned`` those that are trusted. ``login_s`` is the time from the
    first packet to the first word of its shell, ``shell_s`` the shell's part of it.
    """

    node: str
    address: str
    port: int
    user: str = ""
    lookup: str = ""
    jump: str = ""
    state: str = OK
    code: str = ""
    because: str = ""
    remedy: str = ""
    keys: tuple[HostKey, ...] = ()
    pinned: tuple[HostKey, ...] = ()
    os: str = ""
    kernel: str = ""
    python: str = ""
    sudo: str = ""
    login_s: float | None = None
    shell_s: float | None = None
    quarantined: str | None = field(default=None)

    def as_record(self) -> dict[str, Any]:
        """The host as one JSON object."""
        return {
            "type": "host",
            "host": self.node,
            "address": self.address,
            "port": self.port,
            "user": self.user,
            "jump": self.jump or None,
            "state": self.state,
            "code": self.code,
            "because": self.because,
            "remedy": self.remedy,
            "keys": [{"type": k.type, "fingerprint": k.fingerprint} for k in self.keys],
            "pinned": [{"type": k.type, "fingerprint": k.fingerprint} for k in self.pinned],
            "os": self.os,
            "kernel": self.kernel,
            "python": self.python,
            "sudo": self.sudo,
            "login_s": self.login_s,
            "shell_s": self.shell_s,
            "quarantined": self.quarantined,
        }


@dataclass(frozen=True)
class _Look:
    """One look at one host: the way there, and what the operator gave for it."""

    directory: ClusterDirectory
    way: Endpoint
    agent_keys: Sequence[paramiko.PKey]
    passwords: Passwords
    deadline: Deadline
    trial: PasswordTrial


def scan(
    directory: ClusterDirectory,
    hosts: Iterable[Host],
    passwords: Passwords | None = None,
    *,
    limit_s: float = LIMIT_S,
    on_host: Callable[[Reached], None] = lambda _: None,
) -> list[Reached]:
    """Look at every host at once, each within ``limit_s`` seconds; the order is that of ``hosts``.

    A host whose key is not pinned is asked for its keys, and for nothing else.
    """
    agent_keys = _agent_keys()
    gates, trial = LoginGates(), PasswordTrial()

    def look(host: Host) -> Reached:
        found = Reached(host.name, host.address, host.port, host.user, quarantined=host.quarantined)
        deadline = Deadline(limit_s)
        try:
            way = endpoint(host, limit_s)
        except ClusterctlError as error:
            if error.code == "ssh.missing":
                raise
            return replace(found, state="config", code=error.code, because=error.what, remedy=error.hint)
        found = replace(
            found, address=way.address, port=way.port, user=way.user, lookup=way.lookup, jump=way.jump
        )
        queued = time.monotonic()
        with gates.gate(way):
            deadline.extend(time.monotonic() - queued)
            return _reach(_Look(directory, way, agent_keys, passwords or Passwords(), deadline, trial), found)

    return parallel_map(look, hosts, limit=PARALLEL_HOSTS, on_result=on_host)


def _reach(look: _Look, found: Reached) -> Reached:
    trusted = known_hosts.pinned(look.directory, look.way.lookup)
    found = replace(found, pinned=trusted.keys)
    try:
        if trusted.authorities:
            return _by_openssh(look, found)
        if not trusted.keys:
            return _unpinned(look, found, trusted)
        return _known(look, found, trusted)
    except ReachError as error:
        return replace(found, state=error.state, code=error.code, because=error.because, remedy=error.remedy)


def _unpinned(look: _Look, found: Reached, trusted: PinnedKeys) -> Reached:
    keys = offered_keys(look.way, look.deadline)
    if set(keys) & set(trusted.revoked):
        raise _revoked(look.way)
    return replace(
        found,
        state=UNPINNED,
        code=KEY_UNKNOWN,
        keys=keys,
        because="its host key is not pinned",
        remedy="Compare the fingerprint with the one on its console, then confirm it.",
    )


def _known(look: _Look, found: Reached, trusted: PinnedKeys) -> Reached:
    begun = time.monotonic()
    with handshake(look.way, _order_of(trusted.keys), look.deadline) as transport:
        key = host_key(transport)
        found = replace(found, keys=(key,))
        if key in trusted.revoked:
            raise _revoked(look.way)
        if key not in trusted.keys:
            return replace(
                found,
                state=CHANGED,
                code=KEY_CHANGED,
                because=f"its key is {key.fingerprint} ({key.type}); pinned is {format_keys(trusted.keys)}",
                remedy=f"Re-imaged? clusterctl hosts replace {look.way.node}. If not: who is in between?",
            )
        log_in(transport, look.way, look.agent_keys, look.passwords, look.deadline)
        facts = login_probe.ask(transport, look.deadline)
        if facts.sudo == login_probe.WANTS_PASSWORD and look.passwords.become is not None:
            facts = replace(facts, sudo=_try_password(look, transport))
    return replace(found, **facts.fields(), login_s=round(facts.answered - begun, 3))


def _try_password(look: _Look, transport: paramiko.Transport) -> str:
    """What its sudo makes of the password, which is not tried where others have refused it."""
    node, queued, answers = look.way.node, time.monotonic(), list[str]()

    def ask() -> None:
        look.deadline.extend(time.monotonic() - queued)
        answers.append(login_probe.ask(transport, look.deadline, look.passwords.become).sudo)
        if answers[0] == login_probe.ACCEPTED:
            look.trial.take(node)
        elif answers[0] == login_probe.REFUSED:
            look.trial.refuse(node, answers[0])

    try:
        look.trial.require(node, ask)
    except PasswordRefusedError:
        return NOT_TRIED
    if not answers:  # it is right elsewhere: now all are asked at the same time
        ask()
    return answers[0]


def _by_openssh(look: _Look, found: Reached) -> Reached:
    """A host certificate is judged by OpenSSH: paramiko knows no @cert-authority."""
    begun = time.monotonic()
    own = as_words(
        [
            *known_hosts.checking_options(look.directory.known_hosts),
            *ALONE,
            "ControlPath=none",
            "BatchMode=yes",
        ]
    )
    *options, address = look.way.arguments
    command = ["ssh", *own, *options, "--", address, login_probe.COMMAND]
    try:
        done = run_captured(command, stdin="", timeout_s=look.deadline.left(), environment=os.environ)
    except OutputTooLongError as error:
        raise ReachError("openssh", f"its answer cannot be read: {error}") from None
    except subprocess.TimeoutExpired:
        raise ReachError("timeout", f"no answer within {look.deadline.limit_s:.0f} s") from None
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        because = f"OpenSSH is refused: {lines[-1] if lines else done.returncode}"
        raise ReachError("openssh", because, code=code_of(done.stderr))
    facts = login_probe.read(done.stdout, answered=time.monotonic(), shell_s=None)
    return replace(found, **facts.fields(), login_s=round(facts.answered - begun, 3))


def _order_of(keys: Iterable[HostKey]) -> list[str]:
    """Key types to negotiate: those pinned first, as OpenSSH does, so that the key can be compared."""
    pinned = {t for key in keys for t in (KEY_FAMILIES[2] if key.type == "ssh-rsa" else (key.type,))}
    every = [t for family in KEY_FAMILIES for t in family]
    return sorted(every, key=lambda kind: kind not in pinned)


def _revoked(way: Endpoint) -> ReachError:
    return ReachError(
        "key-revoked",
        "its host key is revoked in known_hosts",
        f"Give {way.node} a new host key, then: hosts replace.",
    )


def format_keys(keys: Iterable[HostKey]) -> str:
    """Fingerprints for a sentence."""
    return ", ".join(f"{key.fingerprint} ({key.type})" for key in keys)


def _agent_keys() -> tuple[paramiko.PKey, ...]:
    """The keys of the operator's SSH agent, if it answers in time."""
    found: list[paramiko.PKey] = []

    def ask() -> None:
        try:
            found.extend(paramiko.Agent().get_keys())
        except (paramiko.SSHException, OSError):
            return

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(AGENT_TIMEOUT_S)
    return tuple(found)


def look_at_keys(directory: ClusterDirectory, host: Host, limit_s: float = LIMIT_S) -> Reached:
    """The keys that a host offers next to those pinned, without a login.

    ``state`` is ``ok`` where one of them is pinned, ``key-changed``, ``unpinned``, or why it failed.
    """
    found = Reached(host.name, host.address, host.port, host.user, quarantined=host.quarantined)
    deadline = Deadline(limit_s)
    try:
        way = endpoint(host, limit_s)
        trusted = known_hosts.pinned(directory, way.lookup)
        found = replace(found, address=way.address, port=way.port, user=way.user, lookup=way.lookup)
        keys = offered_keys(way, deadline)
    except ReachError as error:
        return replace(found, state=error.state, code=error.code, because=error.because, remedy=error.remedy)
    same = _same(keys, trusted.keys)
    state = OK if same else CHANGED if trusted.keys else UNPINNED
    return replace(
        found,
        keys=keys,
        pinned=trusted.keys,
        state=state,
        code=code_of_state(state),
        because=""
        if same
        else f"it offers {format_keys(keys)}; pinned is {format_keys(trusted.keys) or 'nothing'}",
        remedy="" if same else "Compare the fingerprint with the one on its console, then confirm it.",
    )


def _same(offered: Iterable[HostKey], trusted: Sequence[HostKey]) -> bool:
    """True where every offered key of a kind that is pinned is pinned, and there is one."""
    kinds = {key.type for key in trusted}
    compared = [key for key in offered if key.type in kinds]
    return bool(compared) and all(key in trusted for key in compared)


def pins(directory: ClusterDirectory, hosts: Iterable[Host]) -> dict[str, bool | None]:
    """Whether each host's key is pinned; None where SSH's configuration for it cannot be read."""
    chosen = list(hosts)

    def look(host: Host) -> bool | None:
        try:
            trusted = known_hosts.pinned(directory, endpoint(host, LIMIT_S).lookup)
        except ClusterctlError:
            return None
        return bool(trusted.keys or trusted.authorities)

    return dict(
        zip((host.name for host in chosen), parallel_map(look, chosen, limit=PARALLEL_HOSTS), strict=True)
    )


def forget_keys(directory: ClusterDirectory, host: Host) -> bool:
    """Trust no key of this host any more. Returns whether one was pinned."""
    return known_hosts.forget(directory, endpoint(host, LIMIT_S).lookup)
