# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A systemd unit: its state, its journal, its process and since when that runs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.clusterctl.cluster.plugins.module_utils.bounded import run_bounded

# argv -> (exit code, standard output, standard error)
RunFull = Callable[[list[str]], tuple[int, str, str]]


def show(module: AnsibleModule, unit: str, *names: str) -> dict[str, str]:
    """Properties of a unit by name; {} if there is no systemd."""
    systemctl = module.get_bin_path("systemctl")
    if not systemctl:
        return {}
    _, out, _ = run_bounded([systemctl, "show", unit, f"--property={','.join(names)}"], 60)
    return dict(line.split("=", 1) for line in out.splitlines() if "=" in line)


def main_pid(module: AnsibleModule, unit: str) -> int:
    """The unit's main process, 0 when it does not run."""
    return int(show(module, unit, "MainPID").get("MainPID") or 0)


def started_at(pid: int) -> float:
    """When the process started, seconds since the epoch, to a hundredth; 0 when it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except FileNotFoundError:
        return 0.0
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return time.time() - age


def newer(paths: list[str], moment: float) -> list[str]:
    """Those of `paths` that changed after `moment`."""
    return [path for path in paths if Path(path).exists() and Path(path).stat().st_ctime > moment]


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
