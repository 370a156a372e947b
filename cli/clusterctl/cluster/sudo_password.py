"""Whether sudo's password is right, by what hosts say of it: no host alone decides that for the others."""

from __future__ import annotations

import threading
from collections.abc import Callable

from clustercheck.launch.bounded import in_turn
from clustercheck.launch.transport import NodeUnreachableError

# So many hosts say that it is wrong before it is tried on no other, or that it is right before all are asked
# at the same time: one may lie, or have another password. Three wrong attempts may lock an account.
WITNESSES = 2


class PasswordRefusedError(NodeUnreachableError):
    """sudo does not take the password on this host. ``is_wrong``: it is tried on no further host."""

    def __init__(self, node: str, because: str, *, is_wrong: bool = False) -> None:
        super().__init__(node, because)
        self.is_wrong = is_wrong


class PasswordTrial:
    """The verdict on one password, host by host. Safe from many threads."""

    def __init__(self) -> None:
        self._asking = threading.Lock()
        self._took: set[str] = set()
        self._refusals: dict[str, str] = {}

    def require(self, node: str, ask: Callable[[], object]) -> None:
        """Ask one host at a time, by ``ask``, until the verdict is clear: all may share the account.

        Raises PasswordRefusedError, and what ``ask`` raises. A host that refused it is not asked again.
        """
        if node in self._took or (self._is_right and node not in self._refusals):
            return  # also while another host hangs in its own trial
        with in_turn(self._asking):
            if node in self._refusals:
                raise PasswordRefusedError(node, self._refusals[node], is_wrong=self.is_wrong)
            if node in self._took or self._is_right:
                return
            if self.is_wrong:
                names = " and ".join(self._refusals)
                because = f"the password was not tried: sudo refused it on {names}"
                raise PasswordRefusedError(node, because, is_wrong=True)
            ask()

    def take(self, node: str) -> None:
        """Note that sudo took it there."""
        self._took.add(node)

    def refuse(self, node: str, because: str) -> PasswordRefusedError:
        """Note that sudo refused it there, and why."""
        self._refusals.setdefault(node, because)
        return PasswordRefusedError(node, because, is_wrong=self.is_wrong)

    def knows(self, node: str) -> bool:
        """Whether this host has said what it makes of it."""
        return node in self._took or node in self._refusals

    @property
    def was_taken(self) -> bool:
        """Whether sudo took it anywhere."""
        return bool(self._took)

    @property
    def is_wrong(self) -> bool:
        """Whether enough hosts have refused it, and not as many have taken it."""
        return len(self._refusals) >= WITNESSES and not self._is_right

    @property
    def _is_right(self) -> bool:
        return len(self._took) >= WITNESSES
