"""How clusterctl starts Python and Ansible on this machine: never with code from the caller's directory.

`python -m` and `python -c` put the current directory first on the module path, where another user may have
planted a module; so does an entry of PYTHONPATH.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from clusterctl.content import collections_path

# What unlocks the operator's own vaulted settings; nothing else of ANSIBLE_* is respected.
KEPT_VARIABLES = (
    "ANSIBLE_VAULT_PASSWORD_FILE", "ANSIBLE_VAULT_IDENTITY_LIST", "ANSIBLE_VAULT_IDENTITY",
    "ANSIBLE_VAULT_ENCRYPT_IDENTITY",
)  # fmt: skip
# Those that name files: one, and a list of them with identities.
VAULT_IDENTITIES = "ANSIBLE_VAULT_IDENTITY_LIST"
VAULT_SOURCES = ("ANSIBLE_VAULT_PASSWORD_FILE", VAULT_IDENTITIES)
# Of an identity, what Ansible asks for on the terminal, whatever files there are.
PROMPTS = ("prompt", "prompt_ask_vault_pass")
# No program of ours may be asked for a password on a screen that nobody watches.
DROPPED = frozenset({"SSH_ASKPASS", "SSH_ASKPASS_REQUIRE", "PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP"})


def python_command(*arguments: str) -> list[str]:
    """This Python, with the current directory off its module path."""
    return [sys.executable, "-P", *arguments]


def ignored_variables(environment: Mapping[str, str]) -> list[str]:
    """The operator's ANSIBLE_* variables that are not passed on."""
    return sorted(key for key in environment if key.startswith("ANSIBLE_") and key not in KEPT_VARIABLES)


def python_environment(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Environment for a Python of ours, and for every Python that it starts."""
    given = dict(os.environ if environment is None else environment)
    dropped = DROPPED | set(ignored_variables(given))
    # Ansible would take an empty one for the current directory.
    unset = {name for name in KEPT_VARIABLES if not given.get(name, "").strip()}
    kept = {key: value for key, value in given.items() if key not in dropped | unset}
    for name in VAULT_SOURCES:  # what is started may run in another directory
        if name in kept:
            kept[name] = ",".join(source.text for source in vault_sources(name, kept[name]))
    return {**kept, "PYTHONSAFEPATH": "1"}


def ansible_environment(content: Path, environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Environment for any Ansible program with the settings of the content at ``content``."""
    return {
        **python_environment(environment),
        "LC_ALL": "C.UTF-8",  # Ansible refuses one that is no UTF-8, or not installed
        "ANSIBLE_CONFIG": str(content / "ansible.cfg"),
        "ANSIBLE_COLLECTIONS_PATH": str(collections_path()),
        "ANSIBLE_NOCOLOR": "1",
        # An inventory that is executable would be run, and be another one than the one that was checked.
        "ANSIBLE_INVENTORY_ENABLED": "yaml",
        # Else a file that it cannot read is a warning and an empty inventory.
        "ANSIBLE_INVENTORY_UNPARSED_FAILED": "true",
        "ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FATAL": "true",
    }


@dataclass(frozen=True)
class VaultSource:
    """Where a vault password comes from: a ``file``, of the identity that ``prefix`` names; all is in
    ``prefix`` where it is asked for, or where ``because`` says why no file can be meant."""

    prefix: str
    file: Path | None = None
    because: str = ""

    @property
    def text(self) -> str:
        """It for Ansible."""
        return f"{self.prefix}{self.file or ''}"


def vault_sources(variable: str, value: str, base: Path | None = None) -> Iterator[VaultSource]:
    """What a variable of VAULT_SOURCES names, read as Ansible reads it; files are absolute, there or not.

    Of an identity all after the first @ is the file's name; variables and ~ are replaced in it. Relative ones
    start at ``base``, else at the current directory.
    """
    is_list = variable == VAULT_IDENTITIES
    for part in value.split(",") if is_list else (value,):
        text = part.strip()
        if is_list and len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
            text = text[1:-1]
        identity, at, name = text.partition("@") if is_list and "@" in text else ("", "", text)
        if is_list and name in (*PROMPTS, ""):
            yield VaultSource(text, because="" if name in PROMPTS or not text else "it names no file")
            continue
        try:
            if not is_list:
                name = name.replace("{{CWD}}", str(Path.cwd()))
            path = Path(os.path.normpath((base or Path.cwd()) / Path(os.path.expandvars(name)).expanduser()))
        except (RuntimeError, OSError) as error:  # no such user; no current directory
            yield VaultSource(text, because=str(error))
            continue
        yield VaultSource(f"{identity}{at}", path, unreadable_for_ansible(path))


def unreadable_for_ansible(path: Path) -> str:
    """Why Ansible would take the name of a file for another when it reads it once more; empty if not."""
    return "it holds $, {{ or a comma" if any(one in str(path) for one in ("$", "{{", ",")) else ""
