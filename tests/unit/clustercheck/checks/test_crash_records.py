"""Crashes of the kernel: dumps in pstore and in systemd's archive, judged by their time."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from clustercheck.checks.all import BY_ID
from clustercheck.checks.base import evaluate
from clustercheck.checks.crash_records import DAY_S, DAYS
from clustercheck.checks.support import seeding
from clustercheck.evidence.cluster import Evidence
from clustercheck.model import Result, Verdict
from clustercheck.probe.crashes import MOST_FILES, crashes
from clustercheck.samples import sample
from clustercheck.samples.machine import crash_record

PASS, FAIL, NOT_RUN, EXCLUDED = Verdict.PASS, Verdict.FAIL, Verdict.NOT_RUN, Verdict.EXCLUDED


def judged(evidence: Evidence) -> Result:
    return evaluate(BY_ID["crash-records"], evidence)[0]


def with_dumps(*days_ago: float, **fields: object) -> Evidence:
    def change(raw: seeding.Raw) -> None:
        part = raw["crashes"]
        part["records"] += [{**crash_record(part["now"] - days * DAY_S), **fields} for days in days_ago]

    return seeding.edit("gpu01", change)(sample.healthy(1))


def test_dumps_of_one_crash_are_one_and_what_was_said_first_stands() -> None:
    ago = (1.0, 1.0 - 60 / DAY_S)
    dumps = [with_dumps(days, said=[words]).nodes["gpu01"].raw["crashes"]["records"][0]
             for days, words in zip(ago, ("panic: first", "panic: second"), strict=True)]  # fmt: skip
    found = judged(seeding.edit("gpu01", lambda raw: raw["crashes"].update(records=dumps))(sample.healthy(1)))
    assert found.verdict is FAIL
    assert "panic: first" in found.because and "panic: second" not in found.because


def test_the_kind_of_a_crash_is_that_of_the_first_part_that_tells_it() -> None:
    """The oldest part is often cut: an operator still learns that it was a panic."""
    ago = (1.0, 1.0 - 10 / DAY_S)
    dumps = [with_dumps(days, head=head, said=[]).nodes["gpu01"].raw["crashes"]["records"][0]
             for days, head in zip(ago, ("cut", "Panic#1 Part1"), strict=True)]  # fmt: skip
    found = judged(seeding.edit("gpu01", lambda raw: raw["crashes"].update(records=dumps))(sample.healthy(1)))
    assert found.verdict is FAIL and "panic" in found.because


def write(root: Path, name: str, text: str, time: float) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, (time, time))


def test_dumps_are_read_where_the_kernel_and_systemd_keep_them(tmp_path: Path) -> None:
    said = "<0>[  81.2] Kernel panic - not syncing: Fatal hardware error!"
    efi = "sys/fs/pstore/dmesg-efi_pstore-17320000001001"
    write(tmp_path, efi, f"Panic#1 Part1\n<6>[1] x\n{said}\n", 100)
    write(tmp_path, "sys/fs/pstore/console-ramoops-0", "Kernel panic - not syncing: of old\n", 200)
    archive = "var/lib/systemd/pstore/1732000"
    write(tmp_path, f"{archive}/001/dmesg-erst-1", "Oops#1 Part1\n<1>[9] BUG: kernel NULL pointer\n", 300)
    write(tmp_path, f"{archive}/dmesg.txt", "<1>[9] BUG: kernel NULL pointer\n", 300)  # the same
    write(tmp_path, "var/lib/systemd/pstore/other/dmesg.txt", "<1>[9] Oops: 0002\n", 400)
    write(tmp_path, "sys/module/pstore/parameters/backend", "efi_pstore\n", 1)
    write(tmp_path, "proc/mounts", "pstore /sys/fs/pstore pstore rw,nosuid 0 0\n", 1)
    found = crashes(str(tmp_path))
    assert [(each["path"], each["time"], each["head"]) for each in found["records"]] == [
        (f"/{efi}", 100, "Panic#1 Part1"),
        ("/var/lib/systemd/pstore/other/dmesg.txt", 400, "<1>[9] Oops: 0002"),
        (f"/{archive}/001/dmesg-erst-1", 300, "Oops#1 Part1"),
    ]
    assert found["records"][0]["said"] == ["Kernel panic - not syncing: Fatal hardware error!"]
    assert (found["backend"], found["mounted"], found["dropped"], found["unreadable"]) == (
        "efi_pstore", True, 0, {},
    )  # fmt: skip


def test_a_machine_that_keeps_none_and_one_with_thousands(tmp_path: Path) -> None:
    nothing = crashes(str(tmp_path))
    assert (nothing["records"], nothing["backend"], nothing["mounted"]) == ([], None, False)
    for number in range(MOST_FILES + 5):
        write(tmp_path, f"sys/fs/pstore/dmesg-erst-{number}", "Panic#1 Part1\n", number)
    many = crashes(str(tmp_path))
    assert (len(many["records"]), many["dropped"]) == (MOST_FILES, 5)
    assert min(each["time"] for each in many["records"]) == 5  # the newest are kept


@pytest.mark.parametrize(
    ("days_ago", "verdict"),
    [(0.0, FAIL), (DAYS * 0.95, FAIL), (DAYS * 1.05, PASS), (400.0, PASS)],
)
def test_a_crash_counts_for_some_days_and_is_shown_after_them(days_ago: float, verdict: Verdict) -> None:
    result = judged(with_dumps(days_ago))
    assert result.verdict is verdict
    assert "Fatal hardware error" in result.evidence["crashes"][0]


def test_one_since_the_last_was_seen_to_counts_however_old_and_one_before_does_not() -> None:
    evidence = with_dumps(30.0)
    for days_ago, verdict in ((31.0, FAIL), (29.0, PASS)):
        seen = datetime.fromtimestamp(sample.NOON - days_ago * DAY_S, UTC)
        nodes = (replace(evidence.spec.nodes[0], acknowledged=seen),)
        assert judged(replace(evidence, spec=replace(evidence.spec, nodes=nodes))).verdict is verdict


def test_the_parts_of_one_crash_are_one_and_a_dump_at_shutdown_is_none() -> None:
    seconds = 1 / DAY_S
    result = judged(with_dumps(1.0, 1.0 + 10 * seconds, 1.0 + 20 * seconds, 3.0))
    assert result.verdict is FAIL and result.because.startswith(
        "the kernel crashed 2 times in the last 14 days"
    )
    assert judged(with_dumps(1.0, head="Shutdown#1 Part1", said=["BUG: of before"])).verdict is PASS


def test_a_container_shows_the_crashes_of_another_machine_and_has_its_own_archive() -> None:
    def contain(raw: seeding.Raw) -> None:
        raw["virtual"].update(rc=0, stdout="docker\n")

    contained = seeding.edit("gpu01", contain)
    assert judged(contained(with_dumps(1.0))).verdict is PASS
    moved = with_dumps(1.0, place="/var/lib/systemd/pstore", path="/var/lib/systemd/pstore/1/dmesg-efi-1")
    assert judged(contained(moved)).verdict is FAIL


def test_a_kernel_that_keeps_none_is_not_judged() -> None:
    none = seeding.edit("gpu01", lambda raw: raw["crashes"].update(backend=None, mounted=False))
    result = judged(none(sample.healthy(1)))
    assert result.verdict is EXCLUDED and "no backend" in result.because
    assert judged(none(with_dumps(1.0))).verdict is FAIL
    assert judged(none(with_dumps(400.0))).verdict is PASS  # it kept that one


@pytest.mark.parametrize("time", [None, True, -1, 1e12, "now"])
def test_a_dump_without_a_time_is_not_judged(time: object) -> None:
    assert judged(with_dumps(1.0, time=time)).verdict is NOT_RUN
