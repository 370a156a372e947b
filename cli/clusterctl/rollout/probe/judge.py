"""What the answers of one look say: pure, from results to reasons why a host must go the whole road."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from clusterctl.rollout.probe.calls import PREFLIGHT, Call

# What later tasks may depend on, of Ansible's own modules, whose results also hold times and the like.
DEPENDED_ON: Mapping[str, tuple[str, ...]] = {
    "command": ("rc", "stdout"),
    "uri": ("status",),
    "stat": ("stat",),
}
OF_STAT = ("exists", "isreg", "isdir", "islnk", "lnk_target")
# Comes and goes without any task's doing.
VOLATILE = frozenset({"containers_running"})


def wanting(call: Call, result: Mapping[str, Any]) -> str:
    """Why this result is not that of a host on which nothing is to be done; empty where it is."""
    if call.module == "command" and "rc" in result:
        return ""  # its task says by exit code what is good, and `decisive` compares that
    if result.get("failed"):
        return str(result.get("msg") or "it failed")
    if call.module == PREFLIGHT:
        return _preflight(result)
    plan = result.get("plan") or {}
    if any((result.get("changed"), result.get("wanted"), plan.get("transaction"), plan.get("activation"))):
        return "it would change something"
    if result.get("reboot_required"):
        return f"a reboot is wanted: {result['reboot_required']}"
    # Others name what they left alone: files of somebody else, beside which all is done.
    busy = result.get("left_alone") is True or (result.get("clusterctl") or {}).get("busy")
    return "the host is busy" if busy else ""


def _preflight(result: Mapping[str, Any]) -> str:
    about = result.get("clusterctl")
    if not isinstance(about, Mapping):
        return "it gave no findings"
    if about.get("busy"):
        return "the host is busy"
    if (about.get("facts") or {}).get("lease"):
        return "somebody is changing the host"
    errors = [one for one in about.get("findings", []) if one.get("severity") not in ("info", "warning")]
    return f"preflight found an error: {errors[0].get('subject')}" if errors else ""


def decisive(call: Call, result: Mapping[str, Any]) -> str:
    """A digest of what later tasks may have decided by: it must be the same as after the last apply."""
    if call.module == PREFLIGHT:
        return ""
    kept: Any = {key: result.get(key) for key in DEPENDED_ON.get(call.module, tuple(sorted(result)))}
    if call.module == "stat":
        kept = {key: (result.get("stat") or {}).get(key) for key in OF_STAT}
    return hashlib.sha256(json.dumps(_steady(kept), sort_keys=True).encode()).hexdigest()


def _steady(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _steady(part) for key, part in value.items() if key not in VOLATILE}
    return [_steady(part) for part in value] if isinstance(value, list) else value
