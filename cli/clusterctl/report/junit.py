"""A run as JUnit XML, for CI systems: one test case per check and subject."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping

from clustercheck.model import Result, Subject, Verdict
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
    return "".join(lines(document))


def lines(document: Document) -> Iterator[str]:
    """The same in pieces of whole lines: a thousand nodes have two hundred thousand cases."""
    groups = view.check_groups(document)
    results = [result for group in groups for result in group.results]
    whole = {"name": view.headline(document), **_counts(results), "time": f"{view.duration_s(document):.0f}"}
    yield '<?xml version="1.0" encoding="UTF-8"?>\n'
    if not groups:
        yield f"<testsuites {_attributes(whole)} />\n"
        return
    yield _opening("testsuites", whole)
    properties = _properties(document)
    names: dict[Subject, str] = {}
    for group in groups:
        about = {
            "name": group.check,
            "timestamp": document.started.removesuffix("Z"),
            "hostname": document.cluster,
        }
        yield f"  {_opening('testsuite', {**about, **_counts(group.results)})}{properties}"
        before = f"    <testcase {_attributes({'classname': group.check})}"
        for result in group.results:
            name = names.get(result.subject)
            if name is None:
                name = names.setdefault(result.subject, _attributes({"name": subject_name(result.subject)}))
            yield from _case(f'{before} {name} time="0"', result)
        yield "  </testsuite>\n"
    yield "</testsuites>\n"


def _opening(tag: str, attributes: Mapping[str, str]) -> str:
    return f"<{tag} {_attributes(attributes)}>\n"


def _attributes(attributes: Mapping[str, str]) -> str:
    return " ".join(f'{name}="{_escaped(_clean(value))}"' for name, value in attributes.items())


def _properties(document: Document) -> str:
    facts = {
        "run": document.run,
        "suite": document.suite,
        "verdict": document.verdict,
        "simulated": str(document.simulated).lower(),
    }
    listed = (
        f"      <property {_attributes({'name': name, 'value': value})} />\n" for name, value in facts.items()
    )
    return f"    <properties>\n{''.join(listed)}    </properties>\n"


def _counts(results: list[Result] | tuple[Result, ...]) -> dict[str, str]:
    counts = Counter(result.verdict for result in results)
    return {
        "tests": str(len(results)),
        "failures": str(counts[Verdict.FAIL]),
        "errors": str(counts[Verdict.NOT_RUN]),
        "skipped": str(counts[Verdict.EXCLUDED]),
    }


def _case(opening: str, result: Result) -> Iterator[str]:
    kind = ELEMENTS.get(result.verdict)
    because = result.because or "no reason given"
    if result.verdict is Verdict.WARNING:
        yield f"{opening}>\n      <system-out>{_text(f'warning: {because}')}</system-out>\n    </testcase>\n"
    elif kind is None:
        yield f"{opening} />\n"
    elif kind == "skipped":
        yield f"{opening}>\n      <{kind} {_attributes({'message': because})} />\n    </testcase>\n"
    else:
        told = [
            because,
            f"measured: {view.value(result.measured, result.unit)}",
            f"expected: {view.value(result.expected, result.unit)}",
        ]
        if result.remedy and kind == "failure":
            told.append(f"what to do: {result.remedy}")
        attributes = _attributes({"message": because, "type": result.verdict.value})
        text = _text("\n".join(told))
        yield f"{opening}>\n      <{kind} {attributes}>{text}</{kind}>\n    </testcase>\n"


def _clean(text: str) -> str:
    return text if text.isascii() and text.isprintable() else NOT_XML.sub("?", text)


def _text(text: str) -> str:
    return _clean(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _escaped(text: str) -> str:
    """In an attribute white space is kept by its number: a reader makes spaces of it otherwise."""
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")
    if escaped.isprintable():
        return escaped
    return escaped.replace("\r", "&#13;").replace("\n", "&#10;").replace("\t", "&#09;")
