"""From what a search has measured to its verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from clustercheck.locate.case import Case
from clustercheck.locate.located import FEW, Located, Named
from clustercheck.locate.partners import LINK_MEASURES

TWO = "only two nodes were measured; either may be slow"
ALL_SLOW = "every pair is slow; any of the nodes may be the cause"
ALL_FAST = "every pair is fast; only the whole group is slow"
NOT_MEASURED = "no pair could be measured"
RIVALS = "the nodes form groups that are fast internally and slow with each other; check what connects them"


def conclude(case: Case, ended: str = "") -> Located:
    """Who is named. ``ended`` says what ended it before it had asked everything."""
    named = _named(case, ended)
    if ended:
        named = [
            n if n.sure or ended in n.because else replace(n, because=f"{n.because}; {ended}") for n in named
        ]
    return Located(tuple(named), ended or _nobody(case))


def _nobody(case: Case) -> str:
    measured = case.measured
    if case.found or measured.pairs(bad=True) or case.near():
        return ""
    return ALL_FAST if measured.pairs(bad=False) else NOT_MEASURED


def _named(case: Case, ended: str) -> list[Named]:
    nodes, measured = case.layout.nodes, case.measured
    if len(nodes) < 2 or (case.found and not case.core()):
        return case.found
    if not (measured.pairs(bad=True) or measured.pairs(bad=False)):
        return [Named("node", nodes, ended or NOT_MEASURED, sure=False)]
    if not case.core():
        return [Named("node", nodes, TWO if len(nodes) == 2 else ALL_SLOW, sure=False)]
    if case.has_rival():
        return [Named("switch", nodes, RIVALS, sure=False)]
    return [*case.found, *_of_nodes(case), *_of_links(case), *_of_switches(case), *_of_near(case)]


def _of_nodes(case: Case) -> list[Named]:
    found = []
    excused = {node for members in case.bad_blocks().values() for node in members}
    for component in case.outside():
        if excused.issuperset(component):
            continue
        if len(component) > 1:
            because = "fast with each other, slow with all others; check what they share"
            named = f"{_listed(component)}: {because}"
            found.append(Named("switch", tuple(component), named, sure=False))
        elif not case.is_decided(component):
            because = "not measured with two known-good nodes"
            found.append(Named("node", tuple(component), because, sure=False))
        else:
            found += case.parts.get(component[0]) or [_whole(case, component[0])]
    return list({named.place: named for named in found}.values())


def _listed(nodes: Sequence[str]) -> str:
    named = ", ".join(nodes[:FEW])
    return f"{named} and {len(nodes) - FEW} more" if len(nodes) > FEW else named


def _whole(case: Case, node: str) -> Named:
    slow = [trial for trial in case.measured.pairs(bad=True) if node in trial.nodes]
    partners = sorted({other for trial in slow for other in trial.nodes} - {node})
    return Named("node", (node,), f"slow with every partner ({', '.join(partners)})")


def _of_links(case: Case) -> list[Named]:
    """Slow pairs of the core. A node in several of them, fast with others, is no link and no slow node."""
    found = []
    links = case.links()
    near = set(case.near(but=links))
    ends = Counter(node for trial in links for node in trial.nodes)
    for node, count in sorted(ends.items()):
        if count > 1:
            because = f"slow with {count} nodes, fast with others: close to the limit, or {count} bad links"
            found.append(Named("node", (node,), because, sure=False))
    for trial in links:
        a, b = trial.pair
        if ends[a] > 1 or ends[b] > 1 or not near.isdisjoint(trial.nodes):
            continue
        because = f"only the pair {a} and {b} is slow; each is fast with others"
        if not case.blocks_meet(trial):
            because = f"the pair {a} and {b} is slow: their link, or the uplinks between their switches"
            found.append(Named("link", (a, b), because, sure=False))
            continue
        sure = case.measured.times(trial) >= LINK_MEASURES
        found.append(
            Named(
                "link", (a, b), because if sure else f"{because}; too few measurements to confirm", sure=sure
            )
        )
    return found


def _of_near(case: Case) -> list[Named]:
    """Nodes of which no pair is fast, and not every one slow: theirs may be the group's time."""
    because = "slower than most pairs with every node, but too close to the limit to decide"
    return [Named("node", (node,), because, sure=False) for node in case.near(but=case.links())]


def _of_switches(case: Case) -> list[Named]:
    found = []
    for block, members in case.bad_blocks().items():
        sure = all(
            case.is_decided(component)
            for component in case.outside()
            if not set(component).isdisjoint(members)
        )
        because = f"all {len(members)} nodes of the block are slow with nodes of other blocks"
        found.append(Named("switch", tuple(members), because, block=block, sure=sure))
    return found
