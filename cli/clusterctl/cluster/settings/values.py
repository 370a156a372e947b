"""Is a value what its setting allows? Decided on YAML nodes, with Ansible's rules and without its traps."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from clusterctl.cluster.settings.booleans import FALSE, TRUE
from clusterctl.cluster.settings.options import Option
from clusterctl.cluster.settings.problem import SettingsProblem, at
from clusterctl.cluster.settings.yaml_nodes import ANSIBLE_TAGS, TAG, entries, is_null
from clusterctl.cluster.suggestion import did_you_mean
from clusterctl.cluster.templating import MAX_TEMPLATE, is_template

WHOLE = re.compile(r"[-+]?(0|[1-9][0-9]*)")
NUMBER = re.compile(r"[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?")
# As Ansible reads its types bytes and bits: capital units alone, and no empty text.
SIZES = {
    "bytes": re.compile(r"[0-9]+(\.[0-9]+)?[KMGTPEZY]?B?"),
    "bits": re.compile(r"[0-9]+(\.[0-9]+)?[KMGTPEZY]?b?"),
}
SHOWN = 60
TYPE_NAMES = {
    "str": "text",
    "path": "a path",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "list": "a list",
    "dict": "a mapping",
    "bytes": "a size such as 512M",
    "bits": "a size such as 512Mb",
}


def check(file: Path, option: Option, node: Node, name: str = "") -> Iterator[SettingsProblem]:
    """What is wrong with the value ``node`` of ``option``; ``name`` is its full path for nested ones."""
    name = name or option.name
    if node.tag in ANSIBLE_TAGS or option.type == "raw" or node.tag not in _KNOWN_TAGS:
        return
    if isinstance(node, MappingNode) and any(isinstance(key, MappingNode) for key, _ in node.value):
        return  # {{ without quotes: the reader of the file has said so
    if isinstance(node, ScalarNode) and is_template(node.value):
        yield from _template_problem(file, node, name)
    elif is_null(node):
        yield at(
            file,
            node,
            f"{name} has no value",
            f"It is {_wanted(option)}. Remove the line to take the default"
            + (', or write "" for none.' if option.type in ("str", "path") else "."),
            "settings.value",
        )
    elif option.type == "list":
        yield from _list(file, option, node, name)
    elif option.type == "dict":
        yield from _mapping(file, option, node, name)
    elif option.type in ("json", "jsonarg"):
        return
    elif not isinstance(node, ScalarNode):
        kind = "a list" if isinstance(node, SequenceNode) else "a mapping"
        yield at(
            file, node, f"{name} must be {_wanted(option)}, not {kind}", _allowed(option), "settings.type"
        )
    else:
        yield from _scalar(file, option, node, name)


def _scalar(file: Path, option: Option, node: ScalarNode, name: str) -> Iterator[SettingsProblem]:
    text = node.value
    kind = node.tag.removeprefix(TAG)
    if not _fits(option, kind, text):
        what = f"{name} must be {_wanted(option)}, not {_shown(option, node)}"
        hint = _allowed(option)
        if option.type in ("str", "path"):
            # 580.10 would become 580.1, and `no` would become False.
            hint = f"YAML reads this as {_READ_AS.get(kind, kind)}: put it in quotes."
        yield at(file, node, what, hint, "settings.type")
    elif option.choices and not _chosen(option, kind, text):
        choices = [_choice_text(choice) for choice in option.shown_choices]
        listed = ", ".join(choice or '""' for choice in choices)
        near = did_you_mean(text, [choice for choice in choices if choice])
        yield at(
            file,
            node,
            f"{name} must be one of {listed}; not {_shown(option, node)}",
            near,
            "settings.choice",
        )


def _fits(option: Option, kind: str, text: str) -> bool:  # noqa: PLR0911 - one line a type
    if option.type in ("str", "path"):
        if kind == "int":
            return WHOLE.fullmatch(text) is not None and not text.startswith("+")
        return kind == "str" or (kind == "bool" and _bool_choice(option, text))
    if option.type == "int":
        return kind in ("int", "str") and WHOLE.fullmatch(text.strip()) is not None
    if option.type == "float":
        return kind in ("int", "float", "str") and NUMBER.fullmatch(text.strip()) is not None
    if option.type == "bool":
        return text.lower() in (*TRUE, *FALSE)
    if option.type in SIZES:
        return SIZES[option.type].fullmatch(text) is not None
    return True


def _chosen(option: Option, kind: str, text: str) -> bool:
    if kind == "bool" and _bool_choice(option, text):
        return True
    if option.type == "bool":
        return (text.lower() in TRUE) in [choice in (True, "true", "yes") for choice in option.choices]
    if option.type in ("int", "float"):
        return any(float(text) == float(choice) for choice in option.choices)
    return text in [_choice_text(choice) for choice in option.choices]


def _bool_choice(option: Option, text: str) -> bool:
    """Ansible writes a YAML boolean as True or False, or takes the one choice that means the same."""
    if str(text.lower() in TRUE) in option.choices:
        return True
    same = TRUE if text.lower() in TRUE else FALSE
    return sum(_choice_text(choice).lower() in same for choice in option.choices) == 1


def _list(file: Path, option: Option, node: Node, name: str) -> Iterator[SettingsProblem]:
    if not isinstance(node, SequenceNode):
        hint = "Write it as [a, b], or as lines that start with a dash."
        yield at(file, node, f"{name} must be a list, not {_shown(option, node)}", hint, "settings.type")
        return
    for number, item in enumerate(node.value):
        yield from check(file, option.element, item, f"{name}[{number}]")


def _mapping(file: Path, option: Option, node: Node, name: str) -> Iterator[SettingsProblem]:
    if not isinstance(node, MappingNode):
        hint = "Write it as lines of `key: value`, indented below the name."
        yield at(file, node, f"{name} must be a mapping, not {_shown(option, node)}", hint, "settings.type")
        return
    if not option.options:
        return
    given = {}
    for key, value in entries(node):
        given[key.value] = value
        inner = option.options.get(key.value)
        if inner is None:
            hint = did_you_mean(key.value, option.options) or f"Known: {', '.join(sorted(option.options))}."
            yield at(file, key, f"{name} knows no {key.value!r}", hint, "settings.unknown")
        else:
            yield from check(file, inner, value, f"{name}.{key.value}")
    for inner_name, inner in option.options.items():
        if inner.required and inner_name == inner.name and inner_name not in given:
            yield at(file, node, f"{name} lacks {inner_name}", inner.description, "settings.missing")


def _template_problem(file: Path, node: ScalarNode, name: str) -> Iterator[SettingsProblem]:
    import jinja2  # noqa: PLC0415 - 50 ms that files without templates do not need

    if len(node.value) > MAX_TEMPLATE:
        what = f"the template of {name} has more than {MAX_TEMPLATE} characters"
        yield at(file, node, what, "", "settings.template")
        return
    try:
        _jinja().parse(node.value)
    except jinja2.TemplateSyntaxError as error:
        yield at(
            file, node, f"the template of {name} cannot be read: {error.message}", "", "settings.template"
        )
    except (RecursionError, ValueError, OverflowError):
        yield at(file, node, f"the template of {name} cannot be read", "", "settings.template")


@cache
def _jinja():  # type: ignore[no-untyped-def]  # noqa: ANN202
    import jinja2  # noqa: PLC0415

    return jinja2.Environment(extensions=["jinja2.ext.do", "jinja2.ext.loopcontrols"])  # noqa: S701


def _wanted(option: Option) -> str:
    return TYPE_NAMES.get(option.type, option.type)


def _allowed(option: Option) -> str:
    if option.type == "bool":
        return "Write true or false."
    if option.choices:
        return f"Allowed: {', '.join(_choice_text(c) for c in option.shown_choices if _choice_text(c))}."
    return option.description


def _choice_text(choice: object) -> str:
    return str(choice).lower() if isinstance(choice, bool) else str(choice)


def _shown(option: Option, node: Node) -> str:
    if option.secret:
        return "what is written"
    if isinstance(node, SequenceNode):
        return "a list"
    if isinstance(node, MappingNode):
        return "a mapping"
    text = str(node.value)
    return repr(text if len(text) <= SHOWN else text[:SHOWN] + "...")


_READ_AS = {"int": "a number", "float": "a number", "bool": "true or false", "timestamp": "a date"}
_KNOWN_TAGS = tuple(TAG + name for name in ("str", "int", "float", "bool", "null", "timestamp", "map", "seq"))
