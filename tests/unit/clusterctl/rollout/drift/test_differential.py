"""Recorded answers of a lab and what may differ from them: nothing that tasks decide by is ever missed.

tests/lab/test_drift_differential.py does the same on hosts, with plain Ansible as the judge.
"""

from __future__ import annotations

import copy
import random
import re
from collections.abc import Iterator

import pytest
import yaml
from tests.support.drift_answers import read_recorded
from tests.support.json_changes import mutated, places, value_at

from clusterctl.rollout.drift.calls import CONTROLLER
from clusterctl.rollout.drift.report import build_report, find_differences

RECORDED = read_recorded()
SEED = 20261123
# Of each module whose answers are not compared whole: what may differ, as patterns of places.
# Everything else decides. Preflight's own verdict is tested by itself, below.
MAY_DIFFER = {
    "node_preflight": r".*",
    "container_engine_facts": r"engine/containers_running",
    "command": r"(?!(rc|stdout)$).*",
    "uri": r"(?!(status|failed|changed)$).*",
    "stat": r"(?!(changed|failed|stat/(exists|isreg|isdir|islnk|lnk_target))$).*",
}
# Fields that make a result a change, or no result at all, whatever the module.
LOUD = {"changed": True, "failed": True, "wanted": True, "left_alone": True, "reboot_required": "new kernel"}


def randomly() -> random.Random:
    return random.Random(SEED)  # noqa: S311 - a choice that can be repeated, and no secret


def asked() -> Iterator[tuple[str, int]]:
    for host, one in RECORDED.items():
        for number, _ in enumerate(one.record.calls):
            yield host, number


def differs(host, number, answer):
    one = RECORDED[host]
    call = one.record.calls[number]
    answers = {at: dict(given) for at, given in one.answers.items()}
    answers[call.at][call.identity] = answer
    return find_differences(one.record, answers)


def answer_of(host, number):
    one = RECORDED[host]
    call = one.record.calls[number]
    return call, one.answers[call.at][call.identity]


def may_differ(module, place):
    return bool(re.fullmatch(MAY_DIFFER.get(module, r"(?!)"), "/".join(map(str, place))))


def test_the_same_answers_mean_that_nothing_has_changed():
    for name, one in RECORDED.items():
        report = build_report({name: one.record}, one.answers[CONTROLLER], {name: one.answers[""]})
        assert list(report.quiet) == [name]
        assert report.differing == {}


def test_every_change_of_every_part_of_an_answer_is_found_or_is_known_not_to_decide():
    chosen, found, missed = randomly(), 0, []
    for host, number in asked():
        call, answer = answer_of(host, number)
        for place in places(answer):
            if may_differ(call.module, place):
                continue
            for _ in range(12):
                other = mutated(answer, place, chosen)
                found += 1
                if not differs(host, number, other):
                    missed.append((host, call.task, place, value_at(other, place)))
    assert missed == []
    assert found > 2000


def test_what_is_known_not_to_decide_is_no_drift():
    """Else a clock or a counter would send every host to Ansible."""
    chosen, tried, noisy = randomly(), 0, []
    for host, number in asked():
        call, answer = answer_of(host, number)
        if call.module == "node_preflight":
            continue
        for place in places(answer):
            leaf = not isinstance(value_at(answer, place), dict | list)
            if leaf and may_differ(call.module, place) and place[0] != "failed":
                tried += 1
                if said := differs(host, number, mutated(answer, place, chosen)):
                    noisy.append((host, call.task, place, said))
    assert noisy == []
    assert tried > 20


@pytest.mark.parametrize("field", LOUD)
def test_a_result_that_reports_a_change_is_drift_whatever_the_module(field):
    for host, number in asked():
        call, answer = answer_of(host, number)
        if call.module in ("command", "node_preflight", "gather_facts"):
            continue  # those have no such field: an exit code, findings, facts
        if call.module == "stat" and field not in ("changed", "failed"):
            continue
        if call.module == "uri" and field not in ("changed", "failed"):
            continue
        assert differs(host, number, {**answer, field: LOUD[field]}), (host, call.task)


