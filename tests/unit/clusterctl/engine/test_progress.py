"""What is drawn and said of a running playbook, from events in any order: no process is run here."""

from __future__ import annotations

import io
import re
import time

import pyte
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text
from tests.support.examples import examples

from clusterctl import console
from clusterctl.engine.events import (
    Event,
    HostFinished,
    HostStarted,
    JobStarted,
    Retry,
    Stats,
    TaskResult,
    TaskStarted,
    WaveFinished,
    WaveStarted,
)
from clusterctl.engine.ledger import Ledger
from clusterctl.engine.live_screen import LiveScreen
from clusterctl.engine.messages import GATHER_S
from clusterctl.engine.plain_lines import HEARTBEAT_S, PlainLines
from clusterctl.engine.status_view import DisplayState, ProgressContext, display_state_of, render_status
from clusterctl.engine.wording import alike, elapsed, folded, names
from clusterctl.live_area import LiveArea

TASKS = [TaskStarted(0.0, f"t{n}", f"Do thing {n}", "nvidia_driver", "apt", f"x.yml:{n}") for n in range(4)]
HOSTILE = "\x1b[2J\x1b]0;title\x07 red\x1b[31m\rback\nsecond line\x9b"


def hosts_of(number: int) -> list[str]:
    return [f"gpu{n:03d}" for n in range(1, number + 1)]


def events_on(hosts: list[str]) -> st.SearchStrategy[list[Event]]:
    """Events as no Ansible would order them: repeated, of hosts and tasks that nobody announced."""
    host = st.sampled_from([*hosts, "stranger"])
    task = st.sampled_from([*(task.task_id for task in TASKS), "t-unknown"])
    status = st.sampled_from(["ok", "changed", "failed", "skipped", "unreachable", "ignored"])
    msg = st.sampled_from(["", "no", "no space on gpu001", HOSTILE])
    at = st.floats(0, 100)
    about = st.sampled_from([{}, {"busy": "a training job"}, {"busy": HOSTILE}])
    one = st.one_of(
        st.sampled_from(TASKS),
        st.builds(HostStarted, at, host, task),
        st.builds(Retry, at, host, task, st.integers(0, 99)),
        st.builds(JobStarted, at, host, st.just("j1"), task),
        st.builds(TaskResult, at, host, task, status, msg, clusterctl=about),
    )
    return st.lists(one, max_size=60)


def states(drawn: list[Text]) -> dict[str, int]:
    """The hosts by state, from the line that has them."""
    words = "|".join(DisplayState)
    (line,) = [line.plain for line in drawn if re.match(rf"\d+ ({words})\b", line.plain)]
    return {word: int(number) for number, word in re.findall(rf"(\d+) ({words})\b", line)}


def named(host: str, text: str) -> bool:
    """Whether the text names the host, by itself or within a range."""
    ranges = [(int(a), int(b)) for a, b in re.findall(r"gpu(\d+)-gpu(\d+)", text)]
    return host in text or any(first <= int(host[3:]) <= last for first, last in ranges)


@settings(deadline=None)
@given(st.data(), st.sampled_from([1, 3, 12, 100]), st.integers(20, 200), st.integers(1, 60))
def test_whatever_the_order_of_events_the_picture_fits_and_counts_every_host_once(
    data, number, columns, lines
):
    hosts = hosts_of(number)
    ledger, context = Ledger(hosts), ProgressContext("apply", "wave 1/2 (canary)", 0.0)
    for event in data.draw(events_on(hosts)):
        ledger.record(event)
    drawn = render_status(ledger, context, 120.0, columns, lines)
    assert len(drawn) <= lines
    assert all(not re.search(r"[\x00-\x1f\x7f-\x9f]", line.plain) for line in drawn)
    if lines < 8 or columns < 60:
        return
    assert sum(states(drawn).values()) == number
    assert all(cell_len(line.plain) <= columns for line in drawn)
    bad = [
        one.name
        for one in ledger.hosts.values()
        if display_state_of(one) in (DisplayState.FAILED, DisplayState.UNREACHABLE)
    ]
    text = "\n".join(line.plain for line in drawn)
    assert all(named(host, text) for host in bad) or text.endswith("and more")


@pytest.mark.parametrize("size", [(79, 23), (59, 19)], ids=str)
@pytest.mark.parametrize("every", [1, 2, 3])
def test_a_hundred_hosts_that_fail_are_all_named_in_a_small_window(every, size):
    hosts = hosts_of(100)
    ledger = Ledger(hosts)
    ledger.record(TASKS[0])
    failing = hosts[::every]
    for host in failing:
        ledger.record(TaskResult(1.0, host, "t0", "failed", f"{host} has no space left"))
    text = "\n".join(line.plain for line in render_status(ledger, ProgressContext("apply"), 2.0, *size))
    assert all(named(host, text) for host in failing)
    assert "failed: nvidia_driver: Do thing 0: gpu001" in text


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("draw"), st.lists(st.text("abc ", min_size=1, max_size=120), max_size=12)),
        st.tuples(st.just("print"), st.text("xyz ", min_size=1, max_size=200)),
    ),
    max_size=25,
)


