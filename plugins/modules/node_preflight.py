#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE)
"""Ansible module: everything that may keep a node from becoming a GPU node, found in one look."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.clusterctl.cluster.plugins.module_utils.bounded import run_bounded
from ansible_collections.clusterctl.cluster.plugins.module_utils.driver_record import read_record
from ansible_collections.clusterctl.cluster.plugins.module_utils.gpu_busy import ask, gpu_users
from ansible_collections.clusterctl.cluster.plugins.module_utils.lease_file import LEASE, readable
from ansible_collections.clusterctl.cluster.plugins.module_utils.preflight_facts import collect
from ansible_collections.clusterctl.cluster.plugins.module_utils.preflight_judge import judge

DOCUMENTATION = r"""
module: node_preflight
short_description: Everything that may keep a node from becoming a GPU node
description:
  - Looks once, changes nothing, and returns all findings, each with a severity and a remedy.
  - Never fails for a finding.
options:
  gpu_count: {description: GPUs that the inventory expects; -1 where it does not say., type: int, default: -1}
  nvswitches:
    description: Whether NVSwitches are expected.
    type: str
    choices: [auto, "true", "false"]
    default: auto
  driver_branch: {description: Driver branch to be installed; empty for none., type: str, default: ""}
  driver_flavor: {description: Kind of kernel modules., type: str, default: open}
  needs_headers: {description: Whether DKMS will build a module., type: bool, default: true}
  dkms_added:
    description: Whether the driver's role adds a repository that has dkms.
    type: bool
    default: false
  enroll_key:
    description: Whether the enrolment of DKMS's key is to be requested.
    type: bool
    default: false
  existing:
    description: What to do about other drivers.
    type: str
    choices: [refuse, adopt]
    default: refuse
  registry: {description: Whether the host is to be the registry's., type: bool, default: false}
  package_sources: {description: URLs that must answer., type: list, elements: str, default: []}
  dns_names: {description: Names that must resolve., type: list, elements: str, default: []}
  disks:
    description: Directories that want free space.
    type: list
    elements: path
    default: [/, /var, /var/lib/docker]
  min_free_gb: {description: Least free space in GB., type: float, default: 20}
  max_clock_skew_s: {description: Largest distance of the clocks in seconds., type: float, default: 15}
  controller_time: {description: The controller's time in seconds since 1970., type: float, required: true}
  sudo_error: {description: Why sudo failed where it did., type: str, default: ""}
  http_proxy: {description: Proxy for http., type: str, default: ""}
  https_proxy: {description: Proxy for https., type: str, default: ""}
  no_proxy: {description: Hosts reached without a proxy., type: str, default: ""}
  holders_ignored:
    description: Names of what holds GPUs and is no job, besides those that are known; globs are allowed.
    type: list
    elements: str
    default: []
  compat: {description: "The data of the role nvidia_driver, files/compat.yml.", type: dict, required: true}
author: [the clusterctl authors]
"""

EXAMPLES = r"""
- name: Look at the node
  clusterctl.cluster.node_preflight:
    gpu_count: 8
    controller_time: "{{ now().timestamp() }}"
    compat: "{{ compat }}"
"""

RETURN = r"""
clusterctl:
  description: >-
    C(findings), the grave ones first, each with the C(code) of the failure that it leads to if it is known
    (host.dns, host.disk-full, packages.not-offered or packages.source-down), and C(busy) where jobs run.
  type: dict
  returned: always
errors: {description: Errors among the findings in words., type: list, returned: always}
table: {description: All findings as lines of text., type: list, returned: always}
"""

ARGUMENTS: dict[str, Any] = {
    "gpu_count": {"type": "int", "default": -1},
    "nvswitches": {"type": "str", "choices": ["auto", "true", "false"], "default": "auto"},
    "driver_branch": {"type": "str", "default": ""},
    "driver_flavor": {"type": "str", "default": "open"},
    "needs_headers": {"type": "bool", "default": True},
    "dkms_added": {"type": "bool", "default": False},
    "enroll_key": {"type": "bool", "default": False},
    "existing": {"type": "str", "choices": ["refuse", "adopt"], "default": "refuse"},
    "registry": {"type": "bool", "default": False},
    "package_sources": {"type": "list", "elements": "str", "default": []},
    "dns_names": {"type": "list", "elements": "str", "default": []},
    "disks": {"type": "list", "elements": "path", "default": ["/", "/var", "/var/lib/docker"]},
    "min_free_gb": {"type": "float", "default": 20},
    "max_clock_skew_s": {"type": "float", "default": 15},
    "controller_time": {"type": "float", "required": True},
    "sudo_error": {"type": "str", "default": ""},
    "http_proxy": {"type": "str", "default": "", "no_log": True},
    "https_proxy": {"type": "str", "default": "", "no_log": True},
    "no_proxy": {"type": "str", "default": ""},
    "holders_ignored": {"type": "list", "elements": "str", "default": []},
    "compat": {"type": "dict", "required": True},
}
HOLDS = Path("var/lib/clusterctl/holds.json")


def our_holds(root: Path) -> set[str]:
    """Packages that other roles of clusterctl hold."""
    try:
        found = json.loads((root / HOLDS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return set()
    return {str(name) for name in found}


def sentences(findings: list[dict[str, str]], severity: str) -> list[str]:
    """Findings of one severity, each as: what, instead of what, what to do."""
    return [
        f"{f['subject']}: {f['found']} (expected: {f['expected']}); {f['remedy']}"
        for f in findings
        if f["severity"] == severity
    ]


def main() -> None:
    """Entry point."""
    module = AnsibleModule(ARGUMENTS, supports_check_mode=True)
    started = time.time()
    root = Path("/")

    def run(argv: list[str]) -> tuple[int, str, str]:
        return run_bounded(argv, 120, {"LC_ALL": "C"})

    facts = collect(root, run, module.params)
    facts["clock_skew_s"] = started - module.params["controller_time"]
    facts["record"] = read_record(root)
    facts["our_holds"] = our_holds(root)
    facts["busy"], holders = gpu_users(root, ask, module.params["holders_ignored"])
    facts["holders"] = [holder.name for holder in holders]
    today = time.strftime("%Y-%m-%d", time.gmtime(module.params["controller_time"]))
    findings = judge(facts, {**module.params, "today": today}, module.params["compat"])
    report: dict[str, Any] = {"findings": findings}
    if facts["busy"]:
        report["busy"] = "; ".join(facts["busy"])
    if lease := readable(Path(LEASE)):
        report["facts"] = {"lease": lease}
    module.exit_json(
        changed=False,
        clusterctl=report,
        errors=sentences(findings, "error"),
        table=[f"{f['severity']:<8}{f['subject']:<18}{f['found']} -> {f['remedy']}" for f in findings],
    )


if __name__ == "__main__":
    main()
