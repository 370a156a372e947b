# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE)
"""The list of dnf's versionlock plugin: what it holds, and our lines in it. Other lines stay as they are."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from ansible_collections.clusterctl.cluster.plugins.module_utils.gpu_node import read_text
from ansible_collections.clusterctl.cluster.plugins.module_utils.node_files import read_file, replace_file

PLUGIN = "python3-dnf-plugin-versionlock"
CONFIGURATION = "etc/dnf/plugins/versionlock.conf"
LIST = "etc/dnf/plugins/versionlock.list"
KERNEL_KEY = re.compile(r"(kernel(?:-[a-z0-9]+)*?)-(\d[^-]*-[^-]+)\.(?:x86_64|aarch64)")


def lock_list(root: Path) -> Path:
    """The file that the plugin reads."""
    match = re.search(r"^\s*locklist\s*=\s*(\S+)", read_text(root / CONFIGURATION), re.MULTILINE)
    return root / (match.group(1).lstrip("/") if match else LIST)


def read_locks(root: Path) -> list[str]:
    """The plugin's lines without comments and exclusions; each names packages, with a version or not."""
    lines = (line.split("#", 1)[0].strip() for line in read_text(lock_list(root)).splitlines())
    return [line for line in lines if line and not line.startswith("!")]


def locked_name(line: str) -> str:
    """The name in a line such as nvidia-driver-cuda-3:580.95.05-1.el9.*."""
    parts = line.rsplit("-", 2)
    return parts[0] if len(parts) == 3 else line


def is_locked(name: str, evr: str, architecture: str, lines: Iterable[str]) -> bool:
    """Whether a line holds an installed package: at its version, by a glob, or at another version.

    A kernel is held at its own version alone: others are installed next to it.
    """
    full = evr if ":" in evr else f"0:{evr}"
    plain = evr.partition(":")[2] or evr
    forms = [name, f"{name}.{architecture}"]
    forms += [f"{name}-{one}{suffix}" for one in (full, plain) for suffix in ("", f".{architecture}")]
    return any(
        any(fnmatch.fnmatchcase(form, line) for form in forms)
        or (locked_name(line) == name and not name.startswith("kernel"))
        for line in lines
    )


def lock_line(key: str, evr: str = "") -> str:
    """Our line for a package by its key; that of a kernel has its version in it."""
    match = KERNEL_KEY.fullmatch(key)
    name, version = match.groups() if match else (key, evr)
    return f"{name}-{version if ':' in version else f'0:{version}'}.*"


def with_locks(text: str, ours: Iterable[str], wanted: Mapping[str, str]) -> str:
    """The list with `wanted` locked, versions by key, and no other line of `ours`, keys that we hold."""
    wanted_lines = [lock_line(key, evr) for key, evr in sorted(wanted.items())]
    keys = {*ours, *wanted}
    kernels = {key for key in keys if KERNEL_KEY.fullmatch(key)}
    replaced = {lock_line(key) for key in kernels}

    def is_ours(line: str) -> bool:
        return line in replaced or locked_name(line) in keys - kernels

    kept = [line for line in text.splitlines() if not is_ours(line.strip())]
    return "".join(f"{line}\n" for line in [*kept, *wanted_lines])


def write_locks(root: Path, ours: Iterable[str], wanted: Mapping[str, str]) -> None:
    """Brings our lines to `wanted`; see with_locks."""
    path = lock_list(root)
    before = read_file(path)
    after = with_locks(before, ours, wanted)
    if after != before:
        replace_file(path, after)
