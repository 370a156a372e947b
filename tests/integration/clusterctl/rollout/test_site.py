"""Waves and recovery with real processes: what stops, what is waited for, what is written down."""

from __future__ import annotations

import json
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest

from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.engine.event_reading import parse
from clusterctl.engine.events import (
    HostFinished,
    JobFinished,
    JobStarted,
    TaskResult,
    WaveFinished,
    as_line,
)
from clusterctl.engine.journal import Journal, open_jobs, read
from clusterctl.engine.ledger import HostState, Ledger
from clusterctl.engine.playbook import PlaybookOutcome, PlaybookRequest, Runner, run_playbook
from clusterctl.engine.progress import PlainLines
from clusterctl.engine.recovery import JobAnswer, _ask, left_behind, recover
from clusterctl.errors import ClusterctlError
from clusterctl.rollout import preflight, site
from clusterctl.rollout.preflight import PreflightSeverity
from clusterctl.rollout.session import Session
from clusterctl.rollout.waves import Wave, WavePlan
from clusterctl.runs.store import RunStore


@pytest.fixture
def cluster(local_site: Path) -> ClusterDirectory:
    return ClusterDirectory(local_site)


def session(cluster: ClusterDirectory, kind: str = "apply") -> Session:
    run = RunStore(cluster).create(kind, [])
    variables = {"ansible_async_dir": str(cluster.root / "async"), "clusterctl_become": False}
    return Session(cluster, run, Journal(run.journal), PlainLines("apply"), b"", variables)


def playbook(cluster: ClusterDirectory, text: str) -> str:
    path = cluster.root / "book.yml"
    path.write_text(textwrap.dedent(text))
    return str(path)


@pytest.mark.parametrize(("check", "told"), [(True, [[], ["gpu01"]]), (False, [None, None])])
def test_in_check_mode_a_wave_knows_whose_play_has_reported_already(cluster, check: bool, told: list) -> None:
    given = []

    def runner(request: PlaybookRequest, *_: object) -> PlaybookOutcome:
        given.append(request.extra_vars.get("clusterctl_waves_before"))
        good, reasons = dict.fromkeys(request.hosts, HostState.GOOD), dict.fromkeys(request.hosts, "")
        return PlaybookOutcome(good, reasons, Ledger(request.hosts), 0, False, False, 0.0)

    ours = replace(session(cluster), runner=runner)
    site.apply_waves(
        ours, WavePlan((Wave("registry", ("gpu01",)), Wave("nodes", ("gpu02",))), {}), check=check
    )
    assert given == told


def test_a_dead_host_in_one_wave_stops_the_next(cluster, monkeypatch, capsys):
    book = """\
        - hosts: all
          gather_facts: false
          tasks:
            - name: Work
              ansible.builtin.command: {argv: ["true"]}
        """
    monkeypatch.setattr(site, "PLAYBOOK", playbook(cluster, book))
    plan = WavePlan((Wave("canary", ("gpu01", "dead01")), Wave("nodes", ("gpu02", "gpu03"))), {})
    ours = session(cluster)
    outcome = site.apply_waves(ours, plan)
    assert outcome.states == {"gpu01": HostState.GOOD, "dead01": HostState.UNREACHABLE}
    assert outcome.stopped == "dead01 could not be reached"
    assert outcome.exit_code == 1
    events = list(read(ours.run.journal))
    assert [(e.name, e.go) for e in events if isinstance(e, WaveFinished)] == [("canary", False)]
    assert {e.host for e in events if isinstance(e, HostFinished)} == {"gpu01", "dead01"}
    hosts = ("gpu01", "dead01", "gpu02", "gpu03")
    summary = site.summary("R", hosts, outcome, outcome.exit_code)
    nothing = {"ok": 0, "changed": 0, "failed": 0, "unreachable": False}
    assert json.loads(json.dumps(summary)) == {
        "type": "summary",
        "run": "R",
        "hosts": {
            "gpu01": {**nothing, "ok": 1, "changed": 1},
            "dead01": {**nothing, "unreachable": True},
            "gpu02": nothing,
            "gpu03": nothing,
        },
        "changed": 1,
        "failed": 0,
        "unreachable": 1,
        "exit": 1,
    }
    assert "stopped: dead01 could not be reached" in capsys.readouterr().err


