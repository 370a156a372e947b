"""What a lab node's simulated machine consists of: one readable file a node, `hardware.json`.

The file is the single truth about the node's devices. The node's firmware reads it to populate its PCI
bus, the simulated driver reads it to answer `nvidia-smi`, and faults are injected by editing it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from clusterctl.cluster.state_files import replace_file
from clusterlab.hardware.model import (
    ClockReason,
    Clocks,
    EccCounters,
    GpuModel,
    GpuState,
    Hardware,
    Hca,
    NvLinkErrors,
    NvSwitch,
    Process,
    SimulatedGpu,
    SimulatedNvLink,
)
from clusterlab.hardware.profiles import PROFILES, build

__all__ = [
    "PROFILES",
    "ClockReason",
    "Clocks",
    "EccCounters",
    "GpuModel",
    "GpuState",
    "Hardware",
    "Hca",
    "NvLinkErrors",
    "NvSwitch",
    "Process",
    "SimulatedGpu",
    "SimulatedNvLink",
    "build",
    "load",
    "save",
]


def load(path: Path) -> Hardware:
    """Read hardware.json; raises OSError or pydantic.ValidationError when it is no such file."""
    return Hardware.model_validate_json(path.read_text())


def save(hardware: Hardware, path: Path) -> None:
    """Write hardware.json by rename, so that the node never reads half of it."""
    # Edits by attribute are checked here, once, rather than at every assignment.
    checked = Hardware.model_validate(hardware.model_dump(by_alias=True))
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, _readable(checked.model_dump(mode="json", by_alias=True)) + "\n", 0o644)


def _readable(value: Any, indent: str = "") -> str:
    """JSON with what fits one line on one line: eight GPUs then read as eight short blocks."""
    compact = json.dumps(value)
    if len(indent) + len(compact) <= 125 or not isinstance(value, dict | list) or not value:
        return compact
    inner = indent + "  "
    if isinstance(value, dict):
        parts = [f"{inner}{json.dumps(key)}: {_readable(item, inner)}" for key, item in value.items()]
        return "{\n" + ",\n".join(parts) + f"\n{indent}}}"
    parts = [inner + _readable(item, inner) for item in value]
    return "[\n" + ",\n".join(parts) + f"\n{indent}]"
