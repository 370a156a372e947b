"""Whatever one node answers, the others are judged, and a report can be written."""

from __future__ import annotations

import copy
import json
import tracemalloc
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fuzz.targets.nodes import TARGETS
from tests.support.examples import examples
from tests.support.validation_in_memory import FakeLauncher, FakeTransport, Says, records, run

from clustercheck.checks.all import BY_ID, CHECKS
from clustercheck.checks.base import MAX_SHOWN, evaluate
from clustercheck.checks.support import seeding
from clustercheck.launch.agent import Agent, NodeActionError
from clustercheck.launch.answers import EmptyAnswer, PrepareAnswer, StartAnswer, WaitAnswer
from clustercheck.launch.model import RankOutcome
from clustercheck.launch.transport import Completed
from clustercheck.model import Verdict
from clustercheck.parse.document import LARGEST, MAX_DEPTH, read_answer
from clustercheck.parse.nccl_tests_text import parse_nccl_tests
from clustercheck.parse.reading import CannotReadError
from clustercheck.samples import sample
from clustercheck.samples.nccl_tests import table

HOSTILE = {
    "open brackets": "[[[[" * 50_000,
    "a deep object": '{"probe": ' * 5000,
    "900 deep": '{"probe": 1, "host": ' + "[" * 900 + "]" * 900 + "}",
    "half a character": '{"probe": 1, "host": {"hostname": "\\ud800"}, "errors": {"x": "\\uDFFF"}}',
    "not a number": '{"probe": 1, "clock_began": NaN}',
    "infinite": '{"probe": 1, "clock_began": 1e999}',
    "a giant number": '{"probe": ' + "9" * 10_000 + "}",
    "too long": '{"probe": "' + "x" * LARGEST + '"}',
    "an array": "[1, 2]",
    "nothing": "",
    "parts of another kind": json.dumps({key: [[0]] for key in sample.probe_record(1)} | {"probe": 1}),
}


class Hostile(FakeTransport):
    """gpu02 prints what it likes."""

    def __init__(self, said: str) -> None:
        super().__init__(records())
        self.said = said

    def run(self, node: str, argv: Sequence[str], *, stdin: str = "", timeout_s: float) -> Completed:
        if node == "gpu02":
            return Completed(0, self.said, "")
        return super().run(node, argv, stdin=stdin, timeout_s=timeout_s)


@pytest.mark.parametrize("said", HOSTILE.values(), ids=list(HOSTILE))
def test_one_node_that_prints_anything_ends_nothing_for_the_others(said: str, tmp_path: Path) -> None:
    document = run(transport=Hostile(said))
    verdicts: dict[str, set[str]] = {}
    for result in document["results"]:
        verdicts.setdefault(str(result["subject"]["node"]), set()).add(result["verdict"])
    assert "pass" in verdicts["gpu01"]
    assert "pass" in verdicts["gpu03"]
    assert "pass" not in verdicts["gpu02"] or said == HOSTILE["half a character"]
    (tmp_path / "result.json").write_text(json.dumps(document, ensure_ascii=False), encoding="utf-8")


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path to every part of a record."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inside:
        yield (*path, key)
        yield from places(each, (*path, key))


RECORD = sample.probe_record(2)
PLACES = list(places(RECORD))
ANYTHING = st.sampled_from(
    [None, True, -1, 0, 2**70, 1.5, "", "x", "\N{REPLACEMENT CHARACTER}", "\x1b[2J", "9" * 5000, [], [None],
     [[]], {}, {"rc": 0}, {"rc": 0, "stdout": 7, "stderr": []}, {"x": {}}]
)  # fmt: skip


@pytest.mark.timeout(900)  # with all examples, on a busy machine
@examples(400)
@given(st.lists(st.tuples(st.sampled_from(PLACES), ANYTHING), min_size=1, max_size=4))
def test_a_record_with_anything_anywhere_ends_nothing(changes: list[tuple[tuple[Any, ...], Any]]) -> None:
    record = copy.deepcopy(RECORD)
    for path, value in changes:
        inside: Any = record
        try:
            for key in path[:-1]:
                inside = inside[key]
            inside[path[-1]] = value
        except (TypeError, KeyError, IndexError):
            continue  # an earlier change has taken the place away
    found = {**records(), "gpu02": record}
    document = run(found, FakeLauncher())
    assert {r["verdict"] for r in document["results"] if r["subject"]["node"] == "gpu01"} >= {"pass"}


@pytest.mark.parametrize("kind", [PrepareAnswer, StartAnswer, WaitAnswer, EmptyAnswer])
@pytest.mark.parametrize("said", [*HOSTILE.values(), "{}", '{"ok": 1}', '{"ok": false, "because": [[]]}'])
def test_an_answer_of_another_kind_is_an_error_of_its_node(kind: Any, said: str) -> None:
    with pytest.raises(NodeActionError):
        Agent(Says(said)).ask("gpu01", {"action": "x"}, kind, 5.0)


