"""Events of a validation as sentences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clusterctl.engine.messages import Message as Told
from clusterctl.engine.wording import counted, elapsed, listed
from clusterctl.report.view import WORDS

JOBS = {
    "all-reduce": "all-reduce across the nodes",
    "collectives": "the other collectives across the nodes",
    "pairs": "all-reduce, pair by pair",
    "data-parallel": "data-parallel training",
    "training-paddle": "training of real models with Paddle",
    "training-paddle-node": "training with Paddle on one node",
    "training-paddle-one": "training with Paddle on one GPU",
    "training-torch": "training of real models with PyTorch",
    "training-torch-node": "training with PyTorch on one node",
    "training-torch-one": "training with PyTorch on one GPU",
    "inference": "inference, request by request",
}


def job_name(event: Mapping[str, Any]) -> str:
    """The job that an event is of, as people call it."""
    name = str(event.get("job")).replace("_", "-")
    return JOBS.get(name, name)


def of_node(event: Mapping[str, Any]) -> Told | None:
    """What is so of one node, and may be told together with others; its name is left out."""
    kind = str(event.get("type"))
    if kind == "probe":
        if event.get("unreachable"):
            return Told(f"could not be looked at: {event['unreachable']}", bad=True)
        return Told("looked at" + (f"; busy: {event['busy']}" if event.get("busy") else ""))
    said = {
        "job_started": "started",
        "job_leftover_removed": f"removed what an earlier run had left: {event.get('what')}",
        "job_removed": "the container was ended and removed",
        "job_not_removed": "does not answer; the container ends by its own time limit",
    }
    return Told(f"{job_name(event)}: {said[kind]}", bad=kind == "job_not_removed") if kind in said else None


def of_event(event: Mapping[str, Any]) -> Told | None:
    """An event that is of no single node; nothing where a person need not hear of it."""
    nodes = listed(event.get("nodes") or ())
    job, said, bad = f"{job_name(event)}: ", "", False
    match event.get("type"):
        case "result":
            return _judged(event)
        case "search":
            limit = elapsed(float(event["limit_s"]))
            said = f"search for whom to blame: at most {_cost(event)}, {limit}"
        case "search_finished":
            because = f"; {event['because']}" if event.get("because") else ""
            said = f"search for whom to blame: done, {_cost(event)}{because}"
        case "job_preparing":
            said = f"{job}preparing {nodes}"
        case "job_placed":
            said = f"{job}{event.get('method')}"
        case "job_stopping":
            said, bad = f"{job}{event.get('because_of')} ended badly; stopping {nodes}", True
        case "job_finished":
            said, bad = f"{job}{_ending(event)}", not event.get("good")
    return Told(said, bad=bad) if said else None


def not_judged(event: Mapping[str, Any]) -> str:
    """The check of a result in which nothing failed and something did not run; such are told together."""
    verdicts = event.get("verdicts") or {}
    return str(event.get("check")) if "not_run" in verdicts and "fail" not in verdicts else ""


def _judged(event: Mapping[str, Any]) -> Told | None:
    """Only a failure is worth a line while it runs; the table has it all."""
    verdicts = event.get("verdicts") or {}
    if "fail" not in verdicts:
        return None
    bad = [f"{verdicts[word]} {WORDS[word]}" for word in ("fail", "not_run") if word in verdicts]
    return Told(f"{event.get('check')}: {', '.join(bad)}", bad=True)


def _cost(event: Mapping[str, Any]) -> str:
    """What a search takes, at most or in the end."""
    launches = int(event["launches"])
    said = [counted(int(event["rounds"]), "round"), counted(int(event["trials"]), "trial")]
    return ", ".join([*said, f"{launches} launch{'' if launches == 1 else 'es'}"])


def _ending(event: Mapping[str, Any]) -> str:
    if event.get("good"):
        return "done"
    first = event.get("first_failure")
    if not first:
        return "did not end well; which rank failed first cannot be told"
    return f"rank {first['rank']} on {first['node']} {first['state']}: {first['because']}"
