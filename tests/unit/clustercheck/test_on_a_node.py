"""What judges the probe's answers runs on a node, too: the standard library of Python 3.9 is all it needs."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest
from compile_tables import compile_tables
from tests.support.pythons import interpreter

from clustercheck.checks.all import CHECKS
from clustercheck.parse.reading import iso_time
from clustercheck.selftest import prove
from clustercheck.tables import read_table

PACKAGE = "clustercheck"
OLDEST, OURS = "3.9", f"{sys.version_info.major}.{sys.version_info.minor}"
PROBE_ONLY = tuple(check for check in CHECKS if not check.job)
# On the node: every check that needs nothing but the probe, over healthy evidence and each of its faults.
PROGRAM = """
import json, sys
sys.path.insert(0, sys.argv[1])
import clustercheck.probe.program
from clustercheck.checks.all import CHECKS
from clustercheck.selftest import prove
proofs = prove([check for check in CHECKS if not check.job])
proofs = [[p.check, p.fault, p.got and p.got.value, p.because] for p in proofs]
print(json.dumps([sys.version_info[:2], proofs]))
"""


def needed(repository: Path) -> dict[str, Path]:
    """Modules of the probe and of checks by name, with all of ours that they import, directly or not."""
    room = repository / "validation"
    found: dict[str, Path] = {}
    modules = [path for name in ("probe", "checks") for path in (room / PACKAGE / name).glob("*.py")]
    left = [f"{PACKAGE}.selftest", *(f"{PACKAGE}.{path.parent.name}.{path.stem}" for path in modules)]
    while left:
        name = left.pop()
        place = room / Path(*name.split("."))
        path = next((p for p in (place.with_suffix(".py"), place / "__init__.py") if p.is_file()), None)
        if name in found or path is None:
            continue
        found[name] = path
        left.append(name.rpartition(".")[0])
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PACKAGE):
                left += [str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)]
    return found


def test_probe_and_checks_need_nothing_but_the_standard_library(repository: Path) -> None:
    foreign = {}
    for name, path in needed(repository).items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            imported = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            imported += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            strange = {i.partition(".")[0] for i in imported} - sys.stdlib_module_names - {PACKAGE}
            foreign |= {name: strange} if strange else {}
    assert foreign == {}


def test_probe_and_checks_use_nothing_later_than_python_3_9(repository: Path) -> None:
    # python39 is where the later names are distinguished by version.
    paths = [str(path) for name, path in needed(repository).items() if not name.endswith(".python39")]
    vermin = str(Path(sys.executable).with_name("vermin"))
    done = subprocess.run(
        [vermin, "--target=3.9-", "--no-tips", "-vvv", *paths], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, "\n".join(line for line in done.stdout.splitlines() if "3.1" in line)


def test_compiled_tables_say_what_their_sources_say(repository: Path, tmp_path: Path) -> None:
    room = repository / "validation" / PACKAGE
    tables = compile_tables(room, tmp_path)
    assert len(tables) > 10
    for path, place in tables.items():
        assert read_table(path.with_suffix("")) == read_table((room / place).with_suffix("")), place


@pytest.mark.parametrize("version", [OLDEST, OURS])
def test_a_python_with_nothing_installed_comes_to_the_same_verdicts(
    version: str, repository: Path, tmp_path: Path
) -> None:
    python = Path(sys.executable) if version == OURS else interpreter(version)
    if python is None:  # script/test lists it; what vermin says of the sources holds everywhere
        pytest.skip(f"there is no Python {version} here")
    room = repository / "validation"
    for path in needed(repository).values():
        target = tmp_path / path.relative_to(room)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    compile_tables(room / PACKAGE, tmp_path / PACKAGE)
    done = subprocess.run(
        [python, "-I", "-S", "-c", PROGRAM, tmp_path],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    ran, proofs = json.loads(done.stdout)
    assert ".".join(map(str, ran)) == version
    here = [[p.check, p.fault, p.got and p.got.value, p.because] for p in prove(PROBE_ONLY)]
    assert proofs == here and len(here) > 300


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("2026-11-21T10:00:00,123456+00:00", "2026-11-21T10:00:00.123456+00:00"),
        ("2026-11-21T10:00:00.5Z", "2026-11-21T10:00:00.500000+00:00"),
        ("2026-11-21T10:00:00+0100", "2026-11-21T10:00:00+01:00"),
        ("2026-11-21 10:00:00", "2026-11-21T10:00:00"),
    ],
)
def test_a_time_is_read_as_its_program_prints_it(text: str, means: str) -> None:
    assert iso_time(text).isoformat() == means


@pytest.mark.parametrize("text", ["", "yesterday", "[12.3]", "2026-13-01T00:00:00", "٢٠٢٦-11-21T10:00:00"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"time|month"):
        iso_time(text)
