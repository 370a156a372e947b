"""The Transport over OpenSSH: the operator's own ssh, one shared connection a host, keys always checked.

A process of its own for each command keeps ~/.ssh/config, ProxyJump, agents and certificates working as the
operator knows them. Commands run as root: directly, or through sudo.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from pydantic import SecretStr

from clustercheck.launch.bounded import in_turn
from clustercheck.launch.transport import Completed, NodeTimeoutError, NodeUnreachableError
from clustercheck.parse.plain_text import one_line
from clusterctl.cluster import askpass
from clusterctl.cluster.access import Passwords
from clusterctl.cluster.captured import OutputTooLongError, run_captured
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.cluster.endpoint import endpoint, inventory_arguments
from clusterctl.cluster.inventory import Host
from clusterctl.cluster.known_hosts import checking_options
from clusterctl.cluster.login_gates import PARALLEL_DIRECT_LOGINS, PARALLEL_LOGINS_PER_JUMP, LoginGates
from clusterctl.cluster.ssh_failures import LOST, REFUSED_BY_SUDO, reason
from clusterctl.cluster.ssh_options import ALONE, CLOSED, as_words
from clusterctl.cluster.sudo_password import PasswordTrial
from clusterctl.errors import ClusterctlError
from clusterctl.interpreter import python_command
from clusterctl.parallel import parallel_map

CONNECT_S = 10
LOGIN_S = 40.0
PERSIST_S = 60
KILL_AFTER_S = 5.0
LOGIN_ATTEMPTS = 3  # where an sshd drops logins at random (MaxStartups), as a second jump host's may
DROPPED = re.compile(r"kex_exchange_identification: (Connection closed|read: Connection reset)")
LOCAL_MARGIN_S = 15.0
START = "@@clusterctl-start@@"
ASK = (
    "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); "
    "sys.stdout.write(s.makefile().readline())"
)

AS_ROOT = 'if [ "$(id -u)" -eq 0 ]; then exec "$@"; fi; exec sudo -n -- "$@"'
# sudo asks three times, and takes whatever comes next on its input for another attempt: three wrong ones lock
# an account. So it is given the password alone first, and what is ours only once it has taken that.
AS_ROOT_ONCE_TRIED = (
    'if [ "$(id -u)" -eq 0 ]; then exec "$@"; fi; IFS= read -r password; '
    "printf '%s\\n' \"$password\" | sudo -k -S -p '' -- env true >&2 || {{ echo {refused} >&2; exit 1; }}; "
    "exec sudo -S -p '' -- \"$@\""
)
REFUSED = "@@clusterctl-sudo-refused@@"
# Whether or not sudo took the password from our input, what comes before the mark is not the command's.
AFTER_MARK = f'while IFS= read -r line; do [ "$line" = "{START}" ] && exec "$@"; done; exit 125'

TRIAL_S = 10.0
# Of hosts that are asked only to see whether another lies: each that is down costs a login's time.
MAX_WITNESSES_ASKED = 4


class OpenSshTransport:
    """Runs commands as root on the inventory's hosts. Safe from many threads; a context manager.

    sudo's password is tried once a host, and on one host at a time until `PasswordTrial` knows what it is.

    Raises ClusterctlError: ``ssh.missing`` where this machine has no ssh, and as inventory_arguments does.
    """

    def __init__(
        self, directory: ClusterDirectory, hosts: Iterable[Host], passwords: Passwords | None = None
    ) -> None:
        if shutil.which("ssh") is None:
            raise ClusterctlError(
                "OpenSSH's client is not installed on this machine",
                code="ssh.missing",
                hint="Install it: apt-get install openssh-client",
            )
        self._known_hosts = directory.known_hosts
        self._hosts = {host.name: host for host in hosts}
        self._arguments = {name: inventory_arguments(host) for name, host in self._hosts.items()}
        self._passwords = passwords or Passwords()
        # A socket's path may have 107 bytes: a short directory of our own, which nobody else can enter.
        self._temporary = contextlib.ExitStack()
        sockets = tempfile.TemporaryDirectory(prefix="cctl-", dir="/tmp", ignore_cleanup_errors=True)
        self._sockets = Path(self._temporary.enter_context(sockets))
        self._logins = LoginGates()
        self._locks = {name: threading.Lock() for name in self._hosts}
        self._connected: dict[str, float] = {}  # when each was last used
        self._trial = PasswordTrial()
        self._environment = {**os.environ, **self._askpass()}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def run(self, node: str, argv: Sequence[str], *, stdin: str = "", timeout_s: float) -> Completed:
        """Run one command as root on ``node``. ``timeout_s`` ends it there, and ssh here a little later.

        Raises NodeUnreachableError with a plain reason, NodeTimeoutError, or PasswordRefusedError.
        """
        host = self._host(node)
        self._connect(host)
        if self._passwords.become is not None:
            self._trial.require(node, lambda: self._run(host, ["true"], "", TRIAL_S))
        return self._run(host, argv, stdin, timeout_s)

    def is_password_taken(self) -> bool:
        """Whether sudo took the password on any host: some are asked now, if none of those before did."""
        unasked = [name for name in self._hosts if not self._trial.knows(name)]
        for name in unasked[:MAX_WITNESSES_ASKED]:
            if self._trial.was_taken or self._trial.is_wrong:
                break
            with contextlib.suppress(NodeUnreachableError):
                self.run(name, ["true"], timeout_s=TRIAL_S)
        return self._trial.was_taken

    def _run(self, host: Host, argv: Sequence[str], stdin: str, timeout_s: float) -> Completed:
        node, become = host.name, self._passwords.become
        # Once for the trial, and once for sudo proper, which may not ask for it at all.
        password = "" if become is None else f"{become.get_secret_value()}\n"
        given = f"{password}{password}{START}\n{stdin}" if password else stdin
        command = [
            "ssh",
            *self._options(host),
            "--",
            host.address,
            remote_command(argv, timeout_s, become is not None),
        ]
        begun = time.monotonic()
        try:
            # A session of its own: Ctrl-C must not cut the connection over which we then clean up.
            done = run_captured(
                command, stdin=given, timeout_s=timeout_s + LOCAL_MARGIN_S, environment=self._environment
            )
        except subprocess.TimeoutExpired:
            self._disconnect(host)
            raise NodeTimeoutError(node, f"no answer within {timeout_s:.0f} s") from None
        except OutputTooLongError as error:
            self._disconnect(host)
            raise NodeUnreachableError(node, f"its answer cannot be read: {error}") from None
        taken = time.monotonic() - begun
        stderr = self._passwords.hide(done.stderr)
        # ssh ends with 255 where it could not reach the host; a command may end with it, too.
        if done.returncode == 255 and (LOST.search(done.stderr) or not self._is_connected(host)):
            self._disconnect(host)
            raise NodeUnreachableError(node, self.reason(done.stderr, node))
        if done.returncode in (124, 137) and taken >= timeout_s:
            raise NodeTimeoutError(node, f"{argv[0]} did not end within {timeout_s:.0f} s")
        refused = REFUSED_BY_SUDO.search(stderr) if done.returncode == 1 and not done.stdout else None
        if become is not None and done.returncode == 1 and REFUSED in done.stderr.splitlines():
            because = (
                f"sudo refuses us: {one_line(refused[1]) if refused else 'it did not take the password'}"
            )
            raise self._trial.refuse(node, because)
        if refused:
            raise NodeUnreachableError(node, f"sudo refuses us: {one_line(refused[1])}")
        if become is not None:
            self._trial.take(node)
        if node in self._connected:
            self._connected[node] = time.monotonic()
        return Completed(done.returncode, done.stdout, stderr, taken)

    def forwarding(self, node: str, name: str, port: int) -> subprocess.Popen[bytes]:
        """Forwards the Unix socket ``name`` on this machine to a port of the node itself.

        It has a connection of its own, and ends when that is lost.
        """
        host = self._host(node)
        socket_path = self.socket_path(name)
        socket_path.unlink(missing_ok=True)
        own = {"ExitOnForwardFailure": "yes", "ControlPath": "none", "StreamLocalBindMask": "0177"}
        words = as_words(f"{key}={value}" for key, value in own.items())
        lead = f"{socket_path}:127.0.0.1:{port}"
        return subprocess.Popen(
            ["ssh", *words, *self._options(host, closed=CLOSED), "-N", "-L", lead, "--", host.address],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=self._environment,
            start_new_session=True,
        )

    def reason(self, stderr: str, node: str) -> str:
        """Why ssh failed, in plain words, without the passwords."""
        return reason(self._passwords.hide(stderr), node)

    def socket_path(self, name: str) -> Path:
        """A socket of that name, in a directory that nobody else can enter."""
        return self._sockets / name

    def close(self) -> None:
        """End every shared connection and remove its socket."""
        connected = [self._hosts[name] for name in sorted(self._connected)]
        parallel_map(self._disconnect, connected, limit=PARALLEL_LOGINS_PER_JUMP)
        self._temporary.close()

    def _host(self, node: str) -> Host:
        if node not in self._hosts:
            raise NodeUnreachableError(node, "it is not in the inventory")
        return self._hosts[node]

    def _connect(self, host: Host) -> None:
        """Log in once a host; later commands share the connection."""
        with self._locks[host.name]:
            used_at = self._connected.get(host.name)
            # One that is idle for PERSIST_S ends: each command would then log in by itself, at no gate.
            if used_at is not None and (
                time.monotonic() - used_at < PERSIST_S / 2 or self._control(host, "check") in (0, None)
            ):
                return
            self._connected.pop(host.name, None)
            with self._turn_to_log_in(host):
                for attempt in range(LOGIN_ATTEMPTS):
                    with self._logins.under_way(again=attempt > 0):
                        said = self._log_in(host)
                    if said is None or not DROPPED.search(said):
                        break
            if said is not None:
                raise NodeUnreachableError(host.name, self.reason(said, host.name))
            self._connected[host.name] = time.monotonic()

    def _log_in(self, host: Host) -> str | None:
        """Start the shared connection; what ssh said if it could not. NodeUnreachableError if it hangs."""
        # A background master keeps its standard error open: a file, or we would wait for it for ever.
        with tempfile.TemporaryFile("w+") as output:
            command = ["ssh", *self._options(host, master=True), "-f", "-N", "--", host.address]
            try:
                code = subprocess.run(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=output,
                    timeout=LOGIN_S,
                    env=self._environment,
                    start_new_session=True,
                    check=False,
                ).returncode
            except subprocess.TimeoutExpired:
                raise NodeUnreachableError(host.name, f"no login within {LOGIN_S:.0f} s") from None
            output.seek(0)
            return output.read() if code != 0 else None

    def _turn_to_log_in(self, host: Host) -> contextlib.AbstractContextManager[None]:
        if len(self._hosts) <= PARALLEL_LOGINS_PER_JUMP:
            return contextlib.nullcontext()
        way = None
        with contextlib.suppress(ClusterctlError):  # ssh itself says what is wrong
            way = endpoint(host, CONNECT_S)
        return in_turn(self._logins.gate(way))

    def _disconnect(self, host: Host) -> None:
        self._connected.pop(host.name, None)
        self._control(host, "exit")

    def _is_connected(self, host: Host) -> bool:
        """Whether the shared connection still stands."""
        return self._control(host, "check") == 0

    def _control(self, host: Host, order: str) -> int | None:
        """What the shared connection's own process answered; None where it did not."""
        try:
            return subprocess.run(
                ["ssh", "-o", f"ControlPath={self._socket(host)}", "-O", order, "--", host.address],
                capture_output=True,
                timeout=10,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            return None

    def _socket(self, host: Host) -> Path:
        return self._sockets / hashlib.sha256(host.name.encode()).hexdigest()[:12]

    def _options(self, host: Host, *, master: bool = False, closed: Sequence[str] = ALONE) -> list[str]:
        """Ours come first: ssh takes the first value it is given, so nothing behind can undo them."""
        options = {
            "BatchMode": "no" if self._passwords.ssh else "yes",
            "ControlMaster": "yes" if master else "no",
            "ControlPath": str(self._socket(host)),
            "ControlPersist": str(PERSIST_S),
            "ConnectTimeout": str(CONNECT_S),
            "ServerAliveInterval": "5",
            "ServerAliveCountMax": "3",
            "LogLevel": "ERROR",
        }
        if self._passwords.ssh:
            options["NumberOfPasswordPrompts"] = "1"
        own = (f"{key}={value}" for key, value in options.items())
        words = as_words([*checking_options(self._known_hosts), *closed, *own])
        return [*words, *self._arguments[host.name]]

    def _askpass(self) -> Mapping[str, str]:
        """The SSH password reaches ssh through a program and a socket of ours alone, never by argv."""
        if self._passwords.ssh is None:
            return {}
        socket_path = self._sockets / "password"
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(socket_path))
        listener.listen(PARALLEL_DIRECT_LOGINS)
        threading.Thread(target=_serve, args=(listener, self._passwords.ssh), daemon=True).start()
        answer = shlex.join(python_command("-IS", "-c", ASK, str(socket_path)))
        program = self._temporary.enter_context(askpass.program(answer))
        forced = {"SSH_ASKPASS": str(program), "SSH_ASKPASS_REQUIRE": "force", "DISPLAY": ":0"}
        return {**forced, askpass.PARENT: str(os.getpid())}


def _serve(listener: socket.socket, password: SecretStr) -> None:
    """Give the password to each who asks: it never lies on the disk, and goes with this process."""
    while True:
        asking, _ = listener.accept()
        with asking, contextlib.suppress(OSError):
            asking.sendall(password.get_secret_value().encode() + b"\n")


def remote_command(argv: Sequence[str], timeout_s: float, with_password: bool) -> str:
    """The line for the remote shell: as root, in the C locale, ended there when its time is over."""
    words = list(argv)
    if with_password:
        words = ["sh", "-c", AFTER_MARK, "sh", *words]
    words = ["env", "LC_ALL=C", "timeout", "-k", f"{KILL_AFTER_S:g}", f"{timeout_s:g}", *words]
    as_root = AS_ROOT_ONCE_TRIED.format(refused=REFUSED) if with_password else AS_ROOT
    return shlex.join(["sh", "-c", as_root, "sh", *words])
