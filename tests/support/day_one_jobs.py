"""What a suite's jobs leave on the systems of day_one.py, a rank a GPU over NCCL, in the forms they write.

The figures are day_one_figures.py's; what a rank says besides them is the self-test's sample's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from tests.support.day_one import SYSTEMS, System, evidence_of
from tests.support.day_one_figures import FIGURES, GIB, Curve, Figures, GpuFigures, at

from clustercheck.checks.support import training
from clustercheck.evidence.cluster import Evidence
from clustercheck.launch.model import JobOutcome
from clustercheck.running.group_jobs import limit_sizes
from clustercheck.running.suites import Suite, load
from clustercheck.samples import gpus, recipes, verdicts
from clustercheck.samples.nccl import nccl_logs
from clustercheck.samples.nccl_loopback import loopback_verdict
from clustercheck.samples.nccl_tests import PROGRAMS, program_run, programs_verdict
from clustercheck.samples.rdma import gpudirect_verdict, rdma_write_verdict
from clustercheck.samples.sample import job

COLLECTIVE_OF = {"alltoall": "all_to_all"}
TRAINED = {"resnet50": (128, "images/s"), "bert_base": (32, "sequences/s")}
FP32_DIFFERENCE = {"tf32": 2e-4, "amp_fp16": 4e-4, "bf16": 2e-3}


def with_jobs(name: str, suite: str, nodes: int | None = None) -> Evidence:
    """The evidence of a validation by this suite, of so many nodes if not of the system's own number."""
    system = SYSTEMS[name] if nodes is None else replace(SYSTEMS[name], nodes=nodes)
    evidence = evidence_of(system)
    return replace(evidence, jobs=_Jobs(system, FIGURES[name], evidence, load(suite)).run())


