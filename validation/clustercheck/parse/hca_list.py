"""NCCL_IB_HCA: which RDMA adapters NCCL may use, in NCCL's own syntax."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

Entry = tuple[str, Optional[int]]  # an adapter's name or its start; a port, None for every port


@dataclass(frozen=True)
class HcaList:
    """The adapters of ``entries`` (by name if ``exact``, else by what it starts with), or all but these."""

    entries: tuple[Entry, ...]
    exact: bool = False
    exclude: bool = False

    def selects(self, adapter: str, port: int) -> bool:
        """Whether NCCL may use this port."""
        found = not self.entries or any(self.matches(entry, adapter, port) for entry in self.entries)
        return found is not self.exclude

    def matches(self, entry: Entry, adapter: str, port: int) -> bool:
        """Whether an entry is of this port."""
        name, number = entry
        fits = adapter == name if self.exact else adapter.startswith(name)
        return fits and number in (None, port)


def parse_hca_list(text: str) -> HcaList | None:
    """What the text selects; None where it names nothing, which is every adapter (after ``^`` none).

    First ``^`` for all but these, then ``=`` for exact names; entries as adapter:port, with NCCL 2.30's rail
    and plane behind the port. Blanks belong to names [NCCL, environment variables: NCCL_IB_HCA;
    src/misc/utils.cc, parseStringList].
    """
    exclude, text = text.startswith("^"), text.removeprefix("^")
    exact, text = text.startswith("="), text.removeprefix("=")
    entries = tuple(_entry(part) for part in text.split(",") if part.partition(":")[0])
    return HcaList(entries, exact, exclude) if entries or exclude else None


def _entry(text: str) -> Entry:
    name, _, rest = text.partition(":")
    number = rest.partition(":")[0]
    if not number:
        return name, None
    return name, int(number) if number.isdecimal() else 0  # as atoi of what is no number: no port has it