@pytest.mark.drawn("jobs of a dead controller")
@pytest.mark.parametrize("kind", ["apply", "registry upgrade", "registry restore"])
def test_the_job_of_a_dead_controller_is_waited_for_and_its_outcome_written_down(cluster, monkeypatch, kind):
    book = """\
        - hosts: all
          gather_facts: false
          tasks:
            - name: Start a job, and die before its end
              ansible.builtin.command:
                argv: [sh, -c, "while [ ! -e {{ inventory_dir }}/go ]; do sleep 0.1; done; exit 4"]
              async: 60
              poll: 0
        """
    monkeypatch.setattr(site, "PLAYBOOK", playbook(cluster, book))
    monkeypatch.setattr("clusterctl.engine.recovery.WAIT_A_ROUND_S", 0.1)
    dead = session(cluster, kind)
    site.apply_waves(dead, WavePlan((Wave("nodes", ("gpu01",)),), {}))
    assert len(open_jobs(dead.run.journal)) == 1
    ours = session(cluster)
    store = RunStore(cluster)
    left = left_behind(store, ours.run, ("gpu01", "gpu02"))
    assert [one.run.id for one in left] == [dead.run.id]
    assert left[0].cut_off
    said: list[str] = []

    def say(message: str) -> None:
        said.append(message)
        if message.startswith("waiting"):
            (cluster.root / "go").touch()

    found = recover(
        store,
        left,
        inventory=cluster.hosts_file,
        hosts=("gpu01",),
        declared=("gpu01",),
        forks=1,
        run_directory=ours.run.directory,
        say=say,
        extra_vars=ours.extra_vars,
    )
    assert [(job.host, job.failed, job.rc, job.lost) for job in found] == [("gpu01", True, 4, False)]
    assert "waiting for the earlier run's job on gpu01; no second job is started" in said
    assert open_jobs(dead.run.journal) == []
    (written,) = [e for e in read(dead.run.journal) if isinstance(e, JobFinished)]
    assert written.recovered
    assert left_behind(store, ours.run, ("gpu01", "gpu02")) == []
    assert store.get(dead.run.id).exit_code == 130


def test_a_silent_or_dead_host_is_a_finding_of_its_own():
    ledger = Ledger(("gpu01", "gpu03", "dead01"))
    ledger.record(TaskResult(1.0, "dead01", "t", "unreachable", "Connection refused"))
    states = dict(zip(ledger.hosts, (HostState.GOOD, HostState.SILENT, HostState.UNREACHABLE), strict=True))
    reasons = {"gpu01": "", "gpu03": "no result was received from it", "dead01": "refused"}
    report = preflight.report_of(PlaybookOutcome(states, reasons, ledger, 4, False, False, 1.0))
    assert [(f.host, f.subject, f.severity, f.found) for f in report.findings] == [
        ("gpu03", "answer", PreflightSeverity.ERROR, "no result was received from it"),
        ("dead01", "reach", PreflightSeverity.ERROR, "it cannot be reached: Connection refused"),
    ]


def test_a_host_of_which_another_kept_preflight_from_asking_all_is_not_fit():
    ledger = Ledger(("gpu01", "gpu02"))
    states = {"gpu01": HostState.INTERRUPTED, "gpu02": HostState.SILENT}
    reasons = {"gpu01": "aborted because gpu02 did not finish in time", "gpu02": "not done within 900 s"}
    for interrupted, named in ((False, ["gpu01", "gpu02"]), (True, ["gpu02"])):
        outcome = PlaybookOutcome(states, reasons, ledger, 4, interrupted, not interrupted, 1.0)
        assert [one.host for one in preflight.report_of(outcome).errors] == named


def test_a_severity_that_we_do_not_know_is_not_overlooked():
    finding = preflight._finding("gpu01", {"severity": "fatal", "subject": "gpus", "found": 7, "expected": 8})
    assert (finding.severity, finding.found, finding.expected) == (PreflightSeverity.ERROR, "7", "8")


def begun(cluster: ClusterDirectory, host: str, summary: dict | None = None) -> RunStore:
    """A store with one run that started a job on ``host``; it wrote its end where ``summary`` is given."""
    ours = session(cluster)
    ours.journal.write(JobStarted(1.0, host, "j123.4"))
    ours.journal.close()
    store = RunStore(cluster)
    if summary is not None:
        store.finish(ours.run, 3, summary)
    return store


def settle(
    cluster: ClusterDirectory,
    store: RunStore,
    hosts: tuple[str, ...],
    declared: tuple[str, ...],
    runner: Runner = run_playbook,
):
    ours = session(cluster)
    return recover(
        store,
        left_behind(store, ours.run, declared),
        inventory=cluster.hosts_file,
        hosts=hosts,
        declared=declared,
        forks=1,
        run_directory=ours.run.directory,
        say=lambda _: None,
        extra_vars=ours.extra_vars,
        runner=runner,
    )


