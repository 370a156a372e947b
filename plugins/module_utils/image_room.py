# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE)
"""Where Docker keeps images, which layers it has there already, and whether the rest of an image fits."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible_collections.clusterctl.cluster.plugins.module_utils.bounded import run_bounded
from ansible_collections.clusterctl.cluster.plugins.module_utils.image_digest import DIGEST
from ansible_collections.clusterctl.cluster.plugins.module_utils.node_files import free_bytes

LOOK_S = 60
LONGEST_DIGEST = 80
CONTAINERD_ROOT = "/var/lib/containerd"
# A containerd that dockerd starts itself, and where that one keeps what it has.
DOCKERS_OWN = re.compile(r"^(/var)?/run/docker/")
OWN_ROOT = "containerd/daemon"
CONTENT = "io.containerd.content.v1.content/blobs/sha256"


def by_containerd(info: Mapping[str, Any]) -> bool:
    """Whether this Docker (`docker info`) has containerd keep its images."""
    storage = dict(row for row in info.get("DriverStatus") or [] if len(row) == 2)
    return "containerd" in storage.get("driver-type", "")


def store(info: Mapping[str, Any]) -> Path:
    """The directory that images fill: Docker's own, or containerd's, which `data-root` does not move."""
    root = Path(info.get("DockerRootDir") or "/var/lib/docker")
    if not by_containerd(info):
        return root
    if DOCKERS_OWN.match((info.get("Containerd") or {}).get("Address", "")):
        return root / OWN_ROOT
    rc, dumped, _ = run_bounded(["containerd", "config", "dump"], LOOK_S)
    found = re.search(r"""^root\s*=\s*["']([^"']+)["']""", dumped, re.MULTILINE) if rc == 0 else None
    return Path(found[1] if found else CONTAINERD_ROOT)


def missing(layers: Mapping[str, int], info: Mapping[str, Any]) -> dict[str, int]:
    """Those of an image's layers that are not here yet; in doubt it is not."""
    place = store(info)
    if by_containerd(info):
        return {one: size for one, size in layers.items() if not (place / CONTENT / _hex(one)).is_file()}
    kept = place / "image" / str(info.get("Driver") or "overlay2")
    there: set[str] = set()
    chain = ""
    for digest in layers:
        unpacked = _text(kept / "distribution/diffid-by-digest/sha256" / _hex(digest))
        # As Docker names a layer on top of those below it; what a removed image has left is not a layer.
        chain = f"sha256:{hashlib.sha256(f'{chain} {unpacked}'.encode()).hexdigest()}" if chain else unpacked
        if not unpacked or not (kept / "layerdb/sha256" / _hex(chain)).is_dir():
            break
        there.add(digest)
    return {one: size for one, size in layers.items() if one not in there}


def too_little(
    layers: Mapping[str, int], info: Mapping[str, Any], *, factor: float, to_remain_gb: float
) -> str:
    """Why a pull of ``layers`` (compressed sizes) is not to start; "" where it may.

    ``factor``: what a layer takes at the most while it is pulled, packed and unpacked, over its compressed
    size. ``to_remain_gb`` is to be free when the pull is done.
    """
    place, coming = store(info), sum(missing(layers, info).values()) / 1e9
    free, wanted = free_bytes(place) / 1e9, coming * factor
    if free >= wanted + to_remain_gb:
        return ""
    wants = [f"the image needs {wanted:.1f} GB ({coming:.1f} GB of layers, and unpacked)"] if wanted else []
    rest = [f"and {to_remain_gb:.1f} GB must stay free (training_image_min_free_gb)"] if to_remain_gb else []
    return ", ".join([f"{place} has {free:.1f} GB free", *wants, *rest])


def _hex(digest: str) -> str:
    return digest.partition(":")[2]


def _text(path: Path) -> str:
    """A digest as Docker keeps it; empty where there is none."""
    try:
        with path.open(encoding="ascii") as stream:
            found = stream.read(LONGEST_DIGEST).strip()
    except (OSError, ValueError):
        return ""
    return found if DIGEST.fullmatch(found) else ""


def engine_info(docker: str) -> dict[str, Any]:
    """`docker info`; {} where it does not say."""
    rc, out, _ = run_bounded([docker, "info", "--format", "{{json .}}"], LOOK_S)
    return json.loads(out) if rc == 0 and out.startswith("{") else {}
