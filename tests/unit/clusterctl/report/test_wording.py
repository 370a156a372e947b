"""Reports: the same is said once, and names, values and times are written as people read them."""

from __future__ import annotations

import pytest

from clustercheck.model import Culprit, Result, Scope, Subject, Verdict
from clusterctl.report import (
    html,
    inventory,
    subjects,
    terminal,
    view,
)

from .report_documents import document, planted


def test_the_same_said_of_many_is_said_once():
    gpus = [Subject("gpu01", gpu) for gpu in (0, 1, 2, 5)]
    assert subjects.subjects_name([*gpus, Subject("gpu02", 3)]) == "gpu01, GPU 0-2, 5; gpu02, GPU 3"
    assert subjects.subjects_name([Subject("gpu01"), Subject("gpu02")]) == "gpu01, gpu02"
    assert subjects.subjects_name([Subject()]) == "all nodes"
    assert subjects.subjects_name([Subject("gpu01", peer="gpu02")]) == "gpu01 - gpu02"


def test_checks_not_run_are_grouped_by_reason():
    made = document(planted("gpu-ecc", "counters-missing"))
    (question,) = view.open_questions(made)
    assert question.because == "cannot read: the uncorrectable ECC counters are not printed"
    assert question.subjects == "gpu01, GPU 2"
    assert question.checks == ("gpu-ecc",)
    assert question.remedy == ""
    assert question.because in html.render(made)


def test_the_terminal_says_a_reason_once_that_many_checks_share():
    gone = planted("gpu-present", "gpu-gone-from-bus")
    made = document(gone, (Culprit("gpu", "gpu01", "gpu-present: it is gone", "Look.", 3),))
    text = terminal.render(made, width=140)
    assert text.count("the driver does not list this GPU") == 1
    assert sum(line.split()[1:3] == ["not", "run"] for line in text.splitlines()) > 3


def test_many_pairs_are_said_in_one_row_with_their_range():
    slow = [
        Result(
            "pair-bandwidth",
            Scope.PAIR,
            Subject(f"gpu{n:02d}", peer="gpu88"),
            Verdict.FAIL,
            measured=0.05 + n / 1000,
            unit="GB/s",
            expected=1.1,
            because=f"pair {n}",
            remedy="Check the cable.",
        )
        for n in range(9, 0, -1)
    ]
    (group,) = view.check_groups(document(results=tuple(slow)))
    (row,) = group.rows
    assert (row.subjects, row.measured) == ("gpu88 with 9 others", "0.051 GB/s to 0.059 GB/s")
    assert row.first.because == "pair 1"
    (few,) = view.check_groups(document(results=tuple(slow[:3])))
    assert [row.subjects for row in few.rows] == [f"gpu0{n} - gpu88" for n in (9, 8, 7)]


def test_nodes_that_differ_are_told_from_the_others():
    nodes = {f"gpu{n:02d}": {"boot_id": str(n), "driver": "580.95.05", "os": "Debian"} for n in range(1, 20)}
    nodes["gpu07"]["driver"] = "580.65.06"
    made = document(environment={"nodes": nodes})
    assert inventory.common(made) == [("os", "Debian")]
    (driver,) = inventory.differences(made)
    assert driver.kinds == (("580.95.05", "gpu01-gpu06, gpu08-gpu19"), ("580.65.06", "gpu07"))
    assert inventory.nodes(made).columns == ("node", "boot_id")


def test_a_long_reason_is_cut_between_words_and_kept():
    long = "slow with " + ", ".join(f"gpu{n:03d}" for n in range(200))
    shown, rest = html._excerpt(long)
    assert shown + rest == long
    assert len(shown) <= html.MAX_REASON
    assert rest.startswith(" ")


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["gpu01", "gpu02", "gpu03"], "gpu01-gpu03"),
        (["gpu09", "gpu10"], "gpu09, gpu10"),
        (["gpu98", "gpu99", "gpu100"], "gpu98-gpu100"),
        (["a", "b1", "c2"], "a, b1, c2"),
        ([], ""),
    ],
)
def test_names_that_count_up_are_said_as_a_range(names, text):
    assert subjects.names_in_ranges(names) == text


@pytest.mark.parametrize(
    ("measured", "unit", "text"),
    [
        (None, "GB/s", "–"),
        (0.00021, "GB/s", "0.00021 GB/s"),
        (12.3456, "GB/s", "12.35 GB/s"),
        (235.65, "GB/s", "235.7 GB/s"),
        (8, "", "8"),
        (1, "mounts", "1 mount"),
        (2, "mounts", "2 mounts"),
        (1, "GPUs", "1 GPU"),
        (1, "us", "1 us"),
        (1, "loss", "1 loss"),
        (1, "images/s", "1 images/s"),
        (True, "", "yes"),
        ("580.95.05", "", "580.95.05"),
    ],
)
def test_values_are_written_as_people_read_them(measured, unit, text):
    assert view.value(measured, unit) == text


@pytest.mark.parametrize(
    ("finished", "text"),
    [
        ("2026-11-20T19:58:12Z", "1 min 12 s"),
        ("2026-11-20T19:57:09Z", "9 s"),
        ("soon", "–"),
        ("2026-11-20T19:58:12", "–"),
    ],
)
def test_how_long_it_took_is_written_as_people_read_it(finished, text):
    assert view.duration_text(document(finished=finished)) == text


def test_times_are_written_to_the_minute():
    assert view.moment("2026-11-20T19:57:00Z") == "2026-11-20 19:57 UTC"
    assert view.moment("2026-11-20T20:57:00+01:00") == "2026-11-20 19:57 UTC"
    assert view.moment("soon") == "soon"


def test_sizes_are_binary():
    assert [view.bytes_text(n) for n in (8, 65536, 16 << 20, 8 << 30)] == ["8 B", "64 KiB", "16 MiB", "8 GiB"]