@pytest.mark.parametrize(
    "more",
    [
        {"ranks": {"0": {"end": {"order": "first"}}}},
        {"ranks": {"0": {"end": {"state": ["Z"]}}}},
        {"ranks": {"0": {"progress": {"counter": "far"}}}},
        {"ranks": {"0": {"stack": "x" * 3_000_000}}},
        {"ranks": []},
        {"exit_code": "0"},
    ],
)
def test_traces_of_ranks_of_another_kind_are_an_error_of_their_node(more: dict[str, Any]) -> None:
    with pytest.raises(NodeActionError, match="unreadable answer"):
        Agent(Says(json.dumps({"ok": True, "exit_code": 0, **more}))).ask("gpu01", {}, WaitAnswer, 5.0)


@given(st.text(st.sampled_from('\\ud83DeEcC"0')))
@examples(300)
def test_half_characters_are_replaced_and_all_else_is_kept(text: str) -> None:
    written = '{"a": "' + text + '"}'
    try:
        plain = json.loads(written)
    except ValueError:
        with pytest.raises(CannotReadError):
            read_answer(written, "it")
        return
    expected = "".join("\N{REPLACEMENT CHARACTER}" if "\ud800" <= c <= "\udfff" else c for c in plain["a"])
    assert read_answer(written, "it") == {"a": expected}


def test_what_a_check_shows_of_a_node_is_cut_and_says_so() -> None:
    """A table of the report has it in a cell: of a thousand such nodes it could not be opened."""
    long = seeding.edit("gpu01", lambda raw: raw["host"].update(kernel="6" * 5000))
    result = evaluate(BY_ID["os-alike"], long(sample.healthy()))[0]
    for shown in (result.measured, result.expected):
        assert len(str(shown)) <= MAX_SHOWN
    assert "characters omitted" in str(result.measured)


def test_depth_is_limited() -> None:
    def nested(depth: int) -> str:
        return '{"a": ' + "[" * (depth - 1) + "]" * (depth - 1) + "}"

    assert read_answer(nested(MAX_DEPTH), "it")
    with pytest.raises(CannotReadError, match="deep"):
        read_answer(nested(MAX_DEPTH + 1), "it")


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("probe-record", json.dumps({**sample.probe_record(2), "nics": [{"name": ["x"], "mtu": 1500}]})),
        ("probe-record", json.dumps({**sample.probe_record(2), "mounts": [{"path": [["x"]]}]})),
        (
            "probe-record",
            json.dumps({**sample.probe_record(2), "pci": [{"address": {}, "vendor": []}] * 5000}),
        ),
        ("rank-record", "all_reduce\n[1]"),
        (
            "rank-record",
            'pairs\n{"verdict": {"trials": [{"ranks": [[]], "round": {}}]}, "end": {"exit_code": 0}}',
        ),
        ("launcher-prepare", "[1]"),
        ("launcher-wait", '{"ok": true, "ranks": {"1": {"verdict": {"because": [[]]}}}}'),
    ],
)
def test_one_node_that_says_this_changes_nothing_for_the_others(target: str, said: str) -> None:
    TARGETS[target].run(said.encode())


@pytest.mark.parametrize("name", TARGETS)
def test_what_honest_nodes_say_changes_nothing(name: str) -> None:
    target = TARGETS[name]
    for seed in target.seeds()[:2]:
        target.run(seed)


def test_a_rank_that_names_millions_of_gpus_takes_no_memory() -> None:
    text = table("all_reduce", ["gpu02"], 8, 200.0)
    tracemalloc.start()
    with pytest.raises(CannotReadError, match="8 ranks that are not the 8000000 asked for"):
        parse_nccl_tests(text, "all_reduce", 8_000_000)
    with pytest.raises(CannotReadError, match="8 ranks that are not"):
        parse_nccl_tests(text, "all_reduce", 1 << 63)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 2_000_000


LACKING = {
    "training_paddle": {"without": "the image has no Paddle", "cases": []},
    "training_torch": {"without": "the image has no PyTorch", "cases": []},
    "nccl_tests": {"without_mpi": "the image has no mpirun"},
    "collectives": {"not_done": {"all_gather": "gloo has none", "all_to_all": "gloo has none"}},
}


@pytest.mark.parametrize("job", LACKING)
def test_one_rank_that_says_that_the_image_lacks_something_excuses_no_other(job: str) -> None:
    def change(rank: RankOutcome, verdict: dict[str, Any]) -> None:
        if rank.node == "gpu01":
            verdict.update(LACKING[job])

    checks = [check for check in CHECKS if check.job == job]
    evidence = seeding.verdicts(job, change)(sample.healthy())
    results = [result for check in checks for result in evaluate(check, evidence)]
    others = [result for result in results if result.subject.node != "gpu01"]
    assert Verdict.EXCLUDED not in {result.verdict for result in others}
    assert {result.verdict for result in others if result.subject.node} == {Verdict.PASS}
