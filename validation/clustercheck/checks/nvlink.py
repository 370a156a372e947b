"""NVLink: every link of every GPU up, at its full rate."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial

from clustercheck.checks.base import (
    Check,
    Finding,
    SeededFault,
    every_gpu,
    failed,
    not_applicable,
    not_run,
    passed,
)
from clustercheck.checks.support import seeding
from clustercheck.checks.support.gpu import explain_no_nvlink, gpu_of, listed_for, require_all_listed
from clustercheck.evidence.cluster import Evidence
from clustercheck.expect.effects import effect
from clustercheck.expect.profiles import NvLinkSpec
from clustercheck.model import Figure, Limit, Scope, Section, Severity, Subject, Verdict
from clustercheck.parse.nvlink import GpuLinks
from clustercheck.parse.reading import CannotReadError

COMMAND = "nvidia-smi nvlink -s"
_RATE_TOLERANCE = 0.02  # the driver prints 26.562 GB/s where the nominal rate is 25 and 25 where it is 25


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """As many links as the hardware has, none inactive, none slower than it should be."""
    node = str(subject.node)
    profile = evidence.profile(node)
    expected = profile.nvlink if profile else None
    if profile is not None and expected is None:
        return not_applicable(f"{profile.summary} has no NVLink")
    gpu = gpu_of(evidence, subject)
    if why := explain_no_nvlink(evidence, gpu, node, "nvlink"):
        return not_applicable(why)
    listed = evidence.nodes[node].nvlinks()
    require_all_listed(evidence.nodes[node], listed, COMMAND)
    links = listed_for(gpu, listed)
    if links is None:
        raise CannotReadError(f"{COMMAND} does not list this GPU")
    if links.lost:
        return failed(f"the driver has lost this GPU: {links.unread}", links.lost, "no such answer")
    if links.unread:
        raise CannotReadError(links.unread)
    most = max(len(each.rates) for each in listed)
    if not links.rates and (expected is None or not expected.required):
        return _none_listed(most, len(evidence.nodes[node].nvswitch_addresses()))
    return _judge_links(links, expected, most)


def _none_listed(most: int, switches: int) -> Finding:
    """The driver says the same of links that are not fitted and of links that are all inactive."""
    if switches:
        because = f"no link is listed, and there are {switches} NVSwitches to be linked to"
        return failed(because, 0, most or None, unit="links", source="class 0680 of vendor 10de in sysfs")
    if most:
        because = f"no link is listed, {most} are of another GPU of this node: not fitted, or all are down"
        return not_run(because, remedy=BRIDGE)
    return not_applicable("no NVLink is fitted")


def _judge_links(links: GpuLinks, expected: NvLinkSpec | None, most: int) -> Finding:
    """``most`` is how many links any GPU of the node lists: the measure where no profile has one."""
    count = expected.links if expected else most
    source = expected.source if expected else "the most links that a GPU of this node lists"
    more = {"down": list(links.down), "rates_gbps": sorted(set(links.rates.values()))}
    up = len(links.up)
    if links.down:
        numbers = ", ".join(map(str, links.down))
        return failed(f"link {numbers} is down", up, count, unit="links", source=source, evidence=more)
    if up < count:
        return failed(
            f"{up} of {count} links are listed", up, count, unit="links", source=source, evidence=more
        )
    rate = expected.link_gbps if expected else max(links.rates.values())
    slowest = min(links.rates.values())
    slow = [number for number, value in sorted(links.rates.items()) if value < rate * (1 - _RATE_TOLERANCE)]
    nominal = expected.source if expected else "the fastest link of this GPU"
    figure = Figure(
        metric="link_rate",
        measured=slowest,
        unit="GB/s",
        method=CHECK.method,
        label=f"on link {', '.join(map(str, slow))}" if slow else "on the slowest link",
        floor=Limit(rate, nominal, tolerance=_RATE_TOLERANCE),
        effect=effect("nvlink"),
    )
    if slow:
        return Finding(Verdict.PASS, figures=(figure,), evidence=more)
    return passed(up, count, unit="links", source=source, efficiency=1.0, figures=(figure,), evidence=more)


def _none_of(gpu: int) -> seeding.Inject:
    """As the driver says it of a GPU whose links are all down, on a node without NVSwitch or profile."""

    def change(raw: seeding.Raw) -> None:
        before, this, after = raw["nvlink"]["stdout"].partition(f"GPU {gpu}:")
        mine, following, rest = after.partition(f"GPU {gpu + 1}:")
        message = "NVML: Unable to retrieve NVLink information as all links are inActive\n"
        raw["nvlink"]["stdout"] = before + this + mine.split("\n")[0] + "\n" + message + following + rest

    return seeding.chain(seeding.undeclared("gpu02"), seeding.edit("gpu02", change))


def _instead_of_link_0(node: str, gpu: int, message: str) -> seeding.Inject:
    def change(raw: seeding.Raw) -> None:
        before, header, after = raw["nvlink"]["stdout"].partition(f"GPU {gpu}:")
        raw["nvlink"]["stdout"] = (
            before + header + after.replace("\t Link 0: 25 GB/s\n", f"\t {message}\n", 1)
        )

    return seeding.edit(node, change)


def _no_switches(raw: seeding.Raw) -> None:
    raw["pci"] = [device for device in raw["pci"] if not device["class"].startswith("0x0680")]


def _inactive(raw: seeding.Raw) -> None:
    raw["nvlink"]["stdout"] = raw["nvlink"]["stdout"].replace("Link 5: 25 GB/s", "Link 5: <inactive>", 1)


def _slow_and_undeclared(evidence: Evidence) -> Evidence:
    """No profile says what is right: only the other GPUs tell."""
    for node in evidence.reachable:
        evidence = seeding.undeclared(node)(evidence)

    def slow(raw: seeding.Raw) -> None:
        before, gpu, after = raw["nvlink"]["stdout"].partition("GPU 3:")
        mine, next_gpu, rest = after.partition("GPU 4:")
        raw["nvlink"]["stdout"] = before + gpu + mine.replace("25 GB/s", "12.5 GB/s") + next_gpu + rest

    return seeding.edit("gpu02", slow)(evidence)


def _scale(_metric: str, factors: Mapping[Subject, float]) -> seeding.Inject:
    """Every link of these GPUs."""

    def inject(evidence: Evidence) -> Evidence:
        for subject, factor in factors.items():
            evidence = seeding.edit(str(subject.node), partial(_scale_gpu, subject.gpu, factor))(evidence)
        return evidence

    return inject


def _scale_gpu(gpu: int | None, factor: float, raw: seeding.Raw) -> None:
    before, this, after = raw["nvlink"]["stdout"].partition(f"GPU {gpu}:")
    mine, following, rest = after.partition("GPU ")
    rate = re.compile(r"(?<=: )[0-9.]+(?= GB/s)")
    scaled = rate.sub(lambda match: f"{float(match[0]) * factor:.3f}", mine)
    raw["nvlink"]["stdout"] = before + this + scaled + following + rest


def _faster_before(evidence: Evidence) -> Evidence:
    undeclared = seeding.undeclared("gpu01")(evidence)
    return seeding.with_baseline("nvlink", judge, Subject("gpu01", 0), 1.25)(undeclared)


BRIDGE = (
    "Check whether this GPU has a bridge, and read the kernel log for Xid 74; hardware_profile defines if "
    "it must have one. If there is none, exclude the check for this GPU by name (validation_exclusions)."
)
CHECK = Check(
    id="nvlink",
    title="NVLink",
    section=Section.GPU_STATE,
    scope=Scope.LINK,
    severity=Severity.CRITICAL,
    measures="state and rate of every NVLink of every GPU",
    method=COMMAND,
    requires="GPUs with NVLink, MIG off",
    expectation="as many links as the hardware profile says, all up, at full rate",
    remedy="Restart Fabric Manager if there is an NVSwitch; then drain and reboot the node; a link that "
    "stays down means that the GPU, its bridge or the baseboard must be replaced.",
    subjects=every_gpu,
    judge=judge,
    scale=_scale,
    faults=(
        SeededFault("nvlink-down", seeding.edit("gpu01", _inactive), Subject("gpu01", 0)),
        SeededFault(
            "nvlink-slow",
            seeding.stdout("gpu02", "nvlink", "Link 0: 25 GB/s", "Link 0: 12.5 GB/s"),
            Subject("gpu02", 0),
        ),
        SeededFault("nvlinks-of-a-gpu-all-slow", _slow_and_undeclared, Subject("gpu02", 3)),
        SeededFault("nvlinks-of-a-gpu-all-down", _none_of(3), Subject("gpu02", 3)),
        SeededFault(
            "bridge-or-not",
            seeding.chain(_none_of(3), seeding.edit("gpu02", _no_switches)),
            Subject("gpu02", 3),
            Verdict.NOT_RUN,
        ),
        SeededFault("nvlink-slower-than-before", _faster_before, Subject("gpu01", 0)),
        SeededFault(
            "nvlink-not-listed",
            seeding.stdout("gpu02", "nvlink", "\t Link 11: 25 GB/s\n", ""),
            Subject("gpu02", 0),
        ),
        SeededFault(
            "nvlink-down-beside-an-unreadable-gpu",
            seeding.chain(
                seeding.edit("gpu01", _inactive), _instead_of_link_0("gpu01", 3, "Verbindung 0: 25 GB/s")
            ),
            Subject("gpu01", 0),
        ),
        SeededFault(
            "gpu-lost",
            _instead_of_link_0("gpu02", 3, "Unable to get the status of NVLinks: GPU is lost"),
            Subject("gpu02", 3),
        ),
        SeededFault(
            "nvlink-unreadable",
            seeding.stdout("gpu03", "nvlink", "GB/s", "Go/s"),
            Subject("gpu03", 0),
            Verdict.NOT_RUN,
        ),
    ),
)
