"""Who failed first: evidence in, outcome out."""

from __future__ import annotations

import pytest

from clustercheck.launch.first_failure import RankEvidence, judge_group, mark_unprovoked, may_be_a_peers
from clustercheck.launch.model import JobOutcome, RankOutcome, RankState

GOOD = {"ok": True, "because": ""}
ENDED = {"exit_code": 0, "order": 0, "killed": "", "state": ""}
FAILED = {**ENDED, "exit_code": 1}
TOLD = {"exit_code": -9, "order": 0, "killed": "told", "state": "S"}
LATE = {**TOLD, "killed": "deadline"}


def lost_its_peers(phase: str = "all-reduce") -> dict:
    because = f"RuntimeError while {phase}: Connection closed by peer [192.0.2.7]:9"
    return {"ok": False, "because": because, "phase": phase, "collective": True}


def at(phase: str, counter: int, *, collective: bool) -> dict:
    return {"phase": phase, "counter": counter, "collective": collective}


def rank(number: int, **known) -> RankEvidence:
    return RankEvidence(rank=number, node=f"gpu{number + 1:02d}", **known)


def states(outcomes):
    return [outcome.state for outcome in outcomes]


def test_no_rank_fails_first_if_all_are_good():
    outcomes, first = judge_group([rank(0, verdict=GOOD, end=ENDED), rank(1, verdict=GOOD, end=ENDED)], False)
    assert states(outcomes) == [RankState.OK, RankState.OK]
    assert first is None


def test_wrong_values_are_a_verdict_that_may_be_believed():
    wrong = {"ok": False, "because": "wrong sums at 8 bytes"}
    outcomes, first = judge_group([rank(0, verdict=wrong, end=ENDED)], False)
    assert states(outcomes) == [RankState.OK]
    assert first is None


def test_a_crashed_rank_failed_first_even_if_its_peer_answered_first():
    outcomes, first = judge_group(
        [
            rank(0, verdict=lost_its_peers(), end=FAILED, arrival=0),
            rank(1, end={**ENDED, "exit_code": -11}, progress=at("step 3", 9, collective=False), arrival=1),
        ],
        False,
    )
    assert states(outcomes) == [RankState.FAILED, RankState.CRASHED]
    assert first.node == "gpu02"
    assert first.because == "killed by SIGSEGV while step 3"


@pytest.mark.parametrize("kind", ["TypeError", "IndexError"])
def test_an_error_of_its_own_in_a_collective_is_no_lost_peer(kind: str) -> None:
    raised = {**lost_its_peers(), "because": f"{kind} while all-reduce: no such thing"}
    lost = [rank(n, verdict=lost_its_peers(), end=FAILED, arrival=n) for n in (0, 1)]
    _, first = judge_group([*lost, rank(2, verdict=raised, end=FAILED, arrival=2)], False)
    assert first is not None and first.node == "gpu03"


def test_who_says_that_it_succeeded_while_all_others_miss_what_it_was_to_say_failed_first() -> None:
    missed = {
        **lost_its_peers(),
        "because": "MeetingError while agreeing on the first node: a peer, rank 2, does not say how many",
    }
    at_once = at("agreeing on the first node", 3, collective=True)
    honest = [rank(n, verdict=missed, end=FAILED, progress=at_once, arrival=n) for n in (0, 1)]
    _, first = judge_group([*honest, rank(2, verdict=GOOD, end=ENDED, arrival=2)], False)
    assert first is not None and first.node == "gpu03"


def test_who_alone_loses_the_first_rank_is_named_with_it():
    """Either may have ended their connection, and each says that it was the other."""
    good = [rank(n, verdict=GOOD, end=ENDED, arrival=n) for n in (0, 1)]
    group = [*good, rank(2, verdict=lost_its_peers(), end=FAILED, arrival=2)]
    outcomes, first = judge_group(group, False, through_first=True)
    assert first is None
    assert JobOutcome("job", outcomes, 1.0, first).suspects.keys() == {"gpu01", "gpu03"}
    assert outcomes[0].because == "gpu03 lost its connection to it"
    _, first = judge_group(group, False)
    assert first is not None and first.node == "gpu03"


