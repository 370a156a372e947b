# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE)
"""The kernel's modules exchanged while nobody computes: holders of the GPUs stop, and start again after."""

from __future__ import annotations

import os
from pathlib import Path

from ansible_collections.clusterctl.cluster.plugins.module_utils import gpu_node
from ansible_collections.clusterctl.cluster.plugins.module_utils.apt_view import RunFull
from ansible_collections.clusterctl.cluster.plugins.module_utils.driver_boot import PEERMEM
from ansible_collections.clusterctl.cluster.plugins.module_utils.driver_node import Node
from ansible_collections.clusterctl.cluster.plugins.module_utils.gpu_busy import (
    HOST_ENGINE,
    CannotTellError,
    Holder,
    ask,
    device_holders,
    gpu_containers,
    sort_users,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.node_files import read_file, replace_file
from ansible_collections.clusterctl.cluster.plugins.module_utils.service_unit import (
    active_units,
    journal,
    unit_state,
)

# In the order in which they must go: users of a module before the module.
MODULES = ("nvidia_fs", "gdrdrv", "nvidia_peermem", "nvidia_uvm", "nvidia_drm", "nvidia_modeset", "nvidia")
OWN = ("nvidia", "nvidia_uvm")
# Other modules that were unloaded and are not loaded yet: the next run does it, where this one was killed.
OWED = "run/clusterctl/driver-modules"
# What was stopped for the reload and is not started yet, in the order in which it was stopped.
STOPPED = "run/clusterctl/driver-stopped"
FABRIC_MANAGER = "nvidia-fabricmanager"
MIG = "clusterctl-mig"  # restores the MIG layout, which a reload drops (role mig)
IMEX = "nvidia-imex"


def kernel_words(run: RunFull) -> str:
    """What the kernel said last about the driver."""
    _, output, _ = run(["journalctl", "-k", "-n", "200", "--no-pager", "-o", "cat"])
    lines = [line.strip() for line in output.splitlines() if "nvidia" in line.lower() or "NVRM" in line]
    return "; ".join(lines[-4:])


def owed(root: Path) -> list[str]:
    """Modules that an earlier run unloaded and did not load again, in the order in which they go."""
    named = read_file(root / OWED).split()
    return [name for name in MODULES if name in named and not gpu_node.module_loaded(root, name)]


def owe(node: Node, names: list[str]) -> None:
    """Remember these for the next run, until they are loaded."""
    if node.module.check_mode:
        return
    if names:
        replace_file(node.root / OWED, "".join(f"{name}\n" for name in names), 0o644)
    else:
        (node.root / OWED).unlink(missing_ok=True)


def differs(root: Path, version: str, flavor: str) -> str:
    """Why the modules must be reloaded; empty where the kernel runs what was asked for."""
    loaded, kind = gpu_node.loaded_driver(root), gpu_node.loaded_flavor(root)
    if gpu_node.module_loaded(root, "nouveau"):
        return "nouveau drives the GPUs"
    if loaded != version:
        return f"the kernel runs {loaded or 'no NVIDIA driver'}"
    return f"the kernel runs the {kind} modules" if kind not in ("", flavor) else ""


def in_use(root: Path, ignored: list[str]) -> tuple[str, list[Holder]]:
    """Who holds the GPUs and cannot be stopped, empty if nobody does; and the holders that can."""
    try:
        containers = gpu_containers(ask)
    except CannotTellError:  # then the processes in them count
        containers = []
    users = sort_users(root, device_holders(root), containers, ignored)
    others = [f"{who} ({pid})" for pid, who in sorted(users.processes.items())]
    others += [holder.name for holder in users.holders if not holder.unit and not holder.container]
    return ", ".join(others[:5]), [holder for holder in users.holders if holder.unit or holder.container]


def stop_holders(
    node: Node, holders: list[Holder], services: list[str], restarted: tuple[str, ...] = ()
) -> None:
    """Stops services and holders, on record before: the next run starts them if this one is killed.

    Units of ``restarted`` that are installed are started after, also if they did not run.
    """
    engines = [holder.unit for holder in holders if holder.unit and holder.name == HOST_ENGINE]
    others = [holder.unit for holder in holders if holder.unit and holder.unit not in (*services, *engines)]
    units = dict.fromkeys([*others, *services, *engines])
    stopping = active_units(node.run, units)
    stopping += [unit for unit in restarted if unit_state(node.run, unit).get("LoadState") == "loaded"]
    containers = [holder.container for holder in holders if holder.container]
    if not node.module.check_mode and (stopping or containers):
        # A killed run may have stopped others.
        before = read_file(node.root / STOPPED).splitlines()
        lines = [*(f"container {name}" for name in containers), *(f"unit {unit}" for unit in stopping)]
        text = "".join(f"{line}\n" for line in dict.fromkeys([*before, *lines]))
        replace_file(node.root / STOPPED, text, 0o644)
    for name in containers:
        node.do(f"stop container {name}", ["docker", "stop", name])
        node.containers.append(name)
    for unit in stopping:
        node.stop(unit)


def start_stopped(node: Node, but_not: tuple[str, ...]) -> str:
    """Starts what was stopped, now or by a run that was killed, the last first.

    MIG's unit comes before all others, which count devices when they start. Returns why it failed; it stays
    on record then, for the next run to start it.
    """
    recorded = [line.split(" ", 1) for line in read_file(node.root / STOPPED).splitlines() if " " in line]
    units = [name for kind, name in recorded if kind == "unit"] or list(node.stopped)
    layout_lost = start_mig(node) if MIG in units and MIG not in but_not else ""
    for unit in reversed([unit for unit in units if unit not in (MIG, *but_not)]):
        if unit in node.stopped or not active_units(node.run, [unit]):
            node.start(unit)
    containers = [name for kind, name in recorded if kind == "container"] or node.containers
    for name in reversed(containers):
        code, error = node.do(f"start container {name}", ["docker", "start", name])
        if code != 0:  # it is monitoring: no reason to keep the node from its jobs
            node.module.warn(f"Container {name}, which held GPUs, does not start again: {error}.")
    if layout_lost:
        replace_file(node.root / STOPPED, f"unit {MIG}\n", 0o644)
    elif not node.module.check_mode:
        (node.root / STOPPED).unlink(missing_ok=True)
    return layout_lost


def start_mig(node: Node) -> str:
    """Starts the unit that restores MIG's modes and instances; returns why it failed."""
    if MIG not in node.stopped and active_units(node.run, [MIG]):
        return ""
    code, error = node.do(f"start {MIG}", ["systemctl", "start", f"{MIG}.service"])
    if code == 0:
        return ""
    return (
        f"The MIG layout is not restored: {(journal(node.run, MIG) or error).rstrip('.')}. "
        f"See `journalctl -u {MIG}`, then apply the part mig."
    )


def initramfs_command(root: Path) -> list[str]:
    """What writes the initramfs of every kernel: Debian's program, or RHEL's."""
    if (root / "usr/bin/dracut").exists() and not (root / "usr/sbin/update-initramfs").exists():
        return ["dracut", "--force", "--regenerate-all"]
    return ["update-initramfs", "-u", "-k", "all"]


def unload(node: Node) -> str:
    """Unloads nouveau and NVIDIA's modules; says why where one stays."""
    if gpu_node.module_loaded(node.root, "nouveau"):
        node.do("write the initramfs without nouveau", initramfs_command(node.root))
        code, error = node.do("unload nouveau", ["modprobe", "-r", "nouveau"])
        if code != 0:
            return f"nouveau is in use and cannot be unloaded ({error})"
    before = owed(node.root)
    going = [name for name in MODULES if gpu_node.module_loaded(node.root, name)]
    owe(node, [name for name in MODULES if name in (*before, *going) and name not in OWN])
    node.unloaded += before
    for name in going:
        code, error = node.do(f"unload {name}", ["rmmod", name])
        if code != 0:
            return f"{name} cannot be unloaded ({error})"
        node.unloaded.append(name)
    return ""


def load_again(node: Node) -> list[str]:
    """Loads what was unloaded next to the driver itself; returns what cannot be, with the reason.

    Without nvidia_peermem GPUDirect is lost, and nobody says so; the others serve storage and displays.
    """
    failed = {}
    unwanted = {PEERMEM} if node.module.params["peermem"] in ("off", "false") else set()
    for name in sorted(set(node.unloaded) - unwanted, key=MODULES.index, reverse=True):
        if gpu_node.module_loaded(node.root, name) and not node.module.check_mode:
            continue  # as a module of its own that modprobe brought with another
        code, error = node.do(f"load {name}", ["modprobe", name])
        if code != 0:
            failed[name] = f"{name} ({error or 'modprobe failed'})"
    node.unloaded.clear()
    owe(node, list(failed))
    return list(failed.values())


def load(node: Node, version: str) -> None:
    """Loads the driver; ends the module where the kernel refuses it or runs another one."""
    code, error = node.do("load nvidia", ["modprobe", "nvidia"])
    if code != 0:
        built = node.run(["modinfo", "-F", "version", "nvidia"])[1].strip()
        hint = (
            f"The module on disk is {built}. Secure Boot may refuse its key (mokutil --import), or another "
            "driver holds the GPUs"
            if built
            else f"No module is there for kernel {os.uname().release}: see `dkms status`, or reboot into a "
            "kernel that has one"
        )
        node.fail(
            f"The kernel does not load driver {version}: {error or 'modprobe failed'}. {hint}. "
            f"The kernel said: {kernel_words(node.run) or 'nothing'}"
        )
    node.do("load nvidia_uvm", ["modprobe", "nvidia_uvm"])
    node.unloaded = [name for name in node.unloaded if name not in OWN]
    node.missing = load_again(node)
    loaded = gpu_node.loaded_driver(node.root)
    if loaded != version and not node.module.check_mode:
        node.fail(
            f"The kernel loaded driver {loaded or 'none'} although {version} is installed: another "
            f"module comes first. Look at `modinfo nvidia` and `dkms status` ({os.uname().release})."
        )


def reload_modules(node: Node, version: str, services: list[str]) -> str:
    """Stops services and holders and reloads the modules; says why where only a reboot helps."""
    ignored = node.module.params["holders_ignored"]
    users, holders = in_use(node.root, ignored)
    if users:  # their modules stay, and a Fabric Manager that is stopped now would not start again
        return f"the GPUs are in use by {users}"
    stop_holders(node, holders, services, restarted=(MIG,))
    stays = unload(node)
    # udev or a package's own script may have loaded the new driver meanwhile, and a display server holds it.
    if stays and not differs(node.root, version, node.module.params["flavor"]):
        stays = ""
    if stays:  # Fabric Manager and IMEX of the new version refuse the old module: they wait for the reboot
        if failed := load_again(node):
            stays += f"; meanwhile these are not loaded: {', '.join(failed)}"
        if lost := start_stopped(node, (FABRIC_MANAGER, IMEX)):
            stays += f"; {lost}"
    else:
        load(node, version)
    return stays


def settle_modules(node: Node, reason: str, version: str, services: list[str]) -> str:
    """Reloads the modules if there is a reason, else loads what an earlier run left unloaded."""
    if reason:
        return reload_modules(node, version, services)
    if missing := owed(node.root):
        node.unloaded = missing
        node.missing = load_again(node)
    return ""
