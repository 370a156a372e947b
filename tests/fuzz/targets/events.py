"""What hosts answer to playbooks and to the drift probe."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from tests.fuzz.target import Target, answer_of, encoded
from tests.support.drift_answers import Recorded, read_recorded
from tests.support.hostile import require_plain
from tests.support.renderings import captured

from clustercheck.launch.transport import Completed
from clustercheck.parse.reading import CannotReadError
from clusterctl.cluster.inventory import Host
from clusterctl.engine import lease_nodes, recovery
from clusterctl.engine.event_reading import parse, read_event
from clusterctl.engine.events import (
    Diff,
    Event,
    HostStarted,
    ItemResult,
    JobFinished,
    JobStarted,
    PlayStarted,
    Retry,
    Stats,
    Status,
    TaskResult,
    TaskStarted,
    as_line,
    as_record,
)
from clusterctl.engine.ledger import BAD, HostRecord, HostState, Ledger
from clusterctl.engine.plain_lines import PlainLines
from clusterctl.engine.playbook import PlaybookOutcome
from clusterctl.rollout import preflight, pulls, registry_host, tables, watch_record
from clusterctl.rollout.drift.calls import CONTROLLER
from clusterctl.rollout.drift.replay import read_answers
from clusterctl.rollout.drift.report import build_report, fingerprint_answers
from clusterctl.rollout.offline import why_not
from clusterctl.rollout.waves import Wave

HOSTS = ("gpu01", "gpu02")
BAD_RESULTS = (Status.FAILED, Status.UNREACHABLE)
FINDING = {
    "severity": "error",
    "subject": "disk",
    "found": "1 GB",
    "expected": "20 GB",
    "remedy": "x",
    "code": "",
}
LEASE = {"run": "r", "nonce": "n", "who": "anna", "where": "c", "what": "apply", "since": "s", "pid": 7}
CONTACT = {"address": "192.0.2.1", "protocol": "tcp", "port": 443, "times": 2, "by": "apt", "unit": ""}
FACTS: Mapping[str, Any] = {
    "lease": {"taken": False, "freed": False, "holder": LEASE, "jobs": ["j1.2"]},
    "pull": {"digest": "sha256:0", "layers": {"sha256:1": 7}, "bytes": 7, "device": "eth0", "link_mbps": 1000,
             "seconds": 1.5, "download_s": 1.0},
    "offline": {"sources": {"deb.example": ["/etc/apt/sources.list"]}, "listening": True,
                "record": {"run": "r", "ended": True, "inside": {"192.0.2.9": 3}, "outside": [CONTACT],
                           "open": [CONTACT], "gaps": 0, "lost": 0, "names": {"x.": 1}}},
    "backup": {"backup": "/b/20260131T120000Z", "files": 3, "bytes": 9, "version": "v2.15.2",
               "database": "own", "storage": "filesystem", "read_only_s": 1.5, "damaged": ["sha256:0"]},
}  # fmt: skip
JOBS = [
    {"id": "j1.2", "state": "finished", "failed": False, "changed": True, "rc": 0, "msg": "ok", "code": ""},
    {"id": "j3.4", "state": "running"},
    {"id": "j5.6", "state": "lost"},
]
REPORT: Mapping[str, Any] = {"busy": "a job", "reboot": "a kernel", "remedy": "x", "findings": [FINDING],
                             "facts": FACTS}  # fmt: skip
EVENTS = (
    PlayStarted(0.0, "site", HOSTS),
    TaskStarted(1.0, "t", "Install packages", "nvidia_driver", "apt", "x.yml:1"),
    HostStarted(1.0, "gpu01", "t"),
    ItemResult(1.0, "gpu01", "t", "ok", "curl", REPORT),
    Retry(1.0, "gpu01", "t", 1, 3),
    JobStarted(1.0, "gpu01", "j1.2", "t", "/root/.ansible/j1.2", 60),
    JobFinished(1.0, "gpu01", "j1.2", changed=True, rc=0),
    TaskResult(2.0, "gpu01", "t", "failed", "no", rc=1, stderr=["a"], items=[{"label": "x", "msg": "y"}],
               clusterctl=REPORT),
)  # fmt: skip
COUNTS = {"ok": 1, "changed": 0, "skipped": 0, "failures": 0, "unreachable": 0}


# Events


def _ledger() -> Ledger:
    ledger = Ledger(HOSTS)
    for event in (EVENTS[0], EVENTS[1], TaskResult(1.0, "gpu02", "t", "ok", clusterctl={"busy": "a job"})):
        ledger.record(event)
    return ledger


def _events(data: bytes) -> None:
    """Many lines; a host of which none speaks stands as it stood, and a journal gives back what it got."""
    ledger, display, err = _ledger(), PlainLines("apply", lambda: 100.0), io.StringIO()
    before = asdict(ledger.hosts["gpu02"])
    spoke: set[str] = set()
    with contextlib.redirect_stderr(err), contextlib.redirect_stdout(err):
        display.open("site", HOSTS)
        for line in data.split(b"\n"):
            try:
                event = read_event(line)
            except CannotReadError as error:
                require_plain(str(error))
                continue
            if event is None:
                continue
            _require_as_said(event, line)
            # Only Ansible's own end says something of hosts that it does not name.
            spoke |= set(event.hosts) if isinstance(event, Stats) else {getattr(event, "host", "")}
            ledger.record(event)
            if isinstance(event, TaskResult) and event.status in BAD_RESULTS and event.host in HOSTS:
                assert ledger.state(event.host) in BAD, "a step that failed stands as a good one"
            display.on_event(event, ledger)
            display.on_tick(ledger)
            _require_journalled(event)
        display.close()
    require_plain(err.getvalue())
    after = asdict(ledger.hosts["gpu02"])
    if "gpu02" not in spoke:
        # Of a play that starts every host hears.
        assert {**after, "aimed": True} == {**before, "aimed": True}
        assert ledger.state("gpu02") is _ledger().state("gpu02")


def _require_as_said(event: Event, line: bytes) -> None:
    """The event is of the host and of the kind that its line names; or that host's failed step."""
    said = json.loads(line.decode(errors="replace"))
    kind = as_record(event)["event"]
    failed = isinstance(event, TaskResult) and event.status == Status.FAILED
    assert kind == said["event"] or (failed and said["event"] == "item"), f"{said['event']} is read as {kind}"
    for name in ("host", "task_id", "job_id"):
        read = getattr(event, name, None)
        assert not read or read == said[name] or "\ufffd" in read, f"{said[name]!a} is read as {read!a}"
    if isinstance(event, TaskResult) and not failed:
        assert event.status == said["status"], f"{said['status']!a} is read as {event.status}"