@pytest.mark.parametrize(
    ("lost", "behind", "done", "suspects"),
    [
        (1, 1, 1, "all"),
        (1, 2, 1, {"done0", "lost0"}),
        (2, 1, 1, {"done0", "behind0"}),
        (2, 3, 1, {"done0"}),
        (2, 1, 2, {"behind0"}),
        (1, 3, 2, {"lost0"}),
    ],
)
@pytest.mark.parametrize("end", [ENDED, TOLD])
def test_who_succeeds_where_one_lost_its_peers_and_another_had_not_come_is_named(
    lost: int, behind: int, done: int, suspects: object, end: dict
):
    """Rank 0 serves the group's store: it may close that when it likes, and say that all was well."""
    known = {
        "done": {"verdict": GOOD, "end": end, "progress": at("done", 7, collective=True)},
        "lost": {"verdict": lost_its_peers(), "end": FAILED, "progress": at("joining", 1, collective=True)},
        "behind": {"end": TOLD, "progress": at("importing paddle", 0, collective=False)},
    }
    counts = {"done": done, "lost": lost, "behind": behind}
    names = [f"{kind}{n}" for kind, count in counts.items() for n in range(count)]
    group = [
        RankEvidence(number, name, arrival=number, **known[name.rstrip("0123456789")])
        for number, name in enumerate(names)
    ]
    outcomes, first = judge_group(group, False)
    found = JobOutcome("job", outcomes, 1.0, first).suspects.keys()
    assert found == (set(names) if suspects == "all" else suspects)
    assert first is None or first.node in found


def test_who_succeeds_where_all_others_had_come_is_believed():
    """One that still trains at that place may be why the other lost it."""
    lost = rank(1, verdict=lost_its_peers(), end=FAILED, progress=at("joining", 1, collective=True))
    behind = rank(2, end=TOLD, progress=at("training", 1, collective=False), arrival=1)
    said = rank(0, verdict=GOOD, end=ENDED, progress=at("done", 7, collective=True), arrival=2)
    _, first = judge_group([said, lost, behind], False)
    assert first is not None and first.node == "gpu02"
    # A crash explains all of it.
    crashed = rank(3, end={**ENDED, "exit_code": -11}, progress=at("joining", 0, collective=False), arrival=3)
    late = rank(2, end=TOLD, progress=at("importing", 0, collective=False), arrival=1)
    _, first = judge_group([said, lost, late, crashed], False)
    assert first is not None and first.node == "gpu04"


DONE = {"verdict": GOOD, "end": TOLD, "progress": at("done, waiting for the others", 11, collective=True)}
AT_THE_END = {"verdict": GOOD, "end": {**ENDED, "exit_code": -6}, "log_tail": "[gloo] Timed out waiting"}
SENDING = "broadcast of 8 bytes, last result"


@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.parametrize(
    ("gave_up", "fault", "suspects"),
    [
        # A verdict is written before the wait at the end: one that succeeded did not pass that.
        ({**AT_THE_END, "progress": DONE["progress"]},
         {"end": {**TOLD, "state": "D"}, "progress": at("training", 10, collective=False)}, {"gpu03"}),
        # Who sends a broadcast passes it alone.
        ({"verdict": lost_its_peers(SENDING), "end": FAILED, "progress": at(SENDING, 10, collective=True)},
         {"end": LATE, "progress": at("iteration 5", 8, collective=False)}, {"gpu02", "gpu03"}),
    ],
)  # fmt: skip
def test_an_honest_end_is_no_contradiction(gave_up: dict, fault: dict, suspects: set, is_late: bool):
    outcomes, first = judge_group([rank(0, **DONE), rank(1, **gave_up), rank(2, **fault)], is_late)
    found = JobOutcome("job", outcomes, 1.0, first).suspects.keys()
    assert found <= suspects and found


def test_of_what_most_have_done_one_says_no_more():
    """Whatever place it says it came to, it names nobody who came as far as they did."""
    liar = rank(2, verdict=lost_its_peers(), end=FAILED, progress=at("step", 999, collective=True))
    works = rank(3, end=TOLD, progress=at("its last work", 10, collective=False))
    _, first = judge_group([rank(0, **DONE), rank(1, **DONE), liar, works], False)
    assert first is not None and first.node == "gpu03"


