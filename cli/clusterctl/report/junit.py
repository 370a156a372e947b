"""A run as JUnit XML, for CI systems: one test case a check and subject."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

from clusterctl.report import view
from clusterctl.report.view import Document, Result

# XML 1.0 has no place for these, and a node's log may hold any byte.
NOT_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render(document: Document) -> str:
    """The XML text.

    fail is a failure; not_run an error, since what did not run is never green; excluded, by name, is skipped;
    a warning passes, with what it says as its output.
    """
    groups = view.check_groups(document)
    results = [result for group in groups for result in group.results]
    root = ET.Element("testsuites", {"name": _clean(view.headline(document)), **_counts(results)})
    for group in groups:
        about = {
            "name": _clean(group.check),
            "timestamp": _clean(str(document["started"]).removesuffix("Z")),
            "hostname": _clean(str(document["cluster"])),
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
        "run": document["run"],
        "suite": document["suite"],
        "verdict": document["verdict"],
        "simulated": str(view.is_simulated(document)).lower(),
    }
    for suite in root:
        properties = ET.Element("properties")
        for name, value in facts.items():
            ET.SubElement(properties, "property", name=name, value=_clean(str(value)))
        suite.insert(0, properties)


def _counts(results: list[Result] | tuple[Result, ...]) -> dict[str, str]:
    def count(verdict: str) -> str:
        return str(sum(result["verdict"] == verdict for result in results))

    return {
        "tests": str(len(results)),
        "failures": count("fail"),
        "errors": count("not_run"),
        "skipped": count("excluded"),
    }


def _case(suite: ET.Element, result: Result) -> None:
    name = view.subject_name(result["subject"])
    case = ET.SubElement(
        suite, "testcase", classname=_clean(str(result["check"])), name=_clean(name), time="0"
    )
    kind = {"fail": "failure", "not_run": "error", "excluded": "skipped"}.get(str(result["verdict"]))
    because = _clean(str(result.get("because") or "no reason given"))
    if result["verdict"] == "warning":
        ET.SubElement(case, "system-out").text = f"warning: {because}"
    if kind is None:
        return
    element = ET.SubElement(case, kind, message=because)
    if kind != "skipped":
        element.set("type", str(result["verdict"]))
        unit = str(result.get("unit") or "")
        lines = [
            because,
            f"measured: {view.value(result.get('measured'), unit)}",
            f"expected: {view.value(result.get('expected'), unit)}",
        ]
        if result.get("remedy") and kind == "failure":
            lines.append(f"what to do: {result['remedy']}")
        element.text = _clean("\n".join(lines))


def _clean(text: str) -> str:
    return NOT_XML.sub("?", text)
