"""Judges mutants, one a line of JSON: `python -m tests.mutation.child TREE SECONDS`.

TREE is a copy of clustercheck's directory. Each mutant is judged in a process of its own, forked from this
one, which has imported all but clustercheck: first by the self-test of the checks that it affects, then by
golden verdicts of these, then by the unit tests of its module.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.mutation.affected import golden_of

PRELOADED = ("hypothesis", "jsonschema", "yaml", "click", "rich", "jinja2", "_pytest.assertion.rewrite")


def main(tree: Path, limit_s: float) -> None:
    """Read mutants from standard input, and say what found each: empty where nothing did."""
    for name in PRELOADED:
        importlib.import_module(name)
    for line in sys.stdin:
        asked = json.loads(line)
        path = tree / "clustercheck" / asked["file"]
        whole = path.read_bytes()
        path.write_text(asked["text"], encoding="utf-8")
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
            compiled.unlink()
        began = time.monotonic()
        found = found_by(tree, asked["checks"], asked["tests"], limit_s)
        path.write_bytes(whole)
        sys.stderr.write(f"{found or 'SURVIVED'}\t{asked['name']}\n")
        answer = {"name": asked["name"], "found_by": found, "seconds": round(time.monotonic() - began, 1)}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def found_by(tree: Path, checks: list[str], tests: list[str], limit_s: float) -> str:
    """What finds the change that the tree has, empty if nothing does; a change that hangs is found."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        os.close(reading)
        words = "an error"
        with contextlib.suppress(BaseException):
            words = _judge(tree, checks, tests)
        os.write(writing, words.encode()[:4000] or b"\0")
        os._exit(0)
    os.close(writing)
    ready, _, _ = select.select([reading], [], [], limit_s)
    words = os.read(reading, 4096).decode(errors="replace") if ready else "the time limit"
    os.close(reading)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "an error" if not words else words.strip("\0")


def _judge(tree: Path, modules: list[str], tests: list[str]) -> str:
    sys.dont_write_bytecode = True
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)
    sys.path.insert(0, str(tree))
    selftest = importlib.import_module("clustercheck.selftest")
    if not str(selftest.__file__).startswith(str(tree)):
        raise RuntimeError("another clustercheck was imported")
    checks = [check for module in modules for check in _checks_of(module)]
    for proof in selftest.prove(checks) if checks else selftest.prove():
        if not proof.good:
            return f"self-test: {proof.check}: {proof.fault}"
    golden = importlib.import_module("tests.support.golden_verdicts")
    for check in (check for module in golden_of(modules) for check in _checks_of(module)):
        if golden.text_of(check) != golden.file_of(check).read_text(encoding="utf-8"):
            return f"golden verdicts: {check.id}"
    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--timeout", "60"]
    if tests and pytest.main([*options, *tests]) != pytest.ExitCode.OK:
        return "unit tests"
    return ""


def _checks_of(module: str) -> tuple[Any, ...]:
    found = importlib.import_module(f"clustercheck.{module}")
    return found.CHECKS if hasattr(found, "CHECKS") else (found.CHECK,)


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
