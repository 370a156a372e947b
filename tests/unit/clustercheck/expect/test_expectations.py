"""What may be expected: physics, profiles, networks, suites."""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import Any

import pytest

from clustercheck.checks.all import BY_ID, CHECKS
from clustercheck.checks.base import evaluate
from clustercheck.checks.support import seeding
from clustercheck.errors import ExplainedError
from clustercheck.expect import network, physics, profiles
from clustercheck.expect.judge import judge
from clustercheck.expect.profiles import Metric
from clustercheck.model import Figure, Limit, Subject, Verdict
from clustercheck.running.suites import load, suites
from clustercheck.samples import sample
from clustercheck.tables import read_table

CONTRACT = {
    "hgx-a100-80gb", "hgx-a100-40gb", "a100-pcie-40gb", "a100-pcie-80gb", "v100-sxm2-16gb", "h100-sxm5-80gb",
}  # fmt: skip


def test_ceilings() -> None:
    assert physics.pcie_gbps(4, 16) == pytest.approx(31.5, abs=0.02)
    assert physics.pcie_gbps(3, 16) == pytest.approx(15.75, abs=0.01)
    assert physics.nvlink_gbps(12, 25) == 300
    assert physics.network_gbps(200_000) == 25
    assert physics.all_reduce_ceiling_gbps(300, 8) == 300
    assert physics.all_reduce_ceiling_gbps(450, 8, reduced_in_switch=True) == pytest.approx(787.5)
    assert physics.all_reduce_ceiling_gbps(300, 1) == 0
    for generation, width in ((9, 16), (4, 3)):
        with pytest.raises(ValueError, match="there is no PCIe"):
            physics.pcie_gbps(generation, width)


@pytest.mark.parametrize("name", profiles.names())
def test_every_profile_is_possible_and_says_where_its_numbers_come_from(name: str) -> None:
    profile = profiles.load(name)
    assert profile.name == name
    for floor in profile.floors:
        ceiling = profile.ceiling(floor.metric, floor.gpus)
        assert ceiling is None or floor.threshold <= ceiling
        assert len(floor.source) > 10 and len(floor.method) > 10


# Multiprocessors, compute capability and boost clock in kHz: NVIDIA's white papers and data sheets.
UNITS = {
    "v100-sxm2-16gb": (80, 70, 1_530_000), "v100-sxm2-32gb": (80, 70, 1_530_000),
    "v100-pcie-16gb": (80, 70, 1_380_000), "v100-pcie-32gb": (80, 70, 1_380_000),
    "a100-pcie-40gb": (108, 80, 1_410_000), "a100-pcie-80gb": (108, 80, 1_410_000),
    "hgx-a100-40gb": (108, 80, 1_410_000), "hgx-a100-80gb": (108, 80, 1_410_000),
    "h100-sxm5-80gb": (132, 90, 1_980_000), "h200-sxm5-141gb": (132, 90, 1_980_000),
    "h100-pcie-80gb": (114, 90, 1_755_000), "h100-nvl-94gb": (132, 90, 1_785_000),
    "a10-24gb": (72, 86, 1_695_000), "rtx-3090-24gb": (82, 86, 1_695_000),
    "hgx-a800-40gb": (108, 80, 1_410_000), "hgx-a800-80gb": (108, 80, 1_410_000),
    "a800-pcie-80gb": (108, 80, 1_410_000),
    "h800-sxm5-80gb": (132, 90, 1_980_000), "h20-sxm5-96gb": (78, 90, 1_980_000),
    "b200-sxm6-180gb": (148, 100, 1_965_000),
    "l40s-48gb": (142, 89, 2_520_000), "rtx-4090-24gb": (128, 89, 2_520_000),
}  # fmt: skip


# What a maker limits below the units, as export rules wanted it.
LIMITED = {"h800-sxm5-80gb": {"fp64"}, "h20-sxm5-96gb": {"fp64", "fp32", "tf32", "fp16", "bf16"}}


