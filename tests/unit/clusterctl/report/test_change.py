"""After an upgrade: every report says what changed in the environment, and what became of each quantity."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from html import unescape

import pytest
from tests.support.judged import compared, failing, other_variables, passing, upgraded
from tests.support.validation_in_memory import SCHEMA

from clustercheck.model import Culprit
from clustercheck.result import reading
from clustercheck.result.document import Document
from clusterctl.report import change, culprits, files, html, markdown, terminal
from clusterctl.report.subjects import culprit_name

RENDERED: dict[str, Callable[[Document], str]] = {
    "terminal": lambda document: terminal.render(document, width=140),
    "markdown": lambda document: markdown.render(document).replace("\\", ""),
    "html": lambda document: re.sub(
        r"\s+", " ", re.sub("<[^>]+>", " ", html.render(document)).replace("&gt;", ">")
    ),
}


@cache
def cached(make: Callable[[], Document]) -> Document:
    return make()


def details_of(document: Document, culprit: Culprit) -> culprits.CulpritDetails:
    return dict(culprits.culprit_details(document))[culprit]


@pytest.fixture(scope="module")
def after_upgrade() -> Document:
    return upgraded()


@pytest.mark.parametrize("render", RENDERED.values(), ids=RENDERED)
def test_every_report_says_what_changed_and_what_came_of_it(render, after_upgrade):
    text = render(after_upgrade)
    for words in (
        "kernel 6.1.0-38-amd64 -> 6.1.0-40-amd64: all nodes",
        "gpu-memory-bandwidth (2 quantities): -4.0 % fleet-wide (8 nodes)",
        "gpu-gemm (5 quantities): -40.0 % at gpu04, GPU 2",
        "one measurement: a change of less than 35 % may be noise",
    ):
        assert words in text
    for word in ("regressed", "same", "cannot tell"):
        assert word in text
    assert "then 580" not in text


@pytest.mark.parametrize("render", RENDERED.values(), ids=RENDERED)
def test_without_a_baseline_no_report_speaks_of_changes(render):
    text = render(passing())
    assert "Changes since" not in text and not re.search("^since the baseline", text, re.MULTILINE)


def test_the_json_has_the_same_and_it_is_read_back_from_it(after_upgrade):
    made = after_upgrade.as_json()["comparison"]
    (kernel,) = made["environment"]
    assert (kernel["what"], kernel["before"], kernel["now"]) == ("kernel", "6.1.0-38-amd64", "6.1.0-40-amd64")
    assert kernel["everywhere"] and len(kernel["nodes"]) == 8
    quantities = {(one["check"], one["metric"]): one for one in made["quantities"]}
    memory = quantities["gpu-memory-bandwidth", "device_copy"]
    assert (memory["outcome"], memory["fleet"], memory["regressed_at"]) == ("regressed", "regressed", [])
    assert memory["change"] == pytest.approx(-0.04, abs=1e-3) and memory["interval"][1] < -0.03
    product = quantities["gpu-gemm", "gemm_bf16"]
    assert (product["outcome"], product["fleet"]) == ("regressed", "same")
    assert [(one["node"], one["gpu"]) for one in product["regressed_at"]] == [("gpu04", 2)]
    again = reading.read("".join(files.pieces(after_upgrade.members())))
    assert again.as_json()["comparison"] == made
    assert change.comparison(again).findings == change.comparison(after_upgrade).findings
    assert "comparison" not in passing().as_json()


@pytest.fixture(scope="module")
def after_new_variables() -> Document:
    return other_variables()


@pytest.mark.parametrize("render", RENDERED.values(), ids=RENDERED)
def test_every_report_names_the_variables_of_the_jobs_that_changed_and_their_nodes(
    render, after_new_variables
):
    text = unescape(render(after_new_variables))
    for words in (
        "changed: NCCL_IB_TC 105 -> not set: all nodes",
        "changed: NCCL_ALGO not set -> RING: gpu02, gpu03",
        'changed: NCCL_TOPO_FILE /etc/topo.xml -> "": gpu05',
    ):
        assert words in re.sub(r"changed +NCCL", "changed: NCCL", text)
    assert change.NO_CHANGE not in text


def test_the_json_has_the_variables_that_changed_and_fits_the_schema(after_new_variables):
    made = json.loads("".join(files.pieces(after_new_variables.members())))
    SCHEMA.validate(made)
    found = {one["what"]: one for one in made["comparison"]["environment"]}
    assert set(found) == {"NCCL_IB_TC", "NCCL_ALGO", "NCCL_TOPO_FILE"}
    assert (found["NCCL_IB_TC"]["before"], found["NCCL_IB_TC"]["now"]) == ("105", "not set")
    assert found["NCCL_IB_TC"]["everywhere"] and len(found["NCCL_IB_TC"]["nodes"]) == 8
    assert found["NCCL_ALGO"]["nodes"] == ["gpu02", "gpu03"] and not found["NCCL_ALGO"]["everywhere"]


def test_a_document_of_before_says_its_differences_as_it_has_them(after_upgrade):
    old = {
        "run": "r",
        "finished": "2026-11-20T10:00:00Z",
        "not_compared": [],
        "differs": ["gpu01: driver 2, then 1"],
    }
    made = replace(after_upgrade, environment={**after_upgrade.environment, "baseline": old})
    assert change.comparison(made).differs == ("gpu01: driver 2, then 1",)


def test_a_node_alone_that_has_another_driver_is_named():
    found = change.comparison(compared())
    assert found.differs == ("driver 580.95.05 -> 580.105.08: gpu02",)
    assert ("regressed", "gpu-gemm (5 quantities): -9.0 % at gpu04, GPU 2") in found.findings


def test_a_culprits_line_is_one_and_its_figures_are_below_it(after_upgrade):
    (culprit,) = after_upgrade.culprits
    assert (
        "gpu-gemm: 38 to 40 % slower in all five precisions than its peers, its baseline and the floor"
        in (culprit.reasons)
    )
    found = details_of(after_upgrade, culprit)
    rows = {(one.check, one.quantity): one for one in found.figures}
    gemm = rows["gpu-gemm", "gemm bf16"]
    assert gemm.measured == "161.0 TFLOPS" and gemm.who == ""
    assert gemm.compared == ("261.2 (-38 %)", "268.3 (-40 %)", "268.0 (-40 %)")
    assert found.reasons == () and found.more_figures == found.more_reasons == 0
    lines = terminal.render(after_upgrade, width=140).splitlines()
    (line,) = [number for number, text in enumerate(lines) if text.startswith("gpu04, GPU 2:")]
    assert lines[line + 1].split() == ["check", "quantity", "measured", "floor", "baseline", "peers"]
    assert any(text.split()[:3] == ["gpu-gemm", "gemm", "bf16"] for text in lines[line:])


@pytest.mark.parametrize("width", [60, 80, 100, 140])
@pytest.mark.parametrize("make", [failing, upgraded, compared], ids=lambda make: make.__name__)
def test_a_culprits_line_is_one_at_any_width_and_what_is_cut_stands_below_it(make, width):
    document = cached(make)
    lines = terminal.render(document, width=width).splitlines()
    said = " ".join(" ".join(lines).split())
    assert document.culprits
    for culprit, details in culprits.culprit_details(document):
        name = f"{culprit_name(culprit)}: "
        number = next(n for n, line in enumerate(lines) if line.startswith(name))
        assert len(lines[number]) <= width
        assert lines[number + 1].startswith("  ") or not lines[number + 1]
        whole = lines[number].removeprefix(name).removesuffix(culprits.CUT)
        assert culprit.because.startswith(whole)
        first = culprit.reasons[0] if culprit.reasons else culprit.because
        tabled = {figure.check for figure in details.figures}
        assert first.partition(":")[0] in tabled or " ".join(first.split()) in said


def test_a_line_is_cut_where_a_clause_ends():
    because = "gpu-gemm: 40 % slower in all five precisions than its peers, its baseline and the floor"
    culprit = Culprit("gpu", "gpu01", f"{because}; also: gpu-burn", "", 1)
    assert culprits.fitted(culprit, 120) == culprit.because
    assert culprits.fitted(culprit, 90) == because
    assert culprits.fitted(culprit, 80) == f"{because.partition(', its')[0]} ..."
    assert culprits.fitted(culprit, 40) == "gpu-gemm: 40 % slower in all five ..."
    assert culprits.fitted(replace(culprit, because="x" * 90), 80) == "x" * 76 + " ..."


def test_reasons_without_figures_are_listed_and_a_victims_figures_are_not_its_own():
    """A pair is slow by its other end: what the node itself fails is another matter."""
    document = failing()
    other = next(culprit for culprit in document.culprits if culprit.node == "gpu02")
    found = details_of(document, other)
    assert found.figures == ()
    assert [reason.partition(":")[0] for reason in found.reasons] == ["fabric-manager"]
    slow = next(culprit for culprit in document.culprits if culprit.node == "gpu03" and culprit.gpu is None)
    (pair,) = details_of(document, slow).figures
    assert (pair.check, pair.who) == ("pair-bandwidth", "gpu01 - gpu03")


def test_of_very_many_reasons_and_quantities_the_rest_is_counted(after_upgrade):
    reasons = tuple(f"check-{number}: bad" for number in range(9))
    culprit = Culprit("node", "gpu04", "check-0: bad; also: more", "", reasons=reasons)
    found = details_of(replace(after_upgrade, culprits=(culprit,)), culprit)
    assert (len(found.reasons), found.more_reasons) == (culprits.MAX_REASONS, 2)
