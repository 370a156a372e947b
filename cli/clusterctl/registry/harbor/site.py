"""What all kinds of objects share while one Harbor is reconciled."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pydantic import SecretStr

from clusterctl.cluster.user_path import user_path
from clusterctl.errors import ClusterctlError
from clusterctl.parallel import parallel_map
from clusterctl.registry.harbor.change import Action, Deferred, FieldDifference, HarborChange, Remark, Subject
from clusterctl.registry.harbor.client import CONNECTIONS, BrokenAnswer, Client, Refused
from clusterctl.registry.harbor.secret_text import (
    hand_to_command,
    read_secret_file,
    secret_of_command,
)
from clusterctl.registry.harbor.vault import Vault

CONFLICT = 409
# Of a sentence with words of Harbor's in it, and of the values of a list that are shown.
LONG, MAX_SHOWN = 1000, 200
Found = dict[str, Any]
Finding = HarborChange | Remark
T = TypeVar("T")
R = TypeVar("R")


@dataclass
class Site:
    """One Harbor with its vault, and the numbers by which Harbor knows its objects."""

    client: Client
    vault: Vault
    directory: Path
    secret_command: tuple[str, ...] = ()
    robot_prefix: str = "robot$"
    quotas: bool = True
    prune: bool = False
    prove: bool = False
    # Whether robots whose secrets others know are given new ones.
    adopt: bool = False
    ids: dict[Subject, int] = field(default_factory=dict)
    # What is to be there, and of that what is there and can never be as declared.
    declared: set[Subject] = field(default_factory=set)
    blocked: set[Subject] = field(default_factory=set)
    # Projects of which Harbor's answers cannot be read, and why.
    unread: dict[str, str] = field(default_factory=dict)
    # Why not all projects could be listed.
    unlisted: str = ""
    # What Harbor lists under names that it gives to nothing.
    unreadable: set[Subject] = field(default_factory=set)
    _sealed: threading.Event = field(default_factory=threading.Event, init=False, repr=False)

    def __post_init__(self) -> None:
        for user, secret in self.vault.secrets():
            self.client.hidden.add(secret.get_secret_value(), user)

    def public(self, text: str, limit: int = 300) -> str:
        """What Harbor says, as it may be shown: on one line, and without secrets that it was told."""
        return self.client.hidden.public(text, limit)

    def public_finding(self, found: Finding) -> Finding:
        """What was found, with Harbor's words in it as they may be shown."""
        if isinstance(found, Remark):
            return replace(found, why=self.public(found.why, LONG))
        return replace(found, differences=tuple(map(self._public_difference, found.differences)))

    def _public_difference(self, one: FieldDifference) -> FieldDifference:
        after = self.client.hidden.mask(one.after) if isinstance(one.after, str) else one.after
        return replace(one, before=self._public_value(one.before), after=after)

    def _public_value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.public(value)
        if isinstance(value, list | tuple | set | frozenset):
            some = sorted(str(self._masked(one)) for one in value)[:MAX_SHOWN]
            more = [f"... and {len(value) - len(some)} more"] if len(value) > len(some) else []
            return [*map(self.public, some), *more]
        if value is None or isinstance(value, bool):
            return value
        # Of anything else as it would be printed: an object where Harbor's API has a text, a huge number.
        printed = str(self._masked(value))
        return value if printed == self.public(printed) == str(value) else self.public(printed)

    def _masked(self, value: Any) -> Any:
        """The same with texts masked before they are printed in quotes, with what that escapes."""
        if isinstance(value, str):
            return self.client.hidden.mask(value)
        if isinstance(value, dict):
            return {self._masked(str(key)): self._masked(one) for key, one in value.items()}
        return [self._masked(one) for one in value] if isinstance(value, list) else value

    def id_of(self, kind: str, name: str) -> int:
        """The number of an object that must be there. Raises Deferred where it is not."""
        try:
            return self.ids[kind, name]
        except KeyError:
            raise Deferred(f"there is no {kind} {name} yet") from None

    def name_of(self, kind: str, number: int) -> str:
        """The name of an object by its number; empty where it is unknown."""
        return next((name for (k, name), n in self._known() if (k, n) == (kind, number)), "")

    def has_any(self, kind: str) -> bool:
        """Whether there is an object of this kind."""
        return any(k == kind for (k, _), _ in self._known())

    def _known(self) -> Iterable[tuple[Subject, int]]:
        """A copy: what other threads make at this moment is added there."""
        return self.ids.copy().items()

    def block(self, kind: str, name: str, why: str) -> Remark:
        """What Harbor never makes as declared; nothing is built on it."""
        self.blocked.add((kind, name))
        return Remark(kind, name, why, blocks=True)

    def of_project(self, name: str, read: Callable[[], T]) -> T | None:
        """What belongs to a project; None where that cannot be read, which is said of this one alone: who
        administers a project decides how much is in it.
        """
        try:
            with self.client.confined():
                return read()
        except BrokenAnswer as broken:
            self.unread.setdefault(name, f"{broken.what}: {broken.sentence}")
            return None

    def is_in_unread(self, key: str, between: str) -> bool:
        """Whether an object, by its project and name, is of a project that cannot be read."""
        project, has_project, _ = key.partition(between)
        return bool(has_project) and project in self.unread

    def secret(self, file: str, command: tuple[str, ...], what: str) -> SecretStr | None:
        """A declared secret from where it is kept; None if there is none."""
        if not (file or command):
            return None
        if file:
            secret = read_secret_file(self.directory / user_path(file), what)
        else:
            secret = secret_of_command(command, what)
        self.client.hidden.add(secret.get_secret_value())
        return secret

    def may_hand_over(self) -> None:
        """Raises Deferred where the keeper has failed in this run: what it was to keep is not started."""
        if self._sealed.is_set():
            raise Deferred("the program that keeps secrets has failed before")

    def hand_over(self, user: str, secret: SecretStr) -> None:
        """Give a robot's secret to the site's own keeper, which is asked no more once it has failed.

        Raises ClusterctlError (``registry.secret-command``), and Deferred after such a failure.
        """
        self.may_hand_over()
        try:
            hand_to_command(self.secret_command, user, secret)
        except ClusterctlError:
            self._sealed.set()
            raise