def test_a_first_rank_that_waits_until_it_is_stopped_is_named_with_whose_connection_ended():
    waiting = {"end": TOLD, "progress": at("rail 0", 4, collective=True)}
    lost = {**lost_its_peers(), "because": "MeetingError while rail 0: a peer disconnected (rank 0)"}
    group = [rank(0, **waiting), rank(1, **waiting), rank(2, verdict=lost, end=FAILED)]
    outcomes, first = judge_group(group, False, through_first=True)
    assert first is None
    assert JobOutcome("job", outcomes, 1.0, first).suspects.keys() == {"gpu01", "gpu03"}
    # The first rank may itself wait for a third one.
    late = {**lost, "because": "MeetingError while rail 0: a peer did not answer in time (rank 0)"}
    _, first = judge_group([*group[:2], rank(2, verdict=late, end=FAILED)], False, through_first=True)
    assert first is not None and first.node == "gpu03"


def test_who_never_came_and_says_that_it_succeeded_failed_first():
    missed = "MeetingError while meeting the other nodes: a peer, rank 1, did not connect within 30 s"
    left = "MeetingError while meeting the other nodes: a peer disconnected"
    meeting = at("meeting the other nodes", 2, collective=True)
    honest = [
        rank(n, verdict={**lost_its_peers(), "because": because}, end=FAILED, progress=meeting)
        for n, because in ((0, missed), (2, left))
    ]
    _, first = judge_group([*honest, rank(1, verdict=GOOD, end=ENDED)], False, through_first=True)
    assert first is not None and first.node == "gpu02"


def test_a_rank_aborted_while_waiting_is_a_witness_of_the_stopped_one():
    """As Paddle does in a process group's first meeting: TIMEOUT, and then SIGABRT."""
    aborted = {**ENDED, "exit_code": -6}
    stopped = {**TOLD, "state": "T"}
    meeting = at("wrapping the model", 0, collective=True)
    outcomes, first = judge_group(
        [
            rank(0, end=stopped, progress=meeting, arrival=1),
            rank(1, end=aborted, progress=meeting, arrival=0, log_tail="TIMEOUT self_rank = none\n\nabort"),
        ],
        False,
    )
    assert states(outcomes) == [RankState.HUNG, RankState.LOST_PEER]
    assert first.node == "gpu01"
    assert first.because == "its process is stopped while wrapping the model"
    assert outcomes[1].because == "gave up on a peer while wrapping the model: abort"
    assert set(JobOutcome("job", outcomes, 1.0, first).suspects) == {"gpu01"}


def test_who_ends_a_peer_in_gloo_and_says_that_it_succeeded_failed_first():
    """Seen with Paddle 3.3.1 where one rank reduces more elements than the others."""
    said = "  what():  [enforce fail at /paddle/third_party/gloo/gloo/transport/tcp/pair.cc:495] op"
    here = at("all-reduce of 8 bytes, first result", 4, collective=True)
    aborted = rank(0, end={**ENDED, "exit_code": -6}, progress=here, log_tail=said)
    lost = rank(2, verdict=lost_its_peers(), end=FAILED, progress=here, arrival=1)
    _, first = judge_group([aborted, lost, rank(1, verdict=GOOD, end=ENDED, arrival=2)], False)
    assert first is not None and first.node == "gpu02"


@pytest.mark.parametrize(
    "cause",
    [
        {"end": {**ENDED, "exit_code": -11}},
        {"missing": "connection closed"},
        {"verdict": {"ok": False, "because": "MemoryError", "collective": False}, "end": FAILED},
    ],
    ids=["crashed", "unreachable", "exception"],
)
def test_a_rank_aborted_for_a_lost_peer_is_not_a_suspect(cause):
    """Its abort may be heard first, and another rank may be ended with the job."""
    aborted = {**ENDED, "exit_code": -6}
    outcomes, first = judge_group(
        [
            rank(0, arrival=1, **cause),
            rank(1, end={**TOLD, "state": "T"}, progress=at("all-reduce", 3, collective=True), arrival=2),
            rank(2, end=aborted, arrival=0, log_tail="what():  Connection closed by peer"),
        ],
        False,
    )
    assert states(outcomes)[1:] == [RankState.KILLED, RankState.LOST_PEER]
    assert first.node == "gpu01"
    assert set(JobOutcome("job", outcomes, 1.0, first).suspects) == {"gpu01"}


