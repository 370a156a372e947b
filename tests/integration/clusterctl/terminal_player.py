"""Played in the place of Ansible by test_terminal.py: a seeded feed of events, at a pace that the test sets.

Called as `terminal_player.py -P -m ansible inventory|playbook ...`; FEED names the feed's description (JSON):
hosts, tasks, seed, failing (host -> message), unreachable, and hold: the task at which the feed waits when
half the hosts are done with it, of the site's playbook or with hold_preflight of the preflight's. While it
waits, the file `held` stands next to the description; it continues when there is `go`.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

REFUSED = "Failed to connect to the host via ssh: ssh: connect to host {host} port 22: Connection refused"


def main() -> int:
    if sys.argv[2] != "-m":  # a script of clusterctl's own, by its path
        os.execv(sys.executable, [sys.executable, *sys.argv[1:]])  # noqa: S606 - itself
    where = Path(os.environ["FEED"])
    feed = json.loads(where.read_text())
    if sys.argv[4] == "inventory":
        sys.stdout.write(json.dumps(inventory(feed["hosts"])))
        return 0
    hosts = Path(sys.argv[sys.argv.index("--limit") + 1].removeprefix("@")).read_text().split()
    playbook = Path(sys.argv[-1]).stem
    if playbook == "leases":
        return lend(hosts)
    return play(feed, hosts, preflight=playbook == "preflight", where=where.parent)


def inventory(hosts: list[str]) -> dict[str, object]:
    variables = {host: {"ansible_host": f"192.0.2.{number}"} for number, host in enumerate(hosts, 1)}
    return {
        "all": {"children": ["gpu_nodes"]},
        "gpu_nodes": {"hosts": hosts},
        "_meta": {"hostvars": variables},
    }


def say(event: str, **fields: object) -> None:
    line = json.dumps({"event": event, "at": time.time(), **fields}) + "\n"
    os.write(int(os.environ["CLUSTERCTL_EVENTS_FD"]), line.encode())


def lend(hosts: list[str]) -> int:
    """Every node is free to be taken, and to be released."""
    say("play_started", play="Leases", hosts=hosts)
    say("task_started", task_id="lease", task="Take or release", action="node_lease")
    for host in hosts:
        about = {"facts": {"lease": {"taken": True, "freed": True, "holder": None}}}
        say("result", host=host, task_id="lease", status="ok", clusterctl=about)
    say("stats", hosts={host: {**asdict(Host(host)), "skipped": 0} for host in hosts})
    return 0


@dataclass
class Host:
    """What became of one host."""

    name: str
    ok: int = 0
    changed: int = 0
    failures: int = 0
    unreachable: int = 0

    def take(self, feed: dict[str, Any], number: int, changes: bool) -> dict[str, object]:
        """Its result of the task with this number."""
        if number == 1 and self.name in feed.get("failing", {}):
            self.failures = 1
            return {"status": "failed", "msg": feed["failing"][self.name]}
        if number == 2 and self.name in feed.get("unreachable", ()):
            self.unreachable = 1
            return {"status": "unreachable", "msg": REFUSED.format(host=self.name)}
        self.ok += 1
        self.changed += changes
        return {"status": "changed" if changes else "ok"}

    @property
    def alive(self) -> bool:
        return not self.failures and not self.unreachable


def play(feed: dict[str, Any], names: list[str], *, preflight: bool, where: Path) -> int:
    chance = random.Random(f"{feed['seed']} {names[0]}")  # noqa: S311 - a feed that is the same each time
    hosts = [Host(name) for name in names]
    holds = feed.get("hold") if preflight is feed.get("hold_preflight", False) else None
    say("play_started", play="the play", hosts=names)
    for number in range(1 if preflight else feed["tasks"]):
        task, alive = f"t{number}", [host for host in hosts if host.alive]
        say("task_started", task_id=task, task=f"Install part {number} of what the site declares",
            role="nvidia_driver", action="ansible.builtin.apt",
            where=f"roles/nvidia_driver/tasks/main.yml:{number + 1}")  # fmt: skip
        for host in alive:
            say("host_started", host=host.name, task_id=task)
        for done, host in enumerate(chance.sample(alive, len(alive))):
            if number == holds and done == len(alive) // 2:
                hold(where)
            say("result", host=host.name, task_id=task, **host.take(feed, number, chance.random() < 0.5))
    counts = {host.name: {**asdict(host), "skipped": 0} for host in hosts}
    for one in counts.values():
        del one["name"]
    say("stats", hosts=counts)
    return 0 if all(host.alive for host in hosts) else 2


def hold(where: Path) -> None:
    (where / "held").touch()
    while not (where / "go").exists():
        time.sleep(0.02)


if __name__ == "__main__":
    sys.exit(main())
