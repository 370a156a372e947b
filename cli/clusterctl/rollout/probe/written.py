"""What the callback wrote down while Ansible was at work, and whether all of it is there."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clusterctl.rollout.preflight import PLAYBOOK as PREFLIGHT_PLAYBOOK

TALLY = "ok"


@dataclass(frozen=True)
class Written:
    """``calls`` in order, and of each playbook that completed a tally: what it had to write down."""

    calls: Sequence[Mapping[str, Any]] = ()
    tallies: Sequence[Mapping[str, Any]] = ()

    def is_whole(self, ok: Mapping[str, int]) -> bool:
        """Whether nothing is missing of hosts of which so many tasks of the site succeeded.

        A call that Ansible lost on its way here is one that no look would ask again: a drift nobody sees.
        """
        found = Counter((one["part"], one["host"]) for one in self.calls)
        due = {(one["part"], host): number for one in self.tallies for host, number in one["told"].items()}
        waves = [one for one in self.tallies if one["playbook"] != PREFLIGHT_PLAYBOOK]
        ended = {host: sum(one[TALLY].get(host, 0) for one in waves) for host in ok}
        return ended == dict(ok) and all(found[key] == number for key, number in due.items())


def read(path: Path) -> Written:
    """All of the file; nothing where it is not there, or a line of it cannot be read."""
    try:
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError):
        return Written()
    return Written([line for line in lines if TALLY not in line], [line for line in lines if TALLY in line])
