"""The fuzzer's targets of hosts' answers: good inputs pass, and a broken promise is noticed."""

from __future__ import annotations

import importlib
import json
import re

import pytest
from tests.fuzz.targets import events, logins, terminal
from tests.fuzz.test_fuzz import CAMPAIGN_INPUTS, MODULES

from clusterctl.engine.event_reading import parse
from clusterctl.engine.events import (
    Diff,
    HostStarted,
    ItemResult,
    JobFinished,
    JobStarted,
    PlayStarted,
    Retry,
    Stats,
    TaskResult,
    TaskStarted,
)

TARGETS = events.TARGETS | logins.TARGETS | terminal.TARGETS
ODD = (b"", b"\xff", b"[]", b"null", b"7", b"{" * 200, b'{"findings": [1]}', b'[{"id": "j1.2", "state": {}}]')


@pytest.mark.parametrize("name", TARGETS)
def test_good_and_odd_inputs_keep_every_promise(name):
    target = TARGETS[name]
    seeds = target.seeds()
    assert seeds
    for data in (*seeds[:40], *ODD, *(seed[: len(seed) // 2] for seed in seeds[:10])):
        target.run(data)


def test_good_events_are_read_as_what_they_are():
    kinds = {type(parse(line)) for seed in TARGETS["event-lines"].seeds() for line in seed.splitlines()}
    codes = {
        getattr(parse(seed), "code", "") for seed in TARGETS["event-lines"].seeds() if seed.count(b"\n") < 2
    }
    assert kinds == {PlayStarted, TaskStarted, HostStarted, ItemResult, Retry, JobStarted, JobFinished,
                     TaskResult, Stats, Diff}  # fmt: skip
    assert codes == {""}


@pytest.mark.parametrize("name", ["terminal", "login-probe", "event-lines"])
def test_what_acts_on_a_terminal_is_noticed(name, monkeypatch):
    for place in ("clusterctl.console.plain_text", "clusterctl.cluster.untrusted.plain_text"):
        monkeypatch.setattr(place, lambda text: text)
    monkeypatch.setattr("clusterctl.cluster.login_probe.one_line", lambda text, _limit=0: text)
    monkeypatch.setattr("clusterctl.cluster.untrusted.shortened", lambda text, _limit=0: text)
    result = {
        "event": "result",
        "at": 1.0,
        "host": "gpu01",
        "task_id": "t",
        "status": "failed",
        "msg": "\x1b[2J",
    }
    bad = {
        "terminal": b"\x00\x1b[2J",
        "login-probe": b"@@clusterctl\nos=\x1b[2J\n@@end\n",
        "event-lines": json.dumps(result).encode(),
    }
    with pytest.raises(AssertionError):
        TARGETS[name].run(bad[name])


@pytest.mark.parametrize(("said", "read"), [('"failed"', '"ok"'), ('"gpu01"', '"gpu02"')])
def test_an_event_of_another_host_or_status_than_its_line_is_noticed(monkeypatch, said, read):
    failed = json.dumps({"event": "result", "at": 1.0, "host": "gpu01", "task_id": "t", "status": "failed"})
    TARGETS["event-lines"].run(failed.encode())
    monkeypatch.setattr(events, "read_event", lambda _: parse(failed.replace(said, read)))
    with pytest.raises(AssertionError, match="is read as"):
        TARGETS["event-lines"].run(failed.encode())


@pytest.mark.parametrize(
    "without",
    [
        lambda lines, _: [],
        lambda lines, _: [line.text for line in lines],
        lambda lines, _: [line.text.upper() for line in lines],
    ],
    ids=["all are dropped", "none is dropped", "changed"],
)
def test_lost_lines_and_keys_that_stay_are_noticed(monkeypatch, without):
    monkeypatch.setattr("clusterctl.cluster.known_hosts._without", without)
    with pytest.raises(AssertionError):
        TARGETS["known-hosts"].run(TARGETS["known-hosts"].seeds()[0])


def test_the_table_of_the_campaign_has_every_target(repository):
    """docs/reliability.md: what a campaign ran, a row a target."""
    text = (repository / "docs/reliability.md").read_text(encoding="utf-8")
    _, _, section = text.partition("\n## Hostile input\n")
    rows = re.findall(
        r"^\| ([a-z]+): ([a-z_-]+) \| (\d+) \| [\d.]+ s \|$", section.split("\n## ")[0], re.MULTILINE
    )
    made = [
        (module, target)
        for module in MODULES
        for target in importlib.import_module(f"tests.fuzz.targets.{module}").TARGETS
    ]
    assert sorted((module, target) for module, target, _ in rows) == sorted(made), "run the campaign again"
    assert sum(int(inputs) for _, _, inputs in rows) >= CAMPAIGN_INPUTS
