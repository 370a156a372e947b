"""Secrets that are made, read from files, or asked of the site's own keeper."""

from __future__ import annotations

import secrets
import string
import subprocess
from collections.abc import Sequence
from pathlib import Path

from pydantic import SecretStr

from clusterctl.cluster.bounded_file import UnusableFileError, describe_unusable
from clusterctl.cluster.secret_files import read_secret_text
from clusterctl.errors import ClusterctlError

LENGTH = 40
COMMAND_LIMIT_S = 60
MAX_FILE_BYTES = 64 << 10


def new_secret() -> SecretStr:
    """A secret as Harbor needs a robot's: 8 to 128 characters with upper, lower and digit."""
    alphabet = string.ascii_letters + string.digits
    while True:
        text = "".join(secrets.choice(alphabet) for _ in range(LENGTH))
        if (
            any(c.isupper() for c in text)
            and any(c.islower() for c in text)
            and any(c.isdigit() for c in text)
        ):
            return SecretStr(text)


def read_secret_file(path: Path, what: str) -> SecretStr:
    """The first line of a file that its owner alone may read.

    Raises ClusterctlError (``registry.secret-file``, ``secrets.vault``; exit 2).
    """
    try:
        text = read_secret_text(path, MAX_FILE_BYTES, private=True)
    except (OSError, UnusableFileError) as error:
        raise _bad_file(f"{what} cannot be read: {describe_unusable(error)}", path) from error
    line = text.partition("\n")[0].rstrip("\r")
    if not line:
        raise _bad_file(f"{what} is empty", path)
    return SecretStr(line)


def secret_of_command(command: Sequence[str], what: str) -> SecretStr:
    """The first line that a program prints. Raises ClusterctlError (``registry.secret-command``, exit 2)."""
    lines = _run(command, what, "").splitlines()
    if not lines or not lines[0]:
        raise _bad_command(command, f"{what}: the secret command printed nothing")
    return SecretStr(lines[0])


def hand_to_command(command: Sequence[str], name: str, secret: SecretStr) -> None:
    """Give a robot's secret to the site's own keeper: the name in its arguments, the secret on its input.

    Raises ClusterctlError (``registry.secret-command``, exit 2).
    """
    _run(
        [word.replace("{name}", name) for word in command], f"robot {name}", secret.get_secret_value() + "\n"
    )


def _run(command: Sequence[str], what: str, given: str) -> str:
    try:
        done = subprocess.run(
            list(command), input=given, capture_output=True, text=True, timeout=COMMAND_LIMIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError) as error:
        words = error.strerror if isinstance(error, OSError) else f"{type(error).__name__}"
        raise _bad_command(command, f"{what}: the secret command does not run: {words}") from error
    if done.returncode:
        # Its words may hold the secret; only the program's own name and status are said.
        raise _bad_command(command, f"{what}: the secret command failed with status {done.returncode}")
    return done.stdout


def _bad_file(what: str, path: Path) -> ClusterctlError:
    return ClusterctlError(
        what, code="registry.secret-file", where=str(path), hint="Make it one line in a file of mode 0600."
    )


def _bad_command(command: Sequence[str], what: str) -> ClusterctlError:
    return ClusterctlError(
        what, code="registry.secret-command", where=command[0], hint="Run it by hand to see what it says."
    )
