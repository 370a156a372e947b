"""clusterlab-hardware: mounts at boot, modules that udev would load, `refresh` after an edit."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from . import kernel, kmod, pci, state

USAGE = "usage: clusterlab-hardware boot|autoload|refresh"
MODULES_LOAD = ("etc/modules-load.d", "run/modules-load.d", "usr/lib/modules-load.d")
KMOD_PROGRAMS = (
    "bin/lsmod",
    "sbin/lsmod",
    "sbin/modprobe",
    "sbin/rmmod",
    "sbin/insmod",
    "sbin/modinfo",
    "sbin/depmod",
)


def main(arguments: list[str]) -> int:
    """Run one of the steps; 0, or 2 when asked for none."""
    steps = {"boot": boot, "autoload": autoload, "refresh": refresh}
    if len(arguments) != 1 or arguments[0] not in steps:
        sys.stderr.write(USAGE + "\n")
        return 2
    steps[arguments[0]]()
    return 0


def boot() -> None:
    """Put the node's own bus, /proc/driver and /sys/module in place of the machine's."""
    own = state.ROOT / "run/clusterlab"
    own.mkdir(parents=True, exist_ok=True)
    state.MODULES.mkdir(parents=True, exist_ok=True)
    _bind(own / "pci-devices", pci.DEVICES)
    _bind(own / "proc-driver", state.ROOT / "proc/driver")
    if not _mounted(kernel.SYS_MODULE):
        upper, work = own / "sys-module", own / "sys-module.work"
        upper.mkdir(exist_ok=True)
        work.mkdir(exist_ok=True)
        layers = f"lowerdir={kernel.SYS_MODULE},upperdir={upper},workdir={work}"
        _run("mount", "-t", "overlay", "clusterlab-modules", "-o", layers, str(kernel.SYS_MODULE))
    for name in (*kernel.NVIDIA_MODULES, "nouveau"):
        # The machine under the lab may have a real GPU: its modules are not the node's.
        shutil.rmtree(kernel.SYS_MODULE / name, ignore_errors=True)
    # The management controller, which the simulated ipmitool speaks for. The machine may have one: it stays.
    if not (kernel.DEV / "ipmi0").exists():
        state.write(kernel.DEV / "ipmi0", "")
    _divert_kmod()
    refresh()


def autoload() -> None:
    """Load what modules-load.d names and what udev would load for the devices on the bus."""
    hardware = state.hardware()
    if state.on_bus(hardware["gpus"]):
        wanted = [*hardware["preloaded_modules"], "nvidia", "nvidia_modeset", "nvidia_drm", "nvidia_uvm"]
    else:
        wanted = []
    for name in wanted:
        if (name == "nouveau" or kernel.module_file(name)) and name not in kmod.blacklisted():
            kmod.modprobe(["-q", name])
    for directory in MODULES_LOAD:
        for path in sorted((state.ROOT / directory).glob("*.conf")):
            for line in path.read_text().splitlines():
                if line.strip() and not line.startswith(("#", ";")):
                    kmod.modprobe(["-q", "-b", line.strip()])


def refresh() -> None:
    """Show the hardware as hardware.json now has it."""
    kernel.publish()


def _bind(source: Path, target: Path) -> None:
    if _mounted(target):
        return
    source.mkdir(exist_ok=True)
    _run("mount", "--bind", str(source), str(target))


def _mounted(path: Path) -> bool:
    lines = (state.ROOT / "proc/self/mounts").read_text().splitlines()
    return any(line.split()[1] == str(path) for line in lines)


def _divert_kmod() -> None:
    """Keep an installed kmod package from replacing the lab's own lsmod and modprobe."""
    done = state.ROOT / "var/lib/clusterlab/kmod-diverted"
    if done.exists() or shutil.which("dpkg-divert") is None:
        return
    for program in KMOD_PROGRAMS:
        for path in (f"/{program}", f"/usr/{program}"):
            aside = f"{path}.kmod"
            _run("dpkg-divert", "--quiet", "--local", "--no-rename", "--divert", aside, "--add", path)
    done.parent.mkdir(parents=True, exist_ok=True)
    done.touch()


def _run(*command: str) -> None:
    subprocess.run(command, check=True)
