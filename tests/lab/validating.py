"""A validation of the lab as tests want it: its document, and what it says of a fault that is in place."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .conftest import RunningLab
from .fault_cases import Case
from .on_node import until

REGISTRY = "registry01"
# Checks of these scopes concern one part: they fail where the fault is, and nowhere else.
OF_PARTS = ("host", "gpu", "link")
BOUND_S = 480.0  # a quick validation with a fault in it succeeds within this, whatever the fault
BOOT_S = 120.0
Document = dict[str, Any]


def validated(lab: RunningLab, *, suite: str = "quick") -> tuple[int, Document]:
    """Exit code and result document of a validation, which ends in time."""
    bound = BOUND_S if suite == "quick" else 3 * BOUND_S
    begun = time.monotonic()
    done = lab.clusterctl("validate", "--json", "--suite", suite, timeout=bound)
    assert "Traceback" not in done.stderr
    assert done.stdout.strip(), done.stderr
    document: Document = json.loads(done.stdout.splitlines()[-1])
    document["seconds"] = time.monotonic() - begun
    return done.returncode, document


def assert_good(lab: RunningLab) -> Document:
    """The cluster is good, and nobody is blamed."""
    code, document = validated(lab)
    failed = [(r["check"], r["subject"], r.get("because")) for r in failed_of(document)]
    found = (code, document["verdict"], document["culprits"], failed)
    assert found == (0, "pass", [], []), found
    return document


def failed_of(document: Document) -> list[Document]:
    """The results that are fails."""
    return [result for result in document["results"] if result["verdict"] == "fail"]


def warned_of(document: Document) -> list[Document]:
    """The results that are warnings."""
    return [result for result in document["results"] if result["verdict"] == "warning"]


def assert_warned(document: Document, case: Case) -> None:
    """Its checks warn on its node and nowhere else, in words of its own; nobody is blamed."""
    warnings = [one for one in warned_of(document) if one["check"] in case.fault.caught_by]
    assert {one["check"] for one in warnings} == set(case.fault.caught_by), case.kind
    assert {one["subject"]["node"] for one in warnings} == {case.node}
    assert all(case.because in one["because"] and case.remedy in one["remedy"] for one in warnings), warnings
    assert (failed_of(document), document["culprits"]) == ([], [])


def reasons_of(culprit: dict[str, Any]) -> list[str]:
    """Its line, and all reasons in full where that does not have them."""
    return [culprit["because"], *culprit.get("reasons", ())]


def assert_found(document: Document, *cases: Case) -> None:
    """Each is found by its checks and blamed on its place, in words of its own; and nobody else is."""
    blamed = {(one["node"], one["gpu"]): one for one in document["culprits"] if one["node"]}
    failed = failed_of(document)
    places = {(case.node, gpu_of(case, document)) for case in cases}
    assert set(blamed) == places, [(place, one["because"]) for place, one in blamed.items()]
    for case in cases:
        culprit = blamed[case.node, gpu_of(case, document)]
        found_by = {result["check"] for result in failed}
        assert set(case.fault.caught_by) <= found_by, (case.kind, found_by)
        assert any(case.because in reason for reason in reasons_of(culprit)), (case.kind, culprit)
        assert case.remedy in culprit["remedy"], (case.kind, culprit)
        assert case.peer in (None, REGISTRY, culprit["peer"]), culprit
    # What concerns a whole node may show at each of its GPUs; what concerns a GPU shows there alone. A server
    # that answers nobody shows at everybody who asks it.
    of_servers = {check for case in cases if case.node == REGISTRY for check in case.fault.caught_by}
    strangers = [
        (result["check"], result["subject"])
        for result in failed
        if result["scope"] in OF_PARTS
        and result["check"] not in of_servers
        and places.isdisjoint({(result["subject"]["node"], gpu) for gpu in (None, result["subject"]["gpu"])})
    ]
    assert strangers == []


def gpu_of(case: Case, document: Document) -> int | None:
    """The GPU that is to be blamed; None where checks of hosts alone see the fault."""
    scopes = {result["check"]: result["scope"] for result in document["results"]}
    of_gpu = any(scopes.get(check) in ("gpu", "link") for check in case.fault.caught_by)
    return case.gpu if of_gpu else None


def power_cycle(lab: RunningLab, node: str) -> None:
    """Off and on, as one that hangs has to be; returns when it has booted, be it with units that failed."""
    docker("restart", "--time", "5", lab.container(node))
    until_booted(lab, node)


@contextmanager
def powered_off(lab: RunningLab, node: str) -> Iterator[None]:
    """Without power from one moment to the next; afterwards it has booted, be it with units that failed."""
    docker("kill", lab.container(node))
    try:
        yield
    finally:
        docker("start", lab.container(node))
        until_booted(lab, node)


def docker(*arguments: str) -> None:
    """A command of the lab's engine, on this machine."""
    subprocess.run(["docker", *arguments], check=True, capture_output=True, timeout=BOOT_S)


def until_booted(lab: RunningLab, node: str) -> None:
    """Wait for the end of its boot."""
    until(lab, "systemctl is-system-running --wait | grep -qxE 'running|degraded'", host=node)
