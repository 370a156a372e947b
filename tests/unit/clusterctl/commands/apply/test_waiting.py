"""apply --wait: who is waited for, how long, and what is done then. Ansible and the clock are played."""

from __future__ import annotations

import click
import pytest

from clusterctl.commands.shared.options import duration
from clusterctl.engine.ledger import HostState
from clusterctl.engine.playbook import PlaybookOutcome
from clusterctl.rollout.apply import apply
from clusterctl.rollout.apply_request import ApplyRequest, Caller
from clusterctl.rollout.leases import HostsInUseError
from clusterctl.rollout.waiting import MAX_PAUSE_S, Wait
from clusterctl.runs.store import RunStore

from .played import lease_of_another

BUSY = {"busy": "container train-1 holds GPUs"}


class Clock:
    """Time that passes only while somebody sleeps; ``then`` says what happens when so much has passed."""

    def __init__(self):
        self.now, self.pauses, self.then = 0.0, [], {}

    def sleep(self, seconds):
        self.pauses.append(seconds)
        self.now += seconds
        for at in [at for at in self.then if at <= self.now]:
            self.then.pop(at)()

    def wait(self, limit_s):
        return Wait(limit_s, sleep=self.sleep, clock=lambda: self.now)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def applied(cluster, ansible, clock):
    """An apply without Click, that waits so many seconds."""

    def call(limit_s, runner=ansible, **hooks):
        request = ApplyRequest(cluster.root, wait=clock.wait(limit_s))
        return apply(request, runner=runner, caller=Caller(**hooks))

    return call


def lease(ansible, host):
    """Another controller's run holds a host; returns what gives it back."""
    ansible.holds[host] = theirs = lease_of_another()
    ansible.says[host] = {"facts": {"lease": theirs}}

    def release():
        del ansible.holds[host], ansible.says[host]

    return release


def preflights(ansible):
    return [request.hosts for request in ansible.requests if request.playbook == "preflight.yml"]


def test_a_busy_host_that_becomes_free_is_changed_with_the_others(applied, ansible, clock, capsys):
    ansible.says = {"gpu01": BUSY}
    clock.then = {100: ansible.says.clear}
    shown = []
    result = applied(3600, show=shown.append)
    assert (result.exit_code, result.outcome.busy) == (0, {})
    assert ansible.touched == ["registry01", "gpu01", "gpu02", "gpu03"], "none before the wait was over"
    assert clock.pauses == [5, 10, 20, 40, 60], "ever less often"
    assert preflights(ansible)[1:] == [("gpu01",)] * 6, "each question, and preflight of who is free"
    assert [sorted(report.states) for report in shown] == [
        ["gpu01", "gpu02", "gpu03", "registry01"], ["gpu01"]
    ]  # fmt: skip
    messages = capsys.readouterr().err
    assert "waiting up to 1h00m for gpu01: busy: container train-1 holds GPUs\n" in messages
    assert messages.count("waiting up to") == 1
    assert "gpu01: no longer in use" in messages


def test_a_host_that_is_busy_to_the_end_of_the_wait_is_skipped(applied, ansible, clock, capsys):
    ansible.says = {"gpu01": BUSY, "gpu02": BUSY}
    clock.then = {30: lambda: ansible.says.pop("gpu02")}
    result = applied(1800)
    assert (result.exit_code, list(result.outcome.busy)) == (3, ["gpu01"])
    assert sorted(ansible.touched) == ["gpu02", "gpu03", "registry01"]
    assert (clock.now, max(clock.pauses)) == (1800, MAX_PAUSE_S), "not longer, and asked at the very end"
    messages = capsys.readouterr().err
    assert "waiting up to 30m00s for gpu01, gpu02: busy" in messages
    assert "waiting up to 29m25s for gpu01: busy" in messages
    assert messages.count("for gpu01: busy") == 3, "and every ten minutes"


def test_a_host_of_another_run_is_changed_when_that_has_ended(applied, ansible, clock, capsys):
    clock.then = {60: lease(ansible, "gpu02")}
    result = applied(600)
    assert result.exit_code == 0
    assert "gpu02" in ansible.touched
    assert "for gpu02: run 20260101T000000000-apply-bbbb (apply) of anna" in capsys.readouterr().err


def test_a_host_that_another_run_holds_to_the_end_of_the_wait_is_a_refusal(applied, cluster, ansible, clock):
    lease(ansible, "gpu02")
    with pytest.raises(HostsInUseError) as caught:
        applied(600)
    assert (caught.value.code, caught.value.exit_code) == ("engine.leased", 2)
    assert list(caught.value.hosts) == ["gpu02"]
    assert (ansible.touched, clock.now) == ([], 600)
    assert RunStore(cluster).get("last").exit_code == 2


