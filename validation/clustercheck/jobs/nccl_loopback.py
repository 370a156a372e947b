"""An all-reduce of nccl-tests among the GPUs of each node that leaves and enters it by its RDMA adapters.

Peer access, shared memory and NVLink's multicast are off, so NCCL has nothing but the network to join the
GPUs by. One process has all GPUs, as where nccl-tests run within a node. Nodes measure at the same time: what
they send comes back from the adapter or from the first switch.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clustercheck.jobs import nccl_tests
else:  # on a node they are single files, not a package
    nccl_tests = importlib.import_module(f"{__package__}.nccl_tests" if __package__ else "nccl_tests")

PROGRAM = "all_reduce_perf"
# [NCCL, environment variables]
ENVIRONMENT = {
    "NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1", "NCCL_NVLS_ENABLE": "0",
    "NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,ENV,NET,GRAPH",
}  # fmt: skip

join = nccl_tests.join


def run(world: nccl_tests.MeetingWorld, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments: least and most (bytes), iterations, warmup, limit_each_s, limit_s.

    ``without`` is the reason why nothing ran on this node; ``nccl_log`` is what NCCL said of its transports.
    """
    verdict = {"ok": True, "because": "", "without": nccl_tests.explain_missing(), "gpus": 0}
    if verdict["without"]:
        return verdict
    gpus = nccl_tests.count_gpus()
    if gpus < 2:
        return {**verdict, "gpus": gpus}
    file, log = Path("loopback.json").absolute(), Path("loopback.nccl").absolute()
    words = nccl_tests.make_command(PROGRAM, arguments, gpus, file)
    world.set_phase(f"{PROGRAM} on {gpus} GPUs over the loopback of the RDMA adapters")
    environment = {**ENVIRONMENT, "NCCL_DEBUG_FILE": str(log)}
    found = nccl_tests.run_program(world, words, file, environment=environment)
    return {**verdict, "gpus": gpus, "run": found, "nccl_log": nccl_tests.read_output(log)}
