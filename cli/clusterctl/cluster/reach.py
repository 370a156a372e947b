"""One SSH connection with a time limit on every step, and a plain word for each way in which it fails."""

from __future__ import annotations

import errno
import logging
import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import paramiko

from clustercheck.parse.plain_text import one_line
from clusterctl.cluster.access import Passwords
from clusterctl.cluster.endpoint import Endpoint
from clusterctl.cluster.known_hosts import HostKey
from clusterctl.cluster.ssh_failures import code_of_state

# One of each is enough to know a host by; the order is OpenSSH's.
KEY_FAMILIES: tuple[tuple[str, ...], ...] = (
    ("ssh-ed25519",),
    ("ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521"),
    ("rsa-sha2-512", "rsa-sha2-256"),
)
# Key exchanges with numbers that are large, or that the host chooses, keep the interpreter busy for seconds
# and all other hosts waiting. Every OpenSSH of a supported system has elliptic curves.
COSTLY_EXCHANGES = "diffie-hellman-"
# sshd drops us at MaxAuthTries, 6 by default, before we are done: one less, for the password.
MOST_KEYS = 5
MAX_REASON = 500
# In base64; an RSA key of 16,384 bits has 2,800.
MAX_KEY = 8_000
# Of all that a host sends: handshake, login, what the probe reads. paramiko waits for the end of a line, or
# of a packet of the length that the host names, whatever that is.
MAX_RECEIVED = 256 << 10
SMALLEST_WAIT_S = 0.05
LAST_MOMENT_S = 0.2

# paramiko's own words go to a log that nobody reads here; ours reach the operator.
logging.getLogger("paramiko").addHandler(logging.NullHandler())
logging.getLogger("paramiko").propagate = False


class ReachError(Exception):
    """Why a host was not reached: ``state`` and ``code`` are stable, ``because`` is a clause for people."""

    def __init__(self, state: str, because: str, remedy: str = "", code: str = "") -> None:
        super().__init__(because)
        self.state = state
        self.code = code or code_of_state(state)
        # Much of it is what the host, or a jump host, said.
        self.because = one_line(because, MAX_REASON)
        self.remedy = remedy


class Deadline:
    """The time that is left of a limit, in seconds."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self._end = time.monotonic() + limit_s

    def left(self) -> float:
        """Seconds left; raises ReachError (``timeout``) when there are none."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise ReachError("timeout", f"no answer within {self.limit_s:.0f} s")
        return max(left, SMALLEST_WAIT_S)

    def is_over(self) -> bool:
        """True at the end and just before it: what fails then, failed for want of time."""
        return self._end - time.monotonic() < LAST_MOMENT_S

    def is_past(self) -> bool:
        """True from the end on."""
        return time.monotonic() >= self._end

    def extend(self, seconds: float) -> None:
        """Leave a time out of account in which nothing was asked of the host."""
        self._end += seconds


@contextmanager
def handshake(
    endpoint: Endpoint, key_types: Sequence[str], deadline: Deadline
) -> Iterator[paramiko.Transport]:
    """A connection up to the host's key, which nobody has judged yet: send nothing secret before.

    Raises ReachError, also for whatever else ends the block: paramiko raises there what its own thread met
    in what the host sent.
    """
    with _line(endpoint, deadline) as line:
        line.settimeout(deadline.left())
        try:
            transport = paramiko.Transport(cast("socket.socket", BoundedLine(line, MAX_RECEIVED, deadline)))
        except paramiko.SSHException as error:
            raise ReachError("closed", f"SSH cannot start: {error}") from None
        transport.daemon = True
        transport.banner_timeout = transport.auth_timeout = deadline.left()
        try:
            options = transport.get_security_options()
            options.key_types = tuple(key_types)
            options.kex = tuple(name for name in options.kex if not name.startswith(COSTLY_EXCHANGES))
            _start(transport, deadline)
            yield transport
        except ReachError:
            raise
        except Exception as error:
            if deadline.is_over():
                raise _silent(deadline) from None
            raise ReachError(
                "incompatible", f"what it sends cannot be read: {type(error).__name__}: {_said(error)}"
            ) from error
        finally:
            transport.close()


class BoundedLine:
    """A socket that ends after so many bytes and at the deadline, for paramiko.

    Its waits have no limit, or limits of their own that add up; all of them end with the line, which it
    reads all the time.
    """

    def __init__(self, line: socket.socket, max_bytes: int, deadline: Deadline) -> None:
        self._line = line
        self._left = max_bytes
        self._deadline = deadline

    def recv(self, size: int) -> bytes:
        """What comes, until a limit; then nothing, as where the other side has closed."""
        is_open = self._left and not self._deadline.is_past()
        received = self._line.recv(min(size, self._left)) if is_open else b""
        self._left -= len(received)
        return received

    def __getattr__(self, name: str) -> Any:
        return getattr(self._line, name)


