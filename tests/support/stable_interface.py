"""Lists what scripts of our users rely on, one line each, from the code as it is."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import click
import yaml
from tests.support import stable_files

from clustercheck.checks.all import CHECKS
from clustercheck.checks.base import evaluate
from clustercheck.model import Culprit
from clustercheck.result.document import Document
from clustercheck.running.coverage import count_coverage
from clustercheck.running.suites import suites
from clustercheck.samples import sample
from clusterctl import errors
from clusterctl.engine import events
from clusterctl.explanations import explanations
from clusterctl.main import cli
from clusterctl.report import prometheus
from clusterlab import faults

SAMPLE = re.compile(r"^(\w+)\{(.*)\} ", re.MULTILINE)
EMITTED = re.compile(r"\b(?:self\.)?(?:on_event|emit)\(")
LABEL = re.compile(r"(\w+)=\"")
METRIC = re.compile(r"\"(clusterctl_[a-z_]+)")
VARIABLE = re.compile(r"\"(CLUSTERCTL_[A-Z_]+)\"")


@cache
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
        *_validation_events(repository / "validation" / "clustercheck"),
        *_matches("metric", METRIC, [repository / "cli" / "clusterctl" / "report" / "prometheus.py"]),
        *_samples(),
        *stable_files.files(repository),
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
                yield from _fields(dict(_members(node)))


def _validation_events(source: Path) -> Iterator[str]:
    """The same of what a validation hands to ``on_event`` or ``emit``."""
    for directory in (path for path in sorted(source.iterdir()) if path.is_dir() and path.name != "jobs"):
        texts = [path.read_text("utf-8") for path in sorted(directory.glob("*.py"))]
        if any(EMITTED.search(text) for text in texts):
            yield from _emitted([node for text in texts for node in ast.walk(ast.parse(text))])


def _emitted(nodes: Sequence[ast.AST]) -> Iterator[str]:
    """Of ``**name`` in an event: what the modules of its directory put into a dictionary of that name."""
    spread: dict[str, dict[str, ast.expr]] = {}
    for node in nodes:
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign) and isinstance(node.value, ast.Dict):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            spread.setdefault(ast.unparse(target), {}).update(_members(node.value))
    for node in nodes:
        if isinstance(node, ast.Call) and EMITTED.match(f"{ast.unparse(node.func)}("):
            for line in (argument for argument in node.args if isinstance(argument, ast.Dict)):
                members = dict(_members(line))
                for key, value in zip(line.keys, line.values, strict=True):
                    if key is None:
                        members |= spread.get(ast.unparse(value), {})
                yield from _fields(members)


def _members(line: ast.Dict) -> Iterator[tuple[str, ast.expr]]:
    for key, value in zip(line.keys, line.values, strict=True):
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            yield key.value, value


def _fields(members: Mapping[str, ast.expr]) -> Iterator[str]:
    kind = members.get("type")
    if isinstance(kind, ast.Constant) and isinstance(kind.value, str):
        yield from (f"json {kind.value} {name}" for name in members)


def _samples() -> Iterator[str]:
    """Each metric's labels, of a healthy cluster's result with a culprit of every kind of place."""
    evidence = sample.healthy()
    results = [result for check in CHECKS for result in evaluate(check, evidence)]
    document = Document(
        run="run",
        started="2026-11-20T19:57:00Z",
        finished="2026-11-20T19:58:12Z",
        cluster="site",
        suite="quick",
        coverage=count_coverage(results),
        culprits=(Culprit("link", "gpu01", "slow", "See it.", gpu=1, peer="gpu02"),),
        results=tuple(results),
        environment={},
    )
    for metric, labels in SAMPLE.findall(prometheus.render(document)):
        yield from (f"metric {metric}{{{label}}}" for label in LABEL.findall(labels))


def _matches(kind: str, pattern: re.Pattern[str], paths: Any) -> Iterator[str]:
    for path in paths:
        for match in pattern.finditer(path.read_text("utf-8")):
            yield f"{kind} {match[1]}"


def add_to(golden: Path, repository: Path) -> None:
    """Adds what is new. What is gone stays listed: the test fails until the old name works again."""
    known = golden.read_text("utf-8").splitlines()
    golden.write_text("\n".join(sorted({*known, *lines(repository)})) + "\n", "utf-8")


if __name__ == "__main__":
    root = Path(__file__).parents[2]
    add_to(root / "tests" / "golden" / "interface.txt", root)
