"""Is the node's clock right, against its peers and against this machine's?"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from clustercheck.checks.base import Check, Finding, SeededFault, every_node, failed, not_run, passed
from clustercheck.checks.support import seeding
from clustercheck.evidence.cluster import Evidence
from clustercheck.evidence.node import NodeEvidence
from clustercheck.model import Scope, Section, Subject, Verdict
from clustercheck.parse.reading import CannotReadError

# Logs of several nodes are read side by side, and make and file servers compare times: seconds matter there.
PEERS_S = 2.0
# Certificates and tickets tolerate minutes; the controller may be a laptop, and be the one that is wrong.
CONTROLLER_S = 60.0
DOUBT_S = 30.0
QUORUM = 3  # nodes that answer: with fewer nobody can tell which of two clocks is right


@dataclass(frozen=True)
class Offset:
    """How far a clock is ahead of this machine's, in seconds: somewhere from ``low`` to ``high``."""

    low: float
    high: float

    @property
    def middle(self) -> float:
        """The best guess."""
        return (self.low + self.high) / 2

    def least_from(self, other: Offset) -> float:
        """How far it is from another at the least; negative where it is behind."""
        return max(self.low - other.high, 0.0) + min(self.high - other.low, 0.0)


HERE = Offset(0.0, 0.0)


def offset_of(node: NodeEvidence) -> Offset:
    """From when the probe was asked for and came back here, and when it started and ended there.

    It cannot have started before it was asked for, nor ended after it came back. Raises CannotReadError.
    """
    began, ended = node.raw.get("clock_began"), node.raw.get("clock_ended")
    if not isinstance(began, (int, float)) or not isinstance(ended, (int, float)) or node.asked is None:
        raise CannotReadError("the probe did not report the time")
    offset = Offset(ended - node.asked[1], began - node.asked[0])
    if offset.low > offset.high:
        raise CannotReadError("the clock was set while the probe ran")
    return offset


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """Wrong is what the times prove wrong; where a slow log-in leaves DOUBT_S open, nobody knows."""
    name = str(subject.node)
    mine = offset_of(evidence.nodes[name])
    more = {"offset_s": round(mine.middle, 2), "doubt_s": round((mine.high - mine.low) / 2, 2)}
    if mine.high - mine.low > DOUBT_S:
        return not_run(
            f"the log-in took {mine.high - mine.low:.0f} s: the clock cannot be compared", evidence=more
        )
    reference, among = evidence.once(_reference)
    if abs(least := mine.least_from(reference)) > PEERS_S:
        return failed(_said(least, among), round(least, 1), PEERS_S, unit="s", evidence=more)
    if abs(least := mine.least_from(HERE)) > CONTROLLER_S:
        because = f"{_said(least, 'this machine')}, like the other nodes"
        return failed(because, round(least, 1), CONTROLLER_S, unit="s", evidence=more, remedy=ALL_WRONG)
    return passed(round(mine.least_from(reference), 1), PEERS_S, unit="s", source=among, evidence=more)


def _reference(evidence: Evidence) -> tuple[Offset, str]:
    """What a clock is compared with, and in words: the nodes' median, this machine's where they are few."""
    peers = _offsets(evidence)
    if len(peers) < QUORUM:
        return HERE, "this machine"
    return _median(peers), f"most of {len(peers)} nodes"


def _offsets(evidence: Evidence) -> list[Offset]:
    found = []
    for name in evidence.reachable:
        with contextlib.suppress(CannotReadError):
            found.append(offset_of(evidence.nodes[name]))
    return found


def _median(offsets: Sequence[Offset]) -> Offset:
    """Where the median of the true offsets lies: it grows with each of them, so between these two."""
    return Offset(median(each.low for each in offsets), median(each.high for each in offsets))


def _said(least: float, of: str) -> str:
    return f"its clock is {abs(least):.1f} s or more {'ahead of' if least > 0 else 'behind'} that of {of}"


def _ahead(node: str, by_s: float) -> seeding.Inject:
    def change(raw: seeding.Raw) -> None:
        raw["clock_began"] += by_s
        raw["clock_ended"] += by_s

    return seeding.edit(node, change)


def _all_ahead(by_s: float) -> seeding.Inject:
    return seeding.chain(*(_ahead(node, by_s) for node in ("gpu01", "gpu02", "gpu03")))


def _open(node: str, seconds: float) -> seeding.Inject:
    """A log-in that leaves so much open, where the sample's leaves 0.6 s."""

    def change(raw: seeding.Raw) -> None:
        raw["clock_began"] += seconds - 0.6

    return seeding.edit(node, change)


ALL_WRONG = (
    "Compare the clocks of this machine and of a node (`date -u`): one of them is wrong, which affects "
    "certificates and logs. Configure a correct time server on the nodes."
)
CHECK = Check(
    id="clock",
    title="Clock",
    section=Section.SYSTEM,
    scope=Scope.HOST,
    measures=(
        "minimum difference of the node's clock from those of most nodes (of three or more) and of this "
        "machine"
    ),
    method="time on the node when the probe started and ended, between its request and its answer",
    requires="a log-in that does not take half a minute",
    expectation=f"within {PEERS_S:g} s of the other nodes, {CONTROLLER_S:g} s of this machine",
    remedy=(
        "Set the node's clock and keep it synchronised: see `timedatectl`, and configure chrony or "
        "systemd-timesyncd with a time server that the node can reach."
    ),
    subjects=every_node,
    judge=judge,
    faults=(
        SeededFault("clock-ahead", _ahead("gpu02", 600.0), Subject("gpu02")),
        SeededFault("clock-behind", _ahead("gpu01", -5.0), Subject("gpu01")),
        # Its log-in leaves 0.2 s open before its time, and 0.4 s after it, as those of the others.
        SeededFault("2.1-s-ahead", _ahead("gpu02", 2.1 + 0.6), Subject("gpu02")),
        SeededFault("1.9-s-ahead", _ahead("gpu02", 1.9 + 0.6), Subject("gpu02"), Verdict.PASS),
        SeededFault("all-63-s-ahead", _all_ahead(63.0 + 0.2), Subject("gpu03")),
        SeededFault("all-57-s-ahead", _all_ahead(57.0 + 0.2), Subject("gpu03"), Verdict.PASS),
        SeededFault("31.5-s-open", _open("gpu01", 31.5), Subject("gpu01"), Verdict.NOT_RUN),
        SeededFault("28.5-s-open", _open("gpu01", 28.5), Subject("gpu01"), Verdict.PASS),
        SeededFault(
            "every-clock-wrong",
            _all_ahead(3600.0),
            Subject("gpu03"),
        ),
        SeededFault(
            "no-time-told",
            seeding.edit("gpu03", lambda raw: raw.pop("clock_ended")),
            Subject("gpu03"),
            Verdict.NOT_RUN,
        ),
    ),
)
