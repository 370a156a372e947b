"""What other programs read, read with their own readers: JUnit, Markdown and Prometheus text."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from junitparser import Error, Failure, JUnitXml, Skipped
from markdown_it import MarkdownIt
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families
from tests.support import judged

from clustercheck.model import Verdict
from clustercheck.result.document import Document
from clusterctl.report import culprits, junit, markdown, prometheus

DOCUMENTS = {
    make.__name__: make
    for make in (judged.passing, judged.failing, judged.incomplete, judged.hundred, judged.upgraded)
}
MADE = {**DOCUMENTS, "hostile": judged.hostile}


@pytest.fixture(params=DOCUMENTS)
def document(request: pytest.FixtureRequest) -> Document:
    return DOCUMENTS[request.param]()


@pytest.fixture(params=MADE)
def made(request: pytest.FixtureRequest) -> Document:
    return MADE[request.param]()


def metrics(document: Document) -> dict[str, Metric]:
    return {family.name: family for family in text_string_to_metric_families(prometheus.render(document))}


def value(family: Metric, **labels: str) -> float:
    (found,) = [s.value for s in family.samples if labels.items() <= s.labels.items()]
    return found


def test_prometheus_tells_verdict_coverage_and_time(document):
    read = metrics(document)
    verdicts = {s.labels["verdict"]: s.value for s in read["clusterctl_validation_verdict"].samples}
    assert {word for word, on in verdicts.items() if on} == {document.verdict}
    assert set(verdicts) == {"pass", "fail", "incomplete"}
    coverage = read["clusterctl_validation_coverage_results"]
    for verdict in ("pass", "fail", "warning", "not_run", "excluded"):
        assert value(coverage, verdict=verdict) == document.as_json()["coverage"][verdict]
    assert read["clusterctl_validation_end_timestamp_seconds"].samples[0].value == 1795204992
    assert read["clusterctl_validation_duration_seconds"].samples[0].value == 372


def test_prometheus_gives_every_metric_help_a_type_and_no_sample_twice(document):
    for family in metrics(document).values():
        assert family.documentation
        assert family.type == "gauge"
        seen = [tuple(sorted(sample.labels.items())) for sample in family.samples]
        assert len(set(seen)) == len(seen), family.name
        for sample in family.samples:
            assert sample.labels["cluster"] == "rack-a"
            assert sample.labels["simulated"] == str(document.simulated).lower()
            assert math.isfinite(sample.value)
            assert sample.timestamp is None  # the textfile collector refuses them


LINE = re.compile(r'([a-zA-Z_:][\w:]*)\{((?:[a-zA-Z_]\w*="(?:[^"\\\n]|\\["\\n])*",?)*)\} (\S+)')


def test_prometheus_text_keeps_the_rules_of_the_exposition_format(made):
    """Of version 0.0.4: one HELP and TYPE, before all samples of a family, which stand together."""
    text = prometheus.render(made)
    assert text.endswith("\n")
    begun: list[str] = []
    for line in text.removesuffix("\n").split("\n"):
        if line.startswith("# HELP "):
            begun.append(line.split()[2])
        elif line.startswith("# TYPE "):
            assert line == f"# TYPE {begun[-1]} gauge"
        else:
            found = LINE.fullmatch(line)
            assert found, line
            assert found[1] == begun[-1]
            assert math.isfinite(float(found[3]))
    assert len(set(begun)) == len(begun)


def test_prometheus_names_the_faulty_components():
    read = metrics(judged.failing())
    who = [sample.labels for sample in read["clusterctl_validation_culprit"].samples]
    assert {"scope": "gpu", "node": "gpu03", "gpu": "5"}.items() <= who[-1].items()
    assert len(who) == len(judged.failing().culprits)
    assert "clusterctl_validation_culprit" not in metrics(judged.passing())


def test_prometheus_figures_are_in_base_units_and_on_their_gpu():
    read = metrics(judged.failing())
    speed = read["clusterctl_check_measured_bytes_per_second"]
    assert value(speed, check="all-reduce-bandwidth") == pytest.approx(87.3e6, rel=0.01)
    expected = read["clusterctl_check_expected_bytes_per_second"]
    assert value(expected, check="all-reduce-bandwidth") == pytest.approx(312.5e6)
    assert value(read["clusterctl_check_measured_links"], check="nvlink", node="gpu01", gpu="0") == 11
    assert value(read["clusterctl_check_passed"], check="gpu-ecc", node="gpu01", gpu="4") == 0
    assert value(read["clusterctl_check_passed"], check="gpu-ecc", node="gpu01", gpu="3") == 1


def places(result):
    """The cells that a result is told of: check, node and GPU, and of a pair both nodes."""
    where = result.subject
    nodes = [where.node] if where.peer is None else [where.node, where.peer]
    return {(result.check, node, where.gpu) for node in nodes}


def told(results, key):
    """The cells of the results that have this figure, in a unit."""
    having = [
        r for r in results if isinstance(getattr(r, key), int | float) and (r.unit or key == "efficiency")
    ]
    return set().union(*map(places, having))


def total(samples, prefix):
    return sum(count for name, count in samples.items() if name.startswith(prefix))


def test_prometheus_gives_of_a_nodes_pairs_the_worst():
    read = metrics(judged.hundred())
    passed = read["clusterctl_check_passed"]
    assert value(passed, check="pair-bandwidth", node="gpu88") == 0
    samples = {name: len(family.samples) for name, family in read.items()}
    every = judged.hundred().results
    results = [r for r in every if r.verdict is not Verdict.EXCLUDED]
    assert sum(r.check == "pair-bandwidth" for r in results) == 98 * 97 / 2  # two nodes are not used
    # A sample a cell of node x GPU x check, of pairs one a node; what was expected for a node, not each GPU.
    assert samples["clusterctl_check_passed"] == len(set().union(*map(places, results)))
    # What was measured and has no floor is excluded, and has its part of physics.
    assert samples["clusterctl_check_efficiency_ratio"] == len(told(every, "efficiency"))
    measured, expected = told(every, "measured"), {cell[:2] for cell in told(results, "expected")}
    assert total(samples, "clusterctl_check_measured_") == len(measured)
    assert total(samples, "clusterctl_check_expected_") == len(expected) < len(measured) / 3
    assert not any("peer" in sample.labels for sample in passed.samples)


def test_what_did_not_run_is_not_passed_and_what_is_excluded_is_absent():
    passed = metrics(judged.hundred())["clusterctl_check_passed"]
    assert value(passed, check="gpu-driver", node="gpu07") == 0
    assert [s for s in passed.samples if s.labels.get("node") == "gpu55"] == []


def test_prometheus_reads_back_what_a_node_said():
    read = metrics(judged.hostile())
    assert {s.labels["cluster"] for family in read.values() for s in family.samples} == {judged.HOSTILE}
    assert any(
        s.labels.get("node") == judged.HOSTILE + "gpu01" for s in read["clusterctl_check_passed"].samples
    )


def test_a_ci_system_counts_in_junit_what_the_document_counts(made):
    read = JUnitXml.fromstring(junit.render(made).encode())
    cases = [case for suite in read for case in suite]
    counted = dict.fromkeys((Failure, Error, Skipped), 0)
    for case in cases:
        for outcome in case.result:
            counted[type(outcome)] += 1
    coverage = made.coverage
    assert len(cases) == coverage.expected == read.tests
    assert counted[Failure] == coverage.failed == read.failures
    assert counted[Error] == coverage.not_run == read.errors
    assert counted[Skipped] == coverage.excluded == read.skipped


def test_markdown_renders_as_headings_tables_and_plain_words(made):
    tokens = MarkdownIt("commonmark", {"html": True}).enable("table").parse(markdown.render(made))
    kinds = [token.type for token in tokens]
    figures = sum(bool(details.figures) for _, details in culprits.culprit_details(made))
    assert kinds.count("table_open") == 2 + figures  # the coverage, the checks, and one for each culprit's
    assert kinds[0] == "heading_open"
    assert tokens[1].content.startswith(made.verdict.upper())
    assert "html_block" not in kinds
    inline = {child.type for token in tokens for child in token.children or []}
    assert inline <= {"text", "strong_open", "strong_close", "code_inline", "text_special", "softbreak"}
    rows = [index for index, kind in enumerate(kinds) if kind == "tr_open"]
    widths = [kinds[start : kinds.index("tr_close", start)].count("td_open") for start in rows]
    assert set(widths) == {0, 6, 7}  # headings have th, the coverage has a column more than the checks
    items = [token.content for token in tokens if token.type == "inline" and token.level == 5]
    told = [culprit.remedy for culprit in made.culprits if culprit.remedy]
    assert len([item for item in items if item.startswith("Remedy: ")]) == len(told)


def test_every_metric_is_documented_and_no_other(repository: Path):
    text = (repository / "docs" / "result.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"^\| `(clusterctl_\w+)`", text, flags=re.MULTILINE))
    figures = re.compile(r"^(clusterctl_check_(?:measured|expected))_\w+")
    told = {figures.sub(r"\1_UNIT", name) for make in DOCUMENTS.values() for name in metrics(make())}
    assert told == documented