def test_a_host_that_reboots_under_another_run_is_waited_for(applied, ansible, clock):
    release = lease(ansible, "gpu02")
    away = {"gpu02"}
    clock.then = {30: release, 200: away.clear}

    def rebooting(request, *listeners):
        done = ansible(request, *listeners)
        gone = {host for host in request.hosts if host in away and request.playbook == "preflight.yml"}
        if not gone or clock.now < 30:
            return done
        states = {**done.states, **dict.fromkeys(gone, HostState.UNREACHABLE)}
        return PlaybookOutcome(states, dict.fromkeys(states, ""), done.ledger, 4, False, False, 1.0)

    assert applied(600, runner=rebooting).exit_code == 0
    assert 200 <= clock.now < 600
    assert "gpu02" in ansible.touched


def test_what_another_run_broke_on_a_host_is_said_when_it_is_free(applied, ansible, clock):
    release = lease(ansible, "gpu02")
    broken = {"severity": "error", "subject": "driver", "found": "half installed"}

    def fails():
        release()
        ansible.says["gpu02"] = {"findings": [broken]}

    clock.then = {30: fails}
    result = applied(600)
    assert (result.exit_code, [one.host for one in result.report.errors]) == (1, ["gpu02"])
    assert ansible.touched == []


def test_nobody_is_waited_for_where_another_host_stops_the_apply(applied, ansible, clock):
    broken = {"severity": "error", "subject": "disk", "found": "full"}
    ansible.says = {"gpu01": BUSY, "gpu02": {"findings": [broken]}}
    assert applied(600).exit_code == 1
    assert clock.pauses == []


def test_ctrl_c_ends_the_wait_and_nothing_is_changed(applied, cluster, ansible, clock):
    def interrupt():
        raise KeyboardInterrupt

    ansible.says = {"gpu01": BUSY}
    clock.then = {60: interrupt}
    result = applied(600)
    assert (result.exit_code, result.report.interrupted) == (130, True)
    assert ansible.touched == []
    assert RunStore(cluster).get("last").exit_code == 130


def test_a_run_that_was_faster_after_preflight_is_waited_for_too(applied, ansible, clock):
    ansible.holds["gpu02"] = lease_of_another()
    clock.then = {60: ansible.holds.clear}
    assert applied(600).exit_code == 0
    assert preflights(ansible)[-1] == ("gpu02",), "what it did there is looked at before we continue"
    assert sorted(ansible.touched) == ["gpu01", "gpu02", "gpu03", "registry01"]


def test_what_an_earlier_run_began_is_waited_for_and_refused_past_the_limit(applied, ansible, clock):
    ansible.jobs = {"gpu02": ["j1.2"]}
    with pytest.raises(HostsInUseError) as caught:
        applied(600)
    assert (caught.value.code, clock.now, ansible.touched) == ("engine.job-left", 600, [])


def test_without_wait_nobody_is_waited_for(applied, ansible, clock):
    ansible.says = {"gpu01": BUSY}
    assert applied(0).exit_code == 3
    assert clock.pauses == []


def test_the_option_waits_and_the_closing_words_are_said_though_every_host_is_busy(
    clusterctl, ansible, capsys
):
    ansible.says = {"gpu01": BUSY}
    assert clusterctl("apply", "--yes", "--limit", "gpu01", "--wait", "1s") == 3
    out, messages = capsys.readouterr()
    assert "waiting up to 1s for gpu01" in messages
    assert "nothing was changed: gpu01 busy (clusterctl apply --wait 30m waits for busy hosts)" in messages
    assert "full Ansible log: " in messages
    assert "container train-1 holds GPUs" in out.splitlines()[-1], "the table of hosts"
    assert ansible.touched == []


@pytest.mark.parametrize("words", [["--check"], ["--only", "preflight"]])
def test_a_wait_for_what_changes_nothing_is_a_wrong_request(clusterctl, ansible, words):
    assert clusterctl("apply", "--yes", "--wait", "1s", *words) == 2
    assert ansible.requests == []


def test_a_duration_has_units():
    assert [duration(text) for text in ("90s", "30m", "1h30m", "2d", "0s")] == [90, 1800, 5400, 172800, 0]
    for wrong in ("", "30", "m", "30m1h", "-5m", "1.5h", "5 m", "1w", "٣m", "9999999s"):
        with pytest.raises(click.BadParameter, match="is not a duration"):
            duration(wrong)
