"""How far a validation has come: folded from its events, and drawn in few lines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.text import Text

from clusterctl import console
from clusterctl.engine.picture import row
from clusterctl.engine.wording import counted, elapsed, names
from clusterctl.report.sentences import job_name


class Course:
    """Times are seconds since the epoch."""

    def __init__(self, began: float) -> None:
        self._began = self._since = began
        self._suite = ""
        self._nodes: list[str] = []
        self._looked_at: set[str] = set()
        self._unreachable: set[str] = set()
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
                    self._unreachable.add(node)
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
        """The whole in three lines: what this is, what runs now and since when, what is judged."""
        head = " · ".join(filter(None, ("validate", self._suite, counted(len(self._nodes), "node"))))
        lines = [
            row(Text(head, style="bold"), elapsed(now - self._began), columns),
            row(Text(f"  {console.printable(self._doing())}"), elapsed(now - self._since), columns),
        ]
        if self._unreachable:
            lines.append(
                Text(f"  {len(self._unreachable)} unreachable: {names(list(self._unreachable))}", "red")
            )
        failing = [check for check, failed in self._judged.items() if failed]
        judged = Text(f"  {len(self._judged)} of {self._checks} checks judged", style="dim")
        if failing:
            judged.append(f", failing: {', '.join(failing)}", style="red")
        return [*lines, judged] if self._checks else lines

    def doing(self, now: float) -> str:
        """What runs now, and for how long."""
        return f"{self._doing()} ({elapsed(now - self._since)})"

    def _doing(self) -> str:
        if self._job:
            return f"{self._job}: {self._of_job()} (at most {elapsed(self._job_limit_s)})"
        missing = [node for node in self._nodes if node not in self._looked_at]
        if missing:
            done = len(self._nodes) - len(missing)
            return f"looking at the nodes: {done} of {len(self._nodes)}, waiting for {names(missing)}"
        return "judging"

    def _of_job(self) -> str:
        of = len(self._job_nodes)
        if self._ended:
            waiting = [node for node in self._job_nodes if node not in self._ended]
            return f"{len(self._ended)} of {of} ended" + (
                f", waiting for {names(waiting)}" if waiting else ""
            )
        if len(self._started) < of:
            return f"{len(self._started)} of {of} nodes started"
        return f"runs on {counted(of, 'node')}"
