"""The files on the controller that settings name: a role reads them, so their content decides, too."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from os.path import expanduser, expandvars
from pathlib import Path
from typing import Any

from clusterctl.cluster.bounded_file import UnusableFileError, describe_unusable, open_regular
from clusterctl.cluster.inventory import Host, Inventory
from clusterctl.cluster.templating import UNSAFE_KEY, Variables, is_template
from clusterctl.content import content_root
from clusterctl.errors import ClusterctlError

# Larger ones (an installer with images) count by size and time of change: reading them takes seconds.
MAX_READ_BYTES = 16 << 20
MAX_PATH = 4096
BEGINS_A_PATH = ("/", "~", "$", "{{", "{%")
# A name that no inventory has, to evaluate a part of a setting.
SETTING = "part_of_a_setting_for_clusterctl"
INVENTORY_DIR = re.compile(r"\{\{\s*inventory_dir\s*\}\}")
NAMES_A_FILE = re.compile(r"_(file|path|key|signature|certificate|authority)$")


def digest_named_files(inventory: Inventory) -> list[str]:
    """Returns path and digest of each file here that a setting of any host names.

    The cluster's own certificates and passwords are omitted: an apply makes them, and `inputs` has them.
    """
    named = {path for host in inventory.hosts for _, path in _paths(host) if path is not None}
    made = (inventory.directory.authority, inventory.directory.secrets)
    files = sorted(path for path in named if not any(map(path.is_relative_to, made)) and _is_file(path))
    return [f"{path} {digest_file(path)}" for path in files]


def find_unreadable_name(host: Host) -> str:
    """Returns a setting that names a file by a template which only Ansible can evaluate; else empty."""
    return next((name for name, path in _paths(host) if path is None and NAMES_A_FILE.search(name)), "")


def _paths(host: Host) -> Iterator[tuple[str, Path | None]]:
    """Yields settings that may name a file, with the path; None if only Ansible can evaluate it."""
    own_directory = str(host.context.get("inventory_dir", ""))
    for name, raw in _texts("", host.variables):
        # Evaluating a template takes a millisecond, and a fleet has many hosts: this one is in most paths.
        text = INVENTORY_DIR.sub(lambda _: own_directory, raw)
        if is_template(text):
            # Others name no file, and may be expensive: a loop over all hosts.
            if text.lstrip().startswith(BEGINS_A_PATH) and ("/" in text or NAMES_A_FILE.search(name)):
                yield from _paths_of_template(host, name, text)
        elif "/" in text and len(text) < MAX_PATH and "\n" not in text:
            yield name, _path(text)


def _paths_of_template(host: Host, name: str, text: str) -> Iterator[tuple[str, Path | None]]:
    try:
        value = Variables({**host.variables, SETTING: text}, host.context, host.name).value(SETTING)
    except ClusterctlError:
        yield name, None
        return
    for inner, found in _texts(name, value):
        if "/" in found:
            yield inner, _path(found)


def _texts(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yields every text of a setting, with the innermost name that it goes by."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _texts(name if key == UNSAFE_KEY else str(key), part)
    elif isinstance(value, list):
        for part in value:
            yield from _texts(name, part)
    elif isinstance(value, str):
        yield name, value


def _path(text: str) -> Path:
    """Returns the path as Ansible resolves it: its working directory is that of the playbooks' root."""
    return content_root() / expandvars(expanduser(text))  # noqa: PTH111 - it takes unknown users


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def digest_file(path: Path) -> str:
    """Returns the digest of a file's content; of a large one, that of its size and time of change."""
    try:
        state = path.stat()
        if state.st_size > MAX_READ_BYTES:
            return f"{state.st_size} {state.st_mtime_ns}"
        with open_regular(path) as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except (OSError, UnusableFileError) as error:
        return f"unreadable: {describe_unusable(error)}"