def each(site: Site, function: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """The results, in order, of as many calls at a time as Harbor is given.

    Where one fails, or the person interrupts, none is started any more, and none is tried again.
    """
    return parallel_map(function, items, limit=CONNECTIONS, stop=site.client.stop)


def by_project(
    site: Site, names: Sequence[str], read: Callable[[Site, str], Sequence[Found]]
) -> dict[str, Sequence[Found]]:
    """By project the objects that it has; none of one that cannot be read, which is said of that alone."""
    lists = each(site, lambda name: site.of_project(name, partial(read, site, name)) or (), names)
    return dict(zip(names, lists, strict=True))


def by_name(found: Iterable[Found]) -> dict[str, Found]:
    """Objects by the name they go by."""
    return {one["name"]: one for one in found}


def make(
    create: Callable[[], None],
    find: Callable[[], Found | None],
    update: Callable[[Found], None],
    *,
    conflicts: Collection[int] = (CONFLICT,),
) -> None:
    """Create an object; where someone was faster (``conflicts``), read it again and make it as declared."""
    try:
        create()
    except Refused as refused:
        found = find() if refused.status in conflicts else None
        if found is None:
            raise
        update(found)


def surplus(
    site: Site, kind: str, name: str, remove: Callable[[], None], *, spared: str = ""
) -> Iterator[Finding]:
    """An object that nobody declared: reported, and deleted only when asked to prune.

    ``spared`` is the reason why it is not even then.
    """
    name = site.public(name)
    if spared:
        yield Remark(kind, name, f"is not declared; it is kept ({spared})")
    elif site.prune:
        yield HarborChange(kind, name, Action.DELETE, remove)
    else:
        yield Remark(kind, name, "is not declared; it is kept (--prune deletes it)")
