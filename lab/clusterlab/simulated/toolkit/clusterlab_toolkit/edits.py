"""What a container needs for its GPUs: device files and bind mounts, found on the node as it is now."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

LIBRARIES = "usr/lib/x86_64-linux-gnu/nvidia/current"
GUEST = "/usr/lib/clusterlab/guest"
CONTROL_DEVICES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")


class ToolkitError(Exception):
    """The driver is not there to be given to a container."""


@dataclass(frozen=True)
class Mount:
    """A bind mount, read-only."""

    source: str
    target: str


@dataclass(frozen=True)
class Driver:
    """The loaded driver and the GPUs that containers are given, in the order in which NVML counts them."""

    version: str
    gpus: list[dict[str, Any]]


def driver(root: Path = Path("/")) -> Driver:
    """The loaded driver; raises ToolkitError with nvidia-container-cli's words when there is none."""
    module = root / "run/clusterlab/kernel/modules/nvidia"
    if not module.exists():
        raise ToolkitError("initialization error: nvml error: driver not loaded")
    hardware = json.loads((root / "opt/clusterlab/node/hardware.json").read_text())
    hidden = hardware.get("toolkit_hides", [])
    gpus = [gpu for gpu in hardware["gpus"] if gpu["state"] != "missing" and gpu["index"] not in hidden]
    installed = [path.name.split(".so.", 1)[1] for path in _libraries(root, "libnvidia-ml.so.*.*")]
    if not installed:
        raise ToolkitError("initialization error: load library failed: libnvidia-ml.so.1: cannot open shared "
                           "object file: no such file or directory")  # fmt: skip
    version = cast(str, json.loads(module.read_text())["version"])
    if version not in installed and not hardware.get("driver_override"):
        raise ToolkitError("initialization error: nvml error: driver/library version mismatch")
    return Driver(installed[0], gpus)


def mig_devices(gpu: dict[str, Any], root: Path = Path("/")) -> int:
    """How many MIG devices a GPU has."""
    kept = root / "run/clusterlab/kernel/mig-instances.json"
    instances = json.loads(kept.read_text()).get(gpu["uuid"], []) if kept.exists() else []
    return sum(1 for one in instances if one["ci"])


def select(gpus: list[dict[str, Any]], wanted: str) -> list[dict[str, Any]]:
    """The GPUs that NVIDIA_VISIBLE_DEVICES asks for; raises ToolkitError for one that is not there."""
    if wanted in ("", "void", "none"):
        return []
    if wanted == "all":
        return gpus
    found = []
    for word in wanted.split(","):
        match = [gpu for index, gpu in enumerate(gpus) if word in (str(index), gpu["uuid"])]
        if not match:
            raise ToolkitError(f"device error: {word}: unknown device")
        found += match
    return found


def devices(gpus: list[dict[str, Any]], root: Path = Path("/")) -> list[str]:
    """Device files for those GPUs, the control devices included."""
    names = [f"nvidia{gpu['index']}" for gpu in gpus] + [*CONTROL_DEVICES]
    return [f"/dev/{name}" for name in names if (root / "dev" / name).exists()]


def mounts(root: Path = Path("/")) -> list[Mount]:
    """Files and directories of the driver, of the hardware behind it, and of a Python to run them."""
    paths = ["/usr/bin/nvidia-smi", "/opt/clusterlab/node", "/run/clusterlab/kernel"]
    paths += ["/var/lib/clusterlab/inforom"]
    paths += [f"/{path.relative_to(root)}" for path in _libraries(root, "lib*.so.*.*")]
    plan = [Mount(path, path) for path in paths]
    python = f"python{sys.version_info.major}.{sys.version_info.minor}"
    plan += [
        Mount(f"/usr/bin/{python}", f"{GUEST}/python3"),
        Mount("/lib64/ld-linux-x86-64.so.2", f"{GUEST}/ld.so"),
        Mount("/usr/lib/x86_64-linux-gnu", f"{GUEST}/lib"),
        Mount(f"/usr/lib/{python}", f"{GUEST}/usr/lib/{python}"),
    ]
    return [mount for mount in plan if (root / mount.source.lstrip("/")).exists()]


def _libraries(root: Path, pattern: str) -> list[Path]:
    return sorted((root / LIBRARIES).glob(pattern))
