# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE)
"""What apt offers and what it would do: versions and simulated transactions, read as data."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Mapping

from ansible_collections.clusterctl.cluster.plugins.module_utils.masking import mask_urls

# All that Debian allows in a version; apt takes others for patterns.
VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+~:-]*")
# A change of one package: (before, after); before is empty for an install, after for a removal.
Change = tuple[str, str]


def upstream(version: str) -> str:
    """A Debian version without epoch and revision."""
    return re.sub(r"-[^-]*$", "", version.split(":", 1)[-1])


def parse_madison(output: str, source: str = "") -> dict[str, list[str]]:
    """Versions by package from `apt-cache madison`, newest first; `source`: only those from this URL.

    What is no version is left out: the index of a source that is not configured yet is not verified.
    """
    offered: dict[str, list[str]] = {}
    for line in output.splitlines():
        fields = [field.strip() for field in line.split("|")]
        if len(fields) != 3 or fields[2].endswith("Sources") or not VERSION.fullmatch(fields[1]):
            continue
        if fields[2].startswith(source) and fields[1] not in offered.get(fields[0], []):
            offered.setdefault(fields[0], []).append(fields[1])
    return offered


def parse_simulation(output: str) -> dict[str, Change]:
    """What `apt-get --simulate` says that it would do, by package."""
    changes: dict[str, Change] = {}
    for line in output.splitlines():
        if match := re.match(r"Inst (\S+?)(?::\S+)? (?:\[(\S+)\] )?\((\S+) ", line):
            changes[match.group(1)] = (match.group(2) or "", match.group(3))
        elif match := re.match(r"(?:Remv|Purg) (\S+?)(?::\S+)? \[(\S+)\]", line):
            changes[match.group(1)] = (match.group(2), "")
    return changes


def matching(names: Iterable[str], patterns: list[str], but_not: list[str] | None = None) -> list[str]:
    """Names that match one of the globs and none of `but_not`, sorted."""
    known = list(names)
    left_out = {name for pattern in but_not or [] for name in fnmatch.filter(known, pattern)}
    return sorted({name for pattern in patterns for name in fnmatch.filter(known, pattern)} - left_out)


def listing(changes: Mapping[str, Change], side: int) -> str:
    """One side of the changes, for a diff: 0 before, 1 after."""
    return "".join(f"{name} {change[side]}\n" for name, change in sorted(changes.items()) if change[side])


def explain(error: str) -> str:
    """The lines of apt's complaint that say something, shortened to fit a message."""
    lines = [line for line in mask_urls(error).splitlines() if line.strip()]
    answer = [line.strip() for line in lines if line.startswith(("E:", "W:", " "))]
    return "; ".join(answer[:6]) or mask_urls(error).strip()[-400:]
