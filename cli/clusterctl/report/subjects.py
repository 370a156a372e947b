"""Nodes, GPUs and links by name, and many of them in few words."""

from __future__ import annotations

import re
from collections.abc import Sequence

from clustercheck.model import Culprit, Subject
from clustercheck.parse.plain_text import in_ranges

ALL_NODES = "all nodes"
MAX_NAMED_PAIRS = 6


def culprit_name(culprit: Culprit) -> str:
    """A culprit as a person names it: ``gpu02, GPU 3`` or ``link gpu01 - gpu02``."""
    if culprit.peer and culprit.scope == "rail":
        return ", ".join(filter(None, (culprit.node, culprit.peer)))
    if culprit.peer:
        return f"{culprit.scope} {culprit.node} - {culprit.peer}"
    return subject_name(Subject(culprit.node, culprit.gpu)) if culprit.node else ALL_NODES


def subject_name(subject: Subject) -> str:
    """A subject as a person names it; ``all nodes`` if it is the group."""
    if subject.node is None:
        return ALL_NODES
    node = subject.node if subject.gpu is None else f"{subject.node}, GPU {subject.gpu}"
    return node if subject.peer is None else f"{node} - {subject.peer}"


def subjects_name(subjects: Sequence[Subject]) -> str:
    """Several subjects in few words: ``gpu01-gpu04, GPU 0-7; gpu05, GPU 3``."""
    gpus: dict[str, list[int]] = {}
    nodes, pairs, others = [], [], []
    for subject in subjects:
        if subject.peer is not None:
            pairs.append((str(subject.node), subject.peer))
        elif subject.node is None:
            others.append(ALL_NODES)
        elif subject.gpu is not None:
            gpus.setdefault(subject.node, []).append(subject.gpu)
        else:
            nodes.append(subject.node)
    parts = [", ".join([*others, *_pairs_name(pairs), *([names_in_ranges(nodes)] if nodes else [])])]
    alike: dict[str, list[str]] = {}
    for node, numbers in gpus.items():
        alike.setdefault(in_ranges(numbers), []).append(node)
    parts += [f"{names_in_ranges(names)}, GPU {numbers}" for numbers, names in alike.items()]
    return "; ".join(part for part in parts if part)


def _pairs_name(pairs: Sequence[tuple[str, str]]) -> list[str]:
    """Pairs by name; many of them by what they share."""
    if len(pairs) <= MAX_NAMED_PAIRS:
        return [f"{node} - {peer}" for node, peer in pairs]
    shared = sorted(set(pairs[0]).intersection(*pairs[1:]))
    return [f"{shared[0]} with {len(pairs)} others"] if shared else [f"{len(pairs)} pairs"]


def names_in_ranges(names: Sequence[str]) -> str:
    """Names that count up as one: ``gpu01-gpu06, gpu08``."""
    runs: list[list[str]] = []
    for name in names:
        if runs and name == _next_name(runs[-1][-1]):
            runs[-1].append(name)
        else:
            runs.append([name])
    return ", ".join(", ".join(run) if len(run) < 3 else f"{run[0]}-{run[-1]}" for run in runs)


def _next_name(name: str) -> str | None:
    """``gpu10`` after ``gpu09``; None if a name does not end in a number."""
    number = re.search(r"[0-9]{1,9}\Z", name)
    return None if number is None else name[: number.start()] + str(int(number[0]) + 1).zfill(len(number[0]))
