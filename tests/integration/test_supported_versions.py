"""Every supported Python with every supported ansible-core: what uses Ansible passes its tests there, too."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml
from tests.support.pythons import NEWER, interpreter

# As pyproject.toml has them; ansible-core 2.20 and later need Python 3.12 on the controller.
SUPPORTED = (
    ("3.11", "2.19"),
    *(("3.12", core) for core in ("2.19", "2.21")),
    *(("3.13", core) for core in ("2.19", "2.20", "2.21")),
)
OPTIONAL = ("3.12",)  # between two that are tested; Debian has none of it
TESTS = (
    ("tests/unit/clusterctl", "tests/unit/plugins", "tests/unit/roles"),
    # In a session of their own: the stubs of unit tests keep programs away.
    ("tests/integration/clusterctl/engine", "tests/integration/clusterctl/rollout", "tests/roles"),
)
MARKS = "not slow and not bench and not campaign"


@pytest.mark.slow
@pytest.mark.timeout(4500)
@pytest.mark.parametrize(("python", "core"), SUPPORTED)
def test_what_uses_ansible_passes_its_tests(python: str, core: str, tmp_path: Path, repository: Path) -> None:
    source = interpreter(python)
    if source is None and python in OPTIONAL:
        pytest.skip(f"there is no Python {python} here")
    if source is None:
        pytest.fail(
            f"Python {python} is supported, and there is none here: install it, with pyenv for example"
        )
    bin_ = tmp_path / "env" / "bin"
    subprocess.run([source, "-m", "venv", bin_.parent], check=True, timeout=120)
    pip = [bin_ / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    lock = repository / "requirements-dev.lock"
    subprocess.run([*pip, "--require-hashes", "-r", lock], check=True, timeout=600)
    subprocess.run([*pip, f"ansible-core=={core}.*"], check=True, timeout=300)
    subprocess.run([*pip, "--no-deps", "--no-build-isolation", "-e", repository], check=True, timeout=120)
    for tests in TESTS:
        command = [
            bin_ / "python",
            "-m",
            "pytest",
            "-q",
            "-n",
            "2",
            "-p",
            "no:cacheprovider",
            "-m",
            MARKS,
            *tests,
        ]
        done = subprocess.run(
            command, cwd=repository, capture_output=True, text=True, timeout=1800, check=False,
            env={**os.environ, "PATH": f"{bin_}:{os.environ['PATH']}"},
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-4000:]


def test_the_versions_are_those_that_the_package_declares(repository: Path) -> None:
    text = (repository / "pyproject.toml").read_text(encoding="utf-8")
    assert 'requires-python = ">=3.11,<3.14"' in text
    assert '"ansible-core>=2.19,<2.22"' in text
    runtime = yaml.safe_load((repository / "meta/runtime.yml").read_text(encoding="utf-8"))
    assert runtime["requires_ansible"] == ">=2.19.0"
    assert {python for python, _ in SUPPORTED} == {"3.11", *NEWER}
    assert {core for _, core in SUPPORTED} == {"2.19", "2.20", "2.21"}
    lock = (repository / "requirements.lock").read_text(encoding="utf-8")
    locked = re.findall(
        r"^ansible-core==(2\.\d+)\.\d+ ; python_full_version (\S+ '3.12')", lock, flags=re.MULTILINE
    )
    cores = {condition: core for core, condition in locked}
    assert ("3.11", cores.pop("< '3.12'")) in SUPPORTED
    newer = cores.pop(">= '3.12'")
    assert {(python, newer) for python in NEWER} <= set(SUPPORTED)
    assert not cores
