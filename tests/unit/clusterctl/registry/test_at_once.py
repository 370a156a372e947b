"""Many calls at a time: in order, and none begun after an end is wanted."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from clusterctl.registry.at_once import each


def test_the_results_are_in_order() -> None:
    assert each(lambda n: n * n, range(20), at_once=4) == [n * n for n in range(20)]


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
        each(work, items(), at_once=2, stop=stop)
    assert stop.is_set()
    assert len(begun) <= 2
