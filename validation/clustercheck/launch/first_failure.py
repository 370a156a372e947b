"""The outcome of each rank, and which failed first: pure functions of what ranks and nodes left behind."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from clustercheck.launch.model import JobOutcome, RankOutcome, RankState

# A rank that fails with such an error lost its peers: it is a witness, not the cause.
PEER_GONE = re.compile(
    r"connection (closed|reset|refused)|\bpeers?\b|timed? ?out|broken pipe|remote|gloo|nccl|tcp_?store"
    r"|socket|\btcp (send|receive) error",
    re.I,
)
# So is one to which the first node's store told any length, where it joins the group
# [Paddle, paddle/phi/core/distributed/store/tcp_utils.h].
MADE_UP_LENGTH = re.compile(
    r"while joining the group: (?!.*cuda).*(bad_alloc|max_size\(\)|length_error)", re.I
)
# What a rank says of its own device or image, wherever it notices it: a GPU's error shows in a collective.
OWN_CAUSE = re.compile(
    r"cuda ?error|cublas_status|cudnn_status|\bECC\b|\bxid\b|nvlink|illegal (memory|address|instruction)"
    r"|out of memory|MemoryError|bad_alloc|no space left|no such device|device-side assert|ImportError"
    r"|ModuleNotFoundError",
    re.I,
)
# What a library logs when it gives up on a peer and aborts its process: gloo also where one sends too much.
GAVE_UP = re.compile(
    r"timed? ?out|connection (closed|reset|refused)|broken pipe|enforce fail at [^\n]*/gloo/", re.I
)
# What a rank says of a peer that is gone, and not just silent.
DISCONNECTED = re.compile(r"disconnected|connection (closed|reset)|broken pipe", re.I)
# What one rank passes without the others.
ONE_TO_MANY = re.compile(r"broadcast", re.I)
WITNESSES = 2  # nodes: what only one says of how far it came decides nothing for the others
ENDED_THEMSELVES = (RankState.FAILED, RankState.CRASHED, RankState.LOST_PEER)
TIMEOUT_REASONS = ("deadline", "stalled")  # why a supervisor killed ranks that hung
PEER_FAILED = "peer failed"  # the same, after another rank of its node
STUCK_STATES = {"T": "is stopped", "t": "is stopped", "D": "is blocked in the kernel", "Z": "is a zombie"}


@dataclass(frozen=True)
class RankEvidence:
    """What is known of one rank after the job. ``missing`` is the reason if its node sent nothing.

    ``is_unprovoked``: its node killed it before the launcher stopped any, and without the time for a hang.
    """

    rank: int
    node: str
    gpu: int | None = None
    verdict: Mapping[str, Any] | None = None
    end: Mapping[str, Any] | None = None
    progress: Mapping[str, Any] | None = None
    stack: str = ""
    log_tail: str = ""
    nccl_log: str = ""
    missing: str = ""
    container: str = ""
    arrival: int = 0
    order: int = field(default=0)
    is_unprovoked: bool = False


def judge_group(
    evidence: Sequence[RankEvidence], is_late: bool, *, through_first: bool = False
) -> tuple[tuple[RankOutcome, ...], RankOutcome | None]:
    """Every rank's outcome, and the one that failed first (None if none did or it cannot be determined).

    ``is_late``: by the launcher's clock the job took longer than any healthy phase. Before that a rank that
    gave up tells nothing of others that are not ready yet, but of two nodes. ``through_first``: ranks are
    connected to the first one alone, so that a rank that lost its peer lost that one.
    """
    outcomes = {item.rank: _judge_rank(item) for item in evidence}
    timed_out = is_late and any((i.end or {}).get("killed") in TIMEOUT_REASONS for i in evidence)
    early = _find_early(evidence, outcomes, timed_out)
    if not early and not timed_out:
        early = _find_contradiction(evidence, outcomes)
    for item, because in early:
        outcomes[item.rank] = replace(outcomes[item.rank], state=RankState.HUNG, because=because)
    outcomes = _mark_witnesses(evidence, outcomes)
    waiting = [item for item in evidence if outcomes[item.rank].state is RankState.KILLED]
    origins = [
        outcomes[item.rank]
        for item in sorted(evidence, key=lambda item: (item.arrival, item.order))
        if _is_origin(item, outcomes[item.rank])
    ]
    unreachable = [outcome for outcome in outcomes.values() if outcome.state is RankState.UNREACHABLE]
    witnesses = any(o.state in (RankState.FAILED, RankState.LOST_PEER) for o in outcomes.values())
    may_hang = is_late or len({item.node for item in evidence}) <= WITNESSES
    is_clear = not early and not origins and not unreachable and (timed_out or witnesses)
    hung = early
    if is_clear:
        hung = _find_stuck(waiting)
        if not hung and may_hang:
            hung = _find_hung(waiting, whole=len(waiting) == len(evidence))
    for item, because in hung:
        outcomes[item.rank] = replace(outcomes[item.rank], state=RankState.HUNG, because=because)
    hung_outcomes = [outcomes[item.rank] for item, _ in hung]
    only_hung = hung_outcomes if len(hung_outcomes) == 1 else []
    failed = [o for o in outcomes.values() if o.state in ENDED_THEMSELVES]
    # Several that gave up on each other, or one on others that wait alike for long, do not tell who began.
    is_only = (not waiting or not (may_hang or hung)) and len({outcome.node for outcome in failed}) == 1
    candidates = [*unreachable, *only_hung, *origins]
    if not candidates and is_only:
        master = outcomes.get(0)
        if through_first and master is not None and _may_have_left(master, failed[0]):
            # Either of the two may have ended their connection. One that others wait with is no suspect.
            state = RankState.HUNG if waiting else RankState.LOST_PEER
            because = f"{failed[0].node} lost its connection to it"
            outcomes[0] = replace(master, state=state, because=because)
            outcomes[failed[0].rank] = replace(failed[0], state=state if waiting else failed[0].state)
        else:
            candidates = failed
    ranks = tuple(outcomes[rank] for rank in sorted(outcomes))
    return ranks, candidates[0] if candidates else None


def judge_ranks(evidence: Sequence[RankEvidence]) -> tuple[tuple[RankOutcome, ...], RankOutcome | None]:
    """The same for ranks without peers: each end is the rank's own, except while it waits for its turn."""
    outcomes = {item.rank: _judge_rank(item) for item in evidence}
    for item in evidence:
        is_waiting = bool((item.progress or {}).get("collective"))
        outcome = outcomes[item.rank]
        if outcome.state is RankState.KILLED and not is_waiting:
            ((_, because),) = _find_hung([item], whole=True)
            outcomes[item.rank] = replace(outcome, state=RankState.HUNG, because=because)
        elif outcome.state is RankState.CRASHED and is_waiting:  # its device was idle
            outcomes[item.rank] = replace(outcome, state=RankState.KILLED)
    failed = [
        outcomes[item.rank]
        for item in sorted(evidence, key=lambda item: (item.arrival, item.order))
        if outcomes[item.rank].state not in (RankState.OK, RankState.KILLED)
    ]
    return tuple(outcomes[rank] for rank in sorted(outcomes)), failed[0] if failed else None


