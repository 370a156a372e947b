#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE)
"""Ansible module: the driver's packages in one transaction of apt or dnf, of one version, and held."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.clusterctl.cluster.plugins.module_utils import gpu_node
from ansible_collections.clusterctl.cluster.plugins.module_utils.apt_packages import (
    Change,
    explain,
    listing,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.apt_run import (
    LOCK_WAIT_S,
    proxies_of,
    runner,
    update,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.apt_sources import find_source
from ansible_collections.clusterctl.cluster.plugins.module_utils.apt_transaction import (
    LOCK,
    foreign_holds,
    install,
    mark,
    simulate,
    simulate_whole,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.apt_view import (
    RunFull,
    make_view,
    proxy_configuration,
    source_stanza,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.bounded import alone
from ansible_collections.clusterctl.cluster.plugins.module_utils.driver_changes import (
    changed_driver_packages,
    rebuilders,
    refusals,
    releases,
    wanted_holds,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.driver_dnf import transact_by_dnf
from ansible_collections.clusterctl.cluster.plugins.module_utils.driver_record import (
    read_record,
    write_record,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.masking import mask_urls
from ansible_collections.clusterctl.cluster.plugins.module_utils.node_files import replace_file
from ansible_collections.clusterctl.cluster.plugins.module_utils.rpm_database import has_rpm

DOCUMENTATION = r"""
module: nvidia_driver_packages
short_description: The NVIDIA driver's packages in one transaction of apt or dnf
description:
  - Pins the driver's packages to one version, simulates the transaction, refuses what it should not do,
    downloads, installs, and holds driver, libraries, Fabric Manager, kernel and headers together.
  - With dnf the stream of the module nvidia-driver is enabled in the same transaction, and versionlock holds.
  - Never autoremoves, keeps changed configuration files, never touches what somebody else holds.
  - In check mode the same transaction is simulated, over a source that is not configured yet too.
options:
  packages: {description: Exact version by package; empty for any., type: dict, required: true}
  remove: {description: Packages that must go., type: list, elements: str, default: []}
  version: {description: Driver version that all must have., type: str, required: true}
  stream: {description: Stream of the dnf module nvidia-driver; empty with apt., type: str, default: ""}
  source:
    description: Where packages come from.
    type: str
    choices: [cuda, distribution]
    required: true
  hold: {description: Whether to hold what was installed., type: bool, default: true}
  hold_kernel: {description: Whether to hold kernel and headers too., type: bool, default: true}
  refresh: {description: Read the package lists first., type: bool, default: false}
  warnings:
    description: What the plan warns of; it stands in the diff of the transaction.
    type: list
    elements: str
    default: []
  repository_url: {description: URL of the CUDA repository for this system., type: str, default: ""}
  dkms_repository_url:
    description: URL of a repository of RPMs that has dkms, and is to be added; empty if none is.
    type: str
    default: ""
  http_proxy: {description: Proxy for http., type: str, default: ""}
  https_proxy: {description: Proxy for https., type: str, default: ""}
  no_proxy: {description: Hosts reached without a proxy., type: str, default: ""}
  compat: {description: "The data of the role nvidia_driver, files/compat.yml.", type: dict, required: true}
author: [the clusterctl authors]
"""

EXAMPLES = r"""
- name: Install
  clusterctl.cluster.nvidia_driver_packages:
    packages: {nvidia-open-580: 580.95.05-1}
    version: 580.95.05
    source: cuda
    compat: "{{ compat }}"
"""

RETURN = r"""
changes: {description: Versions before and after by package., type: dict, returned: always}
held: {description: Packages that were put on hold now., type: list, returned: always}
released: {description: Packages that we held and hold no more., type: list, returned: always}
code:
  description: "Stable code of the failure: packages.held, packages.locked or packages.source-down"
  returned: when the cause is known
  type: str
