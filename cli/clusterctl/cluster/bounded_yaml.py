"""YAML of bounded size: as many values as a file needs, nested no deeper, with all aliases unfolded."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, SequenceNode

MAX_NODES = 500_000
MAX_DEPTH = 64  # Ansible's groups of groups have two levels each
# Python's own loader explains errors in more detail, and takes seconds for a megabyte.
MAX_EXPLAINED = 256_000
FAST_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
OPENING = (yaml.MappingStartEvent, yaml.SequenceStartEvent)
CLOSING = (yaml.MappingEndEvent, yaml.SequenceEndEvent)


class UnboundedYamlError(yaml.YAMLError):
    """More than any file of ours holds; ``line`` is where, counted from 1."""

    def __init__(self, what: str, line: int) -> None:
        super().__init__(what)
        self.line = line


def compose(text: str) -> Node | None:
    """The text as nodes, of which one document has at most MAX_NODES. Raises yaml.YAMLError."""
    _require_few_events(text)
    loader = yaml.SafeLoader if len(text) <= MAX_EXPLAINED else FAST_LOADER
    root: Node | None = yaml.compose(text, Loader=loader)
    if root is not None and _is_endless(root):
        raise UnboundedYamlError("its anchors and aliases unfold without end", root.start_mark.line + 1)
    return root


def load(text: str) -> Any:
    """The text as plain values. Raises yaml.YAMLError, and ValueError for a number or date that is none."""
    root = compose(text)
    return None if root is None else yaml.SafeLoader("").construct_document(root)


def _require_few_events(text: str) -> None:
    """Stops at what is too much, before nodes are made of it."""
    depth = nodes = line = 0
    for event in _events(text):
        nodes += not isinstance(event, CLOSING)
        depth += isinstance(event, OPENING) - isinstance(event, CLOSING)
        line = event.start_mark.line + 1 if event.start_mark else line
        if depth > MAX_DEPTH:
            raise UnboundedYamlError(f"it is nested more than {MAX_DEPTH} deep", line)
        if nodes > MAX_NODES:
            raise UnboundedYamlError(f"it holds more than {MAX_NODES} values", line)


def _events(text: str) -> Iterator[yaml.Event]:
    """As far as it is YAML: what is wrong after that is for the loader to say."""
    with contextlib.suppress(yaml.YAMLError, ValueError):
        yield from yaml.parse(text, Loader=FAST_LOADER)


def _is_endless(root: Node) -> bool:
    try:
        return _size(root, {}, set()) > MAX_NODES
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
