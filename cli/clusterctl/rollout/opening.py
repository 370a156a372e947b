"""How every command that runs playbooks starts and ends: settings checked, run recorded."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clusterctl import console
from clusterctl.cluster.access import Passwords, ansible_variables
from clusterctl.cluster.controller_files import require_trusted_files
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.cluster.endpoint import endpoint
from clusterctl.cluster.inventory import Host, Inventory
from clusterctl.cluster.login_gates import PARALLEL_LOGINS_PER_JUMP
from clusterctl.cluster.opened import opened
from clusterctl.engine.handover import remove_leftovers
from clusterctl.engine.journal import Journal
from clusterctl.engine.playbook import MAX_FORKS, Runner, run_playbook
from clusterctl.engine.progress import choose
from clusterctl.errors import ClusterctlError
from clusterctl.rollout.scope import outside, require_one_login, require_whole
from clusterctl.rollout.session import Session
from clusterctl.rollout.training import PinnedTraining, pinned, require_pinned, require_served, require_signed
from clusterctl.runs.state import RunState, state_of
from clusterctl.runs.store import RunStore
from clusterctl.runs.syslog import anchored_store


@dataclass(frozen=True)
class Selection:
    """The cluster, the hosts to work on, and those that stay out with the reason."""

    directory: ClusterDirectory
    inventory: Inventory
    hosts: tuple[Host, ...]
    quarantined: Mapping[str, str]
    # What the lock adds to the settings, for Ansible; the inventory has it already.
    locked: Mapping[str, str] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """The hosts to work on, by name."""
        return tuple(host.name for host in self.hosts)

    @property
    def outside(self) -> dict[str, str]:
        """Those among them for which the site has no play, with what to say."""
        return outside(self.hosts)


def select(named: Path | None, limit: str | None) -> Selection:
    """Check settings and lock and choose hosts, before any of them is touched; quarantined ones are named.

    Raises ClusterctlError (exit 2) for settings, inventory or limit, a file that others could have written
    (``settings.untrusted-file``), a lock that is not that of the settings (``images.stale-lock``), and a
    training image that the driver cannot run (``images.driver``), or without the signatures that the policy
    demands (``images.signature``, exit 1).
    """
    found = pinned(opened(named))
    require_pinned(found)
    chosen = _chosen(found, limit)
    require_served(found, chosen.hosts)
    require_signed(found, chosen.hosts)
    return chosen


def select_for_registry(named: Path | None) -> Selection:
    """The same hosts for what concerns the registry alone: no image is a reason to refuse its backup."""
    return _chosen(pinned(opened(named)), None)


def _chosen(found: PinnedTraining, limit: str | None) -> Selection:
    inventory = found.inventory
    require_whole(inventory)
    require_trusted_files(inventory)
    require_one_login(inventory)
    hosts = inventory.select(limit)
    out = {h.name: h.quarantined for h in inventory.matching(limit) if h.quarantined is not None}
    for name, reason in out.items():
        console.say(f"{name}: skipped, in quarantine: {reason}")
    return Selection(inventory.directory, inventory, hosts, out, found.extra_vars)


def everyone(named: Path | None) -> Selection:
    """Every declared host, those in quarantine too. Raises ClusterctlError (exit 2)."""
    found = pinned(opened(named))
    inventory = found.inventory
    require_whole(inventory)
    return Selection(inventory.directory, inventory, inventory.hosts, {}, found.extra_vars)


def logins_at_once(hosts: Sequence[Host]) -> int:
    """How many hosts Ansible may log in to at once: few through a jump host, whose sshd sees them all."""
    if len(hosts) <= PARALLEL_LOGINS_PER_JUMP:
        return MAX_FORKS
    jumps = any(endpoint(host, connect_timeout_s=10).jump for host in hosts)
    return PARALLEL_LOGINS_PER_JUMP if jumps else MAX_FORKS


def sweep(store: RunStore, directory: ClusterDirectory) -> None:
    """Remove what runs that were killed handed over; earlier versions wrote passwords into such files.

    What this user may not read or remove stays: no run needs it gone.
    """
    with contextlib.suppress(ClusterctlError):
        for run in store.scan().runs:
            if state_of(run) in (RunState.FINISHED, RunState.CUT_OFF):
                with contextlib.suppress(OSError):
                    remove_leftovers(run.directory)
    with contextlib.suppress(OSError):
        for path in directory.secrets.glob("passwords.*.json"):
            path.unlink(missing_ok=True)


@contextlib.contextmanager
def session(
    chosen: Selection,
    kind: str,
    arguments: Sequence[str],
    *,
    passwords: Passwords,
    as_json: bool,
    extra_vars: Mapping[str, Any] | None = None,
    runner: Runner = run_playbook,
) -> Iterator[Session]:
    """A run with journal and display. The block ends it with `RunStore.finish`; an error here does."""
    directory = chosen.directory
    forks = logins_at_once(chosen.hosts)
    store = anchored_store(chosen.inventory)
    sweep(store, directory)
    run = store.create(kind, arguments)
    display = choose(kind, as_json=as_json)
    with store.finished_on_error(run), Journal(run.journal) as journal:
        variables = {**chosen.locked, **(extra_vars or {})}
        secrets = ansible_variables(passwords)
        yield Session(directory, run, journal, display, secrets, variables, forks, runner=runner)
