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

from ansible.module_utils import containerd_config
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.bounded import TIMED_OUT, run_bounded
from ansible.module_utils.masking import mask_urls
from ansible.module_utils.node_files import replace_file
from ansible.module_utils.registry_mirrors import (
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
from ansible.module_utils.service_unit import main_pid, newer, started_at

DOCUMENTATION = r"""
module: registry_mirrors
short_description: Have this host's engines pull from mirrors
description:
  - Writes hosts.toml for containerd (and for a Docker that reads it) and a drop-in of registries.conf.
  - Says what Docker's daemon.json is to have where the engine reads no hosts.toml.
  - What somebody else wrote is left alone and said; what we wrote and is no longer declared goes.
  - Sets containerd's config_path where it has none; containerd itself says whether it takes the file.
options:
  address: {description: The registry as images name it (host:port), type: str, required: true}
  ca: {description: File with the CA of the registry and its mirrors, type: path, required: true}
  mirrors:
    description: "Upstreams (`upstream`: docker.io) that a path of a registry (`url`) mirrors, in order"
    type: list
    elements: dict
    default: []
  fail_closed: {description: Ask no upstream whatever a mirror says of it, type: bool, default: false}
  engines:
    description: "Engines to configure: docker, containerd, containers (Podman, CRI-O, skopeo)"
    type: list
    elements: str
    default: [docker]
  docker_version: {description: Docker's version; empty where it is not there, type: str, default: ""}
  docker_reads_hosts_toml: {description: Whether Docker reads hosts.toml, type: bool, default: false}
  credentials: {description: A client's config.json whose users containerd pulls as, type: path, default: ""}
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
  registry_mirrors:
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

CONTAINERD = "containerd.service"
LOOK_S = 60


@dataclass(frozen=True)
class Wanted:
    """A file as it should be; with a secret in it, root's alone."""

    path: Path
    content: str

    @property
    def mode(self) -> int:
        """Who may read it."""
        return 0o600 if "authorization = " in self.content else 0o644

    def is_there(self) -> bool:
        """Whether the file has this content, and is no more readable than it may be."""
        if read(self.path) != self.content:
            return False
        return self.mode == 0o644 or stat.S_IMODE(self.path.stat().st_mode) == self.mode


def read(path: Path) -> str:
    """The file's text, "" when there is none."""
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def wanted_files(options: dict[str, Any], containerd_trees: list[str]) -> list[Wanted]:
    """Every file of mirrors, with its content. Raises ValueError for a mirror that is none."""
    by_upstream = read_mirrors(options["mirrors"], fail_closed=options["fail_closed"])
    credentials = credentials_of(read(Path(options["credentials"]))) if options["credentials"] else {}
    address, ca = options["address"], options["ca"]
    docker = Path(options["docker_certs"])
    files = []
    trees = {Path(tree) for tree in containerd_trees}
    if "docker" in options["engines"] and options["docker_reads_hosts_toml"]:
        trees.add(docker)
    for tree in sorted(trees):
        # Docker brings its own client's users to the registry itself, and finds its CA beside the file.
        if tree != docker and address:
            files.append(Wanted(tree / address / "hosts.toml", own_hosts_toml(address, ca, credentials)))
        for upstream, mirrors in by_upstream.items():
            if upstream != address:
                text = hosts_toml(upstream, mirrors, ca, credentials)
                files.append(Wanted(tree / upstream / "hosts.toml", text))
        if options["fail_closed"] and address and by_upstream:
            text = own_hosts_toml(address, ca, credentials)
            files.append(Wanted(tree / ANY_OTHER / "hosts.toml", text))
    if "containers" in options["engines"] and by_upstream:
        files.append(Wanted(Path(options["registries_conf"]), registries_conf(by_upstream)))
    return files


def stale_files(options: dict[str, Any], containerd_trees: list[str], wanted: list[Wanted]) -> list[Path]:
    """Files that we wrote once, and that nothing declares any more."""
    trees = {Path(tree) for tree in [*containerd_trees, options["docker_certs"], options["containerd_tree"]]}
    ours = [path for tree in sorted(trees) for path in sorted(tree.glob("*/hosts.toml"))]
    ours.append(Path(options["registries_conf"]))
    kept = {file.path for file in wanted}
    return [path for path in ours if path not in kept and read(path).startswith(MARK)]


def former_mirrors(record: str, daemon_json: str, wanted: list[str]) -> list[str]:
    """What daemon.json has because we put it there, and is no longer declared."""
    try:
        written = json.loads(record)
        found = json.loads(daemon_json).get("registry-mirrors", [])
    except (ValueError, AttributeError):
        return []
    there = {str(url).rstrip("/") for url in found}
    return [url for url in written if url in there and url not in wanted]


class Containerd:
    """The containerd of this host, asked by its own program what its configuration means."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        self.path = Path(module.params["containerd_config"])
        self.program = module.get_bin_path("containerd")

    def trees(self, text: str | None = None) -> list[str]:
        """The directories of hosts.toml trees in force; of ``text``, did it stand in the file.

        Raises ValueError with containerd's own words where it does not take the configuration.
        """
        path, temporary = self.path, None
        if text is not None:
            temporary = path.with_name(f".{path.name}.clusterctl")
            replace_file(temporary, text, 0o600)
            path = temporary
        try:
            rc, out, err = run_bounded([str(self.program), "--config", str(path), "config", "dump"], LOOK_S)
        finally:
            if temporary:
                temporary.unlink(missing_ok=True)
        if rc != 0:
            said = "it did not answer" if rc == TIMED_OUT else (err.strip().splitlines() or ["no reason"])[-1]
            raise ValueError(f"containerd does not take {self.path}: {said}")
        return containerd_config.registry_trees(out)

    def with_trees(self) -> tuple[str, str]:
        """The configuration as it is, and as it is to be so that containerd reads hosts.toml.

        Raises ValueError where no change of one line would do.
        """
        before, tree = read(self.path), self.module.params["containerd_tree"]
        if old := containerd_config.in_the_way(before):
            raise ValueError(
                f"{self.path} has {' and '.join(old)}, beside which containerd takes no config_path; "
                "remove them and declare these registries as mirrors"
            )
        version = containerd_config.format_version(before)
        if not before.strip():
            version = containerd_config.default_version(
                run_bounded([str(self.program), "--version"], LOOK_S)[1]
            )
        try:
            after = containerd_config.with_config_path(before, version, tree)
        except ValueError as error:
            raise ValueError(f"{self.path} cannot be set: {error}") from error
        return before, after

    def containers(self) -> int:
        """Containers that Docker runs with this containerd; its shims outlive a restart, Docker may not."""
        rc, out, _ = run_bounded(["docker", "ps", "--quiet"], LOOK_S)
        return len(out.split()) if rc == 0 else 0

    def restart(self) -> None:
        """Restart it, and fail with its journal where it does not come back."""
        rc, _, err = run_bounded(["systemctl", "restart", CONTAINERD], 600)
        if rc != 0:
            journal = run_bounded(
                ["journalctl", "-u", CONTAINERD, "-n", "20", "--no-pager", "-o", "cat"], LOOK_S
            )
            self.module.fail_json(
                msg=f"containerd did not start with the new {self.path}: {err.strip()}",
                stderr_lines=mask_urls(journal[1]).splitlines(),
            )


def have_trees(module: AnsibleModule, containerd: Containerd, result: dict[str, Any]) -> list[str]:
    """The directories of hosts.toml trees that containerd reads, or will once it is told of one."""
    if not containerd.program:
        if module.check_mode:
            return [module.params["containerd_tree"]]
        module.fail_json(msg="containerd is not on this host; take it out of registry_client_engines.")
    try:
        trees = containerd.trees()
        if trees:
            return trees
        before, after = containerd.with_trees()
        trees = containerd.trees(after)
    except ValueError as error:
        module.fail_json(msg=f"{error}.", clusterctl={"remedy": "mend containerd's configuration"})
    if not trees:
        module.fail_json(msg=f"containerd reads {containerd.path}, but shows no config_path from it.")
    result["files"].append(str(containerd.path))
    header = {"before_header": str(containerd.path), "after_header": str(containerd.path)}
    result["diff"].append({**header, "before": mask_urls(before), "after": mask_urls(after)})
    if not module.check_mode:
        if before:
            module.backup_local(str(containerd.path))
        replace_file(containerd.path, after)
    return trees


def have_read(module: AnsibleModule, containerd: Containerd, result: dict[str, Any]) -> None:
    """Have the running containerd know its configuration: it reads it only when it starts."""
    pid = main_pid(module, CONTAINERD)
    told = str(containerd.path) in result["files"]
    if not pid or not (told or newer([str(containerd.path)], started_at(pid))):
        return
    if (running := containerd.containers()) and not module.params["force_busy"]:
        why = f"containerd must restart to read {containerd.path}, and {running} container(s) run"
        result["clusterctl"] = {"busy": why}
        module.warn(f"{why}. It was left running; apply again when they are done.")
        return
    result["restarted"] = True
    if not module.check_mode:
        containerd.restart()


def put(module: AnsibleModule, wanted: list[Wanted], stale: list[Path], result: dict[str, Any]) -> None:
    """Bring the files to what is wanted; fills `result`."""
    for file in wanted:
        if file.is_there():
            continue
        before = read(file.path)
        if before and not before.startswith(MARK):
            result["left_alone"].append(str(file.path))
            module.warn(f"{file.path} is not ours and was left alone; what it should say is not in force.")
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
        result["diff"].append({**header, "before": mask_urls(without_secrets(read(path))), "after": ""})
        if not module.check_mode:
            path.unlink()
            if path.name == "hosts.toml" and not any(path.parent.iterdir()):
                path.parent.rmdir()


def main() -> None:
    """Ansible's entry."""
    module = AnsibleModule(
        argument_spec={
            "address": {"type": "str", "required": True},
            "ca": {"type": "path", "required": True},
            "mirrors": {"type": "list", "elements": "dict", "default": []},
            "fail_closed": {"type": "bool", "default": False},
            "engines": {"type": "list", "elements": "str", "default": ["docker"]},
            "docker_version": {"type": "str", "default": ""},
            "docker_reads_hosts_toml": {"type": "bool", "default": False},
            "credentials": {"type": "path", "default": ""},
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
        },
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
    former = former_mirrors(read(record), read(daemon_json), declared)
    containerd, trees = Containerd(module), []
    if "containerd" in options["engines"]:
        trees = have_trees(module, containerd, result)
    elif containerd.program and read(containerd.path):
        # A tree that somebody else declared; that our own mirrors stand in it does no harm.
        trees = containerd_config.registry_trees(read(containerd.path))
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