@pytest.mark.parametrize(
    "said",
    [
        "ValueError while joining the group: cannot create std::vector larger than max_size()",
        "MemoryError while joining the group: std::bad_alloc",
        "ValueError while joining the group: (InvalidArgument) TCP receive error. Details: Success.",
    ],
)
def test_who_got_any_length_from_the_first_nodes_store_is_a_witness(said: str):
    meeting = at("joining the group", 1, collective=True)
    broken = {"verdict": {"ok": False, "because": said, **meeting}, "end": FAILED, "progress": meeting}
    liar = rank(0, end={**TOLD, "state": "S"}, progress=meeting, arrival=2)
    outcomes, first = judge_group([liar, rank(1, **broken), rank(2, **broken, arrival=1)], False)
    assert first is None
    assert set(JobOutcome("job", outcomes, 1.0, first).suspects) == {"gpu01", "gpu02", "gpu03"}


@pytest.mark.parametrize(
    "said",
    [
        "MemoryError while all-reduce of 8 bytes: std::bad_alloc",
        "OSError while all-reduce of 8 bytes: NCCL error(1), unhandled cuda error",
        "RuntimeError while joining the group: bad_alloc: cudaErrorMemoryAllocation: out of memory",
    ],
)
def test_a_rank_whose_own_memory_ends_in_a_collective_is_no_witness(said: str):
    here = at("all-reduce of 8 bytes", 4, collective=True)
    ended = rank(1, verdict={"ok": False, "because": said, "collective": True}, end=FAILED, progress=here)
    waiting = rank(0, end={**TOLD, "state": "S"}, progress=here, arrival=1)
    _, first = judge_group([waiting, ended], False)
    assert first is not None and first.node == "gpu02"


def test_a_rank_that_was_killed_is_no_witness():
    stopped = {**TOLD, "exit_code": -6, "state": "T"}
    meeting = at("all-reduce", 3, collective=True)
    outcomes, first = judge_group(
        [
            rank(0, end=stopped, progress=meeting, log_tail="connect timed out, trying again"),
            rank(1, verdict=lost_its_peers(), end=FAILED, progress=meeting),
            rank(2, end=TOLD, progress=meeting),
        ],
        False,
    )
    assert states(outcomes) == [RankState.HUNG, RankState.FAILED, RankState.KILLED]
    assert first.node == "gpu01"


def test_an_abort_counts_as_first_failure_if_no_other_rank_failed():
    waited = "TIMEOUT self_rank = none"
    for log, others in (("terminate called: bad_alloc", [rank(0, end=TOLD)]), (waited, [])):
        _, first = judge_group([*others, rank(1, end={**ENDED, "exit_code": -6}, log_tail=log)], False)
        assert first.node == "gpu02", log


def test_an_exception_comes_before_the_failures_it_caused():
    memory = {"ok": False, "because": "MemoryError while step: x", "phase": "step", "collective": False}
    _, first = judge_group(
        [
            rank(0, verdict=lost_its_peers(), end=FAILED, arrival=0),
            rank(1, verdict=memory, end=FAILED, arrival=1),
        ],
        False,
    )
    assert first.rank == 1


def test_a_hung_rank_is_found_behind_the_peers_that_gave_up():
    outcomes, first = judge_group(
        [
            rank(0, verdict=lost_its_peers(), end=FAILED),
            rank(1, end=TOLD, progress=at("making data", 4, collective=False), stack="File x"),
            rank(2, end=TOLD, progress=at("all-reduce", 5, collective=True)),
        ],
        True,
    )
    assert states(outcomes) == [RankState.FAILED, RankState.HUNG, RankState.KILLED]
    assert first.rank == 1
    assert "making data" in first.because
    assert first.stack == "File x"


def test_a_stopped_process_is_the_hung_one_even_inside_a_collective():
    outcomes, first = judge_group(
        [
            rank(0, end=LATE, progress=at("all-reduce", 5, collective=True)),
            rank(1, end={**LATE, "state": "T"}, progress=at("all-reduce", 5, collective=True)),
        ],
        True,
    )
    assert states(outcomes) == [RankState.KILLED, RankState.HUNG]
    assert first.rank == 1


