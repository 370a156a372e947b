"""The simulated management controller is healthy to our checks, and each of its faults is found."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import clusterlab.simulated
from clustercheck.checks.all import BY_ID
from clustercheck.checks.base import evaluate
from clustercheck.checks.support import seeding
from clustercheck.model import Result, Verdict
from clustercheck.parse.ipmi import parse_bmc_firmware
from clustercheck.probe import bmc
from clustercheck.samples import sample
from clusterlab import faults
from clusterlab.faults.base import FaultTarget

PROGRAM = Path(clusterlab.simulated.__file__).parent / "firmware/usr/bin/ipmitool"
IDS = ("bmc-events", "bmc-sensors", "power-supplies")
# What is laid over a file is copied over it: a mount needs root.
MOUNT = '#!/bin/sh\n[ "$1" = --bind ] || exit 0\n[ -e "$3.real" ] || cp -p "$3" "$3.real"\ncp -p "$2" "$3"\n'
UMOUNT = '#!/bin/sh\nmv "$1.real" "$1"\n'


class Node(FaultTarget):
    """A directory as the node."""

    def is_running(self) -> bool:
        return True

    def exec(
        self, argv: Sequence[str], stdin: str = "", timeout_s: float = 60, *, check: bool = True
    ) -> subprocess.CompletedProcess[bytes]:
        root = str(self.hardware_file)
        words = [word.replace("/usr/bin/ipmitool", f"{root}/ipmitool") for word in argv]
        words = [word.replace("/run/faults", f"{root}/faults") for word in words]
        path = f"{root}:{os.environ['PATH']}"
        return subprocess.run(words, capture_output=True, check=check, env={**os.environ, "PATH": path})


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    shutil.copy(PROGRAM, tmp_path / "ipmitool")
    for name, script in {"mount": MOUNT, "umount": UMOUNT, "findmnt": "#!/bin/sh\ntest -e $2.real\n"}.items():
        (tmp_path / name).write_text(script)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setattr(bmc, "DEVICES", (str(tmp_path),))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return Node("gpu01", "none", tmp_path)


def judged() -> dict[str, Result]:
    record: dict[str, Any] = bmc.bmc(30.0)
    evidence = seeding.edit("gpu01", lambda raw: raw.update(bmc=record))(sample.healthy(1))
    return {check: evaluate(BY_ID[check], evidence)[0] for check in IDS}


def test_it_names_its_firmware(node: Node) -> None:
    answer = bmc.bmc(30.0)["controller"]
    assert parse_bmc_firmware(answer["stdout"]) == "1.73"


@pytest.mark.parametrize("kind", ["power-supply-failed", "fan-failed", "bmc-event"])
def test_each_fault_is_found_by_its_check_alone_and_is_gone_when_cleared(node: Node, kind: str) -> None:
    fault = faults.known()[kind]
    healthy = {check: result.verdict for check, result in judged().items()}
    assert healthy == dict.fromkeys(IDS, Verdict.PASS)
    fault.inject(node)
    found = {check for check, result in judged().items() if result.verdict is Verdict.FAIL}
    assert found == set(fault.caught_by)
    fault.clear(node)
    assert {check: result.verdict for check, result in judged().items()} == healthy
