"""Faults of hosts and jobs, one or two at once: who is blamed, what is advised, and clean runs after."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from .conftest import run_clusterctl

pytestmark = [pytest.mark.lab, pytest.mark.timeout(900)]

BOUND_S = 300.0  # a validate with a fault in it ends well within this, whatever the fault


@dataclass(frozen=True)
class Expected:
    """What a fault on a node must come out as: the check that finds it, words of what is said and advised."""

    kind: str
    node: str
    check: str
    because: str
    remedy: str


SINGLE = (
    Expected("node-hung", "gpu01", "node-reachable", "it hangs", "reset"),
    Expected("clock-skew", "gpu02", "clock", "ahead", "time server"),
    Expected("dns-broken", "gpu03", "name-service", "no name server answers", "/etc/resolv.conf"),
    Expected("disk-full", "gpu01", "disk-space", "/var/lib/clusterctl has 0 MB free", "Free space"),
    Expected("shm-small", "gpu02", "shared-memory", "/dev/shm is 64 MiB", "remount"),
    Expected(
        "registry-down", "registry01", "registry-reachable", "it answers no node", "clusterctl-registry"
    ),
    Expected("rank-crash", "gpu03", "all-reduce", "SIGSEGV", "log"),
    Expected("rank-hang", "gpu02", "all-reduce", "is stopped", "log"),
)
BY_KIND = {each.kind: each for each in SINGLE}


def validated(lab: Any) -> tuple[int, dict[str, Any]]:
    """Exit code and document of a validation, which ends in time."""
    begun = time.monotonic()
    done = lab.clusterctl("validate", "--json", timeout=BOUND_S)
    assert time.monotonic() - begun < BOUND_S
    assert done.stdout.strip(), done.stderr
    document: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return done.returncode, document


def assert_found(document: dict[str, Any], *expected: Expected) -> None:
    """Each is blamed on its node in words of its own, with a remedy."""
    blamed = {culprit["node"]: culprit for culprit in document["culprits"]}
    for each in expected:
        assert each.node in blamed, (each, document["culprits"])
        culprit = blamed[each.node]
        assert f"{each.check}: " in culprit["because"], culprit
        assert each.because in culprit["because"], culprit
        assert each.remedy in culprit["remedy"], culprit


def assert_blamed_alone(document: dict[str, Any], nodes: set[str]) -> None:
    """These nodes are blamed and no other; where one is, the test says what for."""
    blamed = {culprit["node"] for culprit in document["culprits"]}
    assert blamed == nodes, [(c["node"], c["because"]) for c in document["culprits"]]


def assert_clean(lab: Any) -> None:
    """A validation passes, and blames nobody."""
    code, document = validated(lab)
    assert (code, document["verdict"], document["culprits"]) == (0, "pass", [])


@pytest.fixture
def broken(applied_lab: Any) -> Iterator[Any]:
    """The applied lab; whatever was injected is cleared, and then a validation is clean."""
    yield applied_lab
    applied_lab.clear_faults()


@pytest.mark.parametrize("expected", SINGLE, ids=lambda expected: expected.kind)
def test_a_fault_is_found_on_its_node_and_nowhere_else_and_a_clean_run_follows(
    broken: Any, expected: Expected
) -> None:
    broken.inject(expected.node, expected.kind)
    code, document = validated(broken)
    assert (code, document["verdict"]) == (1, "fail")
    assert_found(document, expected)
    assert_blamed_alone(document, {expected.node})
    assert document["coverage"]["pass"] > 0
    broken.clear_faults()
    assert_clean(broken)


@pytest.mark.parametrize(
    "pair",
    [
        (("gpu01", "clock-skew"), ("gpu03", "shm-small")),
        (("gpu02", "dns-broken"), ("gpu02", "disk-full")),
        (("gpu01", "node-hung"), ("registry01", "registry-down")),
        (("gpu01", "rank-crash"), ("gpu02", "rank-hang")),
    ],
    ids=lambda pair: " and ".join(f"{kind} on {node}" for node, kind in pair),
)
def test_two_faults_at_once_are_both_found(broken: Any, pair: tuple[tuple[str, str], ...]) -> None:
    for node, kind in pair:
        broken.inject(node, kind)
    code, document = validated(broken)
    assert (code, document["verdict"]) == (1, "fail")
    wanted = [
        Expected(kind, node, BY_KIND[kind].check, BY_KIND[kind].because, BY_KIND[kind].remedy)
        for node, kind in pair
    ]
    assert_found(document, *wanted)
    assert_blamed_alone(document, {node for node, _ in pair})


def test_a_gpu_and_a_link_are_found_beside_a_fault_of_another_host(broken: Any) -> None:
    broken.inject("gpu01", "gpu-missing", "--gpu", "3")
    broken.inject("gpu02", "slow-link")
    broken.inject("gpu03", "xid", "--gpu", "6")
    code, document = validated(broken)
    assert (code, document["verdict"]) == (1, "fail")
    blamed = {(culprit["node"], culprit["gpu"]) for culprit in document["culprits"]}
    assert blamed == {("gpu01", 3), ("gpu02", None), ("gpu03", 6)}
    assert all(culprit["because"] and culprit["remedy"] for culprit in document["culprits"])


def test_faults_are_cleared_after_a_reboot_in_any_order_and_twice(broken: Any) -> None:
    kinds = [each.kind for each in SINGLE if each.kind not in ("registry-down", "node-hung")]
    for kind in kinds:
        broken.inject("gpu02", kind)
    broken.inject("registry01", "registry-down")
    broken.inject("gpu02", "node-hung")
    for node in ("gpu02", "registry01"):
        reboot(broken, node)
    broken.lab("fault", "clear", "registry01")
    broken.lab("fault", "clear", "gpu02")
    again = broken.lab("fault", "clear")
    assert "no fault is in place" in again.stderr
    for kind in reversed(kinds):
        broken.inject("gpu02", kind)
        broken.lab("fault", "clear", "gpu02")
    assert_clean(broken)


def reboot(lab: Any, node: str) -> None:
    """Power the host off and on, as one that hangs has to be."""
    subprocess.run(
        ["docker", "restart", "--time", "5", lab.container(node)],
        check=True,
        capture_output=True,
        timeout=120,
    )
    deadline = time.monotonic() + 90
    while lab.clusterctl("lab", "ssh", node, "true", at_cluster=False).returncode != 0:
        assert time.monotonic() < deadline, f"{node} does not come back"
        time.sleep(1)


def test_a_stranger_is_refused_whatever_the_kind(applied_lab: Any, tmp_path: Any) -> None:
    """The inventory means another host by that name: nothing is touched."""
    text = (applied_lab.cluster / "hosts.yml").read_text(encoding="utf-8")
    (tmp_path / "hosts.yml").write_text(
        re.sub(r"(ansible_host: ['\"]?)[0-9.]+", r"\g<1>192.0.2.7", text), encoding="utf-8"
    )
    for expected in SINGLE:
        done = run_clusterctl(
            "-C", str(tmp_path), "lab", "fault", "inject", "--dir", str(applied_lab.directory),
            expected.node, expected.kind,
        )  # fmt: skip
        assert done.returncode == 2, expected.kind
        assert "lab.not-ours" in done.stderr, done.stderr
    assert "in place now: none" in applied_lab.lab("fault", "list").stdout
