"""What mutates and judges: changes are as described, and what survives is told from what is found."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.mutation import judging
from tests.mutation.affected import importers
from tests.mutation.judging import PACKAGE, judge, unit_tests_of
from tests.mutation.measure import chosen, figures
from tests.mutation.mutants import SUITES, Mutant, mutants, of_data, of_source
from tests.support.limits_twice import constants_of, lines_of

ECC = "checks/gpu_ecc.py"
SOURCE = """\
LIMIT, _FEW = 0.5, "4"
CHECK = Check(limit=7)
MOST = 10


def judge(one: int) -> Finding:
    if one > MOST and known(one):
        return failed(0.25)
    rest = [each for each in range(3) if each]
    return one == 2


def _fault(raw: Raw) -> None:
    if raw:
        raw.clear()


def _faults(job: str) -> tuple[SeededFault, ...]:
    return (SeededFault("slow", slowed(job, 0.02)),)
"""
DATA = """\
name: a100
gpus: 8
memory_bandwidth:
  value: 2039
floors:
  - metric: all_reduce_busbw
    value: 228
    tolerance: 0.1
rails:
  floors: {1: 0.55, 8: 0.85}
"""

SUITES_DATA = """\
quick:
  jobs:
    sums:
      timeout_s: 150
      arguments: {steps: 20, least: 8, tolerance: 0.00001}
burn-in:
  jobs:
    sums:
      arguments: {steps: 20, tolerance: 0.00001}
