"""A cluster directory with two GPU nodes and validations that ended, and commands called on it."""

from __future__ import annotations

from pathlib import Path

from clustercheck.model import Coverage, Culprit
from clustercheck.result.document import Document
from clusterctl import main
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.report import files
from clusterctl.runs.store import RunStore

HOSTS = """
all:
  children:
    gpu_nodes:
      hosts:
        gpu01: {ansible_host: 192.0.2.11}
        gpu02: {ansible_host: 192.0.2.12}
"""


def result(run: str, verdict: str = "pass") -> Document:
    """The result of a validation of two nodes."""
    failed = int(verdict == "fail")
    return Document(
        run=run,
        started="2026-11-20T19:57:00Z",
        finished="2026-11-20T19:58:12Z",
        cluster="mysite",
        suite="quick",
        coverage=Coverage(2, 2 - failed, failed, 0, 0),
        culprits=(Culprit("node", "gpu02", "it crashed", "look"),) if failed else (),
        results=(),
        environment={},
    )


def cluster_directory(directory: Path) -> ClusterDirectory:
    """A cluster directory there."""
    (directory / "hosts.yml").write_text(HOSTS)
    return ClusterDirectory(directory)


def call(site: ClusterDirectory, *words: str) -> int:
    """The exit code of a command there."""
    return main.run(["-C", str(site.root), *words])


def validated(site: ClusterDirectory, verdict: str = "pass") -> str:
    """The id of a validation that ended so, with its reports."""
    store = RunStore(site)
    run = store.create("validate", ["--suite", "quick"])
    files.write_result(run, result(run.id, verdict))
    assert files.write_reports(run, result(run.id, verdict)) == []
    store.finish(run, 0 if verdict == "pass" else 1, {"verdict": verdict, "culprits": ["gpu02"]})
    return run.id
