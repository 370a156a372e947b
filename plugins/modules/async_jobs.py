#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What became of asynchronous jobs that an earlier run began on this host."""

from __future__ import annotations

import json
import time
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: async_jobs
short_description: Report, and wait for, asynchronous jobs of an earlier run
description:
  - Reads the result files that Ansible's asynchronous tasks leave, and looks whether their process lives.
  - Unlike M(ansible.builtin.async_status) it tells a job that runs from one that a reboot cut off.
  - Changes nothing.
options:
  ids: {description: Job ids that an earlier run journalled, type: list, elements: str, default: []}
  directory: {description: Where the result files are, type: path, required: true}
  wait_s: {description: Wait so long for running jobs to end, type: float, default: 0}
attributes: {check_mode: {support: full}}
author: [clusterctl]
"""

EXAMPLES = r"""
- name: Ask what became of a job
  async_jobs:
    ids: [j123456789012.4711]
    directory: /root/.clusterctl/async
"""

RETURN = r"""
jobs:
  description: Each named job, and each other one that still runs, with its state
  returned: always
  type: list
  elements: dict
  sample: [{id: j123456789012.4711, state: finished, failed: false, changed: true, msg: "", rc: 0}]
"""

LOOK_AGAIN_S = 0.5
KEPT_TEXT = 2000


def living_jobs(proc: Path = Path("/proc")) -> set[str]:
    """Beginnings of job ids (the part before the dot) that a process of this host carries as an argument."""
    found = set()
    for entry in proc.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            arguments = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue  # it has just ended
        if any(b"async_wrapper" in argument for argument in arguments[:4]):
            found.update(a.decode(errors="replace") for a in arguments if a[:1] == b"j" and a[1:].isdigit())
    return found


def outcome(job: str, directory: Path, living: set[str]) -> dict[str, object]:
    """One job: finished (with its result), running, lost (begun, no process, no result) or unknown."""
    try:
        data = json.loads((directory / job).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {"id": job, "state": "unknown"}
    except ValueError:
        data = {"started": True, "finished": False}
    if data.get("started") and not data.get("finished"):
        return {"id": job, "state": "running" if job.partition(".")[0] in living else "lost"}
    message = str(data.get("msg") or "")
    return {
        "id": job,
        "state": "finished",
        "failed": bool(data.get("failed")) or data.get("rc") not in (None, 0),
        "changed": bool(data.get("changed")),
        "rc": data.get("rc"),
        "msg": message[-KEPT_TEXT:],
    }


def look(ids: list[str], directory: Path, proc: Path = Path("/proc")) -> list[dict[str, object]]:
    """Every named job, and every other job of the directory that still runs."""
    living = living_jobs(proc)
    found = [outcome(job, directory, living) for job in ids]
    others = sorted(p.name for p in directory.glob("j*.*")) if directory.is_dir() else []
    unnamed = [outcome(name, directory, living) for name in others if name not in ids]
    return found + [job for job in unnamed if job["state"] == "running"]


def main() -> None:
    """Entry of the module."""
    module = AnsibleModule(
        argument_spec={
            "ids": {"type": "list", "elements": "str", "default": []},
            "directory": {"type": "path", "required": True},
            "wait_s": {"type": "float", "default": 0},
        },
        supports_check_mode=True,
    )
    directory = Path(module.params["directory"])
    deadline = time.monotonic() + module.params["wait_s"]
    jobs = look(module.params["ids"], directory)
    while any(job["state"] == "running" for job in jobs) and time.monotonic() < deadline:
        time.sleep(LOOK_AGAIN_S)
        jobs = look(module.params["ids"], directory)
    module.exit_json(changed=False, jobs=jobs, clusterctl={"facts": {"jobs": jobs}})


if __name__ == "__main__":
    main()
