# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE)
"""Secrets in files of the controller, encrypted by Ansible Vault where its password is configured.

Ansible's own Vault does it, in a process of its own: this same file, run as ``python -P -c``. Its standard
input has one JSON object a line, {"encrypt": [TEXT, ...]} or {"decrypt": [TEXT, ...]}; each is answered by a
line {"texts": [TEXT, ...]} or {"error": WHY}. No secret is in an argument, in the environment or in an error.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

HEADER = "$ANSIBLE_VAULT;"
# Where Ansible takes the password from; a module inherits them from the Ansible that started it.
CONFIGURED_BY = ("ANSIBLE_VAULT_PASSWORD_FILE", "ANSIBLE_VAULT_IDENTITY_LIST")
UNCONFIGURED = "no vault password is configured: name its file in ANSIBLE_VAULT_PASSWORD_FILE"
LIMIT_S = 120.0
PIPE_BYTES = 1 << 16
Answering = Callable[[dict[str, list[str]]], list[str]]


class VaultError(ValueError):
    """Why Ansible Vault does not encrypt or decrypt: the second part of a sentence."""


def is_vaulted(text: str) -> bool:
    """Whether a text is one that Ansible Vault encrypted."""
    return text.startswith(HEADER)


def is_vaulted_file(path: Path) -> bool:
    """Whether a file is one that Ansible Vault encrypted. Raises OSError."""
    with path.open("rb") as stream:
        return stream.read(len(HEADER)) == HEADER.encode()


def is_configured(environment: Mapping[str, str]) -> bool:
    """Whether the environment says where a vault password is; whether it can be read is not asked."""
    return any(environment.get(name, "").strip() for name in CONFIGURED_BY)


class Vault:
    """Ansible Vault with the passwords of an environment. Its process starts at the first text, if any.

    Safe from many threads. Raises VaultError where a text cannot be encrypted or decrypted.
    """

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._environment = dict(os.environ if environment is None else environment)
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self.configured = is_configured(self._environment)

    def decrypt(self, texts: Sequence[str]) -> list[str]:
        """The texts, with those that Ansible Vault encrypted in clear; others stay as they are."""
        hidden = [text for text in texts if is_vaulted(text)]
        clear = iter(self._asked("decrypt", hidden) if hidden else ())
        return [next(clear) if is_vaulted(text) else text for text in texts]

    def encrypt(self, text: str) -> str:
        """The text as Ansible Vault encrypts it; as it is, where no password is configured."""
        return self._asked("encrypt", [text])[0] if self.configured else text

    def read(self, path: Path) -> str:
        """A file's text in clear. Raises OSError, UnicodeDecodeError, and VaultError with its name."""
        text = path.read_text(encoding="utf-8")
        try:
            return self.decrypt([text])[0]
        except VaultError as error:
            raise VaultError(f"{path} is encrypted by Ansible Vault and cannot be read: {error}") from None

    def lacks(self, path: Path) -> bool:
        """Whether a file lies in clear, although it would be encrypted if it were written now.

        A link is left alone: what it leads to is somebody else's.
        """
        return self.configured and path.is_file() and not path.is_symlink() and not is_vaulted_file(path)

    def close(self) -> None:
        """End its process."""
        with self._lock:
            process, self._process = self._process, None
            if process is not None:
                atexit.unregister(self.close)
                process.kill()
                process.communicate()

    def _asked(self, what: str, texts: Sequence[str]) -> list[str]:
        with self._lock:
            process = self._started()
            answer = _exchange(process, {what: list(texts)})
        found = answer.get("texts")
        if isinstance(found, list) and len(found) == len(texts):
            # Here it read a password, wherever that is configured: what is written now is encrypted, too.
            self.configured = True
            return [str(text) for text in found]
        raise VaultError(str(answer.get("error", "Ansible Vault did not answer")))

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None or self._process.poll() is not None:
            source = globals()["__loader__"].get_source(__name__)
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", source], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL, text=True, encoding="utf-8",
                env={**self._environment, "LC_ALL": "C.UTF-8"},
            )  # fmt: skip
            atexit.register(self.close)
        return self._process


def _exchange(process: Any, request: dict[str, Any]) -> dict[str, Any]:
    """One line there, one line back, both within the limit: a long line is taken only as it is read."""
    deadline = time.monotonic() + LIMIT_S
    try:
        _send(process.stdin, f"{json.dumps(request)}\n".encode(), deadline)
        line = process.stdout.readline() if _is_ready(process.stdout, select.POLLIN, deadline) else ""
        answer = json.loads(line) if line else {}
    except (OSError, ValueError):
        answer = {}
    if not answer:
        process.kill()  # what it says later would be the answer to another question
        process.wait()
    return answer if isinstance(answer, dict) else {}


def _send(stream: Any, line: bytes, deadline: float) -> None:
    """Raises OSError, also where not all of it is taken in time."""
    descriptor, left = stream.fileno(), memoryview(line)
    os.set_blocking(descriptor, False)
    while left:
        if not _is_ready(stream, select.POLLOUT, deadline):
            raise TimeoutError
        left = left[os.write(descriptor, left[:PIPE_BYTES]) :]


def _is_ready(stream: Any, event: int, deadline: float) -> bool:
    waiting = select.poll()
    waiting.register(stream, event)
    return bool(waiting.poll(max(0.0, deadline - time.monotonic()) * 1000))


def serve() -> None:
    """Answer until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for those who ask: they may still have to write
    with os.fdopen(os.dup(0), encoding="utf-8") as asked, os.fdopen(os.dup(1), "w", encoding="utf-8") as told:
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)  # a program that gives the password reads no request
        os.dup2(2, 1)
        answered = _opened()
        for line in asked:
            try:
                answer: dict[str, Any] = {"texts": answered(json.loads(line))}
            except Exception as error:  # noqa: BLE001 - it is the answer
                answer = {"error": _first_line(error)}
            told.write(json.dumps(answer) + "\n")
            told.flush()


def _opened() -> Answering:
    """Ansible's Vault with all configured passwords, which Ansible reads once a process."""
    try:
        from ansible import constants  # noqa: PLC0415 - in this process only
        from ansible.cli import CLI  # noqa: PLC0415
        from ansible.parsing.dataloader import DataLoader  # noqa: PLC0415
        from ansible.parsing.vault import VaultLib, match_encrypt_secret  # noqa: PLC0415

        identities = list(constants.DEFAULT_VAULT_IDENTITY_LIST)
        found = CLI.setup_vault_secrets(DataLoader(), vault_ids=identities, auto_prompt=False)
        if not found:
            return partial(_refused, UNCONFIGURED)
        by = match_encrypt_secret(found, encrypt_vault_id=constants.DEFAULT_VAULT_ENCRYPT_IDENTITY)
    except Exception as error:  # noqa: BLE001 - it is the answer to all that is asked
        return partial(_refused, _first_line(error))
    return partial(_answered, VaultLib(found), *by)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")


def _refused(because: str, _request: dict[str, list[str]]) -> list[str]:
    raise VaultError(because)


def _answered(vault: Any, identity: str, secret: Any, request: dict[str, list[str]]) -> list[str]:
    if "decrypt" in request:
        return [vault.decrypt(text).decode() for text in request["decrypt"]]
    hidden = [vault.encrypt(text, secret=secret, vault_id=identity).decode() for text in request["encrypt"]]
    if [vault.decrypt(text).decode() for text in hidden] != request["encrypt"]:
        raise VaultError("what it encrypts it cannot decrypt")
    return hidden


if __name__ == "__main__":
    serve()