def _require_journalled(event: Event) -> None:
    line = as_line(event)
    assert line.count("\n") == 1
    require_plain(line)
    back = parse(line)
    assert back is not None, "an event that was taken is not read from the journal"
    if not isinstance(event, Diff):
        assert as_record(back) == as_record(event)


def _event_seeds() -> list[bytes]:
    lines = [as_line(event).encode() for event in EVENTS]
    stats = Stats(3.0, dict.fromkeys(HOSTS, COUNTS))
    diff = {"event": "diff", "at": 1.0, "host": "gpu01", "task_id": "t",
            "parts": [{"header": "/etc/x", "before": "a", "after": "b"}]}  # fmt: skip
    return [*lines, b"".join(lines), as_line(stats).encode(), *encoded(diff)]


# The drift probe


def _recorded() -> tuple[Recorded, Recorded]:
    found = read_recorded()
    return found["gpu01"], found["registry01"]


def _drift(data: bytes) -> None:
    """One host's answer; the other is unchanged whatever this one says."""
    one, other = _recorded()
    calls = [call for call in one.record.calls if call.at != CONTROLLER]
    answers = read_answers(Completed(0, data.decode(errors="replace"), "", 0.0), calls)
    controller = {**one.answers[CONTROLLER], **other.answers[CONTROLLER]}
    given = {"gpu01": answers, "registry01": other.answers[""]}
    report = build_report({"gpu01": one.record, "registry01": other.record}, controller, given)
    assert "registry01" in report.quiet
    assert ("gpu01" in report.quiet) is not ("gpu01" in report.differing)
    require_plain(*report.differing.get("gpu01", ()), *report.reasons.values())
    require_plain(*(text for one in report.findings for text in (one.subject, one.found, one.remedy)))
    fingerprint_answers(one.record.calls, {"": answers, CONTROLLER: controller})