def test_a_run_that_ended_in_an_error_of_ours_has_not_forgotten_its_jobs(cluster):
    store = begun(cluster, "gpu01", {"error": "OSError: disk full"})
    (one,) = left_behind(store, store.create("apply", []), ("gpu01", "gpu02"))
    assert [(job.host, job.job_id) for job in one.jobs] == [("gpu01", "j123.4")]
    assert not one.cut_off


def test_when_and_how_an_earlier_run_ended_is_not_rewritten(cluster):
    store = begun(cluster, "gpu01", {"error": "x"})
    (before,) = store.list()
    record = json.loads(before.path("run.json").read_text())
    before.path("run.json").write_text(json.dumps({**record, "finished": "2026-01-01T00:00:00Z"}))
    (job,) = settle(cluster, store, ("gpu01",), ("gpu01",))
    assert job.lost
    after = store.get(before.id)
    assert (after.finished, after.exit_code) == ("2026-01-01T00:00:00Z", 3)
    assert after.summary == {"error": "x", "open_jobs": 0}


def test_the_job_of_a_forgotten_host_is_closed_as_lost(cluster):
    store = begun(cluster, "gpu99")
    (job,) = settle(cluster, store, ("gpu01",), ("gpu01", "gpu02"))
    assert (job.host, job.lost, job.msg) == ("gpu99", True, "the host is no longer in the inventory")
    assert not any(one.jobs for one in left_behind(store, store.create("apply", []), ("gpu01", "gpu02")))


def test_a_name_that_a_node_gives_its_job_is_never_evaluated_and_only_a_jobs_name_is_one(cluster):
    pwned = cluster.root / "pwned"
    pipe = f"j1.{{{{ lookup('ansible.builtin.pipe', 'touch {pwned}') }}}}"
    ours = session(cluster)
    assert parse(as_line(JobStarted(1.0, "gpu01", pipe))) is None
    assert parse(as_line(JobFinished(1.0, "gpu01", "j1.2\n"))) is None
    for job_id in (pipe, "j1.2", "../j1.2", ""):
        ours.journal.write(JobStarted(1.0, "gpu01", job_id))
    assert [job.job_id for job in open_jobs(ours.run.journal)] == ["j1.2"]
    book = [{"hosts": "all", "gather_facts": False, "tasks": [{"ansible.builtin.ping": {}}]}]
    request = PlaybookRequest(
        playbook(cluster, json.dumps(book)), cluster.hosts_file, ("gpu01",), cluster.root
    )
    outcome = run_playbook(request, lambda _event, _ledger: None)
    jobs = [{"id": pipe, "state": "running"}, 7, {"id": "j1.2"}, {"id": "j1.2", "state": "running"}]
    outcome.ledger.hosts["gpu01"].facts["jobs"] = jobs
    said = _ask(("gpu01",), inventory=cluster.hosts_file, run_directory=cluster.root, secret_vars=b"",
                extra_vars={}, forks=1, runner=lambda *_: outcome)  # fmt: skip
    assert said == {"gpu01": [JobAnswer(id="j1.2", state="running")]}
    asked = {"clusterctl_jobs": {"gpu01": [pipe]}, **ours.extra_vars}
    _ask(("gpu01",), inventory=cluster.hosts_file, run_directory=cluster.root, secret_vars=b"",
         extra_vars=asked, forks=1)  # fmt: skip
    assert not pwned.exists()


def test_a_host_that_cannot_say_what_runs_on_it_stops_us(cluster):
    store = begun(cluster, "gpu01")
    broken = json.dumps({"hosts": "all", "gather_facts": False, "tasks": [{"ansible.builtin.fail": {}}]})
    path = playbook(cluster, f"[{broken}]")
    asked = []

    def ask(request, on_event):
        asked.append(request)
        return run_playbook(replace(request, playbook=path), on_event)

    with pytest.raises(ClusterctlError) as caught:
        settle(cluster, store, ("gpu01",), ("gpu01",), runner=ask)
    assert (caught.value.code, caught.value.exit_code) == ("engine.job-unknown", 3)
    assert caught.value.what.startswith("gpu01 cannot determine whether a job of an earlier run still runs")
    assert asked[0].forks == 1
    assert len(left_behind(store, store.create("apply", []), ("gpu01", "gpu02"))[0].jobs) == 1
