"""One validation from its request to its result: which nodes by which checks, the run, its reports."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from clustercheck.expect.baseline import Baseline
from clustercheck.launch.docker import DockerLauncher
from clustercheck.launch.model import Launcher
from clustercheck.launch.transport import Transport
from clustercheck.result.document import Document, coverage_json
from clustercheck.running import session, suites
from clustercheck.running.suites import Suite
from clustercheck.spec import ClusterSpec
from clusterctl import console
from clusterctl.cluster import acknowledged, job_variables
from clusterctl.cluster import lock as lock_file
from clusterctl.cluster.access import Passwords
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.cluster.inventory import Inventory
from clusterctl.cluster.opened import opened
from clusterctl.cluster.settings.declared_at import declared_at
from clusterctl.cluster.spec import cluster_spec, settings_of
from clusterctl.cluster.ssh import OpenSshTransport
from clusterctl.cluster.state_files import replace_file
from clusterctl.engine import mutex
from clusterctl.engine.process import terminated_like_interrupted
from clusterctl.engine.wording import format_hosts
from clusterctl.errors import (
    EXIT_INCOMPLETE,
    EXIT_INTERRUPTED,
    ClusterctlError,
    ExplainedError,
)
from clusterctl.report import baselines, files
from clusterctl.report.progress import ValidationProgress
from clusterctl.report.subjects import culprit_name
from clusterctl.rollout.training import pinned, warn
from clusterctl.runs import chain
from clusterctl.runs.events import event_log, open_containers
from clusterctl.runs.state import RunState, state_of
from clusterctl.runs.store import Run, RunStore
from clusterctl.runs.syslog import anchored_store
from clusterctl.stack.judge import locked_environment


@dataclass(frozen=True)
class ValidateRequest:
    """``cluster`` is the directory that was named, if any; ``checks`` are ids or globs, none is all."""

    cluster: Path | None
    suite: str = "quick"
    checks: tuple[str, ...] = ()
    limit: str | None = None
    framework: str | None = None
    baseline: str | None = None
    since_ack: bool = False
    force_busy: bool = False
    passwords: Passwords = field(default_factory=Passwords)

    @property
    def arguments(self) -> list[str]:
        """How the run records what it was asked."""
        values = {
            "--suite": self.suite,
            "--limit": self.limit,
            "--checks": ",".join(self.checks),
            "--framework": self.framework,
        }
        flags = {"--since-ack": self.since_ack, "--force-busy": self.force_busy}
        given = [word for option, value in values.items() if value for word in (option, value)]
        return given + [flag for flag, is_given in flags.items() if is_given]


@dataclass(frozen=True)
class ValidationPlan:
    """What a request comes to in its cluster. ``baseline`` is what figures are compared with, if anything."""

    request: ValidateRequest
    inventory: Inventory
    spec: ClusterSpec
    suite: Suite
    baseline: Baseline | None

    @property
    def directory(self) -> ClusterDirectory:
        """The cluster's directory."""
        return self.inventory.directory


@dataclass(frozen=True)
class ValidateResult:
    """How a validation ended: with a document and which reports of it could not be made (``unmade``, None
    where their making was interrupted) or that it is not recorded; or, where it was interrupted, with the
    containers that could not be ended (``left``)."""

    exit_code: int
    document: Document | None = None
    page: Path | None = None
    unmade: Sequence[str] | None = ()
    left: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True)
class NodeConnections:
    """How nodes are reached, how jobs start there, and how those are ended when the person interrupts."""

    transport: Transport
    launcher: Launcher
    abort: Callable[[], Sequence[str]] = tuple


Connect = Callable[[ValidationPlan, str, Sequence[str]], contextlib.AbstractContextManager[NodeConnections]]


@contextlib.contextmanager
def over_ssh(plan: ValidationPlan, run_id: str, ended_runs: Sequence[str]) -> Iterator[NodeConnections]:
    """The nodes of a plan over SSH, with jobs in their Docker; what ``ended_runs`` left there is removed."""
    addresses = {host.name: host.address for host in plan.inventory.hosts}
    with OpenSshTransport(plan.directory, plan.inventory.hosts, plan.request.passwords) as transport:
        launcher = DockerLauncher(transport, run_id=run_id, addresses=addresses, ended_runs=ended_runs)
        yield NodeConnections(transport, launcher, launcher.abort)


def make_plan(request: ValidateRequest) -> ValidationPlan:
    """Read the cluster and choose nodes, checks and baseline; asks no node.

    Raises ExplainedError for an unknown suite or check, settings, limit and baseline.
    """
    suite = suites.load(request.suite).of_checks(request.checks)
    found = pinned(opened(request.cluster))
    warn(found)
    inventory = found.inventory
    spec = limited(cluster_spec(inventory, request.suite), inventory, request.limit)
    require_docker(inventory, spec, suite)
    job_variables.warn(spec.settings_of(node.name).environment for node in spec.nodes)
    spec = spec.with_framework(request.framework) if request.framework else spec
    spec = acknowledged_in(spec, inventory.directory) if request.since_ack else spec
    nodes = [node.name for node in spec.in_use]
    baseline = baselines.chosen(
        inventory.directory,
        request.baseline,
        suite,
        nodes,
        lambda limit: [host.name for host in inventory.matching(limit)],
    )
    return ValidationPlan(request, inventory, spec, suite, baseline)


