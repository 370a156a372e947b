"""What NCCL says, from a rank's file on a node to the verdict on the node."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.validation_in_memory import FakeLauncher, run, verdicts
from tests.unit.clustercheck.launch.test_placement import report

from clustercheck.checks.all import BY_ID
from clustercheck.checks.base import evaluate
from clustercheck.checks.support import seeding
from clustercheck.checks.support.nccl import HEARD
from clustercheck.evidence.cluster import Evidence
from clustercheck.launch import on_node
from clustercheck.launch.model import JobOutcome, JobSpec
from clustercheck.launch.placement import place_ranks
from clustercheck.model import Verdict
from clustercheck.samples import sample

CHECK = BY_ID["nccl-transport"]
SAYS = "gpu01:1:2 [0] NCCL INFO "


def judged(evidence: Evidence) -> dict[str, Verdict]:
    return {str(result.subject.node): result.verdict for result in evaluate(CHECK, evidence)}


def changed(change: Callable[[str, str], str], *, job: str = HEARD) -> Evidence:
    """The healthy group, its logs changed by node."""
    evidence = sample.healthy()
    outcome = evidence.jobs[job]
    ranks = tuple(replace(rank, nccl_log=change(rank.node, rank.nccl_log)) for rank in outcome.ranks)
    return seeding.with_job(evidence, replace(outcome, ranks=ranks))


# --- from the rank to the controller


def test_a_rank_on_a_gpu_writes_what_nccl_says_where_it_runs() -> None:
    over_nccl = place_ranks([report("gpu01", cuda=True, gpus=2)]).ranks
    said = [(p.environment["NCCL_DEBUG"], p.environment["NCCL_DEBUG_FILE"]) for p in over_nccl]
    assert said == [("INFO", "rank-0.nccl"), ("INFO", "rank-1.nccl")]
    assert "NCCL_DEBUG" not in place_ranks([report("gpu01")]).ranks[0].environment


def test_of_the_log_comes_what_is_read_and_nothing_else(tmp_path: Path) -> None:
    kept = [f"{SAYS}Using network IB\n", f"{SAYS}NCCL_IB_HCA set by environment to mlx5_0.\n"]
    warned = "gpu01:1:2 [0] init.cc:1 NCCL WARN out of luck\n"
    lines = [*kept, f"{SAYS}ncclConfig token=hunter2\n", "AWS_SECRET=hunter2\n", warned]
    (tmp_path / "rank-0.nccl").write_text("".join(lines), encoding="utf-8")
    (tmp_path / "rank-0.log").write_text("last words\n", encoding="utf-8")
    left = on_node.read_rank_files(tmp_path, [0, 1], nccl_log=True)
    assert left["0"]["nccl_log"] == "".join([*kept, warned])
    assert left["0"]["log_tail"] == f"{warned}last words\n"
    assert left["1"]["nccl_log"] == ""
    assert "nccl_log" not in on_node.read_rank_files(tmp_path, [0])["0"]


def test_a_log_without_end_is_cut_off_and_says_so(tmp_path: Path) -> None:
    line = f"{SAYS}Channel 00/0 : 0[0] -> 1[1] via P2P/IPC\n"
    (tmp_path / "rank-0.nccl").write_text(line * (2 * on_node.NCCL_LOG_BYTES // len(line)), encoding="utf-8")
    (text,) = (left["nccl_log"] for left in on_node.read_rank_files(tmp_path, [0], nccl_log=True).values())
    assert len(text) <= on_node.NCCL_LOG_BYTES + 100
    assert text.endswith(f"{on_node.NCCL_LOG_CUT}\n")


def test_the_launch_whose_log_is_judged_is_the_last_one_of_the_all_reduce() -> None:
    class OverNccl(FakeLauncher):
        def run(self, spec: JobSpec, *, on_event: Callable[[Mapping[str, Any]], None]) -> JobOutcome:
            if spec.nccl_log:
                self.jobs.append(spec)
                return sample.transport_job(spec.nodes)
            return super().run(spec, on_event=on_event)

    launcher = OverNccl()
    document = run(launcher=launcher)
    assert {job.program for job in launcher.jobs if job.nccl_log} == {"all_reduce.py"}
    assert set(verdicts(document, "nccl-transport").values()) == {"pass"}
    (first, *_) = (r for r in document["results"] if r["check"] == "nccl-transport")
    assert first["evidence"]["gpudirect"] == "used by 8 of 8"
    assert first["evidence"]["adapters"] == ["mlx5_0", "mlx5_1"]


# --- on which node it is wrong


@pytest.mark.parametrize("of", ["gpu01", "gpu02"])
def test_nodes_that_call_themselves_the_same_are_told_apart(of: str) -> None:
    def alike(node: str, text: str) -> str:
        text = text.replace(f"{node}:", "localhost:")
        return text.replace("/GDRDMA", "") if node == of else text

    assert judged(changed(alike)) == {
        node: Verdict.FAIL if node == of else Verdict.PASS for node in ("gpu01", "gpu02", "gpu03")
    }


def test_gpudirect_is_asked_of_nobody_whose_adapters_are_far_from_the_gpus() -> None:
    without = changed(lambda node, text: text.replace("/GDRDMA", ""))
    assert set(judged(without).values()) == {Verdict.FAIL}
    for node in without.nodes:
        without = seeding.edit(
            node, lambda raw: raw["topology"].update(stdout=raw["topology"]["stdout"].replace("PXB", "PHB"))
        )(without)
    assert set(judged(without).values()) == {Verdict.PASS}


def test_sockets_are_right_where_no_rdma_port_is_declared() -> None:
    def sockets(node: str, text: str) -> str:
        for adapter in "01":
            text = text.replace(f"NET/IB/{adapter}/GDRDMA", "NET/Socket/0")
        return text

    over_sockets = changed(sockets)
    assert set(judged(over_sockets).values()) == {Verdict.FAIL}
    nodes = tuple(replace(node, rdma_ports=0) for node in over_sockets.spec.nodes)
    assert set(judged(replace(over_sockets, spec=replace(over_sockets.spec, nodes=nodes))).values()) == {
        Verdict.PASS
    }


def test_two_nodes_of_two_versions_are_both_named_and_it_is_said_that_none_is_known_to_be_right() -> None:
    two = sample.healthy(nodes=2)
    outcome = two.jobs[HEARD]
    logs = {0: mismatch(8, 22005, 0, 22203), 8: mismatch(0, 22203, 8, 22005)}
    ranks = tuple(replace(rank, nccl_log=logs.get(rank.rank, "")) for rank in outcome.ranks)
    failed = replace(two, attempts={"all_reduce": (replace(outcome, job="all_reduce", ranks=ranks),)})
    results = evaluate(CHECK, failed)
    assert [result.verdict for result in results] == [Verdict.FAIL, Verdict.FAIL]
    assert all("cannot be determined" in result.because for result in results)


def mismatch(other: int, theirs: int, rank: int, own: int) -> str:
    """What a rank says that meets another version than its own."""
    said = f"rank {other} version {theirs} rank {rank} version {own}"
    return f"host:1:1 [0] init.cc:9 NCCL WARN Mismatched NCCL version detected : {said}\n"


def test_a_ranks_log_tells_of_no_other_nodes_version() -> None:
    """gpu03 says that gpu02 runs another version, of its ranks alone and together with its own."""
    evidence = sample.healthy()
    outcome = replace(evidence.jobs[HEARD], job="all_reduce")
    for lie in (mismatch(8, 21001, 8, 21001), mismatch(8, 21001, 16, 22203)):
        ranks = tuple(replace(rank, nccl_log=lie) if rank.node == "gpu03" else rank for rank in outcome.ranks)
        told = replace(evidence, attempts={"all_reduce": (replace(outcome, ranks=ranks),)})
        assert set(judged(told).values()) == {Verdict.PASS}


def test_a_version_has_a_vote_for_each_node_that_runs_it() -> None:
    """However many ranks gpu03 has."""
    three = sample.healthy(nodes=3)
    outcome = three.jobs[HEARD]
    logs = {"gpu01": (20, 22005, 22203), "gpu02": (20, 22005, 22203), "gpu03": (0, 22203, 22005)}
    like = outcome.ranks[-1]
    more = tuple(replace(like, rank=number) for number in range(24, 64))
    ranks = tuple(
        replace(rank, nccl_log=mismatch(*logs[rank.node][:2], rank.rank, logs[rank.node][2]))
        for rank in (*outcome.ranks, *more)
    )
    failed = replace(three, attempts={"all_reduce": (replace(outcome, job="all_reduce", ranks=ranks),)})
    results = {result.subject.node: result for result in evaluate(CHECK, failed)}
    assert results["gpu03"].because == "NCCL 2.20.5 here, 2.22.3 elsewhere"
    assert not any("2.22.3 here" in results[node].because for node in ("gpu01", "gpu02"))


def test_a_node_whose_nccl_is_of_another_version_is_named_though_nccl_did_not_mind() -> None:
    """Of the same series it warns of nothing, and hangs or crashes later."""
    version = {"gpu01": "2.22.3", "gpu02": "2.20.5", "gpu03": "2.22.3"}
    found = judged(changed(lambda node, log: f"{log}{SAYS}NCCL version {version[node]}+cuda12.5\n"))
    assert found["gpu02"] is Verdict.FAIL
    assert Verdict.FAIL not in (found["gpu01"], found["gpu03"])


# --- what one node says of others

LIES: dict[str, Callable[[str], str]] = {
    "nothing": lambda text: "",
    "half": lambda text: text[:900],
    "too long": lambda text: f"{text}{on_node.NCCL_LOG_CUT}\n",
    "no end": lambda text: text.replace("Init COMPLETE", "Init"),
    "sockets everywhere": lambda text: text.replace("via P2P/CUMEM/read", "via NET/Socket/0"),
    "of other ranks": lambda text: "".join(
        f"{text}{SAYS}Channel 00/0 : {sender}[0] -> {(sender + 1) % 24}[1] [send] via NET/Socket/0\n"
        for sender in range(24)
    ),
    "their trees": lambda text: f"{text}{SAYS}Trees [0] 9/-1/-1->3->17 [1] 9/-1/-1->20->1\n",
    "another ring": lambda text: f"{text}{SAYS}Channel 00/02 :   0   2   1\n",
    "of another group": lambda text: text.replace("nranks 24", "nranks 9"),
    **{
        f"a number of 5000 digits in {message[:12]!r}": lambda text, message=message: (  # type: ignore[misc]
            f"{text}{SAYS}{message.format('9' * 5000)}\n"
        )
        for message in (
            "Channel {}/02 : 0 1 2",
            "Channel 00/02 : 0 {} 2",
            "Channel {}/0 : 0[0] -> 1[1] via P2P/IPC",
            "Channel 00/0 : 0[0] -> 1[1] [send] via NET/IB/{}",
            "CollNet 00/0 : {} [send] via COLLNET/SHARP/0",
            "Pattern {}, crossNic 0, nChannels 1, bw 1/1, type SYS/SYS, sameChannels 1",
            "comm 0x1 rank {} nranks 24 cudaDev 0 - Init COMPLETE",
            "Trees [{}] 1/-1/-1->0->-1",
        )
    },
    "in a switch": lambda text: f"{text}{SAYS}CollNet 00/0 : 0 [send] via COLLNET/SHARP/0/GDRDMA\n",
}


@pytest.mark.parametrize("liar", ["gpu01", "gpu02", "gpu03"])
@pytest.mark.parametrize("lie", LIES)
def test_what_nccl_says_on_one_node_changes_no_result_of_the_others(liar: str, lie: str) -> None:
    lying = changed(lambda node, text: LIES[lie](text) if node == liar else text)
    for check in (CHECK, BY_ID["all-reduce-bandwidth"]):
        results = [r for r in evaluate(check, lying) if r.subject.node != liar]
        assert results == [r for r in evaluate(check, sample.healthy()) if r.subject.node != liar]


@pytest.mark.parametrize("lie", ["nothing", "half", "too long", "no end", "of another group"])
def test_a_log_that_cannot_be_read_is_its_nodes_alone(lie: str) -> None:
    found = judged(changed(lambda node, text: LIES[lie](text) if node == "gpu02" else text))
    assert found == {"gpu01": Verdict.PASS, "gpu02": Verdict.NOT_RUN, "gpu03": Verdict.PASS}
