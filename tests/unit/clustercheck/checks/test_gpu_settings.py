"""Fabric, persistence, InfoROM, power, clocks and repaired rows of GPUs: within limits, beyond, not told."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from clustercheck.checks.all import BY_ID
from clustercheck.checks.base import evaluate
from clustercheck.checks.gpu_limits import settings_of
from clustercheck.checks.support import seeding
from clustercheck.evidence.cluster import Evidence
from clustercheck.locate.culprits import find_culprits
from clustercheck.model import Result, Subject, Verdict
from clustercheck.parse.nvidia_smi import parse_smi
from clustercheck.samples import sample, smi

POWER = "gpu_power_readings/current_power_limit"
ROWS = "remapped_rows/remapped_row_unc"


def of_gpu(check: str, evidence: Evidence, gpu: int = 2) -> Result:
    """What the check says of one GPU of the first node."""
    return next(one for one in evaluate(BY_ID[check], evidence) if one.subject == Subject("gpu01", gpu))


def said(check: str, path: str, text: str | None) -> Result:
    """What the check says where the driver prints this of one GPU."""
    return of_gpu(check, seeding.smi("gpu01", 2, path, text)(sample.healthy(1)))


@pytest.mark.parametrize(
    ("check", "path", "text", "verdict"),
    [
        ("gpu-fabric", "fabric/state", "Not Supported", Verdict.EXCLUDED),
        ("gpu-fabric", "fabric", None, Verdict.EXCLUDED),  # a driver before 535
        ("gpu-fabric", "mig_mode/current_mig", "Enabled", Verdict.EXCLUDED),
        ("gpu-fabric", "fabric/health/bandwidth", "Full", Verdict.PASS),
        ("gpu-fabric", "fabric/health/incorrect_configuration", "None", Verdict.PASS),
        ("gpu-fabric", "fabric/health/access_timeout_recovery", "True", Verdict.FAIL),
        ("gpu-fabric", "fabric/health/route_recovery_in_progress", "True", Verdict.FAIL),
        ("gpu-fabric", "fabric/status", "N/A", Verdict.NOT_RUN),
        ("gpu-persistence", "persistence_mode", "N/A", Verdict.EXCLUDED),  # a virtual GPU
        ("gpu-inforom", "inforom_version/img_version", "N/A", Verdict.PASS),  # other versions are told
        ("gpu-limits", POWER, "420.00 W", Verdict.PASS),
        ("gpu-limits", POWER, "399.99 W", Verdict.FAIL),
        ("gpu-limits", "applications_clocks/graphics_clock", "1410 MHz", Verdict.PASS),
        ("gpu-limits", "applications_clocks/graphics_clock", "1260 MHz", Verdict.FAIL),
        # What drivers of newer GPUs print of application clocks.
        (
            "gpu-limits",
            "applications_clocks/graphics_clock",
            "Requested functionality has been deprecated",
            Verdict.PASS,
        ),
        ("gpu-row-remap", ROWS, "511", Verdict.PASS),
        ("gpu-row-remap", ROWS, "512", Verdict.FAIL),
    ],
)
def test_what_the_driver_prints_is_judged(check: str, path: str, text: str | None, verdict: Verdict) -> None:
    assert said(check, path, text).verdict is verdict


def test_a_gpu_without_limits_and_inforom_is_not_judged() -> None:
    """As a GeForce under a driver of 2020 prints them, and a virtual GPU."""
    evidence = sample.healthy(1)
    for path in (POWER, "applications_clocks/graphics_clock", "applications_clocks/mem_clock"):
        evidence = seeding.smi("gpu01", 2, path, "N/A")(evidence)
    assert of_gpu("gpu-limits", evidence).verdict is Verdict.EXCLUDED
    for path in ("img_version", "oem_object", "ecc_object"):
        evidence = seeding.smi("gpu01", 2, f"inforom_version/{path}", "N/A")(evidence)
    assert of_gpu("gpu-inforom", evidence).verdict is Verdict.EXCLUDED


def test_limits_of_drivers_before_535_are_read() -> None:
    text = smi.smi_xml(1, gpus=1).replace("gpu_power_readings", "power_readings")
    text = text.replace("current_power_limit", "power_limit").replace(
        ">400.00 W</power_limit>", ">350.00 W</power_limit>"
    )
    (gpu,) = parse_smi(text).gpus
    assert settings_of(gpu)["power limit (W)"] == (350.0, 400.0)


@pytest.mark.parametrize(
    ("capture", "fabric"), [("h100-8x.xml", "Completed"), ("a100-sxm4-40gb-1x.xml", "N/A")]
)
def test_captured_gpus_are_at_their_defaults(fixtures_dir: Path, capture: str, fabric: str) -> None:
    gpus = parse_smi((fixtures_dir / "nvidia-smi" / capture).read_text()).gpus
    for gpu in gpus:
        assert all(now == default for now, default in settings_of(gpu).values()) and settings_of(gpu)
        assert gpu.fabric is not None and gpu.fabric["state"] == fabric
        assert (gpu.persistence, gpu.corrupt_inforom) == ("Enabled", False)
        assert gpu.inforom is not None and gpu.inforom["img_version"].startswith("G5")


@pytest.mark.parametrize("capture", ["h100-8x.xml"])
def test_a_captured_fabric_is_healthy(fixtures_dir: Path, capture: str) -> None:
    """Its health says N/A, field by field."""
    document = ElementTree.fromstring((fixtures_dir / "nvidia-smi" / capture).read_text())  # noqa: S314 - a file of ours
    fabric = document.find("gpu/fabric")

    def change(root: ElementTree.Element) -> None:
        element = root.findall("gpu")[2]
        old = element.find("fabric")
        assert old is not None and fabric is not None
        element.remove(old)
        element.append(fabric)

    assert of_gpu("gpu-fabric", seeding.smi_root("gpu01", change)(sample.healthy(1))).verdict is Verdict.PASS


def test_the_corrupted_inforom_is_one_gpus_and_takes_nothing_from_the_others() -> None:
    corrupted = next(fault for fault in BY_ID["gpu-inforom"].faults if fault.name == "corrupted")
    evidence = corrupted.inject(sample.healthy())
    results = [
        result
        for check in ("gpu-driver", "gpu-present", "gpu-ecc", "gpu-inforom", "gpu-fabric", "nvlink")
        for result in evaluate(BY_ID[check], evidence)
    ]
    wrong = [result for result in results if result.verdict is not Verdict.PASS]
    assert [(one.check, one.subject, one.verdict) for one in wrong] == [
        ("gpu-inforom", Subject("gpu02", 2), Verdict.FAIL)
    ]
    (culprit,) = find_culprits(results, None, group_is_slow=False)
    assert (culprit.node, culprit.gpu) == ("gpu02", 2)


def test_a_program_that_ends_with_14_for_another_reason_has_failed() -> None:
    evidence = seeding.edit("gpu01", lambda raw: raw["nvidia_smi"].update(rc=14))(sample.healthy(1))
    assert evaluate(BY_ID["gpu-driver"], evidence)[0].verdict is Verdict.FAIL


def test_a_warning_in_what_nvlink_prints_is_no_line_of_a_gpu() -> None:
    def change(raw: seeding.Raw) -> None:
        raw["nvlink"]["stdout"] += "WARNING: infoROM is corrupted at gpu 0000:47:00.0\n"
        raw["nvlink"]["rc"] = 14

    results = evaluate(BY_ID["nvlink"], seeding.edit("gpu01", change)(sample.healthy(1)))
    assert {result.verdict for result in results} == {Verdict.PASS}


def test_limits_that_all_gpus_of_a_model_have_are_a_warning_whatever_their_driver_calls_it() -> None:
    evidence = sample.healthy(2)
    for node in ("gpu01", "gpu02"):
        for gpu in range(8):
            evidence = seeding.smi(node, gpu, POWER, "300.00 W")(evidence)
    for gpu in range(8):  # a driver of the branch 450
        evidence = seeding.smi("gpu02", gpu, "product_name", "A100-SXM4-80GB")(evidence)
    result = of_gpu("gpu-limits", evidence)
    assert result.verdict is Verdict.WARNING and "alike on all 16 GPUs" in result.because
    assert of_gpu("gpu-limits", seeding.smi("gpu02", 1, POWER, "400.00 W")(evidence)).verdict is Verdict.FAIL


@pytest.mark.parametrize(("limited", "verdict"), [((1, 3), Verdict.WARNING), ((1,), Verdict.FAIL)])
def test_that_one_of_three_nodes_is_not_limited_fails_no_other(
    limited: tuple[int, ...], verdict: Verdict
) -> None:
    evidence = sample.healthy()
    for node in limited:
        for gpu in range(8):
            evidence = seeding.smi(f"gpu{node:02d}", gpu, POWER, "300.00 W")(evidence)
    found = {r.subject.node: r.verdict for r in evaluate(BY_ID["gpu-limits"], evidence)}
    limits = {f"gpu{node:02d}": verdict for node in limited}
    assert found == {**dict.fromkeys(("gpu01", "gpu02", "gpu03"), Verdict.PASS), **limits}


def test_a_fabric_of_two_halves_blames_nobody() -> None:
    """As partitions of a fabric for two tenants."""
    evidence = sample.healthy(1)
    for gpu in range(4):
        evidence = seeding.smi("gpu01", gpu, "fabric/cliqueId", "5")(evidence)
    assert {one.verdict for one in evaluate(BY_ID["gpu-fabric"], evidence)} == {Verdict.PASS}


def test_a_gpu_in_another_clique_is_told_with_that_of_the_others() -> None:
    result = said("gpu-fabric", "fabric/cliqueId", "5")
    assert result.verdict is Verdict.FAIL
    assert re.search(r"clique 5 of 0{8}-.*, and 0 of 0{8}-.* of 7 GPUs of this node", result.because)


def test_gpus_that_are_not_joined_yet_have_no_say_in_which_clique_is_the_usual() -> None:
    """They print a clique of zeros: of four that are joined one in another clique is still the odd one."""
    evidence = sample.healthy(1)
    for gpu in range(4):
        evidence = seeding.smi("gpu01", gpu, "fabric/state", "In Progress")(evidence)
    for gpu in range(4, 8):
        clique = "5" if gpu == 4 else "7"
        evidence = seeding.smi("gpu01", gpu, "fabric/cliqueId", clique)(evidence)
    result = next(one for one in evaluate(BY_ID["gpu-fabric"], evidence) if one.subject.gpu == 4)
    assert result.verdict is Verdict.FAIL and result.because.startswith("clique 5")


def test_ampere_with_nvswitches_has_no_fabric_and_hopper_must_have_one() -> None:
    none = seeding.smi("gpu01", 2, "fabric/state", "N/A")(sample.healthy(1))
    assert of_gpu("gpu-fabric", none).verdict is Verdict.EXCLUDED
    hopper = seeding.smi("gpu01", 2, "product_architecture", "Hopper")(none)
    assert of_gpu("gpu-fabric", hopper).verdict is Verdict.NOT_RUN

    def without_switches(raw: seeding.Raw) -> None:
        raw["pci"] = [each for each in raw["pci"] if not each["class"].startswith("0x0680")]

    assert of_gpu("gpu-fabric", seeding.edit("gpu01", without_switches)(hopper)).verdict is Verdict.EXCLUDED