def validate(
    plan: ValidationPlan, *, progress: ValidationProgress, connect: Connect = over_ssh
) -> ValidateResult:
    """Judge the nodes of a plan as a run that is kept, with its reports. Ctrl-C ends it without a verdict.

    A verdict that cannot be written, as on a full disk, is returned, and no pass: jobs may have taken hours.
    """
    store = anchored_store(plan.inventory)
    with mutex.held(plan.directory, "validate"):
        run = store.create("validate", plan.request.arguments)
        document = None
        try:
            with store.finished_on_error(run):
                document = _judge(plan, run, progress, connect)
                replace_file(run.path(chain.EVIDENCE), files.pieces({"nodes": document.raw}))
                document = replace(document, raw={})  # written: the reports need the room
                files.write_result(run, document)
            run = store.finish(run, document.exit_code, summary_of(document))
        except KeyboardInterrupt:
            return ValidateResult(EXIT_INTERRUPTED, left=open_containers(run.journal))
        except ClusterctlError as error:
            if document is None:
                raise
            why = f"this verdict is not recorded: {error.what} ({error.where})"
            return ValidateResult(document.exit_code or EXIT_INCOMPLETE, document, unmade=[why])
        document = replace(document, chain_head=chain.head_of(run.directory))
        unmade = None
        with contextlib.suppress(KeyboardInterrupt):  # the verdict stands, and reports can be made again
            unmade = files.write_reports(run, document)
    return ValidateResult(document.exit_code, document, files.page_of(run), unmade)


def _judge(plan: ValidationPlan, run: Run, progress: ValidationProgress, connect: Connect) -> Document:
    lock, ended = lock_file.read(plan.directory), _ended_with_containers(plan.directory)
    with (
        terminated_like_interrupted(),
        event_log(run.journal) as log,
        progress,
        connect(plan, run.id, ended) as nodes,
    ):

        def on_event(event: Mapping[str, Any]) -> None:
            log.write(event)
            progress.show(event)

        try:
            document = session.validate(
                plan.spec,
                transport=nodes.transport,
                launcher=nodes.launcher,
                suite=plan.request.suite,
                checks=plan.request.checks,
                run_id=run.id,
                on_event=on_event,
                busy_policy="force" if plan.request.force_busy else "skip",
                ended_runs=ended,
                baseline=plan.baseline,
            )
        except KeyboardInterrupt:
            for node in nodes.abort():  # what was starting when the launcher was interrupted
                log.write({"type": "job_removed", "node": node})
            raise
    environment = {
        **document.environment,
        **locked_environment(plan.inventory, lock, document.environment, run.id),
    }
    return replace(document, environment=environment)


def acknowledged_in(spec: ClusterSpec, directory: ClusterDirectory) -> ClusterSpec:
    """The cluster with the time from which each node's kernel messages count."""
    times = acknowledged.times(directory)
    nodes = tuple(replace(node, acknowledged=times.get(node.name)) for node in spec.nodes)
    return replace(spec, nodes=nodes)


def require_docker(inventory: Inventory, spec: ClusterSpec, suite: Suite) -> None:
    """Raises ExplainedError (``validate.no-docker``) for a job on a node that has containerd alone."""
    if not any(check.job for check in suite.selected()):
        return
    judged = {node.name for node in spec.nodes if not node.excluded}
    without = [
        host
        for host in inventory.gpu_nodes
        if host.name in judged and settings_of(host).value("container_runtime_engine") == "containerd"
    ]
    if without:
        names = format_hosts([host.name for host in without])
        raise ExplainedError(
            f"the jobs of {suite.name} run in Docker, and {names} {'has' if len(without) == 1 else 'have'} "
            "containerd alone",
            code="validate.no-docker",
            where=declared_at(inventory.directory, without[0], "container_runtime_engine"),
            hint="Validate the others with --limit, or only checks without jobs with --checks; or install "
            "Docker: container_runtime_engine: docker.",
        )


def limited(spec: ClusterSpec, inventory: Inventory, limit: str | None) -> ClusterSpec:
    """The cluster as far as ``limit`` goes.

    Raises ClusterctlError (``validate.no-nodes``) where no GPU node is left to judge.
    """
    chosen = {host.name for host in inventory.matching(limit)}
    nodes = tuple(node for node in spec.nodes if node.name in chosen)
    if all(node.excluded for node in nodes):
        out = ", ".join(f"{node.name} ({node.excluded})" for node in nodes)
        raise ClusterctlError(
            f"every GPU node is omitted: {out}" if out else "there is no GPU node to validate",
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


def _ended_with_containers(directory: ClusterDirectory) -> list[str]:
    """Earlier validations from here that were interrupted with containers on nodes: nobody waits for them."""
    ended = []
    for run in RunStore(directory).list():
        ours = run.kind == "validate" and run.controller == os.uname().nodename
        if not ours or state_of(run) is RunState.RUNNING:
            continue
        try:
            if open_containers(run.journal):
                ended.append(run.id)
        except ClusterctlError as error:  # its containers count as those of others: they are left alone
            console.say(error.what)
    return ended
