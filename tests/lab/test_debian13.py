"""Debian 13: its Docker takes GPUs by CDI, with no runtime of NVIDIA's in between."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .conftest import RunningLab, bring_up, json_lines
from .test_runtime_roles import image

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.timeout(2400)]


@pytest.fixture(scope="module")
def trixie(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    """A lab of one Debian 13 node, of its own, with the whole site applied."""
    directory: Path = tmp_path_factory.mktemp("trixie") / "lab"
    for running in bring_up(directory, "--nodes", "1", "--os", "debian13"):
        running.done("apply", "--yes")
        yield running


@pytest.mark.parametrize("option", ["--gpus all", "--device nvidia.com/gpu=all"])
def test_containers_get_all_gpus(trixie: RunningLab, option: str) -> None:
    assert trixie.ssh("gpu01", ". /etc/os-release; echo $VERSION_CODENAME") == "trixie"
    listed = trixie.ssh("gpu01", f"sudo docker run --rm {option} {image(trixie)} nvidia-smi -L")
    assert [line.split(":")[0] for line in listed.splitlines()] == [f"GPU {index}" for index in range(8)]


def test_a_second_apply_changes_nothing(trixie: RunningLab) -> None:
    applied = trixie.clusterctl("apply", "--yes", "--json")
    assert applied.returncode == 0
    assert json_lines(applied)[-1]["changed"] == 0
