"""Passwords that SSH and sudo want: held in memory, never on a disk, in argv or in the environment."""

from __future__ import annotations

import getpass
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click
from pydantic import SecretStr

from clusterctl.cluster.user_path import user_path
from clusterctl.content import shared_module
from clusterctl.errors import ClusterctlError

LONGEST_BYTES = 4096


@dataclass(frozen=True)
class Passwords:
    """What the operator gave for this call; None where SSH keys and passwordless sudo serve."""

    ssh: SecretStr | None = None
    become: SecretStr | None = None

    def __bool__(self) -> bool:
        return self.ssh is not None or self.become is not None

    def hide(self, text: str) -> str:
        """The text without them in any form, and without control characters: the host that is given one may
        say it again, with something in it that is removed before it is shown."""
        masking = shared_module("masking")
        given = [one.get_secret_value() for one in (self.ssh, self.become) if one is not None]
        forms = {form for password in given for form in masking.secret_forms(password)}
        return str(masking.mask_forms(text, forms, "(masked)"))


def ansible_variables(passwords: Passwords) -> bytes:
    """A JSON document of variables for Ansible; empty without passwords.

    Its values are marked so that Ansible never evaluates a template in a password.
    """
    values = {
        name: {"__ansible_unsafe": password.get_secret_value()}
        for name, password in (
            ("ansible_password", passwords.ssh),
            ("ansible_become_password", passwords.become),
        )
        if password is not None
    }
    return json.dumps(values).encode() if values else b""


def read_password(source: str) -> SecretStr:
    """The first line of a file, or of an inherited descriptor where ``source`` is a number; ``-`` is stdin.

    Raises ClusterctlError (``access.password-file``).
    """
    try:
        if source == "-":
            text = sys.stdin.readline(LONGEST_BYTES)
        elif source.isascii() and source.isdigit():
            with os.fdopen(os.dup(int(source)), encoding="utf-8") as stream:
                text = stream.readline(LONGEST_BYTES)
        else:
            with user_path(source).open(encoding="utf-8") as stream:
                text = stream.readline(LONGEST_BYTES)
    except (OSError, ValueError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ClusterctlError(
            f"the password cannot be read: {reason}",
            code="access.password-file",
            where=source,
            hint="Name a file with the password in its first line, the number of an open descriptor, or -.",
        ) from error
    text = text.rstrip("\r\n")
    if not text:
        raise ClusterctlError(
            "there is no password in it",
            code="access.password-file",
            where=source,
            hint="The first line is the password.",
        )
    return SecretStr(text)


def ask_password(prompt: str, option: str) -> SecretStr:
    """Ask the person, without echo. Raises ClusterctlError (``access.no-terminal``) if there is none."""
    if not sys.stdin.isatty():
        raise ClusterctlError(
            f"{option} needs a terminal to ask on",
            code="access.no-terminal",
            hint=f"In scripts, use {option.removeprefix('--ask-').join(('--', '-file'))} FILE instead.",
        )
    return SecretStr(getpass.getpass(f"{prompt}: ", stream=sys.stderr))


def password_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a click command the four password options, and hand it ``passwords: Passwords``."""

    def call(
        *arguments: Any,
        ask_pass: bool,
        pass_file: str | None,
        ask_become_pass: bool,
        become_pass_file: str | None,
        **options: Any,
    ) -> Any:
        ssh = _one("SSH password", "--ask-pass", ask_pass, pass_file)
        become = _one("sudo password", "--ask-become-pass", ask_become_pass, become_pass_file)
        return command(*arguments, passwords=Passwords(ssh, become), **options)

    call.__name__, call.__doc__ = command.__name__, command.__doc__
    # Options that click's decorators left on the inner function belong to the outer one.
    if hasattr(command, "__click_params__"):
        call.__click_params__ = command.__click_params__  # type: ignore[attr-defined]
    for option in (
        click.option(
            "--become-pass-file", metavar="FILE", help="Read sudo's password from FILE, descriptor N, or -."
        ),
        click.option("--ask-become-pass", is_flag=True, help="Ask for sudo's password."),
        click.option(
            "--pass-file", metavar="FILE", help="Read the SSH password from FILE, descriptor N, or -."
        ),
        click.option("--ask-pass", is_flag=True, help="Ask for the SSH password."),
    ):
        call = option(call)
    return call


def _one(prompt: str, option: str, ask: bool, source: str | None) -> SecretStr | None:
    if source is not None:
        return read_password(source)
    return ask_password(prompt, option) if ask else None
