"""A node's answers to the launcher: within bounds and in plain text, or that node's own failure."""

from __future__ import annotations

import copy
import json
import random
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.fuzz.targets.nodes import GOOD
from tests.support.examples import scaled
from tests.support.json_changes import places, value_at
from tests.support.validation_in_memory import Says

from clustercheck.launch import kept
from clustercheck.launch.agent import Agent, NodeActionError
from clustercheck.launch.answers import (
    MAX_MESSAGE,
    MAX_PHASE,
    Answer,
    EmptyAnswer,
    PrepareAnswer,
    StartAnswer,
    WaitAnswer,
)
from clustercheck.launch.docker import DockerLauncher
from clustercheck.launch.kept import KeptAnswers
from clustercheck.launch.model import JobSpec, RankState
from clustercheck.parse.reading import CannotReadError

from .test_docker import IMAGE, NODES, Nodes

KINDS: dict[str, type[Answer]] = {
    "prepare": PrepareAnswer,
    "start": StartAnswer,
    "wait": WaitAnswer,
    "stop": EmptyAnswer,
    "remove": EmptyAnswer,
}
ANYTHING: list[Any] = [
    None, True, -1, 0, 10**9, 2**64, 10**4000, 1.5, float("nan"), float("inf"), "", "x", "x" * 70_000,
    "\ud800", "\x1b]52;c;cm0=\x07", [], [1], [[]], {}, {"x": {}}, {"": [None]}, ["x"] * 5000,
]  # fmt: skip
WHOLE = [
    "[1]",
    "{}",
    "",
    "null",
    "1",
    '"x"',
    "{" * 9000,
    '{"ok": true}',
    '{"ok": true, "ok": []}',
    "\x00",
    "NaN",
]
# Bytes in use at once while answers are read: the longest has 5 MB.
MAX_PEAK_BYTES = 16 << 20


def ask(action: str, said: str) -> Answer:
    return Agent(Says(said)).ask("gpu02", {"action": action}, KINDS[action], 5.0)


def mutated(action: str, chosen: random.Random) -> str:
    """A good answer in which something is missing or anything at all, or no answer."""
    if chosen.random() < 0.1:
        return chosen.choice(WHOLE)
    document = json.loads(json.dumps(GOOD[action]))
    for _ in range(chosen.randint(1, 3)):
        if not document:
            break
        place = chosen.choice(list(places(document)))
        parent = value_at(document, place[:-1])
        if isinstance(parent, dict) and chosen.random() < 0.3:
            parent.pop(place[-1])
        elif isinstance(parent, (dict, list)):
            parent[place[-1]] = copy.deepcopy(chosen.choice(ANYTHING))
    text = json.dumps(document)
    return text[: chosen.randrange(len(text))] if chosen.random() < 0.1 else text


@contextmanager
def bounded_memory(limit: int) -> Iterator[None]:
    """Fail where more than this was in use at once of what is made meanwhile."""
    tracemalloc.start()
    try:
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < limit, f"{peak >> 20} MiB"


def test_the_measure_of_memory_sees_what_is_gone_again() -> None:
    with pytest.raises(AssertionError, match="16 MiB"), bounded_memory(MAX_PEAK_BYTES):
        bytes(MAX_PEAK_BYTES)


@pytest.mark.parametrize("action", GOOD)
def test_mutated_answers_are_read_or_refused_and_take_no_memory(action: str) -> None:
    chosen = random.Random(f"answers to {action}")  # noqa: S311 - the same on each run
    read = 0
    texts = [mutated(action, chosen) for _ in range(scaled(240))]
    long = [json.dumps({**GOOD[action], "x": "y" * 5_000_000}), "[" * 5_000_000]
    with bounded_memory(MAX_PEAK_BYTES):
        for text in [*texts, *long]:
            try:
                ask(action, text)
            except NodeActionError as error:
                assert len(str(error)) <= MAX_MESSAGE + 40
                assert "\x1b" not in str(error)
            else:
                read += 1
    assert read < len(texts)


def prepared(**more: Any) -> PrepareAnswer:
    answer = ask("prepare", json.dumps({**GOOD["prepare"], **more}))
    assert isinstance(answer, PrepareAnswer)
    return answer


@pytest.mark.parametrize(
    "more",
    [
        {"address": "gpu02.example"},
        {"address": "192.0.2.300"},
        {"address": "192.0.2.2:22"},
        {"address": "192.0.2.02"},
        {"address": "::1"},
        {"interface": ""},
        {"interface": "eth0 lo"},
        {"interface": "../eth0"},
        {"interface": "-eth0"},
        {"interface": "eth0\n"},
        {"interface": "abcdefghijklmnop"},
        {"ports": [4000]},
        {"ports": [4000, 4000]},
        {"ports": [22, 4001]},
        {"ports": [4000, 70_000]},
        {"ports": [4000, True]},
        {"ports": [4000, "4001"]},
        {"framework": {"version": "3", "cuda": True, "gpus": 10**9}},
        {"framework": {"version": "3", "cuda": True, "gpus": 2}},
        {"framework": {"version": "3" * 200, "cuda": False, "gpus": 0}},
        {"memlock": -2},
    ],
)
def test_what_would_go_into_other_ranks_environment_is_checked(more: dict[str, Any]) -> None:
    with pytest.raises(NodeActionError, match="unreadable answer"):
        prepared(**more)


