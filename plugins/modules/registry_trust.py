#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A host's trust in a registry: its CA for the OS and next to Docker's registries."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.clusterctl.cluster.plugins.module_utils.masking import mask_urls
from ansible_collections.clusterctl.cluster.plugins.module_utils.node_files import keep_copy, replace_file

DOCUMENTATION = r"""
module: registry_trust
short_description: Have the OS and Docker trust a registry
description:
  - Writes the CA into the OS's store and Docker's directory of CAs. No daemon has to restart for any of it.
options:
  name: {description: Name of the CA in the OS's store, type: str, required: true}
  ca_certificate: {description: The CA in PEM, type: str, required: true}
  address: {description: The registry as images name it (host:port), type: str, required: true}
  docker_certs: {description: Docker's directory of CAs, type: path, default: /etc/docker/certs.d}
  os_store: {description: Where the OS reads more CAs, type: path, default: /usr/local/share/ca-certificates}
  os_bundle: {description: What the OS makes of them, type: path, default: /etc/ssl/certs/ca-certificates.crt}
author: ["the clusterctl authors"]
"""

EXAMPLES = r"""
- name: Trust the registry
  clusterctl.cluster.registry_trust:
    name: clusterctl-mysite
    ca_certificate: "{{ authority.ca_certificate }}"
    address: registry01:5000
"""

RETURN = r"""
files: {description: Files that changed, returned: always, type: list}
backups: {description: Copies of what somebody else put where our CA belongs, returned: always, type: list}
"""


# What takes up what lies in a store; Debian's is the other.
PROGRAMS = {"/etc/pki/ca-trust/source/anchors": "update-ca-trust"}
DEBIANS = "update-ca-certificates"


@dataclass(frozen=True)
class TrustFile:
    """A file as it should be."""

    path: Path
    content: str


def wanted_files(options: dict[str, Any]) -> list[TrustFile]:
    """Every file, with its content."""
    ca = options["ca_certificate"].strip() + "\n"
    store = Path(options["os_store"]) / f"{options['name']}.crt"
    return [
        TrustFile(store, ca),
        TrustFile(Path(options["docker_certs"]) / options["address"] / "ca.crt", ca),
    ]


def read(path: Path) -> str:
    """The file's text, "" when there is none."""
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def is_theirs(wanted: TrustFile, before: str, known: str) -> bool:
    """Whether somebody else put the CA there that ours replaces; `known` is the one that we wrote last."""
    return wanted.path.name == "ca.crt" and before.strip() not in ("", known.strip())


def bundle_lacks(bundle: Path, ca: str) -> bool:
    """Whether the OS's bundle has not taken the CA up yet."""
    return "".join(ca.split()) not in "".join(read(bundle).split())


def main() -> None:
    """Ansible's entry."""
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "ca_certificate": {"type": "str", "required": True},
            "address": {"type": "str", "required": True},
            "docker_certs": {"type": "path", "default": "/etc/docker/certs.d"},
            "os_store": {"type": "path", "default": "/usr/local/share/ca-certificates"},
            "os_bundle": {"type": "path", "default": "/etc/ssl/certs/ca-certificates.crt"},
        },
        supports_check_mode=True,
    )
    changed, backups, diff = [], [], []
    known = read(Path(module.params["os_store"]) / f"{module.params['name']}.crt")
    for wanted in wanted_files(module.params):
        before = read(wanted.path)
        if before == wanted.content:
            continue
        changed.append(str(wanted.path))
        header = {"before_header": str(wanted.path), "after_header": str(wanted.path)}
        diff.append({**header, "before": mask_urls(before), "after": mask_urls(wanted.content)})
        if not module.check_mode:
            if is_theirs(wanted, before, known):
                backups.append(keep_copy(wanted.path))
            replace_file(wanted.path, wanted.content, 0o644)
    stale = bundle_lacks(Path(module.params["os_bundle"]), module.params["ca_certificate"])
    if stale and not module.check_mode:
        name = PROGRAMS.get(module.params["os_store"], DEBIANS)
        program = module.get_bin_path(name)
        if not program:
            module.fail_json(msg=f"{name} is not on this host; install ca-certificates.")
        module.run_command([program], check_rc=True)
    module.exit_json(changed=bool(changed) or stale, files=changed, backups=backups, diff=diff)


if __name__ == "__main__":
    main()
