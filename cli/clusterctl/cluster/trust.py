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
import shlex
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from clusterctl.cluster import names
from clusterctl.errors import ClusterctlError

# Of a cluster directory, what each command reads.
FILES = (names.HOSTS_FILE, names.ANSIBLE_CONFIG, names.LOCK_FILE)
TREES = (names.GROUP_VARS, names.HOST_VARS)
STATE_PARTS = (names.SECRETS, names.AUTHORITY)
INSTEAD = "Name your own cluster directory with -C DIR"
ACL = "system.posix_acl_access"
MAX_LINKS = 40  # as the kernel has it
Passage = Callable[[Path, os.stat_result], str]


def require_trusted_cluster(root: Path) -> None:
    """Refuse a cluster directory that others could have written, or could put another in the place of.

    Raises ClusterctlError (``cluster.not-trusted``, exit 2).
    """
    require_trusted(_parts(root), root, INSTEAD)
    _require_trusted_above(root, INSTEAD)


def require_trusted_place(directory: Path, paths: Iterable[Path], instead: str) -> None:
    """Refuse a directory to write to, made yet or not, that others could write or exchange, or one of
    ``paths`` in it. Raises ClusterctlError (``cluster.not-trusted``, exit 2)."""
    if os.path.lexists(directory):
        require_trusted((directory, *paths), directory, instead)
    _require_trusted_above(directory, instead)


def _require_trusted_above(directory: Path, instead: str) -> None:
    place = directory.resolve()
    because = _objection_above(place)
    if because and place not in _trusted_directories():
        raise ClusterctlError(
            f"{directory} is not trusted: {because}",
            code="cluster.not-trusted",
            where=str(directory),
            hint=f"{instead}; or, if you trust who can write there, add the line {place} to {trust_file()}",
        )


def require_trusted_runs(runs: Iterable[Path], root: Path) -> None:
    """The same for directories of runs, of which a cluster may have thousands: for who reads them."""
    require_trusted(runs, root, INSTEAD)


def require_trusted(paths: Iterable[Path], directory: Path, instead: str) -> None:
    """Refuse ``directory`` if one of ``paths``, all in it, could have been written by others.

    ``instead`` says how to name another directory. Raises ClusterctlError (``cluster.not-trusted``, exit 2).
    """
    if directory.resolve() in _trusted_directories():
        return
    for path in paths:
        because = _objection(path)
        if because:
            raise ClusterctlError(
                f"{directory} is not trusted: {path.name} {because}",
                code="cluster.not-trusted",
                where=str(path),
                hint=_remedy(path, directory, instead),
            )


def _remedy(path: Path, directory: Path, instead: str) -> str:
    """No command where others put files on purpose: it would break that, or trust what they planted."""
    state = directory.stat()
    trusted = f"add the line {directory.resolve()} to {trust_file()}"
    if state.st_mode & stat.S_ISVTX:
        return f"{instead}."
    if state.st_uid not in trusted_users():
        return f"{instead}; or, if you trust {_name(state.st_uid)}, who owns {directory}, {trusted}"
    found, name = path.lstat(), shlex.quote(str(path))
    if stat.S_ISLNK(found.st_mode):
        command = f"replace the link {name} with its target"
    elif found.st_uid in trusted_users():
        command = f"chmod go-w {name}"
    else:
        command = f"chown -h {_name(state.st_uid)} {name}"
    return f"If only you use it and you have read it: {command}; if you trust all its writers, {trusted}"


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
        yield from _tree(root / name)
    yield root / names.STATE
    for name in ("", *STATE_PARTS):
        # Who needs the state says so where it cannot be read, or is none.
        with contextlib.suppress(PermissionError, FileNotFoundError, NotADirectoryError):
            yield from (root / names.STATE / name).iterdir()


def _tree(top: Path) -> Iterator[Path]:
    """All below ``top``, through links as Ansible reads it; no directory twice."""
    seen = set()
    for directory, directories, files in os.walk(top, followlinks=True):
        try:
            state = Path(directory).stat()
        except FileNotFoundError:  # it has gone meanwhile
            continue
        if (state.st_dev, state.st_ino) in seen:
            directories.clear()
            continue
        seen.add((state.st_dev, state.st_ino))
        yield from (Path(directory) / each for each in (*directories, *files))


