"""Ansible, played by data: what each host answers, and what it holds."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from clusterctl.engine.events import (
    Diff,
    PlayStarted,
    Stats,
    TaskResult,
    TaskStarted,
)
from clusterctl.engine.ledger import HostState, Ledger
from clusterctl.engine.playbook import PlaybookOutcome, PlaybookRequest


def begun(request, on_event, task, module):
    """A play of one task of a_role starts: its ledger, and what tells more of it."""
    ledger = Ledger(request.hosts)

    def tell(event):
        ledger.record(event)
        on_event(event, ledger)

    tell(PlayStarted(1.0, "play", request.hosts))
    tell(TaskStarted(1.0, "t", task, "a_role", module, "x.yml:1"))
    return ledger, tell


@dataclass
class FakeAnsible:
    """Stands where ansible-playbook would: every host answers well; ``says`` puts words into its mouth."""

    says: dict[str, dict] = field(default_factory=dict)
    fails: dict[str, str] = field(default_factory=dict)
    requests: list[PlaybookRequest] = field(default_factory=list)
    pulls: dict[str, dict] = field(default_factory=dict)
    heard: dict[str, dict] = field(default_factory=dict)
    sources: dict[str, dict] = field(default_factory=dict)
    holds: dict[str, dict] = field(default_factory=dict)
    breaks: dict[str, str] = field(default_factory=dict)
    lease_requests: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    jobs: dict[str, list[str]] = field(default_factory=dict)

    def __call__(self, request, on_event, on_tick=None):
        if request.playbook == "leases.yml":
            return self._leases(request)
        self.requests.append(request)
        ledger, tell = begun(request, on_event, "Write a file", "copy")
        states, stats = {}, {}
        site = request.playbook == "site.yml"
        for host in request.hosts:
            pull = {"facts": {"pull": self.pulls[host]}} if host in self.pulls else {}
            about = pull if site else self.says.get(host, {})
            if request.playbook == "offline.yml":
                about = {"facts": {"offline": self._watch(host, request.extra_vars)}}
            failed = site and host in self.fails
            if request.check:
                tell(Diff(2.0, host, "t", [{"header": "/etc/x", "before": "", "after": "hello\n"}]))
            status = "failed" if failed else "changed" if site else "ok"
            tell(TaskResult(2.0, host, "t", status, self.fails.get(host, ""), clusterctl=about))
            changed = int(site and not failed)
            stats[host] = {"ok": int(not failed), "changed": changed, "failures": int(failed),
                           "unreachable": 0, "skipped": 0, "rescued": 0, "ignored": 0}  # fmt: skip
            states[host] = HostState.FAILED if failed else HostState.GOOD
        tell(Stats(3.0, stats))
        return PlaybookOutcome(states, dict.fromkeys(states, ""), ledger, 0, False, False, 1.0)

    def _watch(self, host, variables):
        """What a node's watch says as it starts and as it ends."""
        if variables["clusterctl_offline_state"] == "started":
            return {"sources": self.sources.get(host, {}), "listening": host not in self.sources}
        record = {"run": variables["clusterctl_offline_run"], "inside": {"192.0.2.9": 3}, "outside": [],
                  "lost": 0, "gaps": 0, "names": {}, "ended": True}  # fmt: skip
        return {"record": {**record, **self.heard.get(host, {})}}

    def _leases(self, request):
        """The same for leases.yml, on nodes that remember."""
        ledger, variables = Ledger(request.hosts), request.extra_vars
        state, wanted = variables["clusterctl_lease_state"], variables.get("clusterctl_lease")
        self.lease_requests.append((state, request.hosts))
        first = variables.get("clusterctl_lease_first")
        states = dict.fromkeys(request.hosts, HostState.GOOD)
        for host in sorted(request.hosts, key=lambda host: host != first):
            if state == "taken" and host != first and not self._is_of(first, wanted):
                continue
            if host in self.breaks:
                states[host] = HostState.FAILED
                ledger.record(TaskResult(2.0, host, "t", "failed", self.breaks[host]))
                continue
            jobs = self.jobs.get(host, []) if state == "shown" or host not in self.holds else []
            free = host not in self.holds and not jobs
            taken = state == "taken" and (free or self._is_of(host, wanted))
            freed = state == "freed" and self._is_of(host, wanted)
            if taken:
                self.holds[host] = wanted
            elif freed:
                del self.holds[host]
            said = {"taken": taken, "freed": freed, "holder": self.holds.get(host), "jobs": jobs}
            ledger.hosts[host].facts["lease"] = said
        return PlaybookOutcome(
            states, {**dict.fromkeys(states, ""), **self.breaks}, ledger, 0, False, False, 1.0
        )

    def _is_of(self, host, lease):
        return host in self.holds and all(self.holds[host][key] == lease[key] for key in ("run", "nonce"))

    @property
    def touched(self):
        """Hosts on which the site playbook ran, in order."""
        return [host for request in self.requests if request.playbook == "site.yml" for host in request.hosts]


def records(capsys):
    captured = capsys.readouterr()
    return [json.loads(line) for line in captured.out.splitlines()], captured.err


def lease_of_another(**changed):
    """What stands on a node that another controller's run holds."""
    return {"run": "20260101T000000000-apply-bbbb", "nonce": "n", "who": "anna", "where": "ctrl2",
            "what": "apply", "since": "2026-01-01T00:00:00Z", **changed}  # fmt: skip
