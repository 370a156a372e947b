"""Figures larger or smaller by a factor, in what programs said: what `Check.scale` is made of."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from clustercheck.checks.base import GROUP, Scale
from clustercheck.checks.support.seeding import Inject, Raw, with_job
from clustercheck.evidence.cluster import Evidence
from clustercheck.jobs.rdma_write import SIZE_BYTES
from clustercheck.launch.model import RankOutcome
from clustercheck.model import Subject
from clustercheck.parse.nccl_tests import COLLECTIVES


def in_verdicts(job: str, change: Callable[[Raw, str, float], None]) -> Scale:
    """Of what the ranks of a job said: those on the subject's GPU, or on its node, or all of the group."""

    def scale(metric: str, factors: Mapping[Subject, float]) -> Inject:
        def one(rank: RankOutcome) -> RankOutcome:
            places = (Subject(rank.node, rank.gpu), Subject(rank.node), GROUP)
            factor = next((factors[place] for place in places if place in factors), None)
            if factor is None:
                return rank
            answer = copy.deepcopy(dict(rank.verdict or {}))
            change(answer, metric, factor)
            return replace(rank, verdict=answer)

        def inject(evidence: Evidence) -> Evidence:
            outcome = evidence.jobs[job]
            return with_job(evidence, replace(outcome, ranks=tuple(map(one, outcome.ranks))))

        return inject

    return scale


def of_gpu_program(job: str) -> Scale:
    """Of a program for one GPU."""

    def change(verdict: Raw, metric: str, factor: float) -> None:
        for figure in verdict["figures"]:
            if figure["metric"] == metric:
                figure["value"] *= factor

    return in_verdicts(job, change)


def scale_write_text(text: str, factor: float) -> str:
    """What ib_write_bw printed, at another bandwidth."""

    def row(match: re.Match[str]) -> str:
        size, iterations, _peak, average, _rate = match[0].split()
        gbps = float(average) * factor
        of_messages = gbps / (int(size) * 8e-3)
        return (
            f" {size}    {iterations}             {gbps:.2f}             {gbps:.2f}\t\t     {of_messages:.6f}"
        )

    return re.sub(rf"^ {SIZE_BYTES} .*$", row, text, flags=re.MULTILINE)


def scale_nccl_tests_text(text: str, program: str, size_bytes: int, factor: float) -> str:
    """What a program of nccl-tests printed, at another bandwidth for the size that is nominally this one."""
    lines = text.splitlines()
    of_algbw = COLLECTIVES[program][0](text.count("#  Rank "))
    rows = [number for number, line in enumerate(lines) if line and not line.startswith("#")]
    least = int(text.partition("minBytes ")[2].split()[0])
    number = rows[(size_bytes // least).bit_length() - 1]  # each size is twice the one before it
    cells = lines[number].split()
    for time, algbw, busbw in ((5, 6, 7), (9, 10, 11)):  # columns, out of place and in place
        cells[time] = f"{float(cells[time]) / factor:.2f}"
        exact = int(cells[0]) / float(cells[time]) / 1e3
        cells[algbw], cells[busbw] = f"{exact:.2f}", f"{exact * of_algbw:.2f}"
    lines[number] = " ".join(cells)
    found = [float(line.split()[column]) for line in (lines[row] for row in rows) for column in (7, 11)]
    average = f"# Avg bus bandwidth    : {sum(found) / len(found):.4f}"
    return "\n".join([*(average if line.startswith("# Avg") else line for line in lines), ""])


def scale_fio_text(text: str, way: str, factor: float) -> str:
    """fio's document, with another bandwidth of ``read`` or ``write``."""
    document = json.loads(text)
    document["jobs"][0][way]["bw_bytes"] = round(document["jobs"][0][way]["bw_bytes"] * factor)
    return json.dumps(document)