"""

ARGUMENTS: dict[str, Any] = {
    "packages": {"type": "dict", "required": True},
    "remove": {"type": "list", "elements": "str", "default": []},
    "version": {"type": "str", "required": True},
    "stream": {"type": "str", "default": ""},
    "source": {"type": "str", "choices": ["cuda", "distribution"], "required": True},
    "hold": {"type": "bool", "default": True},
    "hold_kernel": {"type": "bool", "default": True},
    "refresh": {"type": "bool", "default": False},
    "warnings": {"type": "list", "elements": "str", "default": []},
    "repository_url": {"type": "str", "default": ""},
    "dkms_repository_url": {"type": "str", "default": ""},
    "http_proxy": {"type": "str", "default": "", "no_log": True},
    "https_proxy": {"type": "str", "default": "", "no_log": True},
    "no_proxy": {"type": "str", "default": ""},
    "compat": {"type": "dict", "required": True},
}
ROOT = Path("/")
SOURCE_DOWN = "packages.source-down"
PREFERENCES = Path("/etc/apt/preferences.d/clusterctl-nvidia-driver")


def preferences(compat: dict[str, Any], version: str) -> str:
    """Apt preferences that keep every part of the driver at one version."""
    return (
        "# Managed by clusterctl: the NVIDIA driver moves as a whole, by its role alone.\n"
        f"Package: {' '.join(compat['driver_packages'])}\n"
        f"Pin: version {version}-*\n"
        "Pin-Priority: 1001\n"
    )


def without_contrib(run: RunFull, options: list[str]) -> bool:
    """Whether this is Debian without the component that has what NVIDIA's own packages depend on."""
    if gpu_node.os_release(ROOT)["id"] != "debian":
        return False
    _, output, _ = run(["apt-cache", *options, "policy"])
    return "o=Debian" in output and "c=contrib" not in output


def fail(module: AnsibleModule, doing: str, error: str, remedy: str, code: str = "") -> None:
    """Ends the module with what, why and what to do, and with a code if the cause is known."""
    module.fail_json(msg=f"{doing}: {error}. {remedy}", **({"code": code} if code else {}))


def fail_without_lists(module: AnsibleModule, error: str) -> None:
    """Ends the module since apt cannot read the package lists."""
    fail(module, "The package lists cannot be read", explain(error), "Check the sources.", SOURCE_DOWN)


def simulated(
    module: AnsibleModule, run: RunFull, arguments: list[str], options: list[str]
) -> dict[str, Change]:
    """What apt would do; ends the module where it cannot."""
    ask = simulate if module.check_mode else simulate_whole
    changes, complaint = ask(run, arguments, options)
    if complaint:
        if without_contrib(run, options):
            remedy = (
                "Add contrib to the components of Debian's source: NVIDIA's packages depend on some of it."
            )
        else:
            remedy = (
                "Check that the package source is whole, and that no other NVIDIA packages are in the way."
            )
        fail(module, "apt cannot install the driver", explain(complaint), remedy)
    return changes


def pinned_view(module: AnsibleModule, run: RunFull, directory: Path, pin: str) -> list[str]:
    """Apt's options that add the pin to the node's own configuration, and leave the node's files alone."""
    if module.params["refresh"]:
        code, output, error = update(run)
        if code != 0:
            fail_without_lists(module, error or output)
    make_view(ROOT, directory, preferences=pin, fresh_lists=False)
    return ["-o", f"Dir::Etc::preferencesparts={directory}/preferences.d"]


def check_view(module: AnsibleModule, run: RunFull, directory: Path, wanted: str) -> list[str]:
    """Apt's options for a simulation on a node that must not be changed."""
    params = module.params
    url = params["repository_url"]
    absent = params["source"] == "cuda" and not find_source(ROOT, url)
    fresh = absent or params["refresh"]
    options = make_view(
        ROOT,
        directory,
        preferences=wanted,
        source=source_stanza(url, "/", "", "Trusted: yes") if absent else "",
        proxy=proxy_configuration(url, proxies_of(params)) if absent else "",
        fresh_lists=fresh,
    )
    if fresh:
        code, output, error = update(run, options)
        if code != 0:
            fail_without_lists(module, error or output)
    return options


def carry(module: AnsibleModule, run: RunFull, doing: str, options: list[str], arguments: list[str]) -> None:
    """Has apt download or install the packages; ends the module where it fails."""
    code, output, error = install(run, arguments, options)
    if code != 0:
        tail = "; ".join(line for line in mask_urls(output).splitlines()[-8:] if line.strip())
        fail(
            module,
            f"apt could not {doing} the driver",
            f"{explain(error)}; {tail}",
            "Fix the error and run again: the transaction is resumed.",
        )


def set_marks(module: AnsibleModule, run: RunFull, action: str, names: set[str]) -> None:
    """Holds or releases packages; ends the module where that fails."""
    if error := mark(run, action, names):
        fail(module, f"apt-mark {action} failed", explain(error), "Run it by hand to see why.")