@dataclass(frozen=True)
class _Jobs:
    """The jobs of one system."""

    system: System
    figures: Figures
    evidence: Evidence
    suite: Suite

    @property
    def names(self) -> list[str]:
        """The nodes."""
        return [node.name for node in self.evidence.spec.nodes]

    @property
    def gpus(self) -> int:
        """Of a node."""
        return len(self.system.buses)

    @property
    def curve(self) -> Curve:
        """All-reduce of the whole group."""
        return self.figures.within if len(self.names) == 1 else self.figures.across

    def run(self) -> dict[str, JobOutcome]:
        """The outcomes of the suite's jobs, by job."""
        board = board_of(self.figures.gpu, self.system.model, self.gpus)
        addresses = [address.lower() for address in self.system.buses]
        found: dict[str, JobOutcome] = {}
        for name in self.suite.jobs:
            if name in gpus.JOBS:
                found[name] = gpus.outcome(name, self.names, addresses, board)
            elif name in training.JOBS:
                found |= self._trainings(name)
            elif (verdict := self._of_gpus().get(name)) is not None:
                found[name] = self._group(name, verdict)
            elif (of_host := self._of_hosts().get(name)) is not None:
                found[name] = job(name, self.names, list(map(of_host, range(len(self.names)))))
        return found | ({"nccl_transport": self._transport()} if "all_reduce" in found else {})

    def _of_hosts(self) -> dict[str, Callable[[int], Mapping[str, Any]]]:
        """What a node's rank says, by job; without those that do not run there."""
        names, count = self.names, len(self.names)
        found: dict[str, Callable[[int], Mapping[str, Any]]] = {
            "cpu_stream": lambda rank: {**verdicts.stream_verdict(rank, count), "numa": self._numa(rank)},
            "run_check": lambda rank: verdicts.run_check_verdict(rank, count, self.gpus),
            "paddle_launch": lambda rank: recipes.launch_verdict(rank, count, self.gpus),
            "nccl_tests": self._nccl_tests,
        }
        if count > 1:
            found["peer_ports"] = lambda rank: verdicts.peer_ports_verdict(rank, count)
        if self.system.rdma:
            ports, loopback = self.system.ports, self.figures.loopback_gbps
            rails = [port for port in ports if not port.ethernet]
            found["rdma_write"] = lambda rank: rdma_write_verdict(rank, names, 1, ports)
            found["nccl_loopback"] = lambda rank: loopback_verdict(
                rank, names, loopback, self.gpus, len(rails)
            )
            if self.system.near_rails:
                found["gpudirect_write"] = lambda rank: gpudirect_verdict(rank, names, self.gpus, rails)
        return found

    def _numa(self, rank: int) -> dict[str, Any]:
        each = {"cores": 64, "gbps": self.figures.stream_gbps + 0.1 * rank, "wrong": 0, "failed": 0}
        return {str(place): dict(each) for place in range(1 if self.gpus == 1 else 2)}

    def _of_gpus(self) -> dict[str, Callable[[int, int], Mapping[str, Any]]]:
        """What a GPU's rank says, by job."""
        return {
            "all_reduce": self._all_reduce,
            "collectives": self._collectives,
            "data_parallel": verdicts.data_parallel_verdict,
            "sharding": verdicts.sharding_verdict,
            "inference": verdicts.inference_verdict,
            "recipes": partial(recipes.recipes_verdict, recipes=self.figures.recipes),
            "step_trace": recipes.step_verdict,
            "paddle_inference": recipes.predictor_verdict,
            "data_loading": recipes.loading_verdict,
            "sharding_stages": partial(recipes.stages_verdict, gpus=self.gpus),
        }

    def _group(self, name: str, verdict: Callable[[int, int], Mapping[str, Any]]) -> JobOutcome:
        return recipes.gpu_job(name, self.names, verdict, self.gpus)

    def _sizes(self, name: str) -> list[int]:
        """As the runner asks for them: those of every group, and on GPUs as large ones as they can hold."""
        of = self.suite.jobs[name]
        large = limit_sizes(of.nccl_arguments or {}, self.evidence, self.names).get("sizes_bytes", [])
        return sorted({*of.arguments["sizes_bytes"], *large})

    def _all_reduce(self, rank: int, world: int) -> dict[str, Any]:
        said = verdicts.all_reduce_verdict(rank, world, ())
        return {**said, "points": self._points(rank, world, "all_reduce")}

    def _points(self, rank: int, world: int, name: str) -> list[Any]:
        return [
            point
            for size in self._sizes(name)
            for point in verdicts.all_reduce_verdict(rank, world, (size,), at(self.curve, size))["points"]
        ]

    def _collectives(self, rank: int, world: int) -> dict[str, Any]:
        points = []
        for size in self._sizes("collectives"):
            of_all_reduce = at(self.curve, size)
            for point in verdicts.collectives_verdict(rank, world, (size,), of_all_reduce)["points"]:
                part = self._part(point["collective"], len(self.names))
                points.append({
                    **point,
                    "busbw_gbps": point["busbw_gbps"] * part,
                    "algbw_gbps": point["algbw_gbps"] * part,
                    "time_s_median": point["time_s_median"] / part,
                })  # fmt: skip
        return {**verdicts.collectives_verdict(rank, world, ()), "points": points}

    def _part(self, collective: str, nodes: int) -> float:
        """Of the all-reduce's bus bandwidth. What an all-to-all sends across, a node's GPUs share."""
        part = 1.0 if collective == "all_reduce" else self.figures.others[collective]
        over_network = nodes > 1 and self.figures.paths.across.startswith("NET/")
        return part / self.gpus if over_network and collective == "all_to_all" else part

    def _nccl_tests(self, rank: int) -> Mapping[str, Any]:
        arguments = self.suite.jobs["nccl_tests"].arguments
        asked = [name for name in PROGRAMS if name in arguments["collectives"]]
        sizes = (arguments["least"], arguments["most"])

        def runs(nodes: Sequence[str], curve: Curve) -> dict[str, Any]:
            if len(nodes) * self.gpus < 2:
                return {}
            top = at(curve, sizes[1])
            of_top = {size: at(curve, size) / top for size in _doubled(*sizes)}
            return {
                name: program_run(
                    name,
                    nodes,
                    self.gpus,
                    top * self._part(COLLECTIVE_OF.get(name, name), len(nodes)),
                    sizes=sizes,
                    curve=of_top,
                )
                for name in asked
            }

        whole = {} if rank or len(self.names) == 1 else runs(self.names, self.figures.across)
        within = runs([self.names[rank]], self.figures.within)
        return programs_verdict(rank, self.names, self.gpus, within, whole)

    def _transport(self) -> JobOutcome:
        outcome = self._group("nccl_transport", self._all_reduce)
        logs = nccl_logs(self.names, self.figures.paths)
        ranks = tuple(replace(rank, nccl_log=log) for rank, log in zip(outcome.ranks, logs, strict=True))
        return replace(
            outcome,
            ranks=ranks,
            facts={"backend": "nccl", "interfaces": dict.fromkeys(self.names, "eth0")},
        )

    def _trainings(self, name: str) -> dict[str, JobOutcome]:
        """The group, its first node, and one GPU."""
        alone = replace(self, evidence=_first_node(self.evidence))
        node = {model: each[0] if self.gpus > 1 else 1.0 for model, each in self.figures.scaling.items()}
        across = {model: each[1] for model, each in self.figures.scaling.items()}
        whole = {model: part * across[model] for model, part in node.items()}
        one = alone._train(name, dict.fromkeys(node, 1.0))
        found = {
            name: self._train(name, whole if len(self.names) > 1 else node),
            training.node_job(name): alone._train(name, node),
            training.one_job(name): replace(one, ranks=one.ranks[:1]),
        }
        return {each: replace(outcome, job=each) for each, outcome in found.items()}

    def _train(self, name: str, parts: Mapping[str, float]) -> JobOutcome:
        """Each GPU at a part of what one by itself does, by model."""

        def verdict(rank: int, world: int) -> dict[str, Any]:
            said = verdicts.training_verdict(rank, world)
            like = said["cases"][0]
            cases = []
            for model, rates in self.figures.training.items():
                batch, unit = TRAINED[model]
                for precision, rate in rates.items():
                    step_s = batch / (parts[model] * rate)
                    cases.append({
                        **like, "model": model, "precision": precision, "batch": batch, "unit": unit,
                        "step_s": step_s, "samples_per_s": batch / step_s, "peak_memory_bytes": 9 * GIB,
                        "fp32_difference": FP32_DIFFERENCE[precision],
                    })  # fmt: skip
            return {**said, "cases": cases}

        return self._group(name, verdict)


