"""From results to culprits: each is named once, with every reason."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Optional

from clustercheck.locate.conclusion import TWO_NODES
from clustercheck.locate.faults import CANNOT_TELL, IsolationResult, LocatedFault
from clustercheck.locate.pairs import Pair
from clustercheck.model import Culprit, Result, Scope, Subject, Verdict
from clustercheck.parse.plain_text import one_line

MAX_SENTENCE = 200
MAX_NAMED_CHECKS = 4
ALSO = "; also: "  # between the first reason and the other checks
WITHIN = ("node", "gpu", "rail")
ORDER = {"node": 0, "gpu": 1, "link": 2, "rail": 3, "switch": 4}
Place = tuple[str, str, Optional[int], Optional[str]]

UNSURE_REMEDY = (
    "Validate with a third, known-good node to determine which one it is. Until then check cable, switch "
    "port and negotiated rate of each."
)
NOT_MEASURED_REMEDY = (
    "Fix why the pairs were not measured, and validate again: until then any of these nodes, or what "
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
        """Add a reason. Two faults of one host have two remedies."""
        if because not in self.reasons:
            self.reasons.append(because)
        if remedy and remedy not in self.remedies:
            self.remedies.append(remedy)

    def add_effect(self, because: str, remedy: str) -> None:
        """Add a reason that may be a consequence of others; its remedy is used only if there is none yet."""
        self.add(because, "" if self.remedies else remedy)

    @property
    def sentence(self) -> str:
        """The first reason in one line, and which other checks fail."""
        first = one_line(self.reasons[0], MAX_SENTENCE)
        others = dict.fromkeys(
            "suspected by fault isolation" if reason.startswith(CANNOT_TELL) else reason.partition(":")[0]
            for reason in self.reasons[1:]
        )
        others.pop(first.partition(":")[0], None)
        return f"{first}{ALSO}{_few(list(others))}" if others else first

    @property
    def remedy(self) -> str:
        """Every remedy, as sentences."""
        if len(self.remedies) < 2:
            return "".join(self.remedies)
        return " ".join(f"{remedy.rstrip('.')}." for remedy in self.remedies)

    @property
    def details(self) -> tuple[str, ...]:
        """Every reason in full, where the sentence is not all there is to say."""
        return () if self.reasons == [self.sentence] else tuple(self.reasons)


def _few(names: Sequence[str]) -> str:
    more = [f"{len(names) - MAX_NAMED_CHECKS} more"] if len(names) > MAX_NAMED_CHECKS else []
    return ", ".join([*names[:MAX_NAMED_CHECKS], *more])


def find_culprits(
    results: Sequence[Result], isolated: IsolationResult | None, group_is_slow: bool
) -> list[Culprit]:
    """Every culprit, nodes first. ``isolated`` is the result of fault isolation, None if it did not run."""
    suspicions: dict[Place, _Suspicion] = defaultdict(_Suspicion)
    explained = _add_server_failures(results, suspicions)
    failed = [
        result
        for result in results
        if result.verdict is Verdict.FAIL
        and result.subject.node is not None
        and (result.check, result.subject) not in explained
    ]
    _add_part_failures(failed, results, suspicions)
    faults = isolated.sure if isolated else ()
    faulty = {node for fault in faults if fault.scope in WITHIN for node in fault.nodes}
    # What all did together is wrong on every rank: only the pairs show which node caused it.
    failures = Counter(result.check for result in failed)
    for result in (one for one in failed if one.scope is Scope.GROUP):
        node = str(result.subject.node)
        is_victim = result.joint and faulty and node not in faulty and failures[result.check] > 1
        if is_victim:
            continue
        because = f"{result.check}: {result.because}"
        if result.between:
            first, second = sorted((node, result.between))
            suspicions["link", first, None, second].add(because, result.remedy)
        else:
            suspicions["node", node, None, None].add_effect(because, result.remedy)
    if isolated is not None and (group_is_slow or isolated.sure):
        _add_isolation_result(isolated, results, suspicions)
    found = [
        Culprit(scope, node, suspicion.sentence, suspicion.remedy, gpu, peer, suspicion.details)
        for (scope, node, gpu, peer), suspicion in suspicions.items()
    ]
    return sorted(found, key=lambda c: (ORDER[c.scope], c.node, -1 if c.gpu is None else c.gpu, c.peer or ""))


def _add_server_failures(
    results: Sequence[Result], suspicions: dict[Place, _Suspicion]
) -> set[tuple[str, Subject]]:
    """Add servers that answer no node, or only one of three or more; returns the failures this explains."""
    explained: set[tuple[str, Subject]] = set()
    for (check, server), failed in _find_unresponsive_servers(results).items():
        nodes = ", ".join(str(result.subject.node) for result in failed)
        because = f"{check}: no node got an answer ({nodes}): {failed[0].because}"
        if any(result.check == check and result.verdict is Verdict.PASS for result in results):
            because = f"{CANNOT_TELL}: only one node got an answer, not {nodes}: {failed[0].because}"
        if len(failed) == 1:
            because = f"{CANNOT_TELL}: only {nodes} queried it: {failed[0].because}"
        else:
            explained |= {(check, result.subject) for result in failed}
        suspicions["node", server, None, None].add(because, failed[0].remedy)
    return explained


def _find_unresponsive_servers(results: Iterable[Result]) -> dict[tuple[str, str], list[Result]]:
    """Servers that no node reached, by (check, server), with the failed results.

    A failed result names the server if it may be the cause. Nodes that get an answer prove
    that the server works, and the others are at fault themselves: one proves nothing against two.
    """
    answered: Counter[str] = Counter()
    failed: dict[tuple[str, str], list[Result]] = defaultdict(list)
    for result in results:
        if result.verdict is Verdict.PASS:
            answered[result.check] += 1
        elif result.verdict is Verdict.FAIL and result.server:
            failed[result.check, result.server].append(result)
    return {
        key: of_server
        for key, of_server in failed.items()
        if not answered[key[0]] or (answered[key[0]] == 1 and len(of_server) > 1)
    }


def _add_part_failures(
    failed: Sequence[Result], results: Sequence[Result], suspicions: dict[Place, _Suspicion]
) -> None:
    """Add what failed on a host or on a GPU; the whole node if all its GPUs fail alike.

    Ordered by `_slow_quantities`, so that the first reason, which is the culprit's line, is what may be the
    cause, or else what says most of it.
    """
    parts = sorted(
        (result for result in failed if result.scope in (Scope.HOST, Scope.GPU, Scope.LINK)),
        key=_slow_quantities,
    )
    everywhere = _find_failures_of_all_gpus(parts, results)
    on_gpu = {(r.subject.node, r.subject.gpu) for r in parts if r.scope is Scope.GPU}
    for result in parts:
        node, gpu = str(result.subject.node), result.subject.gpu
        if result.between:
            first, second = sorted((node, result.between))
            suspicions["link", first, None, second].add(f"{result.check}: {result.because}", result.remedy)
        elif gpu is None or result.place_unknown:
            because = f"{result.check}: {result.because}"
            suspicions["node", node, None, None].add(because, result.remedy)
        elif (result.check, node) in everywhere:
            because = f"{result.check}: on every GPU: {result.because}"
            if not any(
                r.startswith(f"{result.check}: on every")
                for r in suspicions["node", node, None, None].reasons
            ):
                suspicions["node", node, None, None].add_effect(because, result.remedy)
        else:
            scope = "gpu" if (node, gpu) in on_gpu else "link"
            because = f"{result.check}: {result.because}"
            suspicions[scope, node, gpu, None].add_effect(because, result.remedy)


def _slow_quantities(result: Result) -> tuple[bool, int]:
    """The order of reasons: first what failed in another way than by being slow, which may be the cause; then
    what is slow in the most quantities. Of equals, the one that stands first in the report.
    """
    wrong = [judged.figure for judged in result.figures if judged.verdict is Verdict.FAIL]
    slow = {figure.metric for figure in wrong if figure.is_speed}
    return bool(slow), -len(slow)


def _find_failures_of_all_gpus(parts: Iterable[Result], results: Iterable[Result]) -> set[tuple[str, str]]:
    counted: dict[tuple[str, str], int] = defaultdict(int)
    for result in parts:
        if result.subject.gpu is not None:
            counted[result.check, str(result.subject.node)] += 1
    whole: dict[tuple[str, str], int] = defaultdict(int)
    for result in results:
        if result.subject.gpu is not None:
            whole[result.check, str(result.subject.node)] += 1
    return {key for key, count in counted.items() if count > 1 and count == whole[key]}


def _add_isolation_result(
    isolated: IsolationResult, results: Sequence[Result], suspicions: dict[Place, _Suspicion]
) -> None:
    of_pairs = next(
        (r.remedy for r in results if r.check == "pair-bandwidth" and r.verdict is Verdict.FAIL), ""
    )
    unsure = isolated.remedy or UNSURE_REMEDY
    remedies = {"node": of_pairs, "link": of_pairs, **PART_REMEDIES, "unsure": unsure}
    for fault in isolated.faults:
        for culprit in fault.as_culprits(remedies):
            because = f"pair-bandwidth: {culprit.because}" if fault.sure else culprit.because
            place = (culprit.scope, culprit.node, culprit.gpu, culprit.peer)
            suspicions[place].add_effect(because, culprit.remedy)
    if not isolated.faults:
        suspicions["switch", "", None, None].add_effect(
            f"{CANNOT_TELL}: all-reduce-bandwidth: {isolated.because}", SWITCH_REMEDY
        )


def make_unmeasured_result(nodes: Sequence[str], because: str) -> IsolationResult:
    """The result for a slow group whose pairs were not measured completely: any of these nodes."""
    fault = LocatedFault("node", tuple(nodes), f"the pairs could not be measured: {because}", sure=False)
    return IsolationResult((fault,), remedy=NOT_MEASURED_REMEDY)


def make_two_node_result(pair: Pair) -> IsolationResult:
    """The result for a slow group of two nodes: either of them."""
    return IsolationResult((LocatedFault("node", pair, TWO_NODES, sure=False),))
