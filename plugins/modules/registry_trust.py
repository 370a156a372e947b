#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A host's trust in a registry: its CA for the OS, Docker and containerd; mirrors by hosts.toml."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.masking import mask_urls
from ansible.module_utils.node_files import replace_file

DOCUMENTATION = r"""
module: registry_trust
short_description: Have the OS, Docker and containerd trust a registry
description:
  - Writes the CA into the OS's store and beside each engine's registry, and mirrors as hosts.toml.
  - No daemon has to restart for any of it. A hosts.toml that somebody else wrote is left alone and said.
options:
  name: {description: Name of the CA in the OS's store, type: str, required: true}
  ca_certificate: {description: The CA in PEM, type: str, required: true}
  address: {description: The registry as images name it (host:port), type: str, required: true}
  mirrors:
    description: "Upstreams (`upstream`: docker.io) that a path of a registry (`url`) mirrors"
    type: list
    elements: dict
    default: []
  hosts_toml_directories:
    description: Directories of hosts.toml trees that the engines on this host read
    type: list
    elements: path
    default: []
  containerd_config:
    description: containerd's configuration; its C(config_path) names further trees
    type: path
    default: /etc/containerd/config.toml
  docker_certs: {description: Docker's directory of CAs, type: path, default: /etc/docker/certs.d}
  os_store: {description: Where the OS reads more CAs, type: path, default: /usr/local/share/ca-certificates}
  os_bundle: {description: What the OS makes of them, type: path, default: /etc/ssl/certs/ca-certificates.crt}
author: ["the clusterctl authors"]
"""

EXAMPLES = r"""
- name: Trust the registry
  registry_trust:
    name: clusterctl-mysite
    ca_certificate: "{{ authority.ca_certificate }}"
    address: registry01:5000
"""

RETURN = r"""
files: {description: Files that changed, returned: always, type: list}
left_alone: {description: Files of somebody else that were to change, returned: always, type: list}
backups: {description: Copies of what somebody else put where our CA belongs, returned: always, type: list}
"""

MARK = "# Written by clusterctl.\n"
# Docker reads images of docker.io from this name.
UPSTREAM_SERVERS = {"docker.io": "https://registry-1.docker.io"}


@dataclass(frozen=True)
class Wanted:
    """A file as it should be."""

    path: Path
    content: str


def hosts_toml(address: str, ca: Path) -> str:
    """The tree's entry of the registry itself."""
    return (
        f'{MARK}server = "https://{address}"\n\n[host."https://{address}"]\n'
        f'  capabilities = ["pull", "resolve"]\n  ca = "{ca}"\n'
    )


def mirror_toml(upstream: str, url: str, ca: Path, *, fallback: bool) -> str:
    """The tree's entry of an upstream: `url`, then the upstream only as a fallback."""
    path = re.sub(r"^https?://[^/]+/?", "", url).strip("/")
    base = re.match(r"https?://[^/]+", url)
    host = f"{base.group()}/v2/{path}" if base and path else url.rstrip("/")
    server = UPSTREAM_SERVERS.get(upstream, f"https://{upstream}") if fallback else host
    override = "  override_path = true\n" if path else ""
    return (
        f'{MARK}server = "{server}"\n\n[host."{host}"]\n'
        f'  capabilities = ["pull", "resolve"]\n  ca = "{ca}"\n{override}'
    )


def wanted_files(options: dict[str, Any]) -> list[Wanted]:
    """Every file, with its content."""
    ca = options["ca_certificate"].strip() + "\n"
    store = Path(options["os_store"]) / f"{options['name']}.crt"
    files = [Wanted(store, ca), Wanted(Path(options["docker_certs"]) / options["address"] / "ca.crt", ca)]
    for tree in map(Path, options["hosts_toml_directories"]):
        if tree != Path(options["docker_certs"]):
            files.append(
                Wanted(tree / options["address"] / "hosts.toml", hosts_toml(options["address"], store))
            )
        for mirror in options["mirrors"]:
            text = mirror_toml(
                mirror["upstream"], mirror["url"], store, fallback=mirror.get("fallback", True)
            )
            files.append(Wanted(tree / mirror["upstream"] / "hosts.toml", text))
    return files


def containerd_trees(config: str) -> list[str]:
    """Directories that containerd's `config_path` names; it may name several, separated by colons."""
    found = re.findall(r"""^[ \t]*config_path[ \t]*=[ \t]*["']([^"']*)["']""", config, re.MULTILINE)
    return sorted({tree for value in found for tree in value.split(":") if tree.startswith("/")})


def read(path: Path) -> str:
    """The file's text, "" when there is none."""
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def is_foreign(wanted: Wanted, before: str) -> bool:
    """Whether somebody else wrote the hosts.toml that is there."""
    return wanted.path.name == "hosts.toml" and bool(before) and not before.startswith(MARK)


def is_theirs(wanted: Wanted, before: str, known: str) -> bool:
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
            "mirrors": {"type": "list", "elements": "dict", "default": []},
            "hosts_toml_directories": {"type": "list", "elements": "path", "default": []},
            "containerd_config": {"type": "path", "default": "/etc/containerd/config.toml"},
            "docker_certs": {"type": "path", "default": "/etc/docker/certs.d"},
            "os_store": {"type": "path", "default": "/usr/local/share/ca-certificates"},
            "os_bundle": {"type": "path", "default": "/etc/ssl/certs/ca-certificates.crt"},
        },
        supports_check_mode=True,
    )
    changed, left_alone, backups, diff = [], [], [], []
    known = read(Path(module.params["os_store"]) / f"{module.params['name']}.crt")
    trees = containerd_trees(read(Path(module.params["containerd_config"])))
    directories = sorted({*module.params["hosts_toml_directories"], *trees})
    for wanted in wanted_files({**module.params, "hosts_toml_directories": directories}):
        before = read(wanted.path)
        if before == wanted.content:
            continue
        if is_foreign(wanted, before):
            left_alone.append(str(wanted.path))
            module.warn(
                f"{wanted.path} is not ours and was left alone; the mirror that it should name is not used."
            )
            continue
        changed.append(str(wanted.path))
        header = {"before_header": str(wanted.path), "after_header": str(wanted.path)}
        diff.append({**header, "before": mask_urls(before), "after": mask_urls(wanted.content)})
        if not module.check_mode:
            if is_theirs(wanted, before, known):
                backups.append(module.backup_local(str(wanted.path)))
            replace_file(wanted.path, wanted.content, 0o644)
    stale = bundle_lacks(Path(module.params["os_bundle"]), module.params["ca_certificate"])
    if stale and not module.check_mode:
        program = module.get_bin_path("update-ca-certificates")
        if not program:
            module.fail_json(msg="update-ca-certificates is not on this host; install ca-certificates.")
        module.run_command([program], check_rc=True)
    module.exit_json(
        changed=bool(changed) or stale, files=changed, left_alone=left_alone, backups=backups, diff=diff
    )


if __name__ == "__main__":
    main()
