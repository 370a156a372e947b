"""One validation: probe the nodes, judge, run jobs, isolate faults, and assemble the document."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Literal

from clustercheck.checks.base import evaluate
from clustercheck.evidence.cluster import Evidence
from clustercheck.evidence.collect import collect
from clustercheck.evidence.comparison import replaced, unfit
from clustercheck.evidence.node import CANNOT_TELL_BUSY, NodeEvidence
from clustercheck.expect import profiles
from clustercheck.expect.baseline import Baseline
from clustercheck.launch.model import Launcher
from clustercheck.launch.transport import Transport
from clustercheck.locate.culprits import find_culprits
from clustercheck.model import Result
from clustercheck.result.document import Document
from clustercheck.result.environment import describe
from clustercheck.result.gc_pause import gc_paused
from clustercheck.running.burn_in import run_passes
from clustercheck.running.coverage import add_missing_results, count_coverage
from clustercheck.running.diagnose import run_dcgm_diagnostic
from clustercheck.running.suites import Suite, load
from clustercheck.spec import ClusterSpec, exclusions_in_force, lapsed_exclusions

BusyPolicy = Literal["skip", "force"]
OnEvent = Callable[[Mapping[str, Any]], None]


def validate(
    spec: ClusterSpec,
    *,
    transport: Transport,
    launcher: Launcher,
    run_id: str,
    suite: str = "quick",
    checks: Sequence[str] = (),
    on_event: OnEvent = lambda event: None,
    busy_policy: BusyPolicy = "skip",
    ended_runs: Sequence[str] = (),
    baseline: Baseline | None = None,
) -> Document:
    """Judge the cluster. Returns in bounded time whatever the nodes do.

    ``on_event`` gets one mapping per change, its ``type`` first: ``suite``, ``probe``, ``result``, ``job``,
    ``verdict``, and the launcher's own. With ``busy_policy`` "skip", busy nodes are not used in jobs;
    what ``ended_runs`` left behind does not make a node busy. Figures are compared with the ``baseline``.
    With ``checks``, ids or globs, only these of the suite are judged, and the document records that.
    Raises ExplainedError for an unknown suite, check or profile, before any node is touched.
    """
    chosen = load(suite).of_checks(checks)
    known = {node.profile: profiles.load(node.profile) for node in spec.nodes if node.profile}
    started, today = _now(), datetime.now(UTC).date()
    names = [node.name for node in spec.nodes if not node.excluded]
    on_event(
        {"type": "suite", "suite": chosen.name, "nodes": names, "checks": [c.id for c in chosen.selected()]}
    )

    def probe_nodes() -> dict[str, NodeEvidence]:
        return collect(
            names,
            transport,
            options={"limit_s": chosen.probe_limit_s},
            options_of={name: _probe_options(spec, name, ended_runs) for name in names},
            limit_s=chosen.probe_limit_s * 5,
            on_event=on_event,
        )

    evidence = Evidence(spec=spec, nodes=probe_nodes(), profiles=known, tolerance=chosen.tolerance)
    evidence = replace(
        _add_baseline(baseline, evidence),
        exclusions=exclusions_in_force(spec.exclusions, today),
        lapsed=lapsed_exclusions(spec.exclusions, today),
    )
    evidence = replace(evidence, left_out=_find_busy_nodes(evidence, busy_policy))
    evidence = run_dcgm_diagnostic(chosen, evidence, transport)
    results = _judge(chosen, evidence, on_event, after_jobs=False)
    evidence, isolated = run_passes(chosen, evidence, launcher, on_event)
    evidence = _reread_counters(chosen, evidence, transport, chosen.probe_limit_s)
    if chosen.repeat_min:
        evidence = replace(evidence, nodes=probe_nodes(), earlier=evidence.nodes)
        results = _judge(chosen, evidence, on_event, after_jobs=False)
    results += _judge(chosen, evidence, on_event, after_jobs=True)
    results = add_missing_results(chosen.selected(), evidence, results)
    slow = any(r.check == "all-reduce-bandwidth" and r.verdict.value == "fail" for r in results)
    document = Document(
        run=run_id,
        started=started,
        finished=_now(),
        cluster=spec.name,
        suite=chosen.name,
        coverage=count_coverage(results),
        culprits=tuple(find_culprits(results, isolated, slow)),
        results=tuple(results),
        environment=describe(evidence, only=chosen.only),
        simulated=evidence.simulated,
        raw={name: node.raw for name, node in evidence.nodes.items()},
    )
    on_event({"type": "verdict", "verdict": document.verdict, "exit": document.exit_code})
    return document


def _add_baseline(baseline: Baseline | None, evidence: Evidence) -> Evidence:
    if baseline is None:
        return evidence
    if because := unfit(evidence, baseline):
        return replace(evidence, not_comparable=because)
    return replace(evidence, baseline=baseline, replaced=replaced(evidence, baseline))


def _probe_options(spec: ClusterSpec, node: str, ended_runs: Sequence[str]) -> dict[str, Any]:
    settings = spec.settings_of(node)
    return {
        "image": settings.image,
        "gpu_arguments": list(settings.container_gpu_arguments),
        "ended_runs": list(ended_runs),
        "holders_ignored": list(settings.holders_ignored),
        "mounts": [{"path": each.path, "type": each.type, "user": each.user} for each in settings.mounts],
    }


def _find_busy_nodes(evidence: Evidence, busy_policy: BusyPolicy) -> dict[str, str]:
    if busy_policy == "force":
        return {}
    busy = {name: _describe_busy(evidence.nodes[name]) for name in evidence.reachable}
    return {name: f"the node is busy: {reason}" for name, reason in busy.items() if reason}


def _describe_busy(node: NodeEvidence) -> str:
    return node.busy() or ("" if "busy" in node.raw else CANNOT_TELL_BUSY)


def _judge(suite: Suite, evidence: Evidence, on_event: OnEvent, *, after_jobs: bool) -> list[Result]:
    results = []
    with gc_paused():
        for check in suite.selected():
            if check.after_jobs is after_jobs:
                found = evaluate(check, evidence)
                results += found
                on_event({"type": "result", "check": check.id, "verdicts": _tally(found)})
    return results


def _reread_counters(suite: Suite, evidence: Evidence, transport: Transport, limit_s: float) -> Evidence:
    """The evidence with the error counters after the jobs: what grew under load is what counts.

    They are read on all nodes on which a job ran, if a check of the suite needs them. ``limit_s`` is that of
    each command of the probe.
    """
    parts = sorted({part for check in suite.selected() for part in check.counters})
    ran = {node for outcome in evidence.jobs.values() for node in outcome.by_node}
    names = [name for name in evidence.reachable if name in ran]
    if not parts or not names:
        return evidence
    options = {"parts": parts, "limit_s": limit_s}
    return replace(evidence, later=collect(names, transport, options=options, limit_s=limit_s * 5))


def _tally(results: list[Result]) -> dict[str, int]:
    tally: dict[str, int] = {}
    for result in results:
        tally[result.verdict.value] = tally.get(result.verdict.value, 0) + 1
    return tally


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
