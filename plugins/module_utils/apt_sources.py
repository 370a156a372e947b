# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE)
"""Sources that a node has already, in either format of apt's. Two for one archive must not name two keys."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from ansible_collections.clusterctl.cluster.plugins.module_utils.gpu_node import read_text

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
# deb [options] URI suite components
LINE = re.compile(r"deb\s+(?:\[[^\]]*\]\s+)?(\S+)\s+(\S+)")


def archive(uri: str, suite: str, architecture: str = "") -> str:
    """Where an archive's index is; alike for all the ways to write it.

    A suite that ends in a slash is a directory below the URI.
    """
    architecture = architecture or ARCHITECTURES.get(os.uname().machine, os.uname().machine)
    uri, suite = (text.replace("$(ARCH)", architecture) for text in (uri, suite))
    scheme, _, rest = uri.partition("://")
    host, _, path = rest.partition("/")
    directory = suite if suite.endswith("/") else f"dists/{suite}"
    words = [word for word in f"{path}/{directory}".split("/") if word not in ("", ".")]
    return f"{scheme.lower()}://{host.lower()}/{'/'.join(words)}"


def archives(text: str, suffix: str) -> Iterator[str]:
    """The archives that a file of sources names; `suffix` tells its format."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    if suffix == ".list":
        for match in map(LINE.match, (line.split(" #", 1)[0].strip() for line in lines)):
            if match:
                yield archive(match.group(1), match.group(2))
        return
    for stanza in re.split(r"\n\s*\n", "\n".join(lines)):
        fields = dict(re.findall(r"^([A-Za-z-]+):((?:.*)(?:\n[ \t].*)*)", stanza, re.MULTILINE))
        values = {name.lower(): value.split() for name, value in fields.items()}
        if values.get("enabled", ["yes"])[0].lower() in ("no", "false", "0", "off", "without", "disable"):
            continue
        if "deb" in values.get("types", []):
            yield from (
                archive(uri, suite) for uri in values.get("uris", []) for suite in values.get("suites", [])
            )


def find_source(root: Path, url: str, suite: str = "/", but_not: str = "") -> str:
    """The file under /etc/apt that already has this archive as a source, by any key; empty if none has."""
    apt, wanted = root / "etc/apt", archive(url, suite)
    for path in (apt / "sources.list", *sorted((apt / "sources.list.d").glob("*"))):
        if path.name == but_not or path.suffix not in (".list", ".sources") or not path.is_file():
            continue
        if wanted in archives(read_text(path), path.suffix):
            return str(path)
    return ""
