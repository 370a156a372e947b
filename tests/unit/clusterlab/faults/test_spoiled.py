"""What is laid into the training image does what its fault says, once a program has imported the package."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.lab.fault_cases import BY_KIND

from clusterlab import faults

SHARDING = "paddle.distributed.fleet.meta_optimizers.dygraph_optimizer.dygraph_sharding_optimizer"

# Packages of these names, and what a program makes of them.
PACKAGES = {
    "paddle/__init__.py": "",
    "paddle/distributed/__init__.py": (
        "def all_reduce(tensor, op=None):\n    tensor.value *= 2\n    return op\n"
    ),
    "paddle/io.py": "".join(
        f"class {name}:\n    def __iter__(self):\n        yield from ([0, 1, 2], [3, 4, 5])\n"
        for name in ("BatchSampler", "DistributedBatchSampler")
    ),
}
TENSOR = (
    "import paddle.distributed\n"
    "class Tensor:\n"
    "    value = 64.0\n"
    "    def scale_(self, factor):\n"
    "        self.value *= factor\n"
    "tensor = Tensor()\n"
    "print(paddle.distributed.all_reduce(tensor, op='sum'), tensor.value)\n"
)
BATCHES = "import paddle.io\nprint(list(paddle.io.BatchSampler()))\n"
SHARED = "import paddle.io\nprint(list(paddle.io.DistributedBatchSampler()))\n"


class Written:
    """A host that only keeps the scripts it is given."""

    def __init__(self) -> None:
        self.scripts: list[str] = []

    def exec(self, argv: list[str], **_more: Any) -> None:
        self.scripts.append(argv[-1])


def said_by(kind: str, program: str, directory: Path) -> subprocess.CompletedProcess[str]:
    """What a program says that imports the fault's module first, as a .pth file makes each do."""
    host: Any = Written()
    faults.known()[kind].inject(host)
    module = re.search(r"<<'END'\n(.*?)END\n", host.scripts[0], re.DOTALL)
    assert module is not None
    for name, text in {**PACKAGES, "spoils.py": module[1]}.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)
    return subprocess.run(
        [sys.executable, "-c", f"import spoils\n{program}"],
        cwd=directory, capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "program", "printed"),
    [
        ("sums-wrong", TENSOR, "sum 130.0\n"),
        ("samples-repeated", BATCHES, "[[0, 1, 0], [3, 4, 3]]\n"),
        ("samples-repeated", TENSOR, "sum 128.0\n"),
        ("samples-repeated", SHARED, "[[0, 1, 2], [3, 4, 5]]\n"),
        ("launch-samples-repeated", SHARED, "[[0, 1, 0], [3, 4, 3]]\n"),
        ("launch-samples-repeated", BATCHES, "[[0, 1, 2], [3, 4, 5]]\n"),
        ("sharding-raises", TENSOR, "sum 128.0\n"),
    ],
)
def test_the_package_does_otherwise(kind: str, program: str, printed: str, tmp_path: Path) -> None:
    done = said_by(kind, program, tmp_path)
    assert (done.returncode, done.stdout) == (0, printed), done.stderr


def test_the_optimizer_of_stage_1_raises(tmp_path: Path) -> None:
    """In the module of Paddle's own name."""
    module = tmp_path / f"{SHARDING.replace('.', '/')}.py"
    module.parent.mkdir(parents=True)
    module.write_text("class DygraphShardingOptimizer:\n    def step(self):\n        print('stepped')\n")
    program = f"from {SHARDING} import DygraphShardingOptimizer as optimizer\noptimizer().step()\n"
    done = said_by("sharding-raises", program, tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.endswith(f"RuntimeError: {BY_KIND['sharding-raises'].because}\n")


def test_an_all_reduce_raises(tmp_path: Path) -> None:
    done = said_by("rank-raises", TENSOR, tmp_path)
    assert done.returncode == 1
    assert done.stderr.endswith("RuntimeError: unhandled system error\n")
