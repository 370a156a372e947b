# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE)
"""systemd units and kernel modules of the driver: what runs, what loads, what the kernel said."""

from __future__ import annotations

from collections.abc import Callable, Iterable

# argv -> (exit code, standard output, standard error)
RunFull = Callable[[list[str]], tuple[int, str, str]]

# In the order in which they must go: users of a module before the module.
MODULES = ("nvidia_fs", "gdrdrv", "nvidia_peermem", "nvidia_uvm", "nvidia_drm", "nvidia_modeset", "nvidia")


def unit_state(run: RunFull, unit: str) -> dict[str, str]:
    """`LoadState`, `ActiveState` and `UnitFileState` of a unit."""
    _, output, _ = run(["systemctl", "show", "-p", "LoadState,ActiveState,UnitFileState", f"{unit}.service"])
    return dict(line.split("=", 1) for line in output.splitlines() if "=" in line)


def active_units(run: RunFull, units: Iterable[str]) -> list[str]:
    """Those of the units that run, in the order given."""
    return [unit for unit in units if unit_state(run, unit).get("ActiveState") in ("active", "activating")]


def journal(run: RunFull, unit: str) -> str:
    """The unit's own last words, systemd's left out."""
    _, output, _ = run(["journalctl", "-u", f"{unit}.service", "-n", "12", "--no-pager", "-o", "cat"])
    chatter = ("Starting ", "Started ", "Stopping ", "Stopped ", "Failed to start ", f"{unit}.service:")
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return "; ".join([line for line in lines if not line.startswith(chatter)][-3:])


def kernel_words(run: RunFull) -> str:
    """What the kernel said last about the driver."""
    _, output, _ = run(["journalctl", "-k", "-n", "200", "--no-pager", "-o", "cat"])
    lines = [line.strip() for line in output.splitlines() if "nvidia" in line.lower() or "NVRM" in line]
    return "; ".join(lines[-4:])
