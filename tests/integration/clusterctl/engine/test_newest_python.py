"""The newest Python that a controller may have, with what the lock installs there: a playbook runs.

From Python 3.12 on the lock has another ansible-core than before: the one that most sites will run.
`test_supported_versions.py` runs whole suites there, in `--slow`.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.support.pythons import NEWER, installed, newest

# What an operator's program does, in a Python that has no pytest. The tree is found as if installed.
PROGRAM = """
import json, sys
from pathlib import Path

tree, site = map(Path, sys.argv[1:3])
sys.path[:0] = [str(tree / part) for part in ("cli", "validation", "lab")]
from clusterctl.engine.events import as_line
from clusterctl.engine.playbook import PlaybookRequest, run_playbook

heard = []
request = PlaybookRequest(
    site / "book.yml", site / "hosts.yml", ("gpu01", "gpu02", "dead01"), site,
    extra_vars={"ansible_async_dir": str(site / "async"), "site": str(site), "token": "{{ canary }}"},
    diff=True,
)
outcome = run_playbook(request, lambda event, _ledger: heard.append(json.loads(as_line(event))))
failure = outcome.ledger.hosts["gpu02"].failure
print(json.dumps({
    "python": "%d.%d" % sys.version_info[:2],
    "states": {name: state.name for name, state in outcome.states.items()},
    "changed": outcome.ledger.hosts["gpu01"].changed,
    "failure": [failure.task, failure.message],
    "heard": sorted({event["event"] for event in heard}),
}))
"""
EVENTS = [
    "diff", "host_started", "item", "job_finished", "job_started", "play_started", "result", "stats",
    "task_started",
]  # fmt: skip
BOOK = """\
- hosts: all
  gather_facts: false
  tasks:
    - name: Ask for the facts
      ansible.builtin.setup: {gather_subset: ["!all", min]}
    - name: Change something
      ansible.builtin.copy:
        content: "{{ token }}"
        dest: "{{ site }}/{{ inventory_hostname }}"
        mode: "0600"
    - name: Do a module of ours
      clusterctl.cluster.async_jobs: {directory: "{{ site }}/async"}
      when: inventory_hostname == 'gpu01'
    - name: Do a job in the background
      ansible.builtin.command: {argv: ["true"]}
      async: 60
      poll: 0
      register: job
      changed_when: false
      when: inventory_hostname == 'gpu01'
    - name: Wait for it
      ansible.builtin.async_status: {jid: "{{ job.ansible_job_id }}"}
      register: looked
      until: looked is finished
      changed_when: false
      retries: 600
      delay: 0.1
      when: inventory_hostname == 'gpu01'
    - name: Refuse an item on the second host
      ansible.builtin.command: {argv: [sh, -c, "echo broken $0 >&2; exit {{ item }}", "{{ item }}"]}
      changed_when: false
      loop: [0, 3]
      when: inventory_hostname == 'gpu02'
"""


@pytest.fixture
def python() -> Path:
    """The newest one, with what users install; as on a controller."""
    source = newest()
    if source is None:
        pytest.skip(f"there is no Python {' or '.join(NEWER)} here")
    return installed(source)


def test_a_playbook_runs_and_its_events_arrive(python: Path, local_site: Path, repository: Path) -> None:
    (local_site / "book.yml").write_text(BOOK)
    command: list[str | Path] = [python, "-P", "-c", PROGRAM, repository, local_site]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=150, check=False,
        env={**os.environ, "PATH": f"{python.parent}:{os.environ['PATH']}"},
    )  # fmt: skip
    log = local_site / "ansible.log"
    assert done.returncode == 0, done.stderr[-2000:] + (log.read_text() if log.exists() else "")
    told: dict[str, Any] = json.loads(done.stdout)
    assert told["python"] in NEWER
    assert told["states"] == {"gpu01": "GOOD", "gpu02": "FAILED", "dead01": "UNREACHABLE"}, log.read_text()
    assert told["heard"] == EVENTS
    assert told["changed"] == 1
    assert told["failure"][0] == "Refuse an item on the second host"
    assert told["failure"][1] == "3: the command ended with exit code 3: broken 3"
    assert (local_site / "gpu01").read_text() == "{{ canary }}"
    assert "callback plugin" not in log.read_text(), "Ansible's warning that it cannot use ours"