@pytest.mark.parametrize("name", profiles.names())
def test_every_profile_has_each_precision_of_its_architecture_and_none_beyond_its_units(name: str) -> None:
    profile = profiles.load(name)
    units, capability, clock = UNITS[name]
    reached = {
        precision: peak
        for precision in ("fp64", "fp32", "tf32", "fp16", "bf16")
        if (peak := physics.gemm_tflops(precision, capability, units, clock)) is not None
    }
    assert set(profile.peak_tflops) == set(reached)
    # GeForce halves what tensor cores do with sums in FP32; the data sheets round, and reckon the tensor
    # cores of H100 at a lower clock than the rest.
    halves = {"tf32", "fp16", "bf16"} if name.startswith("rtx-") else set()
    for precision, figure in profile.peak_tflops.items():
        if precision in LIMITED.get(name, ()):
            continue
        part = figure.value / reached[precision]
        assert 0.86 <= part * (2 if precision in halves and part < 0.6 else 1) <= 1.03, precision


def test_the_profiles_that_others_rely_on_are_there() -> None:
    assert set(profiles.names()) >= CONTRACT
    floor = profiles.load("hgx-a100-80gb").floor(Metric.ALL_REDUCE, gpus=8, size_bytes=8 << 30)
    assert floor is not None and floor.threshold == 228
    assert profiles.load("hgx-a100-80gb").floor(Metric.ALL_REDUCE, gpus=4, size_bytes=8 << 30) is None


def test_each_model_as_the_driver_names_it_is_of_one_profile() -> None:
    of_model = {model: name for name in profiles.names() for model in profiles.load(name).gpu_models}
    assert len(of_model) == sum(len(profiles.load(name).gpu_models) for name in profiles.names())
    alike = {
        "NVIDIA H100 80GB HBM3": "h100-sxm5-80gb",
        "NVIDIA H100 PCIe": "h100-pcie-80gb",
        "NVIDIA H100 NVL": "h100-nvl-94gb",
        "Tesla V100-SXM2-16GB": "v100-sxm2-16gb",
        "Tesla V100-SXM2-32GB": "v100-sxm2-32gb",
        "Tesla V100-PCIE-16GB": "v100-pcie-16gb",
        "Tesla V100-PCIE-32GB": "v100-pcie-32gb",
    }
    assert {model: of_model[model] for model in alike} == alike


@pytest.mark.parametrize(
    ("profile", "model", "verdict"),
    [
        ("h100-sxm5-80gb", "NVIDIA H100 80GB HBM3", Verdict.PASS),
        ("h100-sxm5-80gb", "NVIDIA H100 PCIe", Verdict.FAIL),
        ("h100-pcie-80gb", "NVIDIA H100 PCIe", Verdict.PASS),
        ("h100-pcie-80gb", "NVIDIA H100 NVL", Verdict.FAIL),
        ("h100-nvl-94gb", "NVIDIA H100 NVL", Verdict.PASS),
        ("v100-pcie-16gb", "Tesla V100-PCIE-32GB", Verdict.FAIL),
        ("v100-pcie-32gb", "Tesla V100-SXM2-32GB", Verdict.FAIL),
    ],
)
def test_a_gpu_of_a_like_name_is_told_apart(profile: str, model: str, verdict: Verdict) -> None:
    evidence = sample.healthy(1)
    nodes = tuple(replace(node, gpu_model="", profile=profile) for node in evidence.spec.nodes)
    declared = replace(
        evidence,
        spec=replace(evidence.spec, nodes=nodes),
        profiles={profile: profiles.load(profile)},
    )
    changed = seeding.smi("gpu01", 2, "product_name", model)(declared)
    result = next(
        each for each in evaluate(BY_ID["gpu-model"], changed) if each.subject == Subject("gpu01", 2)
    )
    assert result.verdict is verdict, result.because


def test_what_public_gates_ask_beyond_physics_is_no_floor() -> None:
    """nc80adis_h100_v5 asks 335 GB/s between two GPUs that 300 a way join."""
    nvl = profiles.load("h100-nvl-94gb")
    assert nvl.ceiling(Metric.PEER_TO_PEER) == 300
    assert nvl.floor_of_gpu(Metric.PEER_TO_PEER) is None


@pytest.mark.parametrize("name", ["hgx-a100-40gb", "hgx-a100-80gb", "h100-sxm5-80gb", "h200-sxm5-141gb"])
def test_the_quick_suite_measures_a_size_that_has_a_floor(name: str) -> None:
    sizes = load("quick").jobs["all_reduce"].nccl_arguments["sizes_bytes"]
    assert any(profiles.load(name).floor(Metric.ALL_REDUCE, gpus=8, size_bytes=size) for size in sizes)