def _drift_seeds() -> list[bytes]:
    one, _ = _recorded()
    whole = one.answers[""]
    some = [{"answers": {identity: result}} for identity, result in list(whole.items())[:10]]
    return encoded({"answers": whole}, {"missing": True}, *some)


# Facts of modules


def _jobs(data: bytes) -> None:
    for job in recovery.read_jobs(answer_of(data)):
        if job.state != "running":
            ended = recovery._finished("gpu01", job)
            require_plain(recovery._sentence(ended))
            _require_journalled(ended)


def _outcome(reports: Mapping[str, object]) -> PlaybookOutcome:
    """A preflight whose hosts answered this."""
    ledger = Ledger(HOSTS)
    for event in (PlayStarted(0.0, "p", HOSTS), EVENTS[1]):
        ledger.record(event)
    for host, report in reports.items():
        line = {
            "event": "result",
            "at": 2.0,
            "host": host,
            "task_id": "t",
            "status": "ok",
            "clusterctl": report,
        }
        event = read_event(json.dumps(line))
        assert event is not None
        ledger.record(event)
    ledger.record(Stats(3.0, dict.fromkeys(HOSTS, COUNTS)))
    bad = {host: HostState.FAILED for host in HOSTS if ledger.state(host) is HostState.FAILED}
    states = {**dict.fromkeys(HOSTS, HostState.GOOD), **bad}
    return PlaybookOutcome(states, dict.fromkeys(HOSTS, ""), ledger, 0, False, False, 1.0)


def _findings(data: bytes) -> None:
    """What preflight finds on one host changes nothing of the other."""
    alone = preflight.report_of(_outcome({"gpu01": {}, "gpu02": REPORT})).of({"gpu02"})
    report = preflight.report_of(_outcome({"gpu01": answer_of(data), "gpu02": REPORT}))
    assert report.of({"gpu02"}) == alone
    printed = captured(lambda _: tables.show(tables.findings_table(report.findings)), "")
    require_plain(
        printed.out, printed.err, *report.busy.values(), *(one.holder for one in report.leases.values())
    )


def _facts(data: bytes) -> None:
    """The facts of one host, each by who reads it."""
    answer = answer_of(data)
    facts = answer if isinstance(answer, dict) else {"lease": answer, "pull": answer}
    one = HostRecord("gpu01", facts=facts)
    answered = lease_nodes._answer(one, HostState.GOOD, "")
    if answered is not None:
        require_plain(answered.failed, *answered.jobs, answered.holder.holder if answered.holder else "")
    node = Host("gpu01", "192.0.2.1", 22, "", (), {})
    err = io.StringIO()
    with contextlib.redirect_stderr(err):
        waves = pulls.of_waves([Wave("w", ("gpu01",))], {"gpu01": node}, {"gpu01": one})
    for wave in waves:
        json.dumps(wave.as_record(), allow_nan=False)
        require_plain(pulls.told(wave), pulls.predicted(wave), err.getvalue())
    _refusing(lambda: why_not(watch_record.read_watch(facts.get("offline")).get("record", {}), "r"))
    _refusing(lambda: json.dumps(registry_host.read_backup(facts.get("backup")), ensure_ascii=False))


def _refusing(read: Callable[[], str]) -> None:
    try:
        require_plain(read())
    except CannotReadError as error:
        require_plain(str(error))


TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        Target("event-lines", _event_seeds, _events),
        Target("drift-answer", _drift_seeds, _drift),
        Target("job-answers", lambda: encoded(JOBS, *([job] for job in JOBS)), _jobs),
        Target("preflight-findings", lambda: encoded(REPORT, {"findings": [FINDING] * 3}), _findings),
        Target("module-facts", lambda: encoded(FACTS, *({key: FACTS[key]} for key in FACTS)), _facts),
    )
}