def _first_node(evidence: Evidence) -> Evidence:
    return replace(evidence, spec=replace(evidence.spec, nodes=evidence.spec.nodes[:1]))


def _doubled(least: int, most: int) -> list[int]:
    sizes = [least]
    while sizes[-1] < most:
        sizes.append(2 * sizes[-1])
    return sizes


def board_of(gpu: GpuFigures, model: str, count: int) -> gpus.GpuBoard:
    """What the programs for one GPU say of these."""
    one_way, both_ways, all_at_once = gpu.peer
    event, wall, stream = gpu.launch
    figures: dict[str, dict[str, tuple[float, str]]] = {
        "gpu_gemm": {f"gemm_{precision}": (value, "TFLOPS") for precision, value in gpu.gemm.items()},
        "gpu_memory": {
            "device_copy": (gpu.copy_triad[0], "GB/s"),
            "device_triad": (gpu.copy_triad[1], "GB/s"),
        },
        "gpu_pattern": {},
        "gpu_launch": {
            "kernel_launch_event": (event, "us"),
            "kernel_launch_wall": (wall, "us"),
            "kernel_launch_stream": (stream, "us"),
        },
        "gpu_transfer": {"host_to_device": (gpu.host[0], "GB/s"), "device_to_host": (gpu.host[1], "GB/s")},
        "gpu_peers": {"peer_to_peer": (one_way, "GB/s"), "peer_latency": (2.2, "us")},
        "gpu_exchange": {"peer_both_ways": (both_ways, "GB/s")},
        "gpu_burn": {"burn_bf16": (gpu.burn, "TFLOPS")},
    }
    properties = {
        "name": model,
        "kind": "gpu",
        "memory_bytes": gpu.memory << 30,
        "sm_count": gpu.units,
        "l2_bytes": 50 << 20,
        "rates": {
            "sm_clock_khz": gpu.clock_mhz * 1000,
            "memory_clock_khz": gpu.memory_mhz * 1000,
            "memory_bus_bits": gpu.bus_bits,
            "compute_capability": gpu.capability,
        },
    }
    link = {"pcie_generation": float(gpu.pcie), "pcie_generation_possible": float(gpu.pcie)}
    return gpus.GpuBoard(count, properties, figures, {**gpus.WATCH, **link}, all_at_once)
