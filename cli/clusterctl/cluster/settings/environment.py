"""`validation_environment` and `hardware_rails`: are names, values and suites what they may be?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from clusterctl.cluster import job_variables
from clusterctl.cluster.rails import refuse_rail
from clusterctl.cluster.settings import values
from clusterctl.cluster.settings.options import Option
from clusterctl.cluster.settings.problem import SettingsProblem, at
from clusterctl.cluster.settings.yaml_nodes import ANSIBLE_TAGS, entries
from clusterctl.cluster.suggestion import did_you_mean
from clusterctl.cluster.templating import is_template

CODE = "settings.environment"
RAILS = "hardware_rails"
ENCRYPTED = "What ranks are given stands in the report: keep secrets out."


def check(file: Path, variables: MappingNode) -> Iterator[SettingsProblem]:
    """What is wrong with the environments of jobs and the rails in one mapping."""
    for key, value in entries(variables):
        if key.value == job_variables.SETTING and isinstance(value, MappingNode):
            yield from _variables(file, value, job_variables.SETTING)
        elif key.value == job_variables.SUITES_SETTING and isinstance(value, MappingNode):
            yield from _suites(file, value)
        elif key.value == RAILS and isinstance(value, SequenceNode):
            for item in value.value:
                if isinstance(item, ScalarNode) and not is_template(item.value):
                    yield from _rail(file, item)


def _suites(file: Path, node: MappingNode) -> Iterator[SettingsProblem]:
    from clustercheck.running.suites import suites  # noqa: PLC0415 - 300 ms that other settings do not need

    for key, value in entries(node):
        name = f"{job_variables.SUITES_SETTING}.{key.value}"
        if key.value not in suites():
            hint = did_you_mean(key.value, suites()) or f"Suites: {', '.join(suites())}."
            yield at(
                file, key, f"{job_variables.SUITES_SETTING} names the unknown suite {key.value!r}", hint, CODE
            )
        elif isinstance(value, MappingNode):
            yield from _variables(file, value, name)
        elif not (isinstance(value, ScalarNode) and is_template(value.value)):
            yield at(
                file, value, f"{name} must be a mapping of variables", "Write NAME: value.", "settings.type"
            )


def _variables(file: Path, node: MappingNode, where: str) -> Iterator[SettingsProblem]:
    given = list(entries(node))
    if len(given) > job_variables.MAX_VARIABLES:
        hint = f"At most {job_variables.MAX_VARIABLES} are given to ranks."
        yield at(file, node, f"{where} has {len(given)} variables", hint, CODE)
        return
    for key, value in given:
        if refused := job_variables.refuse_name(key.value):
            yield at(file, key, f"{where}: {refused[0]}", refused[1], CODE)
        else:
            yield from _value(file, key.value, value, where)


def _value(file: Path, name: str, node: Node, where: str) -> Iterator[SettingsProblem]:
    if node.tag in ANSIBLE_TAGS and node.tag != "!unsafe":
        yield at(file, node, f"{where}: the value of {name} is encrypted", ENCRYPTED, CODE)
        return
    wrong = list(values.check(file, Option(where, "str"), node, f"{where}.{name}"))
    yield from wrong
    if wrong or not isinstance(node, ScalarNode) or is_template(node.value):
        return
    if refused := job_variables.refuse_value(name, node.value):
        yield at(file, node, f"{where}: {refused[0]}", refused[1], CODE)


def _rail(file: Path, node: ScalarNode) -> Iterator[SettingsProblem]:
    if refused := refuse_rail(node.value):
        yield at(file, node, f"{RAILS}: {refused[0]}", refused[1], "settings.value")
