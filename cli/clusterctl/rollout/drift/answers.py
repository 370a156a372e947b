"""What a repeated call's answer means: pure, from results to reasons why a host needs Ansible."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from clustercheck.parse.plain_text import one_line
from clustercheck.parse.reading import CannotReadError
from clusterctl.cluster.untrusted import read_answer_as
from clusterctl.engine.module_report import ModuleReport
from clusterctl.rollout.drift.calls import PREFLIGHT, Call
from clusterctl.rollout.preflight import PreflightSeverity, findings_of

# The fields that tasks decide by, of Ansible's own modules, whose results also hold times and the like.
COMPARED: Mapping[str, tuple[str, ...]] = {
    "command": ("rc", "stdout"),
    "find": ("matched",),
    "uri": ("status",),
    "stat": ("stat",),
}
COMPARED_OF_STAT = ("exists", "isreg", "isdir", "islnk", "lnk_target")
# Differs from one moment to the next without any task's doing.
VOLATILE = frozenset({"containers_running"})


def pending_change(call: Call, result: Mapping[str, Any]) -> str:
    """Returns why Ansible must run on the host of this result; empty if it would change nothing."""
    if call.module == "command" and "rc" in result:
        return ""  # its task accepts some exit codes, and `fingerprint` compares the exit code
    if result.get("failed"):
        return one_line(str(result.get("msg") or "it failed"))
    if call.module == PREFLIGHT:
        return _preflight_problem(result)
    plan, about = _mapping(result.get("plan")), _mapping(result.get("clusterctl"))
    if any((result.get("changed"), result.get("wanted"), plan.get("transaction"), plan.get("activation"))):
        return "it would change something"
    if result.get("reboot_required"):
        return f"a reboot is needed: {one_line(str(result['reboot_required']))}"
    # A list names foreign files that are left as they are, next to which all is done.
    busy = result.get("left_alone") is True or about.get("busy")
    return "the host is busy" if busy else ""


def _mapping(value: Any) -> Mapping[str, Any]:
    """Returns a part of a node's answer, which may be anything; `fingerprint` compares it as it is."""
    return value if isinstance(value, Mapping) else {}


def _preflight_problem(result: Mapping[str, Any]) -> str:
    if "findings" not in _mapping(result.get("clusterctl")):
        return "it returned no findings"
    try:
        report = read_answer_as(ModuleReport, result["clusterctl"], "what preflight found")
        findings = findings_of("", report.findings)
    except CannotReadError as error:
        return str(error)
    if report.busy:
        return "the host is busy"
    if report.facts.get("lease"):
        return "another run holds the host"
    errors = [one for one in findings if one.severity is PreflightSeverity.ERROR]
    return f"preflight found an error: {errors[0].subject}" if errors else ""


def fingerprint(call: Call, result: Mapping[str, Any]) -> str:
    """Returns a digest of all that later tasks may have decided by: it must not change between applies."""
    if call.module == PREFLIGHT:
        return ""
    kept: Any = {key: result.get(key) for key in COMPARED.get(call.module, tuple(sorted(result)))}
    if call.module == "stat":
        kept = {key: _mapping(result.get("stat")).get(key) for key in COMPARED_OF_STAT}
    return hashlib.sha256(json.dumps(_without_volatile(kept), sort_keys=True).encode()).hexdigest()


def _without_volatile(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_volatile(part) for key, part in value.items() if key not in VOLATILE}
    return [_without_volatile(part) for part in value] if isinstance(value, list) else value
