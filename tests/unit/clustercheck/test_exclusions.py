"""What is excluded by name: in the settings, in the verdict, and after its last day."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.support.validation_in_memory import FakeLauncher, records, run

from clustercheck.checks.all import BY_ID
from clustercheck.checks.base import evaluate
from clustercheck.checks.pairs import slow_pairs
from clustercheck.checks.support import seeding
from clustercheck.model import Subject, Verdict
from clustercheck.samples import sample
from clustercheck.spec import EVERYWHERE, Exclusion, exclusions_in_force, lapsed_exclusions
from clusterctl.cluster import settings
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.cluster.exclusions import exclusions
from clusterctl.errors import ClusterctlError

DAY = date(2026, 12, 31)
LINK = Exclusion("nvlink", "gpu01", "ana", "bridge ordered", DAY, gpu=0)
ENTRY = {
    "check": "nvlink",
    "node": "gpu01",
    "gpu": 0,
    "who": "ana",
    "why": "bridge ordered",
    "until": "2026-12-31",
}


def verdicts(
    check: str, *of: Exclusion, inject: seeding.Inject = lambda same: same
) -> dict[Subject, Verdict]:
    evidence = replace(inject(sample.healthy()), exclusions=of)
    return {result.subject: result.verdict for result in evaluate(BY_ID[check], evidence)}


def test_only_what_is_named_is_excluded_and_the_report_says_who_why_and_until_when() -> None:
    broken = BY_ID["nvlink"].faults[0].inject
    found = verdicts("nvlink", LINK, inject=broken)
    assert [s for s, verdict in found.items() if verdict is Verdict.EXCLUDED] == [Subject("gpu01", 0)]
    assert set(found.values()) == {Verdict.PASS, Verdict.EXCLUDED}
    result = evaluate(BY_ID["nvlink"], replace(sample.healthy(), exclusions=(LINK,)))[0]
    assert result.because == "excluded by ana until 2026-12-31: bridge ordered"
    assert set(verdicts("gpu-ecc", LINK).values()) == {Verdict.PASS}
    whole = verdicts("nvlink", replace(LINK, gpu=None))
    assert sum(verdict is Verdict.EXCLUDED for verdict in whole.values()) == 8


def test_pairs_of_a_node_and_the_group_can_be_excluded() -> None:
    slow = slow_pairs(("gpu01", "gpu02"), ("gpu02", "gpu03"))
    pair = Exclusion("pair-bandwidth", "gpu02", "ana", "old cable", DAY)
    assert set(verdicts("pair-bandwidth", pair, inject=slow).values()) == {Verdict.EXCLUDED, Verdict.PASS}
    group = Exclusion("all-reduce-bandwidth", EVERYWHERE, "ana", "shared uplink", DAY)
    assert set(verdicts("all-reduce-bandwidth", group).values()) == {Verdict.EXCLUDED}
    one = replace(group, node="gpu01")
    assert set(verdicts("all-reduce-bandwidth", one).values()) == {Verdict.PASS}


def test_a_node_that_does_not_answer_is_excluded_from_what_it_is_excluded_from() -> None:
    found = verdicts("nvlink", replace(LINK, gpu=None), inject=seeding.unreachable("gpu01"))
    assert {found[Subject("gpu01", gpu)] for gpu in range(8)} == {Verdict.EXCLUDED}


def test_the_last_day_still_counts_and_the_next_does_not() -> None:
    assert exclusions_in_force([LINK], DAY) == (LINK,) and lapsed_exclusions([LINK], DAY) == ()
    after = DAY + timedelta(days=1)
    assert exclusions_in_force([LINK], after) == () and lapsed_exclusions([LINK], after) == (LINK,)


def test_a_validation_counts_it_as_excluded_until_its_day_and_says_when_that_is_over() -> None:
    today = datetime.now(UTC).date()
    broken = BY_ID["nvlink"].faults[0].inject(sample.healthy()).nodes["gpu01"].raw

    def validated(until: date) -> dict[str, Any]:
        spec = replace(sample.spec(), exclusions=(replace(LINK, until=until),))
        return run({**records(), "gpu01": broken}, FakeLauncher(), spec=spec)

    held = validated(today)
    assert (
        held["verdict"] == "pass"
        and held["coverage"]["excluded"] == 1 + 3  # the link, and the three nodes that met without NCCL
        and held["environment"]["notes"] == []
    )
    over = validated(today - timedelta(days=1))
    assert over["verdict"] == "fail" and over["coverage"]["excluded"] == 3
    (note,) = over["environment"]["notes"]
    assert note.startswith("the exclusion of nvlink on gpu01 GPU 0 ended with") and "counts again" in note


def test_hosts_declare_them_and_one_that_all_of_them_have_counts_once() -> None:
    assert exclusions({"gpu01": [ENTRY], "gpu02": [ENTRY], "gpu03": None}) == (LINK,)
    dated = {key: value for key, value in ENTRY.items() if key != "gpu"} | {"until": DAY}
    assert exclusions({"gpu01": [dated]}) == (replace(LINK, gpu=None),)


@pytest.mark.parametrize(
    "wrong", ["all", 7, [1], [{}], [{**ENTRY, "until": "soon"}], [{**ENTRY, "gpu": "x"}]]
)
def test_what_a_template_makes_of_them_must_be_exclusions(wrong: object) -> None:
    with pytest.raises(ClusterctlError) as caught:
        exclusions({"gpu01": wrong})
    assert caught.value.code == "inventory.exclusions" and caught.value.where == "gpu01"


HOSTS = """\
all:
  children:
    gpu_nodes:
      hosts:
        gpu01: {ansible_host: 10.0.0.1}
