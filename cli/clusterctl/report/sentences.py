"""Events of a validation as sentences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clusterctl.engine.messages import Message
from clusterctl.engine.wording import counted, elapsed, format_hosts
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
    """The name of an event's job for people."""
    name = str(event.get("job")).replace("_", "-")
    return JOBS.get(name, name)


def node_message(event: Mapping[str, Any]) -> Message | None:
    """A message on one node, without its name: equal ones of several nodes are printed as one."""
    kind = str(event.get("type"))
    if kind == "probe":
        if event.get("unreachable"):
            return Message(f"probe failed: {event['unreachable']}", bad=True)
        return Message("probed" + (f"; busy: {event['busy']}" if event.get("busy") else ""))
    messages = {
        "job_started": "started",
        "job_leftover_removed": f"removed leftover of an earlier run: {event.get('what')}",
        "job_removed": "container stopped and removed",
        "job_not_removed": "no answer; the container ends at its own time limit",
    }
    if kind not in messages:
        return None
    return Message(f"{job_name(event)}: {messages[kind]}", bad=kind == "job_not_removed")


def event_message(event: Mapping[str, Any]) -> Message | None:
    """A message on an event of several nodes; None if it is not worth one."""
    nodes = format_hosts(event.get("nodes") or ())
    job, text, bad = f"{job_name(event)}: ", "", False
    match event.get("type"):
        case "result":
            return _check_message(event)
        case "search":
            limit = elapsed(float(event["limit_s"]))
            text = f"fault isolation: up to {_cost(event)}, {limit}"
        case "search_finished":
            because = f"; {event['because']}" if event.get("because") else ""
            text = f"fault isolation: done, {_cost(event)}{because}"
        case "job_preparing":
            text = f"{job}preparing {nodes}"
        case "job_placed":
            text = f"{job}{event.get('method')}"
        case "job_stopping":
            text, bad = f"{job}{event.get('because_of')} failed; stopping {nodes}", True
        case "job_finished":
            text, bad = f"{job}{_ending(event)}", not event.get("good")
    return Message(text, bad=bad) if text else None


def incomplete_check(event: Mapping[str, Any]) -> str:
    """The id of a check that failed nowhere and did not run everywhere, else empty."""
    verdicts = event.get("verdicts") or {}
    return str(event.get("check")) if "not_run" in verdicts and "fail" not in verdicts else ""


def _check_message(event: Mapping[str, Any]) -> Message | None:
    """Only a failure is worth a line during the run; the table shows all results."""
    verdicts = event.get("verdicts") or {}
    if "fail" not in verdicts:
        return None
    bad = [f"{verdicts[word]} {WORDS[word]}" for word in ("fail", "not_run") if word in verdicts]
    return Message(f"{event.get('check')}: {', '.join(bad)}", bad=True)


def _cost(event: Mapping[str, Any]) -> str:
    """What fault isolation takes, or has taken."""
    launches = int(event["launches"])
    parts = [counted(int(event["rounds"]), "round"), counted(int(event["trials"]), "trial")]
    return ", ".join([*parts, f"{launches} launch{'' if launches == 1 else 'es'}"])


def _ending(event: Mapping[str, Any]) -> str:
    if event.get("good"):
        return "done"
    first = event.get("first_failure")
    if not first:
        return "failed; cannot determine which rank failed first"
    return f"rank {first['rank']} on {first['node']} {first['state']}: {first['because']}"
