"""`clusterctl validate`: prove the cluster fit for distributed training, or name what is wrong."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from clustercheck.expect.baseline import Baseline
from clustercheck.launch.docker import DockerLauncher
from clustercheck.result.document import Document, coverage_json
from clustercheck.running import session, suites
from clustercheck.spec import ClusterSpec
from clusterctl import console
from clusterctl.cluster import acknowledged
from clusterctl.cluster import lock as lock_file
from clusterctl.cluster.access import Passwords, password_options
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.cluster.inventory import Inventory
from clusterctl.cluster.opened import opened
from clusterctl.cluster.spec import cluster_spec
from clusterctl.cluster.ssh import OpenSshTransport
from clusterctl.cluster.state_files import replace_file
from clusterctl.engine import mutex
from clusterctl.engine.process import terminated_like_interrupted
from clusterctl.engine.wording import listed
from clusterctl.errors import (
    EXIT_GOOD,
    EXIT_INCOMPLETE,
    EXIT_INTERRUPTED,
    ClusterctlError,
)
from clusterctl.report import announcement, baselines, files, terminal, validate_explained
from clusterctl.report.progress import ValidationProgress
from clusterctl.report.subjects import culprit_name
from clusterctl.rollout.training import pinned, warn
from clusterctl.runs.events import event_log, open_containers
from clusterctl.runs.state import RunState, state_of
from clusterctl.runs.store import Run, RunStore


@click.command("validate")
@click.option(
    "--suite", default="quick", show_default=True, metavar="NAME", help="Which checks; --list explains them."
)
@click.option(
    "--limit", "--nodes", metavar="HOSTS", help="Only these hosts, groups or globs, comma-separated."
)
@click.option(
    "--checks",
    "only",
    metavar="CHECKS",
    help="Only these of the suite's checks: ids or globs, comma-separated, as xid,gpu-*.",
)
@click.option("--check", metavar="CHECKS", hidden=True, deprecated="Use --checks.")
@click.option(
    "--framework",
    type=click.Choice(["paddle", "torch"]),
    help="What jobs compute with, whatever validation_framework says.",
)
@click.option("--force-busy", is_flag=True, help="Run heavy checks on nodes that somebody is using, too.")
@click.option("--yes", is_flag=True, help="Do not ask before disturbing busy nodes.")
@click.option(
    "--baseline",
    metavar="RUN|FILE|none",
    help="What to compare figures with. Default: the saved baseline, else the last run that passed.",
)
@click.option("--save-baseline", is_flag=True, help="Keep this validation to compare with, where it passes.")
@click.option(
    "--acknowledge",
    metavar="HOSTS",
    help="Xids and SXids on these hosts until now are seen to: note that, and judge nothing.",
)
@click.option("--since-ack", is_flag=True, help="Xids and SXids count since they were acknowledged.")
@click.option("--list", "listing", is_flag=True, help="Explain the suite's checks; asks no host.")
@click.option(
    "--self-test", is_flag=True, help="Plant into healthy evidence what each check must catch; asks no host."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line; the last is the result.")
@password_options
@click.pass_obj
def command(
    named: Path | None,
    *,
    suite: str,
    only: str | None,
    check: str | None,
    framework: str | None,
    baseline: str | None,
    save_baseline: bool,
    acknowledge: str | None,
    since_ack: bool,
    listing: bool,
    self_test: bool,
    limit: str | None,
    force_busy: bool,
    yes: bool,
    as_json: bool,
    passwords: Passwords,
) -> int:
    """Judge the GPU nodes: hardware, driver, containers, and distributed jobs across all of them.

    Changes nothing on the nodes; the jobs' containers are removed when they have ended. Nodes that somebody
    is using are not disturbed. Exit code 0 pass, 1 fail, 3 incomplete: what did not run is never a pass.
    """
    patterns = [part.strip() for part in (only or check or "").split(",") if part.strip()]
    if listing and self_test:
        raise click.UsageError("--list and --self-test are two requests: make one of them")
    if listing:
        return validate_explained.list_checks(suite, patterns, as_json=as_json)
    if self_test:
        return validate_explained.self_test(as_json=as_json)
    chosen = suites.load(suite).of_checks(patterns)
    if save_baseline and chosen.only:
        raise click.UsageError("--save-baseline keeps a whole validation: omit --checks")
    if acknowledge is not None:
        return _acknowledge(named, acknowledge)
    found = pinned(opened(named))
    warn(found)
    inventory = found.inventory
    directory = inventory.directory
    spec = limited(cluster_spec(inventory), inventory, limit)
    spec = spec.with_framework(framework) if framework else spec
    spec = acknowledged_in(spec, directory) if since_ack else spec
    before = baselines.chosen(directory, baseline)
    announcement.say(spec, chosen, before)
    if force_busy and not (yes or _agreed()):
        console.say("nothing was run")
        return EXIT_INCOMPLETE
    arguments = ["--suite", suite, *(["--limit", limit] if limit else [])]
    arguments += ["--checks", ",".join(patterns)] if patterns else []
    arguments += ["--framework", framework] if framework else []
    arguments += ["--since-ack"] if since_ack else []
    store = RunStore(directory)
    with mutex.held(directory, "validate"):
        run = store.create("validate", [*arguments, *(["--force-busy"] if force_busy else [])])
        try:
            with store.finished_on_error(run):
                document = _validate(
                    directory, inventory, spec, run, suite=suite, checks=patterns, force_busy=force_busy,
                    as_json=as_json, passwords=passwords, baseline=before,
                )  # fmt: skip
                page = files.write_all(run, document)
        except KeyboardInterrupt:
            console.say(f"interrupted: no verdict; {_left_on_nodes(run)}")
            return EXIT_INTERRUPTED
        code = document.exit_code
        store.finish(run, code, summary_of(document))
    if as_json:
        console.emit(document.as_json())
    else:
        console.write(terminal.render(document, colour=console.has_colours()))
        console.write(f"report: {page}\n")
    if save_baseline:
        _save(directory, document)
    return code


def _save(directory: ClusterDirectory, document: Document) -> None:
    if document.verdict != "pass":
        console.say(f"not saved as the baseline: the verdict is {document.verdict}")
        return
    console.say(f"saved as the baseline: {baselines.save(directory, document)}")


def _acknowledge(named: Path | None, hosts: str) -> int:
    inventory = opened(named)
    names = {host.name for host in inventory.matching(hosts)}
    nodes = [host.name for host in inventory.gpu_nodes if host.name in names]
    when = acknowledged.acknowledge(inventory.directory, nodes)
    console.say(
        f"with --since-ack, Xids and SXids on {listed(nodes) or 'no node'} count from {when:%F %T} UTC"
    )
    return EXIT_GOOD


def acknowledged_in(spec: ClusterSpec, directory: ClusterDirectory) -> ClusterSpec:
    """The cluster with the time from which each node's kernel messages count."""
    times = acknowledged.times(directory)
    nodes = tuple(replace(node, acknowledged=times.get(node.name)) for node in spec.nodes)
    return replace(spec, nodes=nodes)


