"""The commands from the operator's side, with Ansible played by data: what is asked, refused, said."""

from __future__ import annotations

import json
import os
import sys
import textwrap
from dataclasses import dataclass, field, replace

import pytest
import yaml

from clusterctl.cluster import inventory, quarantine
from clusterctl.cluster import lock as lock_file
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.cluster.lock import LockedBlob, LockedImage
from clusterctl.engine import lease_book, mutex
from clusterctl.engine.events import (
    Diff,
    HostStarted,
    JobStarted,
    PlayStarted,
    Stats,
    TaskResult,
    TaskStarted,
)
from clusterctl.engine.journal import read
from clusterctl.engine.lease import lease_of
from clusterctl.engine.ledger import HostState, Ledger
from clusterctl.engine.playbook import PlaybookOutcome, PlaybookRequest
from clusterctl.errors import ClusterctlError
from clusterctl.main import run
from clusterctl.runs.store import RunStore


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
        """What a node's watch says as it begins and as it ends."""
        if variables["clusterctl_offline_state"] == "started":
            return {"sources": self.sources.get(host, {}), "listening": host not in self.sources}
        record = {"run": variables["clusterctl_offline_run"], "inside": {"192.0.2.9": 3}, "outside": [],
                  "lost": 0, "gaps": 0, "names": {}, "ended": True}  # fmt: skip
        return {"record": {**record, **self.heard.get(host, {})}}

    def leases(self, request, _on_event):
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


@pytest.fixture
def ansible(monkeypatch):
    fake = FakeAnsible()
    monkeypatch.setattr("clusterctl.rollout.session.run_playbook", fake)
    monkeypatch.setattr("clusterctl.engine.lease_nodes.run_playbook", fake.leases)
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
    assert "apply driver, runtime, registry, images to 3 hosts in 3 waves" in messages
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
    assert "preflight of 4 hosts: 1 error" in out
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
    assert "gpu01-gpu03, registry01: 1 thing would change" in out
    assert out.count("~ a_role: Write a file") == 1
    assert "+hello" in out
    assert "plan for 4 hosts: 4 changes on 4 hosts, 0 failed, 0 unreachable" in out
    assert [request.check for request in ansible.requests] == [True]


PULL = {"digest": "sha256:x", "layers": {"a": 117_500_000}, "link_mbps": 1000}


def test_plan_says_how_long_the_waves_of_pulls_take_at_the_least(cluster, ansible, capsys):
    ansible.pulls = dict.fromkeys(("gpu01", "gpu02", "gpu03"), PULL)
    assert run(["-C", str(cluster.root), "plan"]) == 0
    said = capsys.readouterr().out
    assert "images, canary: gpu01 would pull 117.5 MB in 1 layer: 1 s at the least" in said
    assert (
        "gpu02, gpu03 would pull 117.5 MB in 1 layer each: 2 s at the least, by the registry's link" in said
    )
    assert run(["-C", str(cluster.root), "plan", "--json", "--wave", "1"]) == 0
    summary = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [(one["wave"], one["limit_s"]) for one in summary["pulls"]] == [
        ("canary", 1.0), ("nodes 1", 1.0), ("nodes 2", 1.0),
    ]  # fmt: skip


def test_before_the_first_copy_the_lock_knows_what_is_to_be_pulled(cluster, ansible, capsys):
    digest = "sha256:" + "a" * 64
    layers = tuple(LockedBlob(digest="sha256:" + one * 64, size=58_750_000) for one in "bc")
    image = LockedImage(
        name="training", source="docker.io/x/y:1", target="library/y", digest=digest, manifest=digest,
        platforms=("linux/amd64",), config=LockedBlob(digest=digest, size=1), layers=layers,
    )  # fmt: skip
    lock_file.write(cluster, lock_file.Lock(images=(image,)))
    ansible.pulls = {"gpu01": {"digest": digest, "unknown": "404", "link_mbps": 1000}}
    assert run(["-C", str(cluster.root), "plan"]) == 0
    assert "gpu01 would pull 117.5 MB in 2 layers: 1 s at the least" in capsys.readouterr().out


