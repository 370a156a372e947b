"""CPUs, their pace and their groups, read from made-up trees of sysfs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clustercheck.checks.all import BY_ID
from clustercheck.checks.base import evaluate
from clustercheck.checks.support import seeding
from clustercheck.model import Verdict
from clustercheck.parse.reading import CannotReadError, cpu_list
from clustercheck.probe.cpu import cpu
from clustercheck.samples import sample


def tree(root: Path, files: dict[str, str]) -> str:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return str(root)


def test_cpus_governors_and_numa_nodes_are_read(tmp_path: Path) -> None:
    cpus, nodes = "sys/devices/system/cpu", "sys/devices/system/node"
    root = tree(
        tmp_path,
        {
            f"{cpus}/present": "0-3",
            f"{cpus}/online": "0-2",
            f"{cpus}/smt/control": "on",
            f"{cpus}/cpufreq/policy0/scaling_governor": "performance",
            f"{cpus}/cpufreq/policy0/scaling_driver": "intel_pstate",
            f"{cpus}/cpufreq/policy1/scaling_governor": "powersave",
            f"{cpus}/cpufreq/policy2/scaling_driver": "intel_pstate",
            f"{cpus}/cpufreq/boost": "1",
            f"{nodes}/node0/cpulist": "0-1",
            f"{nodes}/node10/cpulist": "2-3",
            f"{nodes}/has_cpu": "0,10",
        },
    )
    assert cpu(root) == {
        "present": "0-3",
        "online": "0-2",
        "smt": "on",
        "governors": {"performance": 1, "powersave": 1, "": 1},
        "scaling_driver": "intel_pstate",
        "numa_nodes": {"0": "0-1", "10": "2-3"},
    }


def test_a_kernel_that_does_not_control_the_pace_has_no_governor(tmp_path: Path) -> None:
    (tmp_path / "sys/devices/system/cpu/cpufreq").mkdir(parents=True)
    found = cpu(str(tmp_path))
    assert (found["governors"], found["scaling_driver"], found["present"]) == ({}, None, None)


@pytest.mark.parametrize(
    ("text", "cpus"), [("", set()), ("0", {0}), ("0-2,8", {0, 1, 2, 8}), ("0-1,4-5\n", {0, 1, 4, 5})]
)
def test_lists_of_cpus(text: str, cpus: set[int]) -> None:
    assert cpu_list(text, "it") == cpus


@pytest.mark.parametrize("text", [None, 3, "x", "3-1", "0-", "1,,2", "0-99999999", "-1", "0-1 2"])
def test_what_is_no_list_of_cpus_is_not_read(text: Any) -> None:
    with pytest.raises(CannotReadError):
        cpu_list(text, "it")


def verdict(change: Any, check: str = "numa") -> tuple[Verdict, str]:
    result = evaluate(BY_ID[check], seeding.edit("gpu02", change)(sample.healthy()))[1]
    return result.verdict, result.because


def test_siblings_that_are_off_with_smt_are_no_broken_cpus_but_unlike_the_other_nodes() -> None:
    found, because = verdict(lambda raw: raw["cpu"].update(smt="off", online="0-127"))
    assert found is Verdict.FAIL and "offline" not in because
    assert "SMT is off, and on on 2 of 3 equal nodes" in because
    alone = seeding.edit("gpu01", lambda raw: raw["cpu"].update(smt="off", online="0-127"))(sample.healthy(1))
    assert evaluate(BY_ID["numa"], alone)[0].verdict is Verdict.PASS


def test_a_gpu_needs_no_numa_node_where_there_is_one_only() -> None:
    def single(raw: seeding.Raw) -> None:
        raw["cpu"]["numa_nodes"] = {"0": "0-255"}
        for device in raw["pci"]:
            device["numa_node"] = "-1"

    evidence = seeding.edit("gpu01", single)(sample.healthy(1))
    assert evaluate(BY_ID["numa"], evidence)[0].verdict is Verdict.PASS


def test_a_gpu_that_is_gone_is_not_blamed_on_numa() -> None:
    evidence = seeding.lose_gpu("gpu02", 2, from_bus=True)(sample.healthy())
    assert {result.verdict for result in evaluate(BY_ID["numa"], evidence)} == {Verdict.PASS}


def test_the_pace_of_a_virtual_node_is_not_its_own() -> None:
    def inside(raw: seeding.Raw) -> None:
        raw["virtual"].update(rc=0, stdout="docker\n")
        raw["cpu"].update(governors={"powersave": 2})

    assert verdict(inside, "cpu-governor")[0] is Verdict.EXCLUDED