"""


def test_conditions_are_dropped_and_limits_halved_and_doubled_but_not_where_faults_are_planted() -> None:
    found = {(one.place, one.change) for one in of_source("checks/x.py", SOURCE)}
    assert found == {
        ("MOST", "10 -> (10 * 0.5)"),
        ("MOST", "10 -> (10 * 2)"),
        ("judge", "one > MOST and known(one) -> False"),
        ("judge", "one > MOST and known(one) -> ((one > MOST))"),
        ("judge", "one > MOST and known(one) -> ((known(one)))"),
        ("judge", "0.25 -> (0.25 * 0.5)"),
        ("judge", "0.25 -> (0.25 * 2)"),
        ("judge", "each -> True"),
        ("judge", "one == 2 -> (not (one == 2))"),
    }


def test_of_jobs_the_constants_alone_are_changed() -> None:
    found = {(one.place, one.change) for one in of_source("jobs/x.py", SOURCE)}
    assert found == {("MOST", "10 -> (10 * 0.5)"), ("MOST", "10 -> (10 * 2)")}


def test_of_suites_what_jobs_tolerate_is_changed_and_no_size_or_time() -> None:
    found = {f"{one.place}: {one.change}": one.text for one in of_data(SUITES, SUITES_DATA)}
    assert set(found) == {
        f"{place}: tolerance: 0.00001 x {factor}"
        for place in ("quick sums", "burn-in sums")
        for factor in ("0.5", "2")
    }
    assert found["burn-in sums: tolerance: 0.00001 x 2"].count("2e-05") == 1


def test_each_mutant_is_the_file_with_that_change_alone() -> None:
    (dropped,) = [one for one in of_source("x.py", SOURCE) if one.change.endswith("-> False")]
    assert dropped.text == SOURCE.replace("one > MOST and known(one)", "False")


def test_figures_of_data_are_halved_and_doubled_and_what_is_no_limit_is_left() -> None:
    found = {one.place + " " + one.change: one.text for one in of_data("expect/x.yml", DATA)}
    assert set(found) == {
        f"{place} {change} x {factor}"
        for factor in ("0.5", "2")
        for place, change in (
            ("memory_bandwidth", "value: 2039"), ("all_reduce_busbw", "value: 228"),
            ("all_reduce_busbw", "tolerance: 0.1"), ("floors", "1: 0.55"), ("floors", "8: 0.85"),
        )
    }  # fmt: skip
    assert found["floors 8: 0.85 x 0.5"] == DATA.replace("8: 0.85", "8: 0.425")


def test_a_mutant_is_of_a_limit_or_of_a_condition() -> None:
    assert {one.kind for one in of_data("expect/x.yml", DATA)} == {"limit"}
    kinds = {one.change: one.kind for one in of_source("checks/x.py", SOURCE)}
    assert {change for change, kind in kinds.items() if kind == "limit"} == {
        f"{number} -> ({number} * {factor})" for number in ("10", "0.25") for factor in ("0.5", "2")
    }


def test_what_is_measured_is_drawn_by_its_seed_and_told_by_kind() -> None:
    assert chosen(["20", "x"]) == chosen(["20", "x"]) != chosen(["20", "y"])
    files = {"checks/bandwidth.py", "checks/pcie_link.py"}
    for word, kind in (("limits", "limit"), ("conditions", "condition")):
        some = chosen([word, *files])
        assert ({one.file for one in some}, {one.kind for one in some}) == (files, {kind})
        assert {one.kind for one in chosen([word, "20", "x"])} == {kind}
    picked = [*of_source("checks/x.py", SOURCE)]
    found = {one.name: "" if "known" in one.change else "self-test: gpu-ecc: x" for one in picked}
    assert figures(picked, found) == (
        "limits: 4 of 4 found (4 by self-test)\nconditions: 2 of 5 found (2 by self-test)\n"
    )


def test_a_limit_that_reads_as_another_one_is_a_limit_too() -> None:
    found = [one for one in mutants(PACKAGE) if one.file == "expect/physics.py" and one.place.isupper()]
    assert any(" #" in one.change for one in found) and {one.kind for one in found} == {"limit"}


def test_every_mutant_has_a_name_of_its_own_and_no_python_is_broken() -> None:
    everything = mutants(PACKAGE)
    assert len({one.name for one in everything}) == len(everything) > 1000
    for one in everything[::40]:
        if one.file.endswith(".py"):
            compile(one.text, one.file, "exec")


def test_each_change_of_a_figure_or_constant_changes_what_was_entered_twice() -> None:
    """So that `expect/test_limits_twice.py` finds it."""
    everything = mutants(PACKAGE)
    data = [one for one in everything if one.file.endswith(".yml")]
    constants = [one for one in everything if one.file.endswith(".py") and one.place.isupper()]
    assert len(data) > 700 and len(constants) > 500
    for some, read in ((data, lines_of), (constants, constants_of)):
        before = {file: read((PACKAGE / file).read_text(encoding="utf-8")) for file in {d.file for d in some}}
        assert [one.name for one in some if read(one.text) == before[one.file]] == []


def test_the_unit_tests_of_a_module_are_those_that_name_it_or_use_one_that_does() -> None:
    assert any(
        name.endswith("checks/test_nvlink_errors.py") for name in unit_tests_of("checks/nvlink_errors.py")
    )
    assert any(name.endswith("expect/test_judge.py") for name in unit_tests_of("expect/judge.py"))
    by_helpers = unit_tests_of("checks/bandwidth.py")
    assert any(name.endswith("evidence/test_declared_rails.py") for name in by_helpers)
    assert len(by_helpers) == len(set(by_helpers))


BEGINS = "    gpu, profile = gpu_of"


@pytest.mark.drawn("judging mutants")
@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        (BEGINS, f"    return passed(0)\n{BEGINS}", "self-test: gpu-ecc"),
        ("def judge(", "def judged(", "an error"),
        ("whole_number(", "whole_number(", ""),
    ],
)
def test_a_change_is_found_and_no_change_is_not(tmp_path: Path, old: str, new: str, found: str) -> None:
    whole = (PACKAGE / ECC).read_text(encoding="utf-8")
    assert old in whole
    one = Mutant(ECC, "judge", "test", whole.replace(old, new))
    (by,) = judge([one], tmp_path).values()
    assert by.startswith(found) and bool(by) == bool(found)


def test_a_change_that_hangs_is_found_by_the_time_limit(tmp_path: Path) -> None:
    whole = (PACKAGE / ECC).read_text(encoding="utf-8")
    hangs = Mutant(ECC, "", "test", f"{whole}\nwhile True:\n    pass\n")
    assert judge([hangs], tmp_path, each_s=5) == {hangs.name: "the time limit"}


@pytest.mark.drawn("judging mutants")
def test_unit_tests_that_find_the_unchanged_code_measure_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "test_broken.py"
    broken.write_text("def test_it() -> None:\n    assert not 'today'\n", encoding="utf-8")
    monkeypatch.setattr(judging, "unit_tests_of", lambda _file: [str(broken)])
    same = Mutant(ECC, "judge", "same", (PACKAGE / ECC).read_text(encoding="utf-8"))
    with pytest.raises(AssertionError, match="nothing was measured"):
        judge([same], tmp_path / "trees")


def test_what_imports_a_changed_module_is_imported_again_and_nothing_else() -> None:
    """Of all that a process of its own has imported."""
    names = [
        "clustercheck.checks.gpu_ecc", "clustercheck.checks.xid", "clustercheck.checks.all",
        "clustercheck.model", "clustercheck.selftest", "clustercheck.samples.sample",
        "tests.support.golden_verdicts", "tests.support.situations", "tests.support.varied_evidence",
    ]  # fmt: skip
    of_ecc = importers(["clustercheck.checks.gpu_ecc"], names)
    through_all = {"clustercheck.checks.all", "clustercheck.selftest", "tests.support.golden_verdicts"}
    assert of_ecc == {"clustercheck.checks.gpu_ecc", *through_all}
    of_profiles = importers(["clustercheck.expect.profiles"], names)
    assert {"tests.support.varied_evidence", "clustercheck.samples.sample"} < of_profiles
    assert "clustercheck.model" not in of_profiles


@pytest.mark.drawn("judging mutants")
def test_the_tree_is_as_it_was_after_each_mutant(tmp_path: Path) -> None:
    """One after the other in one process: the first is no part of the second."""
    whole = (PACKAGE / ECC).read_text(encoding="utf-8")
    broken = [Mutant(ECC, "judge", f"test {number}", "raise OSError\n") for number in range(2)]
    same = [Mutant(ECC, "judge", f"same {number}", whole) for number in range(2)]
    found = judge([*broken, *same], tmp_path)
    assert {name.rpartition(" | ")[2]: bool(by) for name, by in found.items()} == {
        "test 0": True, "test 1": True, "same 0": False, "same 1": False,
    }  # fmt: skip
