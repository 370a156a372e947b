"""What the operator takes out of a validation by name: who said so, why, and until when."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date

from clustercheck.model import Subject

EVERYWHERE = "all"  # Ansible's own group of every host: no host has this name


@dataclass(frozen=True)
class Exclusion:
    """One check on one node, or one GPU of it; ``until`` is the last day. EVERYWHERE is every subject."""

    check: str
    node: str
    who: str
    why: str
    until: date
    gpu: int | None = None

    def covers(self, check: str, subject: Subject) -> bool:
        """Whether it is of this check and subject; of a pair, either node counts."""
        if check != self.check or (self.gpu is not None and self.gpu != subject.gpu):
            return False
        return self.node == EVERYWHERE or self.node in (subject.node, subject.peer)

    @property
    def place(self) -> str:
        """The check and where, as a sentence names it."""
        where = "every subject" if self.node == EVERYWHERE else self.node
        return f"{self.check} on {where}" + (f" GPU {self.gpu}" if self.gpu is not None else "")

    @property
    def reason(self) -> str:
        """What stands in the report."""
        return f"excluded by {self.who} until {self.until}: {self.why}"

    @property
    def lapsed(self) -> str:
        """What is said when its time is over."""
        return f"the exclusion of {self.place} ended with {self.until}: it counts again"


def in_force(exclusions: Iterable[Exclusion], today: date) -> tuple[Exclusion, ...]:
    """Those whose last day is not over."""
    return tuple(each for each in exclusions if today <= each.until)


def lapsed(exclusions: Iterable[Exclusion], today: date) -> tuple[Exclusion, ...]:
    """Those whose last day is over."""
    return tuple(each for each in exclusions if today > each.until)
