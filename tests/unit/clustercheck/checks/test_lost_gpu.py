"""A GPU that the driver has lost fails as itself, and its neighbours are judged as usual."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.support.validation_in_memory import records, run

from clustercheck.checks.all import BY_ID, CHECKS
from clustercheck.checks.base import evaluate
from clustercheck.checks.support import seeding
from clustercheck.checks.support.gpu import require_all_listed
from clustercheck.model import Scope, Verdict
from clustercheck.parse.nvidia_smi import parse_smi, without_processes
from clustercheck.parse.reading import CannotReadError
from clustercheck.samples import sample, smi


@pytest.mark.parametrize("said", ["GPU is lost", "GPU requires reset", "ERR!", "Unknown Error"])
@pytest.mark.parametrize("field", ["serial", "product_name", "ecc_mode/current_ecc", "uuid"])
def test_it_is_said_of_this_gpu_alone(said: str, field: str) -> None:
    evidence = seeding.smi("gpu02", 3, field, said)(sample.healthy())
    found = {
        (check.id, result.subject.node, result.subject.gpu): result
        for check in CHECKS
        if check.scope is Scope.GPU and not check.job
        for result in evaluate(check, evidence)
    }
    lost = found["gpu-present", "gpu02", 3]
    assert lost.verdict is Verdict.FAIL
    assert said in lost.because
    assert found["gpu-ecc", "gpu02", 3].verdict is Verdict.NOT_RUN
    others = {key: r.verdict for key, r in found.items() if key[1:] != ("gpu02", 3)}
    assert set(others.values()) <= {Verdict.PASS, Verdict.EXCLUDED}


LOST = "Unable to determine the device handle for GPU 0000:4E:00.0: GPU is lost.  Reboot the system\n"


def field(raw: seeding.Raw) -> None:
    """nvidia-smi -q -x lists all GPUs, and ends with an error."""
    raw["nvidia_smi"].update(rc=15)


def instead_of(said: str, part: str, **how: object) -> Callable[[seeding.Raw], None]:
    """This stands where nvidia-smi nvlink would list GPU 3."""

    def change(raw: seeding.Raw) -> None:
        before, _, after = raw[part]["stdout"].partition("GPU 3:")
        raw[part].update(stdout=before + said + "GPU 4:" + after.partition("GPU 4:")[2], **how)

    return change


HEADER = f"GPU 3: {smi.MODEL} (UUID: {smi.uuid(2, 3)})\n"
WAYS = {
    "exit code": [field],
    "left out": [instead_of("", "nvlink"), instead_of("", "nvlink_errors")],
    "left out, exit code": [field, instead_of("", "nvlink"), instead_of(LOST, "nvlink_errors", rc=15)],
    "line instead": [instead_of(LOST, "nvlink", rc=15), instead_of(LOST, "nvlink_errors", rc=15)],
    "line within": [
        instead_of(f"{HEADER}\t Unable to get NVLinks: Unknown Error\n", "nvlink"),
        instead_of(f"{HEADER}\t Unable to get NVLinks: Unknown Error\n", "nvlink_errors"),
    ],
}


@pytest.mark.parametrize("way", WAYS.values(), ids=list(WAYS))
def test_its_neighbours_are_judged_however_nvidia_smi_tells_of_it(
    way: list[Callable[[seeding.Raw], None]],
) -> None:
    lost = seeding.smi("gpu02", 3, "serial", "GPU is lost")
    evidence = seeding.chain(lost, *(seeding.edit("gpu02", change) for change in way))(sample.healthy())
    found = {
        (check.id, result.subject.gpu): result
        for check in CHECKS
        if check.scope in (Scope.GPU, Scope.LINK, Scope.HOST) and not check.job
        for result in evaluate(check, evidence)
        if result.subject.node == "gpu02"
    }
    assert found["gpu-present", 3].verdict is Verdict.FAIL
    assert found["gpu-driver", None].verdict in (Verdict.PASS, Verdict.NOT_RUN)
    others = {key: result.verdict for key, result in found.items() if key[1] not in (None, 3)}
    assert set(others.values()) == {Verdict.PASS}


@pytest.mark.parametrize("check", ["nvlink", "nvlink-errors"])
def test_what_says_that_a_gpu_is_lost_fails_where_nothing_else_does(check: str) -> None:
    part = check.replace("-", "_")
    said = instead_of(f"{HEADER}\t Unable to get NVLinks: GPU is lost\n", part)
    results = evaluate(BY_ID[check], seeding.edit("gpu02", said)(sample.healthy()))
    failed = [(r.subject.node, r.subject.gpu) for r in results if r.verdict is not Verdict.PASS]
    assert failed == [("gpu02", 3)]
    assert next(r for r in results if r.verdict is not Verdict.PASS).verdict is Verdict.FAIL


def test_a_process_may_have_any_name() -> None:
    processes = (
        "<processes><process_info><process_name>Unknown Error</process_name></process_info></processes>"
    )
    text = smi.smi_xml(1).replace("</gpu>", f"{processes}</gpu>", 1)
    assert [gpu.lost for gpu in parse_smi(text).gpus] == [""] * 8


@pytest.mark.parametrize("name", ["/home/j\N{REPLACEMENT CHARACTER}rg/python", "a & b < c"])
def test_the_name_of_a_program_hides_nothing_of_the_gpus(name: str) -> None:
    """It is what a user chose, and need be neither UTF-8 nor XML."""
    of_one = f"<processes><process_info><process_name>{name}</process_name></process_info></processes>"
    wrong = seeding.smi("gpu01", 0, "ecc_errors/volatile/dram_uncorrectable", "2")(sample.healthy(1))

    def change(raw: seeding.Raw) -> None:
        raw["nvidia_smi"]["stdout"] = raw["nvidia_smi"]["stdout"].replace("</gpu>", f"{of_one}</gpu>", 1)

    results = evaluate(BY_ID["gpu-ecc"], seeding.edit("gpu01", change)(wrong))
    assert [one.verdict for one in results] == [Verdict.FAIL, *[Verdict.PASS] * 7]


def test_lists_of_programs_without_an_end_are_read_in_time_in_proportion_to_their_length() -> None:
    def seconds(count: int) -> float:
        began = time.process_time()
        without_processes("<processes>" * count)
        return time.process_time() - began

    short = min(seconds(100_000) for _ in range(5))
    assert min(seconds(1_000_000) for _ in range(5)) < 50 * short


def test_whole_output_with_an_error_is_not_read_where_no_gpu_is_lost() -> None:
    evidence = seeding.edit("gpu02", field)(sample.healthy())
    verdicts = [r.verdict for r in evaluate(BY_ID["gpu-present"], evidence) if r.subject.node == "gpu02"]
    assert verdicts == [Verdict.NOT_RUN] * 8


def test_a_validation_blames_it() -> None:
    found = records()
    found["gpu02"] = dict(
        seeding.smi("gpu02", 3, "serial", "GPU is lost")(sample.healthy()).nodes["gpu02"].raw
    )
    culprits = run(found)["culprits"]
    assert [(c["scope"], c["node"], c["gpu"]) for c in culprits] == [("gpu", "gpu02", 3)]


def test_a_list_may_lack_a_lost_gpu_and_no_other() -> None:
    """The lost one is told by gpu-present; that another is missing would hide its links."""
    evidence = seeding.smi("gpu01", 3, "serial", "GPU is lost")(sample.healthy(1))
    node = evidence.nodes["gpu01"]
    listed = node.nvlinks()
    require_all_listed(node, [each for each in listed if each.index != 3], "nvidia-smi nvlink -s")
    with pytest.raises(CannotReadError, match="lists 6 of 7 GPUs"):
        require_all_listed(
            node, [each for each in listed if each.index not in (3, 5)], "nvidia-smi nvlink -s"
        )


def test_a_program_that_prints_no_uuids_is_read_by_its_numbers() -> None:
    node = sample.healthy(1).nodes["gpu01"]
    numbered = [replace(each, uuid="") for each in node.nvlinks()]
    require_all_listed(node, numbered, "nvidia-smi nvlink -s")
    with pytest.raises(CannotReadError, match="lists 7 of 8 GPUs"):
        require_all_listed(node, numbered[1:], "nvidia-smi nvlink -s")