@settings(deadline=None)
@given(OPERATIONS)
def test_what_is_printed_stays_whole_above_what_is_redrawn(operations):
    stream = io.StringIO()
    out = Console(file=stream, force_terminal=True, width=80, highlight=False)
    area, drawn, printed = LiveArea(out), [], []
    area.open()
    for what, argument in operations:
        if what == "draw":
            drawn = [f"|{line}" for line in argument]
            area.draw([Text(line) for line in drawn])
        else:
            printed.append(argument.rstrip() or "x")
            out.print(printed[-1], soft_wrap=True)
    screen = pyte.HistoryScreen(80, 24, history=1000)
    pyte.Stream(screen).feed(stream.getvalue().replace("\n", "\r\n"))
    gone = ["".join(row[x].data for x in range(80)) for row in screen.history.top]
    shown = "".join([*gone, *screen.display]).rstrip()
    cut = [line if len(line) <= 79 else f"{line[:78]}…" for line in drawn]
    folded_ = [line[at : at + 80] for line in printed for at in range(0, len(line), 80)]
    assert shown == "".join(f"{line:80}" for line in [*folded_, *cut]).rstrip()
    before = stream.tell()
    area.draw([Text(line) for line in drawn])
    assert stream.tell() == before, "what has not changed is not written again"
    area.close()


class Run:
    """A display that is told events, at a time that the test sets."""

    def __init__(
        self, display: type[PlainLines | LiveScreen], hosts: list[str], title: str = "apply"
    ) -> None:
        self.now = 0.0
        self.hosts = hosts
        self.display = display(title, clock=lambda: self.now)
        self.ledger = Ledger(hosts)
        self.display.open("site", hosts)

    def tell(self, *events: Event) -> None:
        for event in events:
            self.ledger.record(event)
            self.display.on_event(event, self.ledger)
            self.display.on_tick(self.ledger)


