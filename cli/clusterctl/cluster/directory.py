"""A cluster directory: an Ansible inventory with clusterctl's state next to it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from clusterctl.cluster import names
from clusterctl.cluster.state_form import require_plain_state
from clusterctl.cluster.trust import require_trusted_cluster, require_trusted_place
from clusterctl.cluster.user_path import user_path
from clusterctl.errors import ClusterctlError

# ANSIBLE_HOME is not passed on to Ansible (interpreter.py): this is its default.
ANSIBLE_HOME = "~/.ansible"
# UserKnownHostsFile of ssh_config(5): tokens, variables of the environment, quotes.
EXPANDED = ("%", "${", '"')


@dataclass(frozen=True)
class ClusterDirectory:
    """Paths inside one cluster directory. Making one touches nothing on disk."""

    root: Path

    @property
    def hosts_file(self) -> Path:
        """The Ansible inventory."""
        return self.root / names.HOSTS_FILE

    @property
    def group_vars(self) -> Path:
        """Settings, as Ansible group variables."""
        return self.root / names.GROUP_VARS

    @property
    def state(self) -> Path:
        """Journal, run store, known_hosts, CA: made by clusterctl, mode 0700."""
        return self.root / names.STATE

    @property
    def known_hosts(self) -> Path:
        """Pinned host keys, in OpenSSH's format."""
        return self.state / names.KNOWN_HOSTS

    @property
    def quarantine_file(self) -> Path:
        """Hosts taken out, with the reason."""
        return self.state / "quarantine.yml"

    @property
    def baseline_file(self) -> Path:
        """The figures of a validation that passed, kept to compare with."""
        return self.state / "baseline.json"

    @property
    def acknowledged_file(self) -> Path:
        """From when on a node's kernel messages count."""
        return self.state / "acknowledged.yml"

    @property
    def runs(self) -> Path:
        """One directory a run."""
        return self.state / names.RUNS

    @property
    def authority(self) -> Path:
        """The cluster's certificate authority: ca.crt, and ca.key with mode 0600."""
        return self.state / names.AUTHORITY

    @property
    def secrets(self) -> Path:
        """Files that only their owner may read, mode 0700."""
        return self.state / names.SECRETS

    @property
    def mutex(self) -> Path:
        """Locked by the one operator who is changing this cluster."""
        return self.state / "mutex"

    def ensure_state(self) -> None:
        """Make the state directory, readable by its owner alone.

        Raises ClusterctlError (``cluster.state-not-writable``, exit 2).
        """
        with state_access():
            for path in (self.state, self.runs, self.secrets):
                path.mkdir(mode=0o700, parents=True, exist_ok=True)


@contextlib.contextmanager
def state_access(writing: Path | None = None) -> Iterator[None]:
    """Say plainly that the state is another user's, or cannot be written; ``writing`` is the file to name.

    Raises ClusterctlError (``cluster.state-not-permitted``, ``cluster.state-not-writable``; exit 2).
    """
    try:
        yield
    except PermissionError as error:
        raise ClusterctlError(
            f"{writing.name} may not be written by this user"
            if writing
            else "the cluster's state may not be read or written by this user",
            code="cluster.state-not-permitted",
            where=str(writing or error.filename or ""),
            hint="Work as the user who owns the cluster directory: with sudo, where that is root.",
        ) from error
    except OSError as error:
        raise ClusterctlError(
            f"{writing.name} cannot be written: {error.strerror}"
            if writing
            else f"the cluster's state cannot be used: {error.strerror}",
            code="cluster.state-not-writable",
            where=str(writing or error.filename or ""),
            hint="Is the disk full, or mounted read-only?",
        ) from error


def _is_cluster(directory: Path) -> bool:
    with state_access():
        return (directory / names.HOSTS_FILE).is_file()


def current_directory() -> Path:
    """Where the operator is. Raises ClusterctlError (``cluster.not-found``) where that was removed."""
    try:
        return Path.cwd()
    except OSError:
        raise ClusterctlError(
            "the current directory is not there any more",
            code="cluster.not-found",
            where=".",
            hint="Change into a directory that exists, and name the cluster's with -C DIR.",
        ) from None


def _trusted(named: Path) -> ClusterDirectory:
    with state_access():
        directory = ClusterDirectory(require_trusted_cluster(named))
    if expanded := [mark for mark in EXPANDED if mark in str(directory.root)]:
        raise ClusterctlError(
            f"the path of the cluster directory holds {expanded[0]}, which ssh takes for another path's part",
            code="cluster.path",
            where=str(directory.root),
            hint="Move it to a directory without such a character.",
        )
    require_plain_state(directory.state)
    _require_own_ansible_home()
    return directory


def _require_own_ansible_home() -> None:
    """Ansible loads plugins from there: it is made where it is missing, so that nobody else makes it.

    Raises ClusterctlError (``cluster.not-trusted``).
    """
    home = user_path(ANSIBLE_HOME)
    if home.parent.is_dir():
        with contextlib.suppress(OSError):  # one that cannot be made holds no plugin
            require_trusted_place(home, "Set HOME to your own home directory", make=True)


def find_cluster_directory(named: Path | None, start: Path | None = None) -> ClusterDirectory:
    """The directory the operator named, else the current one or the nearest parent that holds hosts.yml.

    Raises ClusterctlError (``cluster.not-found``) if there is none, or (``cluster.not-trusted``) where
    others could have written it: parents above such a one are not searched; ``cluster.state-form``,
    ``cluster.state-not-permitted`` for one that may not be entered.
    """
    if named is not None:
        if _is_cluster(named):
            return _trusted(named)
        raise ClusterctlError(
            f"{named} is not a cluster directory: it has no hosts.yml",
            code="cluster.not-found",
            where=str(named.resolve()),
            hint=f"Make one with: clusterctl init {named}",
        )
    here = (start or current_directory()).resolve()
    for candidate in (here, *here.parents):
        if _is_cluster(candidate):
            return _trusted(candidate)
    raise ClusterctlError(
        "there is no cluster directory here or above",
        code="cluster.not-found",
        where=str(here),
        hint="Name one with -C DIR, or make one with: clusterctl init DIR",
    )
