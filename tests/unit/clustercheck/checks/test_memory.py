"""Memory, its errors and its huge pages, read from made-up trees of sysfs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from clustercheck.checks.all import BY_ID
from clustercheck.checks.base import evaluate
from clustercheck.checks.support import seeding
from clustercheck.evidence.cluster import Evidence
from clustercheck.model import Verdict
from clustercheck.probe.pages import huge_pages, memory_errors
from clustercheck.samples import sample

PASS, FAIL, EXCLUDED = Verdict.PASS, Verdict.FAIL, Verdict.EXCLUDED
GIB = 1 << 20


def write(root: Path, files: dict[str, str]) -> str:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return str(root)


def test_huge_pages_are_read(tmp_path: Path) -> None:
    mm = "sys/kernel/mm"
    root = write(
        tmp_path,
        {
            f"{mm}/transparent_hugepage/enabled": "always [madvise] never",
            f"{mm}/transparent_hugepage/defrag": "always defer [defer+madvise] madvise never",
            f"{mm}/hugepages/hugepages-2048kB/nr_hugepages": "512",
            f"{mm}/hugepages/hugepages-1048576kB/nr_hugepages": "?",
        },
    )
    assert huge_pages(root) == {
        "transparent": {"enabled": "madvise", "defrag": "defer+madvise"},
        "reserved": {"hugepages-1048576kB": None, "hugepages-2048kB": 512},
    }
    nothing = huge_pages(str(tmp_path / "nothing"))
    assert nothing == {"transparent": {"enabled": None, "defrag": None}, "reserved": {}}


def test_errors_of_memory_are_read_by_controller(tmp_path: Path) -> None:
    mc = "sys/devices/system/edac/mc"
    root = write(
        tmp_path,
        {
            f"{mc}/mc0/ue_count": "2",
            f"{mc}/mc0/ce_count": "7",
            f"{mc}/mc0/mc_name": "Skylake Socket#0 IMC#0",
            f"{mc}/mc1/ue_count": "",
            f"{mc}/power/control": "auto",
        },
    )
    first, second = memory_errors(root)
    assert (first["controller"], first["uncorrectable"], first["correctable"]) == ("mc0", 2, 7)
    assert (second["controller"], second["uncorrectable"], second["kind"]) == ("mc1", None, None)
    assert memory_errors(str(tmp_path / "nothing")) == []


def test_errors_of_a_virtual_node_are_counted_elsewhere() -> None:
    def inside(raw: seeding.Raw) -> None:
        raw["virtual"].update(rc=0, stdout="kvm\n")
        raw["memory_errors"] = []

    evidence = seeding.edit("gpu01", inside)(sample.healthy(1))
    (result,) = evaluate(BY_ID["memory-errors"], evidence)
    assert result.verdict is EXCLUDED and "kvm" in result.because


def with_memory(declared: int | None, *gib: float) -> Evidence:
    evidence = sample.healthy(len(gib))
    nodes = tuple(replace(node, memory_gib=declared) for node in evidence.spec.nodes)
    evidence = replace(evidence, spec=replace(evidence.spec, nodes=nodes))
    for number, size in enumerate(gib, 1):
        change = lambda raw, size=size: raw["memory"].update(MemTotal=int(size * GIB))  # noqa: E731
        evidence = seeding.edit(f"gpu{number:02d}", change)(evidence)
    return evidence


@pytest.mark.parametrize(
    ("declared", "gib", "verdicts"),
    [
        (1024, [1007.5, 1007.1, 1007.3], [PASS, PASS, PASS]),  # what Linux shows of 1 TiB
        (1024, [1007.5, 975.5, 1007.5], [PASS, FAIL, PASS]),  # a module of 32 is gone
        (1024, [975.5, 975.5, 975.5], [FAIL, FAIL, FAIL]),
        (None, [975.5, 975.5, 975.5], [PASS, PASS, PASS]),
        (None, [1007.5, 975.5, 1007.4], [PASS, FAIL, PASS]),
        (None, [1007.5, 975.5], [FAIL, FAIL]),
        (None, [1007.5], [EXCLUDED]),
        (1024, [1007.5], [PASS]),
        (1024, [500.0], [FAIL]),
    ],
)
def test_memory_against_what_is_declared_and_against_equal_nodes(
    declared: int | None, gib: list[float], verdicts: list[Verdict]
) -> None:
    assert [r.verdict for r in evaluate(BY_ID["memory"], with_memory(declared, *gib))] == verdicts


@pytest.mark.parametrize("lie", [0.001, 500.0, 990.1, 999.9, 1000.1, 1009.9, 1017.9, 2.0**40])
def test_how_much_one_node_says_it_has_changes_nothing_of_the_others(lie: float) -> None:
    """Nor where it is a little less than theirs, so that one of them is near it and the other is not."""
    honest = (1000.0, 1008.0)
    reference = [evaluate(BY_ID["memory"], with_memory(None, *honest, same))[:2] for same in honest]
    assert reference[0] == reference[1] and {result.verdict for result in reference[0]} == {PASS}
    assert evaluate(BY_ID["memory"], with_memory(None, *honest, lie))[:2] == reference[0]


def test_a_node_whose_memory_is_like_no_others_fails_for_itself() -> None:
    results = evaluate(BY_ID["memory"], with_memory(None, 1000.0, 1008.0, 975.0))
    assert [result.verdict for result in results] == [PASS, PASS, FAIL]
    assert results[2].because == "memory is 975.0 GiB, and 1000.0 GiB on 2 of 3 equal nodes"
