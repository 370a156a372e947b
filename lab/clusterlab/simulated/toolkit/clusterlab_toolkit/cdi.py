"""Specifications of the Container Device Interface."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from . import edits

DIRECTORIES = (Path("/etc/cdi"), Path("/var/run/cdi"))
NAME = re.compile(r"""^\s*-?\s*"?name"?:\s*["']?([\w:.-]+)""", re.MULTILINE)


def specification(root: Path = Path("/")) -> dict[str, Any]:
    """The document of `nvidia-ctk cdi generate`."""
    driver = edits.driver(root)
    entries = []
    for index, gpu in enumerate(driver.gpus):
        nodes = {"deviceNodes": [{"path": f"/dev/nvidia{gpu['index']}"}]}
        entries += [{"name": str(index), "containerEdits": nodes}]
        entries += [{"name": gpu["uuid"], "containerEdits": nodes}]
        # Device files of instances are not simulated: whoever gets one gets its GPU.
        for number in range(edits.mig_devices(gpu, root)):
            entries.append({"name": f"{index}:{number}", "containerEdits": nodes})
    every = [{"path": f"/dev/nvidia{gpu['index']}"} for gpu in driver.gpus]
    entries.append({"name": "all", "containerEdits": {"deviceNodes": every}})
    return {
        "cdiVersion": "0.5.0",
        "kind": "nvidia.com/gpu",
        "devices": entries,
        "containerEdits": {
            "env": ["NVIDIA_VISIBLE_DEVICES=void"],
            "deviceNodes": [{"path": path} for path in edits.devices([], root)],
            "mounts": [
                {
                    "hostPath": mount.source,
                    "containerPath": mount.target,
                    "options": ["ro", "nosuid", "nodev", "rbind", "rprivate"],
                }
                for mount in edits.mounts(root)
            ],
        },
    }


def to_yaml(value: Any, indent: str = "") -> str:
    """Plain YAML of dictionaries, lists and strings."""
    lines = []
    if isinstance(value, dict):
        for key, item in value.items():
            if isinstance(item, dict | list):
                lines.append(f"{indent}{key}:\n{to_yaml(item, indent + '  ')}")
            else:
                lines.append(f"{indent}{key}: {json.dumps(item)}")
        return "\n".join(lines)
    for item in value:
        if isinstance(item, dict | list):
            body = to_yaml(item, indent + "  ")
            lines.append(f"{indent}- {body[len(indent) + 2 :]}")
        else:
            lines.append(f"{indent}- {json.dumps(item)}")
    return "\n".join(lines)


def names(directories: tuple[Path, ...] = DIRECTORIES) -> list[str]:
    """Qualified names of all devices that specifications on this node declare."""
    found: set[str] = set()
    for directory in directories:
        for path in sorted([*directory.glob("*.yaml"), *directory.glob("*.json")]):
            found |= {f"nvidia.com/gpu={name}" for name in NAME.findall(path.read_text())}
    return sorted(found)
