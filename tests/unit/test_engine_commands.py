"""The commands from the operator's side, with Ansible played by data: what is asked, refused, said."""

from __future__ import annotations

import json
import os
import sys
import textwrap
from dataclasses import dataclass, field

import pytest
import yaml

from clusterctl.cluster import inventory, quarantine
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.engine import mutex
from clusterctl.engine.events import Diff, PlayStarted, Stats, TaskResult, TaskStarted
from clusterctl.engine.journal import read
from clusterctl.engine.ledger import HostState, Ledger
from clusterctl.engine.playbook import PlaybookOutcome, PlaybookRequest
from clusterctl.main import run
from clusterctl.runs.store import RunStore


@dataclass
class FakeAnsible:
    """Stands where ansible-playbook would: every host answers well; ``says`` puts words into its mouth."""

    says: dict[str, dict] = field(default_factory=dict)
    fails: dict[str, str] = field(default_factory=dict)
    requests: list[PlaybookRequest] = field(default_factory=list)

    def __call__(self, request, on_event, on_tick=None):
        self.requests.append(request)
        ledger = Ledger(request.hosts)

        def tell(event):
            ledger.record(event)
            on_event(event, ledger)

        tell(PlayStarted(1.0, "play", request.hosts))
        tell(TaskStarted(1.0, "t", "Write a file", "a_role", "copy", "x.yml:1"))
        states, stats = {}, {}
        site = request.playbook == "site.yml"
        for host in request.hosts:
            about = {} if site else self.says.get(host, {})
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

    @property
    def touched(self):
        """Hosts on which the site playbook ran, in order."""
        return [host for request in self.requests if request.playbook == "site.yml" for host in request.hosts]


@pytest.fixture
def ansible(monkeypatch):
    fake = FakeAnsible()
    monkeypatch.setattr("clusterctl.rollout.session.run_playbook", fake)
    return fake


@pytest.fixture
def no_terminal(monkeypatch):
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False)


@pytest.fixture
def cluster(tmp_path, monkeypatch, ansible):
    """A cluster directory that no subprocess has to read."""
    (tmp_path / "hosts.yml").write_text(
        textwrap.dedent("""\
            gpu_nodes:
              hosts:
                gpu01: {ansible_host: 192.0.2.1}
                gpu02: {ansible_host: 192.0.2.2}
                gpu03: {ansible_host: 192.0.2.3}
            registry:
              hosts:
                registry01: {ansible_host: 192.0.2.4}
            """)
    )
    groups = yaml.safe_load((tmp_path / "hosts.yml").read_text())
    listing = {name: {"hosts": list(group["hosts"])} for name, group in groups.items()}
    variables = {host: values for group in groups.values() for host, values in group["hosts"].items()}
    listing |= {"all": {"children": list(groups)}, "_meta": {"hostvars": variables}}
    monkeypatch.setattr("clusterctl.cluster.inventory._listing", lambda _directory: listing)
    return ClusterDirectory(tmp_path)


@pytest.fixture
def listing(cluster):
    """What Ansible says of that inventory, to be changed by a test."""
    return inventory._listing(cluster)


def records(capsys):
    captured = capsys.readouterr()
    return [json.loads(line) for line in captured.out.splitlines()], captured.err


def test_apply_goes_in_waves_and_ends_with_the_summary_that_scripts_rely_on(cluster, ansible, capsys):
    quarantine.put(cluster, "gpu03", "broken fan")
    assert run(["-C", str(cluster.root), "apply", "--yes", "--json"]) == 0
    lines, messages = records(capsys)
    assert lines[-1] == {
        "type": "summary",
        "run": RunStore(cluster).get("last").id,
        "hosts": {
            host: {"ok": 1, "changed": 1, "failed": 0, "unreachable": False}
            for host in ("gpu01", "gpu02", "registry01")
        },
        "changed": 3,
        "failed": 0,
        "unreachable": 0,
        "exit": 0,
    }
    waves = [line["name"] for line in lines if line["type"] == "wave_started"]
    assert waves == ["registry", "canary", "nodes"]
    assert "gpu03: left out, in quarantine: broken fan" in messages
    assert "apply driver, runtime, registry, images to 3 host(s) in 3 wave(s)" in messages
    assert ansible.touched == ["registry01", "gpu01", "gpu02"]
    saved = RunStore(cluster).get("last")
    assert (saved.exit_code, saved.summary["open_jobs"]) == (0, 0)
    assert list(read(saved.journal))


