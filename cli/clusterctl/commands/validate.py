"""`clusterctl validate`: prove the cluster fit for distributed training, or name what is wrong."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from clustercheck.result.document import Document
from clustercheck.running.suites import Suite
from clustercheck.spec import lapsed_exclusions
from clusterctl import console
from clusterctl.cluster import acknowledged
from clusterctl.cluster.access import Passwords, password_options
from clusterctl.cluster.opened import opened
from clusterctl.engine.wording import counted, format_hosts
from clusterctl.errors import EXIT_GOOD, EXIT_INCOMPLETE, ClusterctlError
from clusterctl.report import baselines, terminal, validate_explained
from clusterctl.report.inventory import list_variables
from clusterctl.report.progress import ValidationProgress
from clusterctl.validation import ValidateRequest, ValidationPlan, make_plan, validate


def _pass_request(command: Callable[..., int]) -> Callable[..., int]:
    """Hands the command ``request``, made of the options that say what is judged and how."""

    @functools.wraps(command)
    def call(
        named: Path | None,
        *,
        suite: str,
        only: str | None,
        check: str | None,
        limit: str | None,
        framework: str | None,
        baseline: str | None,
        since_ack: bool,
        force_busy: bool,
        passwords: Passwords,
        **others: Any,
    ) -> int:
        checks = tuple(part.strip() for part in (only or check or "").split(",") if part.strip())
        request = ValidateRequest(
            named, suite, checks, limit, framework, baseline, since_ack, force_busy, passwords
        )
        return command(request, **others)

    return call


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
    help="Only these checks of the suite: ids or globs, comma-separated, e.g. xid,gpu-*.",
)
@click.option("--check", metavar="CHECKS", hidden=True, deprecated="Use --checks.")
@click.option(
    "--framework",
    type=click.Choice(["paddle", "torch"]),
    help="The framework of the jobs; overrides validation_framework.",
)
@click.option("--force-busy", is_flag=True, help="Also run heavy checks on nodes in use.")
@click.option("--yes", is_flag=True, help="Do not ask before disturbing busy nodes.")
@click.option(
    "--baseline",
    metavar="RUN|FILE|none",
    help="The baseline to compare with. Default: the saved one, else the last run that passed and has these "
    "nodes and checks, or most of them.",
)
@click.option("--save-baseline", is_flag=True, help="Save this validation as the baseline, if it passes.")
@click.option(
    "--acknowledge",
    metavar="HOSTS",
    help="Record that Xids, SXids, crashes and BMC events on these hosts so far are handled; runs no check.",
)
@click.option(
    "--since-ack",
    is_flag=True,
    help="Count only Xids, SXids, crashes and BMC events since acknowledged.",
)
@click.option("--list", "listing", is_flag=True, help="Explain the suite's checks; contacts no host.")
@click.option(
    "--self-test", is_flag=True, help="Test that each check finds its planted faults; contacts no host."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line; the last is the result.")
@password_options
@click.pass_obj
@_pass_request
def command(
    request: ValidateRequest,
    *,
    save_baseline: bool,
    acknowledge: str | None,
    listing: bool,
    self_test: bool,
    yes: bool,
    as_json: bool,
) -> int:
    """Validate the GPU nodes: hardware, driver, containers, and distributed jobs across all of them.

    Changes nothing on the nodes; the jobs' containers are removed afterwards. Nodes in use are not
    disturbed. Exit code 0 pass, 1 fail, 3 incomplete: what did not run is never a pass.
    """
    if listing and self_test:
        raise click.UsageError("--list and --self-test are two requests: make one of them")
    if save_baseline and request.checks:
        raise click.UsageError("--save-baseline keeps a whole validation: omit --checks")
    code = _answer_without_a_run(request, listing, self_test, acknowledge, as_json=as_json)
    return _validate(request, save_baseline, yes=yes, as_json=as_json) if code is None else code


def _answer_without_a_run(
    request: ValidateRequest, listing: bool, self_test: bool, acknowledge: str | None, *, as_json: bool
) -> int | None:
    """The exit code of a request that validates nothing, None if it is not one."""
    if listing:
        return validate_explained.list_checks(request.suite, request.checks, as_json=as_json)
    if self_test:
        return validate_explained.self_test(as_json=as_json)
    return None if acknowledge is None else _acknowledge(request.cluster, acknowledge)


def _validate(request: ValidateRequest, save_baseline: bool, *, yes: bool, as_json: bool) -> int:
    plan = make_plan(request)
    _announce(plan)
    if request.force_busy and not (yes or _agreed()):
        console.say("nothing was run")
        return EXIT_INCOMPLETE
    result = validate(plan, progress=ValidationProgress(as_json=as_json))
    if result.document is None:
        console.say(f"interrupted: no verdict; {_left_on_nodes(result.left)}")
        return result.exit_code
    if as_json:
        console.emit(result.document.as_json())
    else:
        console.write_rendered(terminal.render(result.document, colour=console.has_colours()))
        if result.page:
            console.write(f"report: {result.page}\n")
    for why in result.unmade or ():
        console.say(why)
    if result.unmade is None:
        again = f"clusterctl report {result.document.run} --format html --output FILE"
        console.say(f"interrupted while the reports were written; the verdict stands. To make one: {again}")
    if save_baseline and result.document.verdict == "pass" and result.exit_code != EXIT_GOOD:
        console.say("not saved as the baseline: the verdict is not recorded")
    elif save_baseline:
        _save(plan, result.document)
    return result.exit_code


def _announce(plan: ValidationPlan) -> None:
    """Say which nodes and checks, what is excluded, what the jobs are given, and the baseline."""
    nodes = [node.name for node in plan.spec.nodes if not node.excluded]
    console.say(
        f"validate {counted(len(nodes), 'node')} with {_named(plan.suite)}: {format_hosts(nodes) or 'none'}"
    )
    for node in plan.spec.nodes:
        if node.excluded:
            console.say(f"{node.name}: excluded, {node.excluded}")
    for exclusion in lapsed_exclusions(plan.spec.exclusions, datetime.now(UTC).date()):
        console.say(exclusion.lapsed)
    if variables := list_variables({node: plan.spec.settings_of(node).environment for node in nodes}):
        console.say(f"environment of the jobs: {', '.join(variables)}")
    if plan.baseline is not None:
        console.say(f"measurements are compared with {plan.baseline.named}")


def _named(suite: Suite) -> str:
    if suite.only:
        return f"{counted(len(suite.only), 'check')} of the {suite.name} suite ({', '.join(suite.only)})"
    return f"the {suite.name} suite"


def _save(plan: ValidationPlan, document: Document) -> None:
    if document.verdict != "pass":
        console.say(f"not saved as the baseline: the verdict is {document.verdict}")
        return
    console.say(f"saved as the baseline: {baselines.save(plan.directory, document)}")


def _acknowledge(named: Path | None, hosts: str) -> int:
    inventory = opened(named)
    names = {host.name for host in inventory.matching(hosts)}
    nodes = [host.name for host in inventory.gpu_nodes if host.name in names]
    when = acknowledged.acknowledge(inventory.directory, nodes)
    console.say(
        f"with --since-ack, Xids, SXids, crashes and BMC events on {format_hosts(nodes) or 'no node'} "
        f"count from {when:%F %T} UTC"
    )
    return EXIT_GOOD


def _left_on_nodes(left: Sequence[Mapping[str, Any]]) -> str:
    """Of an interrupted run: that its containers were ended, or on which nodes that failed."""
    if not left:
        return "what this run had started on the nodes was ended"
    named = ", ".join(f"{str(one.get('container', ''))[:12]} on {one.get('node')}" for one in left)
    return f"these containers could not be ended, and end by their own time limit: {named}"


def _agreed() -> bool:
    if not sys.stdin.isatty():
        raise ClusterctlError(
            "--force-busy asks before it disturbs jobs, and there is no terminal to ask on",
            code="validate.not-confirmed",
            hint="Add --yes in scripts.",
        )
    return console.confirm("Disturb nodes that may be in use?")