def a100() -> dict[str, object]:
    document: dict[str, object] = read_table(profiles.DIRECTORY / "hgx-a100-80gb")
    return document


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"metric": "host_to_device", "value": 52, "unit": "GB/s"}, "above the 31.5077 that physics allows"),
        (
            {"metric": "all_reduce_busbw", "value": 310, "gpus": 8, "bytes": 8},
            "above the 300 that physics allows",
        ),
        ({"metric": "all_reduce_busbw", "value": 200}, "names its gpus and bytes"),
        ({"metric": "gemm_fp16", "value": 320, "unit": "TFLOPS"}, "above the 312"),
        ({"metric": "speed", "value": 1}, "metric"),
        ({"metric": "gemm_fp16", "value": 1, "source": ""}, "source"),
        ({"metric": "gemm_fp16", "value": 1, "colour": "red"}, "colour"),
    ],
)
def test_a_profile_with_an_impossible_or_ungrounded_number_is_refused(
    change: dict[str, object], says: str
) -> None:
    floor = {"unit": "GB/s", "tolerance": 0, "method": "by eye", "source": "a public gate", **change}
    with pytest.raises(ExplainedError) as error:
        profiles.build({**a100(), "floors": [floor]}, where="mine.yml")
    assert error.value.code == "profile.invalid" and error.value.where == "mine.yml"
    assert says in error.value.what


@pytest.mark.parametrize(
    "change",
    [
        {"name": ""}, {"gpu_models": []}, {"memory_gib": 0}, {"memory_gib": "80"}, {"memory_gib": True},
        {"memory_bandwidth": 5}, {"memory_bandwidth": {"value": -1, "source": "x"}}, {"peak_tflops": [1]},
        {"pcie": {}}, {"nvlink": {"links": 12}}, {"floors": [{}]}, {"floors": 3}, {"wheels": 4},
    ],
)  # fmt: skip
def test_a_profile_with_a_value_that_is_none_is_refused_with_a_sentence(change: dict[str, object]) -> None:
    with pytest.raises(ExplainedError) as error:
        profiles.build({**a100(), **change}, where="mine.yml")
    assert error.value.code == "profile.invalid" and "Traceback" not in error.value.what


@pytest.mark.parametrize("table", [None, [], "x", {"name": "x"}])
def test_a_profile_that_is_none_is_refused_with_a_sentence(table: object) -> None:
    with pytest.raises(ExplainedError) as error:
        profiles.build(table, where="mine.yml")
    assert error.value.code == "profile.invalid"


def nic(name: str = "eth0", speed: int | None = 10_000, **more: object) -> dict[str, object]:
    return {"name": name, "speed_mbps": speed, "default_route": True, "physical": True, **more}


def test_sockets_are_judged_by_the_adapter_that_they_use() -> None:
    slow, fast = nic("eth0", 1000), nic("eth1", 25_000, default_route=False)
    assert network.socket_adapter([slow, fast]) == network.Adapter("eth0", 0.125, True, "tcp")
    chosen = network.socket_adapter([slow, fast], "eth1")
    assert chosen is not None and chosen.gbps == 3.125
    assert network.socket_adapter([nic(speed=None)]) is None
    assert network.socket_adapter([]) is None


def test_the_slowest_network_sets_the_expectation() -> None:
    adapters = {
        "a": network.Adapter("eth0", 3.125, True, "tcp"),
        "b": network.Adapter("eth0", 1.25, True, "tcp"),
    }
    expected = network.expectation(adapters)
    assert expected.floor_gbps == pytest.approx(0.125)  # 10 % of 10 Gb/s
    assert expected.ceiling_gbps == 1.25 and "of b" in expected.source and "10%" in expected.source


def test_a_virtual_adapter_gives_a_floor_but_no_ceiling() -> None:
    expected = network.expectation({"a": network.Adapter("eth0", 1.25, False, "tcp")})
    assert expected.ceiling_gbps is None and expected.floor_gbps == pytest.approx(0.125)


