"""What keeps every container from starting, GPUs or not. For the checks container-*."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from clustercheck.checks.base import Finding, not_run
from clustercheck.parse.reading import first_line

# As docker's client says it: up to 28, from 29 on, and where the daemon goes away in between.
_SILENT = re.compile(
    "cannot connect to the docker daemon|failed to connect to the docker api|error during connect",
    re.IGNORECASE,
)
START = "See journalctl -u docker on the node, and start it: systemctl start docker"
BRING = "Pull the image: clusterctl apply --only images"
INSTALL = "clusterctl apply --only runtime"


def is_silent(message: str) -> bool:
    """Whether docker says that its daemon does not answer."""
    return _SILENT.search(message) is not None


def not_started(record: Mapping[str, Any]) -> Finding | None:
    """Not run, and what to do, where Docker or the image is not there; None where a container was started."""
    answer = first_line(str(record.get("stderr") or ""))
    if record.get("missing"):
        return not_run("docker is not installed", remedy=INSTALL)
    if is_silent(answer):
        return not_run(f"the Docker daemon does not answer: {answer.removeprefix('docker: ')}", remedy=START)
    if not record.get("skipped"):
        return None
    return not_run(str(record["skipped"]), remedy=START if record.get("timed_out") else BRING)
