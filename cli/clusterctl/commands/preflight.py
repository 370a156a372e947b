"""`clusterctl preflight`: check every host before anything is changed."""

from __future__ import annotations

from pathlib import Path

import click

from clusterctl import console
from clusterctl.cluster.access import Passwords, password_options
from clusterctl.commands.shared.options import json_option, limit_option
from clusterctl.commands.shared.runner import pass_runner
from clusterctl.engine.playbook import Runner
from clusterctl.errors import EXIT_CLUSTER_BAD, EXIT_GOOD, EXIT_INTERRUPTED
from clusterctl.rollout import opening, tables
from clusterctl.rollout.preflight import PreflightReport, run_preflight
from clusterctl.runs.syslog import anchored_store


@click.command("preflight")
@limit_option
@json_option
@password_options
@pass_runner
@click.pass_obj
def command(
    named: Path | None, *, limit: str | None, as_json: bool, passwords: Passwords, runner: Runner
) -> int:
    """Check every host and list everything that would make an apply fail. Changes nothing.

    Exit code 1 if any finding is an error.
    """
    return run(named, limit, as_json=as_json, passwords=passwords, runner=runner)


def run(named: Path | None, limit: str | None, *, as_json: bool, passwords: Passwords, runner: Runner) -> int:
    """Preflight alone."""
    chosen = opening.select(named, limit)
    arguments = ["--limit", limit] if limit else []
    with opening.session(
        chosen, "preflight", arguments, passwords=passwords, as_json=as_json, runner=runner
    ) as session:
        report = run_preflight(session, chosen.names)
        code = EXIT_INTERRUPTED if report.interrupted else EXIT_CLUSTER_BAD if report.errors else EXIT_GOOD
        findings = [finding.as_record() for finding in report.findings]
        store = anchored_store(chosen.inventory)
        store.finish(session.run, code, {"findings": findings, "busy": report.busy})
    show(report, as_json=as_json)
    if as_json:
        hosts = {name: state.value for name, state in report.states.items()}
        console.emit({"type": "summary", "run": session.run.id, "hosts": hosts,
                      "errors": len(report.errors), "exit": code})  # fmt: skip
    return code


def show(report: PreflightReport, *, as_json: bool) -> None:
    """Print all findings, and who is busy."""
    if as_json:
        for finding in report.findings:
            console.emit(finding.as_record())
        for host, why in report.busy.items():
            console.emit({"type": "busy", "host": host, "because": why})
        for host, lease in report.leases.items():
            console.emit({"type": "lease", "host": host, **lease.as_record()})
        return
    if report.findings:
        tables.show(tables.findings_table(report.findings))
    for host, why in report.busy.items():
        console.RESULTS.print(f"{host} is busy: {why}")
    for host, lease in report.leases.items():
        console.RESULTS.print(f"{host} is being changed: {lease.holder}")
    console.RESULTS.print(tables.preflight_headline(report))
