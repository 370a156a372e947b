"""How an apply ends, whatever goes wrong at its end, and who is told. Ansible is played by data."""

from __future__ import annotations

import os
import sys

import pytest

from clusterctl.engine import lease_book
from clusterctl.errors import ClusterctlError
from clusterctl.runs.store import RunStore
from clusterctl.runs.verification import verify

from .played import records


def test_ctrl_c_between_two_waves_ends_like_any(clusterctl, ansible, capsys):
    def interrupts(request, *listeners):
        if request.extra_vars.get("clusterctl_lease_state") == "taken" and ansible.holds:
            raise KeyboardInterrupt
        return ansible(request, *listeners)

    assert clusterctl("apply", "--yes", "--json", runner=interrupts) == 130
    lines, _ = records(capsys)
    assert lines[-1]["exit"] == 130
    assert (ansible.touched, ansible.holds) == (["registry01"], {})


@pytest.mark.parametrize("breaks", [OSError("No space left on device"), KeyboardInterrupt(), "book"])
def test_what_goes_wrong_with_giving_back_takes_no_outcomes_place(
    *, clusterctl, cluster, ansible, monkeypatch, capsys, breaks
):
    def breaking(request, *listeners):
        if request.extra_vars.get("clusterctl_lease_state") == "freed" and breaks != "book":
            raise breaks
        return ansible(request, *listeners)

    def notes(directory, lease, hosts, note=lease_book.note):
        if breaks == "book" and not hosts:
            raise OSError("No space left on device")
        note(directory, lease, hosts)

    monkeypatch.setattr(lease_book, "note", notes)
    assert clusterctl("apply", "--yes", "--json", "--limit", "gpu01,gpu02", runner=breaking) == 0
    lines, messages = records(capsys)
    why = "interrupted" if isinstance(breaks, KeyboardInterrupt) else "No space left on device"
    assert f"gpu01: the lease could not be released: {why}" in messages
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
    *, clusterctl, cluster, ansible, monkeypatch, capsys, error
):
    """The look afterwards takes minutes where a host hangs: Ctrl-C then ends the look, and nothing else."""
    monkeypatch.setattr("clusterctl.rollout.drift.probe.DriftProbe.record", raises(error))
    assert clusterctl("apply", "--yes", "--json") == 0
    lines, messages = records(capsys)
    assert (lines[-1]["type"], lines[-1]["exit"], lines[-1]["changed"]) == ("summary", 0, 4)
    (said,) = lines[-1]["unfinished"]
    assert said in messages
    saved = RunStore(cluster).get("last")
    assert (saved.exit_code, saved.summary["changed"], saved.summary["unfinished"]) == (0, 4, [said])
    assert ansible.holds == {}


def test_how_an_apply_ended_is_on_disk_and_told_before_the_look_afterwards(
    clusterctl, cluster, ansible, monkeypatch, capsys
):
    def settle(*_):
        seen.append((RunStore(cluster).get("last").exit_code, capsys.readouterr().out))
        return {}

    seen = []
    monkeypatch.setattr("clusterctl.rollout.drift.probe.DriftProbe.record", settle)
    assert clusterctl("apply", "--yes") == 0
    ((code, told),) = seen
    assert code == 0
    assert "gpu03" in told


def test_a_record_that_cannot_be_written_does_not_hide_how_the_apply_ended(
    clusterctl, ansible, monkeypatch, capsys
):
    full = ClusterctlError("the disk is full", code="x.y")
    monkeypatch.setattr("clusterctl.runs.store.RunStore.finish", raises(full))
    assert clusterctl("apply", "--yes", "--json") == 0
    lines, _ = records(capsys)
    assert lines[-1]["unfinished"][0] == "how it ended is not in the run's record: the disk is full"


def test_who_declines_gets_the_summary_too(clusterctl, cluster, ansible, monkeypatch, capsys):
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr("click.confirm", lambda *_args, **_options: False)
    assert clusterctl("apply", "--json") == 0
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
def test_a_reader_that_goes_away_neither_stops_the_work_nor_hides_how_it_ended(
    clusterctl, cluster, ansible, form
):
    assert clusterctl("apply", "--yes", *form) == 0
    assert sorted(ansible.touched) == ["gpu01", "gpu02", "gpu03", "registry01"]
    ansible.fails = {"registry01": "no"}
    assert clusterctl("apply", "--yes", *form) == 1
    assert RunStore(cluster).get("last").exit_code == 1


@pytest.mark.parametrize("words", [("apply", "--yes"), ("plan",), ("preflight",)])
def test_the_record_of_a_run_is_whole_when_the_command_returns(clusterctl, cluster, ansible, words):
    """Nothing is written to a run's files after its link in the chain."""
    clusterctl(*words)
    checked = verify(cluster)
    assert checked.links > 0
    assert checked.problems == ()
