"""Training of ResNet-50 and a BERT-base by PyTorch's DistributedDataParallel: see training.py."""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clustercheck.jobs.rank import Progress


class AbsentWorld:
    """A rank whose image has no PyTorch."""

    def describe(self) -> dict[str, Any]:
        """What every verdict records about where it was measured."""
        return {
            "rank": int(os.environ["PADDLE_TRAINER_ID"]),
            "world": int(os.environ["PADDLE_TRAINERS_NUM"]),
            "backend": os.environ["CLUSTERCTL_BACKEND"],
        }

    def barrier(self) -> None:
        """Does not wait."""


def join(progress: Progress) -> Any:
    """Join the other ranks; TF32 is left to the program, which measures it."""
    os.environ.pop("NVIDIA_TF32_OVERRIDE", None)
    progress.set_phase("importing torch")
    if importlib.util.find_spec("torch") is None:
        return AbsentWorld()
    return importlib.import_module("frameworks.torch").TorchWorld(progress)


def run(world: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments as in training.py. ``without`` is the reason why nothing was done."""
    if isinstance(world, AbsentWorld):
        return {"cases": [], "not_done": {}, "without": "the image has no PyTorch", "ok": True, "because": ""}
    framework = importlib.import_module("frameworks.torch").TorchFramework(world)
    done: dict[str, Any] = importlib.import_module("training").run(world, framework, arguments)
    return done
