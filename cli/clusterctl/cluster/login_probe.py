"""What a host says of itself right after the login: OS, kernel, Python, sudo, and how long its shell took."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import paramiko
from pydantic import SecretStr

from clustercheck.parse.plain_text import one_line
from clusterctl.cluster.reach import Deadline, ReachError

START = "@@clusterctl"
END = "@@end"
MOST_BYTES = 64_000
MAX_VALUE = 120
WANTS_PASSWORD, ACCEPTED, REFUSED = "wants password", "password accepted", "password refused"
# Runs below whatever shell the user has: hence one argument in single quotes, with none of them inside.
SCRIPT = f"""
echo {START}
[ -r /etc/os-release ] && . /etc/os-release
echo "os=${{PRETTY_NAME:-unknown}}"
echo "kernel=$(uname -r)"
python3 -c "import platform; print(\\"python=\\" + platform.python_version())" 2>/dev/null
if [ "$(id -u)" -eq 0 ]; then echo sudo=root
elif ! command -v sudo >/dev/null 2>&1; then echo sudo=none
elif said=$(LC_ALL=C sudo -n true 2>&1); then echo sudo=passwordless
elif [ "$GIVEN" = yes ]; then
  if LC_ALL=C sudo -S -p "" true >/dev/null 2>&1; then echo "sudo={ACCEPTED}"
  else echo "sudo={REFUSED}"; fi
else case $said in
  *password*) echo "sudo={WANTS_PASSWORD}" ;;
  *) echo "sudo=not allowed" ;;
esac; fi
echo {END}
"""
COMMAND = f"exec env GIVEN=no /bin/sh -c '{SCRIPT}'"
COMMAND_WITH_PASSWORD = f"exec env GIVEN=yes /bin/sh -c '{SCRIPT}'"


@dataclass(frozen=True)
class Facts:
    """``answered`` is on the monotonic clock; ``shell_s`` is None where it could not be distinguished."""

    os: str
    kernel: str
    python: str
    sudo: str
    answered: float
    shell_s: float | None

    def fields(self) -> dict[str, Any]:
        """The facts by name, without the clock."""
        return {
            "os": self.os,
            "kernel": self.kernel,
            "python": self.python,
            "sudo": self.sudo,
            "shell_s": self.shell_s,
        }


def ask(transport: paramiko.Transport, deadline: Deadline, become: SecretStr | None = None) -> Facts:
    """Run the probe over a connection that is logged in; ``become`` is tried on its sudo.

    Raises ReachError (``no-shell``, ``timeout``).
    """
    begun = time.monotonic()
    heard, answered = b"", 0.0
    try:
        channel = transport.open_session(timeout=deadline.left())
        channel.settimeout(deadline.left())
        channel.exec_command(COMMAND if become is None else COMMAND_WITH_PASSWORD)
        if become is not None:
            channel.sendall(f"{become.get_secret_value()}\n".encode())
        channel.shutdown_write()
        while END.encode() not in heard and len(heard) < MOST_BYTES:
            channel.settimeout(deadline.left())
            chunk = channel.recv(4096)
            if not chunk:
                break
            heard += chunk
            if not answered and START.encode() in heard:
                answered = time.monotonic()
        channel.close()
    except TimeoutError:
        raise _slow(deadline) from None
    except (paramiko.SSHException, EOFError, OSError) as error:
        if deadline.is_over():
            raise _slow(deadline) from None
        raise ReachError("no-shell", f"the login works, and no command runs: {error}") from None
    if END.encode() not in heard and deadline.is_over():
        raise _slow(deadline)
    return read(heard.decode("utf-8", "replace"), answered, shell_s=round(max(answered - begun, 0.0), 3))


def _slow(deadline: Deadline) -> ReachError:
    return ReachError(
        "timeout",
        f"the login works, and its shell does not end within {deadline.limit_s:.0f} s",
        "Look at the user's .bashrc and at sudo there.",
    )


def read(message: str, answered: float, shell_s: float | None) -> Facts:
    """The facts in what the probe printed. Raises ReachError (``no-shell``) where it did not run."""
    _, start, rest = message.partition(START)
    body, end, _ = rest.partition(END)
    if not start or not end:
        first = next((line for line in message.splitlines() if line.strip()), "nothing")
        raise ReachError("no-shell", f"the login works, and no command runs; it says: {one_line(first, 200)}")
    values = dict(line.split("=", 1) for line in body.splitlines() if "=" in line)
    return Facts(
        os=one_line(values.get("os", ""), MAX_VALUE),
        kernel=one_line(values.get("kernel", ""), MAX_VALUE),
        python=one_line(values.get("python", "none"), MAX_VALUE),
        sudo=one_line(values.get("sudo", "unknown"), MAX_VALUE),
        answered=answered,
        shell_s=shell_s,
    )
