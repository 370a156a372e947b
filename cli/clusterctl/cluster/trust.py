"""Whether anybody else could have written what a directory makes us do.

An inventory can run commands on this machine with the operator's rights (``ansible_ssh_common_args``,
lookups), and a command looks for one in parent directories, which may be another user's. As Git has it
(CVE-2022-24765): what others own or can write is refused, not passed over.
"""

from __future__ import annotations

import contextlib
import errno
import grp
import os
import pwd
import shlex
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from clusterctl.cluster import names
from clusterctl.errors import ClusterctlError

# Of a cluster directory, what each command reads.
FILES = (names.HOSTS_FILE, names.ANSIBLE_CONFIG, names.LOCK_FILE)
TREES = (names.GROUP_VARS, names.HOST_VARS)
STATE_PARTS = (names.SECRETS, names.AUTHORITY, "images", "images/packages", "probe")
INSTEAD = "Name your own cluster directory with -C DIR"
ACL = "system.posix_acl_access"
MAX_LINKS = 40  # as the kernel has it
# Who else could exchange this directory, link or file, given how many names of a path are left behind it.
Judge = Callable[[Path, os.stat_result, int], str]


@dataclass(frozen=True)
class CheckedPath:
    """Where a path leads: ``resolved``, with no link in it, which alone is used from then on.

    ``named`` keeps the last name where that is a link, for programs that look at their own; ``objection``
    says who else could change where it leads, or what lies there, as a sentence on it; empty if nobody.
    """

    resolved: Path
    named: Path
    objection: str = ""


def require_trusted_cluster(directory: Path) -> Path:
    """Refuse a cluster directory that others could have written, or could put another in the place of.

    Returns it without links. Raises ClusterctlError (``cluster.not-trusted``, exit 2), OSError.
    """
    root = require_trusted_place(directory, INSTEAD)
    require_trusted(_parts(root), root, INSTEAD)
    return root


def require_trusted_place(
    directory: Path, instead: str, *, root: Path | None = None, make: bool = False
) -> Path:
    """Refuse a directory to read or write that others could write or exchange; returns it without links.

    ``make``: what is missing is made, only below ``root`` where that is given. Raises ClusterctlError
    (``cluster.not-trusted``, exit 2), OSError, and FileNotFoundError for what is missing and not made.
    """
    checked = check_path(directory, root, make_below=(root or Path("/")) if make else None)
    if not checked.objection:
        return checked.resolved
    place = Path(os.path.realpath(directory))
    trusted = f"{instead}; or, if you trust who can write there, add the line {place} to {trust_file()}"
    raise ClusterctlError(
        f"{directory} is not trusted: {checked.objection}",
        code="cluster.not-trusted",
        where=str(directory),
        hint=_remedy(place, place, instead) if checked.resolved == place else trusted,
    )


def require_trusted_runs(runs: Iterable[Path], root: Path) -> None:
    """The same for directories of runs, of which a cluster may have thousands: for who reads them."""
    require_trusted(runs, root, INSTEAD)


def require_trusted(paths: Iterable[Path], directory: Path, instead: str) -> None:
    """Refuse ``directory`` if one of ``paths``, all in it, could have been written by others.

    ``instead`` says how to name another directory. Raises ClusterctlError (``cluster.not-trusted``, exit 2).
    """
    if _is_listed(directory.resolve()):
        return
    for path in paths:
        because = find_objection(path)
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


def _is_listed(place: Path) -> bool:
    """Whether the operator trusts this directory, or one that it lies in."""
    return any(place.is_relative_to(one) for one in _trusted_directories())


def _trusted_directories() -> set[Path]:
    try:
        file = trust_file()
        checked = _walk(Path("/"), _names(file.absolute()), partial(_judge_source, None, strict=False))
        if checked.objection or not checked.resolved.is_file():
            return set()
        lines = checked.resolved.read_text(encoding="utf-8", errors="replace").splitlines()
    except (OSError, RuntimeError):  # a user without a home, or of another's
        return set()
    return {Path(line.strip()) for line in lines if line.strip().startswith("/")}


def _parts(root: Path) -> Iterator[Path]:
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


def check_path(
    path: Path, root: Path | None = None, *, strict: bool = False, make_below: Path | None = None
) -> CheckedPath:
    """Walk ``path`` from / as the kernel does: every directory, every link and what it leads to must be such
    that nobody else could write or exchange it, except that a group may write a directory on the way.

    Within ``root`` no group may, nor, if ``strict``, the directory in which it lies. Whatever lies in a
    ``root`` (``path`` itself, without one) that the operator lists as trusted is trusted. Directories that
    are missing below ``make_below`` are made. Raises OSError.
    """
    top, above = Path(os.path.realpath(root or path)), Path(os.path.realpath(path.parent))
    if _is_listed(top) and (root is None or above.is_relative_to(top)):
        resolved = Path(os.path.realpath(path))
        if make_below is not None and resolved.is_relative_to(make_below):
            resolved.mkdir(parents=True, exist_ok=True)
        return CheckedPath(resolved, above / path.name)
    whole, judge = _absolute(path), partial(_judge_source, top if root else None, strict=strict)
    found = _walk(Path("/"), _names(whole), judge, make_below)
    place = found.resolved
    if not found.objection:
        return found
    if place == whole:
        return replace(found, objection=f"it {found.objection}")
    is_above = place in whole.parents and not place.is_symlink()
    where = f"the directory {place}, in which it is," if is_above else f"it leads to {place}, which"
    return replace(found, objection=f"{where} {found.objection}")


