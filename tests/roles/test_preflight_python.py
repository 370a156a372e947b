"""A node whose Python runs no module of ours is refused with the name of its system, not with a traceback."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.support.tree import ROOT

from clusterctl.engine.event_reading import parse
from clusterctl.engine.events import TaskResult
from clusterctl.engine.failure import failure_of
from clusterctl.engine.playbook import playbook_environment

PLAY = """
- hosts: localhost
  gather_facts: false
  tasks:
    - ansible.builtin.include_role: {name: preflight}
"""


def test_an_old_python_is_refused_by_the_name_of_its_system(tmp_path: Path) -> None:
    facts = {"python_version": "3.8.10", "distribution": "Ubuntu", "distribution_version": "20.04"}
    (tmp_path / "play.yml").write_text(PLAY, encoding="utf-8")
    (tmp_path / "facts.json").write_text(json.dumps({"ansible_facts": facts}), encoding="utf-8")
    events = tmp_path / "events"
    with events.open("wb") as stream:
        environment = {**playbook_environment(ROOT), "CLUSTERCTL_EVENTS_FD": str(stream.fileno())}
        done = subprocess.run(
            [sys.executable, "-m", "ansible", "playbook", "-i", "localhost,", "-c", "local",
             "-e", f"@{tmp_path}/facts.json", str(tmp_path / "play.yml")],
            env={**environment, "ANSIBLE_INVENTORY_ENABLED": "host_list"}, pass_fds=(stream.fileno(),),
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
    said = next(line for line in (done.stdout + done.stderr).splitlines() if "is not supported" in line)
    assert "Ubuntu 20.04 is not supported: Python 3.8.10" in said
    assert "AlmaLinux 9; Debian 12, 13; RHEL 9; Rocky 9; Ubuntu 22.04, 24.04" in said
    failed = [one for one in map(parse, events.read_bytes().splitlines()) if isinstance(one, TaskResult)][-1]
    assert failure_of(failed, None).code == "host.python-too-old"
    assert "Traceback" not in done.stdout + done.stderr
