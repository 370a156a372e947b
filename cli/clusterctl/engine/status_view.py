"""The state of all hosts in the lines and columns there are: pure, from a ledger to lines."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from rich.text import Text

from clustercheck.parse.plain_text import one_line
from clusterctl.engine.events import TaskStarted
from clusterctl.engine.failure import title_of
from clusterctl.engine.ledger import HostRecord, Ledger
from clusterctl.engine.wording import alike, counted, elapsed, folded

# The share of a window's lines, so that earlier messages can be read above.
SHARE = 2 / 3
FEWEST_LINES = 6
SLOWEST_SHOWN = 5
# A host that finishes its task sooner gets no line among a hundred.
SLOW_AFTER_S = 3.0
# The headline, the step, the counts, and one host that is at work.
KEPT_FOR_THE_REST = 4
WIDEST_NAME = 24


class DisplayState(StrEnum):
    """What is displayed of a host. The order is that of the counts."""

    FAILED = "failed"
    UNREACHABLE = "unreachable"
    BUSY = "busy"
    AT_WORK = "at work"
    WAITING = "waiting"


BAD = (DisplayState.FAILED, DisplayState.UNREACHABLE)
STYLES = {
    DisplayState.FAILED: "red",
    DisplayState.UNREACHABLE: "red",
    DisplayState.BUSY: "yellow",
    DisplayState.WAITING: "dim",
}


@dataclass(frozen=True)
class ProgressContext:
    """What the ledger does not know: the command, its part and step, and when it started (epoch)."""

    title: str
    part: str = ""
    began: float = 0.0
    steps: int = 0
    step: TaskStarted | None = None
    interrupted: bool = False


def display_state_of(one: HostRecord) -> DisplayState:
    """The displayed state; a host that failed and runs a task again was rescued."""
    if one.running:
        return DisplayState.AT_WORK
    if one.unreachable:
        return DisplayState.UNREACHABLE
    if one.failed:
        return DisplayState.FAILED
    return DisplayState.BUSY if one.busy else DisplayState.WAITING


def render_status(
    ledger: Ledger, context: ProgressContext, now: float, columns: int, lines: int
) -> list[Text]:
    """At most ``lines`` lines, each of at most ``columns`` columns.

    One line a host where that fits; else the counts, the slowest hosts, and all that failed by name.
    """
    room = min(lines, max(FEWEST_LINES, int(lines * SHARE)))
    hosts = list(ledger.hosts.values())
    head = _headline(context, len(hosts), now, columns)
    if len(hosts) + 2 <= room:
        name = max((len(one.name) for one in hosts), default=0)
        return [head, *(_host(one, now, columns, name) for one in hosts), row(_counts(hosts), "", columns)]
    bad = _bad(hosts, now, columns, room - KEPT_FOR_THE_REST)
    if bad is None:  # names come before what was told above
        room = lines
        bad = _bad(hosts, now, columns, room - KEPT_FOR_THE_REST) or _cut(hosts, columns, room)
    slow = [one for one in ledger.running() if now - one.since >= SLOW_AFTER_S]
    slowest = slow[: max(0, min(SLOWEST_SHOWN, room - KEPT_FOR_THE_REST + 1 - len(bad)))]
    name = max((len(one.name) for one in slowest), default=0)
    drawn = [head, _step(context, now, columns), row(_counts(hosts), "", columns), *bad]
    return [*drawn, *(_host(one, now, columns, name) for one in slowest)][:room]


def _headline(context: ProgressContext, number: int, now: float, columns: int) -> Text:
    step = f"step {context.steps}" if context.steps else ""
    stopping = "stopping" if context.interrupted else ""
    words = filter(None, (context.title, stopping, context.part, counted(number, "host"), step))
    return row(Text(" · ".join(words), style="bold"), elapsed(now - context.began), columns)


def _step(context: ProgressContext, now: float, columns: int) -> Text:
    if context.step is None:
        return Text("no task started yet", style="dim")
    return row(Text(one_line(title_of(context.step))), elapsed(now - context.step.at), columns)


def _counts(hosts: Sequence[HostRecord]) -> Text:
    states = [display_state_of(one) for one in hosts]
    line = Text()
    for state in DisplayState:
        if number := states.count(state):
            line.append(", " if line else "").append(f"{number} {state}", style=STYLES.get(state, ""))
    if changed := sum(1 for one in hosts if one.changed):
        line.append(f" · {changed} changed", style="dim")
    return line


def _host(one: HostRecord, now: float, columns: int, widest_name: int) -> Text:
    state = display_state_of(one)
    name = Text(f"  {one.name}")
    name.truncate(min(widest_name, WIDEST_NAME) + 4, overflow="ellipsis", pad=True)
    what = name.append(one_line(_said_of(one, state)), style=STYLES.get(state, ""))
    return row(what, elapsed(now - one.since) if state is DisplayState.AT_WORK else "", columns)


def _said_of(one: HostRecord, state: DisplayState) -> str:
    if state is DisplayState.AT_WORK:
        return f"{one.doing} (try {one.attempt + 1})" if one.attempt else one.doing
    if state is DisplayState.BUSY:
        return f"busy: {one.busy}"
    if state is DisplayState.WAITING:
        return f"waiting, {one.ok} ok, {one.changed} changed" if one.heard else "waiting"
    return f"{state}: {_because(one)}"


def _because(one: HostRecord) -> str:
    return f"{one.failure.task}: {one.failure.headline}" if one.failure else "it gave no reason"


def _bad(hosts: Iterable[HostRecord], now: float, columns: int, room: int) -> list[Text] | None:
    """Every host that failed or is unreachable by name, with reasons if they fit; None where names do not."""
    bad = [one for one in hosts if display_state_of(one) in BAD]
    if len(bad) <= room:
        name = max((len(one.name) for one in bad), default=0)
        return [_host(one, now, columns, name) for one in bad]
    by_reason: dict[str, list[str]] = {}
    words: dict[str, str] = {}
    for one in bad:
        answer = _said_of(one, display_state_of(one))
        by_reason.setdefault(words.setdefault(alike(answer, one.name), answer), []).append(one.name)
    by_state = {state: [one.name for one in bad if display_state_of(one) is state] for state in BAD}
    for groups, fold in ((by_reason, False), (by_reason, True), (by_state, False), (by_state, True)):
        lines = [line for why, group in groups.items() for line in _group(why, group, columns, fold=fold)]
        if len(lines) <= room:
            return lines
    return None


def _cut(hosts: Iterable[HostRecord], columns: int, room: int) -> list[Text]:
    """As many names as there is room for."""
    names = [one.name for one in hosts if display_state_of(one) in BAD]
    lines = _group("failed", names, columns, fold=True)
    return [*lines[: max(0, room - KEPT_FOR_THE_REST - 1)], Text("    and more", style="red")]


def _group(why: str, hosts: Sequence[str], columns: int, *, fold: bool) -> list[Text]:
    """What hosts have in common, and their names below it."""
    if not hosts:
        return []
    head = Text(f"  {len(hosts)} {one_line(why)}", style="red")
    head.truncate(columns, overflow="ellipsis")
    words = ", ".join(folded(hosts) if fold else hosts)
    indent = "    "
    wrapped = textwrap.wrap(
        words, columns, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
    )
    return [head, *(Text(line, style="red") for line in wrapped)]


def row(left: Text, right: str, columns: int) -> Text:
    """Text from the left, cut where it must be, and a time at the right end."""
    if not right:
        left.truncate(columns, overflow="ellipsis")
        return left
    left.truncate(max(1, columns - len(right) - 2), overflow="ellipsis", pad=True)
    return left.append(f"  {right}", style="dim")