def succeeded(item: RankEvidence) -> bool:
    """Whether it succeeded, by its own traces."""
    return _classify_end(item)[0] is RankState.OK


def names_a_witness(outcome: JobOutcome) -> bool:
    """Whether only one node is named, and another one may be the cause: it failed while it waited for its
    peers, with an error that is not of its own, or it is the first one, whose store takes what anybody sends,
    and was killed (as for its memory)."""
    first = outcome.first_failure
    if first is None or set(outcome.suspects) != {first.node}:
        return False
    was_filled = first.rank == 0 and first.exit_code == -signal.SIGKILL
    others = [rank for rank in outcome.ranks if rank.node != first.node]
    return (_lost_others(first) or was_filled) and any(
        rank.state is RankState.KILLED or _lost_others(rank) for rank in others
    )


def _lost_others(rank: RankOutcome) -> bool:
    """Whether what a peer sent, or did not, may have ended it."""
    has_failed = rank.state is RankState.FAILED and rank.waited_for_peers
    is_own = OWN_CAUSE.search(rank.because) and not MADE_UP_LENGTH.search(rank.because)
    return rank.state is RankState.LOST_PEER or (has_failed and not is_own)


def without_first_failure(outcome: JobOutcome) -> JobOutcome:
    """The same, where nobody can say who failed first."""
    ranks = tuple(
        replace(rank, state=RankState.LOST_PEER) if rank == outcome.first_failure else rank
        for rank in outcome.ranks
    )
    return replace(outcome, ranks=ranks, first_failure=None)


