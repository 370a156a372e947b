"""Evidence that cannot be read is never a pass, wherever nvidia-smi's output goes wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.examples import examples

from clustercheck.checks.all import CHECKS
from clustercheck.checks.base import evaluate
from clustercheck.checks.support import seeding
from clustercheck.evidence.cluster import Evidence
from clustercheck.evidence.shipment import shipment
from clustercheck.launch.model import JobOutcome, JobSpec
from clustercheck.launch.transport import Completed
from clustercheck.model import Scope, Subject, Verdict
from clustercheck.parse.nvidia_smi import lost_gpus
from clustercheck.running.session import validate
from clustercheck.running.suites import load
from clustercheck.samples import sample

NODE = "gpu01"
PARTS = ("nvidia_smi", "topology", "nvlink", "container_gpus")
LOOKING = [check for check in CHECKS if check.scope in (Scope.HOST, Scope.GPU, Scope.LINK)]
REPLACED = "\N{REPLACEMENT CHARACTER}"  # what the probe puts for a byte that is no UTF-8


def judged(evidence: Evidence) -> dict[tuple[str, Subject], Verdict]:
    """Every verdict on the node and its GPUs."""
    results = [result for check in LOOKING for result in evaluate(check, evidence)]
    return {(r.check, r.subject): r.verdict for r in results if r.subject.node == NODE}


def depends_on(part: str) -> set[tuple[str, Subject]]:
    """What cannot be judged without this part of the record."""
    without = seeding.edit(NODE, lambda raw: raw.pop(part))(sample.healthy())
    found = {key for key, verdict in judged(without).items() if verdict is not Verdict.PASS}
    assert found
    return found


DEPENDENTS = {part: depends_on(part) for part in PARTS}


def empty(record: dict[str, Any]) -> None:
    record.update(stdout="")


def cut_off(record: dict[str, Any]) -> None:
    record.update(stdout=record["stdout"][: len(record["stdout"]) // 2])


def hangs(record: dict[str, Any]) -> None:
    record.update(rc=None, timed_out=True, stdout="")


def hangs_after_printing_everything(record: dict[str, Any]) -> None:
    record.update(rc=None, timed_out=True)


def nonsense(record: dict[str, Any]) -> None:
    record.update(stdout="Segmentation fault\n\x00\x01<<<>>> GPU ???\n" * 5)


def not_text(record: dict[str, Any]) -> None:
    record.update(stdout=record["stdout"][:60] + REPLACED + record["stdout"][61:])


WAYS = [empty, cut_off, hangs, hangs_after_printing_everything, nonsense, not_text]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("part", PARTS)
def test_what_depends_on_unreadable_output_never_passes(
    part: str, way: Callable[[dict[str, Any]], None]
) -> None:
    found = judged(seeding.edit(NODE, lambda raw: way(raw[part]))(sample.healthy()))
    passed = {key for key in DEPENDENTS[part] if found[key] is Verdict.PASS}
    assert passed == set()
    assert {key for key, verdict in found.items() if verdict is Verdict.PASS} == set(found) - DEPENDENTS[part]


@examples(60)
@given(part=st.sampled_from(["nvidia_smi", "nvlink", "container_gpus"]), share=st.floats(0, 1))
def test_output_cut_off_anywhere_is_noticed(part: str, share: float) -> None:
    whole = sample.probe_record(1)[part]["stdout"].rstrip("\n")
    short = whole[: min(int(len(whole) * share), len(whole) - 1)]
    found = judged(seeding.edit(NODE, lambda raw: raw[part].update(stdout=short))(sample.healthy()))
    assert any(found[key] is not Verdict.PASS for key in DEPENDENTS[part])


def test_links_that_are_missing_at_the_end_are_noticed_without_a_profile() -> None:
    def last_link_cut(raw: seeding.Raw) -> None:
        raw["nvlink"]["stdout"] = raw["nvlink"]["stdout"].rpartition("\t Link")[0]

    evidence = seeding.chain(seeding.undeclared(NODE), seeding.edit(NODE, last_link_cut))(sample.healthy())
    found = judged(evidence)
    assert found["nvlink", Subject(NODE, 7)] is Verdict.FAIL
    assert found["nvlink", Subject(NODE, 6)] is Verdict.PASS


@pytest.mark.parametrize(
    "text",
    [
        "Unable to determine the device handle for GPU 0000:4E:00.0: GPU is lost.  Reboot the system",
        "Unable to determine the device handle for GPU3: 0000:4e:00.0: Unknown Error\n",
        "Unable to determine the device handle for GPU0000:4E:00.0: Unknown Error\nNo devices were found",
        "Unable to determine the device handle for GPU 00000000:4E:00.0: Not Found",
    ],
)
def test_the_gpu_that_nvidia_smi_has_lost_is_read_in_every_spelling(text: str) -> None:
    assert lost_gpus(text) == ("0000:4e:00.0",)
    evidence = seeding.edit(NODE, lambda raw: raw["nvidia_smi"].update(rc=255, stdout=text))(sample.healthy())
    found = judged(evidence)
    failed = {key for key, verdict in found.items() if verdict is Verdict.FAIL}
    assert failed == {("gpu-present", Subject(NODE, 3))}


@pytest.mark.parametrize(
    "text", ["", "GPU is lost", "device handle for GPU 0000:4E", "No devices were found"]
)
def test_another_failure_of_nvidia_smi_is_the_drivers(text: str) -> None:
    assert lost_gpus(text) == ()
    evidence = seeding.edit(NODE, lambda raw: raw["nvidia_smi"].update(rc=9, stdout=text))(sample.healthy())
    assert judged(evidence)["gpu-driver", Subject(NODE)] is Verdict.FAIL


# --- from the node's program to the verdict

PROGRAMS = {
    "empty": "exit 0",
    "cut off": "printf '<?xml version=\"1.0\" ?>\\n<nvidia_smi_log>\\n<driver_version>580.95'",
    "hangs": "sleep 600",
    "nonsense": "printf 'GPU 0: \\377\\376 Link 0: 25 GB/s\\n'",
}


class Nodes:
    """Nodes that answer the probe: one by the real program over a broken nvidia-smi, the others well."""

    def __init__(self, programs: Path) -> None:
        self._programs = programs

    def run(self, node: str, argv: Sequence[str], *, stdin: str = "", timeout_s: float) -> Completed:
        record = sample.probe_record(int(node[-1]))
        if node == NODE:
            record = {**record, **self._probed()}
        return Completed(0, json.dumps(record) + "\n", "")

    def _probed(self) -> Mapping[str, Any]:
        parts = ["nvidia_smi", "topology", "nvlink"]
        ran = subprocess.run(
            [sys.executable, "-", json.dumps({"parts": parts, "limit_s": 0.5})],
            input=shipment("probe"),
            capture_output=True,
            text=True,
            env={**os.environ, "PATH": f"{self._programs}:{os.environ['PATH']}"},
            timeout=60,
            check=True,
        )
        found: dict[str, Any] = json.loads(ran.stdout)
        assert found["errors"] == {}
        return {part: found[part] for part in parts}


class NoJobs:
    """Runs none: what nodes say of their GPUs is the matter here."""

    def run(self, spec: JobSpec, *, on_event: Callable[[Mapping[str, Any]], None]) -> JobOutcome:
        raise OSError("not here")


@pytest.mark.parametrize("way", list(PROGRAMS))
def test_a_node_whose_nvidia_smi_is_broken_is_never_green(tmp_path: Path, way: str) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{PROGRAMS[way]}\n")
    program.chmod(0o755)
    document = validate(
        sample.spec(),
        transport=Nodes(tmp_path),
        launcher=NoJobs(),
        run_id="test",
    )
    assert document.verdict != "pass"
    assert document.exit_code in (1, 3)
    mine = {(r.check, r.subject): r.verdict for r in document.results if r.subject.node == NODE}
    ran = {check.id for check in load("quick").selected()}
    every = set().union(*(DEPENDENTS[part] for part in ("nvidia_smi", "topology", "nvlink")))
    dependents = {key for key in every if key[0] in ran}
    assert dependents and {mine[key] for key in dependents} <= {Verdict.FAIL, Verdict.NOT_RUN}
    assert (mine["gpu-driver", Subject(NODE)] is Verdict.FAIL) == (way == "hangs")
    checks = {check for check, _ in dependents}
    others = [r for r in document.results if r.subject.node in ("gpu02", "gpu03") and r.check in checks]
    assert {r.verdict for r in others} == {Verdict.PASS}