"""


def problems(tmp_path: Path, **change: str) -> list[tuple[int, str, str]]:
    entry = {
        "check": "nvlink", "node": "gpu01", "gpu": "5", "who": "ana", "why": "broken",
        "until": '"2026-12-31"', **change,
    }  # fmt: skip
    (tmp_path / "hosts.yml").write_text(HOSTS)
    (tmp_path / "group_vars").mkdir()
    lines = [f"    {key}: {value}" for key, value in entry.items() if value != "-"]
    text = "\n".join(["validation_exclusions:", "  -", *lines]) + "\n"
    (tmp_path / "group_vars" / "all.yml").write_text(text)
    return [(p.line, p.code, f"{p.what} | {p.hint}") for p in settings.check(ClusterDirectory(tmp_path))]


@pytest.mark.parametrize(
    ("change", "line", "code", "says"),
    [
        ({"check": "nvlnk"}, 3, "settings.exclusion", "Did you mean nvlink?"),
        ({"check": "clock"}, 5, "settings.exclusion", "the check clock is not of single GPUs"),
        ({"node": "gpu09"}, 4, "settings.exclusion", "names the node 'gpu09', which is not declared"),
        ({"who": '""'}, 6, "settings.exclusion", "says no who"),
        ({"why": '" "'}, 7, "settings.exclusion", "says no why"),
        ({"until": "soon"}, 8, "settings.exclusion", "until is not a day: 'soon'"),
        ({"until": "2026-12-31"}, 8, "settings.type", "put it in quotes"),
        ({"until": "-"}, 3, "settings.missing", "lacks until"),
        ({"gpu": "first"}, 5, "settings.type", "must be a whole number"),
        ({"since": "2026"}, 9, "settings.unknown", "knows no 'since'"),
    ],
)
def test_what_is_wrong_with_one_is_said_with_its_line(
    tmp_path: Path, change: dict[str, str], line: int, code: str, says: str
) -> None:
    ((where, found, said),) = problems(tmp_path, **change)
    assert (where, found) == (line, code) and says in said


@pytest.mark.parametrize(
    "change",
    [{}, {"node": "all"}, {"gpu": "-"}, {"check": "clock", "gpu": "-"}, {"node": '"{{ site_bad }}"'}],
)
def test_what_is_right_is_not_complained_of(tmp_path: Path, change: dict[str, str]) -> None:
    assert problems(tmp_path, **change) == []
