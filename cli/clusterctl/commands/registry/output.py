"""How a plan, and what became of it, is told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from clusterctl import console
from clusterctl.engine.wording import counted
from clusterctl.registry.harbor.change import Action, ChangeOutcome, ChangeState, HarborChange, Remark, shown
from clusterctl.registry.harbor.reconcile import Applied, ReconcilePlan

SIGNS = {Action.CREATE: "+", Action.UPDATE: "~", Action.DELETE: "-"}
SAYS_NOTHING: tuple[object, ...] = (False, "", [], -1, "none", "never", "unlimited")


def show_plan(plan: ReconcilePlan) -> None:
    """Each change with what differs, then what a person should know."""
    for change in plan.changes:
        _write(f"{SIGNS[change.action]} {change.kind} {change.name}")
        for line in _lines(change):
            _write(f"    {line}")
    tell_remarks(plan.remarks)


def emit_plan(plan: ReconcilePlan) -> None:
    """The same for --json."""
    for change in plan.changes:
        console.emit(change.as_record())
    for remark in plan.remarks:
        console.emit(remark.as_record())


def tell_remarks(remarks: Sequence[Remark]) -> None:
    """On standard error, what blocks first."""
    for remark in sorted(remarks, key=lambda one: not one.blocks):
        word = "cannot be as declared: " if remark.blocks else ""
        console.say(f"{word}{remark.kind} {remark.name} {remark.why}")


def tell_outcome(outcome: ChangeOutcome) -> None:
    """One line when it is done, deferred, or has failed."""
    change = outcome.change
    done = {Action.CREATE: "created", Action.UPDATE: "changed", Action.DELETE: "deleted"}[change.action]
    word = done if outcome.state is ChangeState.DONE else outcome.state.value
    console.say(f"{word}: {change.kind} {change.name}" + (f": {outcome.why}" if outcome.why else ""))


def emit_outcome(outcome: ChangeOutcome) -> None:
    """The same for --json."""
    console.emit(outcome.as_record())


def each_outcome(*, as_json: bool) -> Callable[[ChangeOutcome], None]:
    """How an outcome is told as soon as it is there."""
    return emit_outcome if as_json else tell_outcome


def tell_end(applied: Applied, calls: int, *, nothing: str, as_json: bool) -> None:
    """What became of a plan, and what ended it early; ``nothing`` if there was nothing to do."""
    plan = applied.plan
    if as_json:
        for remark in plan.remarks:
            console.emit(remark.as_record())
        console.emit(summary(plan, applied.exit_code, calls, applied))
    else:
        console.write((result(applied) if plan.changes else nothing) + "\n")
    if applied.stopped is not None:
        console.explain(applied.stopped)


def sentence(plan: ReconcilePlan) -> str:
    """What a plan comes to."""
    if not plan.changes:
        blocked = sum(1 for one in plan.remarks if one.blocks)
        but = f", but {counted(blocked, 'object')} cannot be as declared" if blocked else ""
        return f"nothing to do{but}"
    parts = [
        f"{sum(1 for one in plan.changes if one.action is action)} to {action.value}"
        for action in Action
        if any(one.action is action for one in plan.changes)
    ]
    return f"{counted(len(plan.changes), 'object')}: {', '.join(parts)}"


def question(plan: ReconcilePlan, url: str) -> str:
    """What is asked before a plan is carried out."""
    deleted = sum(1 for one in plan.changes if one.action is Action.DELETE)
    but = f", and delete {counted(deleted, 'object')} there" if deleted else ""
    return f"Change Harbor at {url}{but}?"


def result(applied: Applied) -> str:
    """What became of it."""
    parts = [f"{applied.count(state)} {state.value}" for state in ChangeState if applied.count(state)]
    left = len(applied.plan.changes) - len(applied.outcomes)
    if left:
        parts.append(f"{left} not started")
    return ", ".join(parts)


def summary(plan: ReconcilePlan, code: int, calls: int, applied: Applied | None = None) -> dict[str, Any]:
    """The last line of --json."""
    record: dict[str, Any] = {"type": "summary", "changes": len(plan.changes)}
    if applied is not None:
        record |= {state.value: applied.count(state) for state in ChangeState}
        record["not_begun"] = len(plan.changes) - len(applied.outcomes)
    blocked = sum(1 for one in plan.remarks if one.blocks)
    return {**record, "blocked": blocked, "calls": calls, "exit": code}


def _lines(change: HarborChange) -> list[str]:
    if change.action is not Action.CREATE:
        return [one.as_text() for one in change.differences]
    return [f"{one.field}: {shown(one.after)}" for one in change.differences if one.after not in SAYS_NOTHING]


def _write(text: str) -> None:
    console.write(text + "\n")
