"""What nvidia-smi does not tell, or tells as nonsense, is never green."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from .validating import OF_PARTS, assert_good, validated

pytestmark = pytest.mark.lab

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


@pytest.mark.drawn("several faults")
@pytest.mark.quiet
@pytest.mark.parametrize(
    ("scripts", "failed"),
    [
        ({"gpu01": EMPTY, "gpu02": CUT_OFF, "gpu03": NONSENSE}, set()),
        pytest.param({"gpu02": HANGS}, {("gpu-driver", "gpu02")}, marks=pytest.mark.campaign),
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
