"""What would change, as text: also where a host says more than can be compared."""

from __future__ import annotations

import io

from rich.console import Console

from clusterctl.engine.events import Diff, PlayStarted, Status, TaskResult, TaskStarted
from clusterctl.engine.ledger import MAX_DIFFS, TOO_MANY_FINDINGS, HostRecord, Ledger
from clusterctl.engine.module_report import MAX_FINDINGS
from clusterctl.rollout import tables
from clusterctl.rollout.preflight import LONGEST, PreflightSeverity, findings_of


def lines_without_a_match(count: int) -> dict[str, str]:
    """Two texts of which difflib finds the lines in common one by one, each at the beginning of the rest."""
    words = [chr(0x4E00 + i) for i in range(120)]
    before = "\n".join(words[i * 2 % 120] for i in range(count))
    return {"header": "/etc/x", "before": before, "after": "\n".join(words[i % 120] for i in range(count))}


def shown(records: dict[str, HostRecord]) -> str:
    out = io.StringIO()
    Console(file=out, width=160).print(tables.planned(records))
    return out.getvalue()


def test_a_file_is_compared_by_lines_and_cut():
    part = {"header": "/etc/x", "before": "a\nb\nc\n", "after": "a\nB\nc\n"}
    new = {"header": "/etc/y", "before": "", "after": "line\n" * 2000}
    texts = tables.diff_texts(HostRecord("gpu01", diffs=[("Write", part), ("Write", new)]))
    assert texts[0] == ("Write", "/etc/x\n@@ -1,3 +1,3 @@\n a\n-b\n+B\n c")
    assert texts[1][1].splitlines()[-2:] == ["+line", "[1972 more lines]"]


def test_what_a_host_says_too_much_of_is_counted_and_the_others_are_shown():
    small = ("Write", {"header": "/etc/y", "before": "old", "after": "new"})
    evil = HostRecord("gpu01", changes=["Write"], diffs=[("Write", lines_without_a_match(1500)), small])
    text = shown({"gpu01": evil, "gpu02": HostRecord("gpu02", changes=["Write"], diffs=[small])})
    assert "[too long to compare: 1500 lines before, 1500 after]" in text
    assert text.count("+new") == 2
    many = HostRecord("gpu01", diffs=[("Write", lines_without_a_match(400))] * 14)
    told = [text for _, text in tables.diff_texts(many)]
    assert [("too long" in text) for text in told] == [False] * 12 + [True] * 2


def test_diffs_of_a_host_are_kept_up_to_a_size_over_all_its_tasks():
    ledger = Ledger(("gpu01", "gpu02"))
    ledger.record(PlayStarted(1.0, hosts=("gpu01", "gpu02")))
    ledger.record(TaskStarted(1.0, "t", task="Write", role="r"))
    for _ in range(50):
        ledger.record(Diff(1.0, "gpu01", "t", ({"header": "", "prepared": "x" * 60_000},) * 7))
        ledger.record(Diff(1.0, "gpu01", "t", ({"header": "", "prepared": ""},) * 9000))
    ledger.record(Diff(1.0, "gpu02", "t", ({"header": "", "prepared": "y"},)))
    kept = [part for _, part in ledger.hosts["gpu01"].diffs]
    assert len(kept) < 10_000
    assert sum(len(text) for part in kept for text in part.values()) < MAX_DIFFS
    assert kept[-1] == {"prepared": "[9000 more parts]"}
    assert [part["prepared"] for _, part in ledger.hosts["gpu02"].diffs] == ["y"]


def test_findings_of_a_host_are_bounded_over_all_its_tasks_and_each_is_one_line():
    ledger = Ledger(("gpu01", "gpu02"))
    ledger.record(PlayStarted(1.0, hosts=("gpu01", "gpu02")))
    ledger.record(TaskStarted(1.0, "t", task="Look", role="r"))
    long = {"severity": "warning", "subject": "disk", "found": "x\n" * 4000}
    for _ in range(3):
        many = {"findings": [{**long, "expected": str(number)} for number in range(400)]}
        ledger.record(TaskResult(1.0, "gpu01", "t", status=Status.OK, clusterctl=many))
    ledger.record(TaskResult(1.0, "gpu02", "t", status=Status.OK, clusterctl={"findings": [long]}))
    kept = {name: findings_of(name, one.findings) for name, one in ledger.hosts.items()}
    assert [len(some) for some in kept.values()] == [MAX_FINDINGS, 1]
    last = kept["gpu01"][-1]
    assert (last.severity, last.found) == (PreflightSeverity.ERROR, TOO_MANY_FINDINGS["found"])
    texts = [text for some in kept.values() for one in some for text in (one.found, one.expected, one.remedy)]
    assert LONGEST - 10 < max(map(len, texts)) <= LONGEST
    assert not any("\n" in text for text in texts)
