"""Where a program that measures one device says that it is, kept in memory."""

from __future__ import annotations


class Phases:
    """A Progress that is kept in memory."""

    def __init__(self) -> None:
        self.phases: list[str] = []

    @property
    def phase(self) -> str:
        return self.phases[-1]

    def set_phase(self, phase: str, *, collective: bool = False) -> None:
        assert not collective or "waiting" in phase
        self.phases.append(phase)
