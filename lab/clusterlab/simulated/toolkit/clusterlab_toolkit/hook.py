"""nvidia-container-runtime-hook: gives a container its GPUs between its creation and its first process."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from . import edits

MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC = 0x1, 0x20, 0x1000, 0x4000


def main(arguments: list[str]) -> int:
    """Run as an OCI hook: the container's state comes on standard input."""
    if arguments[:1] == ["mount"]:
        return _mount(json.load(sys.stdin))
    if arguments[:1] != ["prestart"]:
        # createRuntime and poststop are not this hook's task, as of the real one.
        return 0
    state = json.load(sys.stdin)
    bundle = Path(state["bundle"])
    specification = json.loads((bundle / "config.json").read_text())
    try:
        plan = make_plan(specification, bundle)
    except edits.ToolkitError as error:
        sys.stderr.write(f"nvidia-container-cli: {error}\n")
        return 1
    if plan is None:
        return 0
    command = ["nsenter", "-t", str(state["pid"]), "-m", "--", sys.executable, sys.argv[0], "mount"]
    return subprocess.run(command, input=json.dumps(plan), text=True, check=False).returncode


def make_plan(specification: dict[str, Any], bundle: Path, root: Path = Path("/")) -> dict[str, Any] | None:
    """Root file system and mounts for a container, or None when it asks for no GPU."""
    wanted = visible_devices(specification)
    if wanted in ("", "void"):
        return None
    driver = edits.driver(root)
    gpus = edits.select(driver.gpus, wanted)
    pairs = [[mount.source, mount.target, True] for mount in edits.mounts(root)]
    pairs += [[device, device, False] for device in edits.devices(gpus, root)]
    rootfs = bundle / specification["root"]["path"]
    return {"rootfs": str(rootfs), "mounts": pairs}


def visible_devices(specification: dict[str, Any]) -> str:
    """NVIDIA_VISIBLE_DEVICES of the container's process; empty when it is not set."""
    for entry in specification["process"].get("env", []):
        name, _, value = entry.partition("=")
        if name == "NVIDIA_VISIBLE_DEVICES":
            return str(value)
    return ""


def inside(rootfs: Path, path: str) -> Path:
    """Where a path of the container lies, its symbolic links followed without leaving the container."""
    current = rootfs
    parts = [part for part in path.split("/") if part not in ("", ".")]
    links = 0
    while parts:
        part = parts.pop(0)
        if part == "..":
            current = current.parent if current != rootfs else rootfs
            continue
        candidate = current / part
        if not candidate.is_symlink():
            current = candidate
            continue
        links += 1
        if links > 40:
            raise OSError(f"too many symbolic links in {path}")
        target = str(candidate.readlink())
        if target.startswith("/"):
            current = rootfs
        parts = [word for word in target.split("/") if word not in ("", ".")] + parts
    return current


def _mount(plan: dict[str, Any]) -> int:
    """Second half, inside the container's mount namespace: its root is still the node's."""
    library = ctypes.CDLL(None, use_errno=True)
    rootfs = Path(plan["rootfs"])
    for source, path, read_only in plan["mounts"]:
        target = inside(rootfs, path)
        if Path(source).is_dir():
            target.mkdir(parents=True, exist_ok=True)
        elif not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.touch()
        _call(library, source, str(target), MS_BIND | MS_REC)
        if read_only:
            _call(library, source, str(target), MS_BIND | MS_REMOUNT | MS_RDONLY)
    return 0


def _call(library: ctypes.CDLL, source: str, target: str, flags: int) -> None:
    if library.mount(source.encode(), target.encode(), None, ctypes.c_ulong(flags), None) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"mount {source} on {target}: {os.strerror(number)}")