def host_key(transport: paramiko.Transport) -> HostKey:
    """The key that the host proved to hold."""
    key = transport.get_remote_server_key()
    body = key.get_base64()
    if len(body) > MAX_KEY:
        raise ReachError("no-common-key", f"its host key has {len(body)} characters, which no host's has")
    return HostKey(key.get_name(), body)


def offered_keys(endpoint: Endpoint, deadline: Deadline) -> tuple[HostKey, ...]:
    """The host's keys, one of each family that it has. Raises ReachError."""
    found = []
    for family in KEY_FAMILIES:
        try:
            with handshake(endpoint, family, deadline) as transport:
                found.append(host_key(transport))
        except ReachError as error:
            if error.state != "no-common-key":
                raise
    if not found:
        raise ReachError("no-common-key", "it offers no kind of host key that is still safe")
    return tuple(found)


def log_in(
    transport: paramiko.Transport,
    endpoint: Endpoint,
    agent_keys: Sequence[paramiko.PKey],
    passwords: Passwords,
    deadline: Deadline,
) -> None:
    """Authenticate with the operator's keys, else the password. Only after the host's key was judged.

    Raises ReachError (``auth``, ``silent``).
    """
    tried: list[str] = []
    offered: Sequence[str] = ()
    for label, key in _keys(endpoint, agent_keys, tried):
        if len([word for word in tried if not word.startswith("(")]) >= MOST_KEYS:
            break
        tried.append(label)
        transport.auth_timeout = deadline.left()
        try:
            if not transport.auth_publickey(endpoint.user, key):
                return
        except paramiko.BadAuthenticationType as error:
            offered = error.allowed_types
            break
        except paramiko.AuthenticationException:
            if deadline.is_over():
                raise _silent(deadline) from None
        except (paramiko.SSHException, EOFError, OSError) as error:
            if deadline.is_over():
                raise _silent(deadline) from None
            raise ReachError("auth", f"it ended the login of {endpoint.user}: {_said(error)}") from None
    if passwords.ssh is not None:
        tried.append("password")
        transport.auth_timeout = deadline.left()
        try:
            if not transport.auth_password(endpoint.user, passwords.ssh.get_secret_value()):
                return
        except (paramiko.SSHException, EOFError, OSError) as error:
            if deadline.is_over():
                raise _silent(deadline) from None
            offered = getattr(error, "allowed_types", offered)
    accepts = f"; it takes {', '.join(offered)}" if offered else ""
    raise ReachError(
        "auth",
        f"it refuses {endpoint.user} (tried: {', '.join(tried) or 'nothing, there is no key'}{accepts})",
        f"Copy your key there: ssh-copy-id {endpoint.user}@{endpoint.address}; or give --ask-pass.",
    )


@contextmanager
def _line(endpoint: Endpoint, deadline: Deadline) -> Iterator[socket.socket]:
    if not endpoint.proxy:
        with _direct(endpoint, deadline) as direct:
            yield direct
        return
    ours, theirs = socket.socketpair()
    with ours:
        try:
            with theirs:
                process = subprocess.Popen(
                    endpoint.proxy,
                    stdin=theirs.fileno(),
                    stdout=theirs.fileno(),
                    stderr=subprocess.PIPE,
                    start_new_session=True,
                )
        except OSError as error:
            raise ReachError(
                "jump", f"the way through {endpoint.jump} does not start: {error.strerror}"
            ) from None
        try:
            yield ours
        except ReachError as error:
            raise _through(process, endpoint, error, deadline) from None
        finally:
            process.kill()
            process.wait()
            if process.stderr:
                process.stderr.close()


def _through(
    process: subprocess.Popen[bytes], endpoint: Endpoint, error: ReachError, deadline: Deadline
) -> ReachError:
    """Blame the jump host where it was its fault: then its ssh ended, and said why."""
    if error.state not in ("closed", "silent", "timeout"):
        return error
    try:
        process.wait(timeout=SMALLEST_WAIT_S if deadline.is_past() else min(1.0, deadline.left()))
    except subprocess.TimeoutExpired:
        return error
    said = b""
    if process.stderr:  # what it started may still hold the other end
        os.set_blocking(process.stderr.fileno(), False)
        said = process.stderr.read(MAX_RECEIVED) or b""
    lines = said.decode(errors="replace").strip().splitlines()
    reason = lines[-1] if lines else f"it ended with {process.returncode}"
    remedy = "Log in there once by hand: its host key must be known, and its login need no typing."
    return ReachError("jump", f"no way through {endpoint.jump}: {reason}", remedy)