def objection_to_source(path: Path, root: Path) -> str:
    """Who else could have written or replaced a file that the cluster directory ``root`` names; empty if
    nobody. Whatever lies in a directory that the operator lists as trusted is trusted."""
    place, top = path.absolute().parent.resolve(), root.resolve()
    inside = [each for each in (place, *place.parents) if each.is_relative_to(top)]
    if inside and top in _trusted_directories():
        return ""
    if because := _objection(path, _of_passage):
        return f"it {because}"
    for directory in inside:
        if because := _objection(directory):
            return f"the directory {directory}, in which it is, {because}"
    return _objection_above(place / path.name)


def _objection_above(path: Path) -> str:
    """Who else could rename a directory in which ``path`` is, and put another there; empty if nobody.

    A directory that a group may write is usual for teams: its members are not refused.
    """
    for directory in path.parents:
        try:
            because = _of_passage(directory, directory.stat())
        except OSError:  # we may not pass there either: who needs the path says so
            continue
        if because:
            return f"the directory {directory}, in which it is, {because}"
    return ""


def _of_passage(_directory: Path, state: os.stat_result) -> str:
    """Who else than a group could exchange what lies in a directory that a path leads through."""
    if state.st_uid not in trusted_users():
        return f"belongs to {_name(state.st_uid)}"
    if stat.S_ISDIR(state.st_mode) and state.st_mode & stat.S_IWOTH and not state.st_mode & stat.S_ISVTX:
        return "is world-writable"
    return ""


def _of_own_passage(directory: Path, state: os.stat_result) -> str:
    """The same where a group counts, too: of what a cluster directory holds."""
    return "" if _is_sticky(state) else _of_state(directory, state)


def _objection(path: Path, passage: Passage = _of_own_passage) -> str:
    """Who else could have written it; empty if nobody. Of a link, the whole way that it leads counts, and
    ``passage`` says who could exchange what lies in a directory on it."""
    try:
        state = path.lstat()
        because = _of_state(path, state)
        if because or not stat.S_ISLNK(state.st_mode):
            return because
        return _of_way(path, passage)
    except OSError:  # it has gone, or may not be read by us either
        return ""


def _of_way(link: Path, passage: Passage) -> str:
    """Who else could change what ``link`` leads to: the directories, links and file that the kernel walks."""
    here = Path(os.path.realpath(link.parent))
    rest, links = _names(link), 1
    while rest:
        name = rest.pop()
        here = here.parent if name == ".." else here / name
        try:
            state = here.lstat()
        except FileNotFoundError:  # who can put it there?
            here, rest = here.parent, []
            state = here.lstat()
        because = passage(here, state) if rest else _of_state(here, state)
        if because:
            return f"leads to {here}, which {because}"
        if stat.S_ISLNK(state.st_mode):
            links += 1
            if links > MAX_LINKS:
                return "is a loop of links"
            rest += _names(here)
            here = here.parent
    return ""


def _names(link: Path) -> list[str]:
    """The names that a link leads through, the last one first."""
    return [*reversed(link.readlink().parts or (".",))]


def _is_sticky(state: os.stat_result) -> bool:
    """A directory such as /tmp: others can write it, and not replace what is a trusted user's."""
    return bool(state.st_mode & stat.S_ISVTX) and state.st_uid in trusted_users()


def _of_state(path: Path, state: os.stat_result) -> str:
    owners = trusted_users()
    if state.st_uid not in owners:
        return f"belongs to {_name(state.st_uid)}"
    if stat.S_ISLNK(state.st_mode):  # its mode says nothing
        return ""
    if state.st_mode & stat.S_IWOTH:
        return "is world-writable"
    if state.st_mode & stat.S_IWGRP and not _is_private(path, state.st_gid, owners):
        return f"can be written by the group {_group_name(state.st_gid)}"
    return ""


def trusted_users() -> frozenset[int]:
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