def mark_unprovoked(of_node: Sequence[RankEvidence], *, is_late: bool) -> list[RankEvidence]:
    """The evidence of the node that ended first: whom it killed for no reason, it failed."""
    reasons: tuple[str, ...] = TIMEOUT_REASONS if is_late else ()
    if any(not (item.end or {}).get("killed") and not succeeded(item) for item in of_node):
        reasons += (PEER_FAILED,)
    return [
        replace(item, is_unprovoked=(item.end or {}).get("killed", "") not in ("", *reasons))
        for item in of_node
    ]


def _judge_rank(item: RankEvidence) -> RankOutcome:
    """One rank's outcome by its own traces."""
    state, because = _classify_end(item)
    return RankOutcome(
        rank=item.rank,
        node=item.node,
        state=state,
        because=because,
        gpu=item.gpu,
        verdict=item.verdict,
        exit_code=item.end.get("exit_code") if item.end else None,
        log_tail=item.log_tail,
        stack=item.stack,
        nccl_log=item.nccl_log,
    )


def _classify_end(item: RankEvidence) -> tuple[RankState, str]:
    if item.missing:
        return RankState.UNREACHABLE, item.missing
    if item.end is None:
        return RankState.CRASHED, "the container exited before the rank finished" + _quote_last_line(
            item.container
        )
    code, verdict = item.end.get("exit_code"), item.verdict
    if _has_finished(item) and (code == 0 or item.end.get("killed")):
        return RankState.OK, ""
    if item.end.get("killed"):
        if item.is_unprovoked:
            state, how = RankState.CRASHED, "its node ended it"
        else:
            state, how = RankState.KILLED, "terminated"
        return state, f"{how} while {_phase_of(item)}"
    if verdict is not None and code == 1:
        return RankState.FAILED, str(verdict.get("because", ""))
    if isinstance(code, int) and code < 0:
        how, last = f"killed by {_signal_name(-code)}", ""
    else:
        how, last = f"exit code {code}", _quote_last_line(item.log_tail)
    return RankState.CRASHED, f"{how} while {_phase_of(item)}{last}"


def _has_finished(item: RankEvidence) -> bool:
    """Whether its verdict is whole; it is written before the wait at the end."""
    return item.verdict is not None and "phase" not in item.verdict


def _is_origin(item: RankEvidence, outcome: RankOutcome) -> bool:
    if outcome.state is RankState.CRASHED:
        return True
    if outcome.state is not RankState.FAILED:
        return False
    in_collective = bool((item.verdict or {}).get("collective"))
    has_lost = PEER_GONE.search(outcome.because) and not OWN_CAUSE.search(outcome.because)
    return not (in_collective and (has_lost or MADE_UP_LENGTH.search(outcome.because)))


def _may_have_left(master: RankOutcome, lost: RankOutcome) -> bool:
    """Whether the first rank may have ended another one's connection, and waited until it was stopped."""
    if master.state is RankState.KILLED:
        return DISCONNECTED.search(lost.because) is not None
    return master.state is RankState.OK


