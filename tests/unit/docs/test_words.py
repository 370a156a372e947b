"""What the documents point to exists: their links, and the commands and options that they name."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from tests.support.tree import ROOT

from clustercheck.errors import ExplainedError
from clustercheck.running import suites
from clusterctl.commands import validate
from clusterctl.main import cli

PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *ROOT.glob("roles/*/README.md"),
        *ROOT.glob("lab/**/*.md"),
    ]
)
FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)  # also within a list
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)|(?:src|href)=\"([^\"]+)\"")
INLINE = re.compile(r"`((?:sudo )?(?:\.venv/bin/)?clusterctl\s[^`]+)`")
PROGRAM = ("clusterctl", ".venv/bin/clusterctl")
# What stands for something else in prose: NAME, ..., a|b, [OPTIONS]
PLACEHOLDER = re.compile(r"\.\.\.|[A-Z][A-Z_=.,:]*|.*[|\[].*")


def prose(page: Path) -> str:
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def shell_lines(page: Path) -> Iterator[str]:
    """Lines of the page's shell blocks, with continued ones joined."""
    for language, block in FENCE.findall(page.read_text(encoding="utf-8")):
        if language in ("sh", "bash", "console"):
            yield from (line.removeprefix("$ ") for line in block.replace("\\\n", " ").splitlines())


def calls(line: str) -> Iterator[list[str]]:
    """Each call of clusterctl in a line of shell, as its arguments."""
    for part in re.split(r"&&|;|\s\|\s|\s>", line):
        words = shlex.split(part, comments=True)
        words = words[1:] if words[:1] == ["sudo"] else words
        if words and words[0] in PROGRAM:
            yield words[1:]


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    heads = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def what_is_wrong_with(arguments: list[str], *, strict: bool) -> str:
    """Why Click would refuse these arguments; ``strict`` also looks at their values."""
    context = click.Context(cli, info_name="clusterctl")
    if arguments[:1] == ["-C"]:
        arguments = arguments[2:]
    while isinstance(context.command, click.Group) and arguments and not arguments[0].startswith("-"):
        if not strict and PLACEHOLDER.fullmatch(arguments[0]):
            return ""
        command = context.command.get_command(context, arguments[0])
        if command is None:
            return f"there is no command {arguments[0]}"
        context = click.Context(command, parent=context, info_name=arguments[0])
        arguments = arguments[1:]
    try:
        if strict:
            context.command.make_context(str(context.info_name), arguments, parent=context.parent)
        else:
            context.command.make_parser(context).parse_args(list(arguments))
    except click.exceptions.Exit:
        return ""
    except click.ClickException as error:
        return error.format_message()
    return ""


def unknown_checks(arguments: list[str]) -> str:
    """Why `validate` would refuse the suite or the checks of these arguments; empty for other commands."""
    if arguments[:1] == ["-C"]:
        arguments = arguments[2:]
    if arguments[:1] != ["validate"] or any(map(PLACEHOLDER.fullmatch, arguments)):
        return ""
    named = validate.command.make_context("validate", arguments[1:], resilient_parsing=True).params
    patterns = [pattern.strip() for pattern in (named["only"] or "").split(",") if pattern.strip()]
    try:
        suites.load(named["suite"]).of_checks(patterns)
    except ExplainedError as error:
        return error.what
    return ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    broken = []
    for found in LINK.findall(prose(page)):
        target = next(filter(None, found))
        path, _, anchor = target.partition("#")
        if "://" in target or target.startswith("mailto:"):
            continue
        aim = (page.parent / path).resolve() if path else page
        if not aim.exists() or (anchor and aim.suffix == ".md" and anchor not in anchors(aim)):
            broken.append(target)
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_that_is_shown_would_be_taken(page: Path) -> None:
    wrong = []
    for line in shell_lines(page):
        for arguments in calls(line):
            if because := what_is_wrong_with(arguments, strict=True) or unknown_checks(arguments):
                wrong.append(f"{line.strip()}: {because}")
    assert wrong == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_and_option_that_is_named_exists(page: Path) -> None:
    wrong = []
    for text in INLINE.findall(prose(page)):
        for arguments in calls(text):
            named = [word for word in arguments if word != "..."]
            if because := what_is_wrong_with(named, strict=False) or unknown_checks(named):
                wrong.append(f"{text}: {because}")
    assert wrong == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_script_and_option_of_it_exists(page: Path) -> None:
    wrong = []
    text = page.read_text(encoding="utf-8")
    for script, options in re.findall(r"(?<![\w/])(script/[\w.]*\w)((?: --[a-z-]+)*)", text):
        path = ROOT / script
        if not path.is_file():
            wrong.append(script)
        else:
            said = path.read_text(encoding="utf-8")
            wrong += [f"{script} {option}" for option in options.split() if option not in said]
    assert wrong == []


