"""A user's script by Paddle's launcher: what went wrong, on which node, and what all nodes together show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.support.malformed import require_not_run

from clustercheck.checks import paddle_launch as checked
from clustercheck.checks.base import evaluate
from clustercheck.checks.support import seeding
from clustercheck.evidence.cluster import Evidence
from clustercheck.launch.model import RankOutcome
from clustercheck.locate.culprits import find_culprits
from clustercheck.model import Result, Verdict
from clustercheck.samples import sample


def judged(evidence: Evidence) -> dict[str | None, Result]:
    return {one.subject.node: one for one in evaluate(checked.CHECK, evidence)}


def says(node: str, **answer: Any) -> seeding.Inject:
    def change(rank: RankOutcome, verdict: seeding.Raw) -> None:
        if rank.node == node:
            verdict["launched"].update(answer)

    return seeding.verdicts(checked.JOB, change)


def test_the_last_error_of_its_processes_is_the_reason() -> None:
    log = "workerlog.0: Traceback\nValueError: one\nRuntimeError: NCCL error 2\nLAUNCH INFO exit\n"
    result = judged(says("gpu02", exit_code=1, log=log)(sample.healthy()))["gpu02"]
    assert result.verdict is Verdict.FAIL
    assert result.because == "paddle.distributed.launch ended with 1: RuntimeError: NCCL error 2"
    silent = judged(says("gpu02", exit_code=137, log="")(sample.healthy()))["gpu02"]
    assert silent.because == "paddle.distributed.launch ended with 137: its processes named no error"


@pytest.mark.parametrize("said", [{"exit_code": 0}, {"exit_code": 1, "log": "RuntimeError: x"}], ids=str)
def test_whose_launcher_ends_while_those_of_most_nodes_wait_fails_and_no_other(said: dict[str, Any]) -> None:
    waits = [says(node, exit_code=None) for node in ("gpu01", "gpu03")]
    evidence = seeding.chain(*waits, says("gpu02", **said))(sample.healthy())
    found = judged(evidence)
    assert {node: one.verdict for node, one in found.items()} == {
        "gpu01": Verdict.NOT_RUN,
        "gpu02": Verdict.FAIL,
        "gpu03": Verdict.NOT_RUN,
    }
    assert {one.subject.node for one in found.values() if one.verdict is Verdict.FAIL} == {"gpu02"}


@pytest.mark.parametrize("nodes", [("gpu01", "gpu02", "gpu03"), ("gpu01",)])
def test_launchers_that_do_not_end_fail_where_all_or_few_nodes_have_such(nodes: tuple[str, ...]) -> None:
    evidence = seeding.chain(*(says(node, exit_code=None) for node in nodes))(sample.healthy())
    failed = {node for node, one in judged(evidence).items() if one.verdict is Verdict.FAIL}
    assert failed == set(nodes)


def test_one_node_that_differs_is_named_alone() -> None:
    def differs(rank: RankOutcome, verdict: seeding.Raw) -> None:
        for trainer in verdict["trainers"]:
            if rank.node == "gpu02":
                trainer["parameters_sha256"] = "f" * 64

    found = judged(seeding.verdicts(checked.JOB, differs)(sample.healthy()))
    assert {node: one.verdict for node, one in found.items()} == {
        "gpu01": Verdict.PASS,
        "gpu02": Verdict.FAIL,
        "gpu03": Verdict.PASS,
    }


def test_samples_that_no_process_had_are_counted() -> None:
    def omits(rank: RankOutcome, verdict: seeding.Raw) -> None:
        if rank.node == "gpu03":
            verdict["trainers"][0]["seen"][1] = []

    found = judged(seeding.verdicts(checked.JOB, omits)(sample.healthy()))
    assert found["gpu03"].because == "process 16: it trained on 0 samples in epoch 2, 5 expected"
    assert {found[node].verdict for node in ("gpu01", "gpu02")} == {Verdict.PASS}


def seen_by(node: str) -> list[Any]:
    ranks = sample.healthy().jobs[checked.JOB].ranks
    (verdict,) = (rank.verdict or {} for rank in ranks if rank.node == node)
    return [trainer["seen"] for trainer in verdict["trainers"]]


def seeing(seen: dict[str, list[Any]]) -> Evidence:
    """These nodes say that their processes were given these samples."""

    def same(rank: RankOutcome, verdict: seeding.Raw) -> None:
        for trainer, of_process in zip(verdict["trainers"], seen.get(rank.node, []), strict=False):
            trainer["seen"] = of_process

    return seeding.verdicts(checked.JOB, same)(sample.healthy())


@pytest.mark.parametrize(("liar", "victim"), [("gpu02", "gpu01"), ("gpu01", "gpu03"), ("gpu03", "gpu02")])
def test_samples_that_two_nodes_share_are_of_the_two_and_change_nothing_of_the_third(
    liar: str, victim: str
) -> None:
    """Each node's part is right by itself: nobody can say which of them read the other's."""
    found, healthy = judged(seeing({liar: seen_by(victim)})), judged(sample.healthy())
    (third,) = found.keys() - {liar, victim}
    assert found[third] == healthy[third]
    assert {found[node].verdict for node in (liar, victim)} == {Verdict.FAIL}
    (culprit,) = find_culprits(list(found.values()), None, group_is_slow=False)
    assert (culprit.scope, culprit.node, culprit.peer) == ("link", *sorted((liar, victim)))


@pytest.mark.parametrize("liar", ["gpu01", "gpu02", "gpu03"])
def test_a_node_that_has_samples_of_both_others_fails_alone(liar: str) -> None:
    one, other = sorted({"gpu01", "gpu02", "gpu03"} - {liar})
    found = judged(seeing({liar: [*seen_by(one)[:4], *seen_by(other)[4:]]}))
    healthy = judged(sample.healthy())
    assert found[liar].verdict is Verdict.FAIL
    assert [found[node] for node in (one, other)] == [healthy[node] for node in (one, other)]
    (culprit,) = find_culprits(list(found.values()), None, group_is_slow=False)
    assert (culprit.scope, culprit.node) == ("node", liar)


def test_samples_that_every_node_has_are_of_all_together() -> None:
    same = seen_by("gpu01")
    found = judged(seeing({"gpu02": same, "gpu03": same}))
    assert {one.verdict for one in found.values()} == {Verdict.FAIL}
    assert all("of all nodes together: cannot determine which" in one.because for one in found.values())


def test_the_loss_of_one_process_may_rise_where_that_of_all_falls() -> None:
    def rises(rank: RankOutcome, verdict: seeding.Raw) -> None:
        if rank.node == "gpu01":
            verdict["trainers"][0]["losses"] = [0.4, 0.41]

    found = judged(seeding.verdicts(checked.JOB, rises)(sample.healthy()))
    assert {one.verdict for one in found.values()} == {Verdict.PASS}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("trainers", None),
        ("trainers", [{}]),
        ("processes", 0),
        ("all_processes", "24"),
        ("samples", 10**9),
        ("epochs", 3),
    ],
)
def test_what_cannot_be_read_is_that_nodes_alone(key: str, value: object) -> None:
    def change(rank: RankOutcome, verdict: seeding.Raw) -> None:
        if rank.node == "gpu02":
            verdict[key] = value

    found = judged(seeding.verdicts(checked.JOB, change)(sample.healthy()))
    assert found["gpu02"].verdict is Verdict.NOT_RUN
    assert {found[node].verdict for node in ("gpu01", "gpu03")} == {Verdict.PASS}


def only_gpu02(change: Callable[[seeding.Raw], object]) -> seeding.Inject:
    def on(rank: RankOutcome, verdict: seeding.Raw) -> None:
        if rank.node == "gpu02":
            change(verdict)

    return seeding.verdicts(checked.JOB, on)


def test_a_gpu_that_paddle_did_not_use_is_counted_and_a_cpu_needs_one_process() -> None:
    def seven(verdict: seeding.Raw) -> None:
        verdict.update(trainers=verdict["trainers"][:7], processes=7)

    result = judged(only_gpu02(seven)(sample.healthy()))["gpu02"]
    assert (result.verdict, result.because) == (Verdict.FAIL, "Paddle trained on 7 of 8 GPUs")

    def on_cpu(rank: RankOutcome, verdict: seeding.Raw) -> None:
        first = verdict["trainers"][0]
        seen = [list(range(rank.rank, 120, 3)) for _ in first["seen"]]
        seen = [[number % 119 for number in epoch] for epoch in seen]
        first.update(device="cpu", world=3, seen=seen)
        verdict.update(trainers=[first], processes=1, all_processes=3)

    found = judged(seeding.verdicts(checked.JOB, on_cpu)(sample.healthy()))
    assert {one.verdict for one in found.values()} == {Verdict.PASS}


def trained_by(processes: dict[str, int]) -> seeding.Inject:
    """So many processes start on each node, and divide the samples among them."""
    world, order = sum(processes.values()), list(processes)

    def change(rank: RankOutcome, verdict: seeding.Raw) -> None:
        first = sum(processes[node] for node in order[: order.index(rank.node)])
        samples = verdict["samples"]
        like, share = verdict["trainers"][0], -(-samples // world)
        verdict["trainers"] = [
            {
                **like,
                "rank": place,
                "world": world,
                "seen": [
                    [number % samples for number in range(place, share * world, world)] for _ in like["seen"]
                ],
            }
            for place in range(first, first + processes[rank.node])
        ]

    return seeding.verdicts(checked.JOB, change)


FEWER = {"gpu01": 8, "gpu02": 1, "gpu03": 8}


@pytest.mark.parametrize("says", [1, 8])
def test_a_node_that_starts_fewer_processes_than_the_launcher_counted_fails_alone(says: int) -> None:
    told = only_gpu02(lambda verdict: verdict.update(processes=says))
    counted = seeding.with_facts(sample.healthy(), checked.JOB, processes=dict.fromkeys(FEWER, 8))
    found = judged(seeding.chain(trained_by(FEWER), told)(counted))
    assert {node: one.verdict for node, one in found.items()} == {
        "gpu01": Verdict.PASS,
        "gpu02": Verdict.FAIL,
        "gpu03": Verdict.PASS,
    }
    assert found["gpu02"].because == "1 of 8 processes finished their training"


def test_a_node_that_makes_up_the_processes_it_did_not_start_has_samples_of_others() -> None:
    honest = trained_by(FEWER)(sample.healthy())
    ranks = honest.jobs[checked.JOB].ranks
    theirs = {rank.node: (rank.verdict or {})["trainers"] for rank in ranks}

    def makes_up(verdict: seeding.Raw) -> None:
        verdict["trainers"] += [*theirs["gpu01"][:4], *theirs["gpu03"][:3]]

    found = judged(only_gpu02(makes_up)(honest))
    assert {node: one.verdict for node, one in found.items()} == {
        "gpu01": Verdict.PASS,
        "gpu02": Verdict.FAIL,
        "gpu03": Verdict.PASS,
    }


def test_a_node_alone_says_how_many_processes_there_are() -> None:
    found = judged(
        only_gpu02(lambda verdict: [t.update(world=64) for t in verdict["trainers"]])(sample.healthy())
    )
    assert found["gpu02"].because == "the processes found 64 of 24 processes of all nodes"
    pair = judged(
        only_gpu02(lambda verdict: [t.update(world=64) for t in verdict["trainers"]])(sample.healthy(2))
    )
    assert [one.because for one in pair.values()] == [
        f"the processes found {number} of 16 or 64 processes of all nodes" for number in (16, 64)
    ]
    assert {found[node].verdict for node in ("gpu01", "gpu03")} == {Verdict.PASS}


def test_more_processes_than_all_nodes_tell_of_are_noticed() -> None:
    more = trained_by({"gpu01": 8, "gpu02": 14, "gpu03": 8})(sample.healthy())
    hidden = only_gpu02(lambda verdict: verdict.update(trainers=verdict["trainers"][:8]))(more)
    found = judged(hidden)
    assert {one.verdict for one in found.values()} == {Verdict.FAIL}
    assert all("cannot determine which" in one.because for one in found.values())


def test_instances_of_mig_are_not_counted_as_gpus() -> None:
    def seven(verdict: seeding.Raw) -> None:
        verdict.update(trainers=verdict["trainers"][:7], processes=7)

    split = seeding.smi("gpu02", 0, "mig_mode/current_mig", "Enabled")
    found, healthy = (
        judged(seeding.chain(split, only_gpu02(seven))(sample.healthy())),
        judged(sample.healthy()),
    )
    assert found["gpu02"].because == (
        "23 processes trained on all nodes together, of 24: 7 here, 8 on most nodes"
    )
    assert [found[node] for node in ("gpu01", "gpu03")] == [healthy[node] for node in ("gpu01", "gpu03")]


def test_a_launcher_that_waits_is_told_from_one_that_fails() -> None:
    result = judged(says("gpu02", exit_code=None)(sample.healthy()))["gpu02"]
    assert result.because == "paddle.distributed.launch did not end within 120.0 s"


def test_of_two_nodes_that_differ_both_are_suspected() -> None:
    def differs(verdict: seeding.Raw) -> None:
        for trainer in verdict["trainers"]:
            trainer["parameters_sha256"] = "f" * 64

    found = judged(only_gpu02(differs)(sample.healthy(2)))
    assert {one.verdict for one in found.values()} == {Verdict.FAIL}


def test_a_sample_that_does_not_exist_is_noticed() -> None:
    def invents(rank: RankOutcome, verdict: seeding.Raw) -> None:
        if rank.node == "gpu03":
            verdict["trainers"][7]["seen"][0][-1] = 999  # in place of one that was there twice

    found = judged(seeding.verdicts(checked.JOB, invents)(sample.healthy()))
    assert found["gpu03"].because.endswith("it trained on samples in epoch 1 that there are not (1)")
    assert {found[node].verdict for node in ("gpu01", "gpu02")} == {Verdict.PASS}


@pytest.mark.parametrize(
    "trainer",
    [
        {"rank": None}, {"world": "24"}, {"device": None}, {"parameters_sha256": None},
        {"parameters_sha256": "e"}, {"losses": None}, {"losses": [0.5]}, {"losses": [0.5, "0.3"]},
        {"losses": [0.5, float("nan")]}, {"seen": None}, {"seen": [None, None]}, {"seen": [["1"], ["1"]]},
        {"seen": [[1] * 200_000, [1]]},
    ],
    ids=lambda trainer: str(trainer)[:40],
)  # fmt: skip
def test_a_process_whose_answer_has_another_form_is_not_run(trainer: dict[str, Any]) -> None:
    require_not_run(checked.CHECK, lambda verdict: verdict["trainers"][2].update(trainer))


@pytest.mark.parametrize("key", ["processes", "all_processes", "samples", "epochs"])
@pytest.mark.parametrize("value", [True, 0, -1, "8", None])
def test_a_count_of_another_form_is_not_run(key: str, value: object) -> None:
    require_not_run(checked.CHECK, lambda verdict: verdict.update({key: value}))


def test_who_was_launched_otherwise_blames_nobody_by_the_samples_it_says_it_had() -> None:
    evidence = sample.healthy()
    of_first = next(rank.verdict for rank in evidence.jobs[checked.JOB].ranks if rank.node == "gpu01")
    assert of_first is not None
    epochs = [[n for trainer in of_first["trainers"] for n in trainer["seen"][epoch]] for epoch in range(2)]

    def alone(rank: RankOutcome, verdict: seeding.Raw) -> None:
        if rank.node == "gpu02":
            mine = verdict["trainers"]
            verdict["all_processes"] = len(mine)
            share = -(-verdict["samples"] // len(mine))
            for place, trainer in enumerate(mine):
                trainer["world"] = len(mine)
                trainer["seen"] = [(had * 3)[place * share : (place + 1) * share] for had in epochs]

    found = judged(seeding.verdicts(checked.JOB, alone)(evidence))
    assert {node: one.verdict for node, one in found.items()} == {
        "gpu01": Verdict.PASS,
        "gpu02": Verdict.FAIL,
        "gpu03": Verdict.PASS,
    }


CLOSED = "workerlog.0: Traceback\nRuntimeError: Connection closed by peer [10.77.0.13]:4711\n"


@pytest.mark.parametrize(
    ("said", "because"),
    [
        ({}, "its launcher says that it succeeded, while those of 2 nodes waited for it or lost it"),
        (
            {"exit_code": 1, "log": "RuntimeError: no such device"},
            "launch ended with 1: RuntimeError: no such",
        ),
    ],
    ids=["succeeded", "failed"],
)
def test_whom_most_nodes_lost_fails_and_they_do_not(said: dict[str, Any], because: str) -> None:
    lost = [says(node, exit_code=1, log=CLOSED) for node in ("gpu01", "gpu03")]
    found = judged(seeding.chain(*lost, says("gpu02", **said))(sample.healthy()))
    assert {node: one.verdict for node, one in found.items()} == {
        "gpu01": Verdict.NOT_RUN,
        "gpu02": Verdict.FAIL,
        "gpu03": Verdict.NOT_RUN,
    }
    assert because in found["gpu02"].because


OWN = "workerlog.0: Traceback\nOSError: NCCL error(1), unhandled cuda error\n"


def test_who_fails_by_its_own_gpu_lost_no_peer() -> None:
    own = [says(node, exit_code=1, log=OWN) for node in ("gpu01", "gpu02")]
    found = judged(seeding.chain(*own, says("gpu03", exit_code=1, log=""))(sample.healthy()))
    assert {found[node].verdict for node in ("gpu01", "gpu02")} == {Verdict.FAIL}


def test_one_that_ends_without_a_word_is_named_and_not_those_that_wait_for_it() -> None:
    waits = says("gpu01", exit_code=None), says("gpu03", exit_code=1, log=CLOSED)
    found = judged(seeding.chain(*waits, says("gpu02", exit_code=137, log=""))(sample.healthy()))
    assert {node for node, one in found.items() if one.verdict is Verdict.FAIL} == {"gpu02"}


def test_of_two_nodes_either_may_have_ended_the_connection() -> None:
    evidence = says("gpu01", exit_code=1, log=CLOSED)(sample.healthy())
    outcome = evidence.jobs[checked.JOB]
    of_two = tuple(rank for rank in outcome.ranks if rank.node != "gpu03")
    evidence = seeding.with_job(evidence, replace(outcome, ranks=of_two))
    lost = judged(evidence)["gpu01"]
    assert (lost.verdict, lost.between) == (Verdict.FAIL, "gpu02")


@pytest.mark.parametrize(
    ("without", "failed"),
    [(("gpu01", "gpu02"), {"gpu01", "gpu02", "gpu03"}), (("gpu02",), {"gpu02"})],
)
def test_a_loss_that_is_no_number_is_of_all_where_half_of_them_have_it(
    without: tuple[str, ...], failed: set[str]
) -> None:
    def lose(rank: RankOutcome, verdict: seeding.Raw) -> None:
        for trainer in verdict["trainers"] if rank.node in without else ():
            trainer["losses"][-1] = None

    found = judged(seeding.verdicts(checked.JOB, lose)(sample.healthy()))
    assert {node for node, one in found.items() if one.verdict is Verdict.FAIL} == failed
    assert all("not a number" in found[str(node)].because for node in failed)


@pytest.mark.parametrize(
    ("code", "log", "joint"),
    [
        (
            -6,
            "what(): [enforce fail at /gloo/transport/tcp/pair.cc:589] Read timed out\nabort",
            True,
        ),
        (250, "Read timed out\nFatalError: `Process abort signal` is detected", True),
        (-11, "Connection refused, retry\nSegmentation fault", False),
        (1, "timed out, retry\nAssertionError: loss is NaN", False),
    ],
)
def test_a_launcher_whose_library_gave_up_on_a_peer_may_have_ended_by_that(code, log, joint):
    result = judged(says("gpu02", exit_code=code, log=log)(sample.healthy()))["gpu02"]
    assert (result.verdict, result.joint) == (Verdict.FAIL, joint)
