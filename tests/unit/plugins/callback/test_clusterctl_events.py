"""What the callback sends where hosts answer anything: a line, always, and never without end."""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
from types import SimpleNamespace as Bare

import pytest
from ansible.errors import AnsibleError
from ansible.executor.stats import AggregateStats
from ansible_collections.clusterctl.cluster.plugins.callback.clusterctl_events import (
    DIFFS_LIMIT,
    REPORTS_LIMIT,
    CallbackModule,
    HostMemory,
)

from clusterctl.engine.event_reading import read_event
from clusterctl.engine.events import Diff, ItemResult, JobStarted, TaskResult


@pytest.fixture
def sent(monkeypatch):
    """A callback, and what it has sent."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    monkeypatch.setenv("CLUSTERCTL_EVENTS_FD", str(writer))
    monkeypatch.setattr(CallbackModule, "_die_with_parent", staticmethod(lambda: None))
    callback, lines = CallbackModule(), []
    monkeypatch.setattr("os.write", lambda _descriptor, line: lines.append(bytes(line)) or len(line))
    yield callback, lines
    monkeypatch.undo()
    for descriptor in (reader, writer):
        os.close(descriptor)


def answered(data, *, changed=False):
    task = Bare(
        _uuid="t1", no_log=False, delegate_to=None, action="clusterctl.cluster.x", vars={}, async_val=0
    )
    host = Bare(get_name=lambda: "gpu01")
    return Bare(host=host, task=task, result=data, is_changed=lambda: changed)


@pytest.mark.parametrize(
    "data",
    [
        {"stderr_lines": 7},
        {"argument_errors": 7},
        {"clusterctl": {"facts": {"offline": "x" * 2_000_000}}},
        {"clusterctl": {"busy": [1]}},
        {"results": 7},
    ],
    ids=["stderr", "errors", "long", "kind", "items"],
)
def test_a_result_that_no_module_gives_is_a_failed_step_of_its_host(sent, data):
    callback, lines = sent
    callback.v2_runner_on_failed(answered(data))
    event = read_event(b"".join(lines))
    assert isinstance(event, TaskResult)
    assert (event.host, event.task_id, event.status, event.code) == (
        "gpu01",
        "t1",
        "failed",
        "task.unreadable",
    )


def test_a_report_that_is_too_long_takes_no_cause_of_the_failure_with_it(sent):
    callback, lines = sent
    report = {"facts": {"a": "x" * 2_000_000}}
    data = {"clusterctl": report, "msg": "no space left", "rc": 7, "stderr_lines": ["tar: x", "tar: y"]}
    callback.v2_runner_on_failed(answered({**data, "msg": "no space left " * 1000}))
    assert len(b"".join(lines)) < 20_000
    lines.clear()
    callback.v2_runner_on_failed(answered(data))
    event = read_event(b"".join(lines))
    assert isinstance(event, TaskResult)
    assert event.msg.startswith("no space left")
    assert (list(event.stderr), event.rc, event.code) == (["tar: x", "tar: y"], 7, "task.unreadable")


def test_an_item_that_is_too_long_is_told_too(sent):
    callback, lines = sent
    callback.v2_runner_item_on_ok(answered({"clusterctl": {"facts": {"a": "x" * 2_000_000}}, "item": 1}))
    event = read_event(b"".join(lines))
    assert isinstance(event, TaskResult)
    assert (event.status, event.code) == ("failed", "task.unreadable")


def test_a_good_item_is_sent_whole(sent):
    callback, lines = sent
    callback.v2_runner_item_on_ok(answered({"clusterctl": {"busy": "a job"}, "item": "curl"}))
    event = read_event(b"".join(lines))
    assert isinstance(event, ItemResult)
    assert (event.label, event.clusterctl) == ("curl", {"busy": "a job"})


def test_only_an_asynchronous_task_starts_a_job_whatever_a_host_answers(sent):
    callback, lines = sent
    result = answered({"ansible_job_id": "j1.2", "started": 1, "finished": 0})
    callback.v2_runner_on_ok(result)
    callback.v2_runner_item_on_ok(result)
    assert [type(read_event(line)) for line in lines] == [TaskResult, ItemResult]
    lines.clear()
    result.task.async_val = 60
    callback.v2_runner_on_ok(result)
    assert isinstance(read_event(lines[0]), JobStarted)


def test_a_diff_without_end_is_shown_in_part_and_the_rest_counted(sent):
    callback, lines = sent
    one = {"before": "", "after": "x" * 60_000, "after_header": "/etc/x"}
    callback.v2_on_file_diff(answered({"diff": [one] * 1000}, changed=True))
    event = read_event(b"".join(lines))
    assert isinstance(event, Diff)
    assert sum(len(text) for part in event.parts for text in part.values()) <= DIFFS_LIMIT + 100
    assert event.parts[-1]["prepared"] == f"[{1000 - len(event.parts) + 1} more parts]"


class Unreadable:
    """As Ansible tells of an answer that is too deep for its own copy of it."""

    def __init__(self, **told):
        self.__dict__.update(told)

    @property
    def result(self):
        raise RecursionError("maximum recursion depth exceeded")


@pytest.mark.parametrize("way", ["v2_runner_on_ok", "v2_runner_on_failed", "v2_runner_on_unreachable"])
def test_an_answer_that_ansible_cannot_copy_is_a_failed_step_of_its_host(sent, way):
    callback, lines = sent
    good = answered({}, changed=True)
    deep = Unreadable(host=good.host, task=good.task, is_changed=good.is_changed)
    getattr(callback, way)(deep)
    event = read_event(b"".join(lines))
    assert isinstance(event, TaskResult)
    assert (event.host, event.task_id, event.status) == ("gpu01", "t1", "failed")
    assert "maximum recursion depth" in event.msg
    lines.clear()
    callback.v2_runner_item_on_ok(deep)
    assert isinstance(read_event(b"".join(lines)), TaskResult)
    callback.v2_runner_retry(deep)
    callback.v2_on_file_diff(deep)


@pytest.mark.parametrize(
    "mark", [{"failed": True}, {"exception": "(traceback unavailable)"}], ids=["2.19", "2.21"]
)
def test_a_failed_item_is_told_with_its_cause(sent, mark):
    callback, lines = sent
    items = [
        {"item": "a", "msg": "done"},
        {"item": "c", "msg": "asked in vain", "failed": False, "exception": "Traceback"},  # failed_when
        {"item": "b", "msg": "no space left", "code": "host.disk-full", **mark},
    ]
    callback.v2_runner_on_failed(answered({"msg": "One or more items failed", "results": items}))
    event = read_event(b"".join(lines))
    assert isinstance(event, TaskResult)
    assert [(item["label"], item["msg"], item["code"]) for item in event.items] == [
        ("b", "no space left", "host.disk-full")
    ]


def test_it_is_loaded_by_an_ansible_that_lists_no_internal_keys(sent, monkeypatch):
    """From 2.21 on there is no such list: the playbook ran, and nothing of it was heard."""
    monkeypatch.delattr("ansible.constants.INTERNAL_RESULT_KEYS", raising=False)
    assert not CallbackModule().disabled


def test_no_statistics_of_a_host_are_added_up(sent):
    """Ansible adds them in its main process: what does not add up ends the run of all hosts."""
    stats = AggregateStats()
    for value in (None, None, {}):
        stats.update_custom_stats("x", value)
        stats.set_custom_stats("x", value, "gpu01")
    assert not stats.custom


def test_ansible_compares_no_more_lines_of_a_result_than_files_have(sent):
    """It does so in its main process, for all hosts, and that takes up to the cube of the lines."""
    callback, _ = sent
    few, many = ({"before": "old\n" * count, "after": "new\n" * count} for count in (500, 900))
    assert callback._get_diff(few).count("+new") == 500
    found = callback._get_diff([few, many, {"prepared": "as it is"}])
    assert "too long to compare: 900 lines before, 900 after\n" in found
    assert (found.count("+new"), found.endswith("as it is")) == (500, True)
    assert callback._get_diff({"before": "", "after": "new\n" * 5000}).count("+new") == 5000


def test_a_mapping_of_a_diff_is_shown_in_lines_and_a_long_one_in_proportion_to_its_length(sent):
    callback, _ = sent
    assert '+    "mode": "0644"' in callback._get_diff({"before": {}, "after": {"mode": "0644"}})
    deep: list = [0] * 20_000
    for _ in range(100):
        deep = [deep]
    long = callback._get_diff({"before": {}, "after": {"deep": deep}})
    assert len(long) < 2 * len(json.dumps(deep))


def test_what_a_host_reports_in_all_its_tasks_is_bounded_and_costs_no_other_host(sent):
    callback, lines = sent
    long = {"clusterctl": {"facts": {"a": "x" * 900_000}}}
    codes = []
    for _ in range(REPORTS_LIMIT // 900_000 + 1):
        lines.clear()
        callback.v2_runner_on_ok(answered(long))
        codes.append(read_event(b"".join(lines)).code)
    assert codes == [""] * (len(codes) - 1) + ["task.unreadable"]
    lines.clear()
    other = answered(long)
    other.host.get_name = lambda: "gpu02"
    callback.v2_runner_on_ok(other)
    assert read_event(b"".join(lines)).code == ""


def test_results_of_a_host_are_counted_together_and_small_ones_never(monkeypatch):
    memory = HostMemory(["gpu01", "gpu02"])
    large, small = pickle.dumps([[] for _ in range(600_000)]), pickle.dumps("x" * 20_000)
    for _ in range(5):
        memory.take("gpu01", large)
    with pytest.raises(AnsibleError, match="all results of gpu01 would take more than 256 MiB"):
        memory.take("gpu01", large)
    memory.take("gpu01", small)
    memory.take("gpu02", large)
    memory.take("localhost", large)


def test_the_processes_of_a_hosts_tasks_count_in_one_place():
    memory = HostMemory(["gpu01"])
    large = pickle.dumps([[] for _ in range(600_000)])
    for _ in range(5):
        child = multiprocessing.get_context("fork").Process(target=memory.take, args=("gpu01", large))
        child.start()
        child.join()
    with pytest.raises(AnsibleError, match="gpu01"):
        memory.take("gpu01", large)
