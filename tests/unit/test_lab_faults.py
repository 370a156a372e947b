"""Faults go to the lab's own hosts alone, and concern what exists."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from tests.lab import fault_cases

from clustercheck import suites
from clusterctl.errors import ClusterctlError
from clusterlab import cache, docker, fault_book, faults, hardware
from clusterlab.fault_book import check_request, inventory_addresses, refusal, require_kind
from clusterlab.faults import slow_link
from clusterlab.faults.base import Fault, FaultTarget
from clusterlab.names import LABEL_LAB, LABEL_NODE
from clusterlab.state import LabDirectory, Node, State

NODE = Node(name="gpu01", role="gpu", address="10.87.1.11", image="i")
PEER = Node(name="gpu02", role="gpu", address="10.87.1.12", image="i")
DEPOT = Node(name="depot", role="depot", address="10.87.1.2", image="d")
STATE = State(suffix="0badcafe", system="debian12", hardware="hgx-a100-80gb", nodes=[NODE, PEER, DEPOT])
OURS = {"Config": {"Labels": {LABEL_LAB: "0badcafe", LABEL_NODE: "gpu01"}}}


OF_LINKS = {"pair-slow", "link-cut"}
# What a person may break on one GPU; all else concerns a node.
OF_GPUS = {
    "gpu-missing", "gpu-fell-off-bus", "gpu-model-wrong", "xid", "ecc-uncorrectable", "ecc-off",
    "sram-threshold", "remap-pending", "remap-failed", "recovery-reboot", "nvlink-down", "throttled",
    "power-brake", "pcie-narrow", "pcie-slow", "peer-access-off", "numa-skew", "gpu-slow", "power-limit-low",
    "nvlink-slow", "gpu-memory-slow", "gpu-wrong-numbers", "gpu-copy-corrupt", "gpu-launch-slow",
    "gpu-memory-errors", "vbios-skew", "mig-enabled", "nvlink-errors",
}  # fmt: skip


def test_every_kind_is_there_and_says_what_it_is() -> None:
    kinds = faults.known()
    assert len(kinds) >= 55
    assert {kind for kind, fault in kinds.items() if fault.scope == "gpu"} == OF_GPUS
    assert {kind for kind, fault in kinds.items() if fault.scope == "link"} == OF_LINKS
    for kind, fault in kinds.items():
        assert fault.kind == kind
        assert len(fault.summary) > 15


def test_what_must_find_a_fault_is_a_check_of_its_suite() -> None:
    for kind, fault in faults.known().items():
        suite = suites.load(fault.suite)
        assert fault.caught_by, kind
        assert set(fault.caught_by) <= {check.id for check in suite.selected()}, kind


def test_the_campaign_has_each_kind_once_and_where_the_lab_can_put_it() -> None:
    assert sorted(case.kind for case in fault_cases.CASES) == sorted(faults.known())
    for case in fault_cases.CASES:
        check_request(range(8), STATE, case.fault, "gpu01", gpu=case.gpu, peer=case.peer and "gpu02")


def test_what_a_fault_leaves_behind_is_not_on_the_node_of_the_next() -> None:
    assert [one.kind for one, other in pairwise(fault_cases.CASES) if one.node == other.node] == []


@given(st.text())
def test_a_seed_draws_of_every_family_and_the_same_again(seed: str) -> None:
    cases = fault_cases.sample(seed, 6)
    assert cases == fault_cases.sample(seed, 6)
    assert len({case.kind for case in cases}) == 6
    assert {case.family for case in cases} == set(fault_cases.FAMILIES)
    assert {case.fault.suite for case in cases} == {"quick"}


def test_in_a_year_of_days_every_fault_that_takes_no_minutes_is_drawn() -> None:
    drawn = {case.kind for day in range(365) for case in fault_cases.sample(str(day), 6)}
    assert set(faults.known()) - drawn == {"gpu-memory-errors", "nvlink-slow", "packet-loss"}


def test_our_own_host_is_not_refused() -> None:
    assert refusal("gpu01", STATE, {"gpu01": NODE.address}, OURS) == ""


@pytest.mark.parametrize(
    ("name", "addresses", "container", "why"),
    [
        ("gpu09", {"gpu09": "10.87.1.19"}, None, "state does not know"),
        ("depot", {"depot": DEPOT.address}, OURS, "state does not know"),
        ("gpu01", {}, OURS, "inventory does not have it"),
        ("gpu01", {"gpu01": "192.0.2.7"}, OURS, "inventory has it at 192.0.2.7, the lab at 10.87.1.11"),
        ("gpu01", {"gpu01": None}, OURS, "an address of its own"),
        ("gpu01", {"gpu01": NODE.address}, None, "no container"),
        ("gpu01", {"gpu01": NODE.address}, {"Config": {"Labels": None}}, "labels"),
        ("gpu01", {"gpu01": NODE.address}, {"Config": {"Labels": {LABEL_LAB: "0badcafe"}}}, "labels"),
        (
            "gpu01",
            {"gpu01": NODE.address},
            {"Config": {"Labels": {LABEL_LAB: "another0", LABEL_NODE: "gpu01"}}},
            "labels",
        ),
    ],
)
def test_any_other_host_is_refused_with_the_reason(
    name: str, addresses: dict[str, str | None], container: dict[str, Any] | None, why: str
) -> None:
    assert why in refusal(name, STATE, addresses, container)


@given(st.ip_addresses(v=4).map(str))
def test_no_other_address_passes_for_the_labs(address: str) -> None:
    if address != NODE.address:
        assert refusal("gpu01", STATE, {"gpu01": address}, OURS)


def test_hosts_are_found_wherever_an_inventory_has_them() -> None:
    content = yaml.safe_load(
        """
        all:
          hosts: {login: {}}
          children:
            gpu_nodes:
              children:
                rack1: {hosts: {gpu01: {ansible_host: 10.0.0.1}, gpu02: }}
            registry: {hosts: {registry01: {ansible_host: 10.0.0.5}}}
        """
    )
    found = dict(inventory_addresses(content))
    assert found == {"login": None, "gpu01": "10.0.0.1", "gpu02": None, "registry01": "10.0.0.5"}


@given(
    st.recursive(st.none() | st.booleans() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x))
)
def test_no_inventory_is_too_strange_to_be_looked_through(content: Any) -> None:
    list(inventory_addresses(content))


@pytest.mark.parametrize(
    ("kind", "gpus", "gpu", "peer", "problem"),
    [
        ("gpu-missing", range(8), None, None, "wants a GPU: --gpu 0 to 7"),
        ("gpu-missing", range(8), 9, None, "has no GPU 9"),
        ("gpu-missing", [], 0, None, "has no GPUs"),
        ("node-down", range(8), 1, None, "whole node, not a GPU"),
        ("node-down", range(8), None, "gpu02", "concerns no peer"),
        ("pair-slow", range(8), None, None, "--peer NODE"),
        ("pair-slow", range(8), None, "gpu01", "no other host of the lab"),
    ],
)
def test_a_request_that_does_not_suit_the_kind_is_explained(
    kind: str, gpus: Any, gpu: int | None, peer: str | None, problem: str
) -> None:
    with pytest.raises(ClusterctlError) as caught:
        check_request(gpus, STATE, require_kind(kind), "gpu01", gpu=gpu, peer=peer)
    assert caught.value.code == "lab.fault-scope"
    assert problem in caught.value.what


def test_a_request_that_suits_passes() -> None:
    check_request(range(8), STATE, require_kind("gpu-missing"), "gpu01", gpu=3, peer=None)
    check_request(range(8), STATE, require_kind("node-down"), "gpu01", gpu=None, peer=None)


def test_an_unknown_kind_names_the_known() -> None:
    with pytest.raises(ClusterctlError) as caught:
        require_kind("gremlins")
    assert "node-down" in caught.value.hint


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
    fault = Fault("gremlin", "something unexplained", "node", inject, clear, caught_by=("xid",))
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


class Link(FaultTarget):
    """A node whose tc says one root discipline, and remembers what it was told."""

    def exec(
        self, argv: Sequence[str], stdin: str = "", timeout_s: float = 60, *, check: bool = True
    ) -> subprocess.CompletedProcess[bytes]:
        if "show" in argv:
            return subprocess.CompletedProcess(argv, 0, self.undo["said"].encode(), b"")
        self.undo["told"] = " ".join(argv)
        return subprocess.CompletedProcess(argv, 0, b"", b"")

    def is_running(self) -> bool:
        return True


def a_link(said: str) -> Link:
    return Link("gpu01", "none", Path("none"), undo={"said": said})


@pytest.mark.parametrize(
    ("said", "ours"),
    [
        ("qdisc noqueue 0: root refcnt 2", True),
        ("", True),
        ("qdisc tbf c1ab: root refcnt 2 rate 100Mbit burst 4Kb lat 50ms", True),
        ("qdisc tbf 8001: root refcnt 2 rate 1Gbit burst 4Kb lat 50ms", False),
    ],
)
def test_a_slow_link_never_replaces_what_an_operator_has_set_up(said: str, ours: bool) -> None:
    link = a_link(said)
    if ours:
        slow_link.FAULT.inject(link)
        assert "root handle c1ab: tbf rate 100mbit" in link.undo["told"]
    else:
        with pytest.raises(ClusterctlError, match="8001:") as caught:
            slow_link.FAULT.inject(link)
        assert caught.value.code == "lab.link-shaped"
        assert "told" not in link.undo
    link = a_link(said)
    slow_link.FAULT.clear(link)
    assert link.undo.get("told") == ("tc qdisc del dev eth0 root handle c1ab:" if "c1ab:" in said else None)


def test_a_host_that_is_off_or_hangs_is_brought_back_before_its_other_faults_are_cleared(
    lab: LabDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    kinds = {
        kind: Fault(
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


class Engine:
    """Answers what faults ask of a host; says what it was told to do."""

    def __init__(
        self, *, running: bool = True, paused: bool = False, codes: Mapping[str, int] | None = None
    ) -> None:
        self.state = {"Running": running, "Paused": paused}
        self.codes = codes or {}
        self.told: list[str] = []

    def inspect(self, _kind: str, _names: Sequence[str]) -> list[dict[str, Any]]:
        return [{"State": self.state}]

    def run(self, arguments: Sequence[str]) -> None:
        self.told.append(arguments[0])

    def execute(
        self, _container: str, argv: Sequence[str], *, check: bool = True, **_more: Any
    ) -> subprocess.CompletedProcess[bytes]:
        said = " ".join(argv)
        code = next((code for words, code in self.codes.items() if words in said), 0)
        assert code == 0 or not check
        self.told.append(said)
        return subprocess.CompletedProcess(argv, code, b"", b"")


# What these do, they do on the host alone: hardware.json is not touched.
HOST_FAULTS = sorted(
    {kind for kind, fault in faults.known().items() if fault.scope != "gpu"}
    - {
        "node-down",
        "node-hung",
        "driver-version-skew",
        "fabricmanager-version-skew",
        "toolkit-broken",
        "sxid",
    }
)


def engine_target(monkeypatch: pytest.MonkeyPatch, engine: Engine) -> FaultTarget:
    for name in ("inspect", "run", "execute"):
        monkeypatch.setattr(docker, name, getattr(engine, name))
    return FaultTarget("gpu01", "container", Path("/nowhere"))


@pytest.mark.parametrize("kind", HOST_FAULTS)
def test_clearing_touches_nothing_on_a_host_that_is_off(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(running=False)
    require_kind(kind).clear(engine_target(monkeypatch, engine))
    assert engine.told == []


@pytest.mark.parametrize(("paused", "told"), [(True, ["unpause"]), (False, [])])
def test_a_host_that_was_restarted_hangs_no_more(
    monkeypatch: pytest.MonkeyPatch, paused: bool, told: list[str]
) -> None:
    engine = Engine(paused=paused)
    require_kind("node-hung").clear(engine_target(monkeypatch, engine))
    assert engine.told == told


@pytest.mark.parametrize(
    ("kind", "codes", "expected"),
    [
        ("registry-down", {"systemctl cat": 1}, "lab.no-registry"),
        ("clock-skew", {"[ ! -e": 1}, "lab.program-taken"),
    ],
)
def test_what_is_not_there_or_somebody_elses_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, kind: str, codes: dict[str, int], expected: str
) -> None:
    engine = Engine(codes=codes)
    with pytest.raises(ClusterctlError) as caught:
        require_kind(kind).inject(engine_target(monkeypatch, engine))
    assert caught.value.code == expected
    assert all(said.startswith(("systemctl cat ", "sh -c [ ! -e")) for said in engine.told), engine.told


def test_of_a_registry_host_the_service_that_is_there_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(codes={"cat clusterctl-registry": 1})
    target = engine_target(monkeypatch, engine)
    require_kind("registry-down").inject(target)
    require_kind("registry-down").clear(target)
    assert [said for said in engine.told if "cat" not in said] == [
        "systemctl stop harbor.service", "systemctl start harbor.service",
    ]  # fmt: skip
