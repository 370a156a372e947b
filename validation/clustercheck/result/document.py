"""The result document: what a validation found, in the form that scripts and reports rely on."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from clustercheck.errors import EXIT_CLUSTER_BAD, EXIT_GOOD, EXIT_INCOMPLETE
from clustercheck.model import Coverage, Culprit, Judged, Result, Subject
from clustercheck.result.changes import QuantityChange, quantity_changes
from clustercheck.result.gc_pause import gc_paused

SCHEMA = "clusterctl/result/1"


@dataclass(frozen=True)
class Document:
    """One validation. ``raw`` is the raw evidence by node, for the caller to store; ``chain_head`` is what
    reports print of the record that the caller keeps. The JSON has neither."""

    run: str
    started: str
    finished: str
    cluster: str
    suite: str
    coverage: Coverage
    culprits: tuple[Culprit, ...]
    results: tuple[Result, ...]
    environment: Mapping[str, Any]
    simulated: bool = False
    raw: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    chain_head: str = field(default="", compare=False)

    @property
    def verdict(self) -> str:
        """``fail``, ``incomplete`` or ``pass``: what did not run is never green."""
        if self.coverage.failed:
            return "fail"
        if self.coverage.not_run or not self.coverage.passed:
            return "incomplete"
        return "pass"

    @property
    def exit_code(self) -> int:
        """The program's exit code for this verdict."""
        return exit_code(self.verdict)

    @cached_property
    def changes(self) -> tuple[QuantityChange, ...]:
        """What has become of each quantity since the baseline; none where there was none."""
        return quantity_changes(self.results) if self.environment.get("baseline") else ()

    def as_json(self) -> dict[str, Any]:
        """The document as plain JSON values, valid by docs/result.schema.json."""
        with gc_paused():
            members = self.members()
            return {**members, "results": list(members["results"])}

    def members(self) -> dict[str, Any]:
        """The same, but ``results`` is an iterator: a thousand nodes have too many to hold them all."""
        return {
            "schema": SCHEMA,
            "run": self.run,
            "started": self.started,
            "finished": self.finished,
            "cluster": self.cluster,
            "suite": self.suite,
            "verdict": self.verdict,
            "simulated": self.simulated,
            "coverage": coverage_json(self.coverage),
            "culprits": [_culprit(culprit) for culprit in self.culprits],
            **self._comparison(),
            "results": self._results(),
            "environment": plain(self.environment),
        }

    def _comparison(self) -> dict[str, Any]:
        """What changed since the baseline, in the environment and in each quantity; nothing without one."""
        about = self.environment.get("baseline")
        if not isinstance(about, Mapping):
            return {}
        found = {
            "run": about.get("run", ""),
            "finished": about.get("finished", ""),
            "environment": about.get("changed") or [],
            "quantities": [change.as_json() for change in self.changes],
        }
        return {"comparison": plain(found)}

    def _results(self) -> Iterator[dict[str, Any]]:
        """Each result; a subject that many have, and conditions that many figures have, are made once."""
        subjects: dict[Subject, dict[str, Any]] = {}
        conditions: dict[int, Any] = {}
        for result in self.results:
            subject = subjects.get(result.subject)
            if subject is None:
                subject = subjects.setdefault(result.subject, _subject(result.subject))
            yield _result(result, subject, conditions)


def coverage_json(coverage: Coverage) -> dict[str, int]:
    """The counts by verdict."""
    return {
        "expected": coverage.expected,
        "pass": coverage.passed,
        "fail": coverage.failed,
        "warning": coverage.warnings,
        "not_run": coverage.not_run,
        "excluded": coverage.excluded,
    }


def exit_code(verdict: str) -> int:
    """0 for pass, 1 for fail, 3 for anything that is not wholly judged."""
    return {"pass": EXIT_GOOD, "fail": EXIT_CLUSTER_BAD}.get(verdict, EXIT_INCOMPLETE)


def _subject(subject: Subject) -> dict[str, Any]:
    return {"node": subject.node, "gpu": subject.gpu, "peer": subject.peer}


def _culprit(culprit: Culprit) -> dict[str, Any]:
    return {
        "scope": culprit.scope,
        "node": culprit.node or None,
        "gpu": culprit.gpu,
        "peer": culprit.peer,
        "because": culprit.because,
        "remedy": culprit.remedy,
        **({"reasons": list(culprit.reasons)} if culprit.reasons else {}),
    }


def _result(result: Result, subject: dict[str, Any], conditions: dict[int, Any]) -> dict[str, Any]:
    return {
        "check": result.check,
        "scope": result.scope.value,
        "subject": subject,
        "verdict": result.verdict.value,
        "measured": plain(result.measured),
        "unit": result.unit,
        "expected": plain(result.expected),
        "efficiency": result.efficiency,
        "source": result.source,
        "method": result.method,
        "because": result.because,
        "remedy": result.remedy,
        "evidence": plain(result.evidence),
        "simulated": result.simulated,
        "severity": result.severity.value,
        "margin": result.margin,
        **({"waived": True} if result.waived else {}),
        **({"figures": [_judged(judged, conditions) for judged in result.figures]} if result.figures else {}),
    }


def _judged(judged: Judged, conditions: dict[int, Any]) -> dict[str, Any]:
    """``conditions`` holds those that were made before, by identity: the results outlive them."""
    figure = judged.figure
    if id(figure.conditions) not in conditions:
        conditions[id(figure.conditions)] = plain(figure.conditions)
    return {
        "metric": figure.metric,
        "measured": figure.measured,
        "unit": figure.unit,
        "better": figure.better.value,
        "efficiency": figure.efficiency,
        "method": figure.method,
        "conditions": conditions[id(figure.conditions)],
        "verdict": judged.verdict.value,
        "parts": [
            {
                "part": part.part.value,
                "limit": part.limit,
                "tolerance": part.tolerance,
                "margin": part.margin,
                "verdict": part.verdict.value,
                "source": part.source,
                "method": part.method,
            }
            for part in judged.parts
        ],
    }


def plain(value: Any) -> Any:
    """The value in what JSON knows: no infinity, no NaN, no other types."""
    kind = type(value)
    if kind is str or kind is int or kind is bool or value is None:
        return value
    if kind is not float and isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, (str, int, float, bool)) else str(value)