def test_a_run_keeps_what_its_pulls_reached_of_the_links(cluster, ansible, capsys):
    done = {**PULL, "seconds": 4.0, "download_s": 2.5}
    ansible.pulls = {"gpu02": done, "gpu03": {**done, "seconds": 5.0}}
    assert run(["-C", str(cluster.root), "apply", "--yes", "--json"]) == 0
    streams = capsys.readouterr()
    (pull,) = json.loads(streams.out.splitlines()[-1])["pulls"]
    assert (pull["wave"], pull["limit_s"], pull["seconds"], pull["achieved"]) == ("nodes", 2.0, 5.0, 0.4)
    assert "pulled 117.5 MB in 5 s" in streams.err
    assert "40% of it reached" in streams.err
    kept = RunStore(cluster).get("last")
    assert kept.summary["pulls"] == [pull]


def test_waves_are_as_small_as_asked(cluster, ansible):
    assert run(["-C", str(cluster.root), "apply", "--yes", "--wave", "1", "--canary", "0"]) == 0
    played = [request.hosts for request in ansible.requests if request.playbook == "site.yml"]
    assert [hosts for hosts in played if "registry01" not in hosts] == [("gpu01",), ("gpu02",), ("gpu03",)]


def offline(cluster, listing, *words, **settings):
    """Apply offline; all sources of packages are a mirror of the site unless ``settings`` say otherwise."""
    urls = ("nvidia_driver_repository_url", "nvidia_container_toolkit_repository_url")
    inside = dict.fromkeys(urls, "http://mirror.site/nvidia") | {"site_offline_hosts": ["mirror.site"]}
    for variables in listing["_meta"]["hostvars"].values():
        variables.update(inside | settings)
    return run(["-C", str(cluster.root), "apply", "--yes", "--offline", *words])


def watches(ansible):
    return [request.extra_vars for request in ansible.requests if request.playbook == "offline.yml"]


def test_an_offline_apply_proves_that_nobody_else_was_contacted(cluster, listing, ansible, capsys):
    assert offline(cluster, listing, "--json") == 0
    lines, messages = records(capsys)
    assert lines[-1]["offline"]["proved"]
    assert lines[-1]["offline"]["hosts"]["gpu01"]["inside"] == {"192.0.2.9": 3}
    assert "offline: gpu01-gpu03, registry01 contacted no host but the cluster's (12 contacts" in messages
    began, ended = watches(ansible)
    assert [one["clusterctl_offline_state"] for one in (began, ended)] == ["started", "ended"]
    assert "192.0.2.1/32" in began["clusterctl_offline_allowed"]
    assert "mirror.site" in began["clusterctl_offline_names"]
    assert json.loads(RunStore(cluster).get("last").path("offline.json").read_text())["proved"]


@pytest.mark.parametrize(
    "case",
    [
        ({"outside": [{"address": "151.101.2.132", "protocol": "tcp", "port": 443, "times": 2, "by": "apt"}]},
         1, "it contacted 151.101.2.132:443 (tcp, 2 times) by apt"),
        ({"lost": 7}, 3, "7 packets went by unheard"),
        ({"gaps": 1}, 3, "its watch was interrupted (1 time)"),
        ({"ended": False}, 3, "its watch did not run to the end"),
        ({"run": "another"}, 3, "nothing is known of what it did: its watch left no record"),
    ],
)  # fmt: skip
def test_what_is_not_proved_is_not_good(cluster, listing, ansible, capsys, case):
    heard, code, because = case
    ansible.heard = {"gpu02": heard}
    assert offline(cluster, listing, "--json") == code
    lines, messages = records(capsys)
    assert not lines[-1]["offline"]["proved"]
    assert lines[-1]["offline"]["hosts"]["gpu01"]["proved"]
    assert f"gpu02: not proved offline: {because}" in messages


def test_watches_that_cannot_be_ended_leave_the_outcome_and_no_proof(
    cluster, listing, ansible, monkeypatch, capsys
):
    def broken(*_):
        raise ClusterctlError("Ansible did not begin", code="engine.ansible")

    monkeypatch.setattr("clusterctl.rollout.offline._end", broken)
    assert offline(cluster, listing, "--json") == 3
    lines, messages = records(capsys)
    assert lines[-1]["changed"] == 4
    assert not lines[-1]["offline"]["proved"]
    assert "the watches could not be ended: Ansible did not begin" in messages


