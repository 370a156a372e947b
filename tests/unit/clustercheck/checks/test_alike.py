"""Equal nodes should be alike: the odd one out is named where a majority says who it is."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from clustercheck.checks.all import BY_ID
from clustercheck.checks.base import evaluate
from clustercheck.checks.support import seeding
from clustercheck.checks.support.alike import ALONE, judge_alike
from clustercheck.evidence.cluster import Evidence
from clustercheck.evidence.node import NodeEvidence
from clustercheck.model import Result, Subject, Verdict
from clustercheck.parse.machine import virtual
from clustercheck.parse.reading import CannotReadError
from clustercheck.probe.firmware import firmware
from clustercheck.samples import sample

PASS, FAIL, NOT_RUN, EXCLUDED = Verdict.PASS, Verdict.FAIL, Verdict.NOT_RUN, Verdict.EXCLUDED


def kernels(*versions: str) -> Evidence:
    evidence = sample.healthy(len(versions))
    for number, version in enumerate(versions, 1):
        change = lambda raw, version=version: raw["host"].update(kernel=version)  # noqa: E731
        evidence = seeding.edit(f"gpu{number:02d}", change)(evidence)
    return evidence


def judged(evidence: Evidence, check: str = "os-alike") -> list[Result]:
    return evaluate(BY_ID[check], evidence)


@pytest.mark.parametrize(
    ("versions", "verdicts"),
    [
        (["a"], [EXCLUDED]),
        (["a", "a"], [PASS, PASS]),
        (["a", "b"], [FAIL, FAIL]),
        (["a", "b", "a"], [PASS, FAIL, PASS]),
        (["a", "b", "c"], [FAIL, FAIL, FAIL]),
        (["a", "a", "b", "b"], [FAIL, FAIL, FAIL, FAIL]),
        (["a", "a", "a", "b", "c"], [PASS, PASS, PASS, FAIL, FAIL]),
    ],
)
def test_more_than_half_of_the_nodes_are_right(versions: list[str], verdicts: list[Verdict]) -> None:
    results = judged(kernels(*versions))
    assert [result.verdict for result in results] == verdicts
    majority = PASS in verdicts
    for result in results:
        assert ("cannot determine which is intended" in result.because) is (
            result.verdict is FAIL and not majority
        )


def test_the_odd_one_is_told_what_the_others_have() -> None:
    odd = judged(kernels("6.1", "6.2", "6.1"))[1]
    assert odd.because == "kernel is 6.2, and 6.1 on 2 of 3 equal nodes"
    assert odd.expected == "6.1"


def test_nodes_of_another_kind_are_not_compared() -> None:
    evidence = kernels("a", "b")
    nodes = (evidence.spec.nodes[0], replace(evidence.spec.nodes[1], profile="l40s-48gb"))
    results = judged(replace(evidence, spec=replace(evidence.spec, nodes=nodes)))
    assert [(r.verdict, r.because) for r in results] == [(EXCLUDED, ALONE)] * 2


def test_a_node_that_is_out_sets_no_example_and_one_that_is_silent_leaves_it_open() -> None:
    evidence = kernels("a", "b")
    out = (evidence.spec.nodes[0], replace(evidence.spec.nodes[1], excluded="quarantined: repair"))
    assert judged(replace(evidence, spec=replace(evidence.spec, nodes=out)))[0].verdict is EXCLUDED
    silent = seeding.unreachable("gpu02")(evidence)
    assert judged(silent)[0].verdict is NOT_RUN


def test_what_equal_nodes_tell_and_this_one_does_not_is_not_green() -> None:
    evidence = seeding.edit("gpu01", lambda raw: raw["firmware"].update(microcode=None))(sample.healthy())
    first, second, third = judged(evidence, "firmware-alike")
    assert (first.verdict, second.verdict, third.verdict) == (NOT_RUN, PASS, PASS)
    assert "microcode" in first.because


@pytest.mark.parametrize(("telling", "verdict"), [(1, PASS), (2, NOT_RUN)])
def test_what_one_node_alone_tells_is_asked_of_nobody(telling: int, verdict: Verdict) -> None:
    evidence = sample.healthy()
    for number in (1, 2, 3):
        release = "1.0" if number > 3 - telling else None
        change = lambda raw, release=release: raw["firmware"].update(ec_firmware_release=release)  # noqa: E731
        evidence = seeding.edit(f"gpu{number:02d}", change)(evidence)
    assert judged(evidence, "firmware-alike")[0].verdict is verdict


@pytest.mark.parametrize(
    ("rc", "stdout", "inside"),
    [(1, "none\n", ""), (0, "kvm\n", "kvm"), (0, "systemd-nspawn\n", "systemd-nspawn")],
)
def test_what_a_node_is_inside_of(rc: int, stdout: str, inside: str) -> None:
    assert virtual({"rc": rc, "stdout": stdout, "stderr": ""}) == inside


@pytest.mark.parametrize(
    "record", [None, {}, {"missing": True}, {"rc": 1, "stdout": ""}, {"rc": 0, "stdout": "<?>"}, {"rc": 2}]
)
def test_what_cannot_be_told_is_no_machine_of_its_own(record: object) -> None:
    with pytest.raises(CannotReadError):
        virtual(record)


def test_firmware_is_read_from_the_tables_and_from_the_first_cpu(tmp_path: Path) -> None:
    tables = tmp_path / "sys/class/dmi/id"
    tables.mkdir(parents=True)
    (tables / "bios_version").write_text("1.3.8\n")
    (tables / "board_name").write_text("\n")
    (tmp_path / "proc").mkdir()
    cpu = "processor\t: {0}\nmodel name\t: EPYC\nmicrocode\t: 0x{0}\n\n"
    (tmp_path / "proc/cpuinfo").write_text(cpu.format(0) + cpu.format(1))
    found = firmware(str(tmp_path))
    assert (found["bios_version"], found["board_name"], found["bios_vendor"]) == ("1.3.8", None, None)
    assert (found["cpu_model"], found["microcode"]) == ("EPYC", "0x0")
    assert set(firmware(str(tmp_path / "nothing")).values()) == {None}


def test_each_node_is_read_once_however_many_are_compared() -> None:
    """Of a thousand nodes a million would be read else."""
    evidence, read = sample.healthy(4), Counter[str]()

    def traits(evidence: Evidence, node: NodeEvidence) -> dict[str, str]:
        read[node.name] += 1
        return {"kernel": "6.1"}

    for node in evidence.nodes:
        judge_alike(evidence, Subject(node), partial(traits, evidence))
    assert read == dict.fromkeys(evidence.nodes, 1)
