# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE)
"""The plan of a driver where packages come by dnf: installed RPMs, offered ones, streams, locks."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.clusterctl.cluster.plugins.module_utils.apt_view import RunFull
from ansible_collections.clusterctl.cluster.plugins.module_utils.dnf_run import (
    UNREAD,
    dnf_runner,
    explain,
    repository_view,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.driver_facts import node_facts, request_of
from ansible_collections.clusterctl.cluster.plugins.module_utils.driver_plan import (
    Facts,
    Plan,
    driver_packages,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.gpu_node import read_text, version_key
from ansible_collections.clusterctl.cluster.plugins.module_utils.masking import mask_urls
from ansible_collections.clusterctl.cluster.plugins.module_utils.nvidia_driver_planner import make_plan
from ansible_collections.clusterctl.cluster.plugins.module_utils.prebuilt_modules import (
    merge,
    precompiled_builds,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.rpm_database import WORD, rpm_packages

MODULE = "nvidia-driver"
STATE = f"etc/dnf/modules.d/{MODULE}.module"
FORMAT = "%{name}|%{evr}\n"


def enabled_stream(root: Path) -> str:
    """The stream of NVIDIA's module that is enabled; empty if none is."""
    values = dict(
        line.split("=", 1) for line in read_text(root / STATE).replace(" ", "").splitlines() if "=" in line
    )
    return values.get("stream", "") if values.get("state") == "enabled" else ""


def parse_streams(output: str) -> list[str]:
    """The streams in what `dnf module list nvidia-driver` prints."""
    return list(dict.fromkeys(re.findall(rf"^{MODULE}\s+(\S+)", output, re.MULTILINE)))


def parse_offers(output: str) -> dict[str, list[str]]:
    """Versions by package from FORMAT, newest first; what has no form of RPM's is left out.

    The index of a repository need not be signed: it can have blanks and addresses in a version.
    """
    offered: dict[str, list[str]] = {}
    for line in output.splitlines():
        name, _, evr = line.partition("|")
        if not (WORD.fullmatch(name) and WORD.fullmatch(evr)):
            continue
        if evr.removeprefix("0:") not in offered.setdefault(name, []):
            offered[name].append(evr.removeprefix("0:"))
    return {
        name: sorted(versions, key=lambda evr: version_key(evr.partition(":")[2] or evr), reverse=True)
        for name, versions in offered.items()
    }


def dnf_facts(
    run: RunFull, root: Path, available: dict[str, list[str]], streams: list[str] | None = None
) -> Facts:
    """What a node with dnf is; `available` and `streams` are what its source offers."""
    installed, held = rpm_packages(run, root)
    machine = os.uname().machine
    own = precompiled_builds({name: [evr] for name, evr in installed.items()}, machine)
    return node_facts(
        root,
        installed,
        held,
        available=available,
        builds=merge(own, precompiled_builds(available, machine)),
        stream=enabled_stream(root),
        streams=streams or [],
    )


def names_of_interest(params: dict[str, Any], facts: Facts) -> list[str]:
    """Every package whose versions may matter to the plan; globs are dnf's."""
    compat = params["compat"]
    system = compat["packages"][params["source"]].get(facts.os["id"], {})
    instead = system.get("precompiled", {})
    names = {*driver_packages(facts.installed, compat), "kmod-nvidia-[0-9]*"}
    sets = [system.get(part, []) for part in ("fabric_manager", "nvlsm", "imex")]
    for one in (system, instead):
        sets += [*one.get("full", {}).values(), *one.get("compute", {}).values()]
    names.update(name for alternatives in sets for group in alternatives for name in group)
    return sorted({name.format(branch=params["branch"]) for name in names})


def ask(
    module: AnsibleModule, run: RunFull, names: Sequence[str], options: Sequence[str]
) -> tuple[dict[str, list[str]], list[str]]:
    """Versions and streams that the repositories offer; ends the module if they cannot be read."""
    query = [*options, "repoquery", "--disable-modular-filtering", "--available", "--qf", FORMAT.strip()]
    code, output, error = run(["dnf", "--quiet", *query, *names])
    if code != 0 or any(words in error for words in UNREAD):
        module.fail_json(
            msg=f"The package source cannot be read: {explain(error or output)}. "
            f"Check that this host reaches {mask_urls(module.params['repository_url']) or 'it'} "
            "(site_http_proxy, site_no_proxy).",
            code="packages.source-down",
        )
    _, listed, _ = run(["dnf", "--quiet", *options, "module", "list", "--all", MODULE])
    return parse_offers(output), parse_streams(listed)


def decide_by_dnf(module: AnsibleModule, root: Path) -> Plan:
    """The plan from what is installed, else from what dnf knows, else from what the source offers now."""
    params = module.params
    request = request_of(params)
    with (
        repository_view(root, params["repository_url"]) as (view, repository),
        dnf_runner(module, root, view) as run,
    ):
        facts = dnf_facts(run, root, {})
        plan = make_plan(request, facts, params["compat"])
        packaged = facts.os["id"] in params["compat"]["packages"][params["source"]]
        if not packaged or not (plan.problems or plan.missing):
            return plan
        names = names_of_interest(params, facts)
        for options in ([], ["--refresh"]):
            offers = ask(module, run, names, [f"--repo={repository}", *options])
            plan = make_plan(request, dnf_facts(run, root, *offers), params["compat"])
            plan.refresh = bool(options)
            if not plan.problems:
                break
    return plan
