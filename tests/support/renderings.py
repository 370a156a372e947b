"""What each command prints of others' words, from records made by hand: nobody is reached."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from rich.color import ColorSystem

from clustercheck.model import Culprit, Subject, Verdict
from clustercheck.result.document import Document
from clusterctl import console
from clusterctl.cluster import hosts_table
from clusterctl.cluster.inventory import Host
from clusterctl.cluster.known_hosts import HostKey
from clusterctl.cluster.lock import LockedImage
from clusterctl.cluster.pinning import Proposal
from clusterctl.cluster.quarantine import QuarantineEntry
from clusterctl.cluster.scan import Reached
from clusterctl.commands import preflight, runs, status
from clusterctl.commands.hosts import keys
from clusterctl.commands.images import options, prune
from clusterctl.commands.registry import host as registry_host_command
from clusterctl.commands.registry import output
from clusterctl.engine.events import (
    Diff,
    HostFinished,
    HostStarted,
    PlayStarted,
    TaskResult,
    TaskStarted,
    WaveFinished,
    WaveStarted,
)
from clusterctl.engine.failure import Failure
from clusterctl.engine.lease import Lease
from clusterctl.engine.ledger import HostRecord, HostState, Ledger
from clusterctl.engine.live_screen import LiveScreen
from clusterctl.engine.plain_lines import PlainLines
from clusterctl.engine.progress import JsonLines
from clusterctl.errors import ClusterctlError
from clusterctl.registry.harbor.change import Action, FieldDifference, HarborChange, Remark
from clusterctl.registry.harbor.reconcile import ReconcilePlan
from clusterctl.registry.images.mirrored import Brought
from clusterctl.registry.images.outcome import TransferOutcome, TransferState
from clusterctl.registry.images.prune import Pruning
from clusterctl.report import files, terminal
from clusterctl.report.progress import ValidationProgress
from clusterctl.rollout import leases, offline, pulls, tables
from clusterctl.rollout.inspection import HostStatus
from clusterctl.rollout.offline import Watching
from clusterctl.rollout.preflight import PreflightFinding, PreflightReport, PreflightSeverity
from clusterctl.rollout.pulls import NodePull, WavePull
from clusterctl.rollout.registry_host import OperationResult
from clusterctl.rollout.site import SiteOutcome
from clusterctl.rollout.waves import WavePlan
from clusterctl.runs.store import Run


@dataclass(frozen=True)
class Printed:
    """What a command wrote."""

    out: str
    err: str


def captured(render: Callable[[str], None], text: str, *, colours: bool = False) -> Printed:
    """What ``render`` prints of ``text``, to a terminal with colours if asked for."""
    out, err = io.StringIO(), io.StringIO()
    with _colours(colours), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        render(text)
    return Printed(out.getvalue(), err.getvalue())


@contextlib.contextmanager
def _colours(wanted: bool) -> Iterator[None]:
    screens = (console.RESULTS, console.MESSAGES)
    before = [(one._force_terminal, one._color_system) for one in screens]
    for one in screens:
        one._force_terminal, one._color_system = wanted, ColorSystem.TRUECOLOR if wanted else None
    try:
        yield
    finally:
        for one, (forced, system) in zip(screens, before, strict=True):
            one._force_terminal, one._color_system = forced, system


def lease_of(text: str) -> Lease:
    return Lease(run=text, nonce="n", who=text, where=text, what=text, since=text, directory=text)


def image_of(text: str) -> LockedImage:
    return LockedImage.model_construct(
        name=text, source=text, target=text, tag=text, digest=text, layers=(), cuda=text, minimum_driver=text
    )


def reached_of(text: str) -> Reached:
    key = HostKey(text, text)
    words = ("state", "because", "remedy", "os", "kernel", "python", "sudo", "quarantined")
    return Reached(
        "gpu01",
        text,
        2222,
        text,
        keys=(key,),
        pinned=(key,),
        login_s=1.0,
        shell_s=2.0,
        **dict.fromkeys(words, text),
    )


def document_of(document: Document, text: str) -> Document:
    """A whole document with the text wherever a node has a word in it."""
    culprit = Culprit("node", text or "gpu01", text, text)
    results = tuple(
        replace(
            one, because=text, remedy=text, measured=text, expected=text, unit=text, subject=Subject(text)
        )
        if one.verdict is not Verdict.PASS
        else replace(one, measured=text)
        for one in document.results
    )
    environment = {"image": text, "nodes": {text: {text: text}}}
    return replace(document, cluster=text, culprits=(culprit,), results=results, environment=environment)


def _status(text: str) -> None:
    mute = ("gpu01", text, text, 8, text, text, text, text, text, text, True, text)
    found = [HostStatus(*mute), HostStatus("gpu02", unreachable=text), HostStatus("gpu03", quarantined=text)]
    found += [HostStatus("gpu04", lease={"run": text, "who": text})]
    tables.show(status._table(found))
    for run, hosts in status._leases(found).items():
        console.RESULTS.print(f"Run {run} holds {', '.join(hosts)}")
    for one in found:
        console.emit(one.as_record())


def _scan(text: str) -> None:
    good = replace(reached_of(text), state="ok", sudo="none", python="none")
    keys._report([reached_of(text), good], as_json=False)
    keys._report([reached_of(text)], as_json=True)
    for line in hosts_table.fingerprint_lines([Proposal(reached_of(text), (HostKey(text, text),), False)]):
        console.say(line)


def _list(text: str) -> None:
    host = Host("gpu01", text, 22, text, (text, "gpu_nodes"), {}, text)
    entry = QuarantineEntry("gpu01", reason=text, by=text, since=text, until=text)
    hosts_table.show(hosts_table.inventory_table([host], {"gpu01": None}, {"gpu01": entry}))


def _preflight(text: str) -> None:
    findings = tuple(
        PreflightFinding("gpu01", one, text, text, text, text, text) for one in PreflightSeverity
    )
    report = PreflightReport(
        findings, {"gpu01": HostState.FAILED}, {"gpu01": text}, {"gpu01": lease_of(text)}
    )
    preflight.show(report, as_json=False)
    preflight.show(report, as_json=True)


def failure_of(text: str) -> Failure:
    return Failure("gpu01", text, text, text, text, text, text)


def _plan(text: str) -> None:
    parts = [{"header": text, "prepared": text}, {"header": text, "before": text, "after": f"{text}\nx\n"}]
    one = HostRecord("gpu01", changes=[text], diffs=[(text, part) for part in parts])
    tables.show(tables.planned({"gpu01": one, "gpu02": HostRecord("gpu02")}))
    console.emit({"type": "change", "diff": [text for _, text in tables.diff_texts(one)]})
    for wave in _pulled(text):
        console.RESULTS.print(f"images, {pulls.predicted(wave)}", soft_wrap=True)


def _pulled(text: str) -> list[WavePull]:
    return [WavePull(text, (NodePull("gpu01", 10**9, 3, 1000.0, 9.0, 8.0),), 8.0, text)]


def _apply(text: str) -> None:
    outcome = SiteOutcome(WavePlan((), {}))
    outcome.add_failure(failure_of(text))
    outcome.busy["gpu02"], outcome.reasons["gpu03"] = text, text
    tables.show(tables.hosts_table(["gpu01", "gpu02", "gpu03"], outcome))
    tables.tell_failures([failure_of(text)])
    pulls.tell(_pulled(text))
    contact = {"address": text, "protocol": text, "times": 1, "port": 1, "by": text, "unit": text}
    found = {"gpu01": {"run": "r", "outside": [contact]}, "gpu02": {"run": "r", "open": [contact]}}
    offline.tell(Watching(("gpu01", "gpu02", "gpu03"), "r", found, {"gpu04": text}))


def _leases(text: str) -> None:
    console.explain(leases.refusal({"gpu01": lease_of(text)}))
    leases._say_left(lease_of(text), {"gpu01": text})
    leases._say_kept(lease_of(text), {"gpu01": text})


def _images(text: str) -> None:
    error = ClusterctlError(text, code="images.corrupt", where=text, hint=text)
    outcomes = [TransferOutcome(image_of(text), state, error) for state in TransferState]
    tables.show(options.outcome_table(outcomes))
    options.tell_failures(outcomes)
    tables.show(prune._table([Pruning(Brought(text, text, text, text, text, text))]))
    for one in outcomes:
        console.emit(one.as_record())


def _registry(text: str) -> None:
    differences = (FieldDifference(text, text, text), FieldDifference(text, [text], {text: text}))
    changes = [HarborChange(text, text, action, lambda: None, differences) for action in Action]
    plan = ReconcilePlan([changes], [Remark(text, text, text)])
    output.show_plan(plan)
    output.emit_plan(plan)
    answer = {"backup": text, "files": 1, "bytes": 1, "version": text, "storage": text, "damaged": [text] * 9}
    result = OperationResult("r", text, 0, 1, answer, (failure_of(text),))
    registry_host_command._tell(result, check=True)
    tables.tell_failures(result.failures)
    console.emit(result.as_record())


def _runs(text: str) -> None:
    summary = {"verdict": text, "culprits": [text]}
    run = Run(text, text, (text,), text, text, text, 1, text, 1, summary, directory=Path())
    for cell in runs._row(run):
        console.RESULTS.print(cell)
    console.RESULTS.print(runs.ending(run))
    console.write(f"{text}\n")


def _events(text: str) -> Iterator[object]:
    yield WaveStarted(0.0, text, 1, 2, ("gpu01",))
    yield PlayStarted(0.0, text, ["gpu01", "gpu02"])
    yield TaskStarted(0.0, "t", text, text, "apt", text)
    yield HostStarted(0.0, "gpu01", "t")
    yield Diff(0.0, "gpu01", "t", [{"header": text, "before": text, "after": "x"}])
    yield TaskResult(1.0, "gpu02", "t", "changed", clusterctl={"busy": text, "reboot": text})
    yield TaskResult(1.0, "gpu01", "t", "failed", text, stderr=[text], clusterctl={"remedy": text})
    yield HostFinished(2.0, "gpu01", text, text, text)
    yield WaveFinished(2.0, text, go=False, reason=text, states={text: text})


def _progress(text: str) -> None:
    for display in (PlainLines(text, lambda: 100.0), JsonLines()):
        _show_on(display, text)


def draw_live(text: str) -> None:
    """On a terminal alone: it draws."""
    screen = LiveScreen(text, lambda: 100.0)
    screen._reporter.open(text, ["gpu01", "gpu02"])
    ledger = Ledger(["gpu01", "gpu02"])
    for event in _events(text):
        ledger.record(event)
        screen.on_event(event, ledger)
    screen.on_tick(ledger)


def _show_on(display: PlainLines | JsonLines, text: str) -> None:
    ledger = Ledger(["gpu01", "gpu02"])
    display.open(text, ["gpu01", "gpu02"])
    for event in _events(text):
        ledger.record(event)
        display.on_event(event, ledger)
        display.on_tick(ledger)
    display.close()


def _validate(text: str) -> None:
    progress = ValidationProgress(as_json=False)
    failure = {"rank": text, "node": text, "state": text, "because": text}
    for event in (
        {"type": "probe", "node": text, "unreachable": text},
        {"type": "probe", "node": "gpu02", "busy": text},
        {"type": "job_placed", "job": text, "method": text},
        {"type": "job_leftover_removed", "job": text, "node": text, "what": text},
        {"type": "job_finished", "job": text, "good": False, "first_failure": failure},
        {"type": "search_finished", "launches": 1, "rounds": 1, "trials": 1, "because": text},
        {"type": "result", "check": text, "verdicts": {"fail": 1}},
    ):
        progress.show(event)
    progress._tell_aggregated(at_once=True)
    console.say(progress._state.summary(1.0))


RENDERINGS: Mapping[str, Callable[[str], None]] = {
    "status": _status,
    "hosts scan": _scan,
    "hosts list": _list,
    "preflight": _preflight,
    "plan": _plan,
    "apply": _apply,
    "leases": _leases,
    "images": _images,
    "registry": _registry,
    "runs": _runs,
    "progress": _progress,
    "validate": _validate,
}


def reports_of(document: Document) -> dict[str, str]:
    """Every report, as it is written to a file or to the terminal."""
    made = {name: "".join(render(document)) for name, (_, render) in files.REPORTS.items()}
    return {**made, "table": terminal.render(document), "json": "".join(files.pieces(document.members()))}