def test_who_is_behind_is_the_hung_one():
    _, first = judge_group(
        [
            rank(0, end=LATE, progress=at("iteration 3", 7, collective=True)),
            rank(1, end=LATE, progress=at("iteration 2", 6, collective=True)),
            rank(2, end=LATE, progress=at("iteration 3", 7, collective=True)),
        ],
        True,
    )
    assert first.rank == 1


def test_if_all_ranks_hang_alike_none_failed_first():
    outcomes, first = judge_group(
        [rank(n, end=LATE, progress=at("all-reduce", 5, collective=True)) for n in range(3)], True
    )
    assert set(states(outcomes)) == {RankState.HUNG}
    assert first is None


def test_a_lost_node_failed_first():
    outcomes, first = judge_group(
        [
            rank(0, verdict=lost_its_peers(), end=FAILED, arrival=0),
            rank(1, missing="the SSH connection was lost", arrival=1),
            rank(2, end=TOLD, progress=at("all-reduce", 5, collective=True), arrival=2),
        ],
        False,
    )
    assert states(outcomes) == [RankState.FAILED, RankState.UNREACHABLE, RankState.KILLED]
    assert first.node == "gpu02"


def test_a_container_without_rank_files_is_reported_with_its_last_line():
    outcomes, first = judge_group(
        [rank(0, container="starting\nno Python with Paddle in this image\n")], False
    )
    assert outcomes[0].state is RankState.CRASHED
    assert first.because.endswith("no Python with Paddle in this image")


def test_a_rank_ended_while_it_waited_for_others_keeps_its_verdict():
    outcomes, _ = judge_group([rank(0, verdict=GOOD, end=TOLD), rank(1, missing="gone")], False)
    assert outcomes[0].state is RankState.OK


def test_after_an_interrupt_no_rank_failed_first():
    outcomes, first = judge_group(
        [
            rank(0, end=TOLD, progress=at("all-reduce", 5, collective=True)),
            rank(1, end=TOLD, progress=at("making data", 4, collective=False)),
        ],
        False,
    )
    assert states(outcomes) == [RankState.KILLED, RankState.KILLED]
    assert first is None


WAITING = at("all-reduce", 5, collective=True)
GAVE_UP = {"end": {**ENDED, "exit_code": -6}, "log_tail": "what():  Connection closed by peer"}
# What two honest nodes say of a group that a third one holds up, and what that one may say of itself.
HONEST = {
    "ended": {"end": LATE, "progress": WAITING},
    "gave up": {"verdict": lost_its_peers(), "end": FAILED, "progress": WAITING},
    "aborted": {**GAVE_UP, "progress": WAITING},
}
LIES = {
    "it succeeded": {"verdict": GOOD, "end": ENDED},
    "it succeeded, and waited": {"verdict": GOOD, "end": LATE, "progress": at("done", 9, collective=True)},
    "it is ahead": {"end": LATE, "progress": at("all-reduce", 99, collective=True)},
    "it gave up": {"verdict": lost_its_peers(), "end": FAILED, "progress": WAITING},
    "it aborted": {**GAVE_UP, "progress": WAITING},
    "it waits": {"end": LATE, "progress": WAITING},
}


@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("honest", HONEST)
@pytest.mark.parametrize("lie", LIES)
def test_who_holds_up_two_others_is_a_suspect_whatever_it_says(place: int, honest: str, lie: str):
    """And if it cannot be told from them, no node is named for itself."""
    group = [rank(n, arrival=n, **(LIES[lie] if n == place else HONEST[honest])) for n in range(3)]
    outcomes, first = judge_group(group, True)
    suspects = set(JobOutcome("job", outcomes, 1.0, first).suspects)
    assert f"gpu{place + 1:02d}" in suspects
    assert len(suspects) in (1, 3)
    if lie.startswith("it succeeded"):
        assert len(suspects) == 1
        assert outcomes[place].because == "it says that it succeeded, while 2 nodes waited for it"


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize(
    "fault",
    [
        {"end": {**LATE, "state": "T"}, "progress": WAITING},
        {"end": LATE, "progress": at("making data", 4, collective=False)},
        {"end": LATE, "progress": at("all-reduce", 4, collective=True)},
        {"end": {**ENDED, "exit_code": -11}, "progress": WAITING},
        {"missing": "the SSH connection was lost"},
    ],
    ids=["stopped", "computes", "behind", "crashed", "gone"],
)
def test_what_one_node_says_does_not_hide_whose_rank_hangs_or_ends(fault: dict, lie: str):
    group = [rank(0, **fault), rank(1, end=LATE, progress=WAITING), rank(2, **LIES[lie])]
    outcomes, first = judge_group(group, True)
    suspects = set(JobOutcome("job", outcomes, 1.0, first).suspects)
    assert "gpu01" in suspects and "gpu02" not in suspects


