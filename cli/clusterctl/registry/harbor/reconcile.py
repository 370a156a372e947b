"""Plan and apply: look at all that is there, say what differs, and do it in an order that holds."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from clusterctl.errors import EXIT_CLUSTER_BAD, EXIT_GOOD, EXIT_INCOMPLETE, ClusterctlError
from clusterctl.registry.harbor import (
    answers,
    endpoints,
    immutables,
    preheat,
    projects,
    replications,
    robot_accounts,
    robots,
    schedules,
)
from clusterctl.registry.harbor.api_errors import read_only
from clusterctl.registry.harbor.change import (
    ChangeOutcome,
    ChangeState,
    Deferred,
    HarborChange,
    Remark,
    Subject,
)
from clusterctl.registry.harbor.client import Refused
from clusterctl.registry.harbor.declared import DeclaredHarbor
from clusterctl.registry.harbor.site import LONG, Finding, Site, each
from clusterctl.registry.oci.deadline import within

# After these there is no use in asking Harbor for anything more.
ENDS_ALL = (
    "registry.api-unreachable",
    "registry.api-denied",
    "registry.api-certificate",
    "registry.read-only",
)

# For all that is read before anything is changed.
PLAN_S = 1800.0
# For all that is changed: thousands of objects take minutes.
APPLY_S = 3600.0


@dataclass
class ReconcilePlan:
    """What would be done: stages one after the other, within a stage at the same time."""

    stages: list[list[HarborChange]] = field(default_factory=list)
    remarks: list[Remark] = field(default_factory=list)

    @property
    def changes(self) -> list[HarborChange]:
        """All of them, in order."""
        return [change for stage in self.stages for change in stage]

    @property
    def exit_code(self) -> int:
        """Bad where something stands in the way of what is declared."""
        return EXIT_CLUSTER_BAD if any(remark.blocks for remark in self.remarks) else EXIT_GOOD

    def add(self, *sources: Iterable[Finding]) -> None:
        """A stage from what was found."""
        found = [finding for source in sources for finding in source]
        self.remarks += [one for one in found if isinstance(one, Remark)]
        self.stages.append([one for one in found if isinstance(one, HarborChange)])


@dataclass
class Applied:
    """What became of a plan. ``stopped`` is why it ended before its end."""

    plan: ReconcilePlan
    outcomes: list[ChangeOutcome] = field(default_factory=list)
    stopped: ClusterctlError | None = None

    def count(self, state: ChangeState) -> int:
        """How many ended so."""
        return sum(1 for one in self.outcomes if one.state is state)

    @property
    def exit_code(self) -> int:
        """Bad where something failed, incomplete where something must wait."""
        if self.stopped is not None:
            return self.stopped.exit_code
        if self.count(ChangeState.FAILED):
            return EXIT_CLUSTER_BAD
        return self.plan.exit_code or (EXIT_INCOMPLETE if self.count(ChangeState.DEFERRED) else EXIT_GOOD)


def configure(site: Site, *, reading: bool = False) -> None:
    """What Harbor is set to, as far as it matters here.

    Raises ClusterctlError (``registry.read-only``), except those who are only ``reading``.
    """
    configuration = site.client.find("configuration", "/configurations", answers.ConfigurationAnswer) or {}
    site.robot_prefix = _value(configuration, "robot_name_prefix", "robot$")
    site.quotas = bool(_value(configuration, "quota_per_project_enable", True))
    if _value(configuration, "read_only", False) and not reading:
        raise read_only(site.client.access.url)


def plan(site: Site, declared: DeclaredHarbor) -> ReconcilePlan:
    """Look at everything, within PLAN_S, and compare. Raises ClusterctlError (``registry.*``)."""
    with within(PLAN_S), site.client.keeping():
        return _plan(site, declared)


def _plan(site: Site, declared: DeclaredHarbor) -> ReconcilePlan:
    wanted, preheated = declared.registry_projects, declared.registry_preheat
    named = tuple(one.name for one in wanted)
    needed = {name for one in declared.registry_robots for _, name in robot_accounts.needs(one)}
    needed |= {one.project for one in preheated.policies}
    site.declared = _declared(declared)
    made = ReconcilePlan()

    def add(*sources: Iterable[Finding]) -> None:
        made.add(_possible(site, itertools.chain(*sources)))

    try:
        ends = endpoints.look(site)
        there = projects.look(site, wanted, needed)
        rules = immutables.look(site, wanted)
        copies = replications.look(site)
        accounts = robots.look(site, declared.registry_robots, named)
        clocks = schedules.look(site, declared.registry_schedules)
        networks = preheat.look(site)
        heats = preheat.look_policies(site, (*named, *(one.project for one in preheated.policies)))
        add(endpoints.findings(site, declared.registry_endpoints, ends))
        unread = [
            site.block(projects.KIND, name, f"cannot be read, and nothing in it is changed: {why}")
            for name, why in sorted(site.unread.items())
        ]
        if site.unlisted:
            why = f"cannot be listed, and nothing is said of them: {site.unlisted}"
            unread.append(Remark("projects", "that are not declared", why))
        readable = tuple(one for one in wanted if one.name not in site.unread)
        accounts = {key: one for key, one in accounts.items() if not site.is_in_unread(key, "+")}
        heats = {key: one for key, one in heats.items() if not site.is_in_unread(key, "/")}
        add(
            unread,
            projects.findings(site, readable, there),
            preheat.findings(site, preheated.instances, networks),
        )
        add(
            immutables.findings(site, readable, rules),
            replications.findings(site, declared.registry_replications, copies),
            robots.findings(site, declared.registry_robots, accounts),
            schedules.findings(site, declared.registry_schedules, clocks),
            preheat.new_findings(site, preheated.instances, networks),
        )
        add(preheat.policy_findings(site, preheated.policies, heats))
        spared = declared.undeclared
        add(
            immutables.surplus_findings(site, readable, rules),
            replications.surplus_findings(
                site, declared.registry_replications, copies, spared=spared("registry_replications")
            ),
            robots.surplus_findings(
                site, declared.registry_robots, accounts, spared=spared("registry_robots")
            ),
            preheat.surplus_policies(
                site, preheated.policies, heats, spared=preheated.undeclared("policies")
            ),
        )
        add(projects.surplus_findings(site, wanted, there, needed, spared=spared("registry_projects")))
        # Policies of a project that is not declared go with it; only then is their network free.
        add(
            preheat.idle_findings(site, preheated.instances, networks),
            preheat.surplus_findings(
                site, preheated.instances, networks, spared=preheated.undeclared("instances")
            ),
        )
        add(
            endpoints.surplus_findings(
                site, declared.registry_endpoints, ends, spared=spared("registry_endpoints")
            )
        )
    except Refused as refused:
        raise failed(site, refused) from refused
    return made


def _declared(declared: DeclaredHarbor) -> set[Subject]:
    """What others may need of it."""
    return {
        *((endpoints.KIND, one.name) for one in declared.registry_endpoints),
        *((projects.KIND, one.name) for one in declared.registry_projects),
        *((preheat.KIND, one.name) for one in declared.registry_preheat.instances),
    }


def _possible(site: Site, found: Iterable[Finding]) -> Iterator[Finding]:
    """What needs something that will never be there is said, and not tried for ever."""
    for one in found:
        needs = one.needs if isinstance(one, HarborChange) else ()
        why = next(filter(None, (_never(site, need) for need in needs)), "")
        yield site.public_finding(site.block(one.kind, one.name, why) if why else one)


def _never(site: Site, need: Subject) -> str:
    kind, name = need
    if need in site.blocked:
        return f"needs {kind} {name}, which cannot be as declared"
    if need not in site.ids and need not in site.declared:
        return f"needs {kind} {name}, which is neither declared nor in Harbor"
    return ""


def apply(site: Site, made: ReconcilePlan, tell: Callable[[ChangeOutcome], None]) -> Applied:
    """Do it, within APPLY_S. One object that fails keeps only those from being done that need it.

    With `--prune` Harbor itself says how much there is to do.
    """
    with within(APPLY_S):
        return _apply(site, made, tell)


def _apply(site: Site, made: ReconcilePlan, tell: Callable[[ChangeOutcome], None]) -> Applied:
    applied = Applied(made)
    lacking: set[Subject] = set()
    lock, over = threading.Lock(), threading.Event()

    def one(change: HarborChange) -> None:
        if over.is_set():
            return
        try:
            outcome = _outcome(change, lacking)
            outcome = replace(outcome, why=site.public(outcome.why, LONG))
        except ClusterctlError as error:
            over.set()
            with lock:
                applied.stopped = applied.stopped or error
            return
        with lock:
            applied.outcomes.append(outcome)
            tell(outcome)

    if not made.changes:
        return applied
    robot_accounts.begin(site, (change.name for change in made.changes if robots.lacks_secret(change)))
    try:
        for stage in made.stages:
            each(site, one, stage)
            if over.is_set():
                break
            lacking |= {o.change.subject for o in applied.outcomes if o.state is not ChangeState.DONE}
    finally:
        site.vault.save()
    return applied


def failed(site: Site, refused: Refused) -> ClusterctlError:
    """Harbor's refusal of a look, as an error that ends the command."""
    return ClusterctlError(
        f"Harbor refused to list its objects ({refused.what}): {refused.sentence}",
        code="registry.api-refused",
        where=site.client.access.url,
        hint="Look at Harbor's health and its logs, and run it again.",
        exit_code=EXIT_CLUSTER_BAD,
    )


def _outcome(change: HarborChange, lacking: set[Subject]) -> ChangeOutcome:
    missing = [name for kind, name in change.needs if (kind, name) in lacking]
    if missing:
        return ChangeOutcome(change, ChangeState.DEFERRED, f"waits for {', '.join(missing)}")
    try:
        change.act()
    except Deferred as deferred:
        return ChangeOutcome(change, ChangeState.DEFERRED, str(deferred))
    except Refused as refused:
        return ChangeOutcome(change, ChangeState.FAILED, refused.sentence)
    except ClusterctlError as error:
        if error.code in ENDS_ALL:
            raise
        return ChangeOutcome(change, ChangeState.FAILED, error.what)
    return ChangeOutcome(change, ChangeState.DONE)


def _value(configuration: dict[str, Any], name: str, default: Any) -> Any:
    """An item of Harbor's configuration: a value, and whether it may be edited."""
    item = configuration.get(name)
    value = item.get("value") if isinstance(item, dict) else None
    return default if value is None else value
