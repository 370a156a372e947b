"""Judges mutants, one a line of JSON: `python -m tests.mutation.child TREE SECONDS`.

TREE is a copy of clustercheck's directory. This process imports it unchanged. Each mutant is judged in
processes forked from this one, which import the changed module anew and all that imports it: by the
self-test of the checks that it affects, by the golden verdicts of the nearest of them, by the unit tests of
its module, and by the golden verdicts of the others. The first difference ends it. Golden verdicts are
compared with what the unchanged checks say here, which `test_golden_verdicts.py` holds equal to the files.
SECONDS are of CPU time, for each of these ways; unit tests have five times as many: nearly all of them are
those of a module that everything uses.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.mutation.affected import golden_of, importers

PRELOADED = ("hypothesis", "jsonschema", "yaml", "click", "rich", "jinja2", "_pytest.assertion.rewrite")
OURS = ("clustercheck", "tests.support")
WAITS = 20  # times its CPU time: as long as others may keep a mutant from the processor
OF_UNIT_TESTS = 5  # times the CPU time of another way
TIME_LIMIT = "the time limit"
UNIT_TESTS = "unit tests"
# By check: the name of each of its cases, and what it says of it.
Told = dict[str, Sequence[tuple[Any, Sequence[Any]]]]


def main(tree: Path, limit_s: int) -> None:
    """Read mutants from standard input, and say what found each: empty where nothing did."""
    sys.path.insert(0, str(tree))
    for name in (*PRELOADED, "clustercheck.selftest", "tests.support.golden_verdicts"):
        importlib.import_module(name)
    told: Told = {}
    sound: list[Sequence[str]] = []
    for line in sys.stdin:
        asked = json.loads(line)
        began = time.monotonic()
        found = next(filter(None, _ways(tree, asked, told, limit_s)), "")
        if found == UNIT_TESTS and asked["tests"] not in sound:
            if found_by(lambda tests=asked["tests"]: _by_unit_tests(tests), OF_UNIT_TESTS * limit_s):
                sys.exit(f"the unit tests of {asked['file']} fail without a change: nothing was measured")
            sound.append(asked["tests"])
        sys.stderr.write(f"{found or 'SURVIVED'}\t{asked['name']}\n")
        answer = {"name": asked["name"], "found_by": found, "seconds": round(time.monotonic() - began, 1)}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def _ways(tree: Path, asked: Mapping[str, Any], told: Told, limit_s: int) -> Iterator[str]:
    """What finds the mutant by one way after the other, empty where that one does not."""
    again = imported_again(asked["file"])

    def changed(judge: Callable[[], str], most_s: int = limit_s) -> str:
        def judge_changed() -> str:
            _import_again(tree, again)
            return judge()

        with _changed(tree / "clustercheck" / asked["file"], asked["text"]):
            return found_by(judge_changed, most_s)

    def by_golden(module: str) -> str:
        for check in _checks_of([module]):
            if check.id not in told:
                told[check.id] = list(_told_by(check))
                _let_go()
        return changed(lambda: _by_golden(module, told))

    nearest, *others = golden_of(asked["checks"]) or [""]
    yield changed(lambda: _by_self_test(asked["checks"]))
    if nearest:
        yield by_golden(nearest)
    yield changed(lambda: _by_unit_tests(asked["tests"]), OF_UNIT_TESTS * limit_s)
    yield from map(by_golden, others)


def _told_by(check: Any) -> Iterator[tuple[Any, Sequence[Any]]]:
    """Each case without its evidence; results that are as in the first case are the same objects."""
    healthy: dict[Any, Any] = {}
    for case, found in importlib.import_module("tests.support.golden_verdicts").judged(check):
        healthy = healthy or {one.subject: one for one in found}
        known = [(one, healthy.get(one.subject)) for one in found]
        yield replace(case, evidence=None), [old if one == old else one for one, old in known]


def _let_go() -> None:
    """What checks made of evidence is made anew by each mutant; what was read of it is kept."""
    for one in gc.get_objects():
        if type(one).__name__ == "Evidence":
            vars(one).pop("_kept", None)


@contextlib.contextmanager
def _changed(path: Path, text: str) -> Iterator[None]:
    whole = path.read_bytes()
    path.write_text(text, encoding="utf-8")
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
        compiled.unlink()
    yield
    path.write_bytes(whole)


def found_by(judge: Callable[[], str], limit_s: int) -> str:
    """What finds the change, empty if nothing does; in a process of its own. A change that hangs is found."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        os.close(reading)
        resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s + 5))
        words = "an error"
        with contextlib.suppress(BaseException):
            words = judge()
        os.write(writing, words.encode()[:4000] or b"\0")
        os._exit(0)
    os.close(writing)
    ready, _, _ = select.select([reading], [], [], WAITS * limit_s)
    words = os.read(reading, 4096).decode(errors="replace") if ready else TIME_LIMIT
    os.close(reading)
    if ready:
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU:
            words = TIME_LIMIT
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    if not ready:
        os.waitpid(child, 0)
    return "an error" if not words else words.strip("\0")


