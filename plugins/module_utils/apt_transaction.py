# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE)
"""One apt transaction: simulated, judged by what it would change, then done. `run` is that of `apt_run`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ansible_collections.clusterctl.cluster.plugins.module_utils.apt_packages import Change, parse_simulation
from ansible_collections.clusterctl.cluster.plugins.module_utils.apt_run import APT_GET, completing
from ansible_collections.clusterctl.cluster.plugins.module_utils.apt_view import RunFull

LOCK = "apt"  # of runs of ours on one host


def simulate(
    run: RunFull, arguments: Sequence[str], options: Sequence[str] = ()
) -> tuple[dict[str, Change], str]:
    """What apt would change, and its complaint if it cannot do that."""
    code, output, error = run([*APT_GET, *options, "--simulate", "install", *arguments])
    return ({}, error or output) if code != 0 else (parse_simulation(output), "")


def simulate_whole(
    run: RunFull, arguments: Sequence[str], options: Sequence[str] = ()
) -> tuple[dict[str, Change], str]:
    """The same on a host that may be changed: an interrupted transaction is completed if it is in the way."""
    changes, complaint = simulate(run, arguments, options)
    if not complaint:
        return changes, complaint
    completing(run, [*APT_GET, "install"])
    return simulate(run, arguments, options)


def install(run: RunFull, arguments: Sequence[str], options: Sequence[str] = ()) -> tuple[int, str, str]:
    """Has apt do the transaction, or only download it, as the options say."""
    return completing(run, [*APT_GET, *options, "install", *arguments])


def foreign_holds(changes: Iterable[str], held: set[str], ours: Iterable[str]) -> list[str]:
    """Packages of the transaction that somebody else holds."""
    return sorted(set(changes) & (held - set(ours)))


def removals(changes: Mapping[str, Change]) -> list[str]:
    """Packages that the transaction would remove."""
    return sorted(name for name, (_, after) in changes.items() if not after)


def mark(run: RunFull, action: str, names: Iterable[str]) -> str:
    """Holds or releases packages; apt-mark's complaint if it fails."""
    if not names:
        return ""
    code, output, error = run(["apt-mark", action, *sorted(names)])
    return (error or output or f"apt-mark ended with {code}") if code != 0 else ""
