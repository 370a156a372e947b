"""GPUs of a container against the driver's: what is another's fault is not the runtime's."""

from __future__ import annotations

from typing import Any

import pytest

from clustercheck.checks.base import evaluate
from clustercheck.checks.container_gpus import CHECK, listed
from clustercheck.checks.support import seeding
from clustercheck.evidence.cluster import Evidence
from clustercheck.model import Result, Verdict
from clustercheck.parse.reading import CannotReadError
from clustercheck.samples import sample
from clustercheck.samples.smi import gpu_list_text

LINES = gpu_list_text(1).splitlines(keepends=True)
LOST = "Unable to determine the device handle for GPU3: 0000:4E:00.0: GPU is lost.  Reboot the system\n"
HEALTHY = sample.healthy(1)


def judged(evidence: Evidence, **container: Any) -> Result:
    """What the check says of gpu01 whose container ended so."""
    change = seeding.edit("gpu01", lambda raw: raw["container_gpus"].update(container))
    return evaluate(CHECK, change(evidence))[0]


def off_bus(gpu: int) -> seeding.Inject:
    def change(raw: seeding.Raw) -> None:
        gpus = [device for device in raw["pci"] if device["class"].startswith(("0x0300", "0x0302"))]
        raw["pci"].remove(gpus[gpu])

    return seeding.edit("gpu01", change)


@pytest.mark.parametrize("rc", [125, 126, 127])
def test_docker_that_could_not_start_it_is_told_apart_from_gpus_that_it_cannot_use(rc: int) -> None:
    refused = judged(HEALTHY, rc=rc, stdout="", stderr="docker: no such runtime")
    assert refused.verdict is Verdict.FAIL
    assert refused.because == "a container could not be started with GPUs: docker: no such runtime"
    fails = judged(HEALTHY, rc=rc - 100, stdout="NVML: Driver/library version mismatch\n", stderr="")
    assert fails.because == "a container cannot use the GPUs: NVML: Driver/library version mismatch"


def test_a_container_that_ends_with_an_error_fails_though_it_listed_every_gpu() -> None:
    assert judged(HEALTHY, rc=15).verdict is Verdict.FAIL
    hangs = judged(HEALTHY, rc=None, timed_out=True)
    assert (hangs.verdict, hangs.measured) == (Verdict.FAIL, "hangs")


@pytest.mark.parametrize("bus", [(), (off_bus(3),)], ids=["on the bus", "gone from it"])
def test_a_container_with_all_but_a_lost_gpu_has_what_it_should(bus: tuple[seeding.Inject, ...]) -> None:
    """The lost GPU is another check's; the runtime did all that it can."""
    evidence = seeding.chain(seeding.smi("gpu01", 3, "serial", "GPU is lost"), *bus)(HEALTHY)
    result = judged(evidence, stdout="".join([*LINES[:3], *LINES[4:]]))
    assert (result.verdict, result.measured, result.expected) == (Verdict.PASS, 7, 7), result.because


def test_a_container_that_says_of_the_lost_gpu_that_it_is_lost_has_the_others() -> None:
    evidence = seeding.smi("gpu01", 3, "serial", "GPU is lost")(HEALTHY)
    result = judged(evidence, rc=15, stdout="".join([*LINES[:3], LOST, *LINES[4:]]))
    assert result.verdict is Verdict.PASS, result.because


def test_a_gpu_that_answers_ones_alone_is_in_no_container_and_the_runtime_is_not_blamed() -> None:
    silent = seeding.silence("gpu01", 3)(HEALTHY)
    result = judged(silent, stdout="".join([*LINES[:3], *LINES[4:]]))
    assert result.verdict is Verdict.PASS, result.because


def test_a_hidden_gpu_of_no_known_place_has_no_number() -> None:
    result = judged(off_bus(3)(HEALTHY), stdout="".join([*LINES[:3], *LINES[4:7]]))
    assert result.verdict is Verdict.FAIL
    assert result.because.endswith("sees 6 of the driver's 8 GPUs, without GPU 6")


def test_no_gpu_in_the_container_and_none_of_the_driver_is_no_pass() -> None:
    none = seeding.smi_root("gpu01", lambda root: [root.remove(gpu) for gpu in root.findall("gpu")] and None)
    result = judged(none(HEALTHY), stdout="")
    assert result.verdict is not Verdict.PASS


@pytest.mark.parametrize(
    "text",
    [LINES[0] + LINES[0], LINES[0] + "GPU 1: (no UUID)\n", "GPU 0: A100 (UUID: GPU-1)x\n"],
    ids=["twice the same", "without a UUID", "another form"],
)
def test_a_list_that_does_not_tell_the_gpus_apart_is_not_read(text: str) -> None:
    with pytest.raises(CannotReadError):
        listed(text)


def test_lines_of_instances_and_warnings_are_no_gpus() -> None:
    text = f"WARNING: infoROM\n{LINES[0]}  MIG 1g.5gb Device 0: (UUID: MIG-1)\n{LINES[1]}"
    assert len(listed(text)) == 2
