"""The node's kernel, as far as modules go: what can be loaded, what is, who holds it, what it shows."""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from . import pci, state

MAGIC = "clusterlab simulated kernel module"
SYS_MODULE = state.ROOT / "sys/module"
PROC_NVIDIA = state.ROOT / "proc/driver/nvidia"
DEV = state.ROOT / "dev"
NVIDIA_MODULES = ("nvidia", "nvidia_uvm", "nvidia_modeset", "nvidia_drm", "nvidia_peermem")
DEPENDS = {
    "nvidia_uvm": ("nvidia",),
    "nvidia_modeset": ("nvidia",),
    "nvidia_drm": ("nvidia_modeset",),
    "nvidia_peermem": ("nvidia",),
}
SIZES = {
    "nvidia": 11980800,
    "nvidia_uvm": 2101248,
    "nvidia_modeset": 1720320,
    "nvidia_drm": 139264,
    "nvidia_peermem": 16384,
    "nouveau": 3096576,
}
# What holds a device for the driver's own sake, and shows in no list of compute processes.
DAEMONS = ("nvidia-persiste", "nv-fabricmanage", "nvidia-smi", "nv-hostengine")


class ModuleError(Exception):
    """The kernel refused; the text is the errno string that kmod would print."""


def canonical(name: str) -> str:
    """The kernel's spelling of a module's name."""
    return name.replace("-", "_")


def release() -> str:
    """The running kernel's release."""
    return os.uname().release


def module_file(name: str, kernel: str | None = None) -> Path | None:
    """The file that modprobe would load for that kernel, or None."""
    directory = state.ROOT / "lib/modules" / (kernel or release())
    if not directory.is_dir():
        return None
    for path in sorted(directory.rglob("*.ko")):
        if canonical(path.stem) == canonical(name):
            return path
    return None


def module_info(path: Path) -> dict[str, str]:
    """What a simulated module's file says of itself; empty when it is no such file."""
    lines = path.read_text(errors="replace").splitlines()
    if not lines or lines[0] != MAGIC:
        return {}
    return dict(line.split("=", 1) for line in lines[1:] if "=" in line)


def loaded() -> dict[str, dict[str, Any]]:
    """The loaded modules by name, each with what its file said when it was loaded."""
    if not state.MODULES.is_dir():
        return {}
    return {path.name: json.loads(path.read_text()) for path in sorted(state.MODULES.iterdir())}


def dependents(name: str) -> list[str]:
    """Loaded modules that use this one."""
    return [other for other in loaded() if name in DEPENDS.get(other, ())]


def holders() -> list[tuple[int, str, str]]:
    """Every open NVIDIA device: process id, command name, device path."""
    return list(_open_devices())


def _open_devices() -> Iterator[tuple[int, str, str]]:
    for process in (state.ROOT / "proc").glob("[0-9]*"):
        try:
            targets = {str(link.readlink()) for link in (process / "fd").iterdir()}
            name = (process / "comm").read_text().strip()
        except OSError:
            continue  # it ended while we looked
        for target in sorted(targets):
            if target.startswith("/dev/nvidia"):
                yield int(process.name), name, target


def reference_count(name: str) -> int:
    """How often a module is held, by other modules and by processes."""
    count = len(dependents(name))
    if name == "nvidia":
        hardware = state.hardware()
        count += len(holders()) + sum(len(gpu["processes"]) for gpu in hardware["gpus"])
    return count


def load(name: str) -> None:
    """Load a module and what it depends on; raises ModuleError with kmod's reason."""
    name = canonical(name)
    if name in loaded():
        return
    hardware = state.hardware()
    if name == "nouveau":
        info = {"name": "nouveau", "version": "", "flavor": "in-tree"}
    else:
        path = module_file(name)
        info = module_info(path) if path is not None else {}
        if not info:
            raise ModuleError(f"Module {name} not found in directory /lib/modules/{release()}")
    if name in ("nvidia", "nouveau") and not state.on_bus(hardware["gpus"]):
        raise ModuleError("No such device")
    if name == "nvidia" and "nouveau" in loaded():
        # Its GPUs are bound already: the real module finds nothing to probe.
        raise ModuleError("No such device")
    for dependency in DEPENDS.get(name, ()):
        load(dependency)
    state.write(state.MODULES / name, json.dumps(info))
    publish()


def unload(name: str) -> None:
    """Remove a module; raises ModuleError while something holds it or when it is not loaded."""
    name = canonical(name)
    if name not in loaded():
        raise ModuleError("is not currently loaded")
    users = dependents(name)
    if users:
        raise ModuleError("is in use by: " + " ".join(users))
    if reference_count(name):
        raise ModuleError("is in use")
    (state.MODULES / name).unlink()
    if name == "nvidia":
        # Persistence, MIG instances and the fabric's state live in the driver.
        for path in state.KERNEL.iterdir():
            if path != state.MODULES:
                path.unlink()
    publish()


