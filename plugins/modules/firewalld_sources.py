#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE)
"""Ansible module: addresses and networks that firewalld accepts everything from, where firewalld runs."""

from __future__ import annotations

import json
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.clusterctl.cluster.plugins.module_utils.bounded import late, run_bounded
from ansible_collections.clusterctl.cluster.plugins.module_utils.gpu_node import read_text
from ansible_collections.clusterctl.cluster.plugins.module_utils.node_files import replace_file

DOCUMENTATION = r"""
module: firewalld_sources
short_description: Sources that firewalld trusts
description:
  - Binds the sources to firewalld's zone trusted, now and for later boots, without a reload, which would lose
    what others added to the running firewall.
  - Removes sources that an earlier run bound and that are declared no more. Others' stay.
  - Does nothing where firewalld does not run. Check mode is supported.
options:
  sources: {description: Addresses and networks., type: list, elements: str, required: true}
author: [the clusterctl authors]
"""

EXAMPLES = r"""
- name: Let the nodes of the cluster reach each other
  clusterctl.cluster.firewalld_sources:
    sources: [10.0.0.0/24]
"""

RETURN = r"""
added: {description: Sources that are newly trusted., type: list, returned: always}
removed: {description: Sources of ours that are not trusted any more., type: list, returned: always}
running: {description: Whether firewalld runs., type: bool, returned: always}
code:
  description: "Stable code of the failure: task.timed-out"
  returned: when the cause is known
  type: str
"""

ROOT = Path("/")
RECORD = "var/lib/clusterctl/firewalld_sources.json"
ZONE = "trusted"
LIMIT_S = 60
# The running firewall, and what a boot or a reload makes of it.
LAYERS: tuple[list[str], ...] = ([], ["--permanent"])


def ask(argv: list[str]) -> tuple[int, str, str]:
    """firewall-cmd's answer."""
    return run_bounded(["firewall-cmd", *argv], LIMIT_S, {"LC_ALL": "C"})


def zone_of(source: str, layer: list[str]) -> str:
    """The zone that a source is bound to; empty if to none."""
    code, output, _ = ask([*layer, f"--get-zone-of-source={source}"])
    return output.strip() if code == 0 else ""


def recorded(root: Path) -> list[str]:
    """Sources that an earlier run bound."""
    try:
        return [str(source) for source in json.loads(read_text(root / RECORD))]
    except ValueError:
        return []


def bind(module: AnsibleModule, verb: str, source: str) -> bool:
    """Adds or removes a source in both layers; whether that is a change. Ends the module if it fails."""
    changed = False
    for layer in LAYERS:
        zone = zone_of(source, layer)
        if zone == (ZONE if verb == "add" else ""):
            continue
        if zone not in ("", ZONE):
            module.warn(f"firewalld binds {source} to its zone {zone}: it stays there.")
            continue
        changed = True
        if module.check_mode:
            continue
        code, output, error = ask([*layer, f"--zone={ZONE}", f"--{verb}-source={source}"])
        if code != 0:
            module.fail_json(
                msg=f"firewalld does not {verb} the source {source}: {(error or output).strip()}. "
                "See that it is an address or a network (container_runtime_firewalld_sources).",
                **late(code),
            )
    return changed


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        {"sources": {"type": "list", "elements": "str", "required": True}}, supports_check_mode=True
    )
    running = ask(["--state"])[0] == 0
    if not running:
        module.exit_json(changed=False, added=[], removed=[], running=False)
    wanted, ours = module.params["sources"], recorded(ROOT)
    if not module.check_mode and set(wanted) - set(ours):
        # Before: what is bound and not on record would be taken for somebody else's.
        kept = [*ours, *(source for source in wanted if source not in ours and not zone_of(source, []))]
        replace_file(ROOT / RECORD, json.dumps(kept), 0o644)
        ours = kept
    added = [source for source in wanted if bind(module, "add", source)]
    gone = [source for source in ours if source not in wanted]
    removed = [source for source in gone if bind(module, "remove", source)]
    if not module.check_mode and gone:
        replace_file(ROOT / RECORD, json.dumps([source for source in ours if source in wanted]), 0o644)
    module.exit_json(changed=bool(added or removed), added=added, removed=removed, running=True)


if __name__ == "__main__":
    main()
