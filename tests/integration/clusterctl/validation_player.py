"""A validation's events, shown by the real progress: `validation_player.py NODES BAD`; waits for a line.

Its time is played, too, so that a busy machine shows the same: the job starts at 20 s, and when all has come
that comes before that line it is 25 s.
"""

from __future__ import annotations

import sys

from clusterctl.report.progress import ValidationProgress


class Clock:
    """A clock that goes where it is put."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def main() -> None:
    clock = Clock()
    nodes = [f"gpu{n:03d}" for n in range(1, int(sys.argv[1]) + 1)]
    good = nodes[int(sys.argv[2]) :]
    with ValidationProgress(as_json=False, clock=clock) as progress:
        progress.show({"type": "suite", "suite": "quick", "nodes": nodes, "checks": ["driver", "all-reduce"]})
        for node in nodes:
            because = "" if node in good else f"connect to host {node} port 22: Connection refused"
            progress.show({"type": "probe", "node": node, "unreachable": because, "busy": ""})
        verdicts = {"pass": len(good), "not_run": len(nodes) - len(good)}
        progress.show({"type": "result", "check": "driver", "verdicts": verdicts})
        clock.now = 20.0
        progress.show({"type": "job", "job": "all_reduce", "nodes": good, "limit_s": 900})
        progress.show({"type": "job_preparing", "job": "all-reduce", "nodes": good})
        for node in good:
            progress.show({"type": "job_started", "job": "all-reduce", "node": node, "container": node})
        for node in good[1:]:
            progress.show({"type": "job_node_ended", "job": "all-reduce", "node": node, "exit_code": 0})
        clock.now = 25.0
        sys.stdin.readline()
        progress.show({"type": "job_node_ended", "job": "all-reduce", "node": good[0], "exit_code": 0})
        progress.show({"type": "job_finished", "job": "all-reduce", "good": True, "first_failure": None})


if __name__ == "__main__":
    main()
