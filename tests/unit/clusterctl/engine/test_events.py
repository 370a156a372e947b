"""Events, journal, ledger, failures, environment: no process is run here."""

from __future__ import annotations

import errno
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.engine import journal as journal_module
from clusterctl.engine import mutex
from clusterctl.engine.event_reading import parse
from clusterctl.engine.events import (
    Diff,
    JobFinished,
    JobStarted,
    PlayStarted,
    Stats,
    TaskResult,
    TaskStarted,
    as_line,
    as_record,
)
from clusterctl.engine.failure import failure_of
from clusterctl.engine.journal import Journal, open_jobs, read
from clusterctl.engine.ledger import HostState, Ledger
from clusterctl.engine.playbook import playbook_environment
from clusterctl.errors import ClusterctlError
from clusterctl.interpreter import ignored_variables

TASK = TaskStarted(1.0, "t1", "Install packages", "nvidia_driver", "apt", "roles/x.yml:3")


def result(host="gpu01", status="ok", **fields):
    return TaskResult(2.0, host, "t1", status, **fields)


@given(st.binary())
def test_no_bytes_break_the_reader(line):
    parse(line)


texts = st.text()


@given(texts, st.dictionaries(texts, st.integers() | texts), st.lists(texts), st.none() | st.integers())
def test_an_event_survives_its_journal(msg, about, stderr, rc):
    event = parse(as_line(result(msg=msg, clusterctl=about, stderr=stderr, rc=rc)))
    back = parse(as_line(event))
    assert as_record(back) == as_record(event)
    assert as_line(event).count("\n") == 1


def test_a_plain_event_is_read_as_it_was_written():
    about = {"facts": {"pull": {"bytes": 1, "layers": {"sha256:00": 7}, "link_mbps": 1.5}}, "busy": "a job"}
    event = result(status="failed", msg="a  b\n\tc", clusterctl=about, stderr=["  x"], rc=2)
    assert as_record(parse(as_line(event))) == as_record(event)


def test_who_looks_for_jobs_reads_no_line_that_only_says_so(tmp_path, monkeypatch):
    """Journals of all runs are looked through before an apply, and nodes decide what stands in them."""
    path, read_lines = tmp_path / "journal.jsonl", []
    told = {"facts": {"event": "job_started", "text": '{"event": "job_started"'}}
    with Journal(path) as journal:
        journal.write(result(status="ok", clusterctl=told))
        journal.write(JobStarted(1.0, "gpu01", "j1.1"))
    parse_line = journal_module.parse
    monkeypatch.setattr(journal_module, "parse", lambda line: read_lines.append(line) or parse_line(line))
    assert [job.host for job in open_jobs(path)] == ["gpu01"]
    assert len(read_lines) == 1


def test_a_torn_last_line_hides_nothing_before_or_after_it(tmp_path):
    path = tmp_path / "journal.jsonl"
    with Journal(path) as journal:
        journal.write(JobStarted(1.0, "gpu01", "j1.1", results_file="/x/j1.1"))
        journal.write(JobStarted(1.0, "gpu02", "j2.2"))
    with path.open("ab") as stream:
        stream.write(b'{"event": "job_finished", "at": 2.0, "host": "gpu0')
    assert [job.host for job in open_jobs(path)] == ["gpu01", "gpu02"]
    with Journal(path) as journal:
        journal.write(JobFinished(3.0, "gpu02", "j2.2", recovered=True))
    assert [job.host for job in open_jobs(path)] == ["gpu01"]
    assert len(list(read(path))) == 3


def test_a_host_that_says_too_much_is_journalled_without_its_words(tmp_path, monkeypatch):
    monkeypatch.setattr(journal_module, "MAX_HOST_BYTES", 5000)
    path = tmp_path / "journal.jsonl"
    job = JobStarted(1.0, "gpu01", "j1.1", results_file="/x/j1.1")
    with Journal(path) as journal:
        for _ in range(100):
            said = {"msg": "x" * 1000, "stderr": ["y" * 1000], "code": "packages.source-down"}
            journal.write(result(status="failed", **said))
        journal.write(job)
        journal.write(TaskResult(1.0, "gpu02", "t1", "failed", msg="z" * 1000))
    assert path.stat().st_size < 5000 + 2 * 2500 + 100 * 250
    events = list(read(path))
    assert len(events) == 102
    assert {one.status for one in events[:100]} == {"failed"}
    assert "said too much" in events[99].msg
    assert events[99].code == "packages.source-down"
    assert events[100] == job
    assert events[101].msg == "z" * 1000


def test_a_diffs_text_stays_out_of_the_journal():
    line = as_line(Diff(1.0, "gpu01", "t1", [{"header": "/etc/x", "before": "", "after": "password"}]))
    assert "/etc/x" in line
    assert "password" not in line


