"""The lab's book of faults: what is written before anything is touched, and in what order it is cleared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clusterctl.errors import ClusterctlError
from clusterlab import cache, fault_book, faults, hardware
from clusterlab.faults.base import FaultTarget, LabFault
from clusterlab.state import LabDirectory, LabNode, LabState

NODE = LabNode(name="gpu01", role="gpu", address="10.87.1.11", image="i")
STATE = LabState(suffix="0badcafe", system="debian12", hardware="hgx-a100-80gb", nodes=[NODE])
FAILURE = ClusterctlError("the node does not answer", code="lab.program-failed", exit_code=3)


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LabDirectory:
    """A lab on paper whose gpu01 passes for this machine's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(fault_book, "require_ours", lambda _lab, state, _inventory, name: state.node(name))
    lab = LabDirectory(tmp_path / ".lab")
    lab.save(STATE.model_copy(update={"suffix": lab.names.suffix, "faults": []}))
    hardware.save(hardware.build("none", "gpu01"), lab.hardware("gpu01"))
    return lab


def use_fault(monkeypatch: pytest.MonkeyPatch, inject: Any, clear: Any) -> None:
    fault = LabFault("gremlin", "something unexplained", "node", inject, clear, caught_by=("xid",))
    monkeypatch.setattr(faults, "known", lambda: {"gremlin": fault})


def booked(lab: LabDirectory) -> list[tuple[str, str]]:
    return [(one.kind, one.state) for one in lab.require().faults]


def inject(lab: LabDirectory) -> Any:
    return fault_book.inject(lab, lab.cluster / "hosts.yml", "gpu01", "gremlin", gpu=None, peer=None)


def test_a_fault_is_on_the_book_before_anything_is_touched_and_under_the_labs_lock(
    lab: LabDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def act(target: FaultTarget) -> None:
        seen.extend(booked(lab))
        target.undo["rate"] = "5"
        with pytest.raises(BlockingIOError), cache.alone():
            pass

    use_fault(monkeypatch, act, lambda _target: None)
    assert inject(lab).state == "in place"
    assert seen == [("gremlin", "being injected")]
    assert booked(lab) == [("gremlin", "in place")]
    assert lab.require().faults[0].undo == {"rate": "5"}


def test_a_fault_that_cannot_be_injected_is_taken_back_and_off_the_book(
    lab: LabDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_target: FaultTarget) -> None:
        raise FAILURE

    cleared: list[FaultTarget] = []
    use_fault(monkeypatch, fail, cleared.append)
    with pytest.raises(ClusterctlError, match="does not answer"):
        inject(lab)
    assert len(cleared) == 1
    assert booked(lab) == []


@pytest.mark.parametrize("error", [FAILURE, KeyboardInterrupt()])
def test_half_a_fault_that_could_not_be_taken_back_stays_to_be_cleared(
    lab: LabDirectory, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def fail(_target: FaultTarget) -> None:
        raise error

    use_fault(monkeypatch, fail, fail)
    with pytest.raises(type(error)):
        inject(lab)
    assert booked(lab) == [("gremlin", "being injected")]
    use_fault(monkeypatch, fail, lambda _target: None)
    with pytest.raises(ClusterctlError, match="is being injected on gpu01 already"):
        inject(lab)
    assert len(fault_book.clear(lab, lab.cluster / "hosts.yml", "gpu01")) == 1
    assert booked(lab) == []


def test_a_host_that_is_off_or_hangs_is_brought_back_before_its_other_faults_are_cleared(
    lab: LabDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    kinds = {
        kind: LabFault(
            kind,
            "something",
            "node",
            lambda _target: None,
            lambda _target, kind=kind: order.append(kind),
            caught_by=("xid",),
        )
        for kind in ("dns-broken", "node-hung", "shm-small", "node-down")
    }
    monkeypatch.setattr(faults, "known", lambda: kinds)
    inventory = lab.cluster / "hosts.yml"
    for kind in ("node-hung", "dns-broken", "node-down", "shm-small"):
        fault_book.inject(lab, inventory, "gpu01", kind, gpu=None, peer=None)
    fault_book.clear(lab, inventory, None)
    assert set(order[:2]) == {"node-down", "node-hung"}
    assert order[2:] == ["shm-small", "dns-broken"]
    assert fault_book.clear(lab, inventory, None) == []
