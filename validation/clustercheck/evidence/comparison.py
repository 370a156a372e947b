"""What of a baseline this cluster can be compared with: other hardware is compared with nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Optional

from clustercheck.evidence.cluster import Evidence
from clustercheck.expect.baseline import Baseline, BaselineGpu, BaselineNode
from clustercheck.expect.judge import BaselineValue
from clustercheck.expect.software import EnvironmentChange, software_changes, software_of
from clustercheck.model import Figure, Subject
from clustercheck.parse.nvidia_smi import plain_model
from clustercheck.parse.reading import CannotReadError

NOT_SET = "not set"
EMPTY = '""'  # a variable that is set, to nothing

Place = tuple[Optional[str], Optional[int]]  # a node, or a GPU of it


def unfit(evidence: Evidence, baseline: Baseline) -> str:
    """Why nothing of it may be compared with this cluster; empty where something may.

    Where nodes differ in whether they are simulated, each says so of itself alone: see `replaced`.
    """
    was = {node.simulated for node in baseline.nodes.values()} - {None} or {baseline.simulated}
    now = {evidence.nodes[name].simulated for name in evidence.reachable}
    if was == {True} and now == {False}:
        return f"{baseline.named} was on simulated hardware"
    if now == {True} and was == {False}:
        return f"this hardware is simulated, that of {baseline.named} was not"
    return ""


def before_of(evidence: Evidence, check: str) -> Callable[[Subject, Figure], BaselineValue | None]:
    """What a figure of the check was in the baseline, as far as its node and GPU are the same."""
    baseline = evidence.baseline
    if baseline is None:
        return lambda subject, figure: None
    others = evidence.replaced

    def before(subject: Subject, figure: Figure) -> BaselineValue | None:
        places = [(subject.node, None), (subject.node, subject.gpu), (subject.peer, None)]
        if any(place in others for place in places):
            return None
        return baseline.before(check, subject, figure)

    return before


def replaced(evidence: Evidence, baseline: Baseline) -> dict[Place, str]:
    """Nodes and GPUs that are not those of the baseline, each with why."""
    found: dict[Place, str] = {}
    for name in evidence.reachable:
        then = baseline.nodes.get(name)
        if then is not None:
            found.update(_simulated_once(evidence, baseline, name))
            found.update(_of_node(evidence, name, then))
    return found


def _simulated_once(evidence: Evidence, baseline: Baseline, name: str) -> Iterator[tuple[Place, str]]:
    """A node that is simulated now, or was, and not both. Older baselines say of no node which it was."""
    now, was = evidence.nodes[name].simulated, baseline.nodes[name].simulated
    if was is None:
        was = now if baseline.simulated and evidence.simulated else baseline.simulated
    if now != was:
        yield (name, None), f"{name} {'is' if now else 'was'} simulated hardware"


def _of_node(evidence: Evidence, name: str, then: BaselineNode) -> Iterator[tuple[Place, str]]:
    try:
        now = {gpu.address: gpu for gpu in evidence.nodes[name].smi().gpus}
        slots = evidence.slots(name)
    except CannotReadError:
        return  # what the node has is not known: then none of its GPUs is measured either
    for number, address in enumerate(slots):
        gpu, old = now.get(address), then.gpus.get(address, BaselineGpu())
        if gpu is None or not old.model:
            continue
        if plain_model(gpu.model) != plain_model(old.model):
            yield (name, None), f"{name} has GPUs of another model: {old.model} -> {gpu.model}"
        elif _is_another(gpu.serial, old.serial):
            because = f"{name} GPU {number} is another one: serial {old.serial} -> {gpu.serial}"
            yield (name, number), because


def _is_another(serial: str, then: str) -> bool:
    """Boards without a serial print N/A: then it is unknown."""
    return all(each and each != "N/A" for each in (serial, then)) and serial != then


def described(evidence: Evidence, environment: Mapping[str, Any]) -> dict[str, Any] | None:
    """The environment's section on the baseline; None if there is none.

    An upgrade is what a comparison is for: it is said, and compared all the same.
    """
    baseline = evidence.baseline
    if baseline is None:
        return None
    versions = software_changes(baseline.software, software_of(environment))
    changes = [*versions, *_variables(evidence, baseline)]
    return {
        "run": baseline.run,
        "finished": baseline.finished,
        "not_compared": list(dict.fromkeys(evidence.replaced.values())),
        "differs": [change.text for change in changes],
        "changed": [change.as_json() for change in changes],
    }


def _variables(evidence: Evidence, baseline: Baseline) -> Iterator[EnvironmentChange]:
    """Variables of the ranks that have another value in the settings than then, each with its nodes."""
    changed: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for name in evidence.reachable:
        then = baseline.nodes[name].environment if name in baseline.nodes else None
        if then is None:
            continue
        now = evidence.spec.settings_of(name).environment
        for variable in sorted({*then, *now}):
            before, after = then.get(variable, NOT_SET) or EMPTY, now.get(variable, NOT_SET) or EMPTY
            if before != after:
                changed[variable, before, after].append(name)
    for (variable, before, after), nodes in changed.items():
        everywhere = len(nodes) == len(evidence.reachable)
        yield EnvironmentChange(variable, before, after, tuple(nodes), everywhere)
