"""DCGM's diagnostic: both forms are read, and no unknown word ever counts as a pass."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from tests.support.mutations import FUZZ, meddled, misprinted, read_or_refused

from clustercheck.parse.dcgm import Diag, DiagStatus, parse_dcgm
from clustercheck.parse.reading import CannotReadError


def warning(text: str) -> dict[str, Any]:
    return {"error_category": 8, "error_id": 29, "error_severity": 5, "warning": text}


def dcgm4(**status: str) -> dict[str, Any]:
    """Two GPUs as `dcgmi diag -r 2 -j` of DCGM 4.2 tells them (dcgmi/Diag.cpp, HelperJsonBuildOutput)."""

    def result(gpu: int, said: str, *warnings: str) -> dict[str, Any]:
        entry: dict[str, Any] = {
            "entity_group": "GPU",
            "entity_group_id": 1,
            "entity_id": gpu,
            "status": said,
        }
        return entry | ({"warnings": [warning(text) for text in warnings]} if warnings else {})

    second = status.get("second", "Fail")
    return {
        "DCGM Diagnostic": {
            "test_categories": [
                {"category": "Deployment", "tests": [
                    {"name": "software", "results": [result(0, "Pass"), result(1, "Pass")],
                     "test_summary": {"status": "Pass"}},
                ]},
                {"category": "Hardware", "tests": [
                    {"name": "memory",
                     "results": [result(0, "Pass"), result(1, second, "Uncorrectable ECC error on GPU 1")],
                     "test_summary": {"status": status.get("overall", second)}},
                    {"name": "diagnostic", "results": [result(0, "Skip"), result(1, "Skip")],
                     "test_summary": {"status": "Skip", "info": ["Not supported here"]}},
                    {"name": "nvbandwidth"},
                ]},
            ],
        },
        "entity_groups": [
            {"entities": [{"device_id": "20b0", "entity_id": n, "serial_num": f"13208{n}"} for n in (0, 1)],
             "entity_group": "GPU", "entity_group_id": 1},
        ],
        "metadata": {"Driver Version Detected": "580.95.05", "version": "4.2.3"},
    }  # fmt: skip


def dcgm3() -> dict[str, Any]:
    """The same as DCGM 3.3 tells it: the node's tests have one entry, a GPU's number is a text."""
    return {
        "DCGM GPU Diagnostic": {
            "test_categories": [
                {"category": "Deployment", "tests": [
                    {"name": "Denylist", "results": [{"status": "Pass"}]},
                    {"name": "Persistence Mode", "results": [
                        {"gpu_id": 1, "status": "Fail", "warnings": [
                            {"error_id": 29, "error_category": 8, "error_severity": 5,
                             "warnings": "GPU 1 has none"}
                        ]},
                    ]},
                ]},
                {"category": "Hardware", "tests": [
                    {"name": "GPU Memory", "results": [
                        {"gpu_id": "0", "status": "Pass", "info": "GPU 0 Allocated 39000000000 bytes"},
                        {"gpu_id": "1", "status": "Fail",
                         "warnings": [warning("Uncorrectable ECC error on GPU 1")]},
                    ]},
                ]},
            ],
        },
        "Driver Version Detected": "535.161.08",
        "GPU Device IDs": ["20b0", "20b0"],
        "GPU Device Serials": {"0": "1320820000000", "1": "1320820000001"},
        "version": "3.3.5",
    }  # fmt: skip


FORMS = {"DCGM 3": json.dumps(dcgm3(), indent="\t"), "DCGM 4": json.dumps(dcgm4(), indent="\t")}
EVERY = pytest.mark.parametrize("text", FORMS.values(), ids=FORMS)


def read(text: str) -> Diag:
    return parse_dcgm(text, 2)


def words(diag: Diag) -> dict[tuple[str, int | None], DiagStatus]:
    return {(result.test, result.gpu): result.said for result in diag.results}


def test_the_made_document_fits_dcgms_own_schema(fixtures_dir: Path) -> None:
    schema = json.loads((fixtures_dir / "dcgm" / "dcgm4_diag_schema.json").read_text())
    ran = dcgm4()
    ran["DCGM Diagnostic"]["test_categories"][1]["tests"].pop()  # the schema knows no test that did not run
    assert list(Draft202012Validator(schema).iter_errors(ran)) == []


def test_dcgm_4_is_read_by_gpu_and_test() -> None:
    diag = read(FORMS["DCGM 4"])
    assert (diag.version, diag.driver_version) == ("4.2.3", "580.95.05")
    assert words(diag) == {
        ("software", 0): DiagStatus.PASS, ("software", 1): DiagStatus.PASS,
        ("memory", 0): DiagStatus.PASS, ("memory", 1): DiagStatus.FAIL,
        ("diagnostic", 0): DiagStatus.SKIP, ("diagnostic", 1): DiagStatus.SKIP,
        ("nvbandwidth", None): DiagStatus.NOT_RUN,
    }  # fmt: skip
    assert [result.messages for result in diag.of_gpu(1) if result.said is DiagStatus.FAIL] == [
        ("Uncorrectable ECC error on GPU 1",)
    ]


@pytest.mark.parametrize(("named", "gpu"), [("1", 1), ("0,1", None)])
def test_dcgm_3_may_name_the_gpu_of_a_result_among_gpu_ids(named: str, gpu: int | None) -> None:
    ran = dcgm3()
    one = ran["DCGM GPU Diagnostic"]["test_categories"][1]["tests"][0]["results"][1]
    one["gpu_ids"] = named
    del one["gpu_id"]
    assert words(read(json.dumps(ran)))["GPU Memory", gpu] is DiagStatus.FAIL


def test_dcgm_3_is_read_by_gpu_and_test() -> None:
    diag = read("Successfully ran diagnostic for group.\n" + FORMS["DCGM 3"])
    assert words(diag) == {
        ("Denylist", None): DiagStatus.PASS, ("Persistence Mode", None): DiagStatus.FAIL,
        ("GPU Memory", 0): DiagStatus.PASS, ("GPU Memory", 1): DiagStatus.FAIL,
    }  # fmt: skip
    assert [result.messages for result in diag.results if result.test == "Persistence Mode"] == [
        ("GPU 1 has none",)
    ]


def test_a_gpu_that_a_test_passes_over_in_silence_is_not_run() -> None:
    diag = parse_dcgm(FORMS["DCGM 4"], 3)
    assert words(diag)["memory", 2] is DiagStatus.NOT_RUN


def test_a_pass_that_warns_is_a_warning() -> None:
    diag = read(json.dumps(dcgm4(second="Pass")))
    assert words(diag)["memory", 1] is DiagStatus.WARN


def test_what_no_gpu_is_blamed_for_is_the_nodes() -> None:
    diag = read(json.dumps(dcgm4(second="Pass", overall="Fail")))
    assert words(diag)["memory", None] is DiagStatus.FAIL


@pytest.mark.parametrize(
    ("instead_of", "stands"),
    [
        ('"DCGM Diagnostic"', '"NVIDIA Diagnostic"'),
        ('"DCGM Diagnostic"', '"DCGM GPU Diagnostic": {}, "DCGM Diagnostic"'),
        ('"status": "Pass"', '"status": "OK"'),
        ('"status": "Pass"', '"status": ""'),
        ('"status": "Fail"', '"status": "Bestanden"'),
        ('"entity_id": 1', '"entity_id": 0'),
        ('"entity_id": 1', '"entity_id": 7'),
        ('"entity_id": 1', '"entity_id": true'),
        ('"results"', '"Ergebnisse"'),
        ('"test_summary"', '"summary"'),
        ('"warnings"', '"Warnungen"'),
        ('"metadata"', '"about"'),
        ('"test_categories"', '"runtime_error": "DCGM init failure", "test_categories"'),
        ('"test_categories": [', '"test_categories": [], "others": ['),
        (
            '"test_summary": {\n\t\t\t\t\t\t\t"status": "Fail"',
            '"test_summary": {\n\t\t\t\t\t\t\t"status": "Pass"',
        ),
    ],
)
def test_what_dcgm_never_says_is_refused(instead_of: str, stands: str) -> None:
    assert instead_of in FORMS["DCGM 4"]
    with pytest.raises(CannotReadError):
        read(FORMS["DCGM 4"].replace(instead_of, stands))


@EVERY
@FUZZ
@given(data=st.data())
def test_after_a_mishap_no_failure_becomes_a_pass(text: str, data: st.DataObject) -> None:
    found = read_or_refused(read, data.draw(st.one_of(meddled(text), misprinted(text))))
    if found is not None:
        said, before = words(found), words(read(text))
        assert set(said.values()) >= {DiagStatus.PASS, DiagStatus.FAIL}
        for (test, gpu), word in said.items():
            if word is DiagStatus.PASS and (test, gpu) in before:
                assert before[test, gpu] is DiagStatus.PASS


@EVERY
@FUZZ
@given(data=st.data())
def test_a_document_with_anything_in_any_place_is_read_or_refused(text: str, data: st.DataObject) -> None:
    document = json.loads(text)
    place = document
    while isinstance(place, dict | list) and place:
        key = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
        if data.draw(st.booleans()) or not isinstance(place[key], dict | list):
            place[key] = data.draw(st.sampled_from([None, [], {}, "", 0, -1, True, "Pass", [None], {"a": 1}]))
            break
        place = place[key]
    read_or_refused(read, json.dumps(document))


@pytest.mark.parametrize(
    "text", ["", "Error: unable to connect", "{" * 100_000, "[" * 100_000, " " * (17 << 20), "{}"]
)
def test_something_else_is_refused(text: str) -> None:
    with pytest.raises(CannotReadError):
        read(text)
