"""What nvidia-smi prints of a fault of the simulated hardware, read and judged as on a node of the lab."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from tests.lab.fault_cases import BY_KIND, Case

from clustercheck.checks.all import BY_ID, CHECKS
from clustercheck.checks.base import evaluate
from clustercheck.checks.support import seeding
from clustercheck.evidence.cluster import Evidence
from clustercheck.locate.culprits import find_culprits
from clustercheck.model import Result, Scope, Subject, Verdict
from clustercheck.probe.kernel_log import Sifted
from clustercheck.probe.processes import processes
from clustercheck.probe.replays import Replays
from clustercheck.samples import sample
from clusterlab import cluster_files, hardware
from clusterlab.simulated.nvml import node as nvml
from clusterlab.simulated.nvml import smi, tables
from clusterlab.state import LabState

from .test_simulated_hardware import RunningNode, StoppedNode

VERSION = "580.95.05"
JOBS_S = 30.0  # what they take: a counter is read before and after them
NODES = ("gpu01", "gpu02", "gpu03")
PROGRAMS = {
    "nvidia_smi": ["-q", "-x"],
    "gpu_list": ["-L"],
    "topology": ["topo", "-m"],
    "nvlink": ["nvlink", "-s"],
    "nvlink_errors": ["nvlink", "-e"],
}
# All that is said of one GPU by nvidia-smi alone.
KINDS = (
    "gpu-model-wrong", "ecc-uncorrectable", "ecc-off", "sram-threshold", "remap-pending", "remap-failed",
    "recovery-reboot", "vbios-skew", "mig-enabled", "throttled", "power-brake", "nvlink-down",
    "nvlink-errors", "application-clocks-low", "inforom-corrupted", "rows-worn", "pcie-replays",
)  # fmt: skip


@pytest.fixture
def lab(tmp_path: Path) -> dict[str, nvml.Paths]:
    """Three nodes of the lab whose driver is loaded."""
    return nodes_of("hgx-a100-80gb", tmp_path)


def nodes_of(profile: str, root: Path) -> dict[str, nvml.Paths]:
    """Of any profile; their devices are where those of the healthy sample are."""
    found = {name: nvml.Paths(root / name) for name in NODES}
    for name, paths in found.items():
        machine, like_sample = hardware.build(profile, name), hardware.build("hgx-a100-80gb", name)
        for kind in ("gpus", "nvswitches"):
            for one, place in zip(getattr(machine, kind), getattr(like_sample, kind), strict=False):
                one.pci_address = place.pci_address
        hardware.save(machine, paths.hardware)
        module = paths.kernel / "modules/nvidia"
        module.parent.mkdir(parents=True)
        module.write_text(json.dumps({"version": VERSION, "flavor": "open"}))
        (paths.kernel / "fabric.json").write_text(json.dumps({"state": "completed"}))
    return found


def evidence_of(lab: dict[str, nvml.Paths]) -> Evidence:
    """The healthy sample, with what these nodes print, and declared as the lab's settings have it."""
    state = LabState(suffix="0badcafe", system="debian12", hardware="hgx-a100-80gb", nodes=[])
    offer = cluster_files.Offer("NVIDIA A100-SXM4-80GB", 8, "repository", "sha256:0", "AB" * 20)
    declared = cluster_files.settings(state, offer)["gpu_nodes"]
    found = sample.healthy(len(lab))
    for name, paths in lab.items():

        def said(raw: dict[str, Any], paths: nvml.Paths = paths) -> None:
            for part, arguments in PROGRAMS.items():
                raw[part]["stdout"] = smi.answer(arguments, VERSION, paths)
            counted = Replays()
            counted.read(BytesIO(raw["nvidia_smi"]["stdout"].encode()))
            raw["pcie_replays"]["counts"] = counted.counts

        found = seeding.edit(name, said)(found)
        ended = time.time() + JOBS_S
        with mock.patch.object(tables.time, "time", lambda ended=ended: ended):
            found = seeding.later(seeding.edit(name, said))(found)
    nodes = tuple(replace(node, mig=declared["hardware_mig"]) for node in found.spec.nodes)
    return replace(found, spec=replace(found.spec, nodes=nodes))


