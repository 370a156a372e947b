"""Where the vault password is, as the cluster directory's own ansible.cfg says it to plain Ansible."""

from __future__ import annotations

import configparser
import os
import shlex
from dataclasses import replace
from pathlib import Path

from clusterctl.cluster.bounded_file import (
    UnusableFileError,
    describe_unusable,
    read_bounded_text,
    require_private,
)
from clusterctl.cluster.trust import check_path
from clusterctl.errors import ClusterctlError
from clusterctl.interpreter import VAULT_SOURCES, VaultSource, unreadable_for_ansible, vault_sources

MAX_BYTES = 1 << 20
# Of the section [defaults]: the variable of the same meaning, which wins where it is set, as in Ansible.
SETTINGS = {
    "vault_password_file": "ANSIBLE_VAULT_PASSWORD_FILE",
    "vault_identity_list": "ANSIBLE_VAULT_IDENTITY_LIST",
    "vault_identity": "ANSIBLE_VAULT_IDENTITY",
    "vault_encrypt_identity": "ANSIBLE_VAULT_ENCRYPT_IDENTITY",
}


def adopt_vault_settings(root: Path) -> None:
    """Put the vault settings of ``root``/ansible.cfg into this process's environment, for all that it starts.

    Other settings of that file are not respected. Raises ClusterctlError (``secrets.ansible-cfg``;
    ``secrets.vault`` where others could have written what the settings name, or could put it there; exit 2).
    """
    _adopt(root)
    for variable in VAULT_SOURCES:
        if value := os.environ.get(variable, "").strip():
            found = [_trusted(source, variable, root) for source in vault_sources(variable, value)]
            os.environ[variable] = ",".join(source.text for source in found)


def _adopt(root: Path) -> None:
    file = root / "ansible.cfg"
    parser = configparser.ConfigParser(interpolation=None, inline_comment_prefixes=(";",))
    try:
        parser.read_string(read_bounded_text(file, MAX_BYTES))
    except FileNotFoundError:
        return
    except OSError as error:
        raise _refusal(file, f"cannot be read: {error.strerror}") from None
    except UnusableFileError as error:
        raise _refusal(file, str(error)) from None
    except configparser.Error as error:
        raise _refusal(file, f"is not an INI file: {str(error).splitlines()[0]}") from None
    for setting, variable in SETTINGS.items():
        value = parser.get("defaults", setting, fallback="").strip()
        if value and not os.environ.get(variable, "").strip():
            try:
                os.environ[variable] = _resolved(variable, value, root)
            except ValueError as error:  # no such user's home, too long, NUL
                raise _refusal(file, f"has a {setting} that cannot be used: {error}") from None


def _resolved(variable: str, value: str, root: Path) -> str:
    """Relative files are relative to ansible.cfg. Raises ValueError."""
    if variable not in VAULT_SOURCES:
        return value
    found = list(vault_sources(variable, value, root))
    if wrong := next((source.because for source in found if source.because), ""):
        raise ValueError(wrong)
    return ",".join(source.text for source in found)


def _trusted(source: VaultSource, variable: str, root: Path) -> VaultSource:
    """The source as it is used from here on: named by no link of a directory, since it was checked so.

    Refuses a program that others could have written, since it would run as us; and a password that they
    could have, or read; and what is not there, which they might make.
    """
    if source.because:
        what = f"{variable} names what cannot be used: {source.because}"
        raise _not_used(what, source.text, "Correct it.")
    if source.file is None:
        return source
    file, hint = source.file, "Make it, or name another."
    try:
        # Whether it is a program, Ansible decides when it reads it: another could be put there until then.
        checked = check_path(file, root, strict=True)
        is_program = bool(checked.resolved.stat().st_mode & 0o111)
        place = checked.resolved if checked.objection else file
        mode = "go-w" if is_program or place.is_dir() else "600"
        hint = f"Nobody else may read or change it: chown it to you, chmod {mode} {shlex.quote(str(place))}, "
        hint += "or use another."
        # It keeps its own name, as Ansible does: programs find files next to them by it.
        because = checked.objection or unreadable_for_ansible(checked.named)
        if not because and not is_program:
            require_private(checked.resolved.stat())
    except (UnusableFileError, OSError) as error:
        because = describe_unusable(error)
    if because:
        raise _not_used(f"the vault password's file is not used: {because}", str(file), hint)
    return replace(source, file=checked.named)


def _not_used(what: str, where: str, hint: str) -> ClusterctlError:
    return ClusterctlError(what, code="secrets.vault", where=where, hint=hint)


def _refusal(file: Path, because: str) -> ClusterctlError:
    return ClusterctlError(
        f"ansible.cfg, which may name the vault password's file, {because}",
        code="secrets.ansible-cfg",
        where=str(file),
        hint="clusterctl reads only vault settings from it; ansible-config view shows what Ansible reads.",
    )