def test_an_honest_answer_is_read_whole() -> None:
    answer = prepared(interface="ens2f0np0.100", address="198.51.100.7", ports=[4000, 4001, 4002])
    assert (answer.interface, answer.address, answer.ports) == (
        "ens2f0np0.100",
        "198.51.100.7",
        (4000, 4001, 4002),
    )


def waited(**record: Any) -> WaitAnswer:
    whole = {**GOOD["wait"]["ranks"]["1"], **record}
    answer = ask("wait", json.dumps({**GOOD["wait"], "ranks": {"1": whole}}))
    assert isinstance(answer, WaitAnswer)
    return answer


def test_what_a_rank_says_is_short_and_plain() -> None:
    verdict = {"ok": False, "because": "\x1b[2Jno " * 100_000, "points": [{"because": "y" * 9000}]}
    progress = {"phase": "\x9b31mjoining " * 900}
    record = waited(verdict=verdict, progress=progress, log_tail="a\x1bcb\n\tc").ranks["1"]
    assert record.verdict is not None
    assert len(record.verdict["because"]) <= MAX_MESSAGE
    assert record.verdict["because"].startswith("no no ")
    assert len(record.verdict["points"][0]["because"]) <= MAX_MESSAGE
    assert record.progress is not None
    assert len(record.progress.phase) <= MAX_PHASE
    assert record.log_tail == "ab\n\tc"


@pytest.mark.parametrize(
    "record",
    [
        {"verdict": {"because": ["x"]}},
        {"verdict": {"phase": 1}},
        {"verdict": {"collective": "yes"}},
        {"verdict": {"points": [[]] * 20_000}},
        {"verdict": {"a": {"b": "x" * 70_000}}},
        {"end": {"exit_code": 10**9}},
        {"log_tail": "x" * 20_000},
        {"nccl_log": "x" * 2_000_000},
        {"progress": {"counter": -1}},
    ],
)
def test_a_record_of_a_rank_beyond_its_bounds_is_its_nodes_failure(record: dict[str, Any]) -> None:
    with pytest.raises(NodeActionError, match="unreadable answer"):
        waited(**record)


def test_a_node_answers_for_its_own_ranks_only() -> None:
    nodes = Nodes()
    nodes.special["gpu02", "wait"] = lambda request: Nodes.ended([*request["ranks"], 0], {"ok": True})
    launcher = DockerLauncher(nodes, run_id="r", addresses={node: f"192.0.2.{node[-1]}" for node in NODES})
    spec = JobSpec("pairs", "pairs.py", NODES, IMAGE, 5.0)
    outcome = launcher.run(spec, on_event=lambda event: None)
    assert outcome.ranks[1].state is RankState.UNREACHABLE
    assert outcome.ranks[1].because == "its answer is about ranks of other nodes"


def test_what_one_node_says_in_all_jobs_together_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = Nodes()
    said = {"ok": True, "text": "x" * 10_000}
    nodes.special["gpu02", "wait"] = lambda request: Nodes.ended(request["ranks"], said)
    launcher = DockerLauncher(nodes, run_id="r", addresses={node: f"192.0.2.{node[-1]}" for node in NODES})
    monkeypatch.setattr(kept, "MAX_KEPT", 45_000)

    def because(job: str) -> list[str]:
        spec = JobSpec(job, "pairs.py", NODES, IMAGE, 5.0)
        return [rank.because for rank in launcher.run(spec, on_event=lambda event: None).ranks]

    jobs = ["one", "two", "one", "two", "three"]  # again, as in a burn-in
    assert [because(job)[1] for job in jobs] == [""] * 5
    refused = because("four")
    assert "its answers to all jobs would take more than" in refused[1]
    assert not any("answers" in words for place, words in enumerate(refused) if place != 1)
    assert because("one") == [""] * len(NODES)


def test_wide_characters_and_many_values_weigh_what_they_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "MAX_KEPT", 40_000)
    for text in ("x" * 30_000, "[" * 100, "\U0001f600" * 5000, "\\ud83d\\ude00" * 800):
        answers = KeptAnswers()
        answers.add("gpu01", "one", text)
        with pytest.raises(CannotReadError):
            answers.add("gpu01", "two", text * 4)
        answers.add("gpu02", "two", text)


def test_the_directory_to_remove_is_ours_whatever_a_node_says() -> None:
    nodes = Nodes({("gpu02", "start"): lambda _: {"container": "c", "directory": "/etc"}})
    launcher = DockerLauncher(nodes, run_id="r", addresses={node: f"192.0.2.{node[-1]}" for node in NODES})
    launcher.run(JobSpec("pairs", "pairs.py", NODES, IMAGE, 5.0), on_event=lambda event: None)
    removed = [request for node, request in nodes.asked if request["action"] == "remove" and node == "gpu02"]
    assert [request["directory"] for request in removed] == ["/var/lib/clusterctl/jobs/r/pairs"]
