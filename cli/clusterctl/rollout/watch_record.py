"""What a node's watch of outbound traffic answers, as the module `offline_watch` returns it."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from clusterctl.cluster.untrusted import Count, HostAnswer, Sentence, read_answer_as

# The watch itself writes down 200 of each.
MAX_CONTACTS = 500
MAX_SOURCES = 1000


class WatchedContact(HostAnswer, extra="allow"):
    """Whom a node turned to, and which program of it."""

    address: Sentence
    protocol: Sentence
    times: Count
    port: Count | None = None
    by: Sentence | None = None
    unit: Sentence | None = None


Contacts = Annotated[list[WatchedContact], Field(max_length=MAX_CONTACTS)]


class WatchRecord(HostAnswer, extra="allow"):
    """What was heard until the watch ended."""

    run: Sentence = ""
    ended: bool = False
    outside: Contacts = Field(default=[])
    open: Contacts = Field(default=[])
    inside: dict[str, Count] = Field(default={})
    gaps: Count = 0
    lost: Count = 0


class WatchAnswer(HostAnswer, extra="allow"):
    """``sources`` of packages elsewhere, with the files that name each; ``record`` once it has ended."""

    sources: Annotated[dict[str, list[Sentence]], Field(max_length=MAX_SOURCES)] = Field(default={})
    listening: bool = False
    record: WatchRecord | None = None


def read_watch(answer: object) -> dict[str, Any]:
    """The answer as it came, cleaned; nothing where there is none. Raises CannotReadError."""
    if answer is None:
        return {}
    read = read_answer_as(WatchAnswer, answer, "what its watch answers")
    return read.model_dump(exclude_unset=True, exclude_none=True)
