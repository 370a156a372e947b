"""Where the machine is described, and where the node's kernel keeps its state.

Everything under KERNEL is gone after a reboot, as a kernel's state is.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, cast

ROOT = Path(os.environ.get("CLUSTERLAB_ROOT", "/"))
HARDWARE = ROOT / "opt/clusterlab/node/hardware.json"
KERNEL = ROOT / "run/clusterlab/kernel"
MODULES = KERNEL / "modules"


def hardware() -> dict[str, Any]:
    """The node's hardware.json; a machine without devices when the lab gave it none."""
    if not HARDWARE.exists():
        return {"gpus": [], "nvswitches": [], "hcas": [], "gpu_model": None, "preloaded_modules": []}
    return cast(dict[str, Any], json.loads(HARDWARE.read_text()))


def on_bus(devices: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those of the devices that the PCI bus still shows."""
    return [device for device in devices if device["state"] != "missing"]


def write(path: Path, content: str | bytes) -> None:
    """Write a file unless it already says so, by rename: a reader never sees half of it."""
    data = content.encode() if isinstance(content, str) else content
    if path.exists() and path.read_bytes() == data:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_bytes(data)
    temporary.chmod(0o644)
    temporary.replace(path)
