"""Who can connect to whom: the job on real sockets, whom its answers blame, what becomes of other jobs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.validation_in_memory import FakeLauncher, blamed, records, run, verdicts

from clustercheck.checks.base import evaluate
from clustercheck.checks.peer_ports import (
    CHECK,
    INWARD,
    JOB,
    ON_THE_WAY,
    OUTWARD,
    arguments_of,
    closed,
    judge,
    timeout_of,
    ways_of,
)
from clustercheck.jobs import meeting, peer_ports, supervise
from clustercheck.launch.model import JobOutcome, JobSpec, RankState
from clustercheck.launch.requests import make_keys
from clustercheck.model import Subject, Verdict
from clustercheck.running.suites import load, suites
from clustercheck.samples import sample

JOBS = Path(meeting.__file__).parent
SAID = "10.77.0.2:41000 cannot be reached: timed out"
ConnectionMatrix = Sequence[tuple[int, int]]


# --- the job


def free_ports(addresses: Sequence[str]) -> list[str]:
    listeners = [meeting.listen(address, 0) for address in addresses]
    ends = [f"{address}:{one.getsockname()[1]}" for address, one in zip(addresses, listeners, strict=True)]
    for one in listeners:
        one.close()
    return ends


def ranks(tmp_path: Path, closed: int | None = None, limit_s: float = 30) -> list[dict[str, Any]]:
    """Three nodes' ranks to their verdicts; who connects to the ``closed`` one finds nobody there."""
    addresses = [f"127.0.0.{number}" for number in (1, 2, 3)]
    ends, nowhere = free_ports(addresses), free_ports(addresses)
    started = []
    for rank in range(3):
        directory = tmp_path / f"node{rank}"
        directory.mkdir()
        for source in JOBS.glob("*.py"):
            (directory / source.name).write_bytes(source.read_bytes())
        asked = {"peers": 32, "limit_s": limit_s}
        (directory / "arguments.json").write_text(json.dumps(asked), encoding="utf-8")
        keys = make_keys("s3cret", rank, 3)
        (directory / meeting.KEYS_FILE).write_text(json.dumps(keys), encoding="utf-8")
        told = [nowhere[n] if n == closed != rank else end for n, end in enumerate(ends)]
        environment = {
            "PATH": "/usr/bin:/bin", "PADDLE_TRAINER_ID": str(rank),
            "PADDLE_TRAINER_ENDPOINTS": ",".join(told), "GLOO_SOCKET_IFNAME": "lo",
        }  # fmt: skip
        words = [sys.executable, "rank.py", str(directory), "peer_ports"]
        started.append(subprocess.Popen(words, cwd=directory, env=environment))
    assert [process.wait(120) for process in started] == [0, 0, 0]
    found = [tmp_path / f"node{rank}" / f"rank-{rank}.verdict.json" for rank in range(3)]
    return [json.loads(path.read_text(encoding="utf-8")) for path in found]


def test_every_rank_reaches_every_other_and_none_waits_for_its_limit(tmp_path: Path) -> None:
    for rank, verdict in enumerate(ranks(tmp_path, limit_s=100)):
        others = {0, 1, 2} - {rank}
        assert verdict["reached"] == {str(other): "" for other in others}
        assert verdict["heard"] == sorted(others)
        assert (verdict["world"], verdict["interface"], verdict["ok"]) == (3, "lo", True)


def test_who_cannot_be_connected_to_is_named_by_all_others_and_connects_itself(tmp_path: Path) -> None:
    said = ranks(tmp_path, closed=1, limit_s=2)
    assert [sorted(peer for peer, error in verdict["reached"].items() if error) for verdict in said] == [
        ["1"], [], ["1"],
    ]  # fmt: skip
    assert "cannot be reached: [Errno 111] Connection refused" in said[0]["reached"]["1"]
    assert said[1]["heard"] == []
    outcome = sample.job(JOB, ["gpu01", "gpu02", "gpu03"], said)
    assert list(ways_of(outcome).inward) == ["gpu02"]


