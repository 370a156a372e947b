"""What the tests of settings share: cluster directories of given files, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path

from clusterctl.cluster import settings
from clusterctl.cluster.directory import ClusterDirectory

HOSTS = """\
all:
  children:
    gpu_nodes:
      hosts:
        gpu01:
          ansible_host: 10.0.0.1
    registry:
      hosts:
        registry01:
          ansible_host: 10.0.0.9
"""


def cluster(tmp_path: Path, **files: str | bytes) -> ClusterDirectory:
    """A cluster directory; file names are given with __ for / and without .yml."""
    for name, content in {"hosts": HOSTS, **files}.items():
        path = tmp_path / (name.replace("__", "/") + ".yml")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return ClusterDirectory(tmp_path)


def found(directory: ClusterDirectory) -> list[tuple[str, int, str]]:
    """FILE, line, and the sentence with its hint."""
    problems = settings.check(directory)
    return [(str(p.file.relative_to(directory.root)), p.line, f"{p.what} | {p.hint}") for p in problems]


def only(directory: ClusterDirectory) -> tuple[str, int, str]:
    problems = found(directory)
    assert len(problems) == 1, problems
    return problems[0]
