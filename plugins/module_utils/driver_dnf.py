# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE)
"""The driver's packages in one dnf transaction with its module's stream, and locked after it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.clusterctl.cluster.plugins.module_utils.apt_packages import listing
from ansible_collections.clusterctl.cluster.plugins.module_utils.apt_transaction import foreign_holds
from ansible_collections.clusterctl.cluster.plugins.module_utils.apt_view import RunFull
from ansible_collections.clusterctl.cluster.plugins.module_utils.dnf_run import (
    UNREAD,
    dnf_runner,
    explain,
    repository_view,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.dnf_transaction import (
    Outcome,
    Transaction,
    install,
    simulate,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.driver_changes import (
    changed_driver_packages,
    other_versions,
    rebuilders,
    refusals,
    releases,
    wanted_holds,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.driver_dnf_plan import MODULE
from ansible_collections.clusterctl.cluster.plugins.module_utils.driver_record import (
    read_record,
    write_record,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.package_managers import DNF
from ansible_collections.clusterctl.cluster.plugins.module_utils.rpm_database import (
    by_key,
    installed_rpms,
    leftovers,
    rpm_packages,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.version_locks import PLUGIN, write_locks

NO_DKMS = re.compile(r"(nothing provides|requires) dkms\b")


def transaction_of(params: dict[str, Any], run: RunFull) -> Transaction:
    """What dnf is asked for; the plugin that locks versions comes along where it is missing."""
    rpms = installed_rpms(run)
    asked = [f"{name}-{evr}" if evr else name for name, evr in sorted(params["packages"].items())]
    if params["hold"] and PLUGIN not in by_key(rpms):
        asked.append(PLUGIN)
    remove = [*params["remove"], *leftovers(rpms, params["packages"])]
    return Transaction(asked, remove, f"{MODULE}:{params['stream']}" if params["stream"] else "")


def simulate_whole(
    run: RunFull, params: dict[str, Any], installed: dict[str, str], asked: Transaction
) -> tuple[Transaction, Outcome, str]:
    """The transaction with every part of the driver in its version; what it would change; dnf's complaint.

    What NVIDIA's packages require has no version for some parts (nvidia-modprobe): dnf takes the newest.
    """
    outcome, complaint = simulate(run, asked, installed, ["--refresh"] if params["refresh"] else [])
    others = other_versions(outcome.changes, params)
    if complaint or not others:
        return asked, outcome, complaint
    exact = [f"{name}-{params['version']}" for name in sorted(others)]
    whole = Transaction([*asked.install, *exact], asked.remove, asked.stream)
    better, refused = simulate(run, whole, installed)
    return (asked, outcome, "") if refused else (whole, better, "")


def fail(module: AnsibleModule, doing: str, output: str) -> None:
    """Ends the module with dnf's complaint and what to do."""
    unread = any(words in output for words in UNREAD)
    if unread:
        remedy = "Check that this host reaches its repositories (site_http_proxy, site_no_proxy)."
    elif NO_DKMS.search(output):
        remedy = "Set nvidia_driver_epel_url, or enable EPEL, which has dkms (dnf install epel-release)."
    else:
        remedy = "Check that the repositories are whole, and that no other NVIDIA packages are in the way."
    code = {"code": "packages.source-down"} if unread else {}
    module.fail_json(msg=f"dnf cannot {doing} the driver: {explain(output)}. {remedy}", **code)


def change(
    module: AnsibleModule, run: RunFull, root: Path, transaction: Transaction, outcome: Outcome
) -> list[str]:
    """Installs, locks and records; returns what is now locked by us, and was not before."""
    params = module.params
    record = read_record(root)
    held_by_us = set(record.get("held", []))
    ours = changed_driver_packages(outcome.changes, params["compat"])
    packages = set(record.get("packages", [])) | ours
    if outcome.changes or outcome.streams:
        # Before the transaction: what it leaves behind when it breaks is ours to fix.
        write_record(root, packages, held_by_us)
        _, output, error = install(run, transaction)
        installed = by_key(installed_rpms(run))
        failed = [
            name
            for name, (before, after) in outcome.changes.items()
            if installed.get(name, "") != after and (after or installed[name] == before)
        ]
        if failed:
            fail(module, f"change {', '.join(sorted(failed)[:5])} of", f"{error}\n{output}")
    installed, held = rpm_packages(run, root)
    wanted = wanted_holds(params, installed) - (held - held_by_us)
    # Before the locks: a lock of ours that is not on record would be taken for another party's.
    write_record(root, packages & set(installed), held_by_us | wanted)
    write_locks(root, held_by_us, {name: installed[name] for name in wanted})
    write_record(root, packages & set(installed), wanted)
    return sorted(wanted - held)


def transact_by_dnf(module: AnsibleModule, root: Path) -> dict[str, Any]:
    """The module's result: what the transaction changes, or would change in check mode."""
    params = module.params
    with (
        repository_view(root, params["repository_url"], params["dkms_repository_url"]) as (view, _),
        dnf_runner(module, root, view if module.check_mode else None) as run,
    ):
        installed, held = rpm_packages(run, root)
        transaction, outcome, complaint = simulate_whole(run, params, installed, transaction_of(params, run))
        if complaint:
            fail(module, "install", complaint)
        record = read_record(root)
        changes = outcome.changes
        if reasons := refusals(changes, params, held, record, DNF):
            foreign = foreign_holds(changes, held, record.get("held", []))
            module.fail_json(
                msg=f"This transaction is not done: {'; '.join(reasons)}. Nothing was installed. "
                "Fix the repositories or the node's packages, and run again.",
                **({"code": "packages.held"} if foreign else {}),
            )
        warnings = [*params["warnings"], *rebuilders(changes, installed, params["compat"])]
        for warning in warnings:
            module.warn(f"{warning}.")
        after = {**installed, **{name: new for name, (_, new) in changes.items()}}
        present = {name: version for name, version in after.items() if version}
        holds = sorted(wanted_holds(params, present) - held)
        released = sorted(releases(params, present, held, record))
        if not module.check_mode:
            holds = change(module, run, root, transaction, outcome)
    streams = {f"{name} (stream)": change_ for name, change_ in outcome.streams.items()}
    said = {**changes, **streams}
    return {
        "changed": bool(said or holds or released),
        "changes": {name: list(versions) for name, versions in sorted(said.items())},
        "held": holds,
        "released": released,
        "diff": {
            "before": listing(said, 0),
            "after": listing(said, 1) + "".join(f"Warning: {warning}.\n" for warning in warnings),
        },
    }
