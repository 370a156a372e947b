"""ECC counters and retired pages as drivers print them for GPUs before Ampere."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from clustercheck.checks.all import BY_ID
from clustercheck.checks.base import evaluate
from clustercheck.checks.support import seeding
from clustercheck.model import Result, Verdict
from clustercheck.samples import sample

PARTS = ("device_memory", "register_file", "l1_cache", "l2_cache", "cbu")
ABSENT = ("texture_memory", "texture_shm")


def volta(
    double_bit: str = "0", total: str | None = None, retired: tuple[str, str] = ("0", "0")
) -> seeding.Inject:
    """GPU 0 of gpu01 as a V100: words of NVIDIA's driver 470."""

    def change(root: ElementTree.Element) -> None:
        gpu = root.findall("gpu")[0]
        for name in ("ecc_errors", "retired_pages", "remapped_rows"):
            found = gpu.find(name)
            assert found is not None
            gpu.remove(found)
        counts = {
            kind: _counters(double_bit if kind == "double_bit" else "7", total)
            for kind in ("single_bit", "double_bit")
        }
        volatile = "".join(f"<{kind}>{text}</{kind}>" for kind, text in counts.items())
        pages = "".join(
            f"<{kind}><retired_count>{count}</retired_count></{kind}>"
            for kind, count in zip(
                ("multiple_single_bit_retirement", "double_bit_retirement"), retired, strict=True
            )
        )
        gpu.append(ElementTree.fromstring(f"<ecc_errors><volatile>{volatile}</volatile></ecc_errors>"))  # noqa: S314
        gpu.append(
            ElementTree.fromstring(  # noqa: S314
                f"<retired_pages>{pages}<pending_retirement>No</pending_retirement></retired_pages>"
            )
        )

    return seeding.smi_root("gpu01", change)


def _counters(device_memory: str, total: str | None) -> str:
    texts = {**dict.fromkeys(PARTS, "0"), **dict.fromkeys(ABSENT, "N/A"), "device_memory": device_memory}
    texts["total"] = device_memory if total is None else total
    return "".join(f"<{name}>{text}</{name}>" for name, text in texts.items())


def judged(check: str, inject: seeding.Inject) -> Result:
    return evaluate(BY_ID[check], inject(sample.healthy(1)))[0]


@pytest.mark.parametrize(
    ("double_bit", "total", "verdict"),
    [
        ("0", None, Verdict.PASS),  # single-bit errors are corrected
        ("2", None, Verdict.FAIL),
        ("0", "N/A", Verdict.NOT_RUN),
    ],
)
def test_double_bit_errors_are_the_uncorrectable_ones(
    double_bit: str, total: str | None, verdict: Verdict
) -> None:
    result = judged("gpu-ecc", volta(double_bit, total))
    assert result.verdict is verdict
    assert verdict is not Verdict.FAIL or result.measured == 2  # and not twice, with their sum


@pytest.mark.parametrize(
    ("retired", "verdict"),
    [
        (("0", "0"), Verdict.PASS),
        (("40", "22"), Verdict.PASS),
        (("40", "23"), Verdict.FAIL),
        (("N/A", "0"), Verdict.NOT_RUN),
        (("N/A", "63"), Verdict.FAIL),
    ],
)
def test_many_retired_pages_are_a_defect(retired: tuple[str, str], verdict: Verdict) -> None:
    result = judged("gpu-row-remap", volta(retired=retired))
    assert result.verdict is verdict
    assert verdict is not Verdict.FAIL or "replaced" in result.remedy


def test_many_retired_pages_are_a_fault_beside_a_word_that_is_not_known() -> None:
    translated = seeding.smi("gpu01", 0, "retired_pages/pending_retirement", "Nein")
    few = seeding.chain(volta(retired=("1", "0")), translated)
    assert judged("gpu-row-remap", few).verdict is Verdict.NOT_RUN
    many = seeding.chain(volta(retired=("63", "0")), translated)
    assert judged("gpu-row-remap", many).verdict is Verdict.FAIL
