"""The environment section: what the cluster was made of when it was judged."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from clustercheck.evidence import comparison
from clustercheck.evidence.cluster import GPUS_IDLE, Evidence
from clustercheck.evidence.node import NodeEvidence
from clustercheck.launch.model import JobOutcome
from clustercheck.parse.bounded import cut
from clustercheck.parse.ipmi import parse_bmc_firmware
from clustercheck.parse.nccl_log import named_version
from clustercheck.parse.plain_text import one_line, shortened
from clustercheck.parse.reading import CannotReadError, is_number, program_output
from clustercheck.result.document import plain
from clustercheck.result.gc_pause import gc_paused

MAX_TEXT = 300
MAX_NODE = 32 * 1024  # characters; sixteen GPUs and as many adapters have a tenth of it
MAX_SAID = 1000
MAX_SHARED = 4  # nodes in one note
_VERSION = re.compile(r"\b(\d+\.\d+(?:\.\d+)*)\b")


def describe(evidence: Evidence, *, only: Sequence[str] = ()) -> dict[str, Any]:
    """Versions by node, the image, how the distributed jobs ran, and which checks ``only`` were asked for.

    All in the values that JSON knows.
    """
    with gc_paused():
        return _describe(evidence, only)


def _describe(evidence: Evidence, only: Sequence[str]) -> dict[str, Any]:
    described: dict[str, Any] = {
        "image": evidence.spec.image,
        "nodes": {
            name: {
                **cut(_node(evidence.nodes[name]), text=MAX_TEXT, characters=MAX_NODE),
                "job_environment": dict(evidence.spec.settings_of(name).environment),
            }
            for name in evidence.reachable
        },
        "excluded": {node.name: node.excluded for node in evidence.spec.nodes if node.excluded},
        "left_out": dict(evidence.left_out),
        "jobs": {name: _job(outcome) for name, outcome in evidence.jobs.items()},
        "only_checks": list(only),
        "notes": _notes(evidence, only),
        "baseline": None,
        "passes": evidence.passes,
        "backend": _first_said(evidence, "backend"),
        "framework": _first_said(evidence, "framework"),
        "nccl": _nccl(evidence),
    }
    described["baseline"] = comparison.described(evidence, described)
    return {name: plain(value) for name, value in described.items()}


def _first_said(evidence: Evidence, key: str) -> str | None:
    """Of the first job that says it: some need neither framework nor backend."""
    return next((answer for outcome in evidence.jobs.values() if (answer := _said(outcome, key))), None)


def _nccl(evidence: Evidence) -> str | None:
    """The version that the first log of NCCL names."""
    logs = (rank.nccl_log for outcome in evidence.jobs.values() for rank in outcome.ranks if rank.nccl_log)
    return next((version for log in logs if (version := named_version(log))), None)


def _shared(evidence: Evidence) -> list[str]:
    """Nodes that were measured although other jobs ran on them."""
    used = {node for outcome in evidence.jobs.values() for node in outcome.by_node}
    busy = {name: evidence.nodes[name].busy() for name in evidence.reachable if name in used}
    shared = [f"{name} ({one_line(why, MAX_TEXT)})" for name, why in busy.items() if why]
    more = [f"{len(shared) - MAX_SHARED} more nodes"] if len(shared) > MAX_SHARED else []
    if not shared:
        return []
    return [
        f"measured beside other jobs, which may have slowed it down: {', '.join(shared[:MAX_SHARED] + more)}"
    ]


def _notes(evidence: Evidence, only: Sequence[str]) -> list[str]:
    """What a reader of the verdict must know besides."""
    idle = sorted({node for job in evidence.jobs for node in evidence.gpus_idle(job)})
    silent = [name for name in evidence.reachable if evidence.nodes[name].simulated_by_module]
    notes = [f"only these checks were asked for: {', '.join(only)}"] if only else []
    notes += [GPUS_IDLE] if idle else []
    notes += _shared(evidence)
    if silent:
        names = ", ".join(silent)
        notes.append(f"nvidia-smi does not answer on {names}: its kernel module reports that it is simulated")
    if evidence.not_comparable:
        notes.append(f"compared with no baseline: {evidence.not_comparable}")
    seen_to = [
        f"{n.name} ({n.acknowledged:%Y-%m-%d %H:%M} UTC)" for n in evidence.spec.nodes if n.acknowledged
    ]
    if seen_to:
        notes.append(
            f"Xids, SXids, crashes and BMC events count since they were acknowledged: {', '.join(seen_to)}"
        )
    return notes + [exclusion.lapsed for exclusion in evidence.lapsed]


def _job(outcome: JobOutcome) -> dict[str, Any]:
    return {
        "good": outcome.good,
        "ranks": len(outcome.ranks),
        "duration_s": round(outcome.duration_s, 2),
        "backend": _said(outcome, "backend"),
        "interface": _said(outcome, "interface"),
        "facts": dict(outcome.facts),
    }


def _said(outcome: JobOutcome, key: str) -> str | None:
    told = [(rank.verdict or {}).get(key) for rank in outcome.ranks]
    lines = sorted({one_line(each, MAX_TEXT) for each in told if isinstance(each, str) and each})
    return shortened(", ".join(lines), MAX_SAID) or None


def _node(node: NodeEvidence) -> dict[str, Any]:
    return {
        "boot_id": _text(lambda: node.mapping("host").get("boot_id")),
        "kernel": _text(lambda: node.mapping("host").get("kernel")),
        "os": _text(lambda: node.mapping("host")["os"]["PRETTY_NAME"]),
        "driver": _text(node.module_version),
        "cuda": _text(lambda: node.smi().cuda_version),
        "fabric_manager": _text(lambda: _version(node.mapping("fabric_manager").get("version"))),
        "toolkit": _text(lambda: _version(node.part("toolkit"))),
        "bios": _text(lambda: node.mapping("firmware").get("bios_version")),
        "microcode": _text(lambda: node.mapping("firmware").get("microcode")),
        "bmc_firmware": _text(
            lambda: parse_bmc_firmware(
                program_output(node.mapping("bmc").get("controller"), "ipmitool mc info")
            )
        ),
        "adapter_firmware": _text(lambda: _firmware(node)),
        "docker": _text(lambda: node.docker_info()["ServerVersion"]),
        "containerd": _text(lambda: _version(node.part("containerd"))),
        "gpus": _known(
            lambda: [
                {"model": g.model, "serial": g.serial, "vbios": g.vbios, "address": g.address}
                for g in node.smi().gpus
            ]
        ),
        "nics": _known(
            lambda: [
                {name: _scalar(nic.get(name)) for name in ("name", "speed_mbps", "state", "default_route")}
                for nic in node.records("nics")
            ]
        ),
        "clock_synchronised": _known(lambda: _scalar(node.mapping("clock").get("synchronised"))),
        "busy": node.busy() or None,
        "simulated": node.simulated,
    }


def _firmware(node: NodeEvidence) -> str | None:
    """Each firmware of the node's RDMA adapters with the board that has it."""
    found = {f"{each.firmware} ({each.board})" for each in node.rdma() if each.firmware and each.board}
    return ", ".join(sorted(found)) or None


def _version(record: Any) -> str | None:
    match = _VERSION.search(program_output(record, "the program"))
    return match[1] if match else None


def _text(read: Callable[[], Any]) -> str | None:
    value = _known(read)
    return one_line(value, MAX_TEXT) if isinstance(value, str) else None


def _scalar(value: Any) -> Any:
    """The value where it is one that stands alone, else None."""
    return value if isinstance(value, (str, bool)) or is_number(value) else None


def _known(read: Callable[[], Any]) -> Any:
    """The value, or None where it cannot be read: this section describes, it does not judge."""
    try:
        return read()
    except (CannotReadError, ValueError, KeyError, TypeError):
        return None
