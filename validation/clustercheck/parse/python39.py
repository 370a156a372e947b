"""What the oldest Python of a node, 3.9, lacks of the standard library."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

T = TypeVar("T")

if sys.version_info >= (3, 11):
    from enum import StrEnum
    from itertools import pairwise
else:
    from collections.abc import Iterable, Iterator
    from enum import Enum
    from itertools import tee

    class StrEnum(str, Enum):
        """A text of a fixed set, which prints as the text."""

        __str__ = str.__str__
        __format__ = str.__format__

    def pairwise(items: Iterable[T]) -> Iterator[tuple[T, T]]:
        """Yields each item with the next one."""
        first, second = tee(items)
        next(second, None)
        return zip(first, second)


# For dataclasses: a thousand nodes have millions of them, and slots halve their memory.
SLOTS: Mapping[str, bool] = {"slots": True} if sys.version_info >= (3, 10) else {}

if TYPE_CHECKING:
    from dataclasses import dataclass as record
else:

    def record(**options: bool) -> Callable[[type[T]], type[T]]:
        """A dataclass of which there are millions: frozen for mypy, as that takes a call a field in a run."""
        return dataclass(**{**options, "frozen": False})


__all__ = ["SLOTS", "StrEnum", "pairwise", "record"]
