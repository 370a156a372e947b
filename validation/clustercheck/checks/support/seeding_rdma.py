"""Faults of RDMA ports to plant in what ib_write_bw said."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from clustercheck.checks.base import Scale, SeededFault
from clustercheck.checks.support import seeding
from clustercheck.checks.support.rdma import lose_adapter
from clustercheck.checks.support.seeding_figures import scale_write_text
from clustercheck.evidence.cluster import Evidence
from clustercheck.launch.model import RankOutcome, RankState
from clustercheck.model import Subject, Verdict
from clustercheck.samples.rdma import GBPS, write_text

JOB = "rdma_write"
JUST_BELOW = 0.95 * 0.9 * 200 / GBPS["mlx5_1"]  # 5 % under nine tenths of HDR's rate


def _says(key: str, change: Callable[[RankOutcome, seeding.Raw], None]) -> seeding.Inject:
    """Change the entries of one part, on every rank."""

    def on(rank: RankOutcome, record: seeding.Raw) -> None:
        for entry in record[key]:
            change(rank, entry)

    return seeding.verdicts(JOB, on)


def _at(part: float, *, pair: bool = False) -> Callable[[RankOutcome, seeding.Raw], None]:
    """gpu02's mlx5_1 at a part of its rate: with everybody, or as one ``pair`` with gpu01 alone."""

    def change(rank: RankOutcome, entry: seeding.Raw) -> None:
        between = {rank.rank, entry.get("peer", rank.rank)}
        if entry["device"] == "mlx5_1" and (between == {0, 1} if pair else 1 in between):
            entry["text"] = write_text("mlx5_1", GBPS["mlx5_1"] * part)

    return change


def _ends(code: int | None, text: str = "") -> Callable[[RankOutcome, seeding.Raw], None]:
    def change(rank: RankOutcome, entry: seeding.Raw) -> None:
        if 1 in (rank.rank, entry.get("peer")) and entry["device"] == "mlx5_0":
            entry.update(exit_code=code, text=text)

    return change


def _refused_and_cut_off(rank: RankOutcome, entry: seeding.Raw) -> None:
    """gpu02's mlx5_0 is refused by everybody, its mlx5_1 prints half."""
    if 1 in (rank.rank, entry.get("peer")):
        refused = entry["device"] == "mlx5_0"
        entry.update(exit_code=1 if refused else 0, text="" if refused else entry["text"][:300])


def _without(evidence: Evidence) -> Evidence:
    """An image without perftest."""
    record = {"without": "the image has no ib_write_bw (package perftest)"}
    return seeding.verdicts(JOB, lambda rank, verdict: verdict.update(record))(evidence)


def _no_adapters(evidence: Evidence) -> Evidence:
    for node in evidence.nodes:
        for _ in range(3):
            evidence = lose_adapter(node, 0)(evidence)
    return evidence


def scaling(key: str) -> Scale:
    """Of ``loopback``, or of the ``writes`` as the node that wrote says it."""

    def scale(metric: str, factors: Mapping[Subject, float]) -> seeding.Inject:
        def change(rank: RankOutcome, entry: seeding.Raw) -> None:
            mine = entry.get("role", "client") == "client"
            factor = factors.get(Subject(rank.node))
            if factor is not None and mine and metric == f"write_{entry['device']}/{entry['port']}":
                entry["text"] = scale_write_text(entry["text"], factor)

        return _says(key, change)

    return scale


def faults(key: str) -> tuple[SeededFault, ...]:
    """Of ``loopback``, or of the ``writes`` between nodes."""
    node = Subject("gpu02")
    cut = write_text("mlx5_0", 196.6)[:300]
    refused = "Unable to Connect the HCA's through the link\n"
    return (
        SeededFault("slow-port", _says(key, _at(0.4)), node),
        SeededFault("just-below-the-floor", _says(key, _at(JUST_BELOW)), node),
        SeededFault("too-fast", _says(key, _at(1.9)), node, Verdict.NOT_RUN),
        SeededFault("refused", _says(key, _ends(1, refused)), node),
        SeededFault("does-not-end", _says(key, _ends(None)), node),
        SeededFault("cut-off", _says(key, _ends(0, cut)), node, Verdict.NOT_RUN),
        SeededFault("refused-beside-one-cut-off", _says(key, _refused_and_cut_off), node),
        SeededFault(
            "rank-crashes", seeding.rank(JOB, "gpu02", RankState.CRASHED, "killed by signal 9"), node
        ),
        SeededFault("not-run", lambda evidence: seeding.without_job(evidence, JOB), node, Verdict.NOT_RUN),
        SeededFault("no-perftest", _without, node, Verdict.EXCLUDED),
        SeededFault("no-adapter", _no_adapters, node, Verdict.EXCLUDED),
    )


def slow_link() -> SeededFault:
    """One pair of ports is slow with each other alone."""
    return SeededFault("slow-link", _says("writes", _at(0.4, pair=True)), Subject("gpu02"))


def slow_from_afar() -> SeededFault:
    """A port below its floor, measured by a process that could not be kept on its NUMA node."""

    def change(rank: RankOutcome, entry: seeding.Raw) -> None:
        _at(0.6)(rank, entry)
        entry["unpinned"] = "the container may use none of its NUMA node's CPUs"

    return SeededFault("slow-from-afar", _says("loopback", change), Subject("gpu02"), Verdict.NOT_RUN)
