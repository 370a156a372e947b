"""The state of a running validation: updated by its events, drawn in few lines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.text import Text

from clustercheck.parse.plain_text import plain_text
from clusterctl.engine.status_view import row
from clusterctl.engine.wording import counted, elapsed, names
from clusterctl.report.sentences import job_name


class ValidationProgressState:
    """What runs now, since when, and what is done. Times are seconds since the epoch."""

    def __init__(self, started: float) -> None:
        self._started = self._since = started
        self._suite = ""
        self._nodes: list[str] = []
        self._probed: set[str] = set()
        self._unreachable: list[str] = []
        self._checks = 0
        self._checked: dict[str, bool] = {}
        self._job = ""
        self._job_limit_s = 0.0
        self._job_nodes: list[str] = []
        self._nodes_started: set[str] = set()
        self._nodes_finished: set[str] = set()

    def update(self, event: Mapping[str, Any], at: float) -> None:
        """Record one event."""
        node = str(event.get("node"))
        match event.get("type"):
            case "suite":
                self._suite, self._nodes = str(event["suite"]), list(event["nodes"])
                self._checks = len(event["checks"])
            case "probe":
                self._probed.add(node)
                if event.get("unreachable"):
                    self._unreachable.append(node)
            case "result":
                self._checked[str(event.get("check"))] = "fail" in (event.get("verdicts") or {})
            case "job":
                self._job, self._since = job_name(event), at
                self._job_nodes, self._job_limit_s = list(event["nodes"]), float(event["limit_s"])
                self._nodes_started, self._nodes_finished = set(), set()
            case "job_started":
                self._nodes_started.add(node)
            case "job_node_ended":
                self._nodes_finished.add(node)
            case "job_finished":
                self._job, self._since = "", at

    def lines(self, now: float, columns: int) -> list[Text]:
        """Few lines: what runs now, since when, which nodes it waits for, how many checks are done."""
        head = " · ".join(filter(None, ("validate", self._suite, counted(len(self._nodes), "node"))))
        lines = [
            row(Text(head, style="bold"), elapsed(now - self._started), columns),
            row(Text(f"  {plain_text(self._activity())}"), elapsed(now - self._since), columns),
        ]
        if waiting := self._waiting_for():
            lines.append(Text(f"  waiting for {names(waiting)}{self._limit()}"))
        if self._unreachable:
            lines.append(
                Text(f"  {len(self._unreachable)} unreachable: {names(self._unreachable)}", style="red")
            )
        failing = [check for check, failed in self._checked.items() if failed]
        done = Text(f"  {len(self._checked)} of {counted(self._checks, 'check')} done", style="dim")
        if failing:
            done.append(f", failing: {', '.join(failing)}", style="red")
        return [*lines, done] if self._checks else lines

    def summary(self, now: float) -> str:
        """What runs now, which nodes it waits for, and for how long."""
        waiting = self._waiting_for()
        waits = f", waiting for {names(waiting)}" if waiting else ""
        return f"{self._activity()}{waits} ({elapsed(now - self._since)})"

    def _activity(self) -> str:
        if self._job:
            number, word = len(self._nodes_finished), "finished"
            if not number:
                number, word = len(self._nodes_started), "started"
            return f"{self._job}: {number} of {counted(len(self._job_nodes), 'node')} {word}"
        if self._waiting_for():
            return f"probing the nodes: {len(self._probed)} of {len(self._nodes)}"
        return "evaluating"

    def _waiting_for(self) -> list[str]:
        nodes, done = (self._job_nodes, self._nodes_finished) if self._job else (self._nodes, self._probed)
        return [node for node in nodes if node not in done]

    def _limit(self) -> str:
        return f" (up to {elapsed(self._job_limit_s)})" if self._job else ""
