"""Stages that look into nodes: one GPU over one rail at a time, and GPUs over another's rail."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from statistics import median

from clustercheck.locate.case import Case, Stage
from clustercheck.locate.located import Named
from clustercheck.locate.trials import PARTS_AT_ONCE, Trial, neighbours, rounds_of, trial_of

AGAIN = 2  # times: a part that is slow once in so many is an outlier


def take_apart(case: Case) -> Stage:
    """Every GPU of each suspect over its own rail, with a partner of the core; the slow ones again."""
    layout, measured = case.layout, case.measured
    in_links = {node for trial in case.links() for node in trial.nodes}
    core = [node for node in case.core() if node not in in_links] or case.core()
    suspects = case.suspects()[:PARTS_AT_ONCE] if layout.gpus > 1 else []
    partners = {node: core[n % len(core)] for n, node in enumerate(suspects)}
    own = {
        node: [trial_of(node, partner, gpu, layout.rail_of(gpu)) for gpu in range(layout.gpus)]
        for node, partner in partners.items()
    }
    yield [trial for trials in own.values() for trial in trials]
    few = {node: measured.slow_among(trials, trials) for node, trials in own.items()}
    few = {node: slow for node, slow in few.items() if 0 < 2 * len(slow) <= layout.gpus}
    # What is near the limit tells whether a slow one's rail is slow, too.
    near = {node: measured.near_among(own[node], own[node]) for node in few}
    # The same part of two good nodes: what is slow there, too, is not this one's.
    elsewhere = {
        trial: trial_of(*_good_pair(core, node, number), trial.gpu, trial.rail)
        for number, (node, trials) in enumerate(near.items())
        for trial in trials
    }
    yield [trial for trials in near.values() for trial in trials * AGAIN] + [*elsewhere.values()] * AGAIN
    crossed: dict[tuple[str, int], tuple[Trial, Trial]] = {}
    for node, trials in own.items():
        slow = [
            trial.gpu or 0
            for trial in measured.slow_among(trials, trials)
            if trial in elsewhere and measured.is_slower(trial, elsewhere[trial])
        ]
        if 2 * len(slow) > layout.gpus:
            continue  # the node as a whole
        for gpu in slow:
            if pair := _exchanged(case, node, partners[node], gpu, slow):
                crossed[node, gpu] = pair
            else:
                case.parts.setdefault(node, []).append(
                    _without_exchange(case, node, trials[gpu], trials, elsewhere[trials[gpu]])
                )
    yield [trial for pair in crossed.values() for trial in pair]
    again = [measured.slow_among(pair, own[node]) for (node, _), pair in crossed.items()]
    # Of two one may be an outlier, and twice.
    yield [trial for slow_pair in again for trial in slow_pair * (AGAIN if len(slow_pair) > 1 else 1)]
    for (node, gpu), pair in crossed.items():
        slow_pair = measured.slow_among(pair, own[node])
        case.parts.setdefault(node, []).append(_by_exchange(case, node, gpu, pair, slow_pair))


def _good_pair(core: Sequence[str], suspect: str, number: int) -> tuple[str, str]:
    """Two nodes of the core, others for each suspect as far as there are any."""
    good = [node for node in core if node != suspect]
    return good[-1 - 2 * number % len(good)], good[-1 - (2 * number + 1) % len(good)]


def compare_rails(case: Case) -> Stage:
    """Rail by rail over some pairs of all nodes: one that is slow for everyone is its own switch's."""
    layout = case.layout
    if layout.rails < 2 or case.has_compared_rails:
        return
    case.has_compared_rails = True
    core = case.core()
    pairs = [trial.pair for trial in rounds_of(neighbours(core or layout.nodes))[0][:PARTS_AT_ONCE]]
    if core and len(pairs) < 2:
        return  # what is slow in one pair may be either node's
    first = {layout.rail_of(gpu): gpu for gpu in reversed(range(layout.gpus))}
    of_rail = {rail: [trial_of(a, b, gpu, rail) for a, b in pairs] for rail, gpu in sorted(first.items())}
    yield [trial for trials in of_rail.values() for trial in trials]
    yield [trial for rail in _slow_rails(case, of_rail) for trial in of_rail[rail] * AGAIN]
    slow = _slow_rails(case, of_rail)
    if 2 * len(slow) <= layout.rails:
        because = "slow for all nodes; the other rails are not"
        case.found += [Named("rail", (), because, rail=rail) for rail in slow]
    if case.found:
        case.measured.set_floor_aside()


def _slow_rails(case: Case, of_rail: Mapping[int, list[Trial]]) -> list[int]:
    """The rails that are slower with every pair than the better half of rails."""
    speeds = {rail: case.measured.speeds(trials) for rail, trials in of_rail.items()}
    best = {rail: max(values) for rail, values in speeds.items() if values}
    if not best:
        return []
    usual = median(sorted(best.values())[len(best) // 2 :])
    return [rail for rail, reached in best.items() if reached < case.measured.near_part * usual]


def _exchanged(
    case: Case, node: str, partner: str, gpu: int, slow: Collection[int]
) -> tuple[Trial, Trial] | None:
    """The GPU over a good rail, and a good GPU over its rail; None where others of its rail tell already."""
    layout = case.layout
    rail = layout.rail_of(gpu)
    good = [other for other in range(layout.gpus) if other not in slow]
    others = [other for other in good if layout.rail_of(other) != rail]
    mates = [other for other in range(layout.gpus) if other != gpu and layout.rail_of(other) == rail]
    if mates or not others:
        return None
    other = others[gpu % len(others)]
    return trial_of(node, partner, gpu, layout.rail_of(other)), trial_of(node, partner, other, rail)


def _without_exchange(case: Case, node: str, slow: Trial, trials: Sequence[Trial], elsewhere: Trial) -> Named:
    """The GPU where the others of its rail are fast, the rail where all of them are as slow."""
    measured, gpu, rail = case.measured, slow.gpu or 0, slow.rail or 0
    mates = [trial for trial in trials if trial.rail == rail and trial != slow]
    near = [t for t in measured.near_among(mates, trials) if measured.is_slower_than_noise(t, elsewhere)]
    fast = [trial for trial in mates if measured.times(trial) and trial not in near]
    if fast == mates:
        over = f" over its rail {rail}" if case.layout.rails > 1 else ""
        return _gpu(node, gpu, f"GPU {gpu} is slow; the others{over} are not")
    if not fast and not any(measured.is_slower(slow, trial) for trial in mates):
        return _rail(node, rail, f"every GPU is slow over rail {rail}, none over the others")
    return _either(node, gpu, rail)


def _by_exchange(
    case: Case, node: str, gpu: int, pair: tuple[Trial, Trial], slow: Collection[Trial]
) -> Named:
    over_good, good_over = (trial in slow for trial in pair)
    rail = case.layout.rail_of(gpu)
    if over_good and not good_over:
        return _gpu(node, gpu, f"GPU {gpu} is also slow over rail {pair[0].rail}; rail {rail} is not")
    if good_over and not over_good:
        return _rail(node, rail, f"rail {rail} is also slow with GPU {pair[1].gpu}; GPU {gpu} is not")
    return _either(node, gpu, rail)


def _either(node: str, gpu: int, rail: int) -> Named:
    return Named("node", (node,), f"GPU {gpu} over rail {rail} is slow; either may be the cause")


def _gpu(node: str, gpu: int, because: str) -> Named:
    return Named("gpu", (node,), because, gpu=gpu)


def _rail(node: str, rail: int, because: str) -> Named:
    return Named("rail", (node,), because, rail=rail)