def _left_on_nodes(run: Run) -> str:
    """Of an interrupted run: that its containers were ended, or on which nodes that did not work."""
    left = open_containers(run.journal)
    if not left:
        return "what this run had started on the nodes was ended"
    named = ", ".join(f"{str(one.get('container', ''))[:12]} on {one.get('node')}" for one in left)
    return f"these containers could not be ended, and end by their own time limit: {named}"


def _agreed() -> bool:
    if not sys.stdin.isatty():
        raise ClusterctlError(
            "--force-busy asks before it disturbs anybody, and there is no terminal to ask on",
            code="validate.not-confirmed",
            hint="Add --yes in scripts.",
        )
    return click.confirm("Disturb nodes that somebody may be using?", err=True)


def limited(spec: ClusterSpec, inventory: Inventory, limit: str | None) -> ClusterSpec:
    """The cluster as far as ``limit`` goes.

    Raises ClusterctlError (``validate.no-nodes``) where no GPU node is left to judge.
    """
    chosen = {host.name for host in inventory.matching(limit)}
    nodes = tuple(node for node in spec.nodes if node.name in chosen)
    if all(node.excluded for node in nodes):
        out = ", ".join(f"{node.name} ({node.excluded})" for node in nodes)
        raise ClusterctlError(
            f"every GPU node is left out: {out}" if out else "there is no GPU node to validate",
            code="validate.no-nodes",
            where=f"--limit {limit}" if limit else str(inventory.directory.hosts_file),
            hint="GPU nodes are the hosts of the group gpu_nodes; clusterctl hosts list names them.",
        )
    return replace(spec, nodes=nodes)


def summary_of(document: Document) -> dict[str, Any]:
    """What `runs list` shows of a validation."""
    return {
        "verdict": document.verdict,
        "simulated": document.simulated,
        "coverage": coverage_json(document.coverage),
        "culprits": [culprit_name(culprit) for culprit in document.culprits],
    }


def _validate(
    directory: ClusterDirectory,
    inventory: Inventory,
    spec: ClusterSpec,
    run: Run,
    *,
    suite: str,
    checks: Sequence[str],
    force_busy: bool,
    as_json: bool,
    passwords: Passwords,
    baseline: Baseline | None,
) -> Document:
    addresses = {node.name: node.address for node in spec.nodes}
    lock = lock_file.read(directory)
    with (
        terminated_like_interrupted(),
        event_log(run.journal) as log,
        ValidationProgress(as_json=as_json) as progress,
        OpenSshTransport(directory, inventory.hosts, passwords) as transport,
    ):

        def on_event(event: Mapping[str, Any]) -> None:
            log.write(event)
            progress.show(event)

        ended = _ended_with_containers(directory)
        launcher = DockerLauncher(transport, run_id=run.id, addresses=addresses, ended_runs=ended)
        try:
            document = session.validate(
                spec,
                transport=transport,
                launcher=launcher,
                suite=suite,
                checks=checks,
                run_id=run.id,
                on_event=on_event,
                busy_policy="force" if force_busy else "skip",
                ended_runs=ended,
                baseline=baseline,
            )
        except KeyboardInterrupt:
            for node in launcher.abort():  # what was starting when the launcher was interrupted
                log.write({"type": "job_removed", "node": node})
            raise
    replace_file(run.path("evidence.json"), files.pieces({"nodes": document.raw}))
    environment = {**document.environment, "lock": lock_file.summary(lock) if lock else None}
    return replace(document, environment=environment, raw={})


def _ended_with_containers(directory: ClusterDirectory) -> list[str]:
    """Earlier validations from here that were cut off with containers on nodes: nobody waits for them."""
    return [
        run.id
        for run in RunStore(directory).list()
        if run.kind == "validate"
        and state_of(run) is not RunState.RUNNING
        and open_containers(run.journal)
        and run.controller == os.uname().nodename
    ]
