"""`dcgmi diag -j`: what DCGM's own diagnostic found, in the forms of DCGM 3 and DCGM 4."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from clustercheck.parse.document import member, read_json
from clustercheck.parse.python39 import StrEnum
from clustercheck.parse.reading import CannotReadError

ROOTS = {"DCGM GPU Diagnostic": 3, "DCGM Diagnostic": 4}
_WHAT = "the output of dcgmi diag -j"
MAX_TESTS = 1000  # of one run: its longest has some 30, on GPUs
# A name that is none of these may say what we would have to know.
_OF_A_RESULT = {
    "entity_group", "entity_group_id", "entity_id", "gpu_id", "gpu_ids", "cpu_id", "status", "warnings",
    "info", "aux_data",
}  # fmt: skip


class DiagStatus(StrEnum):
    """DCGM's word on one test."""

    PASS = "pass"  # noqa: S105 - no password
    FAIL = "fail"
    WARN = "warn"
    SKIP = "skip"
    NOT_RUN = "not run"


_WORDS = {
    "pass": DiagStatus.PASS, "fail": DiagStatus.FAIL, "warn": DiagStatus.WARN, "warning": DiagStatus.WARN,
    "skip": DiagStatus.SKIP,
    "skipped": DiagStatus.SKIP, "not run": DiagStatus.NOT_RUN,
}  # fmt: skip


@dataclass(frozen=True)
class DiagResult:
    """One test on one GPU, or on the node (``gpu`` is None, and ``entity`` says on what part of it).

    A test that passed and yet warns is a warning.
    """

    test: str
    category: str
    gpu: int | None
    said: DiagStatus
    messages: tuple[str, ...] = ()
    entity: str = ""


@dataclass(frozen=True)
class Diag:
    """One run. Every test that any GPU had has a result for each GPU."""

    version: str
    driver_version: str
    results: tuple[DiagResult, ...]

    def of_gpu(self, gpu: int) -> tuple[DiagResult, ...]:
        """The results of one GPU."""
        return tuple(result for result in self.results if result.gpu == gpu)


def parse_dcgm(text: str, gpus: int) -> Diag:
    """Read one run over ``gpus`` GPUs.

    Raises CannotReadError where it is not whole, of an unknown form, ended with an error of DCGM's own, or
    uses a word for a result that is not known.
    """
    document = read_json(text[max(0, text.find("{")) :], _WHAT)
    roots = [name for name in ROOTS if isinstance(document, Mapping) and name in document]
    if len(roots) != 1:
        raise CannotReadError(f"{_WHAT} has neither DCGM 3's nor DCGM 4's form")
    form = ROOTS[roots[0]]
    root = member(document, roots[0], dict, _WHAT)
    for answer in (root, document):
        if error := answer.get("runtime_error"):
            raise CannotReadError(f"DCGM could not run its diagnostic: {str(error)[:200]}")
    results = tuple(
        result
        for category in member(root, "test_categories", list, _WHAT)
        for test in member(category, "tests", list, _WHAT)
        if test is not None  # DCGM 3.0 leaves holes
        for result in _of_test(test, member(category, "category", str, _WHAT), form)
    )
    if not any(result.said is not DiagStatus.NOT_RUN for result in results):
        raise CannotReadError(f"{_WHAT} has no result")
    about = document if form == 3 else member(document, "metadata", dict, _WHAT)
    return Diag(
        version=member(about, "version", str, _WHAT),
        driver_version=str(about.get("Driver Version Detected", "")),
        results=_complete(results, gpus),
    )


