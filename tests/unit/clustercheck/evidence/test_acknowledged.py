"""Kernel messages that were seen to: noted by node, and left aside where that is asked for."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from clustercheck.checks.all import BY_ID
from clustercheck.checks.base import evaluate
from clustercheck.checks.support import seeding
from clustercheck.model import Verdict
from clustercheck.samples import sample
from clusterctl import main
from clusterctl.cluster import acknowledged
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.errors import ClusterctlError
from clusterctl.validation import acknowledged_in

HOSTS = "all: {children: {gpu_nodes: {hosts: {gpu01: {ansible_host: 192.0.2.1}}}}}\n"
SAID = datetime(2026, 11, 20, 10, tzinfo=UTC)  # the time in the lines of seeding
FAULTS = {"xid": ("gpu01", "xid-79"), "kernel-log": ("gpu01", "sxid-fatal")}


def verdict(check: str, since: datetime | None, when: str = "") -> Verdict:
    node, name = FAULTS[check]
    fault = next(fault for fault in BY_ID[check].faults if fault.name == name)
    evidence = fault.inject(sample.healthy())
    if when:
        line = evidence.nodes[node].raw["kernel_log"]["kept"][0].partition(" ")[2]
        evidence = seeding.kernel_says(node, f"{when} {line}")(sample.healthy())
    nodes = tuple(replace(each, acknowledged=since) for each in evidence.spec.nodes)
    evidence = replace(evidence, spec=replace(evidence.spec, nodes=nodes))
    return next(r.verdict for r in evaluate(BY_ID[check], evidence) if r.subject == fault.subject)


@pytest.mark.parametrize("check", FAULTS)
def test_what_was_said_before_does_not_count_and_what_came_after_does(check: str) -> None:
    assert verdict(check, None) is Verdict.FAIL
    assert verdict(check, SAID + timedelta(minutes=1)) is Verdict.PASS
    assert verdict(check, SAID) is Verdict.FAIL
    assert verdict(check, SAID, "2026-11-20T13:00:00,000000+02:00") is Verdict.FAIL
    assert verdict(check, SAID, "2026-11-20T11:00:00,000000+02:00") is Verdict.PASS


@pytest.mark.parametrize(("hours", "verdict"), [(-1, Verdict.FAIL), (1, Verdict.PASS)])
def test_what_was_acknowledged_before_the_boot_counts_whatever_the_clock_said_early(
    hours: float, verdict: Verdict
) -> None:
    """Until the network sets it, the clock of a node may be anywhere."""
    fault = next(fault for fault in BY_ID["xid"].faults if fault.name == "xid-79")
    evidence = fault.inject(sample.healthy(1))
    asked = (SAID + timedelta(days=9)).timestamp()
    since = datetime.fromtimestamp(asked - evidence.nodes["gpu01"].raw["host"]["uptime_s"], UTC)
    since += timedelta(hours=hours)
    nodes = tuple(replace(each, acknowledged=since) for each in evidence.spec.nodes)
    said = {"gpu01": replace(evidence.nodes["gpu01"], asked=(asked, asked + 2))}
    evidence = replace(evidence, nodes=said, spec=replace(evidence.spec, nodes=nodes))
    assert next(r.verdict for r in evaluate(BY_ID["xid"], evidence)) is verdict


@pytest.mark.parametrize("days", [-1, 1])
def test_a_line_that_cannot_be_read_leaves_a_gap_unless_it_was_acknowledged(days: int) -> None:
    garbled = seeding.kernel_says("gpu01", f"{SAID.isoformat()} gpu01 kernel: NVRM: Xid (PCI:0000")
    evidence = garbled(sample.healthy(1))
    since = SAID + timedelta(days=days)
    nodes = tuple(replace(each, acknowledged=since) for each in evidence.spec.nodes)
    seen = replace(evidence, spec=replace(evidence.spec, nodes=nodes))
    assert bool(seen.log_gap("gpu01")) is (days < 0)


@pytest.mark.parametrize("when", ["[12.345678]", "2026-11-20T09:00:00", "yesterday"])
def test_a_message_whose_time_cannot_be_told_counts(when: str) -> None:
    assert verdict("xid", SAID + timedelta(days=9), when) is Verdict.FAIL


@pytest.mark.parametrize("check", FAULTS)
@pytest.mark.parametrize(
    ("first", "inside", "since", "expected"),
    [
        ("2026-11-20T09:00:00+0000 gpu01 kernel: br0", "none", None, Verdict.NOT_RUN),
        ("2026-11-20T09:00:00+0000 gpu01 kernel: br0", "kvm", None, Verdict.NOT_RUN),
        ("2026-11-20T09:00:00+0000 gpu01 kernel: br0", "docker", None, Verdict.PASS),  # no log of its own
        ("2026-11-20T09:00:00+0000 gpu01 kernel: br0", "none", SAID, Verdict.PASS),
        ("2026-11-20T11:00:00,000000+00:00 br0", "none", SAID, Verdict.NOT_RUN),
        ("", "none", SAID, Verdict.NOT_RUN),
    ],
)
def test_a_log_that_lost_its_beginning_proves_nothing_before_what_was_acknowledged(
    check: str, first: str, inside: str, since: datetime | None, expected: Verdict
) -> None:
    def late(raw: dict[str, Any]) -> None:
        raw["kernel_log"].update(first=first, from_boot=False)
        raw["virtual"].update(rc=0 if inside != "none" else 1, stdout=f"{inside}\n")

    evidence = seeding.edit("gpu01", late)(sample.healthy(1))
    nodes = tuple(replace(each, acknowledged=since) for each in evidence.spec.nodes)
    evidence = replace(evidence, spec=replace(evidence.spec, nodes=nodes))
    assert {result.verdict for result in evaluate(BY_ID[check], evidence)} == {expected}


@pytest.fixture
def site(tmp_path: Path) -> ClusterDirectory:
    (tmp_path / "hosts.yml").write_text(HOSTS)
    return ClusterDirectory(tmp_path)


def test_the_command_notes_the_time_and_judges_nothing(
    site: ClusterDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    assert acknowledged.times(site) == {}
    assert main.run(["-C", str(site.root), "validate", "--acknowledge", "gpu01"]) == 0
    assert "Xids, SXids, crashes and BMC events on gpu01 count from" in capsys.readouterr().err
    (noted,) = acknowledged.times(site).items()
    assert noted[0] == "gpu01" and datetime.now(UTC) - noted[1] < timedelta(minutes=5)
    spec = acknowledged_in(sample.spec(), site)
    assert [node.acknowledged for node in spec.nodes] == [noted[1], None, None]
    assert main.run(["-C", str(site.root), "validate", "--acknowledge", "gpu07"]) == 2


@pytest.mark.parametrize("text", ["[1]", "gpu01: 7", "gpu01: {by: me}", 'gpu01: {since: "soon"}', "a: [",
                                  'gpu01: {since: "2026-11-20T10:00:00"}'])  # fmt: skip
def test_a_record_that_is_none_is_said(site: ClusterDirectory, text: str) -> None:
    site.ensure_state()
    site.acknowledged_file.write_text(text)
    with pytest.raises(ClusterctlError) as caught:
        acknowledged.times(site)
    assert caught.value.code == "validate.acknowledged-unreadable"
