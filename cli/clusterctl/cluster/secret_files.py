"""Secrets at rest: encrypted by Ansible Vault where a vault password is configured, else plain, mode 0600."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

from clusterctl.cluster.bounded_file import OTHERS_MAY_READ, read_trusted_text
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.content import content_root, shared_module
from clusterctl.errors import ClusterctlError
from clusterctl.interpreter import KEPT_VARIABLES, ansible_environment

# What Ansible is handed for one run, and files that hold no secret.
NOT_AT_REST = ("passwords.", ".")
NAMED_AT_MOST = 3


def is_vault_configured() -> bool:
    """Whether a vault password is configured, as the environment says it; it may still be unreadable."""
    return bool(_vault().configured)


def read_secret_text(path: Path, max_bytes: int, *, private: bool = False) -> str:
    """The text of a file that nobody else could have written, in clear if Ansible Vault encrypted it.

    Raises ClusterctlError (``secrets.vault``, exit 2), OSError and UnusableFileError.
    """
    return decrypt_text(read_trusted_text(path, path.parent, max_bytes, private=private), path)


def decrypt_text(text: str, path: Path) -> str:
    """What a file's text is in clear. Raises ClusterctlError (``secrets.vault``, exit 2)."""
    try:
        return str(_vault().decrypt([text])[0])
    except _vault_error() as error:
        what = f"{path} is encrypted by Ansible Vault and cannot be read: {error}"
        raise _refusal(what, str(path)) from None


def encrypt_at_rest(text: str) -> str:
    """The text as it is to be written: encrypted where a vault password is configured.

    Raises ClusterctlError (``secrets.vault``, exit 2) where that password cannot be read.
    """
    try:
        return str(_vault().encrypt(text))
    except _vault_error() as error:
        raise _refusal(f"a secret cannot be encrypted by Ansible Vault: {error}", "") from None


def lacks_encryption(path: Path) -> bool:
    """Whether a file is plain although a vault password is configured. Raises OSError."""
    return bool(_vault().lacks(path))


@cache
def decrypt_value(encrypted: str) -> str:
    """The text of a ``!vault`` value. Raises ValueError with the reason, a part of a sentence."""
    if not shared_module("vaulted").is_vaulted(encrypted):
        raise ValueError("it is not a value of Ansible Vault")
    return str(_vault().decrypt([encrypted])[0])


def describe(directory: ClusterDirectory) -> str:
    """How this cluster's secrets are kept, in words."""
    plain, encrypted = _files(directory)
    if is_vault_configured():
        words = "encrypted by Ansible Vault"
        if not plain:
            return words
        names = _named([path.name for path in plain])
        return f"{words}, except {names} (clusterctl apply and registry apply encrypt those they made)"
    if encrypted:
        return f"{len(encrypted)} encrypted by Ansible Vault, but no vault password is configured"
    if open_to_others := [path.name for path in plain if path.stat().st_mode & OTHERS_MAY_READ]:
        return f"plain files, and others may read {_named(open_to_others)} (no vault password is configured)"
    return "plain files of mode 0600 (no vault password is configured)"


def _named(names: list[str]) -> str:
    more = f" and {len(names) - NAMED_AT_MOST} more" if len(names) > NAMED_AT_MOST else ""
    return ", ".join(names[:NAMED_AT_MOST]) + more


def _files(directory: ClusterDirectory) -> tuple[list[Path], list[Path]]:
    """Files with secrets: the plain ones, and the encrypted ones."""
    kept = [directory.authority / "ca.key", *sorted(directory.secrets.rglob("*"))]
    found: tuple[list[Path], list[Path]] = ([], [])
    for path in kept:
        if not path.name.startswith(NOT_AT_REST):
            try:
                if path.is_file():
                    found[shared_module("vaulted").is_vaulted_file(path)].append(path)
            except OSError:
                found[0].append(path)  # another user's: nobody here knows that it is encrypted
    return found


def _vault_error() -> type[ValueError]:
    return shared_module("vaulted").VaultError  # type: ignore[no-any-return]


def _vault() -> Any:
    return _vault_of(tuple(os.environ.get(name, "") for name in KEPT_VARIABLES))


@cache
def _vault_of(_configured: tuple[str, ...]) -> Any:
    """One process for all that a command has to encrypt and decrypt."""
    return shared_module("vaulted").Vault(ansible_environment(content_root()))


def _refusal(what: str, where: str) -> ClusterctlError:
    return ClusterctlError(
        what,
        code="secrets.vault",
        where=where,
        hint="Name the vault password's file in ANSIBLE_VAULT_PASSWORD_FILE, "
        "or identities in ANSIBLE_VAULT_IDENTITY_LIST.",
    )
