"""`validate` as a person calls it."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
from tests.support.validated_site import call

from clustercheck.model import Coverage
from clustercheck.result.document import Document
from clustercheck.running import session
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.errors import ClusterctlError
from clusterctl.report import files
from clusterctl.runs.events import read_events
from clusterctl.runs.store import RunStore
from clusterctl.runs.verification import verify


class TestValidate:
    """The command around the session: what it asks for, what it keeps, how it ends."""

    @pytest.fixture(autouse=True)
    def asked(self, monkeypatch):
        calls: list[dict] = []

        def validate(spec, **options):
            calls.append({"spec": spec, **options})
            options["on_event"]({"type": "probe", "node": "gpu01", "unreachable": "", "busy": ""})
            outcome = self.outcome
            if isinstance(outcome, BaseException):
                raise outcome
            return outcome

        monkeypatch.setattr(session, "validate", validate)
        self.calls = calls
        self.outcome = Document(
            run="r", started="2026-11-20T19:57:00Z", finished="2026-11-20T19:58:12Z", cluster="mysite",
            suite="quick", coverage=Coverage(1, 1, 0, 0, 0), culprits=(), results=(), environment={},
        )  # fmt: skip

    def test_a_pass_is_kept_and_shown(self, site, capsys):
        assert call(site, "validate") == 0
        said = capsys.readouterr()
        assert said.out.startswith("PASS")
        page = Path(said.out.splitlines()[-1].removeprefix("report: "))
        assert page.name == "report.html"
        assert page.is_file()
        assert "gpu01: probed" in said.err
        run = RunStore(site).get("last")
        assert run.exit_code == 0
        assert run.summary["verdict"] == "pass"
        assert [event["type"] for event in read_events(run.journal)] == ["probe"]
        (asked,) = self.calls
        assert asked["suite"] == "quick"
        assert asked["busy_policy"] == "skip"
        assert asked["run_id"] == run.id
        assert [node.name for node in asked["spec"].nodes] == ["gpu01", "gpu02"]

    @pytest.mark.parametrize(
        ("coverage", "code"), [(Coverage(2, 1, 1, 0, 0), 1), (Coverage(2, 1, 0, 1, 0), 3)]
    )
    def test_the_exit_code_is_the_verdicts(self, site, coverage, code):
        self.outcome = Document(**{**self.outcome.__dict__, "coverage": coverage})
        assert call(site, "validate") == code

    def test_json_ends_with_the_result(self, site, capsys):
        assert call(site, "validate", "--json", "--limit", "gpu02") == 0
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert lines[0]["type"] == "probe"
        assert lines[-1]["schema"] == "clusterctl/result/1"
        assert [node.name for node in self.calls[0]["spec"].nodes] == ["gpu02"]

    def test_an_interrupt_is_said_and_recorded(self, site, capsys):
        self.outcome = KeyboardInterrupt()
        assert call(site, "validate") == 130
        assert "interrupted" in capsys.readouterr().err
        assert RunStore(site).get("last").exit_code == 130

    def test_an_interrupt_while_reports_are_written_changes_no_verdict(self, site, monkeypatch, capsys):
        def interrupted(*_arguments):
            raise KeyboardInterrupt

        self.outcome = Document(**{**self.outcome.__dict__, "coverage": Coverage(2, 1, 1, 0, 0)})
        monkeypatch.setattr(files, "write_reports", interrupted)
        assert call(site, "validate") == 1
        said = capsys.readouterr()
        run = RunStore(site).get("last")
        assert run.exit_code == 1
        assert said.out.startswith("FAIL")
        assert "report: " not in said.out
        assert "interrupted while the reports were written; the verdict stands" in said.err
        assert "clusterctl report r --format html --output FILE" in said.err

    def test_a_report_that_cannot_be_made_ends_neither_the_others_nor_the_verdict(
        self, site, monkeypatch, capsys
    ):
        def explode(_document):
            raise ZeroDivisionError("float division by zero")

        self.outcome = Document(**{**self.outcome.__dict__, "coverage": Coverage(2, 1, 1, 0, 0)})
        monkeypatch.setitem(files.REPORTS, "html", ("report.html", explode))
        assert call(site, "validate") == 1
        said = capsys.readouterr()
        assert said.out.startswith("FAIL")
        assert "report.html: no report can be made of it: ZeroDivisionError: float division" in said.err
        assert "interrupted" not in said.err
        written = {path.name for path in RunStore(site).get("last").directory.iterdir()}
        assert written > {"junit.xml", "report.md", "metrics.prom"} and "report.html" not in written

    def test_a_disk_that_takes_no_report_changes_no_verdict(self, site, monkeypatch, capsys):
        def full(_document):
            raise ClusterctlError("report.html cannot be written: No space left", code="x")

        monkeypatch.setitem(files.REPORTS, "html", ("report.html", full))
        assert call(site, "validate") == 0
        said = capsys.readouterr()
        assert said.out.startswith("PASS")
        assert "report.html cannot be written" in said.err

    @pytest.mark.parametrize(
        ("wrong", "code"),
        [
            ("http://127.0.0.1", "settings.value"),
            ("udp://log:port", "settings.value"),
            ("{{ 1 / 0 }}", "inventory.template"),
        ],
    )
    def test_a_wrong_syslog_is_refused_before_anything_runs(self, site, capsys, wrong, code):
        site.group_vars.mkdir()
        (site.group_vars / "all.yml").write_text(f'site_syslog: "{wrong}"\n')
        assert call(site, "validate") == 2
        assert code in capsys.readouterr().err
        assert self.calls == []
        assert RunStore(site).list() == []

    def test_the_head_is_in_the_reports_and_goes_to_the_syslog_of_the_settings(self, site, capsys):
        site.group_vars.mkdir()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
            listener.bind(("127.0.0.1", 0))
            listener.settimeout(5)
            address = f"udp://127.0.0.1:{listener.getsockname()[1]}"
            (site.group_vars / "all.yml").write_text(f"site_syslog: {address}\n")
            assert call(site, "validate") == 0
            line = listener.recv(4096).decode()
        run = RunStore(site).get("last")
        head = verify(site).newest
        assert f"run={run.id} link=1 head={head}" in line
        assert f"run chain: head {head}" in capsys.readouterr().out
        for name in ("report.html", "report.md"):
            assert head in run.path(name).read_text()

    def test_a_syslog_that_takes_nothing_changes_no_verdict(self, site, capsys):
        site.group_vars.mkdir()
        (site.group_vars / "all.yml").write_text("site_syslog: /nowhere/log\n")
        assert call(site, "validate") == 0
        assert "was not sent to syslog: /nowhere/log" in capsys.readouterr().err

    def test_containers_that_an_interrupt_could_not_end_are_named(self, site, monkeypatch, capsys):
        def interrupted(_spec, *, on_event, **_options):
            for node in ("gpu01", "gpu02"):
                on_event({"type": "job_started", "job": "pairs", "node": node, "container": node * 4})
            on_event({"type": "job_removed", "job": "pairs", "node": "gpu01"})
            raise KeyboardInterrupt

        monkeypatch.setattr(session, "validate", interrupted)
        assert call(site, "validate") == 130
        said = capsys.readouterr().err
        assert "could not be ended, and end by their own time limit: gpu02gpu02gp on gpu02\n" in said

    def test_who_declines_has_judged_nothing(self, site, monkeypatch, capsys):
        monkeypatch.setattr("sys.stdin.isatty", lambda: True)
        monkeypatch.setattr("click.confirm", lambda *_args, **_options: False)
        assert call(site, "validate", "--force-busy") == 3
        assert "nothing was run" in capsys.readouterr().err
        assert self.calls == []

    def test_busy_nodes_are_disturbed_only_where_that_is_confirmed(self, site, capsys):
        assert call(site, "validate", "--force-busy") == 2
        assert "validate.not-confirmed" in capsys.readouterr().err
        assert call(site, "validate", "--force-busy", "--yes") == 0
        assert [asked["busy_policy"] for asked in self.calls] == ["force"]

    def test_unknown_suites_and_hosts_are_refused_before_anything_runs(self, site, capsys):
        assert call(site, "validate", "--suite", "quik") == 2
        assert "quick" in capsys.readouterr().err
        assert call(site, "validate", "--limit", "gpu09") == 2
        assert "Did you mean" in capsys.readouterr().err
        assert self.calls == []

    def test_a_cluster_without_gpu_nodes_is_refused(self, tmp_path, capsys):
        (tmp_path / "hosts.yml").write_text(
            "all:\n  children:\n    registry:\n      hosts:\n        registry01: {ansible_host: 192.0.2.5}\n"
        )
        assert call(ClusterDirectory(tmp_path), "validate") == 2
        assert "validate.no-nodes" in capsys.readouterr().err
