"""A group of ranks that are threads of this process, with numpy for tensors: no framework, no network."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy

REDUCE = {"SUM": numpy.sum, "MAX": numpy.max, "MIN": numpy.min}


class Tensor(numpy.ndarray):
    """An array with a tensor's words."""

    def clone(self):
        return self.copy()

    def abs(self):
        return numpy.abs(self)

    def __float__(self):
        return float(self.item())


def tensor(array):
    return numpy.asarray(array, "float32").copy().view(Tensor)


class Meeting:
    """What the ranks of one process exchange their tensors through."""

    def __init__(self, ranks):
        self.barrier, self.given = threading.Barrier(ranks), [None] * ranks

    def exchange(self, rank, tensor):
        self.barrier.wait(20)
        self.given[rank] = tensor.copy()
        self.barrier.wait(20)
        return list(self.given)


def honest(world, output):
    """A fault that changes nothing."""


class World:
    """A rank whose peers are threads. ``fault`` changes what a collective leaves, as bad hardware would."""

    backend, framework, device, on_gpu = "threads", "numpy", "cpu", False

    def __init__(self, rank, meeting, size, fault=honest):
        self.rank, self.size, self._meeting, self._fault = rank, size, meeting, fault

    def set_phase(self, phase, *, collective=False):
        pass

    def barrier(self, group=None):
        self._meeting.barrier.wait(20)

    def measure_time(self, work, repeat=1):
        for _ in range(repeat):
            work()
        return 0.001

    def tile(self, array, elements):
        return numpy.resize(array, elements).view(Tensor)

    def poison(self, elements):
        return numpy.full(elements, numpy.nan, "float32").view(Tensor)

    def mean(self, tensor):
        """The mean of all ranks' tensors."""
        return sum(self._meeting.exchange(self.rank, tensor)) / self.size

    def _left(self, output, value):
        output[:] = value
        self._fault(self, output)

    def all_reduce(self, tensor, *, op="SUM", group=None):
        self._left(tensor, REDUCE[op](self._meeting.exchange(self.rank, tensor), axis=0))

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


def run_ranks(job, ranks, fault=honest):
    """What the job returns of each rank; ``job`` gets the rank's World."""
    meeting = Meeting(ranks)
    with ThreadPoolExecutor(ranks) as pool:
        return list(pool.map(lambda rank: job(World(rank, meeting, ranks, fault)), range(ranks)))
