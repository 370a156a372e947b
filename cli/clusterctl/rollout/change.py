"""An apply's preflight, its wait for hosts in use, and the change itself under leases."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from clusterctl import console
from clusterctl.engine.ledger import HostState
from clusterctl.engine.process import terminated_like_interrupted
from clusterctl.engine.wording import counted, format_hosts
from clusterctl.errors import EXIT_CLUSTER_BAD, EXIT_GOOD, EXIT_INTERRUPTED, worst
from clusterctl.rollout import leases, offline, parts, site
from clusterctl.rollout.apply_request import ApplyRequest, Caller
from clusterctl.rollout.drift.probe import DriftProbe, DriftReport
from clusterctl.rollout.preflight import PreflightReport, run_preflight
from clusterctl.rollout.waiting import until_free
from clusterctl.rollout.waves import WavePlan, plan_waves


@dataclass
class ChangeResult:
    """What became of the hosts after preflight."""

    report: PreflightReport
    exit_code: int
    outcome: site.SiteOutcome = field(default_factory=lambda: site.SiteOutcome(WavePlan((), {})))
    watching: offline.Watching = field(default_factory=offline.Watching)
    declined: bool = False


@dataclass(frozen=True)
class Changing:
    """Preflight and the change itself."""

    request: ApplyRequest
    probe: DriftProbe
    inspected: DriftReport
    allowed: offline.Allowed | None
    caller: Caller

    def run(self) -> ChangeResult:
        """Change the hosts on which preflight finds no error, once they are free; wait for that if asked."""
        report = self.inspected.merged(
            run_preflight(self.probe.logging_session, self.inspected.rest(self.probe.chosen.names))
        )
        if not self.request.wait.limit_s:
            self._require_no_leases(report)
        self.caller.show(report)
        report = self._free(report)
        self._require_no_leases(report)
        while True:
            code = _verdict(report)
            if code != EXIT_GOOD or self.request.asked.preflight_alone:
                return ChangeResult(report, code)
            plan = self._plan(report)
            self._announce(plan, report)
            if not self.caller.confirm(plan):
                return ChangeResult(report, code, declined=True)
            try:
                return self._change(plan, report)
            except leases.HostsInUseError as error:
                report = self._free_again(report, error)

    def _free(self, report: PreflightReport) -> PreflightReport:
        # Not ``probe.logging_session``: what preflight asks of these hosts is logged already.
        return until_free(
            self.probe.session, report, self.request.wait, in_use=self._in_use, show=self.caller.show
        )

    def _free_again(self, report: PreflightReport, error: leases.HostsInUseError) -> PreflightReport:
        """After another run was faster: preflight of its hosts when they are free."""
        try:
            with terminated_like_interrupted():
                if not self.request.wait.pause(error.hosts):
                    raise error
        except KeyboardInterrupt:
            return replace(report, interrupted=True)
        fresh = run_preflight(self.probe.session, tuple(error.hosts))
        self.caller.show(fresh)
        report = self._free(report.updated(fresh))
        self._require_no_leases(report)
        return report

    def _require_no_leases(self, report: PreflightReport) -> None:
        """Raises HostsInUseError where another run works on a host that this one would change."""
        if report.leases and not report.interrupted and not self.request.asked.preflight_alone:
            raise leases.refusal(report.leases)

    def _busy(self, report: PreflightReport) -> dict[str, str]:
        """Hosts that are not changed because of what runs on them."""
        chosen, asked = self.probe.chosen, self.request.asked
        return {
            host.name: f"busy: {report.busy[host.name]}"
            for host in chosen.hosts
            if host.name in report.busy
            and host.name not in chosen.outside
            and not asked.allowed("force_busy", host)
        }

    def _in_use(self, report: PreflightReport) -> dict[str, str]:
        return {**self._busy(report), **{host: one.holder for host, one in report.leases.items()}}

    def _plan(self, report: PreflightReport) -> WavePlan:
        chosen, inventory = self.probe.chosen, self.probe.chosen.inventory
        return plan_waves(
            self.inspected.rest(chosen.names),
            registry=[host.name for host in inventory.registry_hosts],
            gpu_nodes=[host.name for host in inventory.gpu_nodes],
            left_out={**self._busy(report), **chosen.outside},
            canaries=self.request.canaries,
            size=self.request.asked.wave,
        )

    def _announce(self, plan: WavePlan, report: PreflightReport) -> None:
        """One line of what is about to be done to how many hosts; then who stays out, who may reboot."""
        chosen, asked = self.probe.chosen, self.request.asked
        what = ", ".join(asked.tags or parts.TAGS)
        waves = "; ".join(f"{wave.name}: {format_hosts(wave.hosts)}" for wave in plan.waves) or "none"
        hosts, number = counted(len(plan.hosts), "host"), counted(len(plan.waves), "wave")
        if plan.hosts or plan.left_out:
            console.say(f"apply {what} to {hosts} in {number}: {waves}")
        for host, why in plan.left_out.items():
            hint = "" if host in chosen.outside else " (--force-busy overrides this)"
            console.say(f"{host}: skipped, {why}{hint}")
        if not asked.tags or "driver" in asked.tags:
            nodes = [host for host in chosen.inventory.gpu_nodes if host.name in plan.hosts]
            may = [host.name for host in nodes if asked.allowed("reboot", host)]
            if may:
                console.say(f"hosts that may be rebooted: {format_hosts(may)}")
            disturbed = [host.name for host in nodes if host.name in report.busy]
            if disturbed:
                console.say(f"busy hosts that are changed, too: {format_hosts(disturbed)}")

    def _change(self, plan: WavePlan, report: PreflightReport) -> ChangeResult:
        """The waves, while their hosts are held, and watched where that is asked."""
        probe, session, watching = self.probe, self.probe.session, offline.Watching()
        with leases.held(session, plan.hosts) as ours:
            probe.discard(() if ours.failures else plan.hosts)
            if ours.failures:
                outcome = site.not_begun(session, plan, ours.failures)
            else:
                with offline.watched(session, plan.hosts, self.allowed) as watching:
                    tags, limits = self.request.asked.tags, self.request.limits
                    outcome = site.apply_waves(
                        probe.logging_session, plan, tags=tags, limits=limits, again=ours.again
                    )
        outcome.add_leases(ours)
        outcome.add_quiet(self.inspected.quiet, self.inspected.reasons)
        outside = probe.chosen.outside
        outcome.busy |= {host: why for host, why in plan.left_out.items() if host not in outside}
        outcome.states |= dict.fromkeys(outside, HostState.UNTOUCHED)
        outcome.reasons |= outside
        return ChangeResult(report, worst(outcome.exit_code, watching.exit_code), outcome, watching)


def _verdict(report: PreflightReport) -> int:
    if report.interrupted:
        return EXIT_INTERRUPTED
    return EXIT_CLUSTER_BAD if report.errors else EXIT_GOOD
