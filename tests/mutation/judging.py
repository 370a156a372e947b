"""Has mutants judged in processes of their own, as many at once as there are processors."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

from tests.mutation.affected import PACKAGE, checks_of
from tests.mutation.mutants import Mutant
from tests.support.tree import ROOT

UNIT_TESTS = ROOT / "tests" / "unit" / "clustercheck"
# Isolation as a whole: most of its modules have no test of their own.
SEARCHES = ("tests/unit/clustercheck/locate/test_golden_searches.py", "tests/locate/test_search.py")
ENTERED_TWICE = "tests/unit/clustercheck/expect/test_limits_twice.py"
NOT_WHOLE = ("test_isolation.py",)  # of `running`, where most tests are of whole validations
SLOW = (
    "test_golden_verdicts.py",
    "test_selftest.py",
    "test_scale.py",
    "test_in_containers.py",
    "test_on_a_node.py",
)


def judge(chosen: Sequence[Mutant], directory: Path, each_s: int = 120) -> dict[str, str]:
    """What found each mutant, by its name: empty where nothing did. ``each_s`` of CPU time are enough.

    Raises AssertionError where unchanged code is found, too.
    """
    workers = max(1, min(len(os.sched_getaffinity(0)), len(chosen)))
    files = sorted(
        {one.file for one in chosen}
    )  # those of one module by one worker, which judges its checks once
    parts = [
        [one for one in chosen if files.index(one.file) % workers == number] for number in range(workers)
    ]
    with ThreadPoolExecutor(workers) as pool:
        judged = pool.map(
            lambda number: _judge_some(parts[number], directory / str(number), each_s), range(workers)
        )
        return {name: found for part in judged for name, found in part.items()}


def _judge_some(chosen: Sequence[Mutant], directory: Path, each_s: int) -> Mapping[str, str]:
    shutil.copytree(PACKAGE, directory / "clustercheck")
    asked = [
        {
            "name": one.name,
            "file": one.file,
            "text": one.text,
            "checks": checks_of(one.file),
            "tests": [*unit_tests_of(one.file), *([ENTERED_TWICE] if one.kind == "limit" else [])],
        }
        for one in chosen
    ]
    done = subprocess.run(
        [sys.executable, "-m", "tests.mutation.child", str(directory), str(each_s)],
        input="".join(json.dumps(one) + "\n" for one in asked),
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, "nothing was measured"
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(chosen)
    return {one["name"]: one["found_by"] for one in answers}


@cache
def _texts() -> Mapping[str, str]:
    return {
        str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
        for path in sorted(UNIT_TESTS.rglob("test_*.py"))
        if path.name not in SLOW and (path.parent.name != "running" or path.name in NOT_WHOLE)
    }


@cache
def unit_tests_of(file: str) -> list[str]:
    """The unit tests that name the module, or a check of it, or use one that does; of data none."""
    path = PACKAGE / file
    if path.suffix != ".py":
        return []
    ids = re.findall(r'\bid="([a-z0-9-]+)"', path.read_text(encoding="utf-8"))
    names = re.compile(
        "|".join([rf"\b{path.parent.name}(?:\.| import .*\b){path.stem}\b", *(f'"{one}"' for one in ids)])
    )
    naming = [name for name, text in _texts().items() if names.search(text)]
    modules = [f"from {name.removesuffix('.py').replace('/', '.')} import" for name in naming]
    using = [name for name, text in _texts().items() if any(module in text for module in modules)]
    golden, *searches = SEARCHES if path.parent.name == "locate" else ("",)
    return list(filter(None, dict.fromkeys([golden, *naming, *using, *searches])))
