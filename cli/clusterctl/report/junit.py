"""A run as JUnit XML, for CI systems: one test case per check and subject."""

from __future__ import annotations

import re
from collections import Counter
from xml.etree import ElementTree as ET

from clustercheck.model import Result, Verdict
from clustercheck.result.document import Document
from clusterctl.report import view
from clusterctl.report.subjects import subject_name

# XML 1.0 has no place for these, and a node's log may hold any byte.
NOT_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
ELEMENTS = {Verdict.FAIL: "failure", Verdict.NOT_RUN: "error", Verdict.EXCLUDED: "skipped"}


def render(document: Document) -> str:
    """The XML text.

    fail is a failure; not_run an error, since what did not run is never green; excluded is skipped; a warning
    passes, with its reason as output.
    """
    groups = view.check_groups(document)
    results = [result for group in groups for result in group.results]
    root = ET.Element("testsuites", {"name": _clean(view.headline(document)), **_counts(results)})
    for group in groups:
        about = {
            "name": _clean(group.check),
            "timestamp": _clean(document.started.removesuffix("Z")),
            "hostname": _clean(document.cluster),
        }
        suite = ET.SubElement(root, "testsuite", {**about, **_counts(group.results)})
        for result in group.results:
            _case(suite, result)
    _properties(root, document)
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _properties(root: ET.Element, document: Document) -> None:
    root.set("time", f"{view.duration_s(document):.0f}")
    facts = {
        "run": document.run,
        "suite": document.suite,
        "verdict": document.verdict,
        "simulated": str(document.simulated).lower(),
    }
    for suite in root:
        properties = ET.Element("properties")
        for name, value in facts.items():
            ET.SubElement(properties, "property", name=name, value=_clean(value))
        suite.insert(0, properties)


def _counts(results: list[Result] | tuple[Result, ...]) -> dict[str, str]:
    counts = Counter(result.verdict for result in results)
    return {
        "tests": str(len(results)),
        "failures": str(counts[Verdict.FAIL]),
        "errors": str(counts[Verdict.NOT_RUN]),
        "skipped": str(counts[Verdict.EXCLUDED]),
    }


def _case(suite: ET.Element, result: Result) -> None:
    case = ET.SubElement(
        suite, "testcase", classname=_clean(result.check), name=_clean(subject_name(result.subject)), time="0"
    )
    kind = ELEMENTS.get(result.verdict)
    because = _clean(result.because or "no reason given")
    if result.verdict is Verdict.WARNING:
        ET.SubElement(case, "system-out").text = f"warning: {because}"
    if kind is None:
        return
    element = ET.SubElement(case, kind, message=because)
    if kind != "skipped":
        element.set("type", result.verdict.value)
        lines = [
            because,
            f"measured: {view.value(result.measured, result.unit)}",
            f"expected: {view.value(result.expected, result.unit)}",
        ]
        if result.remedy and kind == "failure":
            lines.append(f"what to do: {result.remedy}")
        element.text = _clean("\n".join(lines))


def _clean(text: str) -> str:
    return NOT_XML.sub("?", text)