def test_the_readers_of_the_pages_see_what_is_wrong(tmp_path: Path) -> None:
    assert what_is_wrong_with(["aply"], strict=True) == "there is no command aply"
    assert "--rebot" in what_is_wrong_with(["apply", "--rebot"], strict=False)
    assert "--gpu" in what_is_wrong_with(
        ["lab", "fault", "inject", "gpu01", "xid", "--gpu", "x"], strict=True
    )
    assert what_is_wrong_with(["-C", "DIR", "hosts", "scan", "--limit", "gpu01"], strict=True) == ""
    page = tmp_path / "page.md"
    page.write_text(
        "```sh\nclusterctl status  # all\nsudo clusterctl lab down && ls\n```\n"
        "- a step:\n\n  ```sh\n  clusterctl plan\n  ```\n",
        encoding="utf-8",
    )
    found = [call for line in shell_lines(page) for call in calls(line)]
    assert found == [["status"], ["lab", "down"], ["plan"]]


def test_a_suite_without_the_checks_that_are_shown_is_seen() -> None:
    shown = ["validate", "--checks", "gpu-mig,paddle-run-check"]
    assert unknown_checks(shown) == "the suite quick has no check 'paddle-run-check'"
    assert unknown_checks([*shown, "--suite", "standard"]) == ""
    assert "unknown suite" in unknown_checks(["-C", "DIR", "validate", "--suite", "fast"])
    assert unknown_checks(["validate", "--suite", "NAME"]) == unknown_checks(["status"]) == ""


def texts_of(tree: ast.Module) -> Iterator[str]:
    """Every text of a program; what is filled in is an X."""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(p.value) if isinstance(p, ast.Constant) else "X" for p in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def options_that_do_not_exist(text: str) -> list[str]:
    """Options of ours that a message names next to a command that has none such."""
    wrong = []
    for words in re.findall(r"clusterctl ((?:[\w.*/-]+ ?)+)", text):
        context = click.Context(cli, info_name="clusterctl")
        for word in words.split():
            if isinstance(context.command, click.Group):
                command = context.command.get_command(context, word)
                if command is None:
                    break
                context = click.Context(command, parent=context, info_name=word)
            elif word.startswith("--") and not any(word in p.opts for p in context.command.params):
                wrong.append(f"{context.command_path} {word}")
    return wrong


@pytest.mark.parametrize("room", ["cli", "lab", "validation", "plugins"])
def test_a_message_names_no_option_that_is_not_there(room: str) -> None:
    said = [
        text for path in (ROOT / room).rglob("*.py") for text in texts_of(ast.parse(path.read_text("utf-8")))
    ]
    assert [wrong for text in said for wrong in options_that_do_not_exist(text)] == []
    assert options_that_do_not_exist("try clusterctl apply --only X --rebot") == ["clusterctl apply --rebot"]


def programs() -> list[tuple[str, str]]:
    """Each block of Python in the documents, with its page."""
    blocks = [(page, FENCE.findall(page.read_text(encoding="utf-8"))) for page in PAGES]
    return [
        (f"{page.relative_to(ROOT)}:{number}", block)
        for page, found in blocks
        for number, (language, block) in enumerate(found)
        if language == "python"
    ]


@pytest.mark.parametrize(("where", "block"), programs(), ids=[where for where, _ in programs()])
def test_every_block_of_python_runs(where: str, block: str) -> None:
    if block.startswith(" "):
        block = f"if True:\n{block}"  # a part of a function, which the roads put in its place
        ast.parse(block)
        return
    made: dict[str, object] = {"__name__": "example"}
    exec(compile(block, where, "exec"), made)  # noqa: S102 - it stands in a document of ours