def test_settings_that_reach_out_are_refused_before_any_host_is_touched(cluster, listing, ansible, capsys):
    away = {
        "nvidia_container_toolkit_repository_url": "https://nvidia.github.io/libnvidia-container",
        "registry_client_mirrors": [{"upstream": "docker.io", "url": "https://registry01:5000"}],
        "site_http_proxy": "http://user:word@192.0.2.200:3128",
    }
    assert offline(cluster, listing, **away) == 2
    said = capsys.readouterr().err
    assert "nvidia_container_toolkit_repository_url names nvidia.github.io" in said
    assert "registry_client_mirrors falls back to docker.io" in said
    assert "site_http_proxy names 192.0.2.200" in said
    assert "user:word" not in said
    assert "offline.settings" in said
    assert ansible.requests == []


def test_sources_of_packages_elsewhere_stop_an_offline_apply_and_no_watch_stays(
    cluster, listing, ansible, capsys
):
    ansible.sources = {"gpu03": {"deb.debian.org": ["/etc/apt/sources.list"]}}
    assert offline(cluster, listing) == 2
    assert "deb.debian.org in /etc/apt/sources.list (gpu03)" in capsys.readouterr().err
    assert ansible.touched == []
    assert watches(ansible)[-1]["clusterctl_offline_state"] == "ended"
    assert ansible.holds == {}


def test_a_second_operator_is_refused_before_any_host_is_touched(cluster, ansible, capsys):
    with mutex.held(cluster, "apply"):
        assert run(["-C", str(cluster.root), "apply", "--yes"]) == 2
    assert "has been running apply on this cluster since" in capsys.readouterr().err
    assert ansible.requests == []
    assert RunStore(cluster).list() == []


def lease_of_another(**changed):
    """What stands on a node that another controller's run holds."""
    return {"run": "20260101T000000000-apply-bbbb", "nonce": "n", "who": "anna", "where": "ctrl2",
            "what": "apply", "since": "2026-01-01T00:00:00Z", **changed}  # fmt: skip


def test_apply_holds_its_nodes_while_it_changes_them_and_not_longer(cluster, ansible):
    def during(request, on_event, on_tick=None):
        held.append((request.playbook, sorted(ansible.holds)))
        return FakeAnsible.__call__(ansible, request, on_event, on_tick)

    held = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("clusterctl.rollout.session.run_playbook", during)
        assert run(["-C", str(cluster.root), "apply", "--yes", "--limit", "gpu01,gpu02"]) == 0
    assert held == [("preflight.yml", []), *[("site.yml", ["gpu01", "gpu02"])] * 2]
    assert ansible.lease_requests == [
        ("taken", ("gpu01", "gpu02")), ("taken", ("gpu02",)), ("freed", ("gpu01", "gpu02"))
    ], "each wave but the first makes sure"  # fmt: skip
    assert ansible.holds == {}


@pytest.mark.parametrize("ending", [KeyboardInterrupt, RuntimeError])
def test_nodes_are_given_back_however_apply_ends(cluster, ansible, monkeypatch, ending):
    def breaks(request, on_event, on_tick=None):
        if request.playbook == "site.yml":
            assert ansible.holds
            raise ending
        return ansible(request, on_event, on_tick)

    monkeypatch.setattr("clusterctl.rollout.session.run_playbook", breaks)
    assert run(["-C", str(cluster.root), "apply", "--yes"]) != 0
    assert ansible.holds == {}


def on_site(monkeypatch, ansible, then):
    """``then(request, tell)`` in the place of the site playbook; it returns an outcome, or raises."""

    def plays(request, on_event, on_tick=None):
        if request.playbook != "site.yml":
            return ansible(request, on_event, on_tick)
        ledger = Ledger(request.hosts)

        def tell(event):
            ledger.record(event)
            on_event(event, ledger)

        tell(PlayStarted(1.0, "play", request.hosts))
        tell(TaskStarted(1.0, "t", "Install packages", "a_role", "command", "x.yml:1"))
        states = then(request, tell) or dict.fromkeys(request.hosts, HostState.INTERRUPTED)
        cut = HostState.INTERRUPTED in states.values()
        return PlaybookOutcome(states, dict.fromkeys(states, "stopped"), ledger, 0, cut, False, 1.0)

    monkeypatch.setattr("clusterctl.rollout.session.run_playbook", plays)