def publish() -> None:
    """Make /sys, /proc and /dev show the loaded modules and the hardware as it is now."""
    hardware = state.hardware()
    modules = loaded()
    pci.populate(hardware, set(modules))
    for name in (*NVIDIA_MODULES, "nouveau"):
        _publish_module(name, modules.get(name), hardware)
    _publish_proc(modules.get("nvidia"), hardware)
    _publish_devices(modules, hardware)


def version(module: dict[str, Any], hardware: dict[str, Any]) -> str:
    """The version that the loaded driver reports."""
    return cast(str, hardware.get("driver_override") or module["version"])


def _publish_module(name: str, module: dict[str, Any] | None, hardware: dict[str, Any]) -> None:
    directory = SYS_MODULE / name
    if module is None:
        if directory.exists():
            shutil.rmtree(directory)
        return
    # No rename here: on the overlay over sysfs a plain write is enough, and leaves no whiteouts.
    (directory / "parameters").mkdir(parents=True, exist_ok=True)
    (directory / "holders").mkdir(exist_ok=True)
    values = {"initstate": "live", "refcnt": str(reference_count(name)), "taint": "OE"}
    if module["version"]:
        values["version"] = version(module, hardware)
        values["srcversion"] = module.get("srcversion", "")
    for key, value in values.items():
        (directory / key).write_text(value + "\n")
    if name == "nvidia":
        for user in NVIDIA_MODULES:
            link = directory / "holders" / user
            if user in dependents("nvidia"):
                link.touch()
            else:
                link.unlink(missing_ok=True)


def _publish_proc(module: dict[str, Any] | None, hardware: dict[str, Any]) -> None:
    if module is None:
        shutil.rmtree(PROC_NVIDIA, ignore_errors=True)
        return
    number = version(module, hardware)
    if module["flavor"] == "open":
        banner = f"NVIDIA UNIX Open Kernel Module for x86_64  {number}  Release Build  (simulated@clusterlab)"
    else:
        banner = f"NVIDIA UNIX x86_64 Kernel Module  {number}  (simulated@clusterlab)"
    state.write(
        PROC_NVIDIA / "version",
        f"NVRM version: {banner}  Tue Sep 23 09:55:41 UTC 2025\n"
        "GCC version:  gcc version 12.2.0 (Debian 12.2.0-14+deb12u1) \n",
    )
    state.write(PROC_NVIDIA / "params", "EnableMSI: 1\nDeviceFileUID: 0\nDeviceFileGID: 0\n")
    visible = state.on_bus(hardware["gpus"])
    for entry in (PROC_NVIDIA / "gpus").glob("*"):
        if entry.name not in {gpu["pci_address"] for gpu in visible}:
            shutil.rmtree(entry)
    model = hardware["gpu_model"]
    for gpu in visible:
        state.write(
            PROC_NVIDIA / "gpus" / gpu["pci_address"] / "information",
            f"Model: \t\t {model['name']}\n"
            f"IRQ:   \t\t {90 + gpu['index']}\n"
            f"GPU UUID: \t {gpu['uuid']}\n"
            f"Video BIOS: \t {(gpu.get('vbios_version') or model['vbios_version']).lower()}\n"
            "Bus Type: \t PCIe\n"
            "DMA Size: \t 47 bits\n"
            "DMA Mask: \t 0x7fffffffffff\n"
            f"Bus Location: \t {gpu['pci_address']}\n"
            f"Device Minor: \t {gpu['index']}\n"
            f"GPU Firmware: \t {number}\n"
            "GPU Excluded:\t No\n",
        )


def _publish_devices(modules: dict[str, dict[str, Any]], hardware: dict[str, Any]) -> None:
    wanted: set[str] = set()
    if "nvidia" in modules:
        wanted |= {f"nvidia{gpu['index']}" for gpu in state.on_bus(hardware["gpus"])} | {"nvidiactl"}
        if state.on_bus(hardware["nvswitches"]):
            wanted |= {"nvidia-nvswitchctl"}
            wanted |= {f"nvidia-nvswitch{n}" for n in range(len(state.on_bus(hardware["nvswitches"])))}
    if "nvidia_uvm" in modules:
        wanted |= {"nvidia-uvm", "nvidia-uvm-tools"}
    if "nvidia_modeset" in modules:
        wanted |= {"nvidia-modeset"}
    for path in DEV.glob("nvidia*"):
        if path.name not in wanted and not path.is_dir():
            path.unlink()
    for name in wanted:
        if not (DEV / name).exists():
            # The driver's own number (195) opens nothing here, or a real GPU: /dev/null's opens always.
            os.mknod(DEV / name, stat.S_IFCHR | 0o666, os.makedev(1, 3))
            (DEV / name).chmod(0o666)
