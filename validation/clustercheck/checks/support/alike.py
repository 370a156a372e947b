"""What should be the same on equal nodes: which one is the odd one out?"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Optional, TypeVar

from clustercheck.checks.base import Finding, failed, not_applicable, not_run, passed
from clustercheck.evidence.cluster import Evidence
from clustercheck.evidence.node import NodeEvidence
from clustercheck.model import Subject
from clustercheck.parse.reading import CannotReadError
from clustercheck.spec import NodeSpec

T = TypeVar("T")
N = TypeVar("N", int, float)
Traits = Mapping[str, str]
Kind = tuple[str, str, Optional[int]]
ALONE = "no other node of its kind is declared: nothing to compare with"


@dataclass(frozen=True)
class _NodeTraits:
    """What the nodes of one kind tell, and on how many of them each trait has which value."""

    by_node: Mapping[str, Traits]
    counts: Mapping[str, Counter[str]]


def is_alone(evidence: Evidence, subject: Subject) -> bool:
    """Whether no other node of its kind is declared."""
    node = str(subject.node)
    return all(name == node for name in evidence.once(_kinds)[_kind(evidence.declared[node])])


def equal_nodes(evidence: Evidence, node: str, read: Callable[[NodeEvidence], T]) -> Mapping[str, T]:
    """What is read of each node of its kind, by name; those that cannot be read are left out."""

    def make(evidence: Evidence) -> dict[str, T]:
        found = {}
        for name in evidence.once(_kinds)[_kind(evidence.declared[node])]:
            if name in evidence.nodes and not evidence.nodes[name].unreachable:
                with suppress(CannotReadError):
                    found[name] = read(evidence.nodes[name])
        return found

    return evidence.once(make, (read, _kind(evidence.declared[node])))


def equal_values(evidence: Evidence, node: str, read: Callable[[NodeEvidence], N]) -> Sequence[N]:
    """The same numbers in order, without the names."""
    key = "in order", read, _kind(evidence.declared[node])
    return evidence.once(lambda _: sorted(equal_nodes(evidence, node, read).values()), key)


def judge_alike(
    evidence: Evidence,
    subject: Subject,
    traits_of: Callable[[NodeEvidence], Traits],
    *,
    may_lack: Sequence[str] = (),
) -> Finding:
    """Every trait against equal nodes. More than half of them are right; else nobody can tell who is.

    A node that does not tell what most of its equals tell is not judged, except what it ``may_lack``.
    """
    node = str(subject.node)
    told = _told(evidence, _kind(evidence.declared[node]), traits_of)
    mine = told.by_node.get(node)
    if mine is None:
        mine = traits_of(evidence.nodes[node])  # raises why it tells nothing
    if is_alone(evidence, subject):
        return not_applicable(ALONE, evidence=dict(mine))
    if all(name == node for name in told.by_node):
        return not_run("no other node of its kind reports it: nothing to compare with")
    nodes = len(told.by_node)
    differences = [
        answer
        for trait in mine
        if (answer := _difference(trait, mine, told.counts[trait], nodes)) is not None
    ]
    if differences:
        because = "; ".join(answer for answer, _ in differences)
        expected = "; ".join(dict.fromkeys(value for _, value in differences))
        return failed(
            because, _joined(mine), expected, evidence={"nodes": {node: dict(mine), **told.by_node}}
        )
    usual = {trait for trait, counts in told.counts.items() if 2 * sum(counts.values()) > nodes - 1}
    if hidden := sorted(usual - {*mine, *may_lack}):
        return not_run(f"cannot read: this node does not report its {', '.join(hidden)}, equal nodes do")
    return passed(_joined(mine), f"as on {nodes - 1} equal node(s)", evidence=dict(mine))


def _difference(trait: str, mine: Traits, counts: Counter[str], nodes: int) -> tuple[str, str] | None:
    """What to say of a trait that differs, and what was expected; None where it is as it should be."""
    if len(counts) == 1:
        return None
    (value, count), own = counts.most_common(1)[0], mine[trait]
    if 2 * count > sum(counts.values()):
        return (
            None
            if own == value
            else (f"{trait} is {own}, and {value} on {count} of {nodes} equal nodes", value)
        )
    others = " and ".join(sorted(set(counts) - {own}))
    return (
        f"{trait} is {own} here and {others} on equal nodes: cannot determine which is intended",
        "one for all",
    )


def _told(evidence: Evidence, kind: Kind, traits_of: Callable[[NodeEvidence], Traits]) -> _NodeTraits:
    reader = traits_of.func if isinstance(traits_of, partial) else traits_of  # partial: over this evidence

    def make(evidence: Evidence) -> _NodeTraits:
        names = evidence.once(_kinds)[kind]
        told = {name: traits for name in names if (traits := _read(evidence, name, traits_of)) is not None}
        counts: dict[str, Counter[str]] = defaultdict(Counter)
        for traits in told.values():
            for trait, value in traits.items():
                counts[trait][value] += 1
        return _NodeTraits(told, counts)

    return evidence.once(make, (reader, kind))


def _kinds(evidence: Evidence) -> dict[Kind, list[str]]:
    """The nodes that are in, by kind."""
    found: dict[Kind, list[str]] = defaultdict(list)
    for spec in evidence.spec.nodes:
        if not spec.excluded:
            found[_kind(spec)].append(spec.name)
    return found


def _read(evidence: Evidence, name: str, traits_of: Callable[[NodeEvidence], Traits]) -> Traits | None:
    """None where it was not asked or does not answer, too: its own result says so, not that of its equals."""
    try:
        return traits_of(evidence.nodes[name])
    except Exception:  # noqa: BLE001 - whatever is wrong with it
        return None


def _kind(spec: NodeSpec) -> Kind:
    return spec.profile, spec.gpu_model, spec.gpu_count


def _joined(traits: Traits) -> str:
    return ", ".join(f"{trait} {value}" for trait, value in traits.items())
