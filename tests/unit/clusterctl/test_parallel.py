"""Calls in parallel: results in order, and none started after an error or an interruption."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from clusterctl.parallel import parallel_map, parallel_map_fairly


def test_the_results_are_in_order() -> None:
    assert parallel_map(lambda n: n * n, range(20), limit=4) == [n * n for n in range(20)]


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_an_end_while_work_is_handed_out_begins_nothing_more(error: type[BaseException]) -> None:
    begun: list[int] = []
    stop = threading.Event()

    def work(number: int) -> None:
        begun.append(number)
        assert stop.wait(30), "nobody told those under way"

    def items() -> Iterator[int]:
        yield from range(10)
        raise error

    with pytest.raises(error):
        parallel_map(work, items(), limit=2, stop=stop)
    assert stop.is_set()
    assert len(begun) <= 2


def test_no_more_calls_than_the_limit_run_at_a_time() -> None:
    together = threading.Barrier(3)
    running, most, guard = 0, 0, threading.Lock()

    def work(_number: int) -> None:
        nonlocal running, most
        with guard:
            running += 1
            most = max(most, running)
        together.wait(30)
        with guard:
            running -= 1

    parallel_map(work, range(9), limit=3)
    assert most == 3


def test_a_call_that_fails_ends_those_under_way_and_starts_no_other() -> None:
    started: list[int] = []
    stop = threading.Event()

    def work(number: int) -> None:
        started.append(number)
        if number == 1:
            raise ValueError(number)
        assert stop.wait(30), "nobody told those under way"

    with pytest.raises(ValueError, match="1"):
        parallel_map(work, range(10), limit=2, stop=stop)
    assert len(started) <= 3


def test_results_are_told_as_they_come_and_an_interruption_there_starts_no_other() -> None:
    first, started, told = threading.Event(), list[int](), list[int]()
    stop = threading.Event()

    def work(number: int) -> int:
        started.append(number)
        if number == 0:
            assert first.wait(30)
        if number > 1:
            stop.wait(30)
        return number

    def tell(number: int) -> None:
        told.append(number)
        first.set()
        if number == 0:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        parallel_map(work, range(10), limit=2, stop=stop, on_result=tell)
    assert told == [1, 0], "the first to end is told first"
    assert len(started) <= 4


def test_ticks_come_while_a_call_takes_its_time() -> None:
    ticked = threading.Event()
    assert parallel_map(lambda _: ticked.wait(30), [0], limit=1, on_tick=ticked.set) == [True]


def test_calls_of_one_key_that_do_not_end_keep_no_other_from_starting() -> None:
    ended = threading.Event()
    items = [("slow", number) for number in range(9)] + [("quick", number) for number in range(5)]
    quick: list[int] = []

    def call(item: tuple[str, int]) -> bool:
        name, number = item
        if name == "slow":
            return ended.wait(30)
        quick.append(number)
        if len(quick) == 5:
            ended.set()
        return True

    assert parallel_map_fairly(call, items, key=lambda item: item[0], limit=4) == [True] * 14
    assert quick == [*range(5)]


def test_keys_take_turns_also_where_one_call_runs_at_a_time() -> None:
    begun: list[str] = []
    items = ["a1", "a2", "a3", "b1", "c1", "b2"]
    parallel_map_fairly(begun.append, items, key=lambda item: item[0], limit=1)
    assert begun == ["a1", "b1", "c1", "a2", "b2", "a3"]


def test_what_is_called_fairly_comes_back_in_order_and_an_error_ends_it() -> None:
    assert parallel_map_fairly(str, range(20), key=lambda number: number % 3, limit=4) == [
        *map(str, range(20))
    ]
    with pytest.raises(ZeroDivisionError):
        parallel_map_fairly(lambda number: 1 // number, [1, 0, 2], key=lambda _: "", limit=1)
