"""What the distributed programs decide, without any framework."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustercheck.jobs import data_parallel, nccl_tests, operation, pairs, rdma_write


def test_bus_bandwidth_is_that_of_nccl_tests():
    algorithm, bus = operation.compute_bandwidths("all_reduce", 8_000_000_000, 2.0, 8)
    assert algorithm == pytest.approx(4.0)
    assert bus == pytest.approx(4.0 * 2 * 7 / 8)


@given(st.integers(0, 2**31 - 1), st.integers(2, 1024))
def test_the_expected_sum_is_exact_in_float32_and_misses_no_rank(seed, ranks):
    each = operation.draw_coefficients(seed, ranks)
    assert all(a != 0 for a, _ in each)
    total_a, total_b = operation.sum_coefficients(seed, ranks, range(ranks))
    assert (total_a, total_b) == (sum(a for a, _ in each), sum(b for _, b in each))
    assert total_a * 8 + abs(total_b) < 2**24
    for left_out in {0, ranks - 1}:
        members = [rank for rank in range(ranks) if rank != left_out]
        assert operation.sum_coefficients(seed, ranks, members)[0] != total_a


def test_every_rank_computes_the_same_coefficients():
    assert operation.draw_coefficients(7, 16) == operation.draw_coefficients(7, 16)
    assert operation.draw_coefficients(7, 16) != operation.draw_coefficients(8, 16)


def test_only_small_messages_on_a_gpu_are_timed_together():
    assert operation.batch(8, on_gpu=True) == 10
    assert operation.batch(1 << 30, on_gpu=True) == 1
    assert operation.batch(8, on_gpu=False) == 1


@pytest.mark.parametrize(
    ("rounds", "problem"),
    [
        ([[[0, 1], [1, 2]]], "round 0 has a rank twice"),
        ([[[0, 1]], [[2, 2]]], "round 1 has a trial of fewer than two ranks"),
        ([[[0, 4]]], "round 0 names a rank outside 0..3"),
    ],
)
def test_rounds_that_would_hang_are_refused(rounds, problem):
    assert problem in pairs.find_problems(rounds, 4)


def test_good_rounds_have_no_problems():
    assert pairs.find_problems([[[0, 1], [2, 3]], [[0, 2], [1, 3]]], 4) == []


@given(st.integers(1, 4096), st.integers(1, 64))
def test_shards_cover_the_batch_once_and_are_equal(batch, ranks):
    shards = [data_parallel.shard(batch, ranks, rank) for rank in range(ranks)]
    whole = shards[0][0]
    assert batch <= whole < batch + ranks
    assert [first for _, first, _ in shards] == [0, *[last for _, _, last in shards[:-1]]]
    assert shards[-1][2] == whole
    assert len({last - first for _, first, last in shards}) == 1


def test_a_nan_loss_is_no_agreement():
    assert data_parallel.max_difference([float("nan")], [1.0]) == float("inf")
    assert data_parallel.max_difference([1.0], [1.0, 2.0]) == float("inf")
    assert data_parallel.max_difference([1.0, 3.0], [1.0, 2.5]) == 0.5


def test_training_is_correct_only_if_all_three_conditions_hold():
    good, reference = [1.0, 0.5], [1.0, 0.5]
    assert data_parallel.judge_training(good, reference, 0.0, 1e-5) == (True, "")
    assert "parameters differ" in data_parallel.judge_training(good, reference, 1e-9, 1e-5)[1]
    assert "from a single process" in data_parallel.judge_training([1.0, 0.51], reference, 0.0, 1e-5)[1]
    assert "did not fall" in data_parallel.judge_training([1.0, 1.0], [1.0, 1.0], 0.0, 1e-5)[1]
    assert data_parallel.judge_training([float("nan")] * 2, reference, 0.0, 1e-5)[0] is False
    assert data_parallel.judge_training(good, reference, float("nan"), 1e-5)[0] is False


@pytest.mark.parametrize(
    ("collective", "factor"),
    [("all_gather", 7 / 8), ("reduce_scatter", 7 / 8), ("all_to_all", 7 / 8), ("broadcast", 1.0)],
)
def test_each_collective_has_its_own_factor(collective, factor):
    algorithm, bus = operation.compute_bandwidths(collective, 8_000_000_000, 2.0, 8)
    assert (algorithm, bus) == (pytest.approx(4.0), pytest.approx(4.0 * factor))


def test_ib_write_bw_is_asked_for_the_address_class_and_level_of_a_port():
    plain = rdma_write.make_command({"device": "mlx5_0", "port": 1, "gid": None}, 4000, 10)
    assert not {"-x", "--tclass", "-S"} & set(plain)
    port = {"device": "mlx5_2", "port": 1, "gid": 3, "traffic_class": 106, "service_level": 0}
    words = " ".join(rdma_write.make_command(port, 4000, 10, "192.0.2.1"))
    assert words.endswith("-x 3 --tclass 106 -S 0 192.0.2.1") and "-d mlx5_2 -i 1 -p 4000" in words


def test_only_what_is_the_same_on_all_nodes_is_exported_from_one():
    node = nccl_tests.Node("", "", 8, "eth0", {})
    nodes = [node._replace(variables={"A": "1", "B": str(n)}) for n in (1, 2)]
    nodes[1].variables["C"] = "only there"
    assert nccl_tests.find_shared_variables(nodes) == ["A"]
    nodes = [node._replace(variables={"OMPI_MCA_btl_tcp_if_include": "ib0"}) for node in nodes]
    found = nccl_tests.make_mpi_environment(nodes, "agent")
    assert (found["OMPI_MCA_btl_tcp_if_include"], found["OMPI_MCA_oob_tcp_if_include"]) == ("ib0", "eth0")
    nodes = [node._replace(variables={"OMPI_MCA_plm_rsh_agent": "ssh"}) for node in nodes]
    assert nccl_tests.make_mpi_environment(nodes, "agent")["OMPI_MCA_plm_rsh_agent"] == "agent"


@pytest.mark.parametrize(("ports", "rails"), [((2, 900, 3), 3), ((2, 2), 2), ((4, 0), 0), ((5,), 5)])
def test_ranks_meet_for_no_more_rails_than_two_of_them_have(
    monkeypatch: pytest.MonkeyPatch, ports: tuple[int, ...], rails: int
) -> None:
    """What one claims alone, in its probe's record, would keep the others at it past the job's limit."""
    met: list[str] = []
    monkeypatch.setattr(rdma_write, "explain_missing", lambda: "")
    monkeypatch.setattr(rdma_write, "write_to_itself", lambda *_: {})
    world = SimpleNamespace(rank=0, wait=met.append, set_phase=lambda *_: None)
    each = [[{"device": f"mlx5_{n}", "port": 1} for n in range(count)] for count in ports]
    arguments = {"ports": each, "rounds": [[]], "iterations": 1, "limit_each_s": 1.0}
    assert rdma_write.run(world, arguments)["ok"]  # type: ignore[arg-type]
    assert met == [f"rail {n} in round 0{end}" for n in range(rails) for end in ("", ", measured")]