def _of_test(test: Any, category: str, form: int) -> Iterator[DiagResult]:
    name = member(test, "name", str, _WHAT)
    entries = member(test, "results", list, _WHAT) if "results" in test else []
    summary = member(test, "test_summary", dict, _WHAT) if "test_summary" in test else None
    found = [_of_entry(entry, name, category, form) for entry in entries]
    if form == 4:
        overall = _said(summary) if summary is not None else DiagStatus.NOT_RUN
        if (summary is None) != (not entries) and overall in (DiagStatus.PASS, DiagStatus.NOT_RUN):
            raise CannotReadError(f"{_WHAT} has a summary without results for {name[:40]!r}, or the reverse")
        if overall is DiagStatus.PASS and any(result.said is DiagStatus.FAIL for result in found):
            raise CannotReadError(f"{_WHAT} says that {name[:40]!r} passed, and that it failed")
        if summary is not None and not any(result.said is overall for result in found):
            # What no GPU is blamed for: the node's.
            found.append(DiagResult(name, category, None, _weighed(overall, summary), _messages(summary)))
    yield from found or [DiagResult(name, category, None, DiagStatus.NOT_RUN)]


def _of_entry(entry: Any, name: str, category: str, form: int) -> DiagResult:
    output, messages = _said(entry), _messages(entry)
    if strange := set(entry) - _OF_A_RESULT:
        raise CannotReadError(f"{_WHAT} says something unknown of {name[:40]!r}: {sorted(strange)[0][:40]!r}")
    gpu, entity = None, ""
    if form == 4:
        entity = member(entry, "entity_group", str, _WHAT)
        number = member(entry, "entity_id", int, _WHAT)
        gpu = number if entity == "GPU" else None
        entity = "" if gpu is not None else f"{entity} {number}"
    elif category != "Deployment":  # of the node's tests, it names but the last GPU
        if "gpu_id" in entry:
            gpu = _number(entry["gpu_id"])
        elif str(entry.get("gpu_ids")).isdecimal():  # as some releases name the one GPU of a result
            gpu = _number(entry["gpu_ids"])
    return DiagResult(name, category, gpu, _weighed(output, entry), messages, entity)


def _said(entry: Any) -> DiagStatus:
    word = member(entry, "status", str, _WHAT)
    if word.lower() not in _WORDS:
        raise CannotReadError(f"{_WHAT} says {word[:40]!r} of a test, which is not a known word")
    return _WORDS[word.lower()]


def _weighed(answer: DiagStatus, entry: Mapping[str, Any]) -> DiagStatus:
    return DiagStatus.WARN if answer is DiagStatus.PASS and entry.get("warnings") else answer


def _messages(entry: Mapping[str, Any]) -> tuple[str, ...]:
    """Warnings first: DCGM writes them as a text, as texts, or as objects under either of two names."""
    found = []
    for name in ("warnings", "info"):
        listed = entry.get(name) or []
        for item in listed if isinstance(listed, list) else [listed]:
            text = (item.get("warning") or item.get("warnings")) if isinstance(item, Mapping) else item
            if item is None:
                continue
            if not isinstance(text, str):
                raise CannotReadError(f"{_WHAT} has a message that is not a text")
            found.append(text.strip()[:500])
    return tuple(found)


def _number(answer: Any) -> int:
    if isinstance(answer, bool) or not str(answer).isdecimal() or len(str(answer)) > 4:
        raise CannotReadError(f"{_WHAT} names the GPU {str(answer)[:20]!r}")
    return int(answer)


def _complete(results: tuple[DiagResult, ...], gpus: int) -> tuple[DiagResult, ...]:
    """With "not run" for each GPU that a test passed over in silence."""
    keys = {(result.test, result.category, result.gpu, result.entity) for result in results}
    if len(keys) != len(results):
        raise CannotReadError(f"{_WHAT} says twice how one test ended")
    if beyond := [result.gpu for result in results if result.gpu is not None and result.gpu >= gpus]:
        raise CannotReadError(f"{_WHAT} names GPU {beyond[0]} if there are {gpus}")
    tests = dict.fromkeys((result.test, result.category) for result in results if result.gpu is not None)
    if len(tests) > MAX_TESTS:
        raise CannotReadError(f"{_WHAT} has {len(tests)} tests, at most {MAX_TESTS} are read")
    silent = [
        DiagResult(test, category, gpu, DiagStatus.NOT_RUN, ("DCGM says nothing of this GPU",))
        for test, category in tests
        for gpu in range(gpus)
        if (test, category, gpu, "") not in keys
    ]
    return (*results, *silent)
