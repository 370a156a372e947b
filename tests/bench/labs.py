"""A lab of its own for each size that is measured."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROGRAM = Path(sys.executable).with_name("clusterctl")
# Set to anything, the labs stay up, and the next run measures no first apply.
KEEP_VARIABLE = "CLUSTERCTL_KEEP_TEST_LAB"
LIMIT_S = 1500


@dataclass(frozen=True)
class BenchLab:
    """A lab that is up."""

    directory: Path

    @property
    def cluster(self) -> Path:
        """Its cluster directory."""
        return self.directory / "cluster"

    def ssh(self, node: str, command: str) -> str:
        """What a command prints on a node, as its operator."""
        return self.lab("ssh", node, command)

    def lab(self, verb: str, *arguments: str) -> str:
        """``clusterctl lab VERB``. Raises RuntimeError with its words where it fails."""
        done = subprocess.run(
            [str(PROGRAM), "lab", verb, "--dir", str(self.directory), *arguments], capture_output=True,
            text=True, stdin=subprocess.DEVNULL, timeout=LIMIT_S, env={**os.environ, "CI": "1"}, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise RuntimeError(f"lab {verb} ended with {done.returncode}: {done.stderr[-1500:]}")
        return done.stdout


@contextlib.contextmanager
def fresh_lab(directory: Path, nodes: int) -> Iterator[BenchLab]:
    """A lab of bare nodes, taken down at the end and where an earlier run left one."""
    lab, keep = BenchLab(directory), KEEP_VARIABLE in os.environ
    if not keep:
        lab.lab("down")
    try:
        lab.lab("up", "--nodes", str(nodes))
        yield lab
    finally:
        if not keep:
            lab.lab("down")
