"""Paddle's own ``paddle.utils.run_check()`` on each node: once, as a plain process that is part of no group.

It spawns a process a GPU by itself, so what makes a process a rank of ours is taken out of its environment.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clustercheck.jobs import nccl_tests, peer_ports
    from clustercheck.jobs.rank import Progress
else:  # shipped to a node they lie side by side, and are no package
    nccl_tests = importlib.import_module(f"{__package__}.nccl_tests" if __package__ else "nccl_tests")
    peer_ports = importlib.import_module(f"{__package__}.peer_ports" if __package__ else "peer_ports")

PROGRAM = "import paddle; paddle.utils.run_check()"
OF_RANKS = ("PADDLE_", "FLAGS_selected_gpus", "GLOO_", "NCCL_", "NVIDIA_TF32_OVERRIDE")


class World(peer_ports.World):
    """A node by itself: nobody is met."""

    arguments: Mapping[str, Any] = MappingProxyType({})


def join(progress: Progress) -> World:
    """No group."""
    return World(progress)


def words() -> list[str]:
    """The command line: Python, without what this environment says of ranks."""
    gone = sorted(name for name in os.environ if name.startswith(OF_RANKS))
    return ["env", *(f"--unset={name}" for name in gone), sys.executable, "-c", PROGRAM]


def run(world: World, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments: limit_each_s. ``check`` of the verdict is how the process ended and what it printed."""
    world.arguments = arguments
    said = nccl_tests.measured(world, "paddle.utils.run_check()", words(), Path("run-check"))
    return {"ok": True, "because": "", "check": said}