def change(
    module: AnsibleModule,
    run: RunFull,
    arguments: list[str],
    changes: dict[str, Change],
    view: list[str],
    *,
    unfinished: bool,
) -> list[str]:
    """Pins, installs, holds and records, `view` being apt's options for the pin; returns what is now held.

    unfinished: whether packages are to be configured that an interrupted transaction unpacked.
    """
    params = module.params
    record = read_record(ROOT)
    ours = changed_driver_packages(changes, params["compat"])
    packages = set(record.get("packages", [])) | ours
    held_by_us = set(record.get("held", []))
    if changes or unfinished:
        carry(module, run, "download", [*view, "--download-only"], arguments)
    # Not before: a pin without its transaction would be followed by the next upgrade of anybody.
    replace_file(PREFERENCES, preferences(params["compat"], params["version"]), 0o644)
    if changes or unfinished:
        # Before the transaction: what it leaves behind when it breaks is ours to fix.
        write_record(ROOT, packages, held_by_us)
        carry(module, run, "install", [], arguments)
    installed, held = gpu_node.installed_packages(ROOT)
    wanted = wanted_holds(params, installed)
    # Before the marks: a hold of ours that is not on record would be taken for another party's.
    write_record(ROOT, packages & set(installed), held_by_us | (wanted - held))
    set_marks(module, run, "unhold", releases(params, installed, held, record))
    set_marks(module, run, "hold", wanted - held)
    held_by_us = (held_by_us & wanted) | (wanted - held)
    write_record(ROOT, packages & set(installed), held_by_us)
    return sorted(wanted - held)


def transact(module: AnsibleModule, run: RunFull, directory: Path) -> dict[str, Any]:
    """The module's result: what the transaction changes, or would change in check mode."""
    params = module.params
    installed, held = gpu_node.installed_packages(ROOT)
    exact = sorted(params["packages"].items())
    arguments = [f"{name}={version}" if version else name for name, version in exact]
    arguments += [f"{name}-" for name in params["remove"]]
    pin = preferences(params["compat"], params["version"])
    pinned_before = PREFERENCES.read_text() if PREFERENCES.exists() else ""
    view = check_view if module.check_mode else pinned_view
    options = view(module, run, directory, pin)
    changes = simulated(module, run, arguments, options)
    # Packages that are only unpacked are none of apt's changes.
    unfinished = not set(params["packages"]) <= {*installed, *changes}
    record = read_record(ROOT)
    if reasons := refusals(changes, params, held, record):
        fail(
            module,
            "This transaction is not done",
            "; ".join(reasons),
            "Nothing was installed. Fix the package source or the node's packages, and run again.",
            "packages.held" if foreign_holds(changes, held, record.get("held", [])) else "",
        )
    warnings = [*params["warnings"], *rebuilders(changes, installed, params["compat"])]
    for warning in warnings:
        module.warn(f"{warning}.")
    after = {**installed, **{name: new for name, (_, new) in changes.items()}}
    present = {name: version for name, version in after.items() if version}
    # apt lifts the hold of what it changes.
    holds = sorted(wanted_holds(params, present) - (held - set(changes)))
    released = sorted(releases(params, present, held, record))
    if not module.check_mode:
        holds = change(module, run, arguments, changes, options, unfinished=unfinished)
    return {
        "changed": bool(changes or unfinished or holds or released or pin != pinned_before),
        "changes": {name: list(versions) for name, versions in sorted(changes.items())},
        "held": holds,
        "released": released,
        "diff": {
            "before": listing(changes, 0) + pinned_before,
            "after": listing(changes, 1) + pin + "".join(f"Warning: {warning}.\n" for warning in warnings),
        },
    }


def result_of(module: AnsibleModule) -> dict[str, Any]:
    """The result of the transaction by this node's package manager."""
    if has_rpm(ROOT):
        return transact_by_dnf(module, ROOT)
    with tempfile.TemporaryDirectory(prefix="clusterctl-") as directory, runner(module) as run:
        return transact(module, run, Path(directory))


def main() -> None:
    """Entry point."""
    module = AnsibleModule(ARGUMENTS, supports_check_mode=True)
    if module.check_mode:
        module.exit_json(**result_of(module))
    try:
        with alone(LOCK, LOCK_WAIT_S):
            result = result_of(module)
    except TimeoutError as error:
        module.fail_json(
            msg=f"The driver cannot be installed now: {error}. Apply again when it has finished.",
            code="packages.locked",
        )
    module.exit_json(**result)


if __name__ == "__main__":
    main()
