"""`validation_exclusions`: do the checks and nodes that it names exist, and is its last day a day?"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import date
from pathlib import Path

from yaml.nodes import MappingNode, ScalarNode, SequenceNode

from clustercheck.spec import EVERYWHERE
from clusterctl.cluster.settings.problem import SettingsProblem, at
from clusterctl.cluster.settings.yaml_nodes import entries
from clusterctl.cluster.suggestion import did_you_mean
from clusterctl.cluster.templating import is_template

NAME = "validation_exclusions"
CODE = "settings.exclusion"


def check(file: Path, variables: MappingNode, hosts: Collection[str] | None) -> Iterator[SettingsProblem]:
    """What is wrong with the exclusions in one mapping; ``hosts`` is None where they are not known."""
    for key, value in entries(variables):
        if key.value == NAME and isinstance(value, SequenceNode):
            for item in value.value:
                if isinstance(item, MappingNode):
                    yield from _entry(file, item, hosts)


def _entry(file: Path, item: MappingNode, hosts: Collection[str] | None) -> Iterator[SettingsProblem]:
    given = {
        key.value: value
        for key, value in entries(item)
        if isinstance(value, ScalarNode) and not is_template(value.value)
    }
    if "check" in given:
        yield from _check(file, given["check"], given.get("gpu"))
    if "node" in given and hosts is not None:
        node = given["node"].value
        if node not in (*hosts, EVERYWHERE):
            hint = did_you_mean(node, hosts) or f"A host of hosts.yml, or {EVERYWHERE}."
            yield at(
                file, given["node"], f"{NAME} names the node {node!r}, which is not declared", hint, CODE
            )
    for word in ("who", "why"):
        if word in given and not given[word].value.strip():
            yield at(
                file, given[word], f"{NAME} says no {word}", "An exclusion has an owner and a reason.", CODE
            )
    if "until" in given and not _is_day(given["until"].value):
        what = f"{NAME}: until is not a day: {given['until'].value!r}"
        yield at(file, given["until"], what, "Write the last day as YYYY-MM-DD, in quotes.", CODE)


def _check(file: Path, node: ScalarNode, gpu: ScalarNode | None) -> Iterator[SettingsProblem]:
    from clustercheck.checks.all import BY_ID  # noqa: PLC0415 - 300 ms that other settings do not need
    from clustercheck.model import Scope  # noqa: PLC0415

    known = BY_ID.get(node.value)
    if known is None:
        hint = did_you_mean(node.value, BY_ID) or "clusterctl validate --list names them all."
        yield at(file, node, f"{NAME} names the check {node.value!r}, which does not exist", hint, CODE)
    elif gpu is not None and known.scope not in (Scope.GPU, Scope.LINK):
        hint = "Leave out gpu, and the whole node is excluded from it."
        yield at(file, gpu, f"{NAME}: the check {known.id} is not of single GPUs", hint, CODE)


def _is_day(text: str) -> bool:
    try:
        return date.fromisoformat(text) is not None
    except ValueError:
        return False
