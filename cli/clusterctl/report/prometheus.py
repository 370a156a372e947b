"""A run as Prometheus text, for node-exporter's textfile collector: verdict, coverage, figures."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import TypeGuard

from clusterctl.report import view
from clusterctl.report.view import Document, Result

VERDICTS = ("pass", "fail", "incomplete")
NOT_A_NAME = re.compile(r"[^a-z0-9]+")
Sample = tuple[Mapping[str, object], float]

# Prometheus wants base units, by name: what one of ours is called there, and what it is multiplied by.
UNITS: Mapping[str, tuple[str, float]] = {
    "GB/s": ("bytes_per_second", 1e9),
    "MB": ("bytes", 1e6),
    "MiB": ("bytes", 2**20),
    "s": ("seconds", 1.0),
}


def render(document: Document) -> str:
    """The text; every sample has the labels ``cluster`` and ``simulated``."""
    common = {
        "cluster": document["cluster"],
        "simulated": str(view.is_simulated(document)).lower(),
    }
    results = _by_node(document.get("results") or [])
    families = [
        _family(
            "clusterctl_validation_verdict",
            "Verdict of the last validation: 1 for the one that it is, 0 for the others.",
            [({"verdict": word}, float(document["verdict"] == word)) for word in VERDICTS],
            common,
        ),
        _family(
            "clusterctl_validation_info",
            "Which validation it was.",
            [({"run": document["run"], "suite": document["suite"]}, 1.0)],
            common,
        ),
        _family(
            "clusterctl_validation_end_timestamp_seconds",
            "When it ended, in seconds since 1970.",
            _end(document),
            common,
        ),
        _family(
            "clusterctl_validation_duration_seconds",
            "How long it took.",
            [({}, view.duration_s(document))],
            common,
        ),
        _family(
            "clusterctl_validation_coverage_results",
            "Results of node x GPU x check by verdict; their sum is what was expected.",
            [({"verdict": word}, float(count)) for word, count in view.covered(document)],
            common,
        ),
        _family(
            "clusterctl_validation_culprit",
            "Who is to blame: 1 for each node, GPU or link; no sample where nobody is.",
            [(who, 1.0) for who in _culprits(document)],
            common,
        ),
        _family(
            "clusterctl_check_passed",
            "1 where a check passed or warns, 0 where it failed or was not judged; excluded ones are absent.",
            [
                (_labels(result), float(result["verdict"] in ("pass", "warning")))
                for result in results
                if result["verdict"] != "excluded"
            ],
            common,
        ),
        _family(
            "clusterctl_check_efficiency_ratio",
            "Measured over what physics allows of links, lanes and adapters as detected, 0 to 1.",
            [
                (_labels(result), float(result["efficiency"]))
                for result in results
                if _is_figure(result.get("efficiency"))
            ],
            common,
        ),
        *_figures("measured", "What a check measured", results, common),
        *_figures("expected", "What a check expected", _strictest(results), common),
    ]
    return "".join(families)


def _by_node(results: Iterable[Result]) -> list[Result]:
    """The results, of a node's pairs the worst alone: a hundred nodes have thousands of pairs."""
    kept: list[Result] = []
    pairs: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        subject = result["subject"]
        if subject.get("peer") is None:
            kept.append(result)
            continue
        for node in (str(subject["node"]), str(subject["peer"])):
            alone = {**result, "subject": {"node": node}}
            pairs.setdefault((str(result["check"]), node), []).append(alone)
    return kept + [min(mine, key=_goodness) for mine in pairs.values()]


def _strictest(results: Iterable[Result]) -> list[Result]:
    """Of a node's GPUs what is expected of the one that it asks the most of, for the node.

    They are nearly always held to the same: of a thousand nodes that is eight times fewer samples.
    """
    kept: dict[tuple[str, object], Result] = {}
    for result in results:
        node = result["subject"].get("node")
        known = kept.get((str(result["check"]), node))
        if known is None or _margin(result) < _margin(known):
            kept[str(result["check"]), node] = result
    return [{**result, "subject": {"node": result["subject"].get("node")}} for result in kept.values()]


def _margin(result: Result) -> float:
    margin = result.get("margin")
    return float(margin) if _is_figure(margin) else math.inf


def _goodness(result: Result) -> tuple[int, float]:
    measured = result.get("measured")
    return view.ORDER[result["verdict"]], float(measured) if _is_figure(measured) else 0.0


def _figures(key: str, words: str, results: Iterable[Result], common: Mapping[str, object]) -> Iterator[str]:
    """A family a unit, since a name has its unit in it."""
    by_name: dict[str, list[Sample]] = {}
    for result in results:
        unit = str(result.get("unit") or "")
        if unit and _is_figure(result.get(key)):
            name, factor = UNITS.get(unit, (NOT_A_NAME.sub("_", unit.lower()).strip("_") or "units", 1.0))
            by_name.setdefault(name, []).append((_labels(result), float(result[key]) * factor))
    for name, samples in by_name.items():
        about = f"{words}, in {name.replace('_', ' ')}; of a node's pairs the worst."
        yield _family(f"clusterctl_check_{key}_{name}", about, samples, common)


def _family(name: str, about: str, samples: Iterable[Sample], common: Mapping[str, object]) -> str:
    """Help, type and samples of one metric; nothing where it has no sample."""
    lines = [f"{name}{_braces({**common, **labels})} {_number(value)}" for labels, value in samples]
    if not lines:
        return ""
    return "\n".join([f"# HELP {name} {about}", f"# TYPE {name} gauge", *lines]) + "\n"


def _end(document: Document) -> list[Sample]:
    try:
        return [({}, datetime.fromisoformat(str(document["finished"])).timestamp())]
    except (KeyError, ValueError, OverflowError):
        return []


def _culprits(document: Document) -> Iterator[dict[str, object]]:
    for culprit in document.get("culprits") or []:
        yield {"scope": culprit["scope"], **_place(culprit)}


def _labels(result: Result) -> dict[str, object]:
    return {"check": result["check"], **_place(result["subject"])}


def _place(subject: Mapping[str, object]) -> dict[str, object]:
    return {part: subject[part] for part in ("node", "gpu", "peer") if subject.get(part) is not None}


def _is_figure(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _braces(labels: Mapping[str, object]) -> str:
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(value: object) -> str:
    return str(value).replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() else repr(value)
