"""A run as Prometheus text, for node-exporter's textfile collector: verdict, coverage, figures."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from functools import lru_cache
from typing import NamedTuple

from clustercheck.model import Culprit, Result, Subject, Verdict
from clustercheck.result.document import Document
from clusterctl.report import view
from clusterctl.report.view import is_number

VERDICTS = ("pass", "fail", "incomplete")
NOT_A_NAME = re.compile(r"[^a-z0-9]+")
Labels = Mapping[str, object]
Sample = tuple[str, float]  # labels as text


class Placed(NamedTuple):
    """A result at one node, None for the group; ``place`` are the labels that say where, as text."""

    node: str | None
    place: str
    result: Result


# Prometheus wants base units, by name: what one of ours is called there, and what it is multiplied by.
UNITS: Mapping[str, tuple[str, float]] = {
    "GB/s": ("bytes_per_second", 1e9),
    "MB": ("bytes", 1e6),
    "MiB": ("bytes", 2**20),
    "s": ("seconds", 1.0),
}


def render(document: Document) -> str:
    """The text; every sample has the labels ``cluster`` and ``simulated``."""
    return "".join(lines(document))


def lines(document: Document) -> Iterator[str]:
    """The same line by line: a thousand nodes have a quarter of a million."""
    common = {"cluster": document.cluster, "simulated": str(document.simulated).lower()}
    results = _by_node(document.results, common)
    measured = [(one, one.result.unit, one.result.measured) for one in results]
    expected = [(one, one.result.unit, one.result.expected) for one in _strictest(results)]
    start = _text(common)[:-1]
    families = (
        _family(
            "clusterctl_validation_verdict",
            "Verdict of the last validation: 1 for the one that it is, 0 for the others.",
            [(_text(common, verdict=word), float(document.verdict == word)) for word in VERDICTS],
        ),
        _family(
            "clusterctl_validation_info",
            "Which validation it was.",
            [(_text(common, run=document.run, suite=document.suite), 1.0)],
        ),
        _family(
            "clusterctl_validation_end_timestamp_seconds",
            "When it ended, in seconds since 1970.",
            [(_text(common), when) for when in _end(document)],
        ),
        _family(
            "clusterctl_validation_duration_seconds",
            "How long it took.",
            [(_text(common), view.duration_s(document))],
        ),
        _family(
            "clusterctl_validation_coverage_results",
            "Results of node x GPU x check by verdict; their sum is what was expected.",
            [(_text(common, verdict=verdict), float(count)) for verdict, count in _coverage(document)],
        ),
        _family(
            "clusterctl_validation_culprit",
            "Faulty components: 1 for each node, GPU or link; no sample if there is none.",
            [(_text(common, scope=one.scope, **_place(one)), 1.0) for one in document.culprits],
        ),
        _family(
            "clusterctl_check_passed",
            "1 if a check passed or warns, 0 if it failed or did not run; excluded ones are absent.",
            (
                (_labels(start, one), float(one.result.verdict in (Verdict.PASS, Verdict.WARNING)))
                for one in results
                if one.result.verdict is not Verdict.EXCLUDED
            ),
        ),
        _family(
            "clusterctl_check_efficiency_ratio",
            "Measured over the peak of links, lanes and adapters as detected, 0 to 1.",
            (
                (_labels(start, one), float(one.result.efficiency))
                for one in results
                if one.result.efficiency is not None
            ),
        ),
        *_figures("measured", "What a check measured", measured, start),
        *_figures("expected", "What a check expected", expected, start),
    )
    for family in families:
        yield from family


def _coverage(document: Document) -> list[tuple[Verdict, int]]:
    coverage = document.coverage
    return [
        (Verdict.PASS, coverage.passed),
        (Verdict.FAIL, coverage.failed),
        (Verdict.WARNING, coverage.warnings),
        (Verdict.NOT_RUN, coverage.not_run),
        (Verdict.EXCLUDED, coverage.excluded),
    ]


def _by_node(results: Iterable[Result], common: Labels) -> list[Placed]:
    """The results, of each node's pairs only the worst: a hundred nodes have thousands of pairs."""
    kept: list[Placed] = []
    pairs: dict[tuple[str, str | None], list[Result]] = {}
    places: dict[Subject, str] = {}
    for result in results:
        subject = result.subject
        if subject.peer is None:
            place = places.get(subject)
            if place is None:
                place = places.setdefault(subject, _place_text(subject))
            kept.append(Placed(subject.node, place, result))
            continue
        for node in (subject.node, subject.peer):
            pairs.setdefault((result.check, node), []).append(result)
    for (_, node), mine in pairs.items():
        kept.append(Placed(node, _place_text(Subject(node)), min(mine, key=_goodness)))
    return kept