def test_an_error_in_preflight_stops_before_anything_is_changed(cluster, ansible, capsys):
    finding = {"severity": "error", "subject": "gpus", "found": 7, "expected": 8, "remedy": "Reseat it."}
    ansible.says = {"gpu02": {"findings": [finding]}}
    assert run(["-C", str(cluster.root), "apply", "--yes", "--json"]) == 1
    lines, _ = records(capsys)
    assert (lines[-1]["failed"], lines[-1]["exit"]) == (1, 1)
    assert lines[-1]["hosts"]["gpu02"]["failed"] == 1
    assert run(["-C", str(cluster.root), "apply", "--yes"]) == 1
    out, messages = capsys.readouterr()
    assert "Reseat it." in out
    assert "preflight of 4 host(s): 1 error(s)" in out
    assert "nothing was changed" in messages
    assert ansible.touched == []


def test_preflight_lists_all_findings_as_data(cluster, ansible, capsys):
    warning = {"severity": "warning", "subject": "clock", "found": "2 s", "expected": "< 1 s"}
    ansible.says = {"gpu01": {"findings": [warning], "busy": "a training job"}}
    assert run(["-C", str(cluster.root), "preflight", "--json", "--limit", "gpu01"]) == 0
    lines, _ = records(capsys)
    finding, busy, last = [line for line in lines if line["type"] in ("finding", "busy", "summary")]
    assert (finding["host"], finding["severity"], finding["found"]) == ("gpu01", "warning", "2 s")
    assert busy == {"type": "busy", "host": "gpu01", "because": "a training job"}
    assert last["exit"] == 0


def test_a_busy_host_is_left_out_and_said_until_forced(cluster, ansible, capsys):
    ansible.says = {"gpu01": {"busy": "container train-1 holds GPUs"}}
    nodes = ["--yes", "--limit", "gpu01,gpu02", "--only", "driver"]
    assert run(["-C", str(cluster.root), "apply", *nodes]) == 3
    out, messages = capsys.readouterr()
    assert "gpu01: left out, busy: container train-1 holds GPUs" in messages
    assert "busy" in out
    assert ansible.touched == ["gpu02"]
    assert ansible.requests[-1].tags == ("driver",)
    assert "nvidia_driver_force_busy" not in ansible.requests[-1].extra_vars, "the settings have the word"
    assert run(["-C", str(cluster.root), "apply", *nodes, "--force-busy"]) == 0
    assert ansible.touched == ["gpu02", "gpu01", "gpu02"]
    assert ansible.requests[-1].extra_vars["nvidia_driver_force_busy"] is True


def test_plan_says_what_would_change_and_changes_nothing(cluster, ansible, capsys):
    assert run(["-C", str(cluster.root), "plan"]) == 0
    out, _ = capsys.readouterr()
    assert "gpu01, gpu02, gpu03, registry01: 1 thing(s) would change" in out
    assert out.count("~ a_role: Write a file") == 1
    assert "+hello" in out
    assert "plan for 4 host(s): 4 change(s) on 4 host(s), 0 failed, 0 unreachable" in out
    assert [request.check for request in ansible.requests] == [True]


