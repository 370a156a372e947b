"""nvidia-container-runtime: runc, with the hook put into the bundle of a container that wants GPUs."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from . import hook

HOOK = "/usr/bin/nvidia-container-runtime-hook"


def main(arguments: list[str], version: str) -> int:
    """Run runc with those arguments; does not return unless there is no runc."""
    if "create" in arguments and not any(word in ("--help", "-h") for word in arguments):
        edit(bundle(arguments) / "config.json")
    program = shutil.which("runc") or shutil.which("docker-runc")
    if program is not None:
        if arguments == ["--version"]:
            sys.stdout.write(f"NVIDIA Container Runtime version {version} (simulated)\n")
            sys.stdout.flush()
        os.execv(program, ["runc", *arguments])  # noqa: S606 - to become runc is what a shim does
    sys.stderr.write("nvidia-container-runtime: no runc on PATH\n")
    return 127


def bundle(arguments: list[str]) -> Path:
    """The bundle that a runc command line names."""
    for position, word in enumerate(arguments):
        if word in ("--bundle", "-b") and position + 1 < len(arguments):
            return Path(arguments[position + 1])
        if word.startswith(("--bundle=", "-b=")):
            return Path(word.split("=", 1)[1])
    return Path.cwd()


def edit(path: Path) -> None:
    """Put the hook into config.json where the container asks for devices and has none yet."""
    specification: dict[str, Any] = json.loads(path.read_text())
    hooks = specification.setdefault("hooks", {}).setdefault("prestart", [])
    present = any(entry.get("path", "").endswith("nvidia-container-runtime-hook") for entry in hooks)
    if hook.visible_devices(specification) in ("", "void") or present:
        return
    hooks.append({"path": HOOK, "args": [HOOK, "prestart"]})
    path.write_text(json.dumps(specification))
