"""Faults of GPUs and of what serves them: each found, blamed on the right place, and gone when cleared."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

pytestmark = pytest.mark.lab

OF_PARTS = ("host", "gpu", "link")
BOUND_S = 300.0  # a validate ends well within this, whatever the fault


@dataclass(frozen=True)
class Case:
    """A fault, the checks that fail of it, the scope of the one culprit, words of its remedy and reason."""

    kind: str
    node: str
    gpu: int | None
    scope: str
    checks: set[str]
    remedy: str
    because: str = ""

    @property
    def options(self) -> list[str]:
        """What ``lab fault inject`` wants besides node and kind."""
        return [] if self.gpu is None else ["--gpu", str(self.gpu)]


CASES = [
    Case("gpu-fell-off-bus", "gpu02", 3, "gpu", {"gpu-present"}, "power-cycle"),
    Case("xid", "gpu01", 6, "gpu", {"xid"}, "reset the GPU"),
    Case("ecc-uncorrectable", "gpu03", 0, "gpu", {"gpu-ecc", "gpu-recovery"}, "reset the GPU"),
    Case("remap-pending", "gpu02", 7, "gpu", {"gpu-row-remap", "gpu-recovery"}, "reset the GPU"),
    Case("nvlink-down", "gpu01", 2, "link", {"nvlink", "gpu-topology"}, "Restart Fabric Manager"),
    Case("throttled", "gpu03", 4, "gpu", {"gpu-throttle"}, "air flow"),
    Case("pcie-narrow", "gpu02", 5, "gpu", {"pcie-link", "gpu-transfer"}, "seat GPU", "8 of 16 lanes"),
    Case("peer-access-off", "gpu01", 4, "link", {"gpu-p2p"}, "restart Fabric Manager", "peer access"),
    Case("fabricmanager-stopped", "gpu02", None, "node", {"fabric-manager"}, "start it"),
    Case("fabricmanager-version-skew", "gpu01", None, "node", {"fabric-manager"}, "driver's exact version"),
    Case("gpu-slow", "gpu02", 5, "gpu", {"gpu-gemm"}, "throttle reasons under load"),
    Case("gpu-memory-slow", "gpu01", 0, "gpu", {"gpu-memory-bandwidth"}, "remapped rows"),
    Case("gpu-wrong-numbers", "gpu03", 2, "gpu", {"gpu-gemm"}, "have it replaced"),
    Case("toolkit-broken", "gpu03", None, "node", {"container-gpus"}, "CDI", "7 of"),
]


def validated(lab: Any) -> tuple[int, dict[str, Any]]:
    """Exit code and result document of a validate."""
    done = lab.clusterctl("validate", "--json", timeout=BOUND_S)
    assert "Traceback" not in done.stderr
    document: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return done.returncode, document


def assert_good(lab: Any) -> None:
    """The cluster is as good as before the test."""
    code, document = validated(lab)
    assert (code, document["verdict"], document["culprits"]) == (0, "pass", [])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.kind)
def test_a_fault_is_found_blamed_and_gone_when_cleared(faults: Any, case: Case) -> None:
    faults.inject(case.node, case.kind, *case.options)
    code, document = validated(faults)
    assert (code, document["verdict"]) == (1, "fail")
    # Of the parts: how fast a group of nodes is on a machine that they all share is another test's matter.
    failed = [r for r in document["results"] if r["verdict"] == "fail" and r["scope"] in OF_PARTS]
    assert {result["check"] for result in failed} == case.checks
    places = {(result["subject"]["node"], result["subject"]["gpu"]) for result in failed}
    assert places == {(case.node, case.gpu)}
    (culprit,) = [one for one in document["culprits"] if one["node"]]
    assert (culprit["scope"], culprit["node"], culprit["gpu"]) == (case.scope, case.node, case.gpu)
    assert case.remedy in culprit["remedy"]
    assert case.because in culprit["because"]
    report = faults.cluster / ".clusterctl/runs" / document["run"] / "report.md"
    assert case.remedy in report.read_text(encoding="utf-8")
    faults.clear_faults()
    assert_good(faults)


def test_a_gpu_falls_off_the_bus_as_a_real_one_does(faults: Any) -> None:
    faults.inject("gpu02", "gpu-fell-off-bus", "--gpu", "3")
    assert "Unknown header type 7f" in faults.ssh("gpu02", "lspci -vs 4e:00.0")
    assert "GPU is lost" in faults.ssh("gpu02", "nvidia-smi -q -x", check=False)
    assert faults.ssh("gpu02", "sudo journalctl -k -b --quiet | grep Xid", check=False) == ""


def test_faults_are_cleared_after_a_reboot_too(faults: Any) -> None:
    # Where it is of another version it does not run: it cannot be stopped too.
    for case in CASES:
        if case.kind != "fabricmanager-stopped":
            faults.inject("gpu03", case.kind, *case.options)
    reboot(faults, "gpu03")
    faults.clear_faults()
    assert faults.lab("fault", "list").stdout.rstrip().endswith("in place now: none")
    assert "no fault is in place" in faults.lab("fault", "clear", "gpu03").stderr
    assert_good(faults)


def reboot(lab: Any, node: str) -> None:
    """Reboot the node; returns when it has booted, be it with units that failed."""
    boot = lab.ssh(node, "cat /proc/sys/kernel/random/boot_id")
    lab.ssh(node, "sudo systemctl reboot", check=False)
    until = time.monotonic() + BOUND_S
    while time.monotonic() < until:
        time.sleep(1)
        said = lab.ssh(
            node, "systemctl is-system-running --wait; cat /proc/sys/kernel/random/boot_id", check=False
        )
        if said.split()[-1:] not in ([], [boot]) and said.split()[0] in ("running", "degraded"):
            return
    pytest.fail(f"{node} did not come back")


def test_every_kind_is_explained_where_it_is_listed(lab: Any) -> None:
    listed = [json.loads(line) for line in lab.lab("fault", "list", "--json").stdout.splitlines()]
    summaries = {one["kind"]: one["summary"] for one in listed if one["type"] == "kind"}
    assert {case.kind for case in CASES} <= set(summaries)
    assert all(len(summary) > 15 for summary in summaries.values())


# --- nvidia-smi itself

# What is judged by what nvidia-smi prints.
BY_NVIDIA_SMI = {
    "gpu-driver",
    "gpu-present",
    "gpu-model",
    "driver-version",
    "container-gpus",
    "gpu-ecc",
    "gpu-row-remap",
    "nvlink",
    "gpu-topology",
    "gpu-throttle",
    "gpu-recovery",
}
EMPTY = "exit 0"
CUT_OFF = 'said=$(nvidia-smi.real "$@"); printf %s "$said" | head -c $((${#said} / 2))'
NONSENSE = "printf 'GPU 0: \\377\\376\\001 Link <<< 25 GB/s\\n'"
HANGS = "exec sleep 600"

PUT_IN_PLACE = """
set -e
mv -n /usr/bin/nvidia-smi /usr/bin/nvidia-smi.real
install -m 755 /dev/stdin /usr/bin/nvidia-smi
"""
PUT_BACK = "test ! -e /usr/bin/nvidia-smi.real || mv /usr/bin/nvidia-smi.real /usr/bin/nvidia-smi"


@contextmanager
def nvidia_smi_replaced(lab: Any, scripts: Mapping[str, str]) -> Iterator[None]:
    """Another program in nvidia-smi's place on each of these nodes."""
    try:
        for node, script in scripts.items():
            program = shlex.quote(f"#!/bin/sh\n{script}\n")
            lab.ssh(node, f"printf %s {program} | sudo sh -c {shlex.quote(PUT_IN_PLACE)}")
        yield
    finally:
        for node in scripts:
            lab.ssh(node, f"sudo sh -c {shlex.quote(PUT_BACK)}")


@pytest.mark.parametrize(
    ("scripts", "failed"),
    [
        ({"gpu01": EMPTY, "gpu02": CUT_OFF, "gpu03": NONSENSE}, set()),
        ({"gpu02": HANGS}, {("gpu-driver", "gpu02")}),
    ],
    ids=["empty-cut-off-nonsense", "hangs"],
)
def test_what_nvidia_smi_does_not_tell_is_never_green(
    applied_lab: Any, scripts: Mapping[str, str], failed: set[tuple[str, str]]
) -> None:
    with nvidia_smi_replaced(applied_lab, scripts):
        code, document = validated(applied_lab)
    assert code == {"fail": 1, "incomplete": 3}[document["verdict"]]
    of_parts = [r for r in document["results"] if r["scope"] in OF_PARTS]
    assert {(r["check"], r["subject"]["node"]) for r in of_parts if r["verdict"] == "fail"} == failed
    for node in ("gpu01", "gpu02", "gpu03"):
        judged = [
            r["verdict"] for r in of_parts if r["subject"]["node"] == node and r["check"] in BY_NVIDIA_SMI
        ]
        assert len(judged) == 8 * 8 + 3, node
        assert ("pass" in judged) is (node not in scripts), node
    assert_good(applied_lab)