ONE_WAVE = ["--yes", "--json", "--limit", "gpu01,gpu02,gpu03", "--canary", "0"]


@pytest.mark.parametrize("raises", [None, KeyboardInterrupt, RuntimeError])
def test_a_node_on_which_our_work_goes_on_stays_ours(cluster, ansible, monkeypatch, capsys, raises):
    def cut_off(_request, tell):
        tell(JobStarted(2.0, "gpu01", "j1.2"))
        tell(HostStarted(2.0, "gpu02", "t"))
        tell(HostStarted(2.0, "gpu03", "t"))
        tell(TaskResult(3.0, "gpu03", "t", "ok"))
        if raises:
            raise raises

    on_site(monkeypatch, ansible, cut_off)
    code = run(["-C", str(cluster.root), "apply", *ONE_WAVE])
    lines, messages = records(capsys)
    assert sorted(ansible.holds) == ["gpu01", "gpu02"], "gpu03 was between two tasks"
    run_id = ansible.holds["gpu01"]["run"]
    assert "gpu01: the lease is kept, nobody else may come in: job j1.2 goes on" in messages
    assert "gpu02: the lease is kept, nobody else may come in: it was cut off in: a_role: Install" in messages
    assert f"clusterctl unlock {run_id}" in messages
    if raises is None:
        assert (code, lines[-1]["exit"]) == (130, 130)
        assert lines[-1]["leased"] == {
            "gpu01": "job j1.2 goes on", "gpu02": "it was cut off in: a_role: Install packages",
        }  # fmt: skip
    (entry,) = lease_book.entries(cluster)
    assert entry.hosts == ("gpu01", "gpu02")
    monkeypatch.setattr("clusterctl.engine.recovery.run_playbook", ansible)
    monkeypatch.setattr("clusterctl.rollout.session.run_playbook", ansible)
    ansible.says = {"gpu01": {"facts": {"jobs": [{"id": "j1.2", "state": "finished", "rc": 0}]}}}
    assert run(["-C", str(cluster.root), "apply", *ONE_WAVE]) == 0
    messages = capsys.readouterr().err
    assert f"giving back gpu01, gpu02, left by run {run_id}" in messages
    assert (ansible.holds, lease_book.entries(cluster)) == ({}, [])


def test_a_node_that_was_lost_in_a_task_stays_ours(cluster, ansible, monkeypatch):
    def lost(request, tell):
        for host in request.hosts:
            tell(HostStarted(2.0, host, "t"))
            tell(TaskResult(3.0, host, "t", "unreachable" if host == "gpu02" else "ok", "Broken pipe"))
        tell(Stats(4.0, {}))
        return {host: HostState.UNREACHABLE if host == "gpu02" else HostState.GOOD for host in request.hosts}

    on_site(monkeypatch, ansible, lost)
    assert run(["-C", str(cluster.root), "apply", *ONE_WAVE]) == 1
    assert list(ansible.holds) == ["gpu02"]


def test_apply_is_refused_where_what_an_earlier_run_began_still_runs(cluster, ansible, capsys):
    ansible.jobs = {"gpu02": ["j1.2"]}
    assert run(["-C", str(cluster.root), "apply", "--yes"]) == 2
    messages = capsys.readouterr().err
    assert "what an earlier run began still runs on gpu02, and nothing was touched" in messages
    assert "engine.job-left" in messages
    assert "gpu02: job j1.2" in messages
    assert (ansible.touched, ansible.holds, lease_book.entries(cluster)) == ([], {}, [])