def _import_again(tree: Path, names: Sequence[str]) -> None:
    sys.dont_write_bytecode = True
    _be_silent()
    for name in names:
        above, _, last = name.rpartition(".")
        sys.modules.pop(name, None)
        if above in sys.modules:
            vars(sys.modules[above]).pop(last, None)
    if not str(importlib.import_module("clustercheck.selftest").__file__).startswith(str(tree)):
        raise RuntimeError("another clustercheck was imported")


def _by_self_test(modules: Sequence[str]) -> str:
    selftest = importlib.import_module("clustercheck.selftest")
    for check in _checks_of(modules) or importlib.import_module("clustercheck.checks.all").CHECKS:
        for proof in selftest.prove([check]):
            if not proof.good:
                return f"self-test: {proof.check}: {proof.fault}"
    return ""


def _by_golden(module: str, told: Told) -> str:
    found = (check.id for check in _checks_of([module]) if _says_other(check, told[check.id]))
    return next((f"golden verdicts: {name}" for name in found), "")


def _says_other(check: Any, told: Sequence[tuple[Any, Sequence[Any]]]) -> bool:
    """Whether it says of any case what the unchanged one does not, or fails itself."""
    golden = importlib.import_module("tests.support.golden_verdicts")
    before = iter(told)
    try:
        for case, found in golden.judged(check):
            known, results = next(before, (None, ()))
            if known is None or case.name != known.name:
                return True
            if found != results and golden.whole_text(case, found) != golden.whole_text(known, results):
                return True
    except AssertionError:
        return True
    return next(before, None) is not None


def imported_again(file: str) -> list[str]:
    """The changed module and all that imports it; where imports do not tell that, all modules of ours."""
    ours = [name for name in sys.modules if name.startswith(OURS)]
    if not file.endswith(".py"):
        return ours
    changed = f"clustercheck.{file.removesuffix('.py').replace('/', '.')}"
    by_name = changed.rpartition(".")[0] == "clustercheck.jobs"  # jobs import each other by what is asked
    names = [one for one in ours if one.startswith("clustercheck.jobs.")] if by_name else [changed]
    return sorted(importers(names, ours))


def _by_unit_tests(tests: Sequence[str]) -> str:
    _be_silent()
    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--timeout", "0"]
    return UNIT_TESTS if tests and pytest.main([*options, *tests]) != pytest.ExitCode.OK else ""


def _be_silent() -> None:
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)


def _checks_of(modules: Sequence[str]) -> list[Any]:
    found = [importlib.import_module(f"clustercheck.{module}") for module in modules]
    return [check for one in found for check in (one.CHECKS if hasattr(one, "CHECKS") else (one.CHECK,))]


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
