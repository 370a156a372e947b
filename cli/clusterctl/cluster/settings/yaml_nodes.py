"""YAML read as nodes with their places, so that every problem has a line; nothing is ever constructed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from clusterctl.cluster.settings.problem import SettingsProblem, at

MOST_NODES = 1_000_000
LARGEST_BYTES = 16_000_000
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
        if file.stat().st_size > LARGEST_BYTES:
            return _broken(file, 0, 0, f"the file is larger than {LARGEST_BYTES // 1_000_000} MB")
        data = file.read_bytes()
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
        root = yaml.compose(text, Loader=yaml.SafeLoader)
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
    if _is_endless(root):
        return YamlDocument(file, None, (at(file, root, "its anchors and aliases unfold without end"),))
    return YamlDocument(file, root, tuple(_node_problems(file, root)))


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


def _is_endless(root: Node) -> bool:
    try:
        return _size(root, {}, set()) > MOST_NODES
    except RecursionError:
        return True


def _size(node: Node, known: dict[int, int], within: set[int]) -> int:
    """How many nodes it is with every alias unfolded; a node within itself is endless."""
    if id(node) in known:
        return known[id(node)]
    if id(node) in within:
        return MOST_NODES + 1
    within.add(id(node))
    size = 1
    if isinstance(node, MappingNode):
        size += sum(_size(k, known, within) + _size(v, known, within) for k, v in node.value)
    elif isinstance(node, SequenceNode):
        size += sum(_size(child, known, within) for child in node.value)
    within.discard(id(node))
    known[id(node)] = size = min(size, MOST_NODES + 1)
    return size


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
    problem = " ".join((error.problem or "it cannot be read").split())
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