@pytest.mark.parametrize("of_others", [("tcp", "tcp"), ("infiniband", "infiniband")])
@pytest.mark.parametrize("said", [{"physical": False}, {"physical": False, "kind": "tcp"}, {"kind": "roce"}])
def test_one_node_that_calls_its_adapter_virtual_or_of_another_kind_sets_the_floor_alone(
    of_others: tuple[str, str], said: dict[str, Any]
) -> None:
    of = {f"gpu0{n}": network.Adapter("eth0", 3.125, True, kind) for n, kind in enumerate(of_others, 1)}
    honest = network.expectation({**of, "gpu03": network.Adapter("eth0", 3.125, True, of_others[0])})
    lying = network.expectation(
        {**of, "gpu03": replace(network.Adapter("eth0", 3.0, True, of_others[0]), **said)}
    )
    physical = said.get("physical", True)
    assert lying.ceiling_gbps == (3.0 if physical else 3.125)
    assert lying.bound == ("eth0 of gpu03" if physical else "eth0 of gpu01")
    assert lying.effect == honest.effect is not None
    assert "of gpu03" in lying.source


def test_where_most_adapters_are_virtual_there_is_no_ceiling_and_of_two_where_both_are() -> None:
    virtual, physical = (network.Adapter("eth0", 1.25, each, "tcp") for each in (False, True))
    for adapters, is_bound in (((virtual, physical), True), ((virtual, virtual, physical), False)):
        expected = network.expectation({f"gpu0{n}": each for n, each in enumerate(adapters)})
        assert (expected.ceiling_gbps is not None, expected.effect is not None) == (is_bound, is_bound)


def test_active_rdma_ports_add_up() -> None:
    port = {"state": "4: ACTIVE", "rate": "200 Gb/sec (4X HDR)"}
    down = {"state": "1: DOWN", "rate": "10 Gb/sec (4X SDR)"}
    adapter = network.rdma_adapter([port] * 8 + [down])
    assert adapter is not None and adapter.gbps == 200 and adapter.kind == "roce"
    hdr = network.rdma_adapter([port | {"link_layer": "InfiniBand"}] * 8)
    assert hdr == network.Adapter("8 RDMA ports", 200.0, True, "infiniband", 8)
    assert network.rdma_adapter([down]) is None


def test_suites() -> None:
    assert [(name, suite.limit_min) for name, suite in suites().items()] == [
        ("quick", 2), ("standard", 15), ("full", 75), ("burn-in", 315), ("seeds", 20),
    ]  # fmt: skip
    for suite in suites().values():
        assert {check.job for check in suite.selected() if check.job} <= set(suite.jobs)
        chosen = [check.id for check in CHECKS]
        if suite.checks != "all":
            probed = [check.id for check in CHECKS if not check.job and check.id != "dcgm-diag"]
            assert all(BY_ID[check].job for check in suite.checks)
            chosen = [*probed, *suite.checks]
        assert {check.id for check in suite.selected()} == set(chosen) - set(suite.without)
        for name, job in suite.jobs.items():
            module = importlib.import_module(f"clustercheck.jobs.{job.program or name}")
            assert getattr(module, "ALONE", False) is job.alone
        assert suite.repeat_min < suite.limit_min
    for name in ("full", "burn-in"):
        suite = load(name)
        at_most_s = sum(job.timeout_s for job in suite.jobs.values())
        assert at_most_s <= 60 * (suite.limit_min - suite.repeat_min)
    with pytest.raises(ExplainedError, match="unknown suite 'x'"):
        load("x")


@pytest.mark.parametrize(
    ("precision", "capability", "units", "clock_mhz", "tflops"),
    [
        ("fp16", 80, 108, 1410, 312),
        ("fp64", 80, 108, 1410, 19.5),
        ("tf32", 80, 108, 1410, 156),
        ("fp16", 70, 80, 1530, 125),
        ("bf16", 90, 132, 1830, 989),
        ("fp64", 90, 132, 1980, 67),
        ("bf16", 86, 72, 1695, 125),
        ("tf32", 89, 142, 2520, 183),
    ],
)
def test_arithmetic_from_clocks_is_what_data_sheets_say(
    precision: str, capability: int, units: int, clock_mhz: int, tflops: float
) -> None:
    assert physics.gemm_tflops(precision, capability, units, clock_mhz * 1000) == pytest.approx(
        tflops, rel=0.02
    )
    assert physics.gemm_tflops("int4", capability, units, clock_mhz * 1000) is None
    assert physics.gemm_tflops(precision, 12, units, clock_mhz * 1000) is None


