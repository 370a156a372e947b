"""apply and plan from the operator's side, with Ansible played by data: waves, order, what is said."""

from __future__ import annotations

from clusterctl.cluster import quarantine
from clusterctl.engine.journal import read
from clusterctl.runs.store import RunStore

from .played import records


def test_apply_goes_in_waves_and_ends_with_the_summary_that_scripts_rely_on(
    clusterctl, cluster, ansible, capsys
):
    quarantine.put(cluster, "gpu03", "broken fan")
    assert clusterctl("apply", "--yes", "--json") == 0
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
    assert "gpu03: skipped, in quarantine: broken fan" in messages
    assert "apply driver, mig, runtime, registry, images to 3 hosts in 3 waves" in messages
    assert ansible.touched == ["registry01", "gpu01", "gpu02"]
    saved = RunStore(cluster).get("last")
    assert (saved.exit_code, saved.summary["open_jobs"]) == (0, 0)
    assert list(read(saved.journal))


def test_an_error_in_preflight_stops_before_anything_is_changed(clusterctl, ansible, capsys):
    finding = {"severity": "error", "subject": "gpus", "found": 7, "expected": 8, "remedy": "Reseat it."}
    ansible.says = {"gpu02": {"findings": [finding]}}
    assert clusterctl("apply", "--yes", "--json") == 1
    lines, _ = records(capsys)
    assert (lines[-1]["failed"], lines[-1]["exit"]) == (1, 1)
    assert lines[-1]["hosts"]["gpu02"]["failed"] == 1
    assert clusterctl("apply", "--yes") == 1
    out, messages = capsys.readouterr()
    assert "Reseat it." in out
    assert "preflight of 4 hosts: 1 error" in out
    assert "nothing was changed" in messages
    assert ansible.touched == []


def test_preflight_lists_all_findings_as_data(clusterctl, ansible, capsys):
    warning = {"severity": "warning", "subject": "clock", "found": "2 s", "expected": "< 1 s"}
    ansible.says = {"gpu01": {"findings": [warning], "busy": "a training job"}}
    assert clusterctl("preflight", "--json", "--limit", "gpu01") == 0
    lines, _ = records(capsys)
    finding, busy, last = [line for line in lines if line["type"] in ("finding", "busy", "summary")]
    assert (finding["host"], finding["severity"], finding["found"]) == ("gpu01", "warning", "2 s")
    assert busy == {"type": "busy", "host": "gpu01", "because": "a training job"}
    assert last["exit"] == 0


def test_a_busy_host_is_left_out_and_said_until_forced(clusterctl, ansible, capsys):
    ansible.says = {"gpu01": {"busy": "container train-1 holds GPUs"}}
    nodes = ["--yes", "--limit", "gpu01,gpu02", "--only", "driver"]
    assert clusterctl("apply", *nodes) == 3
    out, messages = capsys.readouterr()
    assert "gpu01: skipped, busy: container train-1 holds GPUs" in messages
    assert "busy" in out
    assert ansible.touched == ["gpu02"]
    assert ansible.requests[-1].tags == ("driver",)
    assert "nvidia_driver_force_busy" not in ansible.requests[-1].extra_vars, "the settings have the word"
    assert clusterctl("apply", *nodes, "--force-busy") == 0
    assert ansible.touched == ["gpu02", "gpu01", "gpu02"]
    assert ansible.requests[-1].extra_vars["nvidia_driver_force_busy"] is True


def test_plan_says_what_would_change_and_changes_nothing(clusterctl, ansible, capsys):
    assert clusterctl("plan") == 0
    out, _ = capsys.readouterr()
    assert "gpu01-gpu03, registry01: 1 thing would change" in out
    assert out.count("~ a_role: Write a file") == 1
    assert "+hello" in out
    assert "plan for 4 hosts: 4 changes on 4 hosts, 0 failed, 0 unreachable" in out
    asked = [(request.check, request.hosts) for request in ansible.requests]
    assert asked == [(True, ("registry01",)), (True, ("gpu01", "gpu02", "gpu03"))]


def test_a_plan_goes_on_where_the_registrys_host_fails(clusterctl, ansible, capsys):
    """In one playbook Ansible would end with the play of the registry, and no node would be looked at."""
    ansible.fails = {"registry01": "E: Could not get lock /var/lib/dpkg/lock-frontend"}
    assert clusterctl("plan", "--json") == 1
    lines, _ = records(capsys)
    failed = {host for host, counts in lines[-1]["hosts"].items() if counts["failed"]}
    assert failed == {"registry01"}
    assert {line["host"] for line in lines if line["type"] == "change"} == {"gpu01", "gpu02", "gpu03"}


def test_a_failure_is_told_in_full_and_later_waves_are_not_begun(clusterctl, ansible, capsys):
    ansible.fails = {"gpu01": "E: Could not get lock /var/lib/dpkg/lock-frontend"}
    assert clusterctl("apply", "--yes") == 1
    out, messages = capsys.readouterr()
    assert "gpu01: a_role: Write a file" in messages
    assert "E: Could not get lock" in messages
    assert "Another package operation runs on gpu01" in messages
    assert "stopped: gpu01 failed; later waves were not started" in messages
    assert "not started" in out
    assert ansible.touched == ["registry01", "gpu01"]
