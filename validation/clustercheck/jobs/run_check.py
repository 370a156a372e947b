"""Paddle's own ``paddle.utils.run_check()`` on each node, as a process that is not part of any group.

It spawns a process per GPU by itself, so the variables of our ranks are removed from its environment.
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
else:  # on a node they are single files, not a package
    nccl_tests = importlib.import_module(f"{__package__}.nccl_tests" if __package__ else "nccl_tests")
    peer_ports = importlib.import_module(f"{__package__}.peer_ports" if __package__ else "peer_ports")

PROGRAM = "import paddle; paddle.utils.run_check()"
RANK_VARIABLES = ("PADDLE_", "FLAGS_selected_gpus", "GLOO_", "NCCL_", "NVIDIA_TF32_OVERRIDE")


class NodeWorld(peer_ports.EndpointWorld):
    """A node by itself, without connections."""

    arguments: Mapping[str, Any] = MappingProxyType({})


def join(progress: Progress) -> NodeWorld:
    """No group."""
    return NodeWorld(progress)


def make_command() -> list[str]:
    """The command line: Python without the variables of ranks."""
    unset = sorted(name for name in os.environ if name.startswith(RANK_VARIABLES))
    return ["env", *(f"--unset={name}" for name in unset), sys.executable, "-c", PROGRAM]


def run(world: NodeWorld, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments: limit_each_s. ``check`` of the verdict is the process's end and its output."""
    world.arguments = arguments
    found = nccl_tests.run_program(world, "paddle.utils.run_check()", make_command(), Path("run-check"))
    return {"ok": True, "because": "", "check": found}