def test_a_uuid_that_two_gpus_have_is_the_nodes(lab: dict[str, nvml.Paths]) -> None:
    """Which of the two it belongs to, nobody can tell."""
    case, check = BY_KIND["gpu-uuid-twice"], BY_ID["node-identity"]
    target = inject(lab, case)
    results = [*evaluate(check, evidence_of(lab)), *judged(evidence_of(lab))]
    assert failed(results) == [("node-identity", Subject(case.node))]
    (culprit,) = find_culprits(results, None, group_is_slow=False)
    assert case.because in culprit.because and case.remedy in culprit.remedy
    case.fault.clear(target)
    assert failed(evaluate(check, evidence_of(lab))) == []


def test_without_its_daemon_every_gpu_of_the_node_warns_of_persistence_mode(
    lab: dict[str, nvml.Paths],
) -> None:
    """What the simulated daemon writes when it starts and when it is stopped."""
    check = BY_ID["gpu-persistence"]

    def warned(running: Mapping[str, bool]) -> set[Subject]:
        for name, paths in lab.items():
            modes = {gpu.uuid: running[name] for gpu in hardware.load(paths.hardware).gpus}
            (paths.kernel / "persistence.json").write_text(json.dumps(modes))
        results = evaluate(check, evidence_of(lab))
        assert {each.verdict for each in results} <= {Verdict.PASS, Verdict.WARNING}
        return {each.subject for each in results if each.verdict is Verdict.WARNING}

    case = BY_KIND["persistence-off"]
    assert warned(dict.fromkeys(lab, True)) == set()
    assert warned({name: name != case.node for name in lab}) == {Subject(case.node, n) for n in range(8)}
    assert (case.fault.verdict, case.fault.caught_by) == ("warning", (check.id,))
    assert case.remedy in check.remedy


def test_dockers_cgroup_driver_is_found_by_its_check_where_a_hook_gives_gpus() -> None:
    case, check = BY_KIND["cgroup-driver-systemd"], BY_ID["container-reload"]
    driver = seeding.stdout(case.node, "docker", '"CgroupDriver": "cgroupfs"', '"CgroupDriver": "systemd"')
    (found,) = [one for one in evaluate(check, driver(sample.healthy())) if one.verdict is Verdict.FAIL]
    assert found.subject.node == case.node and case.fault.caught_by == (check.id,)
    assert case.because in found.because and case.remedy in found.remedy


@pytest.mark.parametrize("kind", ["sxid", "adapter-power-low", "peermem-errors"])
def test_what_only_the_kernel_log_says_is_found_on_its_node_and_nowhere_else(
    lab: dict[str, nvml.Paths], kind: str
) -> None:
    """The lines of a fault, as journalctl prints them, sifted as on a node."""
    case, check = BY_KIND[kind], BY_ID["kernel-log"]
    node = RunningNode(case.node, "none", lab[case.node].hardware)
    case.fault.inject(node)
    log = Sifted()
    lines = re.findall(r"^MESSAGE=(.*)$", node.undo["stdin"], re.MULTILINE)
    log.read(BytesIO("".join(f"2026-11-26T10:00:00+0000 gpu kernel: {line}\n" for line in lines).encode()))
    assert len(log.kept) == len(lines) > 0
    found = evidence_of(lab)
    for line in log.kept:
        found = seeding.kernel_says(case.node, line)(found)
    results = evaluate(check, found)
    assert {one.subject.node for one in results if one.verdict is not Verdict.PASS} == {case.node}
    (result,) = [one for one in results if one.subject.node == case.node]
    assert (result.verdict.value, case.fault.caught_by) == (case.fault.verdict, (check.id,))
    assert case.because in result.because and case.remedy in result.remedy
    case.fault.clear(node)
    assert "rm -f /var/log/journal/" in node.undo["told"].splitlines()[-1]


