"""The order of hosts and the gate between waves, as data."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from clusterctl.engine.ledger import HostState
from clusterctl.rollout.gate import PASSABLE, decide
from clusterctl.rollout.waves import MAX_WAVE, plan_waves

names = st.lists(st.sampled_from([f"h{n:03d}" for n in range(150)]), unique=True, max_size=150)


@given(hosts=names, data=st.data(), size=st.integers(1, MAX_WAVE), canaries=st.integers(0, 3))
def test_every_host_is_in_exactly_one_wave_or_is_left_out_with_its_reason(hosts, data, size, canaries):
    subset = st.lists(st.sampled_from(hosts), unique=True) if hosts else st.just([])
    registry, gpu, quarantined = data.draw(subset), data.draw(subset), data.draw(subset)
    out = dict.fromkeys(quarantined, "broken fan")
    plan = plan_waves(hosts, registry=registry, gpu_nodes=gpu, left_out=out, canaries=canaries, size=size)
    assert sorted([*plan.hosts, *plan.left_out]) == sorted(hosts)
    assert len(set(plan.hosts)) == len(plan.hosts)
    assert plan.left_out == {host: out[host] for host in hosts if host in out}
    assert all(0 < len(wave.hosts) <= size for wave in plan.waves)
    place = {host: number for number, wave in enumerate(plan.waves) for host in wave.hosts}
    registries = [place[h] for h in registry if h in place]
    others = [place[h] for h in place if h not in registry]
    assert not registries or not others or max(registries) < min(others)
    nodes = [h for h in hosts if h in place and h in gpu and h not in registry]
    if canaries and len(nodes) > canaries:
        first = min(place[h] for h in nodes)
        assert [h for h in nodes if place[h] == first] == nodes[: min(canaries, size)]


def test_an_ordinary_cluster():
    hosts = ["gpu01", "gpu02", "gpu03", "registry01", "login01"]
    plan = plan_waves(
        hosts,
        registry=["registry01"],
        gpu_nodes=["gpu01", "gpu02", "gpu03"],
        left_out={"gpu01": "quarantine: fan", "gone": "not selected"},
    )
    assert [(w.name, w.hosts) for w in plan.waves] == [
        ("registry", ("registry01",)),
        ("services", ("login01",)),
        ("canary", ("gpu02",)),
        ("nodes", ("gpu03",)),
    ]
    assert plan.left_out == {"gpu01": "quarantine: fan"}


def test_one_node_alone_is_no_canary():
    assert [w.name for w in plan_waves(["gpu01"], gpu_nodes=["gpu01"]).waves] == ["nodes"]


@given(states=st.dictionaries(st.sampled_from(["a", "b", "c"]), st.sampled_from(list(HostState))))
def test_the_gate_opens_only_when_every_expected_host_is_known_to_be_well(states):
    decision = decide(("a", "b", "c"), states)
    assert decision.go is all(states.get(host) in PASSABLE for host in "abc")
    assert bool(decision.reason) is not decision.go


def test_a_host_that_said_nothing_stops_the_next_wave():
    assert decide(("gpu01", "gpu02"), {"gpu01": HostState.GOOD}).reason == "gpu02 fell silent"


def test_the_gate_says_in_which_task_a_host_fell_silent():
    states = {"gpu01": HostState.INTERRUPTED, "gpu02": HostState.SILENT}
    reasons = {"gpu01": "broken off", "gpu02": "no word for 20 min in: Install"}
    decision = decide(("gpu01", "gpu02"), states, reasons)
    assert decision.reason == (
        "gpu01 was interrupted; gpu02 fell silent; gpu02: no word for 20 min in: Install"
    )
