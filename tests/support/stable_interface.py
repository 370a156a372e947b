"""Lists what scripts of our users rely on, one line each, from the code as it is."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
import yaml

from clustercheck.running.suites import suites
from clusterctl import errors
from clusterctl.engine import events
from clusterctl.explanations import explanations
from clusterctl.main import cli
from clusterlab import faults

METRIC = re.compile(r"\"(clusterctl_[a-z_]+)")
VARIABLE = re.compile(r"\"(CLUSTERCTL_[A-Z_]+)\"")


def lines(repository: Path) -> list[str]:
    """Everything that is stable, sorted: a kind, then its name."""
    found = {
        *_commands(click.Context(cli, info_name="clusterctl")),
        *(f"exit code {getattr(errors, name)} {name}" for name in dir(errors) if name.startswith("EXIT_")),
        *(f"event {name}.{each.name}" for name, kind in events.NAMES.items() for each in fields(kind)),
        *(f"error code {code}" for code in explanations()),
        *(f"lab fault {kind}" for kind in faults.known()),
        *(f"suite {name} {check.id}" for name, suite in suites().items() for check in suite.selected()),
        *_roles(repository / "roles"),
        *_modules(repository / "plugins" / "modules"),
        *(f"playbook {path.name}" for path in (repository / "playbooks").glob("*.yml")),
        *_schema("result", json.loads((repository / "docs" / "result.schema.json").read_text("utf-8"))),
        *_json_lines(repository / "cli"),
        *_matches("metric", METRIC, [repository / "cli" / "clusterctl" / "report" / "prometheus.py"]),
        *_matches("environment", VARIABLE, (repository / "cli").rglob("*.py")),
    }
    return sorted(found)


def _commands(context: click.Context) -> Iterator[str]:
    command = context.command
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is not None:
                yield from _commands(click.Context(inner, parent=context, info_name=name))
    else:
        yield f"command {context.command_path}"
    arguments = [parameter for parameter in command.params if isinstance(parameter, click.Argument)]
    for parameter in command.params:
        names = [*parameter.opts, *parameter.secondary_opts]
        if isinstance(parameter, click.Argument):  # a script gives it by its position
            names = [f"argument {arguments.index(parameter) + 1}"]
        for name in names:
            yield f"command {context.command_path} {name}"
            if isinstance(parameter.type, click.Choice):
                for choice in parameter.type.choices:
                    yield f"command {context.command_path} {name} {choice}"


def _roles(roles: Path) -> Iterator[str]:
    for path in sorted(roles.glob("*/meta/argument_specs.yml")):
        role = path.parent.parent.name
        for entry, spec in yaml.safe_load(path.read_text("utf-8"))["argument_specs"].items():
            yield f"role {role} {entry}"
            yield from _options(f"setting {role}", spec.get("options") or {})


def _modules(modules: Path) -> Iterator[str]:
    for path in sorted(modules.glob("*.py")):
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "DOCUMENTATION":
                documentation = yaml.safe_load(ast.literal_eval(node.value))
                yield f"module {path.stem}"
                yield from _options(f"module {path.stem}", documentation.get("options") or {})


def _options(owner: str, options: Mapping[str, Any]) -> Iterator[str]:
    for name, option in options.items():
        yield f"{owner} {name}"
        for choice in option.get("choices") or ():
            yield f"{owner} {name}={choice}"
        yield from _options(f"{owner} {name}", option.get("options") or {})


def _schema(where: str, schema: Mapping[str, Any], within: str = "") -> Iterator[str]:
    """Each property, by its path through objects and lists; definitions by their own names."""
    for name, inner in (schema.get("properties") or {}).items():
        yield f"{where} {within}{name}"
        yield from _schema(where, inner, f"{within}{name}.")
    items = schema.get("items")
    if isinstance(items, Mapping):
        yield from _schema(where, items, f"{within.removesuffix('.')}[].")
    for word in schema.get("enum") or ():
        yield f"{where} {within.removesuffix('.')}={word}"
    for name, inner in (schema.get("$defs") or {}).items():
        yield from _schema(where, inner, f"{name}.")


def _json_lines(source: Path) -> Iterator[str]:
    """The fields of each kind of line that ``--json`` prints, as they stand in the code."""
    for path in sorted(source.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Dict):
                names = {
                    k.value: v
                    for k, v in zip(node.keys, node.values, strict=True)
                    if isinstance(k, ast.Constant) and isinstance(k.value, str)
                }
                kind = names.get("type")
                if isinstance(kind, ast.Constant) and isinstance(kind.value, str):
                    yield from (f"json {kind.value} {name}" for name in names)


def _matches(kind: str, pattern: re.Pattern[str], paths: Any) -> Iterator[str]:
    for path in paths:
        for match in pattern.finditer(path.read_text("utf-8")):
            yield f"{kind} {match[1]}"


def add_to(golden: Path, repository: Path) -> None:
    """Adds what is new. What is gone stays listed: the test fails until the old name works again."""
    known = golden.read_text("utf-8").splitlines()
    if new := set(lines(repository)) - set(known):
        golden.write_text("\n".join(sorted({*known, *new})) + "\n", "utf-8")
        print(f"written: {golden}")  # noqa: T201 - as script/reference says of its pages


if __name__ == "__main__":
    root = Path(__file__).parents[2]
    add_to(root / "tests" / "golden" / "interface.txt", root)
