"""What a container of the training image sees."""

from __future__ import annotations

import os
import re
import time
from typing import Any

from clustercheck.probe.programs import command, how_failed, listing

NOBODY = "65534:65534"


def container_gpus(options: dict[str, Any], limit_s: float, user: str = "0:0") -> dict[str, Any]:
    """Which GPUs a container of the training image sees, as that user of it."""
    image = options.get("image")
    if not image:
        return {"skipped": "no training image was named"}
    name = f"clusterctl-probe-{os.getpid()}-{int(time.time())}-{user.partition(':')[0]}"
    found = command(["docker", "image", "inspect", "--format", "{{.Id}}", image], limit_s)
    if found["rc"] != 0:
        return dict(found, skipped=without_image(found))
    ran = command(
        [
            "docker",
            "run",
            "--rm",
            "--name",
            name,
            "--network",
            "none",
            "--user",
            user,
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


def without_image(found: dict[str, Any]) -> str:
    """Why `docker image inspect` named no image."""
    if found["missing"]:
        return "docker is not installed"
    if "no such image" in found["stderr"].lower():
        return "the training image is not on this node"
    return "docker " + how_failed(found)


def device_links(root: str = "") -> list[dict[str, Any]]:
    """NVIDIA's device files, and whether /dev/char has the link by number that runc may look for."""
    found = []
    for name in listing(root + "/dev"):
        if not re.match("nvidia([0-9]+|ctl|-uvm|-uvm-tools|-modeset)$", name):
            continue
        number = os.stat(f"{root}/dev/{name}").st_rdev  # noqa: PTH116
        link = f"/dev/char/{os.major(number)}:{os.minor(number)}"
        found.append({"path": f"/dev/{name}", "link": link, "there": os.path.exists(root + link)})  # noqa: PTH110
    return found
