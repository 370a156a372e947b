"""From results to culprits: who is to blame, each named once, with every reason."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Optional

from clustercheck.locate.conclusion import TWO
from clustercheck.locate.located import CANNOT_TELL, Located, Named
from clustercheck.locate.pairs import Pair
from clustercheck.locate.servers import unanswering
from clustercheck.model import BETWEEN, PLACE_UNKNOWN, Culprit, Result, Scope, Subject, Verdict

WITHIN = ("node", "gpu", "rail")
ORDER = {"node": 0, "gpu": 1, "link": 2, "rail": 3, "switch": 4}
Place = tuple[str, str, Optional[int], Optional[str]]

UNSURE_REMEDY = (
    "Validate with a third, known-good node to determine which one it is. Until then check cable, switch port "
    "and negotiated rate of each."
)
NOT_MEASURED_REMEDY = (
    "Fix what kept the pairs from being measured and validate again: until then any of these nodes, or what "
    "they share, may be the slow one."
)
SWITCH_REMEDY = "Check what all nodes share: uplinks and buffers of the switch between them."
PART_REMEDIES = {
    "gpu": "Check this GPU's PCIe link (generation, width, errors), its clocks and throttling, and its "
    "connection to the network adapter (nvidia-smi topo -m).",
    "rail": "Check cable, switch port, negotiated rate, firmware and errors of this rail's adapter; if it is "
    "slow for all nodes, those of the rail's switch.",
    "switch": SWITCH_REMEDY,
}


@dataclass
class _Suspicion:
    reasons: list[str] = field(default_factory=list)
    remedies: list[str] = field(default_factory=list)

    def add(self, because: str, remedy: str) -> None:
        """One more reason. Two faults of one host have two remedies."""
        if because and because not in self.reasons:
            self.reasons.append(because)
        if remedy and remedy not in self.remedies:
            self.remedies.append(remedy)

    def add_effect(self, because: str, remedy: str) -> None:
        """One more reason that may come of the others: its remedy is told where there is none yet."""
        self.add(because, "" if self.remedies else remedy)

    @property
    def remedy(self) -> str:
        """Every remedy, as sentences."""
        if len(self.remedies) < 2:
            return "".join(self.remedies)
        return " ".join(f"{remedy.rstrip('.')}." for remedy in self.remedies)


def culprits(results: Sequence[Result], located: Located | None, group_is_slow: bool) -> list[Culprit]:
    """Everyone to blame, nodes first. ``located`` is what a search told, None where there was none."""
    suspicions: dict[Place, _Suspicion] = defaultdict(_Suspicion)
    explained = _from_servers(results, suspicions)
    failed = [
        result
        for result in results
        if result.verdict is Verdict.FAIL
        and result.subject.node is not None
        and (result.check, result.subject) not in explained
    ]
    _from_parts(failed, results, suspicions)
    told = (
        {node for named in located.sure if named.scope in WITHIN for node in named.nodes}
        if located
        else set()
    )
    # A wrong sum is wrong on every rank: then only the pairs can tell who spoiled it.
    failures = Counter(result.check for result in failed)
    for result in failed:
        node = str(result.subject.node)
        victim = told and node not in told and failures[result.check] > 1
        if result.scope is Scope.GROUP and not victim:
            suspicions["node", node, None, None].add_effect(
                f"{result.check}: {result.because}", result.remedy
            )
    if located is not None and (group_is_slow or located.sure):
        _from_search(located, results, suspicions)
    found = [
        Culprit(scope, node, "; ".join(suspicion.reasons), suspicion.remedy, gpu, peer)
        for (scope, node, gpu, peer), suspicion in suspicions.items()
    ]
    return sorted(found, key=lambda c: (ORDER[c.scope], c.node, -1 if c.gpu is None else c.gpu, c.peer or ""))


def _from_servers(results: Sequence[Result], suspicions: dict[Place, _Suspicion]) -> set[tuple[str, Subject]]:
    """Servers that answer nobody; returns whose failures that explains."""
    explained: set[tuple[str, Subject]] = set()
    for (check, server), said in unanswering(results).items():
        nodes = ", ".join(str(result.subject.node) for result in said)
        because = f"{check}: no node got an answer ({nodes}): {said[0].because}"
        if len(said) == 1:
            because = f"suspected, cannot tell: only {nodes} queried it: {said[0].because}"
        else:
            explained |= {(check, result.subject) for result in said}
        suspicions["node", server, None, None].add(because, said[0].remedy)
    return explained


def _from_parts(
    failed: Sequence[Result], results: Sequence[Result], suspicions: dict[Place, _Suspicion]
) -> None:
    """What failed on a host or on a GPU; one whole node where all its GPUs fail alike."""
    parts = [result for result in failed if result.scope in (Scope.HOST, Scope.GPU, Scope.LINK)]
    everywhere = _fails_on_every_gpu(parts, results)
    on_gpu = {(r.subject.node, r.subject.gpu) for r in parts if r.scope is Scope.GPU}
    for result in parts:
        node, gpu = str(result.subject.node), result.subject.gpu
        if peer := result.evidence.get(BETWEEN):
            first, second = sorted((node, str(peer)))
            suspicions["link", first, None, second].add(f"{result.check}: {result.because}", result.remedy)
        elif gpu is None or PLACE_UNKNOWN in result.evidence:
            suspicions["node", node, None, None].add(f"{result.check}: {result.because}", result.remedy)
        elif (result.check, node) in everywhere:
            because = f"{result.check}: on every GPU: {result.because}"
            if not any(
                r.startswith(f"{result.check}: on every")
                for r in suspicions["node", node, None, None].reasons
            ):
                suspicions["node", node, None, None].add_effect(because, result.remedy)
        else:
            scope = "gpu" if (node, gpu) in on_gpu else "link"
            suspicions[scope, node, gpu, None].add_effect(f"{result.check}: {result.because}", result.remedy)


def _fails_on_every_gpu(parts: Iterable[Result], results: Iterable[Result]) -> set[tuple[str, str]]:
    counted: dict[tuple[str, str], int] = defaultdict(int)
    for result in parts:
        if result.subject.gpu is not None:
            counted[result.check, str(result.subject.node)] += 1
    whole: dict[tuple[str, str], int] = defaultdict(int)
    for result in results:
        if result.subject.gpu is not None:
            whole[result.check, str(result.subject.node)] += 1
    return {key for key, count in counted.items() if count > 1 and count == whole[key]}


def _from_search(located: Located, results: Sequence[Result], suspicions: dict[Place, _Suspicion]) -> None:
    of_pairs = next(
        (r.remedy for r in results if r.check == "pair-bandwidth" and r.verdict is Verdict.FAIL), ""
    )
    unsure = located.remedy or UNSURE_REMEDY
    remedies = {"node": of_pairs, "link": of_pairs, **PART_REMEDIES, "unsure": unsure}
    for culprit in located.as_culprits(remedies):
        is_told = not culprit.because.startswith(CANNOT_TELL)
        because = f"pair-bandwidth: {culprit.because}" if is_told else culprit.because
        place = (culprit.scope, culprit.node, culprit.gpu, culprit.peer)
        suspicions[place].add_effect(because, culprit.remedy)
    if not located.named:
        suspicions["switch", "", None, None].add_effect(
            f"{CANNOT_TELL}: all-reduce-bandwidth: {located.because}", SWITCH_REMEDY
        )


def not_measured(nodes: Sequence[str], because: str) -> Located:
    """What a slow group tells whose pairs did not run to their end: that it is one of these."""
    named = Named("node", tuple(nodes), f"the pairs could not be measured: {because}", sure=False)
    return Located((named,), remedy=NOT_MEASURED_REMEDY)


def two_nodes(pair: Pair) -> Located:
    """What a slow group of two nodes tells: nothing about which."""
    return Located((Named("node", pair, TWO, sure=False),))