def _strictest(results: Iterable[Placed]) -> list[Placed]:
    """Per node and check the result with the narrowest margin, for the node.

    GPUs of a node nearly always have the same limit: with a thousand nodes that is eight times fewer samples.
    """
    kept: dict[tuple[str, str | None], Placed] = {}
    for one in results:
        place = one.result.check, one.node
        known = kept.get(place)
        if known is None or _margin(one.result) < _margin(known.result):
            kept[place] = one
    texts: dict[str | None, str] = {}
    for one in kept.values():
        if one.node not in texts:
            texts[one.node] = _place_text(Subject(one.node))
    return [one._replace(place=texts[one.node]) for one in kept.values()]


def _labels(start: str, one: Placed) -> str:
    """A sample's labels: the common ones, its check, and its place."""
    return f'{start},check="{_escaped(one.result.check)}"{one.place}}}'


def _place_text(subject: Subject) -> str:
    return "".join(f',{name}="{_escaped(value)}"' for name, value in _place(subject).items())


def _margin(result: Result) -> float:
    return math.inf if result.margin is None else result.margin


def _goodness(result: Result) -> tuple[int, float]:
    return view.ORDER[result.verdict], result.measured if is_number(result.measured) else 0.0


def _figures(
    key: str, words: str, figures: Iterable[tuple[Placed, str, object]], start: str
) -> Iterator[Iterator[str]]:
    """One family per unit, since a name has its unit in it."""
    by_name: dict[str, list[tuple[Placed, float]]] = {}
    for one, unit, figure in figures:
        if unit and is_number(figure):
            name, factor = _base_unit(unit)
            by_name.setdefault(name, []).append((one, float(figure) * factor))
    for name, values in by_name.items():
        about = f"{words}, in {name.replace('_', ' ')}; of a node's pairs the worst."
        samples = ((_labels(start, one), value) for one, value in values)
        yield _family(f"clusterctl_check_{key}_{name}", about, samples)


@lru_cache(maxsize=256)
def _base_unit(unit: str) -> tuple[str, float]:
    return UNITS.get(unit) or (NOT_A_NAME.sub("_", unit.lower()).strip("_") or "units", 1.0)


def _family(name: str, about: str, samples: Iterable[Sample]) -> Iterator[str]:
    """Help, type and samples of one metric, line by line; nothing without a sample."""
    is_first = True
    for labels, value in samples:
        if is_first:
            is_first = False
            yield f"# HELP {name} {about}\n# TYPE {name} gauge\n"
        yield f"{name}{labels} {_number(value)}\n"


def _end(document: Document) -> list[float]:
    try:
        return [datetime.fromisoformat(document.finished).timestamp()]
    except (ValueError, OverflowError):
        return []


def _place(subject: Subject | Culprit) -> dict[str, object]:
    named = {"node": subject.node or None, "gpu": subject.gpu, "peer": subject.peer}
    return {part: name for part, name in named.items() if name is not None}


def _text(common: Labels, **labels: object) -> str:
    every = {**common, **labels}
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in every.items()) + "}"


def _escaped(value: object) -> str:
    return str(value).replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() else repr(value)
