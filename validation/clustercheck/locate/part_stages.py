"""Stages that measure parts of nodes: one GPU over one rail at a time, and GPUs over another's rail."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from statistics import median

from clustercheck.locate.faults import LocatedFault
from clustercheck.locate.isolation_state import IsolationState, Stage
from clustercheck.locate.pairs import Pair
from clustercheck.locate.trials import (
    MAX_PARALLEL_PARTS,
    Trial,
    list_ring_pairs,
    make_pair_trial,
    pack_rounds,
)

REPEATS = 2  # of a slow part, to rule out outliers


def measure_single_gpus(state: IsolationState) -> Stage:
    """Measures every GPU of each suspect over its own rail with a core partner; repeats the slow ones."""
    layout, measurements = state.layout, state.measurements
    in_links = {node for trial in state.slow_links() for node in trial.nodes}
    unlinked = [node for node in state.core_nodes() if node not in in_links]
    core = unlinked or state.core_nodes()
    suspects = state.find_suspects()[:MAX_PARALLEL_PARTS] if layout.gpus > 1 else []
    partners = {node: core[n % len(core)] for n, node in enumerate(suspects)}
    own = {
        node: [make_pair_trial(node, partner, gpu, layout.rail_of(gpu)) for gpu in range(layout.gpus)]
        for node, partner in partners.items()
    }
    yield [trial for trials in own.values() for trial in trials]
    few = {node: measurements.find_slow(trials, trials) for node, trials in own.items()}
    few = {node: slow for node, slow in few.items() if 0 < 2 * len(slow) <= layout.gpus}
    # Trials near the limit show whether the rail of a slow GPU is slow too.
    near = {node: measurements.find_near_limit(own[node], own[node]) for node in few}
    # The same part of two good nodes: if slow there too, it is not this node's fault.
    elsewhere = {
        trial: make_pair_trial(*_pick_good_pair(state, unlinked, number), trial.gpu, trial.rail)
        for number, trials in enumerate(near.values())
        for trial in trials
    }
    yield [trial for trials in near.values() for trial in trials * REPEATS] + [*elsewhere.values()] * REPEATS
    crossed: dict[tuple[str, int], tuple[Trial, Trial]] = {}
    for node, trials in own.items():
        slow = [
            trial.gpu or 0
            for trial in measurements.find_slow(trials, trials)
            if trial in elsewhere and measurements.is_slower(trial, elsewhere[trial])
        ]
        if 2 * len(slow) > layout.gpus:
            continue  # the node as a whole
        for gpu in slow:
            if pair := _cross_trials(state, node, partners[node], gpu, slow):
                crossed[node, gpu] = pair
            else:
                state.bad_parts.setdefault(node, []).append(
                    _judge_uncrossed(state, node, trials[gpu], trials, elsewhere[trials[gpu]])
                )
    yield [trial for pair in crossed.values() for trial in pair]
    slow_pairs = [measurements.find_slow(pair, own[node]) for (node, _), pair in crossed.items()]
    # If both are slow, one may be an outlier.
    yield [trial for slow_pair in slow_pairs for trial in slow_pair * (REPEATS if len(slow_pair) > 1 else 1)]
    for (node, gpu), pair in crossed.items():
        slow_pair = measurements.find_slow(pair, own[node])
        state.bad_parts.setdefault(node, []).append(_judge_crossed(state, node, gpu, pair, slow_pair))


def _pick_good_pair(state: IsolationState, nodes: Sequence[str], number: int) -> Pair:
    """Two of these core nodes, other ones for each suspect as far as possible; if too few, a fast pair."""
    if len(nodes) < 2:
        return state.measurements.pairs(bad=False)[0].pair
    return nodes[-1 - 2 * number % len(nodes)], nodes[-1 - (2 * number + 1) % len(nodes)]


def compare_rails(state: IsolationState) -> Stage:
    """Measures each rail over some pairs of all nodes: if it is slow for all, its switch is faulty."""
    layout = state.layout
    if layout.rails < 2 or state.has_compared_rails:
        return
    state.has_compared_rails = True
    core = state.core_nodes()
    pairs = [
        trial.pair for trial in pack_rounds(list_ring_pairs(core or layout.nodes))[0][:MAX_PARALLEL_PARTS]
    ]
    if core and len(pairs) < 2:
        return  # with one pair, either node may be the cause
    first = {layout.rail_of(gpu): gpu for gpu in reversed(range(layout.gpus))}
    of_rail = {
        rail: [make_pair_trial(a, b, gpu, rail) for a, b in pairs] for rail, gpu in sorted(first.items())
    }
    yield [trial for trials in of_rail.values() for trial in trials]
    yield [trial for rail in _find_slow_rails(state, of_rail) for trial in of_rail[rail] * REPEATS]
    slow = _find_slow_rails(state, of_rail)
    if 2 * len(slow) <= layout.rails:
        because = "slow for all nodes; the other rails are not"
        state.faults += [LocatedFault("rail", (), because, rail=rail) for rail in slow]
    if state.faults:
        state.measurements.ignore_floor()


def _find_slow_rails(state: IsolationState, of_rail: Mapping[int, list[Trial]]) -> list[int]:
    """The rails that are slower than the better half of rails with every pair."""
    speeds = {rail: state.measurements.bandwidths_of(trials) for rail, trials in of_rail.items()}
    best = {rail: max(values) for rail, values in speeds.items() if values}
    if not best:
        return []
    reference = median(sorted(best.values())[len(best) // 2 :])
    return [rail for rail, reached in best.items() if reached < state.measurements.noise_factor * reference]


def _cross_trials(
    state: IsolationState, node: str, partner: str, gpu: int, slow: Collection[int]
) -> tuple[Trial, Trial] | None:
    """The GPU over a good rail, and a good GPU over its rail; None if other GPUs of its rail decide."""
    layout = state.layout
    rail = layout.rail_of(gpu)
    if any(other != gpu and layout.rail_of(other) == rail for other in range(layout.gpus)):
        return None
    others = [other for other in range(layout.gpus) if other not in slow]
    other = others[gpu % len(others)]
    return make_pair_trial(node, partner, gpu, layout.rail_of(other)), make_pair_trial(
        node, partner, other, rail
    )


def _judge_uncrossed(
    state: IsolationState, node: str, slow: Trial, trials: Sequence[Trial], elsewhere: Trial
) -> LocatedFault:
    """The GPU if the others of its rail are fast, the rail if all of them are as slow."""
    measurements, gpu, rail = state.measurements, slow.gpu or 0, slow.rail or 0
    mates = [trial for trial in trials if trial.rail == rail and trial != slow]
    near = [
        t
        for t in measurements.find_near_limit(mates, trials)
        if measurements.is_slower_than_noise(t, elsewhere)
    ]
    fast = [trial for trial in mates if measurements.count_measures(trial) and trial not in near]
    if fast == mates:
        over = f" over its rail {rail}" if state.layout.rails > 1 else ""
        return _make_gpu_fault(node, gpu, f"GPU {gpu} is slow; the others{over} are not")
    if not fast and not any(measurements.is_slower(slow, trial) for trial in mates):
        return _make_rail_fault(node, rail, f"every GPU is slow over rail {rail}, none over the others")
    return _make_gpu_or_rail_fault(node, gpu, rail)


def _judge_crossed(
    state: IsolationState, node: str, gpu: int, pair: tuple[Trial, Trial], slow: Collection[Trial]
) -> LocatedFault:
    over_good, good_over = (trial in slow for trial in pair)
    rail = state.layout.rail_of(gpu)
    if over_good and not good_over:
        return _make_gpu_fault(
            node, gpu, f"GPU {gpu} is also slow over rail {pair[0].rail}; rail {rail} is not"
        )
    if good_over and not over_good:
        return _make_rail_fault(
            node, rail, f"rail {rail} is also slow with GPU {pair[1].gpu}; GPU {gpu} is not"
        )
    return _make_gpu_or_rail_fault(node, gpu, rail)


def _make_gpu_or_rail_fault(node: str, gpu: int, rail: int) -> LocatedFault:
    return LocatedFault("node", (node,), f"GPU {gpu} over rail {rail} is slow; either may be the cause")


def _make_gpu_fault(node: str, gpu: int, because: str) -> LocatedFault:
    return LocatedFault("gpu", (node,), because, gpu=gpu)


def _make_rail_fault(node: str, rail: int, because: str) -> LocatedFault:
    return LocatedFault("rail", (node,), because, rail=rail)
