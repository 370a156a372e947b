"""The tests that need Paddle, in the training image on a node: it has Paddle, this machine has not."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
from importlib import metadata
from pathlib import Path

import pytest

from .conftest import REPOSITORY, RunningLab
from .on_node import inside
from .test_runtime_roles import image

pytestmark = [pytest.mark.lab, pytest.mark.timeout(900)]

NODE = "gpu01"
HOME = "/root/paddle-tests"
TREES = (
    "pyproject.toml", "tests/conftest.py", "tests/frameworks", "tests/support", "validation/clustercheck",
)  # fmt: skip
LIMIT_S = 600


def with_requirements(name: str) -> set[str]:
    """A distribution of this interpreter, and all that it needs here."""
    found = {name}
    for line in metadata.requires(name) or ():
        needed = re.split(r"[^\w.-]", line, maxsplit=1)[0]
        if "extra ==" not in line and "python_version" not in line and "sys_platform" not in line:
            found |= with_requirements(needed)
    return found


def pack(target: Path) -> None:
    """Writes what the tests need: our sources, and pytest as it is installed here, which is pure Python."""
    with tarfile.open(target, "w") as archive:
        for tree in TREES:
            archive.add(
                REPOSITORY / tree, tree, filter=lambda one: None if "__pycache__" in one.name else one
            )
        for name in with_requirements("pytest") | with_requirements("pytest-timeout"):
            for file in metadata.files(name) or ():
                if file.parts[0] not in ("..", "__pycache__") and file.suffix != ".pyc":
                    archive.add(file.locate(), f"site/{file}")


@pytest.mark.parametrize(
    "files",
    [
        ("test_cuda_calls", "test_devices", "test_run_check"),
        pytest.param(("test_distributed",), marks=pytest.mark.drawn("paddle")),
        pytest.param(
            ("test_sharding", "test_sharding_stages", "test_step_trace", "test_training"),
            marks=pytest.mark.drawn("paddle"),
        ),
        pytest.param(
            ("test_data_loading", "test_paddle_inference", "test_paddle_launch", "test_recipes"),
            marks=pytest.mark.drawn("paddle"),
        ),
    ],
    ids=" ".join,
)
def test_paddles_tests_pass_in_the_training_image(
    applied_lab: RunningLab, tmp_path: Path, files: tuple[str, ...]
) -> None:
    pack(tmp_path / "tests.tar")
    inside(applied_lab, f"rm -rf {HOME} && mkdir {HOME}", host=NODE)
    container = applied_lab.container(NODE)
    unpack = ["docker", "exec", "-i", container, "tar", "-C", HOME, "-x"]
    with (tmp_path / "tests.tar").open("rb") as archive:
        subprocess.run(unpack, stdin=archive, check=True, timeout=60)
    pytest_there = (
        f"docker run --rm --shm-size 1g -v {HOME}:/t -w /t -e PYTHONPATH=/t:/t/validation:/t/site "
        f"-e PYTHONDONTWRITEBYTECODE=1 {image(applied_lab)} timeout {LIMIT_S} "
        "python3 -m pytest -p no:cacheprovider -m 'paddle and not torch' -rs --durations 10 "
        + " ".join(f"tests/frameworks/{name}.py" for name in files)
    )
    done = subprocess.run(
        ["docker", "exec", container, "sh", "-c", pytest_there],
        capture_output=True, text=True, timeout=LIMIT_S + 60, check=False,
    )  # fmt: skip
    inside(applied_lab, f"rm -rf {HOME}", host=NODE)
    sys.stdout.write(done.stdout)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert re.search(r"\b\d+ passed", done.stdout)
    assert "skipped" not in done.stdout


def test_no_file_is_forgotten() -> None:
    named = {
        name for mark in test_paddles_tests_pass_in_the_training_image.pytestmark for name in named_in(mark)
    }
    assert named == {path.stem for path in (REPOSITORY / "tests/frameworks").glob("test_*.py")}


def named_in(mark: pytest.Mark) -> set[str]:
    """The files in the cases of a parametrize."""
    if mark.name != "parametrize":
        return set()
    cases = [getattr(case, "values", (case,))[0] for case in mark.args[1]]
    return {name for names in cases for name in names}