def test_a_node_whose_collective_hangs_after_most_others_succeeded_is_the_hung_one():
    done = {"verdict": GOOD, "end": ENDED}
    _, first = judge_group([rank(0, **done), rank(1, end=LATE, progress=WAITING), rank(2, **done)], True)
    assert first.node == "gpu02"


@pytest.mark.parametrize("lie", ["it succeeded", "it is ahead", "it gave up", "it aborted", "it waits"])
@pytest.mark.parametrize("nodes", [3, 5])
def test_who_ends_a_group_that_still_starts_is_named_and_no_other(nodes: int, lie: str):
    """Ranks that are not ready yet hang only where the launcher's own clock says so."""
    others = [
        {"end": TOLD, "progress": at("meeting", 1, collective=True)},
        *[{"end": TOLD, "progress": at("importing", 0, collective=False)}] * (nodes - 2),
    ]
    liar = mark_unprovoked([rank(0, **LIES[lie])], is_late=False)
    group = [*liar, *(rank(n, arrival=n, **known) for n, known in enumerate(others, 1))]
    outcomes, first = judge_group(group, False)
    suspects = set(JobOutcome("job", outcomes, 1.0, first).suspects)
    assert suspects == {"gpu01"} if lie != "it succeeded" else "gpu01" not in suspects  # ends no others


def test_a_rank_that_its_node_killed_for_no_reason_is_its_nodes_failure():
    told, late, failed = rank(0, end=TOLD), rank(0, end=LATE), rank(1, end=FAILED)
    peer = rank(0, end={**TOLD, "killed": "peer failed"})
    for of_node, is_late, unprovoked in [
        ([told], True, True), ([late], False, True), ([late], True, False), ([peer], True, True),
        ([peer, failed], False, False), ([rank(0, verdict=GOOD, end=ENDED)], False, False),
    ]:  # fmt: skip
        assert mark_unprovoked(of_node, is_late=is_late)[0].is_unprovoked is unprovoked
    (outcome,), first = judge_group(mark_unprovoked([told], is_late=True), True)
    assert (outcome.state, outcome.because) == (RankState.CRASHED, "its node ended it while starting")
    assert first == outcome


def test_a_success_before_an_interrupt_is_believed():
    stopped = {"end": TOLD, "progress": WAITING}
    outcomes, _ = judge_group(
        [rank(0, verdict=GOOD, end=ENDED), rank(1, **stopped), rank(2, **stopped)], False
    )
    assert states(outcomes) == [RankState.OK, RankState.KILLED, RankState.KILLED]


@pytest.mark.parametrize(
    ("state", "log", "because", "may"),
    [
        (RankState.CRASHED, "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=12)", "", True),
        (RankState.CRASHED, "timeout\nCUDA error: an illegal memory access was encountered", "", False),
        (RankState.CRASHED, "free(): invalid pointer", "", False),
        (RankState.HUNG, "", "hung while running all-reduce", True),
        (RankState.HUNG, "", "its process is blocked in the kernel while training", False),
        (RankState.LOST_PEER, "", "", True),
        (RankState.KILLED, "", "", True),
        (RankState.FAILED, "", "", False),
    ],
)
def test_a_peer_may_be_the_cause_where_a_rank_waited_for_it(state, log, because, may):
    ended = RankOutcome(0, "gpu01", state, because, exit_code=-6, log_tail=log)
    assert may_be_a_peers(ended) is may
