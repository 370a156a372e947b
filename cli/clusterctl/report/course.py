"""How far a validation has come: folded from its events, and drawn in few lines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.text import Text

from clusterctl import console
from clusterctl.engine.status_view import row
from clusterctl.engine.wording import counted, elapsed, names
from clusterctl.report.sentences import job_name


class Course:
    """Times are seconds since the epoch."""

    def __init__(self, began: float) -> None:
        self._began = self._since = began
        self._suite = ""
        self._nodes: list[str] = []
        self._looked_at: set[str] = set()
        self._unreachable: list[str] = []
        self._checks = 0
        self._judged: dict[str, bool] = {}
        self._job = ""
        self._job_limit_s = 0.0
        self._job_nodes: list[str] = []
        self._started: set[str] = set()
        self._ended: set[str] = set()

    def take(self, event: Mapping[str, Any], at: float) -> None:
        """One more event."""
        node = str(event.get("node"))
        match event.get("type"):
            case "suite":
                self._suite, self._nodes = str(event["suite"]), list(event["nodes"])
                self._checks = len(event["checks"])
            case "probe":
                self._looked_at.add(node)
                if event.get("unreachable"):
                    self._unreachable.append(node)
            case "result":
                self._judged[str(event.get("check"))] = "fail" in (event.get("verdicts") or {})
            case "job":
                self._job, self._since = job_name(event), at
                self._job_nodes, self._job_limit_s = list(event["nodes"]), float(event["limit_s"])
                self._started, self._ended = set(), set()
            case "job_started":
                self._started.add(node)
            case "job_node_ended":
                self._ended.add(node)
            case "job_finished":
                self._job, self._since = "", at

    def picture(self, now: float, columns: int) -> list[Text]:
        """The whole in few lines: what this is, what runs now, since when and for whom, what is judged."""
        head = " · ".join(filter(None, ("validate", self._suite, counted(len(self._nodes), "node"))))
        lines = [
            row(Text(head, style="bold"), elapsed(now - self._began), columns),
            row(Text(f"  {console.printable(self._what())}"), elapsed(now - self._since), columns),
        ]
        if waiting := self._waiting_for():
            lines.append(Text(f"  waiting for {names(waiting)}{self._limit()}"))
        if self._unreachable:
            lines.append(
                Text(f"  {len(self._unreachable)} unreachable: {names(self._unreachable)}", style="red")
            )
        failing = [check for check, failed in self._judged.items() if failed]
        judged = Text(f"  {len(self._judged)} of {self._checks} checks judged", style="dim")
        if failing:
            judged.append(f", failing: {', '.join(failing)}", style="red")
        return [*lines, judged] if self._checks else lines

    def doing(self, now: float) -> str:
        """What runs now, for whom it waits, and for how long."""
        waiting = self._waiting_for()
        said = f"{self._what()}, waiting for {names(waiting)}" if waiting else self._what()
        return f"{said} ({elapsed(now - self._since)})"

    def _what(self) -> str:
        if self._job:
            done, word = (self._ended, "ended") if self._ended else (self._started, "started")
            return f"{self._job}: {len(done)} of {counted(len(self._job_nodes), 'node')} {word}"
        if self._waiting_for():
            return f"looking at the nodes: {len(self._looked_at)} of {len(self._nodes)}"
        return "judging"

    def _waiting_for(self) -> list[str]:
        nodes, done = (self._job_nodes, self._ended) if self._job else (self._nodes, self._looked_at)
        return [node for node in nodes if node not in done]

    def _limit(self) -> str:
        return f" (at most {elapsed(self._job_limit_s)})" if self._job else ""
