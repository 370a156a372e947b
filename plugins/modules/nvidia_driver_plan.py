#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE)
"""Ansible module: looks at a node once and says what its driver needs; changes nothing."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.clusterctl.cluster.plugins.module_utils import gpu_node
from ansible_collections.clusterctl.cluster.plugins.module_utils.apt_packages import explain, parse_madison
from ansible_collections.clusterctl.cluster.plugins.module_utils.apt_run import proxies_of, runner, update
from ansible_collections.clusterctl.cluster.plugins.module_utils.apt_view import (
    make_view,
    proxy_configuration,
    source_stanza,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.driver_dnf_plan import decide_by_dnf
from ansible_collections.clusterctl.cluster.plugins.module_utils.driver_facts import node_facts, request_of
from ansible_collections.clusterctl.cluster.plugins.module_utils.driver_plan import (
    Facts,
    Plan,
    driver_packages,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.driver_prebuilt import prebuilt_names
from ansible_collections.clusterctl.cluster.plugins.module_utils.gpu_busy import ask, busy_reasons
from ansible_collections.clusterctl.cluster.plugins.module_utils.masking import mask_urls, without_login
from ansible_collections.clusterctl.cluster.plugins.module_utils.nvidia_driver_planner import make_plan
from ansible_collections.clusterctl.cluster.plugins.module_utils.prebuilt_modules import (
    NAME,
    Builds,
    merge,
    parse_builds,
    parse_kernel_metapackages,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.rpm_database import has_rpm

DOCUMENTATION = r"""
module: nvidia_driver_plan
short_description: Looks at a node once and says what its NVIDIA driver needs
description:
  - Facts in, plan out. Reads dpkg and apt or rpm and dnf, sysfs and procfs; changes nothing, in check mode or
    out of it.
  - Versions that are not known yet are read from the source itself.