@pytest.mark.parametrize(
    "about",
    [
        {"busy": "a job runs"},
        {"facts": {"lease": {"run": "x"}}},
        {"findings": [{"severity": "error", "subject": "disk"}]},
        {"findings": [{"severity": "unheard of", "subject": "disk"}]},
    ],
)
def test_what_preflight_would_stop_at_is_drift(about):
    for host, number in asked():
        call, answer = answer_of(host, number)
        if call.module == "node_preflight":
            other = copy.deepcopy(answer)
            other["clusterctl"].update(about)
            assert differs(host, number, other)


def test_an_answer_that_is_missing_or_unreadable_is_drift():
    for host, number in asked():
        one = RECORDED[host]
        call = one.record.calls[number]
        answers = {at: dict(given) for at, given in one.answers.items()}
        del answers[call.at][call.identity]
        assert find_differences(one.record, answers)
        for odd in (None, [], "changed", 0):
            assert differs(host, number, odd)
        assert find_differences(one.record, {**one.answers, call.at: "no answer within 180 s"})


def test_two_changes_at_a_time_do_not_hide_each_other():
    chosen, calls = randomly(), list(asked())
    for _ in range(2000):
        host, number = chosen.choice(calls)
        call, answer = answer_of(host, number)
        every = list(places(answer))
        first = chosen.choice(every)
        apart = [place for place in every if place[: len(first)] != first and first[: len(place)] != place]
        second = chosen.choice(apart or [first])
        other = (
            mutated(mutated(answer, first, chosen), second, chosen)
            if apart
            else mutated(answer, first, chosen)
        )
        decides = not (may_differ(call.module, first) and may_differ(call.module, second))
        assert differs(host, number, other) or not decides, (host, call.task, first, second)


# What roles decide by, read from their text


def registered(repository) -> dict[str, set[str]]:
    """The modules whose results each registered variable of the roles may hold."""
    found: dict[str, set[str]] = {}

    def walk(tasks):
        for task in tasks or ():
            for block in ("block", "rescue", "always"):
                walk(task.get(block))
            if "register" in task:
                modules = [key for key in task if "." in key]
                found.setdefault(task["register"], set()).update(key.rpartition(".")[2] for key in modules)

    for path in (repository / "roles").glob("*/tasks/**/*.yml"):
        walk(yaml.safe_load(path.read_text(encoding="utf-8")))
    return found


def test_no_task_of_a_role_runs_in_a_way_that_is_not_repeated(repository):
    """The probe repeats a module with its arguments, as root, in a plain environment."""
    odd = re.compile(
        r"^\s*(- )?(environment|become_user|become_method|remote_user|connection):", re.MULTILINE
    )
    found = [path for path in (repository / "roles").glob("*/tasks/**/*.yml") if odd.search(path.read_text())]
    assert found == []


def test_every_field_of_a_result_that_a_role_uses_is_compared(repository):
    """A field that decides and is not compared would be a change that nobody sees."""
    modules, used = registered(repository), set()
    for path in (repository / "roles").rglob("*.*"):
        if path.suffix in (".yml", ".j2"):
            for name, where in re.findall(r"\b(__\w+)((?:\.\w+)+)", path.read_text(encoding="utf-8")):
                used |= {(module, tuple(where[1:].split("."))) for module in modules.get(name, ())}
    assert len(used) > 30
    # A line of text for a person, in a call that is made only if something is to be changed.
    spoken = {("container_engine_facts", ("engine", "containers_running")), ("command", ("stdout_lines",))}
    # The results of tasks that only follow a change: no recorded call has them.
    follow_ups = {module for module, _ in used} & {"async_status", "reboot", "node_preflight", "copy"}
    missed = [
        (module, place)
        for module, place in used - spoken
        if module not in follow_ups and may_differ(module, place)
    ]
    assert missed == []
