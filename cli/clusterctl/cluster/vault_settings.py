"""Where the vault password is, as the cluster directory's own ansible.cfg says it to plain Ansible."""

from __future__ import annotations

import configparser
import os
from pathlib import Path

from clusterctl.cluster.bounded_file import UnusableFileError, read_bounded_text
from clusterctl.errors import ClusterctlError

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

    Other settings of that file are not respected. Raises ClusterctlError (``secrets.ansible-cfg``, exit 2).
    """
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
            os.environ[variable] = ",".join(_resolved(part.strip(), root) for part in value.split(","))


def _resolved(source: str, root: Path) -> str:
    """A path, or ``identity@path``: relative ones are relative to ansible.cfg."""
    identity, at, path = source.rpartition("@")
    inside = root / Path(path).expanduser()
    return f"{identity}{at}{inside}" if path and inside.exists() else source


def _refusal(file: Path, because: str) -> ClusterctlError:
    return ClusterctlError(
        f"ansible.cfg, which may name the vault password's file, {because}",
        code="secrets.ansible-cfg",
        where=str(file),
        hint="clusterctl reads only vault settings from it; ansible-config view shows what Ansible reads.",
    )
