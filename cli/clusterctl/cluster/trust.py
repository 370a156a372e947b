"""Whether anybody else could have written what a directory makes us do.

An inventory can run commands on this machine with the operator's rights (``ansible_ssh_common_args``,
lookups), and a command looks for one in parent directories, which may be another user's. As Git has it
(CVE-2022-24765): what others own or can write is refused, not passed over.
"""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from clusterctl.errors import ClusterctlError

# Of a cluster directory, what is read from it.
FILES = ("hosts.yml", "ansible.cfg", "clusterctl.lock")
TREES = ("group_vars", "host_vars")
STATE = ".clusterctl"
ACL = "system.posix_acl_access"


def require_trusted_cluster(root: Path) -> None:
    """Refuse a cluster directory that others could have written.

    Raises ClusterctlError (``cluster.not-trusted``, exit 2).
    """
    require_trusted(_parts(root), root)


def require_trusted(paths: Iterable[Path], directory: Path) -> None:
    """Refuse ``directory`` if one of ``paths``, all in it, could have been written by others.

    Raises ClusterctlError (``cluster.not-trusted``, exit 2).
    """
    if directory.resolve() in _trusted_directories():
        return
    for path in paths:
        because = _objection(path) if os.path.lexists(path) else ""
        if because:
            raise ClusterctlError(
                f"{directory} is not trusted: {path.name} {because}",
                code="cluster.not-trusted",
                where=str(path),
                hint=f"To trust it: chown -R {_name(os.geteuid())} {directory}; chmod -R go-w {directory}; "
                f"or add the line {directory.resolve()} to {trust_file()}",
            )


def trust_file() -> Path:
    """The operator's own list of directories that are trusted whoever may write them, a path a line."""
    base = os.environ.get("XDG_CONFIG_HOME") or f"{os.environ.get('HOME', '/root')}/.config"
    return Path(base) / "clusterctl" / "trusted-directories"


def _trusted_directories() -> set[Path]:
    try:
        file = trust_file()
        if not file.is_file() or _objection(file):
            return set()
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    except (OSError, RuntimeError):  # a user without a home, or of another's
        return set()
    return {Path(line.strip()) for line in lines if line.strip().startswith("/")}


def _parts(root: Path) -> Iterator[Path]:
    yield root
    yield from (root / name for name in FILES)
    for name in TREES:
        yield root / name
        for directory, directories, files in os.walk(root / name):
            yield from (Path(directory) / each for each in (*directories, *files))
    yield root / STATE
    with contextlib.suppress(PermissionError, FileNotFoundError):  # who needs the state says so
        yield from (root / STATE).iterdir()


def _objection(path: Path) -> str:
    """Who else could have written it; empty if nobody. Of a link, what it leads to counts as well."""
    because = _of_state(path, path.lstat())
    if because or not path.is_symlink():
        return because
    target = path.resolve()
    if not target.exists():
        return ""
    return _of_state(target, target.stat()) or _of_state(target.parent, target.parent.stat())


def _of_state(path: Path, state: os.stat_result) -> str:
    owners = _trusted_users()
    if state.st_uid not in owners:
        return f"belongs to {_name(state.st_uid)}"
    if stat.S_ISLNK(state.st_mode):  # its mode says nothing
        return ""
    if state.st_mode & stat.S_IWOTH:
        return "can be written by everybody"
    if state.st_mode & stat.S_IWGRP and not _is_private(path, state.st_gid, owners):
        return f"can be written by the group {_group_name(state.st_gid)}"
    return ""


def _trusted_users() -> frozenset[int]:
    """Us, root, who owns the program that we run, and who called sudo: each of them could do all we can."""
    users = {0, os.geteuid(), Path(__file__).stat().st_uid}
    called_by = os.environ.get("SUDO_UID", "")
    if os.geteuid() == 0 and called_by.isdecimal():
        users.add(int(called_by))
    return frozenset(users)


def _is_private(path: Path, gid: int, owners: frozenset[int]) -> bool:
    """Whether a group is a trusted user's own, as umask 002 needs it: of its name, with nobody else in it."""
    with_list = False
    with contextlib.suppress(OSError, AttributeError):  # a filesystem without them has no list either
        with_list = ACL in os.listxattr(path)
    names = {_name(user) for user in owners}
    try:
        group = grp.getgrgid(gid)
    except KeyError:
        return False
    return not with_list and group.gr_name in names and set(group.gr_mem) <= names


def _name(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)


def _group_name(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)
