"""What all kinds of objects share while one Harbor is reconciled."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pydantic import SecretStr

from clustercheck.parse.plain_text import one_line
from clusterctl.errors import ClusterctlError
from clusterctl.parallel import parallel_map
from clusterctl.registry.harbor.change import Action, Deferred, HarborChange, Remark, Subject
from clusterctl.registry.harbor.client import CONNECTIONS, Client, Refused
from clusterctl.registry.harbor.secret_text import (
    hand_to_command,
    read_secret_file,
    secret_of_command,
)
from clusterctl.registry.harbor.vault import Vault

CONFLICT = 409
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
    _sealed: threading.Event = field(default_factory=threading.Event, init=False, repr=False)

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

    def secret(self, file: str, command: tuple[str, ...], what: str) -> SecretStr | None:
        """A declared secret from where it is kept; None if there is none."""
        if file:
            return read_secret_file(self.directory / Path(file).expanduser(), what)
        return secret_of_command(command, what) if command else None

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
    name = one_line(name)
    if spared:
        yield Remark(kind, name, f"is not declared; it is kept ({spared})")
    elif site.prune:
        yield HarborChange(kind, name, Action.DELETE, remove)
    else:
        yield Remark(kind, name, "is not declared; it is kept (--prune deletes it)")
