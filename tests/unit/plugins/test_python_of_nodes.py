"""What runs on nodes runs with the Pythons that nodes have: 3.9 came with RHEL 9, 3.10 with Ubuntu 22.04."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from concurrent import futures
from pathlib import Path

import ansible
import pytest
from ansible_collections.clusterctl.cluster.plugins.module_utils import preflight_facts
from tests.support.pythons import interpreter

ON_NODES = (
    "plugins/modules", "plugins/module_utils", "plugins/probe", "validation/clustercheck/probe",
    "validation/clustercheck/launch/on_node.py",
)  # fmt: skip

COLLECTION = "ansible_collections/clusterctl/cluster"
# On the node: each module is imported, with nothing but the standard library and what Ansible sends along.
PROGRAM = """
import importlib, json, sys
sys.path[:0] = sys.argv[1:3]
for name in sys.argv[3:]:
    importlib.import_module(name)
print(json.dumps(sys.version_info[:2]))
"""


def minimum(*paths: str | Path) -> subprocess.CompletedProcess[str]:
    vermin = str(Path(sys.executable).with_name("vermin"))
    return subprocess.run(
        [vermin, "--target=3.9-", "--no-tips", "-vvv", *map(str, paths)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("path", ON_NODES)
def test_nothing_newer_than_python_3_9_is_used(path: str, repository: Path) -> None:
    done = minimum(repository / path)
    assert done.returncode == 0, [line for line in done.stdout.splitlines() if "3.1" in line]


def test_every_module_is_imported_by_python_3_9_with_nothing_installed(
    repository: Path, tmp_path: Path
) -> None:
    python = interpreter("3.9")
    if python is None:  # script/test lists it; what vermin says of the sources holds everywhere
        pytest.skip("there is no Python 3.9 here")
    packages = [COLLECTION, f"{COLLECTION}/plugins"]
    for package in ("modules", "module_utils"):
        packages.append(f"{COLLECTION}/plugins/{package}")
        shutil.copytree(repository / "plugins" / package, tmp_path / packages[-1])
    shutil.copytree(Path(ansible.__file__).parent / "module_utils", tmp_path / "ansible/module_utils")
    for package in ("ansible", "ansible_collections", "ansible_collections/clusterctl", *packages):
        (tmp_path / package / "__init__.py").touch()
    (tmp_path / "ansible/release.py").write_text("__version__ = 'x'\n")
    sources = sorted(tmp_path.glob(f"{COLLECTION}/plugins/*/[a-z]*.py"))
    names = [".".join(path.relative_to(tmp_path).with_suffix("").parts) for path in sources]
    names += ["clustercheck.probe.program", "clustercheck.launch.on_node"]
    done = subprocess.run(
        [python, "-I", "-S", "-B", "-c", PROGRAM, tmp_path, repository / "validation", *names],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout) == [3, 9]
    assert len(names) > 90


def test_what_is_newer_would_be_found(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text("print(list(zip([1], [2], strict=True)))\n")
    assert "Minimum required versions: 3.10" in minimum(tmp_path).stdout
    assert minimum(tmp_path).returncode == 1


def test_a_resolver_that_is_slow_is_a_finding_and_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before Python 3.11 a future's TimeoutError is none of the builtin's."""

    class OldTimeoutError(Exception):
        pass

    def slow(self: object, timeout: float | None = None) -> bool:
        raise OldTimeoutError

    monkeypatch.setattr(futures, "TimeoutError", OldTimeoutError)
    monkeypatch.setattr(futures.Future, "result", slow)
    assert preflight_facts.unresolved(["localhost"]) == ["localhost"]