def test_zombies_of_the_lab_are_seen_as_on_a_node(tmp_path: Path) -> None:
    """The fault's own program, and what the probe and its check make of it."""
    case, check = BY_KIND["zombies"], BY_ID["stuck-processes"]
    node = RunningNode(case.node, "none", tmp_path)
    case.fault.inject(node)
    program = re.search(r"python3 -c '(.*?)'", node.undo["told"], re.DOTALL)
    assert program is not None
    with subprocess.Popen([sys.executable, "-c", program[1]]) as parent:
        try:
            deadline = time.monotonic() + 20
            mine: list[dict[str, Any]] = []
            while len(mine) < 3 and time.monotonic() < deadline:
                looked = processes(last_s=0.2, look_s=0.1)
                mine = [each for each in looked["lasted"] if each["parent"]["pid"] == parent.pid]
        finally:
            parent.kill()
    found = seeding.edit(case.node, lambda raw: raw["processes"].update(looked, lasted=mine))(
        sample.healthy()
    )
    (result,) = [one for one in evaluate(check, found) if one.verdict is not Verdict.PASS]
    assert (result.subject.node, result.verdict.value) == (case.node, case.fault.verdict)
    assert case.because in result.because and case.remedy in result.remedy


def judged(found: Evidence) -> list[Result]:
    """What checks of one GPU or link without a job say."""
    checks = [check for check in CHECKS if check.scope in (Scope.GPU, Scope.LINK) and not check.job]
    return [result for check in checks for result in evaluate(check, found)]


def failed(results: list[Result]) -> list[tuple[str, Subject]]:
    return [(result.check, result.subject) for result in results if result.verdict is Verdict.FAIL]


def inject(lab: dict[str, nvml.Paths], case: Case) -> StoppedNode:
    target = StoppedNode(case.node, "none", lab[case.node].hardware, gpu=case.gpu)
    case.fault.inject(target)
    return target


def test_nobody_is_to_blame_where_nothing_is_wrong(lab: dict[str, nvml.Paths]) -> None:
    results = judged(evidence_of(lab))
    assert failed(results) == []
    of = {
        check: {each.verdict for each in results if each.check == check} for check in ("gpu-mig", "gpu-vbios")
    }
    assert of == {"gpu-mig": {Verdict.PASS}, "gpu-vbios": {Verdict.PASS}}


@pytest.mark.parametrize("kind", KINDS)
def test_what_nvidia_smi_says_of_a_fault_blames_the_gpu_in_the_words_of_its_case(
    lab: dict[str, nvml.Paths], kind: str
) -> None:
    case = BY_KIND[kind]
    target = inject(lab, case)
    results = judged(evidence_of(lab))
    place = Subject(case.node, case.gpu)
    assert {subject for _, subject in failed(results)} == {place}
    assert {check for check, _ in failed(results)} >= set(case.fault.caught_by)
    (culprit,) = find_culprits(results, None, group_is_slow=False)
    assert (culprit.node, culprit.gpu) == (case.node, case.gpu)
    reasons = (culprit.because, *culprit.reasons)
    assert any(case.because in reason for reason in reasons) and case.remedy in culprit.remedy, culprit
    case.fault.clear(target)
    assert failed(judged(evidence_of(lab))) == []


def test_on_gpus_with_a_fabric_the_one_that_is_not_joined_is_named(tmp_path: Path) -> None:
    """What nvidia-smi prints on the lab's H100; of A100 it prints no state, and nothing applies."""
    case, check = BY_KIND["fabric-not-joined"], BY_ID["gpu-fabric"]
    nodes = nodes_of(case.fault.hardware, tmp_path)
    assert {one.verdict for one in evaluate(check, evidence_of(nodes))} == {Verdict.PASS}
    target = inject(nodes, case)
    results = evaluate(check, evidence_of(nodes))
    assert failed(results) == [(check.id, Subject(case.node, case.gpu))]
    (culprit,) = find_culprits(results, None, group_is_slow=False)
    assert case.because in culprit.because and case.remedy in culprit.remedy
    case.fault.clear(target)
    assert failed(evaluate(check, evidence_of(nodes))) == []
    of_a100 = evaluate(check, evidence_of(nodes_of("hgx-a100-80gb", tmp_path / "a100")))
    assert {one.verdict for one in of_a100} == {Verdict.EXCLUDED}


def test_every_other_gpu_is_judged_beside_one_with_mig(lab: dict[str, nvml.Paths]) -> None:
    inject(lab, BY_KIND["mig-enabled"])
    results = evaluate(BY_ID["gpu-mig"], evidence_of(lab))
    assert [result.verdict for result in results].count(Verdict.PASS) == 23
