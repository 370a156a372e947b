# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE)
"""How much a pull has to move, over what link, and how it went: what a run says of it against the limit."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from ansible_collections.clusterctl.cluster.plugins.module_utils.bounded import run_bounded
from ansible_collections.clusterctl.cluster.plugins.module_utils.image_digest import DIGEST
from ansible_collections.clusterctl.cluster.plugins.module_utils.manifest_fetch import fetcher
from ansible_collections.clusterctl.cluster.plugins.module_utils.masking import forms_in_auth_file, mask_forms

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
ASK_S = 10
LARGEST = 1 << 50
LINE = re.compile(r"([0-9a-f]{12}): (Download complete|Pull complete)")


def layers_of(fetch: Callable[[str], bytes], digest: str, machine: str) -> dict[str, int]:
    """Compressed size of each layer by digest, of an image or of a list's image for this machine.

    Raises ValueError if there is no such manifest or layer, KeyError or TypeError where it is not one.
    """
    manifest = json.loads(fetch(digest))
    if "manifests" in manifest:
        wanted = ARCHITECTURES.get(machine, machine)
        fitting = [
            one["digest"]
            for one in manifest["manifests"]
            if (one.get("platform") or {}).get("architecture") == wanted
            and (one.get("platform") or {}).get("os", "linux") == "linux"
        ]
        if not fitting:
            raise ValueError(f"the list has no image for {wanted}")
        manifest = json.loads(fetch(fitting[0]))
    layers = {str(layer["digest"]): int(layer["size"]) for layer in manifest["layers"]}
    # Paths of this host are made of them.
    if not all(DIGEST.fullmatch(digest) and 0 <= size <= LARGEST for digest, size in layers.items()):
        raise ValueError("a layer's digest or size is not valid")
    return layers


def look(
    repository: str, digest: str, client_config: str, certificates: Path, machine: str
) -> dict[str, Any]:
    """What is to be pulled and over which link, as far as it can be known; its failure stops nothing."""
    found: dict[str, Any] = {"digest": digest}
    try:
        layers = layers_of(fetcher(repository, client_config, certificates), digest, machine)
    except Exception as error:  # noqa: BLE001 - a registry may answer anything, and the pull says what counts
        # Its reason is the registry's own word.
        secrets = forms_in_auth_file(f"{client_config}/config.json")
        found["unknown"] = mask_forms(f"{type(error).__name__}: {error}", secrets)[:200]
    else:
        found.update(bytes=sum(layers.values()), layers=layers)
    device, mbps = link(repository.partition("/")[0])
    return {**found, "device": device, "link_mbps": mbps}


def link(address: str) -> tuple[str, int]:
    """The interface towards a registry (host:port), and its speed in Mbit/s; 0 where it does not say."""
    host = address.rpartition(":")[0] or address
    try:
        goal = str(socket.getaddrinfo(host.strip("[]"), None, proto=socket.IPPROTO_TCP)[0][4][0])
    except OSError:
        return "", 0
    found = re.search(r"\bdev (\S+)", run_bounded(["ip", "route", "get", goal], ASK_S)[1])
    if not found:
        return "", 0
    try:
        speed = int(Path(f"/sys/class/net/{found[1]}/speed").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        speed = 0
    return found[1], max(speed, 0)


class PullProgress:
    """The progress of a pull, from the lines that Docker prints while it continues."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self.came: set[str] = set()
        self.download_s = 0.0
        self.seconds = 0.0

    def follow(self, lines: Iterable[str]) -> list[str]:
        """Read to the end; the last lines."""
        kept: list[str] = []
        for line in lines:
            kept = [*kept[-19:], line.rstrip()]
            self.hear(line)
        self.seconds = self._clock() - self._began
        return kept

    def hear(self, line: str) -> None:
        """One line: which layers came, and when the last one had. An image that is here has none."""
        found = LINE.match(line)
        if not found:
            return
        self.came.add(found[1])
        if found[2] == "Download complete":
            self.download_s = self._clock() - self._began

    def summary(self, before: dict[str, Any]) -> dict[str, Any]:
        """What was known before the pull, and how it went; layers that were here did not move."""
        layers = before.get("layers") or {}
        moved = {d: size for d, size in layers.items() if d.removeprefix("sha256:")[:12] in self.came}
        known = {"bytes": sum(moved.values()), "layers": moved} if layers else {}
        progress = {"seconds": round(self.seconds, 3), "download_s": round(self.download_s, 3)}
        return {**before, **known, **progress}
