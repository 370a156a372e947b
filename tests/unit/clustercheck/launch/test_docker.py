"""The launcher over nodes that answer as the test says: bounded, ended for all at once, nobody forgotten."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import wait
from typing import Any

import pytest

from clustercheck.errors import ExplainedError
from clustercheck.launch.docker import DockerLauncher
from clustercheck.launch.model import JobSpec, RankState
from clustercheck.launch.requests import name_operator
from clustercheck.launch.transport import Completed, NodeTimeoutError, NodeUnreachableError
from clustercheck.launch.workers import Workers

NODES = ("gpu01", "gpu02", "gpu03")
IMAGE = "registry01:5000/library/paddle@sha256:" + "0" * 64
ENDED = {"exit_code": 0, "order": 0, "killed": "", "state": ""}


class Nodes:
    """A Transport: each node answers every action; ``special`` replaces an answer of one node."""

    def __init__(self, special: Mapping[tuple[str, str], Callable[[dict], Any]] | None = None) -> None:
        self.special = dict(special or {})
        self.asked: list[tuple[str, dict]] = []
        self.stopped = {node: threading.Event() for node in NODES}
        self._lock = threading.Lock()

    def run(self, node: str, argv: Any, *, stdin: str = "", timeout_s: float) -> Completed:
        assert list(argv) == ["python3", "-I", "-"]
        literal = re.search(r"sys\.exit\(main\((.*)\)\)\n$", stdin)[1]
        request = json.loads(eval(literal))  # noqa: S307 - a literal of ours
        with self._lock:
            self.asked.append((node, request))
        action = request["action"]
        answer = self.special.get((node, action), lambda _: self.answer(node, request))(request)
        return Completed(0, json.dumps({"ok": True, **answer}), "")

    def answer(self, node: str, request: dict) -> dict:
        index = NODES.index(node)
        match request["action"]:
            case "prepare":
                return {
                    "interface": "eth0",
                    "address": f"192.0.2.{index + 1}",
                    "interface_because": "carries the node's address",
                    "ports": [4000, 4001],
                    "memlock": -1,
                    "infiniband": False,
                    "framework": {"version": "3.3.1", "cuda": False, "gpus": 0},
                    "pulled": False,
                    "removed": [],
                }
            case "start":
                return {"container": f"c-{node}"}
            case "wait":
                return self.ended(request["ranks"], {"ok": True, "because": ""})
            case "stop":
                self.stopped[node].set()
        return {}

    @staticmethod
    def ended(ranks: list[int], verdict: dict | None, *, code: int = 0, **end: Any) -> dict:
        left = {"verdict": verdict, "end": {**ENDED, "exit_code": code, **end}, "progress": None}
        return {
            "ended": True,
            "exit_code": 0 if code == 0 else 1,
            "out_of_memory": False,
            "log_tail": "",
            "ranks": {str(rank): {**left, "stack": "", "log_tail": ""} for rank in ranks},
        }

    def actions(self, node: str) -> list[str]:
        return [request["action"] for asked, request in self.asked if asked == node]

    def waits_until_stopped(self, node: str) -> Callable[[dict], dict]:
        def answer(request: dict) -> dict:
            assert self.stopped[node].wait(10), f"{node} was never stopped"
            return self.ended(request["ranks"], None, code=-9, killed="told", state="S")

        return answer


def launch(nodes: Nodes, **more: Any):
    events: list[dict] = []
    launcher = DockerLauncher(
        nodes, run_id="r", addresses={n: f"192.0.2.{i}" for i, n in enumerate(NODES, 1)}
    )
    spec = JobSpec("all-reduce", "all_reduce.py", NODES, IMAGE, 30.0, {"sizes_bytes": [8]}, **more)
    return launcher.run(spec, on_event=lambda event: events.append(dict(event))), events


def test_nodes_that_end_while_others_are_still_asked_are_heard_in_the_order_of_their_ends(monkeypatch):
    many = tuple(f"gpu{number:02d}" for number in range(1, 13))
    monkeypatch.setattr(sys.modules[__name__], "NODES", many)
    submit, ends = Workers.submit, []

    def ended_at_once(self, work, *arguments):
        future = submit(self, work, *arguments)
        if work.__name__ == "_wait_one":
            wait([future], timeout=30)
            ends.append(arguments[0].node)
        return future

    monkeypatch.setattr(Workers, "submit", ended_at_once)
    _, events = launch(Nodes())
    assert sorted(ends) == list(many)
    assert [event["node"] for event in events if event["type"] == "job_node_ended"] == ends


def test_each_rank_gets_the_keys_that_it_shares_with_each_other_alone():
    nodes = Nodes()
    launch(nodes, ranks_per_node=1, secret="of this launch")
    keys = {}
    for _, request in nodes.asked:
        if request["action"] == "start":
            files = {name: base64.b64decode(text).decode() for name, text in request["files"].items()}
            rank = json.loads(files["job.json"])["ranks"][0]["rank"]
            keys[rank] = json.loads(files["keys.json"])
            assert "of this launch" not in "".join(files.values())
    assert {rank: sorted(own) for rank, own in keys.items()} == {0: ["1", "2"], 1: ["0", "2"], 2: ["0", "1"]}
    assert keys[0]["1"] == keys[1]["0"] != keys[0]["2"] == keys[2]["0"] != keys[1]["2"] == keys[2]["1"]


def raises(error: Exception) -> Callable[[dict], dict]:
    def answer(_: dict) -> dict:
        raise error

    return answer


def test_a_good_job_reports_its_start_and_leaves_nothing():
    nodes = Nodes()
    outcome, events = launch(nodes)
    assert outcome.good
    assert outcome.first_failure is None
    assert [rank.node for rank in outcome.ranks] == list(NODES)
    kinds = [event["type"] for event in events]
    assert kinds.index("job_started") < kinds.index("job_node_ended")
    started = [event for event in events if event["type"] == "job_started"]
    assert {event["container"] for event in started} == {"c-gpu01", "c-gpu02", "c-gpu03"}
    assert outcome.facts["backend"] == "gloo"
    assert outcome.facts["interfaces"]["gpu01"] == "eth0"
    for node in NODES:
        assert nodes.actions(node) == ["prepare", "start", "wait", "remove"]


def test_the_programs_and_their_arguments_are_shipped_whole():
    nodes = Nodes()
    launch(nodes)
    start = next(request for _, request in nodes.asked if request["action"] == "start")
    files = {name: base64.b64decode(text).decode() for name, text in start["files"].items()}
    assert json.loads(files["arguments.json"]) == {"sizes_bytes": [8]}
    job = json.loads(files["job.json"])
    assert job["program"] == "all_reduce"
    assert job["timeout_s"] == 30.0
    assert job["ranks"][0]["environment"]["PADDLE_MASTER"] == "192.0.2.1:4000"
    assert {"rank.py", "supervise.py", "all_reduce.py", "gpu_gemm.py", "backends/paddle.py"} <= set(files)
    assert "__init__.py" not in files
    assert "keys.json" not in files
    assert start["labels"] == {
        "clusterctl.run": "r",
        "clusterctl.job": "all-reduce",
        "clusterctl.rank": str(job["ranks"][0]["rank"]),
        "clusterctl.by": name_operator(),
    }


def test_the_first_failure_ends_all_the_others():
    nodes = Nodes()
    died = Nodes.ended([1], None, code=-11)
    nodes.special = {
        ("gpu01", "wait"): nodes.waits_until_stopped("gpu01"),
        ("gpu02", "wait"): lambda _: died,
        ("gpu03", "wait"): nodes.waits_until_stopped("gpu03"),
    }
    outcome, events = launch(nodes)
    assert outcome.first_failure.node == "gpu02"
    assert outcome.first_failure.state is RankState.CRASHED
    assert [rank.state for rank in outcome.ranks] == [RankState.KILLED, RankState.CRASHED, RankState.KILLED]
    assert "stop" not in nodes.actions("gpu02")
    stopping = next(event for event in events if event["type"] == "job_stopping")
    assert stopping["because_of"] == "gpu02"
    assert stopping["nodes"] == ["gpu01", "gpu03"]


def test_the_node_that_fails_is_heard_however_many_others_still_run(monkeypatch):
    monkeypatch.setattr("clustercheck.launch.docker.MAX_PARALLEL", 1)
    nodes = Nodes()
    nodes.special = {(node, "wait"): nodes.waits_until_stopped(node) for node in NODES}
    nodes.special["gpu03", "wait"] = lambda request: Nodes.ended(request["ranks"], None, code=-11)
    outcome, events = launch(nodes)
    assert outcome.first_failure.node == "gpu03"
    assert [rank.state for rank in outcome.ranks] == [RankState.KILLED, RankState.KILLED, RankState.CRASHED]
    assert next(event["node"] for event in events if event["type"] == "job_node_ended") == "gpu03"


def test_a_node_that_is_down_is_named_and_nothing_is_started():
    nodes = Nodes({("gpu03", "prepare"): raises(NodeUnreachableError("gpu03", "it does not answer"))})
    outcome, _ = launch(nodes)
    assert outcome.first_failure.node == "gpu03"
    assert outcome.first_failure.state is RankState.UNREACHABLE
    assert outcome.first_failure.because == "it does not answer"
    assert [rank.state for rank in outcome.ranks[:2]] == [RankState.KILLED] * 2
    assert "gpu03 could not take part" in outcome.ranks[0].because
    assert "start" not in nodes.actions("gpu01")


def test_a_node_lost_in_the_middle_is_named_and_the_others_are_stopped():
    nodes = Nodes({("gpu02", "wait"): raises(NodeTimeoutError("gpu02", "no answer within 75 s"))})
    nodes.special["gpu01", "wait"] = nodes.waits_until_stopped("gpu01")
    nodes.special["gpu03", "wait"] = nodes.waits_until_stopped("gpu03")
    outcome, _ = launch(nodes)
    assert outcome.first_failure.node == "gpu02"
    assert outcome.first_failure.state is RankState.UNREACHABLE
    assert "did not answer in time" in outcome.first_failure.because


def test_a_container_that_cannot_start_stops_those_that_did():
    nodes = Nodes({("gpu01", "start"): lambda _: {"ok": False, "because": "docker run: no such image"}})
    outcome, _ = launch(nodes)
    assert outcome.first_failure.node == "gpu01"
    assert outcome.first_failure.state is RankState.FAILED
    assert outcome.first_failure.because == "docker run: no such image"
    assert nodes.actions("gpu02")[-1] == "remove"
    assert nodes.actions("gpu03")[-1] == "remove"


def test_an_answer_that_is_no_json_is_that_nodes_failure():
    class Babble(Nodes):
        def run(self, node: str, argv: Any, *, stdin: str = "", timeout_s: float) -> Completed:
            if node == "gpu02":
                return Completed(127, "", "sh: 1: python3: not found\n")
            return super().run(node, argv, stdin=stdin, timeout_s=timeout_s)

    outcome, _ = launch(Babble())
    assert outcome.first_failure.node == "gpu02"
    assert outcome.first_failure.because == "sh: 1: python3: not found"


def test_an_image_is_asked_what_it_is_only_once():
    nodes = Nodes()
    launcher = DockerLauncher(nodes, run_id="r", addresses=dict.fromkeys(NODES, "192.0.2.1"))
    for _ in range(2):
        launcher.run(JobSpec("pairs", "pairs.py", NODES, IMAGE, 5.0), on_event=lambda event: None)
    asked = [r["framework"] for node, r in nodes.asked if r["action"] == "prepare" and node == "gpu01"]
    assert asked == [None, {"version": "3.3.1", "cuda": False, "gpus": 0}]


def test_an_interrupt_stops_every_container_before_it_is_raised():
    nodes = Nodes()
    for node in NODES:
        nodes.special[node, "wait"] = nodes.waits_until_stopped(node)
    started: list[str] = []

    def on_event(event: Mapping[str, Any]) -> None:
        if event["type"] == "job_started":
            started.append(event["node"])

    launcher = DockerLauncher(nodes, run_id="r", addresses=dict.fromkeys(NODES, "192.0.2.1"))

    def interrupted(_spec: Any, _pool: Any, _started: Any, *_: Any, **_more: Any) -> Any:
        raise KeyboardInterrupt

    launcher._wait = interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        launcher.run(JobSpec("pairs", "pairs.py", NODES, IMAGE, 5.0), on_event=on_event)
    assert sorted(started) == list(NODES)
    for node in NODES:
        assert nodes.actions(node)[-1] == "remove"
    assert launcher.abort() == []


BUSY = {"ok": False, "busy": True, "because": "the node is busy: run r9 of ops@head holds it"}


def test_nodes_held_by_another_run_are_an_error_of_the_request():
    with pytest.raises(ExplainedError) as caught:
        launch(Nodes({(node, "prepare"): lambda _: BUSY for node in NODES}))
    assert caught.value.code == "launch.busy"
    assert caught.value.what == "gpu01: the node is busy: run r9 of ops@head holds it"


def test_one_node_held_by_another_run_is_named_and_keeps_no_gpu_of_others_from_its_programs():
    nodes = Nodes()
    nodes.special = {(node, "prepare"): with_gpus(nodes, node, 1) for node in NODES}
    nodes.special["gpu02", "prepare"] = lambda _: BUSY
    of_group, _ = launch(nodes)
    assert {node: rank.because for node, rank in of_group.suspects.items()} == {"gpu02": BUSY["because"]}
    alone, _ = launch(nodes, alone=True)
    states = {rank.node: rank.state for rank in alone.ranks}
    assert states == {"gpu01": RankState.OK, "gpu02": RankState.FAILED, "gpu03": RankState.OK}


def test_an_interrupt_does_not_wait_for_a_pull():
    pulling, pulled = threading.Event(), threading.Event()

    class Pulling(Nodes):
        def abort(self) -> None:
            pulled.set()

    def pull(_: dict) -> dict:
        pulling.set()
        pulled.wait(30)
        raise NodeUnreachableError("gpu01", "the command was ended")

    def down(_: dict) -> dict:
        pulling.wait(30)
        raise KeyboardInterrupt

    nodes = Pulling({("gpu02", "prepare"): pull, ("gpu01", "prepare"): down})
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        launch(nodes)
    assert time.monotonic() - begun < 25
    assert pulled.is_set()
    assert all(nodes.actions(node) in (["prepare"], []) for node in NODES)


def test_a_program_that_was_interrupted_ends_though_a_node_does_not():
    source = (
        "import sys, threading; sys.path.insert(0, 'tests/unit')\n"
        "from clustercheck.launch.workers import Workers\n"
        "pool = Workers(1)\n"
        "stuck = [pool.submit(threading.Event().wait) for _ in range(2)]\n"
        "pool.abandon()\n"
    )
    subprocess.run([sys.executable, "-c", source], check=True, timeout=20)


def test_a_container_that_is_starting_is_removed_too_and_who_cannot_be_reached_is_named(monkeypatch):
    monkeypatch.setattr("clustercheck.launch.docker.STARTING_S", 0.2)
    begun = threading.Event()

    def late(_: dict) -> dict:
        begun.set()
        time.sleep(5)
        raise NodeUnreachableError("gpu02", "late")

    nodes = Nodes({("gpu02", "start"): late})
    nodes.special["gpu03", "remove"] = raises(NodeUnreachableError("gpu03", "it does not answer"))
    events: list[dict] = []

    def on_event(event: Mapping[str, Any]) -> None:
        events.append(dict(event))
        if event["type"] == "job_started" and event["node"] == "gpu01":
            begun.wait(5)
            raise KeyboardInterrupt

    launcher = DockerLauncher(nodes, run_id="r", addresses=dict.fromkeys(NODES, "192.0.2.1"))
    with pytest.raises(KeyboardInterrupt):
        launcher.run(JobSpec("pairs", "pairs.py", NODES, IMAGE, 5.0), on_event=on_event)
    removed = {node: r for node, r in nodes.asked if r["action"] == "remove"}
    assert removed["gpu02"]["container"] == "clusterctl-r-pairs"
    assert removed["gpu02"]["directory"] == "/var/lib/clusterctl/jobs/r/pairs"
    assert launcher.not_ended == ("gpu03",)
    assert [event["node"] for event in events if event["type"] == "job_not_removed"] == ["gpu03"]


def with_gpus(nodes: Nodes, node: str, devices: int) -> Callable[[dict], dict]:
    def answer(request: dict) -> dict:
        framework = {"version": "3.3.1", "cuda": False, "gpus": 0, "devices": devices}
        return {**nodes.answer(node, request), "framework": framework}

    return answer


def test_alone_a_rank_a_gpu_runs_and_neither_rank_nor_node_ends_another():
    nodes = Nodes()
    died = {
        **Nodes.ended([0, 1], {"ok": True, "because": ""}, code=0),
        "exit_code": 1,
    }
    died["ranks"]["1"] = {**died["ranks"]["1"], "verdict": None, "end": {**ENDED, "exit_code": -11}}
    nodes.special = {
        ("gpu01", "prepare"): with_gpus(nodes, "gpu01", 2),
        ("gpu02", "prepare"): with_gpus(nodes, "gpu02", 0),
        ("gpu03", "prepare"): with_gpus(nodes, "gpu03", 1),
        ("gpu01", "wait"): lambda _: died,
    }
    outcome, events = launch(nodes, alone=True, framework="torch")
    assert [(rank.node, rank.gpu, rank.state) for rank in outcome.ranks] == [
        ("gpu01", 0, RankState.OK),
        ("gpu01", 1, RankState.CRASHED),
        ("gpu03", 0, RankState.OK),
        ("gpu02", None, RankState.FAILED),
    ]
    assert [rank.rank for rank in outcome.ranks] == [0, 1, 2, 3]
    assert "sees no GPU: its torch 3.3.1 lacks CUDA" in outcome.ranks[3].because
    assert outcome.first_failure.rank == 1
    assert (nodes.actions("gpu02"), nodes.actions("gpu03")) == (
        ["prepare"],
        ["prepare", "start", "wait", "remove"],
    )
    assert "job_stopping" not in [event["type"] for event in events]
    start = next(request for node, request in nodes.asked if (node, request["action"]) == ("gpu01", "start"))
    job = json.loads(base64.b64decode(start["files"]["job.json"]))
    assert job["alone"] is True and start["framework_name"] == "torch"


def test_alone_a_node_that_is_down_keeps_none_from_its_programs():
    nodes = Nodes()
    nodes.special = {(node, "prepare"): with_gpus(nodes, node, 1) for node in NODES}
    nodes.special["gpu03", "prepare"] = raises(NodeUnreachableError("gpu03", "it does not answer"))
    nodes.special["gpu02", "start"] = raises(NodeUnreachableError("gpu02", "it went away"))
    outcome, _ = launch(nodes, alone=True)
    states = {rank.node: rank.state for rank in outcome.ranks if rank.verdict is not None or rank.gpu is None}
    assert states["gpu01"] is RankState.OK
    assert {states["gpu02"], states["gpu03"]} == {RankState.UNREACHABLE}
    assert sorted(rank.node for rank in outcome.ranks) == sorted(NODES)


def test_a_node_that_ends_without_reason_is_named_and_the_others_are_not():
    """Whether it says that its ranks were stopped, or that the time is over: the launcher knows better."""
    for killed in ("told", "deadline"):
        nodes = Nodes()
        nodes.special = {
            ("gpu01", "wait"): nodes.waits_until_stopped("gpu01"),
            ("gpu02", "wait"): lambda request, killed=killed: Nodes.ended(
                request["ranks"], None, code=-9, killed=killed, state="S"
            ),
            ("gpu03", "wait"): nodes.waits_until_stopped("gpu03"),
        }
        outcome, _ = launch(nodes)
        assert set(outcome.suspects) == {"gpu02"}, killed


def test_a_container_that_fails_after_its_ranks_succeeded_stops_no_other():
    nodes = Nodes()
    nodes.special["gpu02", "wait"] = lambda request: {
        **nodes.ended(request["ranks"], {"ok": True, "because": ""}),
        "exit_code": 1,
    }
    outcome, events = launch(nodes)
    assert outcome.good
    assert "job_stopping" not in [event["type"] for event in events]


def test_what_a_node_says_that_it_removed_is_a_few_lines():
    nodes = Nodes()
    removed = [f"container {n}" for n in range(4000)]
    left = {**nodes.answer("gpu02", {"action": "prepare"}), "removed": removed}
    nodes.special["gpu02", "prepare"] = lambda _: left
    _, events = launch(nodes)
    told = [event["what"] for event in events if event["type"] == "job_leftover_removed"]
    assert (len(told), told[-1]) == (9, "3992 more")


def test_a_node_has_time_for_a_pull_once():
    limits: list[float] = []

    class Watched(Nodes):
        def run(self, node: str, argv: Any, *, stdin: str = "", timeout_s: float) -> Completed:
            done = super().run(node, argv, stdin=stdin, timeout_s=timeout_s)
            if node == "gpu01" and self.asked_last(node)["action"] == "prepare":
                limits.append(timeout_s)
            return done

        def asked_last(self, node: str) -> dict:
            return [request for asked, request in self.asked if asked == node][-1]

    addresses = {node: f"192.0.2.{number}" for number, node in enumerate(NODES, 1)}
    launcher = DockerLauncher(Watched(), run_id="r", addresses=addresses)
    for name in ("first", "second"):
        launcher.run(JobSpec(name, "pairs.py", NODES, IMAGE, 5.0), on_event=lambda _: None)
    assert limits == [720.0, 120.0]