def _mark_witnesses(
    evidence: Sequence[RankEvidence], outcomes: Mapping[int, RankOutcome]
) -> dict[int, RankOutcome]:
    """Ranks that aborted after waiting for a peer are witnesses if another rank or node is the cause."""
    aborted = [i for i in evidence if outcomes[i.rank].state is RankState.CRASHED and _gave_up(i)]
    causes = (RankState.KILLED, RankState.UNREACHABLE, RankState.HUNG, RankState.FAILED)
    aborted_ranks = {item.rank for item in aborted}
    others = [item for item in evidence if item.rank not in aborted_ranks]
    if not any(outcomes[i.rank].state in causes or _is_origin(i, outcomes[i.rank]) for i in others):
        return dict(outcomes)
    gave_up = {
        item.rank: replace(
            outcomes[item.rank],
            state=RankState.LOST_PEER,
            because=f"gave up on a peer while {_phase_of(item)}{_quote_last_line(item.log_tail)}",
        )
        for item in aborted
    }
    return {**outcomes, **gave_up}


def may_be_a_peers(outcome: RankOutcome) -> bool:
    """Whether a peer may be the cause: it waited for one, hung there, or its library gave up on one."""
    if outcome.state is RankState.CRASHED:
        aborted, log = outcome.exit_code == -signal.SIGABRT, outcome.log_tail
        return aborted and bool(GAVE_UP.search(log)) and not OWN_CAUSE.search(log)
    if outcome.state is RankState.HUNG:
        return not any(why in outcome.because for why in STUCK_STATES.values())
    return outcome.waited_for_peers or outcome.state is RankState.LOST_PEER


def _gave_up(item: RankEvidence) -> bool:
    aborted = (item.end or {}).get("exit_code") == -signal.SIGABRT
    return aborted and GAVE_UP.search(item.log_tail) is not None


def _find_early(
    evidence: Sequence[RankEvidence], outcomes: Mapping[int, RankOutcome], timed_out: bool
) -> list[tuple[RankEvidence, str]]:
    """The ranks that say they succeeded, on fewer than half of the nodes, while all ranks of all other nodes
    waited at the same place for a peer, or gave up on one: of two nodes at least, whose word counts more.
    """
    nodes = {item.node for item in evidence}
    others = [item for item in evidence if outcomes[item.rank].state is not RankState.OK]
    waited = {item.node for item in others}
    is_failed = any(outcomes[item.rank].state is not RankState.KILLED for item in others)
    if len(waited) < WITNESSES or 2 * len(waited) <= len(nodes) or not (timed_out or is_failed):
        return []
    is_even = len({_counter_of(item) for item in others}) == 1
    if not is_even or not all(_waited(item, outcomes[item.rank]) for item in others):
        return []
    because = f"it says that it succeeded, while {len(waited)} nodes waited for it"
    return [(item, because) for item in evidence if item.node not in waited]


def _find_contradiction(
    evidence: Sequence[RankEvidence], outcomes: Mapping[int, RankOutcome]
) -> list[tuple[RankEvidence, str]]:
    """Ranks of which one does not tell the truth, if only one node does not.

    Nobody passes a place alone: where one node lost its peers, and another had not come, no third one can
    have succeeded. What several nodes say alike, one that lies has not made up.
    """
    if any(_explains(item, outcomes[item.rank]) for item in evidence):
        return []
    lost, behind, done = _sort_by_place(evidence, outcomes)
    said = (
        (lost, "it lost its peers where another had not come"),
        (behind, "it had not come where another lost its peers"),
        (done, "it says that it succeeded"),
    )
    if not (lost and behind and done):
        return []
    return [
        (item, f"the nodes contradict each other: {what}")
        for nodes, what in said
        for item in evidence
        if nodes == {item.node}
    ]


def _explains(item: RankEvidence, outcome: RankOutcome) -> bool:
    """Whether a rank is why others lost their peers, whatever they say."""
    if outcome.state is RankState.KILLED:
        return (item.end or {}).get("state") in STUCK_STATES
    return outcome.state is RankState.UNREACHABLE or (_is_origin(item, outcome) and not _gave_up(item))