def _direct(endpoint: Endpoint, deadline: Deadline) -> socket.socket:
    address = endpoint.address
    try:
        return _connected(endpoint, deadline)
    except (socket.gaierror, UnicodeError):
        raise ReachError(
            "dns", f"the name {address} cannot be resolved", "Give the host an ansible_host, or fix DNS."
        ) from None
    except ConnectionRefusedError:
        raise ReachError(
            "refused", f"port {endpoint.port} of {address} refuses connections", "Is sshd running there?"
        ) from None
    except TimeoutError:
        raise ReachError(
            "timeout",
            f"{address} does not answer within {deadline.limit_s:.0f} s",
            "Is it powered on, and the network or a firewall in between open?",
        ) from None
    except OSError as error:
        no_route = error.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH)
        raise ReachError(
            "no-route" if no_route else "network", f"{address} cannot be reached: {error.strerror or error}"
        ) from None


def _connected(endpoint: Endpoint, deadline: Deadline) -> socket.socket:
    """As create_connection, whose limit counts again for each address of a name, and not for the resolver.

    Raises OSError, ReachError.
    """
    places = _resolved(endpoint, deadline)
    for number, (family, kind, protocol, _, place) in enumerate(places, 1):
        limit_s = deadline.left() / (len(places) - number + 1)
        line = socket.socket(family, kind, protocol)
        line.settimeout(limit_s)
        try:
            line.connect(place)
        except OSError:
            line.close()
            if number == len(places):
                raise
        else:
            return line
    raise socket.gaierror(socket.EAI_NONAME, "it has no address")


def _resolved(endpoint: Endpoint, deadline: Deadline) -> list[Any]:
    """The addresses of a name. The C library's resolver ends when it likes: it is left behind then."""
    found: list[Any] = []

    def ask() -> None:
        try:
            found.append(socket.getaddrinfo(endpoint.address, endpoint.port, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError) as error:
            found.append(error)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(deadline.left())
    if not found:
        raise socket.gaierror(socket.EAI_AGAIN, "the resolver does not answer")
    if isinstance(found[0], Exception):
        raise found[0]
    return list(found[0])


def _start(transport: paramiko.Transport, deadline: Deadline) -> None:
    try:
        transport.start_client(timeout=deadline.left())
    except paramiko.ssh_exception.IncompatiblePeer as error:
        state = "no-common-key" if "host key" in str(error) else "incompatible"
        raise ReachError(state, f"it speaks no SSH that is still safe: {error}") from None
    except (paramiko.SSHException, EOFError, OSError) as error:
        if deadline.is_over():
            raise _silent(deadline) from None
        raise ReachError(
            "closed",
            f"it closed the connection during the SSH handshake: {_said(error)}",
            "sshd drops connections when too many log in at once (MaxStartups); or this port is not sshd's.",
        ) from None
    if transport.host_key is None:
        raise _silent(deadline)


def _silent(deadline: Deadline) -> ReachError:
    return ReachError(
        "silent",
        f"it accepts connections, but sshd did not respond within {deadline.limit_s:.0f} s",
        "Is the host overloaded, out of memory, or stuck on DNS?",
    )


def _keys(
    endpoint: Endpoint, agent_keys: Sequence[paramiko.PKey], notes: list[str]
) -> Iterator[tuple[str, paramiko.PKey]]:
    """Keys in the order to try them: one that the inventory names comes before all that the agent holds."""
    agent = () if endpoint.identities_only else agent_keys
    if "-i" in endpoint.arguments:
        yield from _key_files(endpoint, notes)
    for key in agent:
        yield "agent's " + (getattr(key, "comment", "") or key.get_name()), key
    if "-i" not in endpoint.arguments:
        yield from _key_files(endpoint, notes)


def _key_files(endpoint: Endpoint, notes: list[str]) -> Iterator[tuple[str, paramiko.PKey]]:
    for name in endpoint.identity_files:
        path = Path(name)
        try:
            path = path.expanduser()
            if not path.is_file():
                continue
            key = paramiko.PKey.from_path(path)
        except (paramiko.PasswordRequiredException, TypeError):
            notes.append(f"({path.name} needs its passphrase: ssh-add it)")
        except Exception as error:  # noqa: BLE001 - paramiko has none of its own for kinds that it does not know
            notes.append(f"({path.name} cannot be read: {_said(error)})")
        else:
            yield path.name, key


def _said(error: BaseException) -> str:
    return one_line(str(error)) or type(error).__name__
