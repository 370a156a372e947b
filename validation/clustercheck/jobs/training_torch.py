"""Training of ResNet-50 and a BERT-base by PyTorch's DistributedDataParallel: see training.py."""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clustercheck.jobs.rank import Progress


class Absent:
    """A rank whose image has no PyTorch: nobody to meet."""

    def describe(self) -> dict[str, Any]:
        """What every verdict says of where it was measured."""
        return {
            "rank": int(os.environ["PADDLE_TRAINER_ID"]),
            "world": int(os.environ["PADDLE_TRAINERS_NUM"]),
            "backend": os.environ["CLUSTERCTL_BACKEND"],
        }

    def barrier(self) -> None:
        """Nobody waits."""


def join(progress: Progress) -> Any:
    """Meet the other ranks, with TF32 left to the program: here it is one of the things measured."""
    os.environ.pop("NVIDIA_TF32_OVERRIDE", None)
    progress.at("importing torch")
    if importlib.util.find_spec("torch") is None:
        return Absent()
    return importlib.import_module("frameworks.torch").TorchWorld(progress)


def run(world: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments as training.py has them. ``without`` says why nothing was done."""
    if isinstance(world, Absent):
        return {"cases": [], "not_done": {}, "without": "the image has no PyTorch", "ok": True, "because": ""}
    framework = importlib.import_module("frameworks.torch").TorchFramework(world)
    done: dict[str, Any] = importlib.import_module("training").run(world, framework, arguments)
    return done