options:
  source:
    description: Where packages come from.
    type: str
    choices: [cuda, distribution]
    required: true
  flavor:
    description: Kind of kernel modules.
    type: str
    choices: [open, proprietary]
    required: true
  branch: {description: Driver branch., type: str, required: true}
  version:
    description: Exact driver version; empty for the installed or newest of the branch.
    type: str
    default: ""
  scope:
    description: The whole driver or what computing needs.
    type: str
    choices: [full, compute]
    default: full
  fabric_manager:
    description: Whether Fabric Manager is needed.
    type: str
    choices: [auto, "true", "false"]
    default: auto
  imex_nodes:
    description: Addresses of the nodes of this host's NVLink domain, for IMEX; empty leaves IMEX alone.
    type: list
    elements: str
    default: []
  hold: {description: Whether the driver's packages are held., type: bool, default: true}
  hold_kernel:
    description: Whether the kernel's packages are held with them.
    type: bool
    default: true
  kernel_header_packages:
    description: Header packages; empty for those of the kernels.
    type: list
    elements: str
    default: []
  load: {description: Whether the module is to run when all is done., type: bool, default: true}
  existing:
    description: What to do about somebody else's driver.
    type: str
    choices: [refuse, adopt]
    default: refuse
  precompiled:
    description: Install NVIDIA's precompiled modules in place of DKMS', on RHEL 9 and its rebuilds.
    type: bool
    default: false
  repository_url: {description: URL of the CUDA repository for this system., type: str, default: ""}
  http_proxy: {description: Proxy for http., type: str, default: ""}
  https_proxy: {description: Proxy for https., type: str, default: ""}
  no_proxy: {description: Hosts reached without a proxy., type: str, default: ""}
  force_busy: {description: Continue although the node is busy., type: bool, default: false}
  holders_ignored:
    description: Names of what holds GPUs and is no job, besides those that are known; globs are allowed.
    type: list
    elements: str
    default: []
  compat: {description: "The data of the role nvidia_driver, files/compat.yml.", type: dict, required: true}
author: [the clusterctl authors]
"""

EXAMPLES = r"""
- name: Decide
  clusterctl.cluster.nvidia_driver_plan:
    source: cuda
    flavor: open
    branch: "580"
    compat: "{{ compat }}"
"""

RETURN = r"""
plan: {description: What is to be done., type: dict, returned: always}
loaded: {description: Version of the driver that runs; empty if none does., type: str, returned: always}
busy: {description: Who uses the GPUs that would be disturbed., type: list, returned: always}
left_alone: {description: Whether the node is to be skipped., type: bool, returned: always}
code:
  description: >-
    Stable code of the failure: host.unsupported-system, packages.held, packages.not-offered or
    packages.source-down
  returned: when the cause is known
  type: str
"""

ARGUMENTS: dict[str, Any] = {
    "source": {"type": "str", "choices": ["cuda", "distribution"], "required": True},
    "flavor": {"type": "str", "choices": ["open", "proprietary"], "required": True},
    "branch": {"type": "str", "required": True},
    "version": {"type": "str", "default": ""},
    "scope": {"type": "str", "choices": ["full", "compute"], "default": "full"},
    "fabric_manager": {"type": "str", "choices": ["auto", "true", "false"], "default": "auto"},
    "imex_nodes": {"type": "list", "elements": "str", "default": []},
    "hold": {"type": "bool", "default": True},
    "hold_kernel": {"type": "bool", "default": True},
    "kernel_header_packages": {"type": "list", "elements": "str", "default": []},
    "load": {"type": "bool", "default": True},
    "existing": {"type": "str", "choices": ["refuse", "adopt"], "default": "refuse"},
    "precompiled": {"type": "bool", "default": False},
    "repository_url": {"type": "str", "default": ""},
    "http_proxy": {"type": "str", "default": "", "no_log": True},
    "https_proxy": {"type": "str", "default": "", "no_log": True},
    "no_proxy": {"type": "str", "default": ""},
    "force_busy": {"type": "bool", "default": False},
    "holders_ignored": {"type": "list", "elements": "str", "default": []},
    "compat": {"type": "dict", "required": True},
}


def apt_facts(root: Path, available: dict[str, list[str]], builds: Builds) -> Facts:
    """What a node with apt is; `available` and `builds` are what its sources offer."""
    installed, held = gpu_node.installed_packages(root)
    status = gpu_node.read_text(root / "var/lib/dpkg/status")
    own = {name: versions for name, versions in parse_builds(status).items() if name in installed}
    return node_facts(
        root,
        installed,
        held,
        available=available,
        builds=merge(builds, own),
        kernel_metapackages=parse_kernel_metapackages(status),
    )


def names_of_interest(module: AnsibleModule, facts: Facts) -> list[str]:
    """Every package whose versions may matter to the plan."""
    compat, branch, installed = module.params["compat"], module.params["branch"], facts.installed
    names = set(driver_packages(installed, compat))
    for system in compat["packages"][module.params["source"]].values():
        names.add(system["pinning"])
        names.update(system["with_driver"] + system["with_nvlsm"])
        sets = [*system["full"].values(), *system["compute"].values()]
        sets += [system[part] for part in ("fabric_manager", "nvlsm", "imex")]
        names.update(name for alternatives in sets for group in alternatives for name in group)
        for prefix in system["prebuilt"].values():
            # The flavour of the running kernel too: its metapackage knows which kernels have modules.
            flavours = [*facts.kernel_metapackages, facts.kernels[0].rpartition("-")[2]]
            names.update(prebuilt_names(prefix, facts.kernels, flavours))
    return sorted({name.format(branch=branch) for name in names if name})


def offered(
    module: AnsibleModule, names: list[str], options: list[str]
) -> tuple[dict[str, list[str]], Builds]:
    """Versions that apt knows, from NVIDIA's repository alone where that is the source; prebuilt modules."""
    is_cuda = module.params["source"] == "cuda"
    source = without_login(module.params["repository_url"]).rstrip("/") if is_cuda else ""
    _, output, _ = module.run_command(["apt-cache", *options, "madison", *names])
    versions = parse_madison(output, source)
    prebuilt = [name for name in versions if name.startswith(NAME)]
    if not prebuilt:
        return versions, {}
    _, output, _ = module.run_command(["apt-cache", *options, "show", *prebuilt])
    return versions, parse_builds(output)


def offered_afresh(
    module: AnsibleModule, names: list[str], directory: Path
) -> tuple[dict[str, list[str]], Builds]:
    """Versions that the source itself offers now, read into `directory`; ends the module on failure."""
    url = module.params["repository_url"]
    proxies = proxies_of(module.params)
    cuda = module.params["source"] == "cuda"
    options = make_view(
        Path("/"),
        directory,
        source=source_stanza(url, "/", "", "Trusted: yes") if cuda else "",
        proxy=proxy_configuration(url, proxies) if cuda else "",
        fresh_lists=True,
    )
    if cuda:  # one repository answers the question: the others need not be read
        alone = f"Dir::Etc::sourcelist={directory}/sources.list.d/view.sources"
        options += ["-o", alone, "-o", "Dir::Etc::sourceparts=-"]
    with runner(module) as run:
        code, output, error = update(run, options)
    if code != 0 or (cuda and "Failed to fetch" in error + output):
        module.fail_json(
            msg=f"The package source cannot be read: {explain(error or output)}. "
            f"Check that this host reaches {mask_urls(url) or 'it'} (site_http_proxy, site_no_proxy).",
            code="packages.source-down",
        )
    return offered(module, names, options)


def decide(module: AnsibleModule, root: Path) -> Plan:
    """The plan from what apt or dnf knows, and where that is not enough from what the source offers."""
    if has_rpm(root):
        return decide_by_dnf(module, root)
    request = request_of(module.params)
    facts = apt_facts(root, {}, {})
    plan = make_plan(request, facts, module.params["compat"])
    if not plan.problems and not plan.missing:
        return plan
    names = names_of_interest(module, facts)
    plan = make_plan(request, apt_facts(root, *offered(module, names, [])), module.params["compat"])
    if not plan.problems:
        return plan
    with tempfile.TemporaryDirectory(prefix="clusterctl-") as directory:
        fresh = offered_afresh(module, names, Path(directory))
    plan = make_plan(request, apt_facts(root, *fresh), module.params["compat"])
    plan.refresh = True
    return plan


def main() -> None:
    """Entry point."""
    module = AnsibleModule(ARGUMENTS, supports_check_mode=True)
    root = Path("/")
    plan = decide(module, root)
    if plan.problems:
        codes = [problem["code"] for problem in plan.problems if problem["code"]]
        module.fail_json(
            **({"code": codes[0]} if codes else {}),
            msg=" ".join(
                f"{problem['what'][0].upper()}{problem['what'][1:]}: {problem['remedy']}."
                for problem in plan.problems
            ),
            clusterctl={
                "remedy": "; ".join(problem["remedy"] for problem in plan.problems),
                "findings": [
                    {
                        "severity": "error",
                        "subject": "driver",
                        "found": problem["what"],
                        "expected": "",
                        "remedy": problem["remedy"],
                        "code": problem["code"],
                    }
                    for problem in plan.problems
                ],
            },
        )

    disturbing = plan.transaction or plan.activation
    busy = busy_reasons(root, ask, module.params["holders_ignored"]) if disturbing else []
    left_alone = bool(busy) and not module.params["force_busy"]
    if not plan.transaction:  # whose diff has them otherwise
        for warning in plan.warnings:
            module.warn(f"{warning}.")
    module.exit_json(
        changed=False,
        plan=plan.as_dict(),
        loaded=gpu_node.loaded_driver(root),
        busy=busy,
        left_alone=left_alone,
        clusterctl={"busy": "; ".join(busy)} if left_alone else {},
    )


if __name__ == "__main__":
    main()