def test_a_second_operator_is_refused_before_any_host_is_touched(cluster, ansible, capsys):
    with mutex.held(cluster, "apply"):
        assert run(["-C", str(cluster.root), "apply", "--yes"]) == 2
    assert "has been running apply on this cluster since" in capsys.readouterr().err
    assert ansible.requests == []
    assert RunStore(cluster).list() == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["apply"], "there is no terminal to ask on"),
        (["apply", "--yes", "--only", "drivr"], "did you mean driver?"),
        (["plan", "--limit", "gpu99"], "names no host"),
    ],
)
@pytest.mark.usefixtures("no_terminal")
def test_a_wrong_request_is_answered_with_two(cluster, ansible, capsys, arguments, said):
    assert run(["-C", str(cluster.root), *arguments]) == 2
    assert said in capsys.readouterr().err
    assert ansible.requests == []


def test_a_failure_is_told_in_full_and_later_waves_are_not_begun(cluster, ansible, capsys):
    ansible.fails = {"gpu01": "E: Could not get lock /var/lib/dpkg/lock-frontend"}
    assert run(["-C", str(cluster.root), "apply", "--yes"]) == 1
    out, messages = capsys.readouterr()
    assert "gpu01: a_role: Write a file" in messages
    assert "E: Could not get lock" in messages
    assert "Another package run holds gpu01" in messages
    assert "stopped: gpu01 failed; later waves were not begun" in messages
    assert "not begun" in out
    assert ansible.touched == ["registry01", "gpu01"]


def test_reboots_are_allowed_only_when_asked_for_and_name_the_hosts(cluster, ansible, capsys):
    assert run(["-C", str(cluster.root), "apply", "--yes"]) == 0
    assert "may be rebooted" not in capsys.readouterr().err
    assert "nvidia_driver_reboot" not in ansible.requests[-1].extra_vars, "the settings have the word"
    assert run(["-C", str(cluster.root), "apply", "--yes", "--reboot"]) == 0
    assert "hosts that may be rebooted: gpu01, gpu02, gpu03\n" in capsys.readouterr().err
    assert ansible.requests[-1].extra_vars["nvidia_driver_reboot"] is True
    assert run(["-C", str(cluster.root), "apply", "--yes", "--reboot", "--only", "registry"]) == 0
    assert "may be rebooted" not in capsys.readouterr().err


def test_what_the_settings_allow_is_said_and_heeded(cluster, ansible, listing, capsys):
    listing["_meta"]["hostvars"]["gpu02"] |= {"nvidia_driver_reboot": True, "nvidia_driver_force_busy": True}
    ansible.says = {host: {"busy": "a training job"} for host in ("gpu01", "gpu02")}
    assert run(["-C", str(cluster.root), "apply", "--yes", "--only", "driver"]) == 3
    messages = capsys.readouterr().err
    assert "hosts that may be rebooted: gpu02\n" in messages
    assert "hosts that are busy, and are changed all the same: gpu02\n" in messages
    assert "gpu01" not in ansible.touched
    assert "gpu02" in ansible.touched


def test_plan_uses_the_variables_of_apply(cluster, ansible):
    flags = ["--reboot", "--force-busy", "--only", "driver"]
    assert run(["-C", str(cluster.root), "apply", "--yes", *flags]) == 0
    applied = ansible.requests[-1].extra_vars
    assert applied == {"nvidia_driver_reboot": True, "nvidia_driver_force_busy": True}
    for words in (["plan"], ["apply", "--check"]):
        assert run(["-C", str(cluster.root), *words, *flags]) == 0
        assert ansible.requests[-1].check
        assert ansible.requests[-1].extra_vars == applied


@pytest.fixture
def with_login_host(cluster, listing):
    """A host of a group that no play of the site names."""
    with (cluster.root / "hosts.yml").open("a") as stream:
        stream.write("login:\n  hosts:\n    login01: {ansible_host: 192.0.2.9}\n")
    listing["login"] = {"hosts": ["login01"]}
    listing["all"]["children"].append("login")
    listing["_meta"]["hostvars"]["login01"] = {"ansible_host": "192.0.2.9"}
    return cluster


