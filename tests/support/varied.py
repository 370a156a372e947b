"""What may stand in the place of a value: the same of another size, of another kind, or none at all.

Values are JSON's; texts may be JSON, the XML of nvidia-smi, or the lines that a program printed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any
from xml.etree import ElementTree

Named = tuple[str, Any]
Matters = Callable[[Any], bool]
MAX_SHAPES = 20
MANY = 4
DEEP = 8
NUMBER = re.compile(r"\d+(?:\.\d+)?")
# Of the GPUs in the XML of nvidia-smi, this one is varied.
GPU = 3


def variants(value: Any, matters: Matters, depth: int = DEEP) -> Iterator[Named]:
    """What is changed and into what, as `devices[0].name = "x"`, and the value with that change.

    What may be nothing, ``matters`` says, without a change of any result, is varied no further.
    """
    for path, words, changed in _changes(value, matters, depth):
        yield f"{path.lstrip('. ')} = {words}", changed


def _changes(value: Any, matters: Matters, depth: int) -> Iterator[tuple[str, str, Any]]:
    for words, other in _instead(value):
        yield "", words, other
    if not (depth and value and isinstance(value, (str, list, dict))):
        return
    if not (matters(None) or matters(type(value)())):
        return
    if isinstance(value, str):
        yield from _of_text(value, matters, depth)
    elif isinstance(value, dict):
        for key in _unlike(value):
            yield f".{key}", "(gone)", {name: one for name, one in value.items() if name != key}

            def with_key(other: Any, key: str = key) -> dict[str, Any]:
                return {**value, key: other}

            for path, words, other in _changes(
                value[key], lambda other, use=with_key: matters(use(other)), depth - 1
            ):
                yield f".{key}{path}", words, with_key(other)
    else:
        last = len(value) - 1
        for place in sorted({0, last, len(value) // 2 if last > MANY else 0}):
            before, after = value[:place], value[place + 1 :]
            yield f"[{place}]", "(gone)", [*before, *after]
            yield f"[{place}]", "(twice)", [*before, value[place], value[place], *after]
            within = lambda other, before=before, after=after: matters([*before, other, *after])  # noqa: E731
            for path, words, other in _changes(value[place], within, depth - 1):
                yield f"[{place}]{path}", words, [*before, other, *after]


def _unlike(value: Mapping[str, Any]) -> Sequence[str]:
    """The keys; the first and the last of a table whose values are of one form."""
    keys = list(value)
    forms = {str(sorted(one) if isinstance(one, dict) else type(one)) for one in value.values()}
    table = len(forms) == 1 and (isinstance(value[keys[0]], dict) or ":" in keys[0])
    return (keys[0], keys[-1]) if table and len(keys) > 2 else keys


def _instead(value: Any) -> Iterator[Named]:
    """Another value in the place of this one."""
    if isinstance(value, bool):
        others: tuple[Any, ...] = (not value, None, "x")
    elif isinstance(value, (int, float)):
        others = (0, -1, *sizes(value), None, "x", True)
    elif isinstance(value, str):
        others = (*texts(value), None, 7)
    elif isinstance(value, list):
        others = ([], [7], "x", None)
    elif isinstance(value, dict):
        others = ({}, [], None)
    else:
        others = (0, 1, "x")
    for other in others:
        if type(other) is not type(value) or other != value:
            yield json.dumps(other), other


def sizes(value: float) -> tuple[float, ...]:
    """Halved, a little less, a little more, doubled."""
    if not value:
        return (1, 3)
    if isinstance(value, int):
        return (value // 2, value - 1, value + 1, value * 2)
    return (value * 0.5, value * 0.94, value * 1.06, value * 2)


def texts(value: str) -> tuple[str, ...]:
    """Of a number with its unit the same of another size."""
    found = NUMBER.match(value)
    if "\n" in value or found is None or value[found.end() :][:1] not in ("", " ", "x"):
        return ("", "x")
    number, unit = float(found[0]), value[found.end() :]
    return ("", "x", *(f"{one:g}{unit}" for one in (number * 0.5, number + 1, number * 2)))


def _of_text(text: str, matters: Matters, depth: int) -> Iterator[tuple[str, str, Any]]:
    if text.startswith("<?xml"):
        if depth > DEEP - 3:
            yield from _of_xml(text, matters)
    elif text.startswith(("{", "[")):
        try:
            value = json.loads(text)
        except ValueError:
            return
        for path, words, other in _changes(value, lambda other: matters(json.dumps(other)), depth - 1):
            yield path, words, json.dumps(other)
    elif "\n" in text:
        yield from _of_lines(text)


def _of_lines(text: str) -> Iterator[tuple[str, str, Any]]:
    """The first line of each shape, and the last: gone, twice, other numbers, another last word."""
    lines = text.split("\n")
    shapes: dict[str, int] = {}
    for place, line in enumerate(lines):
        if line.strip():
            shapes.setdefault(NUMBER.sub("#", line), place)
    for place in list(shapes.values())[:MAX_SHAPES]:
        line = lines[place]
        words, _, last = line.rstrip().rpartition(" ")
        others = {
            "(gone)": [],
            "(twice)": [line, line],
            "numbers 0": [NUMBER.sub("0", line)],
            "numbers doubled": [NUMBER.sub(lambda found: f"{float(found[0]) * 2:g}", line)],
            "last word x": [f"{words} x"] if last else [],
        }
        for change, some in others.items():
            if some != [line]:
                yield f" line {place + 1}", change, "\n".join([*lines[:place], *some, *lines[place + 1 :]])


def _of_xml(text: str, matters: Matters) -> Iterator[tuple[str, str, Any]]:
    for name, without, said in _xml_variants(text):
        yield f" {name}", "(gone)", without
        if said and any(map(matters, (without, *list(said.values())[:1], *list(said.values())[-1:]))):
            yield from ((f" {name}", words, one) for words, one in said.items())


@lru_cache(maxsize=4)
def _xml_variants(text: str) -> Sequence[tuple[str, str, Mapping[str, str]]]:
    """Each element of a GPU, and of the root: the text without it, and with another text in it."""
    found = []
    root = ElementTree.fromstring(text)  # noqa: S314 - our own text
    above = {child: parent for parent in root.iter() for child in parent}
    gpu = root.findall("gpu")[GPU]
    for element in [one for one in root if not len(one)] + [one for one in gpu.iter() if one is not gpu]:
        parent, whole = above[element], element.text or ""
        place = list(parent).index(element)
        parent.remove(element)
        without = ElementTree.tostring(root, encoding="unicode")
        parent.insert(place, element)
        said = {}
        for other in () if len(element) else texts(whole):
            element.text = other
            said[json.dumps(other)] = ElementTree.tostring(root, encoding="unicode")
        element.text = whole
        found.append((_path(element, above), without, said))
    return found


def _path(element: ElementTree.Element, above: dict[ElementTree.Element, ElementTree.Element]) -> str:
    names = [element.tag]
    while (element := above.get(element, element)) in above:
        names.append(element.tag)
    return "/".join(reversed(names))
