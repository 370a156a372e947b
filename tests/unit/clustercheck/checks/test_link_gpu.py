"""Peer access and PCI Express links: what is a fault on one server is the nature of another."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clustercheck.checks.all import BY_ID
from clustercheck.checks.base import evaluate
from clustercheck.checks.support import seeding
from clustercheck.evidence.cluster import Evidence
from clustercheck.expect import profiles
from clustercheck.model import Result, Subject, Verdict
from clustercheck.samples import sample, smi

PASS, FAIL, NOT_RUN, EXCLUDED = Verdict.PASS, Verdict.FAIL, Verdict.NOT_RUN, Verdict.EXCLUDED


def of_kind(evidence: Evidence, profile: str) -> Evidence:
    """The same nodes, declared as another kind of server; none where ``profile`` is empty."""
    nodes = tuple(replace(node, profile=profile) for node in evidence.spec.nodes)
    known = {profile: profiles.load(profile)} if profile else {}
    return replace(evidence, spec=replace(evidence.spec, nodes=nodes), profiles=known)


def peers(evidence: Evidence) -> dict[int | None, Result]:
    return {
        result.subject.gpu: result
        for result in evaluate(BY_ID["gpu-p2p"], evidence)
        if result.subject.node == "gpu01"
    }


def says(word: str, *ways: str) -> seeding.Inject:
    """GPUs 0 and 1 of gpu01 have this word for each other."""

    def change(raw: seeding.Raw) -> None:
        for way in ways:
            record = raw["peer_access"][way]
            record["stdout"] = (
                record["stdout"]
                .replace(" GPU0\tX\tOK", f" GPU0\tX\t{word}", 1)
                .replace(" GPU1\tOK", f" GPU1\t{word}", 1)
            )

    return seeding.edit("gpu01", change)


def test_a_pair_that_the_board_keeps_apart_is_told_and_not_blamed() -> None:
    found = peers(says("CNS", "r", "w", "n")(of_kind(sample.healthy(1), "a100-pcie-40gb")))
    assert [found[gpu].verdict for gpu in (0, 1, 2)] == [EXCLUDED, EXCLUDED, PASS]
    assert "not supported by the chipset" in found[0].because


def test_a_setting_that_switches_it_off_is_a_fault_everywhere() -> None:
    for profile in ("a100-pcie-40gb", "hgx-a100-80gb", ""):
        found = peers(says("DR", "r")(of_kind(sample.healthy(1), profile)))
        assert (found[0].verdict, found[2].verdict) == (FAIL, PASS), profile
        assert "disabled by a setting" in found[0].because


def test_without_nvswitch_nvlink_is_not_asked_for_and_the_unknown_is_not_green() -> None:
    board = of_kind(sample.healthy(1), "a100-pcie-40gb")
    assert peers(says("NS", "n")(board))[0].verdict is PASS
    assert peers(says("U", "w")(board))[1].verdict is NOT_RUN


def test_peers_of_a_gpu_that_reaches_nobody_are_not_blamed() -> None:
    check = BY_ID["gpu-p2p"]
    broken = check.faults[0].inject(sample.healthy())
    failed = [result.subject for result in evaluate(check, broken) if result.verdict is not PASS]
    assert failed == [Subject("gpu02", 2)]


def test_with_mig_or_alone_a_gpu_has_no_peers() -> None:
    mig = seeding.smi("gpu01", 0, "mig_mode/current_mig", "Enabled")(sample.healthy(1))
    assert (peers(mig)[0].verdict, peers(mig)[1].verdict) == (EXCLUDED, PASS)
    alone = sample.healthy(1)
    raw = dict(sample.probe_record(1), nvidia_smi=sample.program(smi.smi_xml(1, gpus=1)))
    spec = replace(alone.spec, nodes=(replace(alone.spec.nodes[0], gpu_count=1),))
    alone = replace(alone, spec=spec, nodes={"gpu01": replace(alone.nodes["gpu01"], raw=raw)})
    assert peers(alone)[0].verdict is EXCLUDED


LINK = "pci/pci_gpu_link_info/"


@pytest.mark.parametrize(
    ("generation", "utilization", "verdict"),
    [("1", "0 %", PASS), ("1", "49 %", PASS), ("1", "50 %", FAIL), ("4", "100 %", PASS), ("1", "N/A", PASS)],
)
def test_a_lower_generation_counts_under_load_alone(
    generation: str, utilization: str, verdict: Verdict
) -> None:
    evidence = seeding.chain(
        seeding.smi("gpu01", 0, LINK + "pcie_gen/current_link_gen", generation),
        seeding.smi("gpu01", 0, "utilization/gpu_util", utilization),
    )(sample.healthy(1))
    assert evaluate(BY_ID["pcie-link"], evidence)[0].verdict is verdict


def test_without_a_profile_the_driver_says_what_can_be() -> None:
    board = of_kind(sample.healthy(1), "")
    half = seeding.chain(
        seeding.smi("gpu01", 0, LINK + "link_widths/max_link_width", "8x"),
        seeding.smi("gpu01", 0, LINK + "link_widths/current_link_width", "8x"),
        seeding.smi("gpu01", 1, LINK + "link_widths/current_link_width", "8x"),
    )(board)
    found = evaluate(BY_ID["pcie-link"], half)
    assert [result.verdict for result in found[:3]] == [PASS, FAIL, PASS]
    assert found[1].expected == "PCIe generation 4 x16"


@pytest.mark.parametrize("said", ["", "17x", "63x", "x16", "32x", "N/A"])
def test_a_width_that_no_link_has_is_not_judged(said: str) -> None:
    evidence = seeding.smi("gpu01", 0, LINK + "link_widths/current_link_width", said)(sample.healthy(1))
    assert evaluate(BY_ID["pcie-link"], evidence)[0].verdict is NOT_RUN


def test_what_the_kernel_reads_of_a_silent_device_is_no_width() -> None:
    evidence = seeding.edit("gpu01", lambda raw: raw["pci"][0].update(link_width="63"))(sample.healthy(1))
    assert evaluate(BY_ID["pcie-link"], evidence)[0].verdict is PASS


@pytest.mark.parametrize(
    ("profile", "verdict"),
    [("hgx-a100-80gb", FAIL), ("a100-pcie-40gb", EXCLUDED), ("a10-24gb", EXCLUDED)],
)
def test_links_that_may_be_fitted_or_not_are_missed_where_a_board_has_them(
    profile: str, verdict: Verdict
) -> None:
    def without_links(raw: seeding.Raw) -> None:
        lines = raw["nvlink"]["stdout"].splitlines(keepends=True)
        raw["nvlink"]["stdout"] = "".join(line for line in lines if line.startswith("GPU"))
        raw["pci"] = [device for device in raw["pci"] if not device["class"].startswith("0x0680")]

    evidence = seeding.edit("gpu01", without_links)(of_kind(sample.healthy(1), profile))
    assert evaluate(BY_ID["nvlink"], evidence)[0].verdict is verdict


def connected(gpus: int, *lacking: tuple[int, int]) -> Evidence:
    """One node of so many GPUs, some pairs of which have no NVLink."""
    text = smi.topology_text(gpus).split("\n")
    for pair in lacking:
        for row, column in (pair, pair[::-1]):
            cells = text[1 + row].split("\t")
            cells[1 + column] = "SYS"
            text[1 + row] = "\t".join(cells)
    others = [seeding.lose_gpu("gpu01", gpu, from_bus=True) for gpu in range(7, gpus - 1, -1)]
    change = seeding.edit("gpu01", lambda raw: raw["topology"].update(stdout="\n".join(text)))
    return seeding.chain(*others, change)(sample.healthy(1))


@pytest.mark.parametrize(
    ("lacking", "failed"),
    [
        (((0, 1), (0, 2), (0, 3)), {0, 1, 2, 3}),  # half of its six: nobody can tell whose fault it is
        (((0, 1), (0, 2), (0, 3), (0, 4)), {0}),
        (((0, 1),), {0, 1}),
        ((), set()),
    ],
)
def test_of_seven_gpus_one_is_blamed_alone_only_if_most_of_its_connections_lack_links(
    lacking: tuple[tuple[int, int], ...], failed: set[int]
) -> None:
    results = evaluate(BY_ID["gpu-topology"], connected(7, *lacking))
    assert {one.subject.gpu for one in results if one.verdict is FAIL} == failed