def test_a_host_that_no_play_is_for_is_left_out_and_said_once(with_login_host, ansible, capsys):
    cluster = with_login_host
    ansible.says = {"login01": {"busy": "somebody's container"}}
    assert run(["-C", str(cluster.root), "apply", "--yes"]) == 0
    out, messages = capsys.readouterr()
    assert messages.count("login01: left out, no play of the site is for it") == 1
    assert "untouched" in out
    assert sorted(ansible.touched) == ["gpu01", "gpu02", "gpu03", "registry01"]
    assert run(["-C", str(cluster.root), "plan"]) == 0
    out, messages = capsys.readouterr()
    assert messages.count("login01: left out, no play of the site is for it") == 1
    assert "plan for 4 host(s)" in out
    assert "login01" not in ansible.requests[-1].hosts


def test_a_request_that_would_do_nothing_is_refused(with_login_host, ansible, listing, capsys):
    cluster = with_login_host
    for command in (["apply", "--yes"], ["plan"]):
        for words, said in (
            (["--limit", "login01"], "no play of the site is for login01"),
            (["--only", "images"], "--only images has nothing to do: no training_image_digest is declared"),
        ):
            assert run(["-C", str(cluster.root), *command, *words]) == 2
            assert said in capsys.readouterr().err
    listing["registry"]["hosts"].clear()
    assert run(["-C", str(cluster.root), "apply", "--yes", "--only", "registry"]) == 2
    assert "no host is in the group registry" in capsys.readouterr().err
    assert ansible.requests == []


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"training_image_digest": "sha256:" + "0" * 64}, "there is no registry to pull the image from"),
        ({"training_image_enabled": True}, "no training_image_digest is declared"),
    ],
)
def test_settings_that_cannot_go_together_are_refused(cluster, listing, capsys, settings, said):
    listing["registry"]["hosts"].clear()
    listing["_meta"]["hostvars"].pop("registry01")
    listing["_meta"]["hostvars"]["gpu01"] |= settings
    assert run(["-C", str(cluster.root), "apply", "--yes"]) == 2
    assert said in capsys.readouterr().err
    assert RunStore(cluster).list() == []


@pytest.mark.parametrize("words", [["plan"], ["apply", "--check"], ["apply"]])
def test_preflight_alone_is_preflight_alone(cluster, ansible, words):
    assert run(["-C", str(cluster.root), *words, "--only", "preflight"]) == 0
    assert [request.playbook for request in ansible.requests] == ["preflight.yml"]


def test_who_declines_gets_the_summary_too(cluster, ansible, monkeypatch, capsys):
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr("click.confirm", lambda *_args, **_options: False)
    assert run(["-C", str(cluster.root), "apply", "--json"]) == 0
    lines, messages = records(capsys)
    assert "nothing was changed" in messages
    assert (lines[-1]["type"], lines[-1]["changed"], lines[-1]["exit"]) == ("summary", 0, 0)
    assert ansible.touched == []
    assert RunStore(cluster).get("last").summary["declined"] is True


@pytest.fixture
def nobody_reads(monkeypatch):
    """Standard output is a pipe whose reader has gone, as after | head."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w", buffering=1) as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        yield stream


@pytest.mark.usefixtures("nobody_reads")
@pytest.mark.parametrize("form", [["--json"], []])
def test_a_reader_that_goes_away_neither_stops_the_work_nor_hides_how_it_ended(cluster, ansible, form):
    assert run(["-C", str(cluster.root), "apply", "--yes", *form]) == 0
    assert sorted(ansible.touched) == ["gpu01", "gpu02", "gpu03", "registry01"]
    ansible.fails = {"registry01": "no"}
    assert run(["-C", str(cluster.root), "apply", "--yes", *form]) == 1
    assert RunStore(cluster).get("last").exit_code == 1