@pytest.mark.parametrize("when", ["before its wave", "after its wave", "unlocked"])
def test_a_lease_that_is_taken_from_us_is_noticed(cluster, ansible, monkeypatch, capsys, when):
    theirs = lease_of_another()

    def taken_over(request, tell):
        if request.hosts == ("gpu01",) and when == "before its wave":
            ansible.holds["gpu02"] = theirs
        if request.hosts != ("gpu01",) and when == "after its wave":
            ansible.holds["gpu01"] = theirs
        if request.hosts != ("gpu01",) and when == "unlocked":
            del ansible.holds["gpu01"]
        waves.append(request.hosts)
        return dict.fromkeys(request.hosts, HostState.GOOD)

    waves = []
    on_site(monkeypatch, ansible, taken_over)
    assert run(["-C", str(cluster.root), "apply", "--yes", "--json", "--limit", "gpu01,gpu02,gpu03"]) == 1
    lines, messages = records(capsys)
    assert "engine.lease-lost" in messages
    how = "given up by somebody else" if when == "unlocked" else "taken from us by run"
    assert f"its lease was {how}" in messages
    host = "gpu02" if when == "before its wave" else "gpu01"
    assert lines[-1]["hosts"][host]["failed"] == lines[-1]["failed"] == 1
    assert waves == [("gpu01",), *([("gpu02", "gpu03")] if when != "before its wave" else [])]
    assert theirs in ansible.holds.values() or when == "unlocked"


def test_ctrl_c_between_two_waves_ends_like_any(cluster, ansible, monkeypatch, capsys):
    def leases(request, on_event):
        if request.extra_vars["clusterctl_lease_state"] == "taken" and ansible.holds:
            raise KeyboardInterrupt
        return ansible.leases(request, on_event)

    monkeypatch.setattr("clusterctl.engine.lease_nodes.run_playbook", leases)
    assert run(["-C", str(cluster.root), "apply", "--yes", "--json"]) == 130
    lines, _ = records(capsys)
    assert lines[-1]["exit"] == 130
    assert (ansible.touched, ansible.holds) == (["registry01"], {})


@pytest.mark.parametrize("breaks", [OSError("No space left on device"), KeyboardInterrupt(), "book"])
def test_what_goes_wrong_with_giving_back_takes_no_outcomes_place(
    cluster, ansible, monkeypatch, capsys, breaks
):
    def leases(request, on_event):
        if request.extra_vars["clusterctl_lease_state"] == "freed" and breaks != "book":
            raise breaks
        return ansible.leases(request, on_event)

    def notes(directory, lease, hosts, note=lease_book.note):
        if breaks == "book" and not hosts:
            raise OSError("No space left on device")
        note(directory, lease, hosts)

    monkeypatch.setattr("clusterctl.engine.lease_nodes.run_playbook", leases)
    monkeypatch.setattr(lease_book, "note", notes)
    assert run(["-C", str(cluster.root), "apply", "--yes", "--json", "--limit", "gpu01,gpu02"]) == 0
    lines, messages = records(capsys)
    why = "interrupted" if isinstance(breaks, KeyboardInterrupt) else "No space left on device"
    assert f"gpu01: the lease could not be given back: {why}" in messages
    assert lines[-1]["leased"] == dict.fromkeys(("gpu01", "gpu02"), why)
    assert lines[-1]["changed"] == 2
    (entry,) = lease_book.entries(cluster)
    assert entry.hosts == ("gpu01", "gpu02")


def raises(error):
    def call(*_args, **_options):
        raise error

    return call


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), OSError(28, "No space left on device"), ClusterctlError("no", code="x.y")]
)
def test_what_fails_after_a_good_apply_does_not_hide_that_it_was_good(
    cluster, ansible, monkeypatch, capsys, error
):
    """The look afterwards takes minutes where a host hangs: Ctrl-C then ends the look, and nothing else."""
    monkeypatch.setattr("clusterctl.rollout.probe.look.Looks.settle", raises(error))
    assert run(["-C", str(cluster.root), "apply", "--yes", "--json"]) == 0
    lines, messages = records(capsys)
    assert (lines[-1]["type"], lines[-1]["exit"], lines[-1]["changed"]) == ("summary", 0, 4)
    (said,) = lines[-1]["unfinished"]
    assert said in messages
    saved = RunStore(cluster).get("last")
    assert (saved.exit_code, saved.summary["changed"], saved.summary["unfinished"]) == (0, 4, [said])
    assert ansible.holds == {}


