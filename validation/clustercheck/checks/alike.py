"""What should be the same on equal nodes: which one is the odd one out?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from clustercheck.checks.base import Finding, bad, excluded, good, unknown
from clustercheck.evidence import Evidence
from clustercheck.model import NodeSpec, Subject
from clustercheck.node_evidence import NodeEvidence
from clustercheck.parse.reading import CannotReadError

Traits = Mapping[str, str]
ALONE = "no other node of its kind is declared: there is nothing to compare with"


def equals(evidence: Evidence, node: str) -> list[str]:
    """The other nodes that are declared to be of the same kind, and are in."""
    kind = _kind(evidence.declared[node])
    return [
        each.name
        for each in evidence.spec.nodes
        if each.name != node and not each.excluded and _kind(each) == kind
    ]


def judge_alike(
    evidence: Evidence,
    subject: Subject,
    traits_of: Callable[[NodeEvidence], Traits],
    *,
    may_lack: Sequence[str] = (),
) -> Finding:
    """Every trait against equal nodes. More than half of them are right; else nobody can tell who is.

    A node that does not tell what its equals tell is not judged, but for what it ``may_lack``.
    """
    node = str(subject.node)
    mine = traits_of(evidence.nodes[node])
    others = equals(evidence, node)
    if not others:
        return excluded(ALONE, evidence=dict(mine))
    told = {name: traits for name in others if (traits := _told(evidence, name, traits_of)) is not None}
    if not told:
        return unknown("no other node of its kind told it: there is nothing to compare with")
    everywhere = [mine, *told.values()]
    differences = [
        said for trait in mine if (said := _difference(trait, mine, everywhere, len(told) + 1)) is not None
    ]
    if differences:
        because = "; ".join(said for said, _ in differences)
        expected = "; ".join(dict.fromkeys(value for _, value in differences))
        return bad(because, _joined(mine), expected, evidence={"nodes": {node: dict(mine), **told}})
    if hidden := sorted({trait for traits in told.values() for trait in traits} - {*mine, *may_lack}):
        return unknown(f"cannot read: this node does not tell its {', '.join(hidden)}, equal nodes do")
    return good(_joined(mine), f"as on {len(told)} equal node(s)", evidence=dict(mine))


def _difference(trait: str, mine: Traits, everywhere: list[Traits], nodes: int) -> tuple[str, str] | None:
    """What to say of a trait that differs, and what was expected; None where it is as it should be."""
    counts = Counter(traits[trait] for traits in everywhere if trait in traits)
    (value, count), own = counts.most_common(1)[0], mine[trait]
    if len(counts) == 1:
        return None
    if 2 * count > counts.total():
        return (
            None
            if own == value
            else (f"{trait} is {own}, and {value} on {count} of {nodes} equal nodes", value)
        )
    others = " and ".join(sorted(set(counts) - {own}))
    return f"{trait} is {own} here and {others} on equal nodes: cannot tell which is meant", "one for all"


def _told(evidence: Evidence, name: str, traits_of: Callable[[NodeEvidence], Traits]) -> Traits | None:
    reader = traits_of.func if isinstance(traits_of, partial) else traits_of  # partial: over this evidence
    if (reader, name) not in evidence.compared:
        evidence.compared[reader, name] = _read(evidence, name, traits_of)
    found: Traits | None = evidence.compared[reader, name]
    return found


def _read(evidence: Evidence, name: str, traits_of: Callable[[NodeEvidence], Traits]) -> Traits | None:
    if name not in evidence.reachable:
        return None
    try:
        return traits_of(evidence.nodes[name])
    except CannotReadError:
        return None


def _kind(spec: NodeSpec) -> tuple[str, str, int | None]:
    return spec.profile, spec.gpu_model, spec.gpu_count


def _joined(traits: Traits) -> str:
    return ", ".join(f"{trait} {value}" for trait, value in traits.items())
