"""Training of ResNet-50 and a BERT-base by Paddle's DataParallel: see training.py."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clustercheck.jobs.rank import Progress, World


def join(progress: Progress) -> World:
    """Join the other ranks; TF32 is left to the program, which measures it."""
    os.environ.pop("NVIDIA_TF32_OVERRIDE", None)
    world: World = importlib.import_module("rank").join(progress)
    return world


def run(world: World, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments as in training.py."""
    framework = importlib.import_module("frameworks.paddle").PaddleFramework(world)
    done: dict[str, Any] = importlib.import_module("training").run(world, framework, arguments)
    return done
