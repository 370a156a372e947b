"""The collectives' program, on numpy in this process, and with Paddle where it is installed."""

from __future__ import annotations

import importlib.util
import threading
from types import SimpleNamespace

import numpy
import pytest

from clustercheck.jobs import collectives


class Tensor(numpy.ndarray):
    """An array with a tensor's words."""

    def clone(self):
        return self.copy()

    def abs(self):
        return numpy.abs(self)


class Meeting:
    """What the ranks of one process exchange their tensors through."""

    def __init__(self, ranks):
        self.barrier, self.given = threading.Barrier(ranks), [None] * ranks

    def exchange(self, rank, tensor):
        self.barrier.wait(20)
        self.given[rank] = tensor.copy()
        self.barrier.wait(20)
        return list(self.given)


class World:
    """A rank whose peers are threads. ``fault`` changes what a collective leaves, as bad hardware would."""

    backend, framework, on_gpu = "threads", "numpy", False

    def __init__(self, rank, meeting, size, fault):
        self.rank, self.size, self._meeting, self._fault = rank, size, meeting, fault

    def at(self, phase, *, collective=False):
        pass

    def barrier(self, group=None):
        self._meeting.barrier.wait(20)

    def timed(self, work, repeat=1):
        work()
        return 0.001

    def repeated(self, array, elements):
        return numpy.resize(array, elements).view(Tensor)

    def poison(self, elements):
        return numpy.full(elements, numpy.nan, "float32").view(Tensor)

    def _left(self, output, value):
        output[:] = value
        self._fault(self, output)

    def all_gather(self, output, tensor):
        self._left(output, numpy.concatenate(self._meeting.exchange(self.rank, tensor)))

    def reduce_scatter(self, output, tensor):
        chunk = len(output)
        total = sum(self._meeting.exchange(self.rank, tensor))
        self._left(output, total[self.rank * chunk : (self.rank + 1) * chunk])

    def all_to_all(self, output, tensor):
        chunk = len(output) // self.size
        parts = [
            t[self.rank * chunk : (self.rank + 1) * chunk] for t in self._meeting.exchange(self.rank, tensor)
        ]
        self._left(output, numpy.concatenate(parts))

    def broadcast(self, tensor, root):
        self._left(tensor, self._meeting.exchange(self.rank, tensor)[root])


def run(ranks=3, fault=lambda world, output: None, **arguments):
    meeting, found = Meeting(ranks), [None] * ranks
    arguments = {"sizes_bytes": [8, 4096], "iterations": 2, "warmup": 1, **arguments}

    def one(rank):
        found[rank] = collectives.run(World(rank, meeting, ranks, fault), arguments)

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return found


def test_every_collective_is_right_and_sizes_are_whole_elements_a_rank():
    for verdict in run():
        assert (verdict["ok"], verdict["because"], verdict["not_done"]) == (True, "", {})
        assert [p["collective"] for p in verdict["points"][::2]] == list(collectives.OPERATIONS)
        assert {p["bytes"] for p in verdict["points"]} == {12, 4104}
        assert all(p["correct"] and p["busbw_gbps"] > 0 for p in verdict["points"])


@pytest.mark.parametrize("collective", collectives.OPERATIONS)
@pytest.mark.parametrize("damage", ["one element", "not written", "moved"])
def test_a_wrong_value_is_found_on_the_rank_that_has_it(collective, damage):
    def fault(world, output):
        if world.rank != 1:
            return
        if damage == "one element":
            output[-1] += 1
        elif damage == "not written":
            output[len(output) // 2] = numpy.nan
        else:
            output[:] = numpy.roll(output, 1)

    found = run(fault=fault, collectives=[collective], sizes_bytes=[4096])
    assert [verdict["ok"] for verdict in found] == [True, False, True]
    assert collective in found[1]["because"]
    error = found[1]["points"][0]["max_abs_error"]
    assert error is None if damage == "not written" else error > 0


def test_what_the_backend_cannot_do_is_said_and_the_rest_is_measured():
    class Less(World):
        def all_to_all(self, output, tensor):
            raise NotImplementedError

    meeting = Meeting(1)
    world = Less(0, meeting, 1, lambda world, output: None)
    assert collectives.run(world, {"sizes_bytes": [8]})["points"] == []
    world.size, world.exchange = 2, None
    meeting.exchange = lambda rank, tensor: [tensor, tensor]
    found = collectives.run(world, {"sizes_bytes": [8], "collectives": ["all_to_all"]})
    assert found["not_done"] == {"all_to_all": "numpy has no all-to-all over threads"}
    assert (found["ok"], found["points"]) == (True, [])


@pytest.mark.skipif(importlib.util.find_spec("paddle") is None, reason="Paddle is not installed")
def test_paddle_does_over_gloo_what_it_can(tmp_path, ranks_of_a_job):
    verdicts = ranks_of_a_job(
        tmp_path, "collectives", {"sizes_bytes": [8, 1 << 20], "iterations": 2}, ranks=3
    )
    for verdict in verdicts:
        said = SimpleNamespace(**verdict)
        assert (said.ok, said.because) == (True, "")
        assert {p["collective"] for p in said.points} == {"all_gather", "broadcast"}
        assert all(p["correct"] for p in said.points)
        assert set(said.not_done) == {"reduce_scatter", "all_to_all"}
        assert all(why.endswith("over gloo") for why in said.not_done.values())
