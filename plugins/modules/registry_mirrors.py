#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One model of mirrors on this host, in the files of every engine that is named."""

from __future__ import annotations

import json
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.clusterctl.cluster.plugins.module_utils import containerd_config
from ansible_collections.clusterctl.cluster.plugins.module_utils.containerd_service import (
    Containerd,
    have_read,
    have_trees,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.masking import mask_urls
from ansible_collections.clusterctl.cluster.plugins.module_utils.node_files import read_file, replace_file
from ansible_collections.clusterctl.cluster.plugins.module_utils.registry_mirrors import (
    ANY_OTHER,
    MARK,
    credentials_of,
    daemon_mirrors,
    hosts_toml,
    own_hosts_toml,
    read_mirrors,
    registries_conf,
    unusable_by_daemon,
    without_secrets,
)

DOCUMENTATION = r"""
module: registry_mirrors
short_description: Have this host's engines pull from mirrors
description:
  - Writes hosts.toml for containerd (and for a Docker that reads it) and a drop-in of registries.conf.
  - Says what Docker's daemon.json is to have where the engine reads no hosts.toml.
  - What somebody else wrote is left alone and said; what we wrote and is no longer declared goes.
  - Sets containerd's config_path where it has none; containerd itself says whether it takes the file.
  - Neither changes nor restarts a containerd that a kubelet uses; trees that it reads already are filled.
options:
  address: {description: The registry as images name it (host:port), type: str, required: true}
  ca: {description: File with the CA of the registry and its mirrors, type: path, required: true}
  mirrors:
    description: Upstreams that a registry mirrors, in order.
    type: list
    elements: dict
    default: []
    suboptions:
      upstream: {description: "As images name it: docker.io", type: str, required: true}
      url: {description: The mirror; it may have a path, type: str, required: true}
      fallback: {description: Ask the upstream for what the mirror lacks, type: bool, default: true}
  fail_closed: {description: Ask no upstream whatever a mirror says of it, type: bool, default: false}
  engines:
    description: "Engines to configure: docker, containerd, containers (Podman, CRI-O, skopeo)"
    type: list
    elements: str
    default: [docker]
  docker_version: {description: Docker's version; empty where it is not there, type: str, default: ""}
  docker_reads_hosts_toml: {description: Whether Docker reads hosts.toml, type: bool, default: false}
  credentials: {description: A client's config.json whose users containerd pulls as, type: path, default: ""}
  kubelet: {description: Whether a kubelet uses this host's containerd, type: bool, default: false}
  force_busy: {description: Restart containerd although containers run, type: bool, default: false}
  docker_certs: {description: Docker's directory of CAs, type: path, default: /etc/docker/certs.d}
  daemon_json: {description: Docker's options, type: path, default: /etc/docker/daemon.json}
  containerd_config: {description: containerd's options, type: path, default: /etc/containerd/config.toml}
  containerd_tree:
    description: Directory of hosts.toml trees for a containerd that has none yet
    type: path
    default: /etc/containerd/certs.d
  registries_conf:
    description: The drop-in
    type: path
    default: /etc/containers/registries.conf.d/50-clusterctl.conf
  record: {description: What we had in daemon.json, type: path, default: /etc/clusterctl/mirrors.json}
author: ["the clusterctl authors"]
"""

EXAMPLES = r"""
- name: Pull Docker Hub's images from the cluster's registry
  clusterctl.cluster.registry_mirrors:
    address: harbor.lan
    ca: /usr/local/share/ca-certificates/clusterctl-mysite.crt
    mirrors: [{upstream: docker.io, url: https://harbor.lan/dockerhub, fallback: false}]
    engines: [docker, containerd]
"""

RETURN = r"""
files: {description: Files that changed or went, returned: always, type: list}
left_alone: {description: Files of somebody else that were to change, returned: always, type: list}
registry_mirrors: {description: What daemon.json is to have, returned: always, type: list}
former: {description: What daemon.json has of ours and is no longer declared, returned: always, type: list}
restarted: {description: Whether containerd was restarted, returned: always, type: bool}
"""


@dataclass(frozen=True)
class MirrorFile:
    """A file as it should be; with a secret in it, root's alone."""

    path: Path
    content: str

    @property
    def mode(self) -> int:
        """Who may read it."""
        return 0o600 if "authorization = " in self.content else 0o644

    def is_there(self) -> bool:
        """Whether the file has this content, and is no more readable than it may be."""
        if read_file(self.path) != self.content:
            return False
        return self.mode == 0o644 or stat.S_IMODE(self.path.stat().st_mode) == self.mode


def wanted_files(options: dict[str, Any], containerd_trees: list[str]) -> list[MirrorFile]:
    """Every file of mirrors, with its content. Raises ValueError for a mirror that is none."""
    by_upstream = read_mirrors(options["mirrors"], fail_closed=options["fail_closed"])
    credentials = credentials_of(read_file(Path(options["credentials"]))) if options["credentials"] else {}
    address, ca = options["address"], options["ca"]
    docker = Path(options["docker_certs"])
    files = []
    trees = {Path(tree) for tree in containerd_trees}
    if "docker" in options["engines"] and options["docker_reads_hosts_toml"]:
        trees.add(docker)
    for tree in sorted(trees):
        # Docker brings its own client's users to the registry itself, and finds its CA next to the file.
        if tree != docker and address:
            files.append(MirrorFile(tree / address / "hosts.toml", own_hosts_toml(address, ca, credentials)))
        for upstream, mirrors in by_upstream.items():
            if upstream != address:
                text = hosts_toml(upstream, mirrors, ca, credentials)
                files.append(MirrorFile(tree / upstream / "hosts.toml", text))
        if options["fail_closed"] and address and by_upstream:
            text = own_hosts_toml(address, ca, credentials)
            files.append(MirrorFile(tree / ANY_OTHER / "hosts.toml", text))
    if "containers" in options["engines"] and by_upstream:
        files.append(MirrorFile(Path(options["registries_conf"]), registries_conf(by_upstream)))
    return files


def stale_files(options: dict[str, Any], containerd_trees: list[str], wanted: list[MirrorFile]) -> list[Path]:
    """Files that we wrote once, and that nothing declares any more."""
    trees = {Path(tree) for tree in [*containerd_trees, options["docker_certs"], options["containerd_tree"]]}
    ours = [path for tree in sorted(trees) for path in sorted(tree.glob("*/hosts.toml"))]
    ours.append(Path(options["registries_conf"]))
    kept = {file.path for file in wanted}
    return [path for path in ours if path not in kept and read_file(path).startswith(MARK)]


def former_mirrors(record: str, daemon_json: str, wanted: list[str]) -> list[str]:
    """What daemon.json has because we put it there, and is no longer declared."""
    try:
        written = json.loads(record)
        found = json.loads(daemon_json).get("registry-mirrors", [])
    except (ValueError, AttributeError):
        return []
    there = {str(url).rstrip("/") for url in found}
    return [url for url in written if url in there and url not in wanted]


def put(module: AnsibleModule, wanted: list[MirrorFile], stale: list[Path], result: dict[str, Any]) -> None:
    """Bring the files to what is wanted; fills `result`."""
    for file in wanted:
        if file.is_there():
            continue
        before = read_file(file.path)
        if before and not before.startswith(MARK):
            result["left_alone"].append(str(file.path))
            module.warn(
                f"{file.path} is not ours and was not changed; the declared mirrors are not in force."
            )
            continue
        result["files"].append(str(file.path))
        header = {"before_header": str(file.path), "after_header": str(file.path)}
        shown = [mask_urls(without_secrets(text)) for text in (before, file.content)]
        result["diff"].append({**header, "before": shown[0], "after": shown[1]})
        if not module.check_mode:
            replace_file(file.path, file.content, file.mode)
    for path in stale:
        result["files"].append(str(path))
        header = {"before_header": str(path), "after_header": str(path)}
        result["diff"].append({**header, "before": mask_urls(without_secrets(read_file(path))), "after": ""})
        if not module.check_mode:
            path.unlink()
            if path.name == "hosts.toml" and not any(path.parent.iterdir()):
                path.parent.rmdir()


ARGUMENTS = {
    "address": {"type": "str", "required": True},
    "ca": {"type": "path", "required": True},
    "mirrors": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "upstream": {"type": "str", "required": True},
            "url": {"type": "str", "required": True},
            "fallback": {"type": "bool", "default": True},
        },
    },
    "fail_closed": {"type": "bool", "default": False},
    "engines": {"type": "list", "elements": "str", "default": ["docker"]},
    "docker_version": {"type": "str", "default": ""},
    "docker_reads_hosts_toml": {"type": "bool", "default": False},
    "credentials": {"type": "path", "default": ""},
    "kubelet": {"type": "bool", "default": False},
    "force_busy": {"type": "bool", "default": False},
    "docker_certs": {"type": "path", "default": "/etc/docker/certs.d"},
    "daemon_json": {"type": "path", "default": "/etc/docker/daemon.json"},
    "containerd_config": {"type": "path", "default": "/etc/containerd/config.toml"},
    "containerd_tree": {"type": "path", "default": "/etc/containerd/certs.d"},
    "registries_conf": {
        "type": "path",
        "default": "/etc/containers/registries.conf.d/50-clusterctl.conf",
    },
    "record": {"type": "path", "default": "/etc/clusterctl/mirrors.json"},
}


