# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The containerd of a host: what it reads, by its own word, and having it read more."""

from __future__ import annotations

from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.clusterctl.cluster.plugins.module_utils import containerd_config
from ansible_collections.clusterctl.cluster.plugins.module_utils.bounded import TIMED_OUT, run_bounded
from ansible_collections.clusterctl.cluster.plugins.module_utils.masking import mask_urls
from ansible_collections.clusterctl.cluster.plugins.module_utils.node_files import (
    keep_copy,
    read_file,
    replace_file,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.service_unit import (
    main_pid,
    newer,
    started_at,
)

CONTAINERD = "containerd.service"
LOOK_S = 60


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
        return containerd_config.registry_trees(self.dump(text))

    def dump(self, text: str | None = None) -> str:
        """The whole configuration in force; of ``text``, did it stand in the file.

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
            message = (
                "it did not answer" if rc == TIMED_OUT else (err.strip().splitlines() or ["no reason"])[-1]
            )
            raise ValueError(f"containerd does not take {self.path}: {message}")
        return out

    def format_version(self, text: str) -> int:
        """The format of its configuration; where it has none yet, that of the program."""
        return containerd_config.format_version(text) if text.strip() else self.own_format_version()

    def own_format_version(self) -> int:
        """The format that the program prefers."""
        return containerd_config.default_version(run_bounded([str(self.program), "--version"], LOOK_S)[1])

    def with_trees(self) -> tuple[str, str]:
        """The configuration as it is, and as it is to be so that containerd reads hosts.toml.

        Raises ValueError where no change of one line would do.
        """
        before, tree = read_file(self.path), self.module.params["containerd_tree"]
        if old := containerd_config.in_the_way(before):
            raise ValueError(
                f"{self.path} has {' and '.join(old)}, and containerd accepts no config_path with it; "
                "remove them and declare these registries as mirrors"
            )
        try:
            after = containerd_config.with_config_path(before, self.format_version(before), tree)
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
        _refuse_beside_a_kubelet(module, containerd)
        before, after = containerd.with_trees()
        trees = containerd.trees(after)
    except ValueError as error:
        module.fail_json(msg=f"{error}.", clusterctl={"remedy": "fix containerd's configuration"})
    if not trees:
        module.fail_json(msg=f"containerd reads {containerd.path}, but shows no config_path from it.")
    put_configuration(module, containerd, before, after, result)
    return trees


def _refuse_beside_a_kubelet(module: AnsibleModule, containerd: Containerd) -> None:
    """Ends the module: the containerd of a node of Kubernetes is configured by the means of that cluster."""
    if not module.params["kubelet"]:
        return
    version = containerd.format_version(read_file(containerd.path))
    plugin = containerd_config.PLUGINS.get(version, containerd_config.PLUGINS[2])
    line = f'config_path = "{module.params["containerd_tree"]}" below [plugins."{plugin}".registry]'
    module.fail_json(
        msg=f"{containerd.path} has no config_path, and the kubelet of this host uses containerd: it was "
        "neither changed nor restarted.",
        clusterctl={
            "remedy": f"set {line} with the means of that cluster, or take containerd out of "
            "registry_client_engines"
        },
    )


def changed_lines(before: str, after: str) -> tuple[str, str]:
    """The lines that go and those that come: others may have passwords, and are nobody's to read in a log."""
    old, new = before.splitlines(), after.splitlines()
    changes = [
        one for one in SequenceMatcher(None, old, new, autojunk=False).get_opcodes() if one[0] != "equal"
    ]
    return (
        "".join(f"{line}\n" for _, start, end, _, _ in changes for line in old[start:end]),
        "".join(f"{line}\n" for _, _, _, start, end in changes for line in new[start:end]),
    )


def put_configuration(
    module: AnsibleModule, containerd: Containerd, before: str, after: str, result: dict[str, Any]
) -> None:
    """Write a configuration that containerd has accepted, with a copy of the one before; fills `result`."""
    result["files"].append(str(containerd.path))
    header = {"before_header": str(containerd.path), "after_header": str(containerd.path)}
    lost, new = changed_lines(before, after)
    result["diff"].append({**header, "before": mask_urls(lost), "after": mask_urls(new)})
    if not module.check_mode:
        if before:
            keep_copy(containerd.path)
        replace_file(containerd.path, after)


def have_read(module: AnsibleModule, containerd: Containerd, result: dict[str, Any]) -> None:
    """Have the running containerd know its configuration: it reads it only when it starts."""
    pid = main_pid(module, CONTAINERD)
    told = str(containerd.path) in result["files"]
    if not pid or not (told or newer([str(containerd.path)], started_at(pid))):
        return
    if module.params.get("kubelet"):
        module.warn(
            f"containerd has not read {containerd.path} since it changed, and the kubelet of this host uses "
            "it. It was left running; restart it with the means of that cluster."
        )
        return
    if (running := containerd.containers()) and not module.params["force_busy"]:
        why = f"containerd must restart to read {containerd.path}, and {running} container(s) run"
        result["clusterctl"] = {"busy": why}
        module.warn(f"{why}. It was left running; apply again when they are done.")
        return
    result["restarted"] = True
    if not module.check_mode:
        containerd.restart()
