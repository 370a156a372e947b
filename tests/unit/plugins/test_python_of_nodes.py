"""What runs on nodes runs with the Pythons that nodes have: 3.9 came with RHEL 9, 3.10 with Ubuntu 22.04."""

from __future__ import annotations

import subprocess
import sys
from concurrent import futures
from pathlib import Path

import pytest
from ansible_collections.clusterctl.cluster.plugins.module_utils import preflight_facts

ON_NODES = (
    "plugins/modules", "plugins/module_utils", "plugins/probe", "validation/clustercheck/probe",
    "validation/clustercheck/launch/on_node.py",
)  # fmt: skip


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
