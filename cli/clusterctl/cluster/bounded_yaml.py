"""YAML of bounded size: as many values as a file needs, nested no deeper, with all aliases unfolded."""

from __future__ import annotations

import re
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

MAX_NODES = 500_000
MAX_DEPTH = 64  # Ansible's groups of groups have two levels each
# Python's own loader explains errors in more detail, and takes seconds for a megabyte.
MAX_EXPLAINED = 256_000
FAST_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
OPENING = (yaml.MappingStartEvent, yaml.SequenceStartEvent)
TAG = "tag:yaml.org,2002:"
COLLECTION_TAGS = (f"{TAG}map", f"{TAG}seq")
# What the loaders take a plain scalar for; it is judged again here.
SCALAR_TAGS = tuple(
    f"{TAG}{name}" for name in ("str", "null", "bool", "int", "float", "timestamp", "merge", "value")
)
WORDS = {"": None, "~": None, "null": None, "true": True, "false": False}
# With 19 digits there are few keys of one hash.
INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,18})")
FRACTION = re.compile(r"-?(0|[1-9][0-9]{0,18})(\.[0-9]{1,30})?([eE][-+]?[0-9]{1,3})?")
CLOSING = (yaml.MappingEndEvent, yaml.SequenceEndEvent)


class UnboundedYamlError(yaml.YAMLError):
    """More than any file of ours holds; ``line`` is where, counted from 1."""

    def __init__(self, what: str, line: int) -> None:
        super().__init__(what)
        self.line = line


def compose(text: str) -> Node | None:
    """The text as nodes, of which one document has at most MAX_NODES. Raises yaml.YAMLError."""
    refused = _why_unread(text)
    loader = yaml.SafeLoader if len(text) <= MAX_EXPLAINED else FAST_LOADER
    try:
        root: Node | None = yaml.compose(text, Loader=loader)
    except RecursionError:
        raise UnboundedYamlError("it is nested too deep", 1) from None
    if refused is not None:
        raise refused  # the other loader reads it, but nothing counted what it holds
    if root is not None and _is_endless(root):
        raise UnboundedYamlError("its anchors and aliases unfold without end", root.start_mark.line + 1)
    return root


def load(text: str) -> Any:
    """The text as values that JSON has, too; all other scalars, as dates, are texts. Raises yaml.YAMLError.

    PyYAML's own constructors fail on some forms, and take hours for others.
    """
    root = compose(text)
    return None if root is None else _value(root)


def _value(node: Node, within: int = 0) -> Any:
    if within > MAX_DEPTH:  # Pythons differ in how deep they go
        raise UnboundedYamlError("its anchors and aliases are too deep", node.start_mark.line + 1)
    if node.tag not in (SCALAR_TAGS if isinstance(node, ScalarNode) else COLLECTION_TAGS):
        raise _refusal(f"its tag {node.tag} is not known", node)
    if isinstance(node, MappingNode):
        return {_key(key): _value(value, within + 1) for key, value in node.value}
    if isinstance(node, SequenceNode):
        return [_value(child, within + 1) for child in node.value]
    is_plain = node.tag != f"{TAG}str" and not getattr(node, "style", "")
    if is_plain and node.value in WORDS:
        return WORDS[node.value]
    if is_plain and INTEGER.fullmatch(node.value):
        return int(node.value)
    if is_plain and FRACTION.fullmatch(node.value):
        return float(node.value)
    return node.value


def _key(node: Node) -> Any:
    if isinstance(node, ScalarNode):
        return _value(node)
    raise _refusal("a key is a list or a mapping", node)


def _refusal(because: str, node: Node) -> yaml.YAMLError:
    return yaml.constructor.ConstructorError(None, None, because, node.start_mark)


def _why_unread(text: str) -> yaml.YAMLError | None:
    """What is no YAML in the text. Raises UnboundedYamlError for what is too much before that."""
    try:
        _require_few_events(text)
    except UnboundedYamlError:
        raise
    except yaml.YAMLError as error:
        return error
    except ValueError as error:  # as half of a surrogate pair
        return yaml.YAMLError(str(error))
    return None


def _require_few_events(text: str) -> None:
    """Stops at what is too much, before nodes are made of it. Raises yaml.YAMLError and ValueError."""
    depth = nodes = line = 0
    for event in yaml.parse(text, Loader=FAST_LOADER):
        nodes += not isinstance(event, CLOSING)
        depth += isinstance(event, OPENING) - isinstance(event, CLOSING)
        line = event.start_mark.line + 1 if event.start_mark else line
        if depth > MAX_DEPTH:
            raise UnboundedYamlError(f"it is nested more than {MAX_DEPTH} deep", line)
        if nodes > MAX_NODES:
            raise UnboundedYamlError(f"it holds more than {MAX_NODES} values", line)


def size(root: Node) -> int:
    """How many nodes it is with every alias unfolded. Raises RecursionError."""
    return _size(root, {}, set())


def _is_endless(root: Node) -> bool:
    try:
        return size(root) > MAX_NODES
    except RecursionError:
        return True


def _size(node: Node, known: dict[int, int], within: set[int]) -> int:
    """How many nodes it is with every alias unfolded; a node within itself is endless."""
    if id(node) in known:
        return known[id(node)]
    if id(node) in within:
        return MAX_NODES + 1
    within.add(id(node))
    size = 1
    if isinstance(node, MappingNode):
        size += sum(_size(k, known, within) + _size(v, known, within) for k, v in node.value)
    elif isinstance(node, SequenceNode):
        size += sum(_size(child, known, within) for child in node.value)
    within.discard(id(node))
    known[id(node)] = size = min(size, MAX_NODES + 1)
    return size