@pytest.mark.parametrize(
    ("clock_mhz", "bus_bits", "gbps"),
    [(1215, 5120, 1555), (1593, 5120, 2039), (2619, 5120, 3350), (877, 4096, 900), (9751, 384, 936)],
)
def test_memory_from_clock_and_bus_is_what_data_sheets_say(
    clock_mhz: int, bus_bits: int, gbps: float
) -> None:
    assert physics.memory_gbps(clock_mhz * 1000, bus_bits) == pytest.approx(gbps, rel=0.01)


@pytest.mark.parametrize(
    ("name", "metric", "threshold"),
    [
        # Measured by others, less the tolerance; 5 % beyond fails and 5 % within passes.
        ("h100-sxm5-80gb", Metric.GEMM_BF16, 794.5 * 0.75),
        ("h200-sxm5-141gb", Metric.GEMM_BF16, 794.5 * 0.75),
        ("h800-sxm5-80gb", Metric.GEMM_BF16, 794.5 * 0.75),
        ("b200-sxm6-180gb", Metric.GEMM_BF16, 1745 * 0.75),
        ("hgx-a800-80gb", Metric.GEMM_BF16, 261.2 * 0.85),
        ("h800-sxm5-80gb", Metric.PEER_TO_PEER, 144),
        ("h20-sxm5-96gb", Metric.PEER_TO_PEER, 335 * 0.95),
        ("h100-nvl-94gb", Metric.HOST_TO_DEVICE, 48),
        ("h100-nvl-94gb", Metric.DEVICE_TO_HOST, 48),
        ("a800-pcie-80gb", Metric.HOST_TO_DEVICE, 21),
        ("b200-sxm6-180gb", Metric.DEVICE_TO_HOST, 48 * 0.95),
    ],
)
def test_floors_are_where_their_sources_put_them(name: str, metric: Metric, threshold: float) -> None:
    floor = profiles.load(name).floor_of_gpu(metric)
    assert floor is not None and floor.threshold == pytest.approx(threshold)
    for part, verdict in ((0.95, Verdict.FAIL), (1.05, Verdict.PASS)):
        figure = Figure(
            metric.value,
            threshold * part,
            floor.unit,
            "",
            floor=Limit(floor.value, "", tolerance=floor.tolerance),
        )
        assert judge(figure).verdict is verdict


@pytest.mark.parametrize(
    ("name", "metric"),
    [
        ("hgx-a800-80gb", Metric.PEER_TO_PEER),
        ("hgx-a800-40gb", Metric.PEER_TO_PEER),
        ("h20-sxm5-96gb", Metric.GEMM_BF16),
        ("b200-sxm6-180gb", Metric.PEER_TO_PEER),
        ("h100-sxm5-80gb", Metric.GEMM_FP16),
    ],
)
def test_what_has_no_source_has_no_floor_and_the_profile_says_so(name: str, metric: Metric) -> None:
    assert profiles.load(name).floor_of_gpu(metric) is None
    text = (profiles.DIRECTORY / f"{name}.yml").read_text(encoding="utf-8")
    comments = " ".join(line.strip(" #") for line in text.splitlines() if line.lstrip().startswith("#"))
    assert "no floor" in comments.lower()


@pytest.mark.parametrize(
    ("name", "gate", "config"),
    [("h100-sxm5-80gb", 460, "nd96isr_h100_v5"), ("h200-sxm5-141gb", 431, "nd96isr_h200_v5")],
)
def test_gates_are_cited_with_the_size_that_they_are_asked_at(name: str, gate: float, config: str) -> None:
    profile = profiles.load(name)
    for size, tolerance in ((16 << 30, 0), (8 << 30, 0.01), (4 << 30, 0.02)):
        floor = profile.floor(Metric.ALL_REDUCE, gpus=8, size_bytes=size)
        assert floor is not None and (floor.value, floor.tolerance) == (gate, tolerance)
        assert config in floor.source and "16 GiB" in floor.source


@pytest.mark.parametrize(
    ("name", "links", "gbps"),
    [
        ("hgx-a800-80gb", 8, 200),
        ("hgx-a800-40gb", 8, 200),
        ("a800-pcie-80gb", 8, 200),
        ("h800-sxm5-80gb", 8, 200),
        ("h20-sxm5-96gb", 18, 450),
        ("b200-sxm6-180gb", 18, 900),
    ],
)
def test_nvlinks_of_cards_for_china_and_of_blackwell(name: str, links: int, gbps: float) -> None:
    profile = profiles.load(name)
    assert profile.nvlink is not None and profile.nvlink.links == links
    assert profile.gpu_link_gbps == gbps
