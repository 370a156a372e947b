"""Programs for one GPU on every GPU of every node, in one launch; the outcome of each is a job."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from clustercheck.errors import ExplainedError
from clustercheck.evidence.cluster import Evidence
from clustercheck.launch.model import JobOutcome, JobSpec, Launcher, RankOutcome, RankState
from clustercheck.running.suites import Suite

NAME = "gpu-programs"
PROGRAM = "gpu_programs.py"

OnEvent = Callable[[Mapping[str, Any]], None]


def run_single_gpu_jobs(suite: Suite, evidence: Evidence, launcher: Launcher, on_event: OnEvent) -> Evidence:
    """The evidence with the outcome of each of the suite's single-GPU programs, or why there is none."""
    wanted = {check.job for check in suite.selected() if check.job}
    jobs = [job for job in suite.jobs if suite.jobs[job].alone and job in wanted]
    nodes = [n for n in evidence.reachable if n not in evidence.left_out and evidence.gpu_count(n)]
    if not jobs or not any(map(evidence.gpu_count, evidence.declared)):
        return evidence
    ready = [node for node in nodes if evidence.spec.settings_of(node).image]
    if not ready:
        because = "no training image is declared: set training_image_source and training_image_digest"
        return _skip_jobs(evidence, jobs, because if nodes else "no node could take part")
    spec = _make_spec(suite, evidence, jobs, ready)
    on_event({"type": "job", "job": spec.name, "nodes": list(ready), "limit_s": spec.timeout_s})
    try:
        outcome = launcher.run(spec, on_event=on_event)
    except ExplainedError as error:
        return _skip_jobs(evidence, jobs, f"the job could not be started: {error.what}")
    except Exception as error:  # noqa: BLE001 - a failed launcher says nothing about nodes
        return _skip_jobs(evidence, jobs, f"the launcher failed: {type(error).__name__}: {error}")
    by_job = {job: select_job(outcome, job, jobs) for job in jobs}
    return replace(evidence, jobs={**evidence.jobs, **by_job})


def _skip_jobs(evidence: Evidence, jobs: Sequence[str], because: str) -> Evidence:
    return replace(evidence, skipped={**evidence.skipped, **dict.fromkeys(jobs, because)})


def _make_spec(suite: Suite, evidence: Evidence, jobs: Sequence[str], nodes: Sequence[str]) -> JobSpec:
    """One launch for all of them. Programs that take longer per GPU come later in the suite's data."""
    settings = {node: evidence.spec.settings_of(node) for node in nodes}
    of_node = {node: (each.image, each.container_gpu_arguments) for node, each in settings.items()}
    image, container_arguments = of_node[nodes[0]]
    framework = settings[nodes[0]].framework
    programs = [
        {
            "job": job,
            "program": suite.jobs[job].program or job,
            "arguments": {**suite.jobs[job].arguments},
        }
        for job in jobs
    ]
    return JobSpec(
        name=NAME,
        program=PROGRAM,
        nodes=tuple(nodes),
        image=image,
        timeout_s=sum(suite.jobs[job].timeout_s for job in jobs),
        arguments={"framework": framework, "programs": programs},
        container_arguments=container_arguments,
        overrides={node: each for node, each in of_node.items() if each != (image, container_arguments)},
        alone=True,
        framework=framework,
        site_environment={node: each.environment for node, each in settings.items() if each.environment},
    )


def select_job(outcome: JobOutcome, job: str, jobs: Sequence[str]) -> JobOutcome:
    """One program's part of the outcome: its verdict by rank, or how the rank ended in it."""
    ranks = tuple(_select_rank_part(rank, job, jobs) for rank in outcome.ranks)
    first = next((rank for rank in ranks if rank.state not in (RankState.OK, RankState.KILLED)), None)
    return replace(outcome, job=job, ranks=ranks, first_failure=first)


def _select_rank_part(rank: RankOutcome, job: str, jobs: Sequence[str]) -> RankOutcome:
    verdict = rank.verdict or {}
    programs = verdict.get("programs")
    programs = programs if isinstance(programs, Mapping) else {}
    described = {
        key: value for key, value in verdict.items() if key not in ("programs", "ok", "because", "phase")
    }
    own = programs.get(job)
    if isinstance(own, Mapping):  # its end belongs to a later program
        return replace(rank, state=RankState.OK, because="", verdict={**described, **own})
    unfinished = next((each for each in jobs if each not in programs), job)
    if unfinished != job and rank.state in (RankState.CRASHED, RankState.HUNG):
        because = f"not run: {unfinished} failed first ({rank.because})"
        return replace(rank, state=RankState.KILLED, because=because, verdict=described or None)
    return replace(rank, verdict=described or None)