def test_how_an_apply_ended_is_on_disk_and_told_before_the_look_afterwards(
    cluster, ansible, monkeypatch, capsys
):
    def settle(*_):
        seen.append((RunStore(cluster).get("last").exit_code, capsys.readouterr().out))
        return {}

    seen = []
    monkeypatch.setattr("clusterctl.rollout.probe.look.Looks.settle", settle)
    assert run(["-C", str(cluster.root), "apply", "--yes"]) == 0
    ((code, told),) = seen
    assert code == 0
    assert "gpu03" in told


def test_a_record_that_cannot_be_written_does_not_hide_how_the_apply_ended(
    cluster, ansible, monkeypatch, capsys
):
    full = ClusterctlError("the disk is full", code="x.y")
    monkeypatch.setattr("clusterctl.runs.store.RunStore.finish", raises(full))
    assert run(["-C", str(cluster.root), "apply", "--yes", "--json"]) == 0
    lines, _ = records(capsys)
    assert lines[-1]["unfinished"][0] == "how it ended is not in the run's record: the disk is full"


@pytest.mark.parametrize("seen_in_preflight", [True, False])
def test_apply_is_refused_where_another_controller_is_at_work(cluster, ansible, capsys, seen_in_preflight):
    ansible.holds["gpu02"] = theirs = lease_of_another()
    if seen_in_preflight:
        broken = {"severity": "error", "subject": "apt", "found": "dpkg is at work"}
        ansible.says = {"gpu02": {"facts": {"lease": theirs}, "findings": [broken]}}
    assert run(["-C", str(cluster.root), "apply", "--yes"]) == 2
    messages = capsys.readouterr().err
    assert "somebody else is changing gpu02, and nothing was touched" in messages
    assert "(apply) of anna on ctrl2, since 2026-01-01T00:00:00Z" in messages
    assert f"clusterctl unlock {theirs['run']}" in messages
    assert ansible.touched == []
    assert ansible.holds == {"gpu02": theirs}
    assert RunStore(cluster).get("last").exit_code == 2


def test_a_host_whose_lease_cannot_be_taken_has_failed_and_no_other_is_touched(cluster, ansible, capsys):
    ansible.breaks = {"gpu02": "the lease cannot be used: Read-only file system"}
    assert run(["-C", str(cluster.root), "apply", "--yes", "--json"]) == 1
    lines, messages = records(capsys)
    assert "gpu02: Take the lease" in messages
    assert "host.read-only" in messages
    assert lines[-1]["hosts"]["gpu02"]["failed"] == lines[-1]["failed"] == 1
    assert ansible.touched == []
    assert ansible.holds == {}
    ansible.breaks = {}
    assert run(["-C", str(cluster.root), "apply", "--yes"]) == 0
    assert lease_book.entries(cluster) == []


def test_what_a_dead_run_of_this_directory_holds_is_given_back_by_the_next(cluster, ansible, capsys):
    dead = lease_of(RunStore(cluster).create("apply", []), cluster)
    lease_book.note(cluster, dead, ["gpu01", "gpu02", "gone01"])
    ansible.holds |= dict.fromkeys(("gpu01", "gpu02"), dead.as_record())
    assert run(["-C", str(cluster.root), "apply", "--yes", "--limit", "gpu01"]) == 0
    assert f"giving back gpu01, left by {dead.holder}" in capsys.readouterr().err
    assert list(ansible.holds) == ["gpu02"], "it was not asked yet"
    assert run(["-C", str(cluster.root), "apply", "--yes"]) == 0
    assert ansible.holds == {}
    assert lease_book.entries(cluster) == []


