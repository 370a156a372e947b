"""The planted faults of a check with something else in the place of what was planted.

Many conditions are asked only where something is wrong: this is evidence for them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from tests.support import varied
from tests.support.varied_evidence import HEALTHY, Case, Varying, with_job

from clustercheck.checks.base import Check
from clustercheck.evidence.cluster import Evidence
from clustercheck.evidence.node import NodeEvidence

Path = tuple[Any, ...]
Told = Callable[[Any], Evidence]
MAX_CHANGES = 12  # of one rank
MAX_PLACES = 30


def cases(check: Check, varying: Varying) -> Iterator[Case]:
    """Of each planted fault, what else may stand where it was planted: each place once a check."""
    seen: set[str] = set()
    for fault in check.faults:
        evidence = fault.inject(HEALTHY)
        whole = varying.judged(evidence)

        for place, value, told in _places(evidence):
            pattern = re.sub(r"gpu\d+|\[\d+\]|rank \d+", "", place)
            if pattern in seen or len(seen) > MAX_PLACES:
                continue
            seen.add(pattern)

            def matters(value: Any, told: Told = told, whole: Any = whole) -> bool:
                return varying.judged(told(value)) != whole

            for words, other in varied.variants(value, matters):
                if matters(other):
                    yield Case(
                        f"fault {fault.name}: {place}{words}".replace("gpu02 .", "gpu02: ").replace(
                            "  =", " ="
                        ),
                        told(other),
                    )


def _places(evidence: Evidence) -> Iterator[tuple[str, Any, Told]]:
    """Where the evidence differs from the healthy one: its name, what stands there, and how to change it."""
    for which in ("nodes", "later"):
        before: Mapping[str, NodeEvidence] = getattr(HEALTHY, which)
        for name, node in getattr(evidence, which).items():
            if name in before and not node.unreachable:
                for path in _differences(before[name].raw, node.raw):
                    place = _named(f"{which} {name} ", path)
                    yield place, _at(node.raw, path), _telling(evidence, which, name, path)
    for job, outcome in evidence.jobs.items():
        whole = HEALTHY.jobs.get(job)
        if whole is None or outcome is whole or len(whole.ranks) != len(outcome.ranks):
            continue
        for number, (old, new) in enumerate(zip(whole.ranks, outcome.ranks, strict=True)):
            if new.verdict is not None and new.verdict != old.verdict:
                for path in list(_differences(old.verdict, new.verdict))[:MAX_CHANGES]:
                    place = _named(f"{job} rank {number} ", path)
                    yield place, _at(new.verdict, path), _answering(evidence, job, number, path)


def _named(begin: str, path: Path) -> str:
    keys = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path)
    return f"{begin}{keys.lstrip('.')} "


def _differences(before: Any, after: Any, path: Path = ()) -> Iterator[Path]:
    """The places where the two differ, as deep as they go."""
    if before == after:
        return
    if isinstance(before, Mapping) and isinstance(after, Mapping) and (before or not path):
        for key in after:
            if key in before:
                yield from _differences(before[key], after[key], (*path, key))
            else:
                yield (*path, key)
    elif isinstance(before, list) and isinstance(after, list) and before and len(before) == len(after):
        for place, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from _differences(old, new, (*path, place))
    elif not (isinstance(after, str) and after.startswith(("<?xml", "<nvidia"))):
        yield path


def _at(value: Any, path: Path) -> Any:
    for key in path:
        value = value[key]
    return value


def _with(value: Any, path: Path, other: Any) -> Any:
    if not path:
        return other
    key, *rest = path
    if isinstance(value, Mapping):
        return {**value, key: _with(value[key], tuple(rest), other)}
    return [*value[:key], _with(value[key], tuple(rest), other), *value[key + 1 :]]


def _telling(evidence: Evidence, which: str, name: str, path: Path) -> Told:
    nodes = getattr(evidence, which)

    def told(value: Any) -> Evidence:
        node = NodeEvidence(name, _with(nodes[name].raw, path, value), asked=nodes[name].asked)
        return replace(evidence, **{which: {**nodes, name: node}})

    return told


def _answering(evidence: Evidence, job: str, number: int, path: Path) -> Told:
    outcome = evidence.jobs[job]

    def told(value: Any) -> Evidence:
        ranks = list(outcome.ranks)
        verdict = _with(ranks[number].verdict, path, value)
        ranks[number] = replace(ranks[number], verdict=verdict)
        return with_job(evidence, replace(outcome, ranks=tuple(ranks)))

    return told
