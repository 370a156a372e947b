"""Files on this machine that settings name and roles read: could another user have written them?

What clusterctl reads itself is compared where it is read. These Ansible opens later, by their paths: so
nobody else may be able to change where a path leads, nor put a file where none is yet.
"""

from __future__ import annotations

import contextlib
import shlex
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from clusterctl.cluster.bounded_file import (
    MAX_CERTIFICATES_BYTES,
    UnusableFileError,
    describe_unusable,
    is_there,
    read_bounded_text,
    require_private,
)
from clusterctl.cluster.groups import REGISTRY
from clusterctl.cluster.inventory import Host, Inventory
from clusterctl.cluster.secret_files import decrypt_text
from clusterctl.cluster.spec import role_defaults
from clusterctl.cluster.state_form import SECRET_DIRECTORIES, require_private_secrets
from clusterctl.cluster.templating import DeclaredVariables, HiddenText
from clusterctl.cluster.trust import find_objection_on_way
from clusterctl.cluster.user_path import user_path
from clusterctl.errors import ClusterctlError

CERTIFICATE, PRIVATE_KEY = "-----BEGIN CERTIFICATE-----", "PRIVATE KEY"


@dataclass(frozen=True)
class ControllerFile:
    """What a setting names. ``on_nodes``: the roles of all hosts use it, not only those of the registry's.

    ``is_authority``: roles write all of it where every user of a host reads it.
    """

    is_private: bool = False
    is_authority: bool = False
    is_directory: bool = False
    on_nodes: bool = False


FILES: Mapping[str, ControllerFile] = {
    "harbor_certificate": ControllerFile(),
    "harbor_certificate_authority": ControllerFile(is_authority=True),
    "harbor_certificate_key": ControllerFile(is_private=True),
    "harbor_controller_dir": ControllerFile(is_directory=True),
    "harbor_installer_key": ControllerFile(),
    "harbor_installer_path": ControllerFile(),
    "harbor_installer_signature": ControllerFile(),
    "registry_client_ca_file": ControllerFile(is_authority=True, on_nodes=True),
    "registry_client_controller_dir": ControllerFile(is_directory=True, on_nodes=True),
    "registry_client_password_file": ControllerFile(is_private=True, on_nodes=True),
    "registry_controller_dir": ControllerFile(is_directory=True),
}

# Roles make names of files in those directories from these.
NAMES = ("harbor_hostname", "registry_hostname")


def require_trusted_files(inventory: Inventory) -> None:
    """Refuse what another user could have written, or could put there before a role reads it, and a path on
    which a node would have a say.

    Raises ClusterctlError (``settings.untrusted-file``, ``settings.value``, ``inventory.template``,
    ``cluster.secret-exposed``, ``registry.secret-file``, ``secrets.vault``; exit 2).
    """
    root = inventory.directory.root
    seen = set()
    for host in inventory.hosts:
        for name, text in _named(host):
            if (name, text) not in seen:
                seen.add((name, text))
                _require(name, _path(name, text, host), root, host)


def _named(host: Host) -> Iterator[tuple[str, str]]:
    """The settings that are not left at their defaults, which name what the cluster directory has."""
    variables = DeclaredVariables({**role_defaults(), **host.variables}, host.context, host.name)
    is_registry = REGISTRY in host.groups
    for name in NAMES:
        if is_registry and name in host.variables:
            variables.value(name)
    for name, file in FILES.items():
        is_used = file.on_nodes or is_registry
        if is_used and _is_set(host, name) and (value := variables.value(name)):
            yield name, value if isinstance(value, str) else str(value)


def _is_set(host: Host, name: str) -> bool:
    default = str(role_defaults().get(name) or "")
    return any(other in host.variables and (other == name or other in default) for other in FILES)


def _path(name: str, text: str, host: Host) -> Path:
    """The path as roles read it. Ansible looks for a relative one among its own files, replaces variables of
    the environment, and takes `..` for the name before it, link or not: none of that is what was checked.
    """
    path = user_path(text)
    is_whole = path.is_absolute() and ".." not in path.parts and "$" not in text and text == text.strip()
    # An encrypted value is the secret itself, mistaken for the name of its file.
    if is_whole and not isinstance(text, HiddenText):
        return path
    raise ClusterctlError(
        f"{name} must be an absolute path without `..` and $, not {text!r}",
        code="settings.value",
        where=f"{host.name}: {name}",
        hint='Of a file in the cluster directory: "{{ inventory_dir }}/NAME".',
    )


def _require(name: str, path: Path, root: Path, host: Host) -> None:
    file = FILES[name]
    for place in chain((path,), _content(path) if file.is_directory else ()):
        try:
            is_named = place == path
            because = _find_objection(path, root, file) if is_named else find_objection_on_way(place, path)
        except (OSError, UnusableFileError) as error:
            because = describe_unusable(error)
        if because:
            mode = "600" if file.is_private else "go-w"
            raise ClusterctlError(
                f"{name} of {host.name} names what is not trusted: "
                f"{'' if place == path else f'{place.relative_to(path)} in it: '}{because}",
                code="settings.untrusted-file",
                where=str(place),
                hint="Nobody else may change it, put another in its place"
                f"{', or read it' if file.is_private else ''}: chown it to you, "
                f"chmod {mode} {shlex.quote(str(place))}, or name another.",
            )
    if file.is_directory:
        require_private_secrets(path)


def _content(directory: Path) -> Iterator[Path]:
    """What roles read and write in a directory of a setting, as in `.clusterctl`; first what it lies in."""
    for inner in (directory / name for name in SECRET_DIRECTORIES):
        # It is not there, or no directory, or may not be read by us either.
        with contextlib.suppress(OSError):
            if is_there(inner):
                yield inner
                yield from sorted(inner.iterdir())


def _find_objection(path: Path, root: Path, file: ControllerFile) -> str:
    """Raises OSError, and UnusableFileError for a file of another kind, or one that others may read."""
    because = find_objection_on_way(path, root if path.is_relative_to(root) else None)
    if because or not path.exists():
        return because
    state = path.stat()
    if file.is_directory and not stat.S_ISDIR(state.st_mode):
        raise UnusableFileError("is not a directory")
    if not file.is_directory and not stat.S_ISREG(state.st_mode):
        raise UnusableFileError("is not a regular file")
    if file.is_private:
        require_private(state)
    if file.is_authority:
        # Ansible decrypts what it sends, too.
        text = decrypt_text(read_bounded_text(path, MAX_CERTIFICATES_BYTES), path)
        if CERTIFICATE not in text or PRIVATE_KEY in text:
            raise UnusableFileError("must contain certificates, and no private key")
    return ""
