"""YAML read as nodes with their places, so that every problem has a line; nothing is ever constructed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from clustercheck.parse.plain_text import one_line
from clusterctl.cluster import bounded_yaml
from clusterctl.cluster.bounded_file import UnusableFileError, read_bounded
from clusterctl.cluster.settings.problem import SettingsProblem, at

MAX_BYTES = 16_000_000
MAX_PROBLEMS = 200
TAG = "tag:yaml.org,2002:"
ANSIBLE_TAGS = ("!vault", "!vault-encrypted", "!unsafe")
PLAIN_TAGS = tuple(
    TAG + name for name in ("str", "int", "float", "bool", "null", "timestamp", "map", "seq", "merge")
)


@dataclass(frozen=True)
class YamlDocument:
    """One YAML file. ``root`` is None where it is empty, broken or encrypted as a whole."""

    file: Path
    root: MappingNode | None
    problems: tuple[SettingsProblem, ...] = ()
    encrypted: bool = False


def read(file: Path) -> YamlDocument:
    """Read one file of settings. Never raises: what is wrong with it is in ``problems``."""
    try:
        data = read_bounded(file, MAX_BYTES)
    except UnusableFileError as error:
        return _broken(file, 0, 0, f"the file {error}", "Write the settings into a plain file.")
    except OSError as error:
        return _broken(file, 0, 0, f"the file cannot be read: {error.strerror}", "Check its owner and mode.")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        return _broken(file, line, 0, "this is not UTF-8 text", "Save the file as UTF-8.")
    if text.startswith("$ANSIBLE_VAULT;"):
        return YamlDocument(file, None, encrypted=True)
    return parse(file, text)


def parse(file: Path, text: str) -> YamlDocument:
    """Compose a text. Never raises."""
    try:
        root = bounded_yaml.compose(text)
    except bounded_yaml.UnboundedYamlError as error:
        return _broken(file, error.line, 1, str(error), "No file of settings is like this: who wrote it?")
    except yaml.MarkedYAMLError as error:
        return YamlDocument(file, None, (_syntax_problem(file, error, text),))
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, max(error.position, 0)) + 1
        return _broken(file, line, 0, "there is a character that YAML does not allow", "Remove it.")
    except (RecursionError, yaml.YAMLError, ValueError):
        return _broken(file, 0, 0, "the file cannot be read as YAML", "Is it nested too deep?")
    return _judged(file, root)


def _judged(file: Path, root: Node | None) -> YamlDocument:
    if root is None or is_null(root):
        return YamlDocument(file, None)
    if not isinstance(root, MappingNode):
        return YamlDocument(
            file, None, (at(file, root, "this is not a mapping", "Write it as lines of `name: value`."),)
        )
    return YamlDocument(file, root, tuple(itertools.islice(_node_problems(file, root), MAX_PROBLEMS)))


def entries(node: MappingNode) -> Iterator[tuple[ScalarNode, Node]]:
    """The keys of a mapping with their values, merged ones (`<<`) too; keys that are not scalars are not."""
    for key, value in node.value:
        if key.tag == TAG + "merge":
            for source in value.value if isinstance(value, SequenceNode) else [value]:
                if isinstance(source, MappingNode):
                    yield from entries(source)
        elif isinstance(key, ScalarNode):
            yield key, value


def is_null(node: Node) -> bool:
    """True for nothing at all after the colon, `~` and `null`."""
    return isinstance(node, ScalarNode) and node.tag == TAG + "null"


def _node_problems(file: Path, root: Node) -> Iterator[SettingsProblem]:
    """What is wrong with the YAML as such: doubled keys, keys that are not names, tags of no use."""
    pending, seen = [root], set()
    while pending:
        node = pending.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if node.tag not in PLAIN_TAGS and node.tag not in ANSIBLE_TAGS:
            yield at(
                file,
                node,
                f"the tag {node.tag} means nothing here",
                "Remove it; !vault and !unsafe are known.",
            )
        if isinstance(node, SequenceNode):
            pending += node.value
        elif isinstance(node, MappingNode):
            yield from _key_problems(file, node)
            pending += [value for _, value in node.value]


def _key_problems(file: Path, node: MappingNode) -> Iterator[SettingsProblem]:
    first: dict[str, int] = {}
    for key, _ in node.value:
        if isinstance(key, MappingNode):
            yield at(
                file,
                key,
                "a value that starts with {{ must be in quotes",
                'Write it as name: "{{ ... }}"',
            )
        elif not isinstance(key, ScalarNode):
            yield at(file, key, "a list is not a valid setting name")
        elif key.tag != TAG + "merge":
            if key.value not in first:
                first[key.value] = key.start_mark.line + 1
            else:
                line = first[key.value]
                yield at(
                    file,
                    key,
                    f"{key.value} is set twice: in line {line} too",
                    "Ansible would silently take the last; keep one.",
                    "settings.duplicate",
                )


def _syntax_problem(file: Path, error: yaml.MarkedYAMLError, text: str) -> SettingsProblem:
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line + 1, mark.column + 1) if mark else (0, 0)
    problem = one_line(error.problem or "it cannot be read")
    lines = text.splitlines()
    written = lines[line - 1] if 0 < line <= len(lines) else ""
    hint = "Look at this line and the one above: a missing colon, quote or bracket?"
    if "'\\t'" in problem or "\t" in written[: len(written) - len(written.lstrip())]:
        problem, hint = "there is a tab; YAML requires spaces", "Indent with spaces."
    elif "another document" in problem:
        problem, hint = "a second document starts here", "Remove the line `---`."
    elif "mapping values are not allowed" in problem:
        hint = "Is the indentation that of the line above? A value with a colon in it needs quotes."
    return SettingsProblem(file, line, column, f"this is not YAML: {problem}", hint, "settings.syntax")


def _broken(file: Path, line: int, column: int, what: str, hint: str = "") -> YamlDocument:
    return YamlDocument(file, None, (SettingsProblem(file, line, column, what, hint, "settings.syntax"),))