def main() -> None:
    """Ansible's entry."""
    module = AnsibleModule(
        argument_spec=ARGUMENTS,
        supports_check_mode=True,
    )
    options = module.params
    result: dict[str, Any] = {"files": [], "left_alone": [], "diff": [], "restarted": False}
    try:
        by_upstream = read_mirrors(options["mirrors"], fail_closed=options["fail_closed"])
    except ValueError as error:
        module.fail_json(msg=f"registry_client_mirrors: {error}.")
    by_daemon = "docker" in options["engines"] and not options["docker_reads_hosts_toml"] and by_upstream
    if by_daemon and options["docker_version"] and (reasons := unusable_by_daemon(by_upstream)):
        module.fail_json(
            msg=f"Docker {options['docker_version']} cannot use these mirrors: {'; '.join(reasons)}. Docker "
            "28 with the containerd image store can. Or name the registry in the image instead."
        )
    declared = daemon_mirrors(by_upstream) if by_daemon else []
    record, daemon_json = Path(options["record"]), Path(options["daemon_json"])
    former = former_mirrors(read_file(record), read_file(daemon_json), declared)
    containerd, trees = Containerd(module), []
    if "containerd" in options["engines"]:
        trees = have_trees(module, containerd, result)
    elif containerd.program and read_file(containerd.path):
        # A tree that somebody else declared; that our own mirrors stand in it does no harm.
        trees = containerd_config.registry_trees(read_file(containerd.path))
    wanted = wanted_files(options, trees)
    put(module, wanted, stale_files(options, trees, wanted), result)
    if "containerd" in options["engines"] and containerd.program:
        have_read(module, containerd, result)
    if not module.check_mode and (declared or former or record.exists()):
        replace_file(record, json.dumps([*declared, *former]) + "\n", 0o644)
    changed = bool(result["files"]) or result["restarted"]
    module.exit_json(changed=changed, registry_mirrors=declared, former=former, **result)


if __name__ == "__main__":
    main()
