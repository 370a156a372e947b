"""PCI Express replays are judged by how many a minute the jobs brought, not by how many there ever were."""

from __future__ import annotations

from dataclasses import replace
from io import BytesIO
from pathlib import Path

import pytest

from clustercheck.checks.all import BY_ID
from clustercheck.checks.base import evaluate
from clustercheck.checks.pcie_replays import allowed
from clustercheck.checks.support import seeding
from clustercheck.evidence.cluster import Evidence
from clustercheck.expect.baseline import Baseline, BaselineFigure
from clustercheck.model import Result, Subject, Verdict
from clustercheck.parse.reading import CannotReadError
from clustercheck.parse.replays import parse_replays
from clustercheck.probe.replays import MOST_GPUS, Replays
from clustercheck.samples import sample, smi

FIRST = "00000000:07:00.0"


def counted(before: int, after: int, minutes: float = 1) -> Evidence:
    """The first GPU's count before and after jobs that take so long."""

    def count(replays: int) -> seeding.Inject:
        return seeding.edit("gpu01", lambda raw: raw["pcie_replays"]["counts"].update({FIRST: str(replays)}))

    evidence = seeding.chain(count(before), seeding.later(count(after)))(sample.healthy(1))
    began = evidence.nodes["gpu01"].asked
    assert began is not None
    ended = began[1] + 60 * minutes
    later = {name: replace(node, asked=(ended, ended + 2)) for name, node in evidence.later.items()}
    return replace(evidence, later=later)


def judged(evidence: Evidence) -> Result:
    return evaluate(BY_ID["pcie-replays"], evidence)[0]


@pytest.mark.parametrize(
    ("before", "after", "minutes", "verdict"),
    [
        (150, 150, 1, Verdict.PASS),  # as captured of healthy H100
        (150, 165, 1, Verdict.PASS),
        (150, 167, 1, Verdict.FAIL),
        (0, 152, 10, Verdict.PASS),
        (0, 168, 10, Verdict.FAIL),
        (0, 16, 0.2, Verdict.PASS),  # less than a minute counts as one
        (9000, 9, 1, Verdict.NOT_RUN),  # cleared in between
    ],
)
def test_the_rate_over_the_jobs_counts(before: int, after: int, minutes: float, verdict: Verdict) -> None:
    result = judged(counted(before, after, minutes))
    assert result.verdict is verdict
    assert result.evidence.get("since_driver_load", before) == before


def test_what_was_counted_is_told_with_the_baselines() -> None:
    figure = BaselineFigure(12.0, "replays", BY_ID["pcie-replays"].method, {})
    key = ("pcie-replays", Subject("gpu01", 0), "replays_since_load")
    baseline = Baseline("before", "2026-11-01T00:00:00Z", False, {key: figure})
    result = judged(replace(counted(150, 150), baseline=baseline))
    assert result.verdict is Verdict.PASS
    assert (result.evidence["since_driver_load"], result.evidence["baseline"]) == (150, 12.0)


def test_without_a_job_what_has_counted_before_is_not_judged() -> None:
    idle = replace(counted(0, 0), later={})
    assert judged(idle).verdict is Verdict.PASS
    result = judged(replace(counted(150, 150), later={}))
    assert result.verdict is Verdict.NOT_RUN and "150 replays" in result.because


@pytest.mark.parametrize(("generation", "width", "limit"), [(3, 16, 8), (4, 16, 16), (4, 8, 8), (5, 16, 31)])
def test_the_limit_grows_with_rate_and_lanes(generation: int, width: int, limit: int) -> None:
    evidence = sample.healthy(1)
    at = "pci/pci_gpu_link_info/"
    for name in ("pcie_gen/max_link_gen", "pcie_gen/current_link_gen"):
        evidence = seeding.smi("gpu01", 0, at + name, str(generation))(evidence)
    for name in ("link_widths/max_link_width", "link_widths/current_link_width"):
        evidence = seeding.smi("gpu01", 0, at + name, f"{width}x")(evidence)
    assert allowed(evidence.nodes["gpu01"].smi().gpus[0]) == limit


def test_the_probe_takes_the_counts_out_of_a_whole_report(fixtures_dir: Path) -> None:
    replays = Replays()
    with (fixtures_dir / "nvidia-smi" / "h100-8x.xml").open("rb") as stream:
        replays.read(stream)
    found = parse_replays({"rc": 0, "counts": replays.counts})
    assert len(found) == 8 and found["0000:53:00.0"] == 150


def test_a_report_of_any_number_of_gpus_is_read_to_a_bound() -> None:
    lines = "".join(
        f'\t<gpu id="00000000:{n:02x}:00.0">\n\t\t\t<replay_counter>{n}</replay_counter>\n'
        for n in range(200)
    )
    replays = Replays()
    replays.read(BytesIO(lines.encode()))
    assert len(replays.counts) == MOST_GPUS


@pytest.mark.parametrize(
    "record",
    [None, {}, {"counts": []}, {"counts": {}, "rc": 9}, {"counts": {FIRST: "1"}, "missing": True},
     {"counts": {FIRST: "1"}, "timed_out": True}, {"counts": {"somewhere": "1"}}],
)  # fmt: skip
def test_what_is_no_record_of_counts_is_not_read(record: object) -> None:
    with pytest.raises(CannotReadError):
        parse_replays(record)


def test_the_sample_counts_the_gpus_that_it_prints() -> None:
    assert next(iter(smi.replay_counts())) == FIRST and len(smi.replay_counts()) == 8


def test_a_job_that_ran_on_other_nodes_alone_loaded_no_link_of_this_one() -> None:
    evidence = counted(150, 150)
    elsewhere = {
        name: replace(outcome, ranks=tuple(rank for rank in outcome.ranks if rank.node != "gpu01"))
        for name, outcome in evidence.jobs.items()
    }
    assert judged(replace(evidence, jobs=elsewhere)).verdict is Verdict.NOT_RUN
