"""Flow control of RoCE ports: `dcb pfc show`, and the priorities with congestion notification."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from clustercheck.parse.document import member
from clustercheck.parse.reading import CannotReadError, program_output

_WHAT = "the probe's record of flow control"
_LINE = re.compile(r"prio-pfc((?: [0-7]:(?:on|off)){8})\s*")

# iproute2's dcb/dcb_app.c prints it.
_CODE_POINTS = re.compile(r"dscp-prio((?: (?:[1-5]?[0-9]|6[0-3]):[0-7])+)\s*")


@dataclass(frozen=True)
class FlowControl:
    """Priorities (0 to 7) with flow control, and with notification by receiver and sender; None: not told."""

    paused: tuple[int, ...] | None
    receiver: tuple[int, ...] | None
    sender: tuple[int, ...] | None


def parse_flow_control(record: Any, interface: str) -> FlowControl:
    """The settings of one interface.

    Raises CannotReadError where the probe has nothing of it, neither way of reading gave a value, or one
    said what no interface says.
    """
    answer = member(record, interface, dict, _WHAT)
    ecn = member(answer, "ecn", dict, _WHAT)
    receiver, sender = (_priorities(ecn.get(role)) for role in ("roce_np", "roce_rp"))
    paused, why = None, ""
    try:
        paused = _paused(program_output(answer.get("pfc"), f"dcb pfc show dev {interface}"))
    except CannotReadError as error:
        why = str(error)
    if paused is None and receiver is None and sender is None:
        raise CannotReadError(f"{why}, and {interface} has no ecn directory")
    return FlowControl(paused, receiver, sender)


def parse_code_points(record: Any, interface: str) -> dict[int, int]:
    """The priority of each code point (0 to 63) that has one; none where the port goes by something else.

    None either where dcb does not say: it is older, or missing.
    """
    try:
        answer = member(record, interface, dict, _WHAT)
        text = program_output(answer.get("dscp"), f"dcb app show dev {interface}")
    except CannotReadError:
        return {}
    lines = [match for line in text.splitlines() if (match := _CODE_POINTS.fullmatch(line.strip()[:1000]))]
    found: dict[int, set[int]] = {}
    for point, priority in (pair.split(":") for pair in (lines[0][1].split() if len(lines) == 1 else ())):
        found.setdefault(int(point), set()).add(int(priority))
    return {point: min(given) for point, given in found.items() if len(given) == 1}


def _paused(text: str) -> tuple[int, ...]:
    """The priorities that are on, of a line that names each once. iproute2's dcb/dcb_pfc.c prints it."""
    found = [match for line in text.splitlines() if (match := _LINE.fullmatch(line.strip()[:200]))]
    pairs = [pair.split(":") for pair in found[0][1].split()] if len(found) == 1 else []
    if sorted(number for number, _ in pairs) != [str(number) for number in range(8)]:
        raise CannotReadError("dcb pfc show does not name every priority once")
    return tuple(sorted(int(number) for number, word in pairs if word == "on"))


def _priorities(answer: Any) -> tuple[int, ...] | None:
    if answer is None:
        return None
    known = {str(number): number for number in range(8)}
    if not isinstance(answer, list) or any(not isinstance(each, str) or each not in known for each in answer):
        raise CannotReadError(f"{_WHAT} names a priority that no network has")
    return tuple(sorted({known[each] for each in answer}))


def words(priorities: tuple[int, ...] | None) -> str:
    """As people say it."""
    if priorities is None:
        return "not reported"
    return ", ".join(map(str, priorities)) or "none"
