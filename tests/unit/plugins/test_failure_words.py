"""A failure of ours is known by the code that a module or a task reports, never by what it prints."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.tree import ROOT

from clusterctl.engine.failure_kinds import BY_CODE, KINDS, kind_of
from clusterctl.explanations import explanations

PLUGINS = sorted((ROOT / "plugins").rglob("*.py"))
MODULES = sorted((ROOT / "plugins/modules").glob("*.py"))
TASKS = sorted((ROOT / "roles").glob("*/tasks/**/*.yml"))
DOCUMENTS = ("DOCUMENTATION", "EXAMPLES", "RETURN")
CODE = re.compile(r"[a-z]+\.[a-z]+(-[a-z]+)*")
AREAS = {code.partition(".")[0] for code in BY_CODE}
EXPRESSION = "X1.2"
# What our modules look for in the output of other programs. None of it is printed by a module.
LOOKED_FOR = {
    "EXPKEYSIG",
    "Could not get lock (\\S+/lists/lock)",
    "Failed to fetch",
    f"Failed to fetch {EXPRESSION}",
    "connection refused",
    "connection refused|no such host",
    "dpkg was interrupted",
    "no such host",
    "no such host|temporary failure in name resolution|name or service not known",
    "no space left on device|disk quota exceeded",
}


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def texts(tree: ast.Module) -> Iterator[str]:
    """Every text of a source but its documentation, with its expressions replaced."""
    others = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    others |= {
        id(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in DOCUMENTS
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            others |= {id(part) for part in ast.walk(node)}
            yield "".join(
                part.value if isinstance(part, ast.Constant) else EXPRESSION for part in node.values
            )
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in others:
            yield node.value


def codes(tree: ast.Module) -> set[str]:
    """The codes of failures in a source; a name of a file is none."""
    found = (text.partition(".") for text in texts(tree) if CODE.fullmatch(text))
    return {"".join(parts) for parts in found if parts[0] in AREAS and parts[2] not in ("yml", "service")}


def tasks(content: Any) -> Iterator[dict[str, Any]]:
    """Every task of a file, those in blocks too."""
    for task in content or []:
        yield task
        for part in ("block", "rescue", "always"):
            yield from tasks(task.get(part))


def failing_tasks() -> Iterator[tuple[str, str, str]]:
    """File, message and code of every task that can only fail."""
    for path in TASKS:
        for task in tasks(yaml.safe_load(path.read_text(encoding="utf-8"))):
            does = task.get("ansible.builtin.assert") or task.get("ansible.builtin.fail")
            if does:
                message = re.sub(r"\{\{.*?\}\}", EXPRESSION, does.get("fail_msg") or does["msg"], flags=re.S)
                code = (task.get("vars") or {}).get("clusterctl_failure_code", "")
                yield str(path.relative_to(ROOT)), message, code


def test_no_text_of_ours_is_what_a_failure_is_known_by() -> None:
    known = {text for path in PLUGINS for text in texts(parsed(path)) if kind_of(text)}
    assert known == LOOKED_FOR, "return a code, and let the engine know other programs by their words alone"


def test_no_message_of_a_role_is_what_a_failure_is_known_by() -> None:
    failing = list(failing_tasks())
    assert len(failing) > 10
    assert [(path, message) for path, message, _ in failing if kind_of(message)] == []


def test_what_a_module_would_print_is_found() -> None:
    source = 'def f(module):\n    """No."""\n    module.fail_json(msg=f"{1} has no space left on device")\n'
    (text,) = (text for text in texts(ast.parse(source)) if kind_of(text))
    assert text == f"{EXPRESSION} has no space left on device"


def test_every_code_that_a_module_or_a_task_reports_is_known_and_explained() -> None:
    reported = {code for path in PLUGINS for code in codes(parsed(path))}
    reported |= {code for _, _, code in failing_tasks() if code}
    assert len(reported) > 15
    assert reported - BY_CODE.keys() == set()
    assert BY_CODE.keys() - explanations().keys() == set()
    mute = {kind.code for kind in KINDS if not kind.says}
    assert mute - reported == set(), "nothing reports these any more, and no words are known"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_a_module_documents_the_codes_that_it_returns(path: Path) -> None:
    tree = parsed(path)
    documents = next(
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "RETURN"
    )
    documented = set(re.findall(r"[a-z]+\.[a-z-]+", documents)) & BY_CODE.keys()
    assert codes(tree) - documented == set()
    called = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    # What runs programs within limits and reports that one did not end: a driver_node.Node does so by itself.
    # The packages' task has the codes of both package managers.
    assert bool(codes(tree) or called & {"late", "code_of", "Node", "ensure_packages"}) is (
        "code" in (yaml.safe_load(documents) or {})
    )
