"""What a container of the training image sees."""

from __future__ import annotations

import os
import time
from typing import Any

from clustercheck.probe.programs import command


def container_gpus(options: dict[str, Any], limit_s: float) -> dict[str, Any]:
    """Which GPUs a container of the training image sees."""
    image = options.get("image")
    if not image:
        return {"skipped": "no training image was named"}
    name = f"clusterctl-probe-{os.getpid()}-{int(time.time())}"
    found = command(["docker", "image", "inspect", "--format", "{{.Id}}", image], limit_s)
    if found["rc"] != 0:
        why = "the training image is not on this node"
        if found["missing"] or found["timed_out"]:
            why = "docker is not installed" if found["missing"] else "docker did not answer"
        return dict(found, skipped=why)
    ran = command(
        [
            "docker",
            "run",
            "--rm",
            "--name",
            name,
            "--network",
            "none",
            "--label",
            "clusterctl.probe=1",
            *options.get("gpu_arguments", ["--gpus", "all"]),
            "--entrypoint",
            "nvidia-smi",
            image,
            "-L",
        ],
        limit_s * 2,
    )
    if ran["timed_out"]:
        command(["docker", "rm", "--force", name], 10.0)
    return ran