def _sort_by_place(
    evidence: Sequence[RankEvidence], outcomes: Mapping[int, RankOutcome]
) -> tuple[set[str], set[str], set[str]]:
    """Nodes that lost their peers at the furthest place, that had not come there, and that succeeded."""
    lost: dict[str, int] = {}
    done: dict[str, int] = {}
    for item in evidence:
        outcome = outcomes[item.rank]
        if outcome.state is RankState.OK:
            done[item.node] = _counter_of(item)
        elif (
            outcome.state is not RankState.KILLED
            and _waited(item, outcome)
            and not _has_finished(item)  # it lost them at the end, where who has succeeded waits
            and not ONE_TO_MANY.search(str((item.verdict or item.progress or {}).get("phase")))
        ):
            lost[item.node] = max(lost.get(item.node, 0), _counter_of(item))
    # Where two came, if there are two: one may say anything. Who succeeded waited once more, at the end.
    place = min(sorted(lost.values())[-WITNESSES:], default=0)
    if len(done) >= WITNESSES:
        place = min(place, sorted(done.values())[-WITNESSES] - 1)
    there = {node for node, counter in lost.items() if counter >= place}
    behind = {
        item.node
        for item in evidence
        if outcomes[item.rank].state is RankState.KILLED and _counter_of(item) < place
    }
    return there, behind - there, done.keys() - there


def _waited(item: RankEvidence, outcome: RankOutcome) -> bool:
    """Whether a rank was ended while it waited for its peers, or gave up on one."""
    if outcome.state is RankState.KILLED:
        is_stuck = (item.end or {}).get("state") in STUCK_STATES
        return bool((item.progress or {}).get("collective")) and not is_stuck
    if outcome.state is RankState.FAILED:
        return not _is_origin(item, outcome)
    return outcome.state is RankState.CRASHED and _gave_up(item)


def _find_hung(waiting: Sequence[RankEvidence], *, whole: bool) -> list[tuple[RankEvidence, str]]:
    """The ranks that held up the others: those not running, else those behind, else all of them.

    If they are not the ``whole`` group, and all alike, one that gave up may as well be the cause: none.
    """
    if stuck := _find_stuck(waiting):
        return stuck
    if len(waiting) == 1:
        return [(waiting[0], f"hung while {_phase_of(waiting[0])}")]
    computing = [i for i in waiting if not (i.progress or {}).get("collective")]
    if computing and len(computing) < len(waiting):
        return [(i, f"hung while {_phase_of(i)}; the other ranks waited for it") for i in computing]
    furthest = _furthest(waiting)
    behind = [i for i in waiting if _counter_of(i) < furthest]
    if behind:
        return [(i, f"hung while {_phase_of(i)}; the other ranks were ahead") for i in behind]
    if not whole and len({i.node for i in waiting}) >= WITNESSES:
        return []
    return [(i, f"hung while {_phase_of(i)}, like every other remaining rank") for i in waiting]


def _find_stuck(waiting: Sequence[RankEvidence]) -> list[tuple[RankEvidence, str]]:
    """The ranks whose own node says that they did not run."""
    stuck = [(i, STUCK_STATES.get((i.end or {}).get("state", ""))) for i in waiting]
    return [(i, f"its process {why} while {_phase_of(i)}") for i, why in stuck if why]


def _furthest(waiting: Sequence[RankEvidence]) -> int:
    """How far the group came: of three nodes and more, where two of them did."""
    of_node: dict[str, int] = {}
    for item in waiting:
        of_node[item.node] = max(of_node.get(item.node, 0), _counter_of(item))
    counters = sorted(of_node.values(), reverse=True)
    return counters[1 if len(counters) > WITNESSES else 0] if counters else 0


def _counter_of(item: RankEvidence) -> int:
    return int((item.progress or {}).get("counter", 0))


def _phase_of(item: RankEvidence) -> str:
    return str((item.progress or {}).get("phase", "starting"))


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _quote_last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return f": {lines[-1][:300]}" if lines else ""
