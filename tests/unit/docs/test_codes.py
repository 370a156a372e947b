"""Every stable error code has an explanation, and every explanation a code."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from clusterctl import errors
from clusterctl.explanations import DIRECTORY, explanations
from clusterctl.main import cli, run

ROOMS = ("cli", "lab", "validation", "plugins")
CODE = re.compile(r"[a-z]+(-[a-z]+)*\.[a-z]+(-[a-z]+)*")
FILE_NAMES = (".yml", ".yaml", ".json", ".toml", ".log", ".md", ".html", ".conf", ".service")
# A helper of the lab raises with the code that it is given, and this exit code; so does a class of errors.
EXIT_OF_HELPERS = {"call": errors.EXIT_INCOMPLETE, "RegistryError": errors.EXIT_CLUSTER_BAD}


def sources(repository: Path) -> Iterator[tuple[Path, ast.Module]]:
    for room in ROOMS:
        for path in sorted((repository / room).rglob("*.py")):
            yield path, ast.parse(path.read_text(encoding="utf-8"))


def literals_named_code(tree: ast.Module) -> Iterator[str]:
    """Texts that are given as `code=`, or are the default of a `code`."""
    for node in ast.walk(tree):
        values: list[ast.expr | None] = []
        if isinstance(node, ast.Call):
            values = [keyword.value for keyword in node.keywords if keyword.arg == "code"]
        elif isinstance(node, ast.FunctionDef):
            named = dict(zip([a.arg for a in node.args.kwonlyargs], node.args.kw_defaults, strict=True))
            values = [named.get("code")]
        elif (
            isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == "code"
        ):
            values = [node.value]
        for value in values:
            assert not isinstance(value, ast.JoinedStr), f"line {node.lineno}: write the code in full"
            if isinstance(value, ast.Constant) and isinstance(value.value, str) and value.value:
                yield value.value


def literals_of(tree: ast.Module, areas: set[str]) -> Iterator[str]:
    """Texts that look like a code of a known area, wherever they stand."""
    for node in ast.walk(tree):
        text = node.value if isinstance(node, ast.Constant) else None
        if isinstance(text, str) and CODE.fullmatch(text) and text.partition(".")[0] in areas:
            yield from () if text.endswith(FILE_NAMES) else (text,)


@pytest.fixture(scope="module")
def codes(repository: Path) -> dict[str, str]:
    """Every code in the source, with the file it stands in."""
    found: dict[str, str] = {}
    for path, tree in sources(repository):
        for code in literals_named_code(tree):
            found.setdefault(code, str(path.relative_to(repository)))
    areas = {code.partition(".")[0] for code in found}
    for path, tree in sources(repository):
        for code in literals_of(tree, areas):
            found.setdefault(code, str(path.relative_to(repository)))
    return found


def test_every_code_is_explained(codes: dict[str, str]) -> None:
    missing = {code: where for code, where in codes.items() if code not in explanations()}
    assert missing == {}, (
        f"explain them in cli/clusterctl/explanations/AREA.yml, then run script/reference: {missing}"
    )


def test_every_explanation_has_a_code(codes: dict[str, str]) -> None:
    stale = sorted(set(explanations()) - set(codes))
    assert stale == [], f"no source has these codes any more; take them out of the explanations: {stale}"


def test_codes_have_the_form_that_is_promised(codes: dict[str, str]) -> None:
    assert {code: where for code, where in codes.items() if not CODE.fullmatch(code)} == {}


def test_the_exit_codes_are_those_of_the_source(repository: Path) -> None:
    raised: dict[str, set[int]] = {}
    for _, tree in sources(repository):
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                for code, exit_code in raised_by(node):
                    raised.setdefault(code, set()).add(exit_code)
    assert len(raised) > 50
    explained = {code: one.exit_code for code, one in explanations().items() if code in raised}
    assert {code: exit_code for code, exit_code in explained.items() if exit_code not in raised[code]} == {}


def raised_by(call: ast.Call) -> Iterator[tuple[str, int]]:
    """The code of an error that is made here, with its exit code."""
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    name, code = ast.unparse(call.func).rpartition(".")[2], given.get("code")
    if isinstance(code, ast.Constant) and name.endswith(("Error", *EXIT_OF_HELPERS)):
        asked = given.get("exit_code")
        usual = EXIT_OF_HELPERS.get(name, errors.EXIT_USAGE)
        yield str(code.value), getattr(errors, asked.id) if isinstance(asked, ast.Name) else usual


@pytest.mark.parametrize("path", sorted(DIRECTORY.glob("*.yml")), ids=lambda path: path.stem)
def test_a_file_holds_the_codes_of_its_area_with_nothing_left_out(path: Path) -> None:
    entries = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert list(entries) == sorted(entries)
    for code, entry in entries.items():
        assert code.partition(".")[0] == path.stem
        assert set(entry) == {"means", "causes", "remedy", "exit"}, code
        sentences = [entry["means"], *entry["causes"], *entry["remedy"]]
        assert entry["causes"], code
        assert entry["remedy"], code
        assert [text for text in sentences if not text.strip() or text != text.strip()] == []
        assert entry["means"].endswith("."), code


def test_explain_says_all_of_one_code_and_a_line_of_each() -> None:
    one = CliRunner().invoke(cli, ["explain", "engine.held"], catch_exceptions=False)
    assert one.output.startswith("engine.held (exit code 2)\n")
    assert "usual causes:\n  - " in one.output
    assert "what to do:\n  - " in one.output
    every = CliRunner().invoke(cli, ["explain"], catch_exceptions=False)
    assert len(every.output.splitlines()) == len(explanations())
    record = json.loads(CliRunner().invoke(cli, ["explain", "engine.held", "--json"]).output)
    assert record["code"] == "engine.held"
    assert record["exit_code"] == 2


def test_explain_names_what_is_near_an_unknown_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "engine.hold"]) == 2
    assert "Did you mean engine.held?" in capsys.readouterr().err
