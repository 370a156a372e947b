"""Paddle's own ``paddle.utils.run_check()`` on each node, as a process that is not part of any group.

It spawns a process per GPU by itself, so the variables of our ranks are removed from its environment. Where
GPUs are divided by MIG, it runs again inside one instance of each profile.
"""

from __future__ import annotations

import importlib
import os
import re
import subprocess
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
MIG_DEVICE = re.compile(r"\s+MIG (\S+)\s+Device\s+\d+: \(UUID: (MIG-[^)\s]+)\)")
LIST_LIMIT_S = 60
RANK_VARIABLES = ("PADDLE_", "FLAGS_selected_gpus", "GLOO_", "NCCL_", "NVIDIA_TF32_OVERRIDE")


class NodeWorld(peer_ports.EndpointWorld):
    """A node by itself, without connections."""

    arguments: Mapping[str, Any] = MappingProxyType({})

    def beat(self) -> None:
        """Show that this rank still waits."""
        self._progress.beat()


def join(progress: Progress) -> NodeWorld:
    """No group."""
    return NodeWorld(progress)


def make_command() -> list[str]:
    """The command line: Python without the variables of ranks."""
    unset = sorted(name for name in os.environ if name.startswith(RANK_VARIABLES))
    return ["env", *(f"--unset={name}" for name in unset), sys.executable, "-c", PROGRAM]


def list_instances() -> dict[str, str]:
    """The first MIG device of each profile that the container sees, by profile; none without nvidia-smi."""
    try:
        listed = subprocess.run(
            ["nvidia-smi", "-L"], stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            timeout=LIST_LIMIT_S, check=False,
        ).stdout  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return {}
    found: dict[str, str] = {}
    for line in listed.splitlines():
        if match := MIG_DEVICE.fullmatch(line.rstrip()):
            found.setdefault(match[1], match[2])
    return found


def run(world: NodeWorld, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments: limit_each_s, which runs inside MIG instances share.

    ``check`` of the verdict is the process's end and its output, ``instances`` those inside MIG instances.
    """
    devices = list_instances()
    limit_s = float(arguments["limit_each_s"]) / (1 + len(devices))
    world.arguments = {**arguments, "limit_each_s": limit_s}
    phase, command = "paddle.utils.run_check()", make_command()
    world.set_phase(phase)
    found = nccl_tests.run_program(world, command, Path("run-check"))
    instances = []
    for profile, device in devices.items():
        own = {"CUDA_VISIBLE_DEVICES": device}
        world.set_phase(f"{phase} inside MIG {profile}")
        ended = nccl_tests.run_program(world, command, Path(f"run-check-{profile}"), environment=own)
        instances.append({"profile": profile, "device": device, **ended})
    return {"ok": True, "because": "", "check": found, "instances": instances}
