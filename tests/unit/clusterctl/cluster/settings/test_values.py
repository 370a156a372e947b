"""Values are held against the kinds of their options, as strictly as by Ansible, and no secret is repeated."""
# ruff: noqa: E501 - tables of cases are read a case a line

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.plugins.filter.core import to_bool
from ansible_collections.clusterctl.cluster.plugins.modules import nvidia_driver_activate

from clusterctl.cluster.settings import values, yaml_nodes
from clusterctl.cluster.settings.booleans import is_true
from clusterctl.cluster.settings.options import Option, catalogue


def test_secrets_are_not_repeated_in_messages(tmp_path: Path) -> None:
    option = Option("x_password", "int", secret=True)
    node = yaml_nodes.parse(Path("f"), "a: hunter2\n").root.value[0][1]
    (problem,) = values.check(Path("f"), option, node)
    assert "hunter2" not in problem.what + problem.hint


OPTION = Option(
    "r_things",
    "list",
    elements="dict",
    options={
        "name": Option("name", "str", required=True),
        "mode": Option("mode", "str", choices=("auto", "true", "false")),
        "size": Option("size", "bytes"),
        "share": Option("share", "float"),
    },
)


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("[{name: a, mode: true, size: 10M, share: .5}]", []),
        ("[{name: a, mode: 'false', share: 1e3}, '{{ more }}']", []),
        ("'{{ all_of_them }}'", []),
        ("!unsafe x", []),
        ("[{name: a, moed: auto}]", ["r_things[0] knows no 'moed'"]),
        ("[{name: a}, {mode: off}]", ["r_things[1] lacks name"]),
        ("[{name: a, mode: fast}]", ["r_things[0].mode must be one of auto, true, false; not 'fast'"]),
        ("[{name: a, size: much}]", ["r_things[0].size must be a size such as 512M, not 'much'"]),
        ("[{name: a, share: half}]", ["r_things[0].share must be a number, not 'half'"]),
        ("[a]", ["r_things[0] must be a mapping, not 'a'"]),
        ("{name: a}", ["r_things must be a list, not a mapping"]),
        ("a, b", ["r_things must be a list, not 'a, b'"]),
    ],
)
def test_nested_options(written: str, said: list[str]) -> None:
    node = yaml_nodes.parse(Path("f"), f"a: {written}\n").root.value[0][1]
    assert [problem.what for problem in values.check(Path("f"), OPTION, node)] == said


TEXTS = """8|'8'|8.0|580.10|-3|+3|010|0x10|1_000|1:30|true|'true'|yes|'yes'|no|on|y|n|1|0|'1'|abc|''|[]|[a]|[1, 2]|{}
{a: b}|2026-01-01|10M|'10MB'|10Mb|'1e3'|1e3|.5|auto|~|null|'a,b'|' 5 '|5.5""".replace("\n", "|").split("|")


@pytest.mark.parametrize("kind", ["str", "int", "float", "bool", "list", "dict", "path", "bytes", "bits"])
def test_nothing_passes_here_that_ansible_would_refuse(kind: str) -> None:
    validator = ArgumentSpecValidator({"a": {"type": kind}})
    passed = 0
    for word in TEXTS:
        text = f"a: {word}"
        node = yaml_nodes.parse(Path("f"), text).root.value[0][1]
        if not list(values.check(Path("f"), Option("a", kind), node)):
            passed += 1
            assert validator.validate(yaml.safe_load(text)).error_messages == [], text
    assert passed >= 2


@pytest.mark.parametrize(
    "word", ["auto", *(f"{q}{w}{q}" for w in ("on", "off", "true", "false") for q in ("", "'"))]
)
def test_peermem_is_on_or_off_in_each_way_to_write_it(word: str) -> None:
    option = catalogue()["nvidia_driver_peermem"]
    text = f"a: {word}"
    assert list(values.check(Path("f"), option, yaml_nodes.parse(Path("f"), text).root.value[0][1])) == []
    validator = ArgumentSpecValidator({"a": {"type": "str", "choices": list(option.choices)}})
    found = validator.validate(yaml.safe_load(text))
    assert found.error_messages == []
    # As the role gives it to its module.
    module = ArgumentSpecValidator({"a": nvidia_driver_activate.ARGUMENTS["peermem"]})
    assert module.validate({"a": str(found.validated_parameters["a"]).lower()}).error_messages == []


def test_what_peermem_is_not_is_refused_with_the_words_to_write() -> None:
    option = catalogue()["nvidia_driver_peermem"]
    (problem,) = values.check(Path("f"), option, yaml_nodes.parse(Path("f"), "a: always").root.value[0][1])
    assert problem.what == f"{option.name} must be one of auto, on, off, true, false; not 'always'"


BOOLEANS = dict.fromkeys(("yes", "Yes", "on", "true", "TRUE", "1", "'yes'", "'1'"), True)
BOOLEANS |= dict.fromkeys(("no", "NO", "off", "false", "False", "0", "'no'", "'0'"), False)


@pytest.mark.parametrize("word", [*BOOLEANS, *"yntfYNTF", "' yes'", "2", "maybe"])
def test_a_boolean_means_the_same_here_and_to_roles_or_is_refused(word: str) -> None:
    node = yaml_nodes.parse(Path("f"), f"a: {word}").root.value[0][1]
    problems = list(values.check(Path("f"), Option("a", "bool", description="Is it?"), node))
    assert [problem.hint for problem in problems] == ([] if word in BOOLEANS else ["Write true or false."])
    value = yaml.safe_load(word)
    assert is_true(value) is to_bool(value) is BOOLEANS.get(word, False)
