"""The simulated nvidia-smi of one machine, as a program that modules run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from clusterlab import hardware
from clusterlab.simulated.nvml import node as nvml
from clusterlab.simulated.nvml import smi

VERSION = "580.95.05"


@dataclass
class SimulatedSmi:
    """A machine with its driver loaded and Fabric Manager running, under a directory of the test's own."""

    root: Path
    profile: str = "h100-sxm5-80gb"

    def __post_init__(self) -> None:
        hardware.save(hardware.build(self.profile, "gpu01"), self.paths.hardware)
        self.boot()

    @property
    def paths(self) -> nvml.Paths:
        return nvml.Paths(self.root)

    @property
    def buses(self) -> list[str]:
        return [gpu.pci_address for gpu in hardware.load(self.paths.hardware).gpus]

    def boot(self) -> None:
        """The driver is loaded anew: what only it knew is gone."""
        kernel = self.paths.kernel
        for path in kernel.glob("*.json"):
            path.unlink()
        (kernel / "modules").mkdir(parents=True, exist_ok=True)
        (kernel / "modules/nvidia").write_text(json.dumps({"version": VERSION, "flavor": "open"}))
        (kernel / "fabric.json").write_text(json.dumps({"state": "completed"}))

    def occupy(self, gpu: int, name: str = "python train.py") -> None:
        """A job on a GPU."""
        built = hardware.load(self.paths.hardware)
        built.gpu(gpu).processes = [hardware.Process(pid=4711, name=name, used_memory_mib=3000)]
        hardware.save(built, self.paths.hardware)

    def run(self, argv: Sequence[str]) -> tuple[int, str]:
        """Exit code and output of nvidia-smi."""
        assert argv[0] == "nvidia-smi"
        try:
            return 0, smi.answer(list(argv[1:]), VERSION, self.paths)
        except nvml.NvmlError as error:
            return error.code, f"{error}\n"
