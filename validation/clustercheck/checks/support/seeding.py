"""Planting faults in healthy evidence: each returns new evidence and leaves the old as it was."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

from clustercheck.checks.base import Finding
from clustercheck.evidence.cluster import Evidence
from clustercheck.evidence.node import NodeEvidence
from clustercheck.expect.baseline import Baseline, BaselineFigure
from clustercheck.launch.model import JobOutcome, RankOutcome, RankState
from clustercheck.model import Subject

Raw = dict[str, Any]
Inject = Callable[[Evidence], Evidence]


def edit(node: str, change: Callable[[Raw], None]) -> Inject:
    """Change a node's raw probe record in place."""

    def inject(evidence: Evidence) -> Evidence:
        raw = copy.deepcopy(dict(evidence.nodes[node].raw))
        change(raw)
        changed = replace(evidence.nodes[node], raw=raw)
        return replace(evidence, nodes={**evidence.nodes, node: changed})

    return inject


def later(inject: Inject) -> Inject:
    """Plant it in what was read after the jobs."""

    def on_later(evidence: Evidence) -> Evidence:
        return replace(evidence, later=inject(replace(evidence, nodes=evidence.later)).nodes)

    return on_later


def unreachable(node: str, because: str = "no route to host") -> Inject:
    """The node does not answer."""
    return lambda evidence: replace(
        evidence, nodes={**evidence.nodes, node: NodeEvidence(node, {}, unreachable=because)}
    )


def smi(node: str, gpu: int, path: str, text: str | None) -> Inject:
    """Set (or with None remove) an element of one GPU in what `nvidia-smi -q -x` printed."""

    def change(root: ElementTree.Element) -> None:
        parent_path, _, name = path.rpartition("/")
        element = root.findall("gpu")[gpu]
        parent = element.find(parent_path) if parent_path else element
        found = parent.find(name) if parent is not None else None
        if parent is None or found is None:
            raise LookupError(f"there is no {path} to change")
        if text is None:
            parent.remove(found)
        else:
            found.text = text

    return smi_root(node, change)


def smi_root(node: str, change: Callable[[ElementTree.Element], None]) -> Inject:
    """Change the whole XML that `nvidia-smi -q -x` printed."""

    def on_raw(raw: Raw) -> None:
        root = ElementTree.fromstring(raw["nvidia_smi"]["stdout"])  # noqa: S314 - our own text
        change(root)
        raw["nvidia_smi"]["stdout"] = ElementTree.tostring(root, encoding="unicode")

    return edit(node, on_raw)


def lose_gpu(node: str, gpu: int, *, from_bus: bool) -> Inject:
    """A GPU gone from the driver, and with ``from_bus`` from the PCI bus too."""

    def from_driver(root: ElementTree.Element) -> None:
        root.remove(root.findall("gpu")[gpu])
        attached = root.find("attached_gpus")
        if attached is not None:
            attached.text = str(len(root.findall("gpu")))

    def off_bus(raw: Raw) -> None:
        gpus = [device for device in raw["pci"] if device["class"].startswith(("0x0300", "0x0302"))]
        raw["pci"].remove(gpus[gpu])

    return chain(smi_root(node, from_driver), edit(node, off_bus) if from_bus else lambda evidence: evidence)


def silence(node: str, gpu: int) -> Inject:
    """A GPU that is on the PCI bus and answers nothing but ones there."""

    def change(raw: Raw) -> None:
        gpus = [device for device in raw["pci"] if device["class"].startswith(("0x0300", "0x0302"))]
        gpus[gpu]["answers"] = False

    return edit(node, change)


def fall_off_bus(node: str, gpu: int) -> Inject:
    """A GPU that no longer answers on the PCI bus: nvidia-smi fails over it, and lists none."""

    def change(raw: Raw) -> None:
        address = [d["address"] for d in raw["pci"] if d["class"].startswith(("0x0300", "0x0302"))][gpu]
        message = f"Unable to determine the device handle for GPU{gpu}: {address}: GPU is lost."
        raw["nvidia_smi"].update(rc=15, stdout=f"{message}  Reboot the system to recover this GPU\n")

    return chain(silence(node, gpu), edit(node, change))


def stdout(node: str, part: str, old: str, new: str) -> Inject:
    """Replace text in a program's output. Raises LookupError where it is not there."""

    def change(raw: Raw) -> None:
        answer = raw[part]["stdout"]
        if old not in answer:
            raise LookupError(f"{part} does not say {old!r}")
        raw[part]["stdout"] = answer.replace(old, new, 1)

    return edit(node, change)


# What docker 28.2.2 says where its daemon is stopped.
NO_DOCKER = (
    "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?"
)


def program_fails(node: str, part: str, **how: Any) -> Inject:
    """A program of the probe that ended otherwise: rc, timed_out, missing, stdout, stderr."""
    return edit(node, lambda raw: raw[part].update({"stdout": "", "stderr": "", **how}))


def kernel_says(node: str, line: str) -> Inject:
    """A line in the kernel log."""
    return edit(node, lambda raw: raw["kernel_log"]["kept"].append(line))


def undeclared(node: str) -> Inject:
    """Nobody said what hardware the node has."""

    def inject(evidence: Evidence) -> Evidence:
        nodes = tuple(
            replace(each, gpu_count=None, profile="") if each.name == node else each
            for each in evidence.spec.nodes
        )
        return replace(evidence, spec=replace(evidence.spec, nodes=nodes))

    return inject