@given(st.integers(2, 200), st.integers(1, 40))
def test_who_connects_to_a_rank_is_known_to_it(size: int, most: int) -> None:
    pairs = [peer_ports.list_partners(rank, size, most) for rank in range(size)]
    for rank, (after, before) in enumerate(pairs):
        assert len(set(after)) == len(after) == min(most, size - 1)
        assert rank not in after
        assert all(rank in pairs[peer][1] for peer in after)
        assert all(rank in pairs[peer][0] for peer in before)


def test_of_more_nodes_the_last_to_start_are_waited_for() -> None:
    given_: Mapping[str, Any] = {"peers": 32, "limit_s": 20}
    assert [arguments_of(given_, nodes)["limit_s"] for nodes in (2, 64, 65, 1000)] == [24, 24, 28, 84]


@pytest.mark.parametrize("name", suites())
@pytest.mark.parametrize("nodes", [2, 64, 1000, 4096])
def test_a_rank_that_waits_to_the_end_is_not_taken_for_one_that_hangs(name: str, nodes: int) -> None:
    job = load(name).jobs[JOB]
    last_attempt_s = 5.0  # one that starts just before the limit
    waits_s = arguments_of(job.arguments, nodes)["limit_s"] + last_attempt_s
    assert waits_s < supervise.STALL_PART * timeout_of(job.timeout_s, nodes)


# --- the blame


def outcome(size: int, failed: ConnectionMatrix, most: int = 32) -> JobOutcome:
    """Every rank connects to those after it; these ways fail, by number."""
    said = [
        {
            "ok": True,
            "reached": {
                str(peer): SAID if (rank, peer) in failed else ""
                for peer in peer_ports.list_partners(rank, size, most)[0]
            },
        }
        for rank in range(size)
    ]
    return sample.job(JOB, names(size), said)


def names(size: int) -> list[str]:
    return [f"gpu{n:02d}" for n in range(size)]


@pytest.mark.parametrize(
    ("size", "failed", "inward", "outward", "between"),
    [
        (3, [(1, 0), (2, 0)], {0}, set(), []),
        (3, [(0, 1), (0, 2)], set(), {0}, []),
        (3, [(0, 1)], set(), set(), [("gpu00", "gpu01")]),
        (2, [(0, 1)], set(), set(), [("gpu00", "gpu01")]),
        (2, [(0, 1), (1, 0)], set(), set(), [("gpu00", "gpu01"), ("gpu01", "gpu00")]),
        (4, [(a, b) for a in range(4) for b in range(4) if a != b], {0, 1, 2, 3}, set(), []),
        (8, [(n, 3) for n in range(8)] + [(5, n) for n in range(8)], {3}, {5}, []),
        (8, [(n, 3) for n in range(8)] + [(1, 6)], {3}, set(), [("gpu01", "gpu06")]),
    ],
)
def test_ways_blame_a_node_where_most_of_its_ways_fail(
    size: int, failed: ConnectionMatrix, inward: set[int], outward: set[int], between: list[tuple[str, str]]
) -> None:
    ways = ways_of(outcome(size, failed))
    assert set(ways.inward) == {f"gpu{n:02d}" for n in inward}
    assert set(ways.outward) == {f"gpu{n:02d}" for n in outward}
    assert list(ways.between) == between


