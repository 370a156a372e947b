"""Links between GPUs: who is blamed for a connection that lacks them, and who is not."""

from __future__ import annotations

import pytest

from clustercheck.checks.all import BY_ID
from clustercheck.checks.base import evaluate
from clustercheck.checks.support import seeding
from clustercheck.model import Verdict
from clustercheck.samples import sample


def topology(*apart: tuple[int, int]) -> dict[int | None, Verdict]:
    def change(raw: seeding.Raw) -> None:
        lines = raw["topology"]["stdout"].split("\n")
        for pair in apart:
            for row, column in (pair, pair[::-1]):
                cells = lines[row + 1].split("\t")
                cells[column + 1] = "SYS"
                lines[row + 1] = "\t".join(cells)
        raw["topology"]["stdout"] = "\n".join(lines)

    evidence = seeding.edit("gpu01", change)(sample.healthy(1))
    return {result.subject.gpu: result.verdict for result in evaluate(BY_ID["gpu-topology"], evidence)}


@pytest.mark.parametrize(
    ("apart", "blamed"),
    [
        ((), set()),
        (((2, 5),), {2, 5}),  # one pair: nobody can tell which of the two, and none is whole
        (tuple((3, other) for other in range(8) if other != 3), {3}),
        ((*((3, other) for other in range(8) if other != 3), (0, 1)), {0, 1, 3}),
    ],
)
def test_who_lacks_links_is_blamed_and_not_the_peers_of_who_lacks_all(
    apart: tuple[tuple[int, int], ...], blamed: set[int]
) -> None:
    found = topology(*apart)
    assert {gpu for gpu, verdict in found.items() if verdict is Verdict.FAIL} == blamed
    assert set(found.values()) <= {Verdict.PASS, Verdict.FAIL}


def test_no_links_at_all_are_no_fault_where_no_gpu_of_the_node_has_any() -> None:
    def change(raw: seeding.Raw) -> None:
        gpus = [line for line in raw["nvlink"]["stdout"].splitlines() if line.startswith("GPU")]
        said = "NVML: Unable to retrieve NVLink information as all links are inActive"
        raw["nvlink"]["stdout"] = "".join(f"{gpu}\n{said}\n" for gpu in gpus)

    def verdicts(*more: seeding.Inject) -> set[Verdict]:
        evidence = seeding.chain(seeding.undeclared("gpu01"), seeding.edit("gpu01", change), *more)
        return {result.verdict for result in evaluate(BY_ID["nvlink"], evidence(sample.healthy(1)))}

    def no_switches(raw: seeding.Raw) -> None:
        raw["pci"] = [device for device in raw["pci"] if not device["class"].startswith("0x0680")]

    assert verdicts() == {Verdict.FAIL}  # NVSwitches with nobody linked to them
    assert verdicts(seeding.edit("gpu01", no_switches)) == {Verdict.EXCLUDED}