def test_unlock_frees_exactly_the_nodes_of_that_run(cluster, ansible, capsys):
    ansible.holds = {host: lease_of_another() for host in ("gpu01", "gpu03")}
    ansible.holds["gpu02"] = other = lease_of_another(run="another", nonce="m")
    run_id = lease_of_another()["run"]
    assert run(["-C", str(cluster.root), "unlock", run_id, "--yes", "--json"]) == 0
    lines, messages = records(capsys)
    assert "(apply) of anna on ctrl2, since 2026-01-01T00:00:00Z, holds gpu01, gpu03" in messages
    assert (lines[-1]["freed"], lines[-1]["left"], lines[-1]["exit"]) == (["gpu01", "gpu03"], {}, 0)
    assert ansible.holds == {"gpu02": other}
    assert run(["-C", str(cluster.root), "unlock", run_id, "--yes"]) == 2
    assert "no node holds a lease of" in capsys.readouterr().err


def test_unlock_asks_and_takes_no_for_an_answer(cluster, ansible, monkeypatch, capsys):
    ansible.holds = {"gpu01": lease_of_another()}
    monkeypatch.setattr("click.confirm", lambda *_args, **_options: False)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    assert run(["-C", str(cluster.root), "unlock", lease_of_another()["run"]]) == 3
    assert "nothing was freed" in capsys.readouterr().err
    assert list(ansible.holds) == ["gpu01"]
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False)
    assert run(["-C", str(cluster.root), "unlock", lease_of_another()["run"]]) == 2


def test_unlock_frees_no_node_on_which_a_job_of_the_run_lives(cluster, ansible, capsys):
    ansible.holds = {host: lease_of_another() for host in ("gpu01", "gpu02")}
    ansible.jobs = {"gpu01": ["j1.2"], "gpu03": ["j3.4"]}
    run_id = lease_of_another()["run"]
    assert run(["-C", str(cluster.root), "unlock", run_id, "--yes", "--json"]) == 3
    lines, messages = records(capsys)
    assert "gpu01: not freed: job j1.2 still runs on it; unlock again when it has ended" in messages
    assert (lines[-1]["freed"], lines[-1]["left"]) == (["gpu02"], {"gpu01": "job j1.2 still runs on it"})
    assert list(ansible.holds) == ["gpu01"]
    ansible.jobs = {}
    assert run(["-C", str(cluster.root), "unlock", run_id, "--yes"]) == 0
    assert ansible.holds == {}


@pytest.mark.parametrize("answers", [True, False])
def test_unlock_asks_nodes_in_quarantine_too(cluster, ansible, capsys, answers):
    quarantine.put(cluster, "gpu03", "broken fan")
    ansible.holds = {"gpu03": lease_of_another()}
    ansible.breaks = {} if answers else {"gpu03": "No route to host"}
    done = run(["-C", str(cluster.root), "unlock", lease_of_another()["run"], "--yes", "--json"])
    lines, messages = records(capsys)
    assert done == (0 if answers else 3)
    assert lines[-1]["freed"] == (["gpu03"] if answers else [])
    assert lines[-1]["left"] == ({} if answers else {"gpu03": "No route to host"})
    assert "left out" not in messages


def test_a_run_that_cannot_be_seen_is_unlocked_by_an_explicit_word_alone(cluster, ansible, capsys):
    unseen = replace(lease_of(RunStore(cluster).create("apply", []), cluster), pid=1, space="pid:[1]")
    ansible.holds = {"gpu01": unseen.as_record()}
    assert run(["-C", str(cluster.root), "unlock", unseen.run, "--yes"]) == 2
    messages = capsys.readouterr().err
    assert "unlock.unseen" in messages
    assert "add --dead" in messages
    assert ansible.holds
    assert run(["-C", str(cluster.root), "unlock", unseen.run, "--yes", "--dead"]) == 0
    assert ansible.holds == {}


def test_a_run_that_lives_on_this_machine_is_not_unlocked(cluster, ansible, capsys):
    alive = lease_of(RunStore(cluster).create("apply", []), cluster)
    ansible.holds = {"gpu01": alive.as_record()}
    assert run(["-C", str(cluster.root), "unlock", alive.run, "--yes", "--dead"]) == 2
    assert "is still at work" in capsys.readouterr().err
    assert ansible.holds


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
    assert "hosts that may be rebooted: gpu01-gpu03\n" in capsys.readouterr().err
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
    assert "plan for 4 hosts" in out
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