def only(job: str, *nodes: str, asked: bool) -> Inject:
    """The job ran on these nodes alone: all that were ``asked`` for, or all that were left."""

    def inject(evidence: Evidence) -> Evidence:
        outcome = evidence.jobs[job]
        some = with_job(evidence, replace(outcome, ranks=tuple(r for r in outcome.ranks if r.node in nodes)))
        if not asked:
            return some
        spec = replace(some.spec, nodes=tuple(each for each in some.spec.nodes if each.name in nodes))
        return replace(some, spec=spec, nodes={name: some.nodes[name] for name in nodes})

    return inject


def on_gpus(job: str, *, missing_on: str) -> Inject:
    """The job ran over NCCL, a rank a GPU, with one GPU of a node left out."""

    def inject(evidence: Evidence) -> Evidence:
        outcome = evidence.jobs[job]
        seats = [
            (old, gpu)
            for old in outcome.ranks
            for gpu in range(evidence.gpu_count(old.node) - (old.node == missing_on))
        ]
        ranks = tuple(
            replace(
                old,
                rank=number,
                gpu=gpu,
                verdict={**(old.verdict or {}), "rank": number, "world": len(seats), "backend": "nccl"},
            )
            for number, (old, gpu) in enumerate(seats)
        )
        return with_job(evidence, replace(outcome, ranks=ranks))

    return inject


def rank(job: str, node: str, state: RankState, because: str = "") -> Inject:
    """A rank that did not succeed: the first failure of its job, all others killed with it."""

    def inject(evidence: Evidence) -> Evidence:
        outcome = evidence.jobs[job]
        ranks = tuple(
            replace(r, state=state if r.node == node else RankState.KILLED, because=because, verdict=None)
            for r in outcome.ranks
        )
        first = next(r for r in ranks if r.node == node)
        return with_job(evidence, replace(outcome, ranks=ranks, first_failure=first))

    return inject


def verdicts(
    job: str, change: Callable[[RankOutcome, Raw], None], on: Collection[Subject] = (Subject(),)
) -> Inject:
    """Change what the ranks of a job said, in place: all ranks, or those on the nodes of these subjects."""
    nodes = {subject.node for subject in on}

    def inject(evidence: Evidence) -> Evidence:
        outcome = evidence.jobs[job]
        ranks = []
        for one in outcome.ranks:
            if None not in nodes and one.node not in nodes:
                ranks.append(one)
                continue
            answer = copy.deepcopy(dict(one.verdict or {}))
            change(one, answer)
            ranks.append(replace(one, verdict=answer))
        return with_job(evidence, replace(outcome, ranks=tuple(ranks)))

    return inject


def all_say(job: str, **answer: Any) -> Inject:
    """Every rank of the job says this."""
    return verdicts(job, lambda rank, verdict: verdict.update(answer))


def with_facts(evidence: Evidence, job: str, **facts: Any) -> Evidence:
    """The launcher says this of the job."""
    outcome = evidence.jobs[job]
    return with_job(evidence, replace(outcome, facts={**outcome.facts, **facts}))


def with_baseline(
    check: str, judge: Callable[[Evidence, Subject], Finding], subject: Subject, factor: float
) -> Inject:
    """A baseline in which this subject's figures were ``factor`` times what they are."""

    def inject(evidence: Evidence) -> Evidence:
        judged = judge(evidence, subject).figures
        figures = {
            (check, subject, one.metric): BaselineFigure(
                one.measured * factor, one.unit, one.method, one.conditions
            )
            for one in judged
        }
        return replace(evidence, baseline=Baseline("before", "2026-11-01T00:00:00Z", False, figures))

    return inject


def with_job(evidence: Evidence, outcome: JobOutcome) -> Evidence:
    """The evidence with this outcome of a job."""
    jobs: Mapping[str, JobOutcome] = {**evidence.jobs, outcome.job: outcome}
    return replace(evidence, jobs=jobs)


def without_job(evidence: Evidence, job: str) -> Evidence:
    """The evidence of a run that had no such job."""
    return replace(evidence, jobs={name: each for name, each in evidence.jobs.items() if name != job})


def chain(*injects: Inject) -> Inject:
    """One fault after the other."""

    def inject(evidence: Evidence) -> Evidence:
        for each in injects:
            evidence = each(evidence)
        return evidence

    return inject


def split_gpu(node: str, gpu: int, *profiles: str) -> Inject:
    """A GPU that is split into these MIG instances."""

    def listed(raw: Raw) -> None:
        lines = raw["gpu_list"]["stdout"].splitlines()
        at = next(i for i, line in enumerate(lines) if re.match(rf"GPU {gpu}:", line)) + 1
        uuid = "MIG-00000000-0000-0000-0000-00000000000"
        lines[at:at] = [f"  MIG {name:<12} Device  {i}: (UUID: {uuid}{i})" for i, name in enumerate(profiles)]
        raw["gpu_list"]["stdout"] = "\n".join(lines) + "\n"

    modes = [smi(node, gpu, f"mig_mode/{mode}", "Enabled") for mode in ("current_mig", "pending_mig")]
    return chain(*modes, edit(node, listed))
