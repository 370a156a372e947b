"""The requests that a launcher sends to `on_node.py`, one per action."""

from __future__ import annotations

import base64
import getpass
import hashlib
import hmac
import json
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from clustercheck.launch.agent import StartedContainer
from clustercheck.launch.model import JobSpec
from clustercheck.launch.on_node import JOBS_ROOT, OURS
from clustercheck.launch.placement import NodeReport, RankPlace


def name_container(run_id: str, spec: JobSpec, node: str, ranks: Sequence[RankPlace]) -> StartedContainer:
    """The container of a job on a node, before it exists."""
    name = f"{OURS}{run_id}-{spec.name}".replace("/", "-")
    directory = f"{JOBS_ROOT}/{run_id}/{spec.name}"
    return StartedContainer(node, name, directory, tuple(place.rank for place in ranks))


def make_prepare_request(
    spec: JobSpec,
    node: str,
    *,
    run_id: str,
    ended_runs: Sequence[str],
    address: str,
    framework: Mapping[str, Any] | None,
    pull_timeout_s: float,
) -> dict[str, Any]:
    """``framework`` is what is known of the image's framework from an earlier job."""
    image, container_arguments = spec.container_on(node)
    return {
        "action": "prepare",
        "run": run_id,
        "ended_runs": list(ended_runs),
        "image": image,
        "address": address,
        "framework": framework,
        "framework_name": spec.framework,
        "container_arguments": list(container_arguments),
        "pull_timeout_s": pull_timeout_s,
    }


def make_start_request(
    spec: JobSpec,
    report: NodeReport,
    ranks: Sequence[RankPlace],
    container: StartedContainer,
    *,
    run_id: str,
    files: Mapping[str, str],
    world: int,
) -> dict[str, Any]:
    """``files`` are the job's programs and arguments, as `encode_files` gives them, ``world`` how many ranks
    there are.
    """
    image, container_arguments = spec.container_on(report.node)
    job = {
        "program": Path(spec.program).stem,
        "timeout_s": spec.timeout_s,
        "alone": spec.alone,
        "ranks": [{"rank": place.rank, "environment": dict(place.environment)} for place in ranks],
    }
    own = {"job.json": _encode(json.dumps(job))}
    if spec.secret:
        (place,) = ranks
        own["keys.json"] = _encode(json.dumps(make_keys(spec.secret, place.rank, world)))
    return {
        "action": "start",
        "run": run_id,
        "job": spec.name,
        "name": container.container,
        "image": image,
        "timeout_s": spec.timeout_s,
        "framework_name": spec.framework,
        "memlock": report.memlock,
        "infiniband": report.infiniband,
        "container_arguments": list(container_arguments),
        "labels": {
            "clusterctl.run": run_id,
            "clusterctl.job": spec.name,
            "clusterctl.rank": ",".join(map(str, container.ranks)),
            "clusterctl.by": name_operator(),
        },
        "files": {**files, **own},
    }


def make_wait_request(spec: JobSpec, started: StartedContainer, timeout_s: float) -> dict[str, Any]:
    """Wait for a container at most ``timeout_s``."""
    return {
        "action": "wait",
        "container": started.container,
        "directory": started.directory,
        "ranks": list(started.ranks),
        "timeout_s": timeout_s,
        "nccl_log": spec.nccl_log,
    }


def encode_files(spec: JobSpec, jobs: Path) -> dict[str, str]:
    """The programs for ranks and the job's arguments, in base64 by relative path."""
    sources = [path for path in sorted(jobs.rglob("*.py")) if path != jobs / "__init__.py"]
    files = {path.relative_to(jobs).as_posix(): _encode(path.read_text(encoding="utf-8")) for path in sources}
    return files | {"arguments.json": _encode(json.dumps(dict(spec.arguments)))}


def make_keys(secret: str, rank: int, world: int) -> dict[str, str]:
    """By each other rank, as text: the key that it and this rank alone have of each other, in hex."""
    pairs = {other: f"{min(rank, other)} {max(rank, other)}" for other in range(world) if other != rank}
    return {
        str(other): hmac.new(secret.encode(), pair.encode(), hashlib.sha256).hexdigest()[:32]
        for other, pair in pairs.items()
    }


def name_operator() -> str:
    """Who runs this and where, as ``user@host``: shown to whoever finds the node busy."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "someone"
    return f"{user}@{socket.gethostname()}"


def _encode(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
