"""Collects raw evidence: one probe per node, in parallel, each with a time limit."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

from clustercheck.evidence.node import NodeEvidence
from clustercheck.evidence.record import MAX_REASON, read_record
from clustercheck.evidence.shipment import shipment
from clustercheck.launch.bounded import CallEnd, run_all
from clustercheck.launch.transport import Completed, NodeTimeoutError, NodeUnreachableError, Transport
from clustercheck.parse.plain_text import one_line
from clustercheck.parse.reading import CannotReadError

GRACE_S = 10.0  # a transport with a limit of its own gets this much longer to report it
MAX_OBJECTS = 10  # lines that are JSON objects; others may come from what a login shell starts
PARTS_OF_STATUS = (
    "host",
    "nvidia_smi",
    "module",
    "fabric_manager",
    "toolkit",
    "docker",
    "containerd",
    "pci",
    "nics",
    "busy",
)

OnEvent = Callable[[Mapping[str, Any]], None]


def collect(
    nodes: Iterable[str],
    transport: Transport,
    *,
    options: Mapping[str, Any],
    limit_s: float,
    options_of: Mapping[str, Mapping[str, Any]] | None = None,
    on_event: OnEvent = lambda event: None,
    parallel: int = 64,
) -> dict[str, NodeEvidence]:
    """Evidence of every node named, in their order; one that does not answer says why.

    ``options`` are the probe's (see probe/program.py), ``options_of`` what is another on a node.
    Takes at most limit_s + 10 s for each ``parallel`` nodes, and what their logins wait for others'.
    """
    names, source = list(nodes), shipment("probe")
    argvs = {
        name: [
            "python3",
            "-I",
            "-",
            json.dumps({**options, **(options_of or {}).get(name, {})}, separators=(",", ":")),
        ]
        for name in names
    }

    def ask(name: str) -> Completed:
        asked[name] = time.time()
        return transport.run(name, argvs[name], stdin=source, timeout_s=limit_s)

    asked: dict[str, float] = {}
    calls = {name: partial(ask, name) for name in names}
    found: dict[str, NodeEvidence] = {}
    for ended in run_all(calls, limit_s=limit_s + GRACE_S, parallel=parallel):
        node, busy = _whether_busy(evidence_of(ended, limit_s))
        found[node.name] = replace(node, asked=(asked[node.name], time.time()))
        on_event({"type": "probe", "node": node.name, "unreachable": node.unreachable, "busy": busy})
    return {name: found[name] for name in names}


def _whether_busy(node: NodeEvidence) -> tuple[NodeEvidence, str]:
    """Asked of every record before it is used: what raises here would raise in the middle of a run."""
    try:
        node.read_parts()
        return node, node.busy()
    except Exception as error:  # noqa: BLE001 - a record of another shape is that node's fault alone
        because = one_line(f"the probe's record cannot be read: {type(error).__name__}: {error}", MAX_REASON)
        return NodeEvidence(node.name, unreachable=because), ""


def evidence_of(ended: CallEnd[Completed], limit_s: float) -> NodeEvidence:
    """A node's evidence from how its probe ended."""
    if ended.late or isinstance(ended.error, NodeTimeoutError):
        return NodeEvidence(ended.name, unreachable=f"the probe did not finish within {limit_s:g} s")
    if isinstance(ended.error, NodeUnreachableError):
        return NodeEvidence(ended.name, unreachable=one_line(ended.error.because, MAX_REASON))
    if ended.error is not None or ended.value is None:
        return NodeEvidence(
            ended.name, unreachable=one_line(f"the probe could not be run: {ended.error}", MAX_REASON)
        )
    return read_output(ended.name, ended.value)


def read_output(node: str, completed: Completed) -> NodeEvidence:
    """A node's evidence from what the probe printed: its last line that is a JSON object."""
    why = ""
    objects = (line for line in reversed(completed.stdout.splitlines()) if line.startswith("{"))
    for line in islice(objects, MAX_OBJECTS):
        try:
            record = read_record(line)
        except CannotReadError as error:
            why = str(error)
            break
        if "probe" in record:
            return NodeEvidence(node, record)
    errors = completed.stderr.strip().splitlines() if completed.exit_code or not why else []
    answer = (errors or [why or "nothing on standard error"])[-1]
    because = f"the probe ended with {completed.exit_code} and no record that can be read: {answer}"
    return NodeEvidence(node, unreachable=one_line(because, MAX_REASON))
