#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""NVIDIA's runtime and CDI in the configuration of a containerd that no Docker and no kubelet uses."""

from __future__ import annotations

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.clusterctl.cluster.plugins.module_utils import containerd_config
from ansible_collections.clusterctl.cluster.plugins.module_utils.containerd_service import (
    Containerd,
    have_read,
    put_configuration,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.node_files import read_file

DOCUMENTATION = r"""
module: containerd_runtime
short_description: Register NVIDIA's runtime with containerd
description:
  - Adds the runtime nvidia to the CRI plugin, as C(nvidia-ctk runtime configure --runtime=containerd) does,
    and enables CDI devices. The default runtime stays.
  - Reads what is in force from containerd itself, and writes a file only after containerd has accepted it;
    what an operator wrote stays, comments and order included. Formats 2 and 3 of the configuration.
  - A configuration that only switches off the CRI plugin, as that of Docker's containerd.io does, gets it.
  - A runtime nvidia with another program is left alone and refused.
options:
  mode:
    description: hook registers the runtime; cdi enables CDI devices (from 1.7 on); auto does what it can.
    type: str
    choices: [auto, hook, cdi]
    default: auto
  binary: {description: Program of the runtime., type: path, default: /usr/bin/nvidia-container-runtime}
  planned:
    description: Version of the containerd that this play installs; check mode judges by it if none is there.
    type: str
    default: ""
  force_busy: {description: Restart containerd although Docker's containers run., type: bool, default: false}
  containerd_config: {description: Its configuration., type: path, default: /etc/containerd/config.toml}
author: ["the clusterctl authors"]
"""

EXAMPLES = r"""
- name: Register NVIDIA's runtime
  clusterctl.cluster.containerd_runtime:
    mode: auto
"""

RETURN = r"""
files: {description: Files that changed., returned: always, type: list}
restarted: {description: Whether containerd was restarted., returned: always, type: bool}
"""

NAME = "nvidia"
ARGUMENTS: dict[str, Any] = {
    "mode": {"type": "str", "choices": ["auto", "hook", "cdi"], "default": "auto"},
    "binary": {"type": "path", "default": "/usr/bin/nvidia-container-runtime"},
    "planned": {"type": "str", "default": ""},
    "force_busy": {"type": "bool", "default": False},
    "containerd_config": {"type": "path", "default": "/etc/containerd/config.toml"},
}


def lacks(dumped: str, mode: str, binary: str) -> tuple[bool, bool]:
    """Whether the runtime and CDI are missing of what the mode asks for.

    Raises ValueError for another program under the runtime's name, and for CDI that containerd does not know.
    """
    there, cdi = containerd_config.runtime_binary(dumped, NAME), containerd_config.cdi_state(dumped)
    if mode != "cdi" and there is not None and there != binary:
        raise ValueError(
            f"its runtime {NAME} has the program {there or 'of the default'}; remove that runtime, or set "
            "nvidia_container_toolkit_mode: cdi"
        )
    if mode == "cdi" and not cdi:
        raise ValueError(
            "it does not know CDI devices; install containerd 1.7 or newer, or set "
            "nvidia_container_toolkit_mode: auto"
        )
    return mode != "cdi" and there is None, mode != "hook" and cdi == "false"


def new_one_lacks(mode: str, version: str) -> bool:
    """Whether a containerd of this version, as its package brings it, lacks what the mode asks for.

    It has no runtime of NVIDIA's; it takes CDI devices by itself from 2.0 on, with the third format.
    """
    return mode != "cdi" or containerd_config.default_version(version) < 3


def configured(containerd: Containerd, mode: str, binary: str) -> tuple[str, str]:
    """The configuration as it is, and as it is to be.

    Raises ValueError where containerd does not take either, or would not do what was asked.
    """
    before = after = read_file(containerd.path)
    if containerd_config.only_disables_cri(before):
        after = containerd_config.with_cri(before, containerd.own_format_version())
    dumped = containerd.dump(after if after != before else None)
    runtime, cdi = lacks(dumped, mode, binary)
    if not runtime and not cdi:
        return before, after
    version = containerd.format_version(after)
    if runtime:
        after = containerd_config.with_runtime(after, version, NAME, binary, dumped)
    if cdi:
        after = containerd_config.with_cdi(after, version)
    dumped = containerd.dump(after)
    if any(lacks(dumped, mode, binary)) or containerd_config.runtime_binary(dumped, "runc") is None:
        raise ValueError(
            f"it does not show what {containerd.path} would have: is its CRI plugin in disabled_plugins?"
        )
    return before, after


def main() -> None:
    """Ansible's entry."""
    module = AnsibleModule(ARGUMENTS, supports_check_mode=True)
    result: dict[str, Any] = {"files": [], "diff": [], "restarted": False}
    containerd = Containerd(module)
    if not containerd.program:
        if module.check_mode:
            lacking = new_one_lacks(module.params["mode"], module.params["planned"])
            files = [module.params["containerd_config"]] if lacking else []
            module.exit_json(changed=bool(files), **{**result, "files": files})
        module.fail_json(
            msg="containerd is not on this host. Install it: container_runtime_engine: containerd."
        )
    try:
        before, after = configured(containerd, module.params["mode"], module.params["binary"])
    except ValueError as error:
        module.fail_json(
            msg=f"containerd cannot be configured for GPUs: {error}.",
            clusterctl={"remedy": "fix containerd's configuration"},
        )
    if after != before:
        put_configuration(module, containerd, before, after, result)
    have_read(module, containerd, result)
    module.exit_json(changed=bool(result["files"]) or result["restarted"], **result)


if __name__ == "__main__":
    main()