def test_a_rescued_failure_is_none_in_the_end():
    ledger = Ledger(["gpu01"])
    for event in (PlayStarted(0, "p", ["gpu01"]), TASK, result(status="failed", msg="no")):
        ledger.record(event)
    assert ledger.state("gpu01") is HostState.FAILED
    counts = dict.fromkeys(("ok", "changed", "skipped", "failures", "unreachable", "ignored"), 0)
    ledger.record(Stats(3.0, {"gpu01": {**counts, "rescued": 1}}))
    assert ledger.hosts["gpu01"].failure is None
    assert ledger.hosts["gpu01"].failed == 0


def test_what_modules_say_to_clusterctl_is_gathered_by_host():
    ledger = Ledger(["gpu01"])
    ledger.record(result(clusterctl={"findings": [{"severity": "error"}], "facts": {"a": 1}}))
    ledger.record(result(clusterctl={"busy": "a training container", "reboot": "new kernel"}))
    one = ledger.hosts["gpu01"]
    assert (one.busy, one.reboot, one.facts) == ("a training container", "new kernel", {"a": 1})
    assert one.findings == [{"severity": "error"}]


@pytest.mark.parametrize(
    ("fields", "message", "remedy"),
    [
        ({"msg": "non-zero return code", "rc": 5, "stderr": ["a", "boom"]},
         "the command ended with exit code 5: boom", ""),
        ({"msg": "E: Could not get lock /var/lib/dpkg/lock-frontend"},
         "E: Could not get lock /var/lib/dpkg/lock-frontend", "unattended-upgrades"),
        ({"msg": "x", "clusterctl": {"remedy": "Do this."}}, "x", "Do this."),
        ({"msg": "secret", "hidden": True},
         "it failed; its result is hidden because it deals with secrets (no_log)", ""),
        ({"msg": "One or more items failed", "items": [{"label": "curl", "msg": "not found"}]},
         "curl: not found", ""),
        ({"argument_errors": ["value of x must be one of: a, b"]},
         "the settings are refused: value of x must be one of: a, b", ""),
        ({}, "the task failed and gave no reason", ""),
        ({"status": "unreachable",
          "msg": "Failed to connect to the host via ssh: Host key verification failed."},
         "it cannot be reached: Host key verification failed.", "hosts replace gpu01"),
    ],
)  # fmt: skip
def test_a_failure_says_what_the_task_said_and_what_to_do(fields, message, remedy):
    failure = failure_of(result(**{"status": "failed", **fields}), TASK)
    assert failure.message == message
    assert remedy in failure.remedy
    assert failure.task == "nvidia_driver: Install packages"


def test_a_long_message_is_cut_in_the_middle():
    failure = failure_of(result(status="failed", msg="\n".join(f"line {n}" for n in range(100))), TASK)
    lines = failure.message.splitlines()
    assert len(lines) <= 12
    assert (lines[0], lines[-1]) == ("line 0", "line 99")


def test_the_operators_ansible_variables_do_not_reach_ansible(tmp_path):
    shell = {"ANSIBLE_HOST_KEY_CHECKING": "false", "ANSIBLE_STDOUT_CALLBACK": "null", "LANG": "C",
             "ANSIBLE_VAULT_PASSWORD_FILE": "/v", "HOME": "/h", "SSH_ASKPASS": "/x"}  # fmt: skip
    given = playbook_environment(tmp_path, shell)
    assert "ANSIBLE_HOST_KEY_CHECKING" not in given
    assert "ANSIBLE_STDOUT_CALLBACK" not in given
    assert "SSH_ASKPASS" not in given
    assert given["ANSIBLE_VAULT_PASSWORD_FILE"] == "/v"
    assert given["LC_ALL"] == "C.UTF-8"
    assert given["ANSIBLE_CONFIG"] == str(tmp_path / "ansible.cfg")
    assert ignored_variables(shell) == ["ANSIBLE_HOST_KEY_CHECKING", "ANSIBLE_STDOUT_CALLBACK"]
    assert playbook_environment(tmp_path, {"LANG": "xx_YY.UTF-8"})["LC_ALL"] == "C.UTF-8", "it may be missing"


def test_a_second_operator_is_told_who_what_and_since_when(tmp_path):
    cluster = ClusterDirectory(tmp_path)
    with mutex.held(cluster, "apply"):
        holder = json.loads(cluster.mutex.read_text())
        with pytest.raises(ClusterctlError) as refused, mutex.held(cluster, "apply"):
            pass
    assert refused.value.exit_code == 2
    assert holder["who"] in refused.value.what
    assert f"running apply on this cluster since {holder['since']}" in refused.value.what
    assert str(holder["pid"]) in refused.value.hint
    with mutex.held(cluster, "apply"):
        pass


def test_a_disk_that_does_not_take_the_holders_name_keeps_nobody_from_working(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    cluster = ClusterDirectory(tmp_path)
    monkeypatch.setattr("os.pwrite", full)
    with (
        mutex.held(cluster, "apply"),
        pytest.raises(ClusterctlError, match="another process"),
        mutex.held(cluster, "apply"),
    ):
        pass
