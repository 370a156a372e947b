"""What nodes were seen to be: by `status` now, or by the newest validation that saw them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from clustercheck.parse.plain_text import one_line
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.errors import ExplainedError
from clusterctl.report import files
from clusterctl.runs.store import RunStore

MAX_TEXT = 100
_SYSTEM = re.compile(r"(?P<name>[A-Za-z]+)\b.*?(?P<release>[0-9]+(?:\.[0-9]+)?)")


@dataclass(frozen=True)
class NodeFacts:
    """Versions that a node reported, empty where it did not; ``seen_by`` says who saw them."""

    os: str = ""
    kernel: str = ""
    driver: str = ""
    fabric_manager: str = ""
    toolkit: str = ""
    docker: str = ""
    containerd: str = ""
    gpu_model: str = ""
    seen_by: str = ""


def system_of(pretty_name: str) -> str:
    """``Debian GNU/Linux 12 (bookworm)`` as ``debian 12``, ``Ubuntu 22.04.5 LTS`` as ``ubuntu 22.04``."""
    found = _SYSTEM.match(pretty_name.replace("Red Hat Enterprise Linux", "RHEL"))
    if found is None:
        return ""
    name, release = found["name"].lower(), found["release"]
    return f"{name} {release if name == 'ubuntu' else release.partition('.')[0]}"


def of_record(record: Mapping[str, Any], seen_by: str) -> NodeFacts:
    """The facts of a node's record: that of a result document, or of `status`."""
    gpus = record.get("gpus")
    first = gpus[0] if isinstance(gpus, list) and gpus and isinstance(gpus[0], Mapping) else {}
    return NodeFacts(
        os=system_of(_text(record, "os")),
        kernel=_text(record, "kernel"),
        driver=_text(record, "driver"),
        fabric_manager=_text(record, "fabric_manager"),
        toolkit=_text(record, "toolkit"),
        docker=_text(record, "docker"),
        containerd=_text(record, "containerd"),
        gpu_model=_text(first, "model"),
        seen_by=seen_by,
    )


def of_environment(environment: Mapping[str, Any], seen_by: str) -> dict[str, NodeFacts]:
    """The facts of all nodes in the environment of a result document."""
    nodes = environment.get("nodes")
    known = nodes.items() if isinstance(nodes, Mapping) else ()
    return {str(name): of_record(node, seen_by) for name, node in known if isinstance(node, Mapping)}


def recorded(directory: ClusterDirectory) -> dict[str, NodeFacts]:
    """What the newest readable validation recorded of each node that it saw; empty if there is none."""
    for run in reversed(files.judged(RunStore(directory).list())):
        if run.kind != "validate":
            continue
        try:
            document = files.load_json(run)
        except ExplainedError:
            continue
        environment = document.get("environment")
        if isinstance(environment, Mapping) and environment.get("nodes"):
            return of_environment(environment, f"validation {run.id}")
    return {}


def _text(record: Mapping[str, Any], name: str) -> str:
    """A fact in one printable line; nothing where it is no text."""
    value = record.get(name)
    text = one_line(value, MAX_TEXT) if isinstance(value, str) else ""
    return text if text.isascii() and text.isprintable() else ""
