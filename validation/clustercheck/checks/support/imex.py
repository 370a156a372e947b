"""IMEX, for the check fabric-manager: running, ready, of the driver's version, and told of the same nodes.

From NVIDIA's documents: never seen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from clustercheck.checks.base import Finding, SeededFault, failed, not_applicable, passed
from clustercheck.checks.support import seeding
from clustercheck.checks.support.nvlink_fabric import version_in
from clustercheck.evidence.cluster import Evidence
from clustercheck.evidence.node import NVIDIA, NodeEvidence
from clustercheck.expect.votes import count_votes, find_majority
from clustercheck.model import Subject, Verdict
from clustercheck.parse.plain_text import some_of
from clustercheck.parse.reading import CannotReadError, first_line, program_output

INSTALL = "Install nvidia-imex of the driver's exact version: clusterctl apply --only driver"
START = "Read `journalctl -u nvidia-imex`, then start it: systemctl start nvidia-imex"
PEERS = (
    "See nvidia-imex-ctl -N for the node that is not connected, and TCP port 50000 between the nodes; then "
    "`journalctl -u nvidia-imex`."
)
READY = "READY"


def judge_imex(evidence: Evidence, node: NodeEvidence) -> Finding:
    """Without it the nodes of a rack cannot share memory of GPUs: NCCL fails, or leaves NVLink aside.

    Raises CannotReadError.
    """
    part = node.mapping("imex")
    unit, nodes = part.get("unit"), _nodes(node)
    if not isinstance(unit, Mapping) or not unit.get("ActiveState"):
        raise CannotReadError("the state of nvidia-imex.service is not known")
    if unit.get("LoadState") == "not-found":
        return failed("IMEX is not installed", "not installed", "installed", remedy=INSTALL)
    if not nodes:
        return not_applicable("nodes_config.cfg names no node: Slurm or Kubernetes start IMEX for a job")
    more = {"nodes": len(nodes), "unit": unit["ActiveState"]}
    version, driver = version_in(part.get("version"), "nvidia-imex --version"), node.module_version()
    if version != driver:
        because = f"IMEX is {version}, the driver {driver}"
        return failed(because, version, driver, evidence=more, remedy=INSTALL)
    if unit["ActiveState"] != "active":
        state = f"{unit['ActiveState']} ({unit.get('SubState', '')})"
        return failed(f"IMEX is {state}", state, "active", evidence=more, remedy=START)
    return _joined(evidence, node, part, nodes) or passed(version, driver, evidence=more)


def _joined(
    evidence: Evidence, node: NodeEvidence, part: Mapping[str, Any], nodes: tuple[str, ...]
) -> Finding | None:
    """Why it does not serve jobs, although it runs. Most nodes of its domain say which list is right; of two
    that differ nobody can tell: they are named as a pair.
    """
    state = first_line(program_output(part.get("state"), "nvidia-imex-ctl -q"))
    if state != READY:
        return failed(f"IMEX is {state[:40] or 'silent'}", state[:40], READY, remedy=PEERS)
    lists = {name: each for name, each in evidence.once(_lists).items() if set(each) & set(nodes)}
    usual = find_majority(count_votes(Counter([each]) for each in lists.values()))
    if usual == nodes:
        return None
    others = sorted(name for name, each in lists.items() if each != nodes and usual in (None, each))
    because = (
        f"nodes_config.cfg differs from that of {some_of(others, 4)}, which is of the same NVLink domain"
    )
    return failed(
        because if usual else f"{because}: cannot determine which is intended",
        f"{len(nodes)} nodes",
        "the same list on each of them",
        remedy="Set nvidia_driver_imex_nodes alike on all its nodes: clusterctl apply --only driver",
        between=others[0] if len(others) == 1 else "",
    )


def _lists(evidence: Evidence) -> dict[str, tuple[str, ...]]:
    """The nodes that IMEX of each node is told, where it is told any and that could be read."""
    found = {}
    for name in evidence.reachable:
        try:
            found[name] = _nodes(evidence.nodes[name])
        except CannotReadError:
            continue
    return found


def _nodes(node: NodeEvidence) -> tuple[str, ...]:
    nodes = node.mapping("imex").get("nodes")
    if not isinstance(nodes, list) or not all(isinstance(each, str) for each in nodes):
        raise CannotReadError("the nodes of nodes_config.cfg are not known")
    return tuple(nodes)


def of_rack(raw: seeding.Raw) -> None:
    """A tray of GB200, whose IMEX is told the sample's three nodes."""
    raw["pci"] = [device for device in raw["pci"] if not device["class"].startswith("0x0680")]
    for device in raw["pci"]:
        if device["vendor"] == NVIDIA:
            device["device"] = "0x2941"
    driver = raw["module"]["version"]
    raw["imex"] = {
        "unit": {"rc": 0, "LoadState": "loaded", "ActiveState": "active", "SubState": "running"},
        "version": _said(f"IMEX version is: {driver}\n"),
        "state": _said(f"{READY}\n"),
        "nodes": ["192.0.2.1", "192.0.2.2", "192.0.2.3"],
    }


def _said(stdout: str) -> dict[str, Any]:
    return {"argv": [], "rc": 0, "stdout": stdout, "stderr": "", "timed_out": False, "missing": False}


_RACK = seeding.chain(*(seeding.edit(f"gpu{number:02d}", of_rack) for number in (1, 2, 3)))


def _fault(name: str, change: Any, verdict: Verdict = Verdict.FAIL, node: str = "gpu02") -> SeededFault:
    return SeededFault(name, seeding.chain(_RACK, seeding.edit(node, change)), Subject(node), verdict)


FAULTS = (
    _fault("joined-by-imex", lambda raw: None, Verdict.PASS),
    _fault("imex-not-installed", lambda raw: raw["imex"]["unit"].update(LoadState="not-found")),
    _fault("imex-stopped", lambda raw: raw["imex"]["unit"].update(ActiveState="failed", SubState="failed")),
    _fault(
        "imex-version-skew", lambda raw: raw["imex"]["version"].update(stdout="IMEX version is: 580.65.06\n")
    ),
    _fault("imex-waiting-for-peers", lambda raw: raw["imex"]["state"].update(stdout="WAITING_FOR_PEERS\n")),
    _fault("imex-other-nodes", lambda raw: raw["imex"].update(nodes=["192.0.2.1", "192.0.2.2"])),
    SeededFault(
        "imex-other-nodes-on-another-node",
        seeding.chain(_RACK, seeding.edit("gpu01", lambda raw: raw["imex"].update(nodes=["192.0.2.1"]))),
        Subject("gpu02"),
        Verdict.PASS,
    ),
    _fault("imex-started-for-a-job", lambda raw: raw["imex"].update(nodes=[]), Verdict.EXCLUDED),
    _fault(
        "imex-version-unreadable", lambda raw: raw["imex"]["version"].update(stdout="?\n"), Verdict.NOT_RUN
    ),
    _fault("imex-not-told", lambda raw: raw["imex"].update(nodes=None), Verdict.NOT_RUN, node="gpu03"),
)
