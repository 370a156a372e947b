"""The collectives' program, on numpy in this process."""

from __future__ import annotations

import numpy
import pytest
from tests.support.threaded_ranks import Meeting, World, honest, run_ranks

from clustercheck.jobs import all_reduce, collectives


def run(ranks=3, fault=honest, **arguments):
    arguments = {"sizes_bytes": [8, 4096], "iterations": 2, "warmup": 1, **arguments}
    return run_ranks(lambda world: collectives.run(world, arguments), ranks, fault)


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


def test_whose_part_of_an_all_to_all_came_wrong_is_told():
    def fault(world, output):
        if world.rank == 1:
            output[-1] += 1

    found = run(fault=fault, collectives=["all_to_all", "all_gather"], sizes_bytes=[4096])
    assert [[p.get("wrong_from") for p in verdict["points"]] for verdict in found] == [
        [None, None], [[2], None], [None, None]
    ]  # fmt: skip


def test_one_wrong_element_of_a_sum_is_found_beyond_the_repeated_block_too():
    elements = 4_194_301 + 1000

    def fault(world, output):
        if world.rank == 1:
            output[-1] += 1

    def job(world):
        return all_reduce.run(world, {"sizes_bytes": [4 * elements], "iterations": 1})

    assert [verdict["ok"] for verdict in run_ranks(job, 2)] == [True, True]
    wrong, right = (run_ranks(job, 2, fault)[rank]["points"][0] for rank in (1, 0))
    assert (right["correct"], right["max_abs_error"]) == (True, 0.0)
    assert (wrong["correct"], wrong["max_abs_error"], wrong["bytes"]) == (False, 1.0, 4 * elements)


def test_unsupported_collectives_are_reported_and_the_others_measured():
    class Less(World):
        def all_to_all(self, output, tensor):
            raise NotImplementedError

    meeting = Meeting(1)
    world = Less(0, meeting, 1)
    assert collectives.run(world, {"sizes_bytes": [8]})["points"] == []
    world.size = 2
    meeting.exchange = lambda rank, tensor: [tensor, tensor]
    found = collectives.run(world, {"sizes_bytes": [8], "collectives": ["all_to_all"]})
    assert found["not_done"] == {"all_to_all": "numpy does not support all-to-all over threads"}
    assert (found["ok"], found["points"]) == (True, [])