def find_objection_on_way(path: Path, root: Path | None = None) -> str:
    """Who else could change what is read by this path later, or put there what is missing; empty if nobody.

    ``root`` is as in check_path, and no group may write the directory in which it lies. Raises OSError.
    """
    try:
        return check_path(path, root, strict=True).objection
    except FileNotFoundError as error:  # whoever could make it, could put there what is read
        place = Path(error.filename).parent
        because = find_objection_to_state(place, place.lstat())
        return f"it is not there, and {place} {because}" if because else ""


def follow_own_links(path: Path) -> Path:
    """The same path without links, of which none is another user's: who made one says what is overwritten.

    Raises OSError.
    """
    found = _walk(Path("/"), _names(_absolute(path)), _judge_link)
    if found.objection:
        raise OSError(errno.EACCES, f"{found.resolved} {found.objection}")
    return found.resolved


def _judge_link(_here: Path, state: os.stat_result, _left: int) -> str:
    is_foreign = stat.S_ISLNK(state.st_mode) and state.st_uid not in trusted_users()
    return "is a link that another user made" if is_foreign else ""


def _judge_source(root: Path | None, here: Path, state: os.stat_result, left: int, *, strict: bool) -> str:
    if left == 0 or (root is not None and here.is_relative_to(root)):
        return find_objection_to_state(here, state)
    return (_of_own_passage if strict and left == 1 else _of_passage)(here, state)


def _of_passage(directory: Path, state: os.stat_result) -> str:
    """Who else than a group could exchange what lies in a directory that a path leads through."""
    if state.st_uid not in trusted_users():
        return f"belongs to {_name(state.st_uid)}"
    if not stat.S_ISDIR(state.st_mode) or _is_sticky(state):
        return ""
    if state.st_mode & stat.S_IWOTH:
        return "is world-writable"
    # With an access list, the group's bits are all that anyone whom it names may have.
    if state.st_mode & stat.S_IWGRP and _has_access_list(directory):
        return "has an access list (getfacl) that lets others write"
    return ""


def _of_own_passage(directory: Path, state: os.stat_result) -> str:
    """The same where a group counts, too: of what a cluster directory holds."""
    return "" if _is_sticky(state) else find_objection_to_state(directory, state)


def find_objection(path: Path) -> str:
    """Who else could have written it; empty if nobody. Of a link, the whole way that it leads counts."""
    try:
        state = path.lstat()
        because = find_objection_to_state(path, state)
        if because or not stat.S_ISLNK(state.st_mode):
            return because
        way = _walk_link(path)
    except OSError:  # it has gone, or may not be read by us either
        return ""
    is_itself = not way.objection or way.resolved == path
    return way.objection if is_itself else f"leads to {way.resolved}, which {way.objection}"


def _walk_link(link: Path) -> CheckedPath:
    try:
        return _walk(Path(os.path.realpath(link.parent)), [link.name], _judge_part)
    except FileNotFoundError as error:  # who can put it there?
        place = Path(error.filename).parent
        return CheckedPath(place, place, find_objection_to_state(place, place.lstat()))


def _judge_part(here: Path, state: os.stat_result, left: int) -> str:
    return (_of_own_passage if left else find_objection_to_state)(here, state)


def _walk(here: Path, rest: list[str], judge: Judge, make_below: Path | None = None) -> CheckedPath:
    """Go from ``here`` through the names of ``rest``, the last one first, to the first objection or the end.

    Nobody else can change what was passed without one: so what is found still holds afterwards.
    """
    links, named = 0, None
    while rest:
        name = rest.pop()
        here = here.parent if name == ".." else here / name
        try:
            state = here.lstat()
        except FileNotFoundError:
            if make_below is None or not here.is_relative_to(make_below):
                raise
            with contextlib.suppress(FileExistsError):  # what another made meanwhile is checked as well
                here.mkdir(0o755)
            state = here.lstat()
        named = named if rest or named else here
        is_link = stat.S_ISLNK(state.st_mode)
        links += is_link
        because = judge(here, state, len(rest)) or ("is a loop of links" if links > MAX_LINKS else "")
        if because:
            return CheckedPath(here, here, because)
        if is_link:
            rest += _names(here.readlink())
            here = here.parent
    return CheckedPath(here, named or here)


def _absolute(path: Path) -> Path:
    """POSIX leaves open what two slashes at the start mean; here they are one."""
    return Path("/" + str(path.absolute()).lstrip("/"))


def _names(path: Path) -> list[str]:
    """The names that a path leads through, the last one first."""
    return [*reversed(path.parts or (".",))]


def _is_sticky(state: os.stat_result) -> bool:
    """A directory such as /tmp: others can write it, and not replace what is a trusted user's."""
    return bool(state.st_mode & stat.S_ISVTX) and state.st_uid in trusted_users()


def find_objection_to_state(path: Path, state: os.stat_result) -> str:
    """Who else could have written what has this state, of a link who else made it; empty if nobody."""
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
    names = {_name(user) for user in owners}
    try:
        group = grp.getgrgid(gid)
    except KeyError:
        return False
    # Whose first group it is, is no member by the group's own entry; and a number may have a second entry.
    members = {*group.gr_mem, *(user.pw_name for user in pwd.getpwall() if user.pw_gid == gid)}
    members.update(*(other.gr_mem for other in grp.getgrall() if other.gr_gid == gid))
    return group.gr_name in names and members <= names and not _has_access_list(path)


def _has_access_list(path: Path) -> bool:
    """Whether others than a mode tells of may have rights, in the form of setfacl."""
    with contextlib.suppress(OSError, AttributeError):  # a filesystem without them has no list either
        return ACL in os.listxattr(path)
    return False


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