@given(st.integers(5, 40), st.data())
def test_a_few_closed_nodes_are_all_that_is_blamed(size: int, data: st.DataObject) -> None:
    """With fewer than half of the nodes closed, each is blamed, and no way is left to an open one."""
    closed = data.draw(st.sets(st.integers(0, size - 1), min_size=1, max_size=(size - 1) // 2 - 1))
    failed = [(n, node) for node in closed for n in range(size)]
    ways = ways_of(outcome(size, failed))
    assert set(ways.inward) == {f"gpu{n:02d}" for n in closed}
    assert not ways.outward and not ways.between


# --- the validation


class Network(FakeLauncher):
    """Connections of these ways fail."""

    def __init__(self, failed: ConnectionMatrix, **more: Any) -> None:
        super().__init__(change=self._cut, **more)
        self._failed = failed

    def _cut(self, spec: JobSpec, node: str, verdict: dict[str, Any]) -> None:
        for peer in verdict.get("reached", {}):
            if (verdict["rank"], int(peer)) in self._failed:
                verdict["reached"][peer] = SAID


@pytest.mark.parametrize("closed", [0, 2])
def test_a_firewall_is_blamed_on_its_node_and_the_others_go_on(closed: int) -> None:
    launcher = Network([(n, closed) for n in range(4)])
    document = run(records(4), launcher)
    node = f"gpu{closed + 1:02d}"
    assert blamed(document) == [("node", node, None, None)]
    assert document["culprits"][0]["remedy"] == INWARD
    assert (
        f"3 of 3 nodes cannot connect to it, {'gpu02' if closed == 0 else 'gpu01'}"
        in (document["culprits"][0]["because"])
    )
    reduced = verdicts(document, "all-reduce")
    assert reduced.pop(node) == "not_run"
    assert set(reduced.values()) == {"pass"}
    assert {node in job.nodes for job in launcher.jobs} == {False}
    of_node = next(
        r for r in document["results"] if (r["check"], r["subject"]["node"]) == ("all-reduce", node)
    )
    assert of_node["because"].startswith("dropped after peer-ports: 3 of 3 nodes cannot connect to it")


def test_of_two_nodes_both_are_suspects() -> None:
    document = run(records(2), Network([(0, 1)]))
    assert blamed(document) == [("link", "gpu01", None, "gpu02")]
    assert document["culprits"][0]["remedy"] == ON_THE_WAY


def test_what_lies_between_two_nodes_is_blamed_on_the_link_and_who_misses_it_is_left_out() -> None:
    """A ring that went by this way would wait without success, and blame who waited."""
    document = run(launcher=Network([(2, 1)]))
    assert blamed(document) == [("link", "gpu02", None, "gpu03")]
    assert document["culprits"][0]["remedy"] == ON_THE_WAY
    assert (
        f"gpu03 cannot connect to gpu02, others can, cannot tell which of the two it is: {SAID}"
        in (document["culprits"][0]["because"])
    )
    assert verdicts(document, "all-reduce") == {"gpu01": "pass", "gpu02": "pass", "gpu03": "not_run"}


@given(st.integers(3, 12), st.data())
def test_one_nodes_word_fails_no_other_and_takes_none_out(size: int, data: st.DataObject) -> None:
    liar = data.draw(st.integers(0, size - 1))
    named = data.draw(st.sets(st.integers(0, size - 1).filter(lambda n: n != liar), min_size=1))
    evidence = sample.healthy()
    told = outcome(size, [(liar, victim) for victim in named])
    spec = replace(evidence.spec, nodes=tuple(replace(evidence.spec.nodes[0], name=n) for n in names(size)))
    evidence = replace(evidence, spec=spec, jobs={**evidence.jobs, JOB: told})
    verdicts = {node: judge(evidence, Subject(node)).verdict for node in names(size)}
    assert verdicts.pop(f"gpu{liar:02d}") is Verdict.FAIL
    assert set(verdicts.values()) == {Verdict.PASS}
    assert set(closed(evidence)) == {f"gpu{liar:02d}"}


def test_of_ways_into_one_node_that_are_not_most_of_them_all_are_named() -> None:
    document = run(records(6), Network([(0, 3), (1, 3)]))
    assert blamed(document) == [("link", "gpu01", None, "gpu04")]
    assert f"gpu01 cannot connect to it, nor gpu02; others can: {SAID}" in document["culprits"][0]["because"]


def test_a_node_that_connects_to_nobody_is_blamed_itself() -> None:
    document = run(launcher=Network([(0, 1), (0, 2)]))
    assert blamed(document) == [("node", "gpu01", None, None)]
    assert document["culprits"][0]["remedy"] == OUTWARD


@pytest.mark.parametrize("nodes", [2, 4])
def test_a_container_that_starts_when_the_others_have_gone_blames_nobody(nodes: int) -> None:
    refused = "10.77.0.2:41000 cannot be reached: [Errno 111] Connection refused"

    def late(spec: JobSpec, _node: str, verdict: dict[str, Any]) -> None:
        last = len(spec.nodes) - 1
        for peer in verdict.get("reached", {}):
            if last in (verdict["rank"], int(peer)):
                verdict["reached"][peer] = refused
        if "listened" in verdict and verdict["rank"] == last:
            verdict["listened"] = [time + 60 for time in verdict["listened"]]

    document = run(records(nodes), FakeLauncher(change=late))
    assert (document["verdict"], blamed(document)) == ("incomplete", [])
    ports, reduced = verdicts(document, "peer-ports"), verdicts(document, "all-reduce")
    assert ports.pop(f"gpu0{nodes}") == reduced.pop(f"gpu0{nodes}") == "not_run"
    assert set(ports.values()) == set(reduced.values()) == {"pass" if nodes > 2 else "not_run"}


def test_a_firewall_that_resets_is_no_late_container() -> None:
    refused = "10.77.0.2:41000 cannot be reached: [Errno 111] Connection refused"

    class Resets(Network):
        def _cut(self, spec: JobSpec, node: str, verdict: dict[str, Any]) -> None:
            for peer in verdict.get("reached", {}):
                verdict["reached"][peer] = refused

    assert [place[1] for place in blamed(run(launcher=Resets([])))] == ["gpu01", "gpu02", "gpu03"]


def test_where_nobody_can_connect_no_job_waits_in_vain() -> None:
    launcher = Network([(a, b) for a in range(3) for b in range(3)])
    document = run(launcher=launcher)
    assert [culprit["node"] for culprit in document["culprits"]] == ["gpu01", "gpu02", "gpu03"]
    assert (len(launcher.connections), launcher.jobs) == (1, [])
    assert set(verdicts(document, "data-parallel").values()) == {"not_run"}


def test_a_job_that_does_not_end_well_blames_nobody_and_proves_nothing() -> None:
    def fail(spec: JobSpec) -> tuple[str, RankState] | None:
        return ("gpu02", RankState.CRASHED) if spec.program == "peer_ports.py" else None

    document = run(launcher=FakeLauncher(fail=fail))
    assert (document["verdict"], blamed(document)) == ("incomplete", [])
    assert set(verdicts(document, "peer-ports").values()) == {"not_run"}
    assert set(verdicts(document, "all-reduce").values()) == {"pass"}


def test_one_node_has_nobody_to_be_reached_by() -> None:
    document = run(records(1))
    assert verdicts(document, "peer-ports") == {"gpu01": "excluded"}


@pytest.mark.parametrize("said", [None, 3, {"x": ""}, {"1": 3}, {"9": ""}])
def test_what_a_rank_says_may_be_anything(said: Any) -> None:
    evidence = sample.healthy()
    ranks = evidence.jobs[JOB].ranks
    spoiled = (replace(ranks[0], verdict={"ok": True, "reached": said}), *ranks[1:])
    jobs = {**evidence.jobs, JOB: replace(evidence.jobs[JOB], ranks=spoiled)}
    results = evaluate(CHECK, replace(evidence, jobs=jobs))
    verdicts = [result.verdict for result in results]
    assert verdicts == [Verdict.NOT_RUN, Verdict.PASS, Verdict.PASS], "its own report, and no other's"
    assert results[0].because.startswith("cannot read: rank 0")