def lines_of(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [line.partition("] ")[2] for line in capsys.readouterr().err.splitlines()]


def result(host: str = "gpu001", status: str = "ok", msg: str = "", task: str = "t0") -> TaskResult:
    return TaskResult(0.0, host, task, status, msg)


def test_plain_lines_name_tasks_that_do_something_and_never_fall_silent(capsys):
    run = Run(PlainLines, ["gpu001"])
    lines_of(capsys)
    run.tell(TASKS[0], HostStarted(0.0, "gpu001", "t0"), result(status="skipped"))
    run.tell(TASKS[1], HostStarted(0.0, "gpu001", "t1"))
    assert lines_of(capsys) == []
    run.now += HEARTBEAT_S + 5
    run.display.on_tick(run.ledger)
    run.display.on_tick(run.ledger)
    assert lines_of(capsys) == ["nvidia_driver: Do thing 1"]
    run.now += HEARTBEAT_S
    run.display.on_tick(run.ledger)
    assert lines_of(capsys) == ["  still running on gpu001: nvidia_driver: Do thing 1 (1m05s)"]
    run.tell(result(status="changed", task="t1"), HostFinished(0.0, "gpu001", "good"))
    run.display.close()
    assert lines_of(capsys) == ["  changed: gpu001", "site: 1 ok; 2 steps in 1m05s"]


def test_hosts_that_fail_alike_are_told_together_and_those_that_do_not_apart(capsys):
    hosts = hosts_of(100)
    run = Run(PlainLines, hosts)
    lines_of(capsys)
    refused = (
        "Failed to connect to the host via ssh: ssh: connect to host 192.0.2.{} port 22: Connection refused"
    )
    run.tell(TASKS[0], *(result(host, "failed", f"{host}: disk full") for host in hosts[:40]))
    run.tell(result("gpu041", "failed", "another reason"))
    run.tell(*(result(host, "unreachable", refused.format(n)) for n, host in enumerate(hosts[50:60])))
    run.now += GATHER_S
    run.display.on_tick(run.ledger)
    said = lines_of(capsys)
    assert [line.split(":")[0] for line in said] == [
        "nvidia_driver", "gpu001-gpu040", "gpu041", "gpu051-gpu060",
    ]  # fmt: skip
    assert said[1].endswith("nvidia_driver: Do thing 0: gpu001: disk full")


@examples(40)
@given(st.data())
def test_plain_lines_are_bounded_by_tasks_and_reasons_not_by_hosts(data):
    hosts = hosts_of(100)
    events = data.draw(events_on(hosts))
    said: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(console, "say", said.append)
        run = Run(PlainLines, hosts)
        for event in events:
            run.tell(event)
        states = ["good", "failed", "unreachable", "silent"]
        run.tell(*(HostFinished(2.0, host, data.draw(st.sampled_from(states)), "why") for host in hosts[:10]))
        run.display.close()
    starts = sum(isinstance(event, TaskStarted) for event in events)
    failing = sum(
        isinstance(event, TaskResult) and event.status in ("failed", "unreachable") for event in events
    )
    assert len(said) <= 5 + 6 * (starts + 1) + failing
    assert all("\n" not in line for line in said)


def test_a_wave_that_ends_early_says_why_and_the_next_part_is_named_anew(capsys):
    run = Run(PlainLines, ["gpu001", "gpu002"])
    run.display.close()
    lines_of(capsys)
    run.tell(WaveStarted(1.0, "canary", 1, 2, ["gpu001"]))
    run.display.open("site", ["gpu001"])
    run.tell(HostFinished(2.0, "gpu001", "silent", "no word for 20 min in: Do thing 1"))
    run.display.close()
    run.tell(WaveFinished(3.0, "canary", False, "gpu001 fell silent"))
    run.display.open("preflight", ["gpu001"])
    assert lines_of(capsys) == [
        "apply: wave 1/2 (canary): 1 host: gpu001",
        "gpu001: silent: no word for 20 min in: Do thing 1",
        "wave 1/2 (canary): 1 silent; 0 steps in 0s",
        "stopped: gpu001 fell silent",
        "apply: preflight: 1 host: gpu001",
    ]


def test_words_of_hosts_cannot_act_on_the_terminal(capsys):
    run = Run(PlainLines, ["gpu001"])
    run.tell(TASKS[0], result(status="failed", msg=HOSTILE))
    run.display.close()
    said = capsys.readouterr().err
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", said)
    assert "red" in said
    assert "second line" not in said, "the headline is the first line"


def test_names_are_folded_by_number_and_kept_apart_by_width():
    assert folded(["gpu10", "gpu9", "gpu8", "login", "gpu01"]) == ["gpu01", "gpu8-gpu10", "login"]
    assert folded(["a1", "a2", "b3"]) == ["a1", "a2", "b3"]
    assert folded([]) == []
    assert names(hosts_of(100)) == "gpu001-gpu100"
    assert names(hosts_of(100)[::2]) == "gpu001, gpu003, gpu005, gpu007 and 46 more"


@given(st.sets(st.integers(0, 300)), st.sampled_from(["gpu{}", "gpu{:03d}", "node{}", "rack1n{:02d}"]))
def test_folded_names_stand_for_exactly_the_hosts(numbers, form):
    back = []
    for word in folded([form.format(n) for n in numbers]):
        first, _, last = word.partition("-")
        low, high = (int(re.search(r"\d+$", end)[0]) for end in (first, last or first))
        back += range(low, high + 1)
    assert sorted(back) == sorted(numbers)


def test_texts_are_alike_only_where_the_host_alone_differs():
    assert alike("gpu01: disk full on gpu01", "gpu01") == alike("gpu02: disk full on gpu02", "gpu02")
    assert alike("gpu011 is down", "gpu01") != alike("gpu021 is down", "gpu02")
    assert alike("GPU 3 of gpu01", "gpu01") != alike("GPU 5 of gpu02", "gpu02")


def test_elapsed():
    said = [elapsed(s) for s in (-5, 0, 59.9, 60, 3599, 3600, 7325)]
    assert said == ["0s", "0s", "59s", "1m00s", "59m59s", "1h00m", "2h02m"]


def test_drawing_a_hundred_hosts_takes_a_small_share_of_the_time(monkeypatch):
    """50 tasks of 2 s on 100 hosts: the processor's time next to the time in which it is drawn."""
    monkeypatch.setattr(console, "MESSAGES", Console(file=io.StringIO(), force_terminal=True, width=80))
    spent = {}
    for display in (None, LiveScreen):
        began = time.process_time()
        run = Run(display or PlainLines, hosts_of(100))
        if display is None:
            run.display = Mute()
        for number in range(50):
            run.tell(TaskStarted(run.now, f"n{number}", "Do it", "a_role", "apt"))
            run.tell(*(HostStarted(run.now, host, f"n{number}") for host in run.hosts))
            for host in run.hosts:
                run.now += 0.02
                run.tell(TaskResult(run.now, host, f"n{number}", "changed"))
        run.display.close()
        spent[display] = time.process_time() - began
    share = (spent[LiveScreen] - spent[None]) / (50 * 100 * 0.02)
    assert share < 0.15, spent


class Mute:
    """A display that draws nothing."""

    def on_event(self, event: Event, ledger: Ledger) -> None:
        pass

    def on_tick(self, ledger: Ledger) -> None:
        pass

    def close(self) -> None:
        pass


def test_a_rescued_host_is_at_work_again():
    ledger = Ledger(["gpu001"])
    for event in (TASKS[0], result(status="failed"), TASKS[1], HostStarted(2.0, "gpu001", "t1")):
        ledger.record(event)
    assert display_state_of(ledger.hosts["gpu001"]) is DisplayState.AT_WORK
    ledger.record(result(task="t1"))
    counts = dict.fromkeys(("ok", "changed", "skipped", "failures", "unreachable"), 0)
    ledger.record(Stats(3.0, {"gpu001": counts}))
    assert display_state_of(ledger.hosts["gpu001"]) is DisplayState.WAITING
