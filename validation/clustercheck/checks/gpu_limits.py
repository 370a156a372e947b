"""Has anyone set a GPU's power limit or application clocks below the card's own default?"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from clustercheck.checks.base import (
    Check,
    Finding,
    SeededFault,
    every_gpu,
    failed,
    not_applicable,
    passed,
    warned,
)
from clustercheck.checks.support import seeding
from clustercheck.checks.support.gpu import gpu_of
from clustercheck.evidence.cluster import Evidence
from clustercheck.expect.votes import count_votes, find_majority
from clustercheck.model import Scope, Section, Subject, Verdict
from clustercheck.parse.nvidia_smi import SmiGpu, plain_model
from clustercheck.parse.reading import CannotReadError

_FIGURE = re.compile(r"(\d{1,6}(?:\.\d{1,3})?) (?:W|MHz)")
NOT_HERE = ("", "N/A", "[N/A]", "Not Supported", "Requested functionality has been deprecated")
# A power limit had another name before driver 550.
CURRENT_POWER = ("current_power_limit", "power_limit")
CLOCKS = {"graphics_clock": "graphics", "mem_clock": "memory"}

# What is set and what is the default, by what it is of.
Settings = Mapping[str, "tuple[float, float]"]


@dataclass(frozen=True)
class _OfModel:
    """The settings on each node with GPUs of one model, the usual ones (None where there are none), how many
    GPUs of the model there are, and how many are on nodes with the usual ones.
    """

    by_node: Mapping[str, frozenset[tuple[float, ...]]]
    usual: frozenset[tuple[float, ...]] | None
    gpus: int
    alike: int


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """Lower than the default on this GPU is a fault; on all GPUs of its model, here and on most nodes, it
    may be the site's choice.
    """
    gpu = gpu_of(evidence, subject)
    settings = settings_of(gpu)
    if not settings:
        return not_applicable("this GPU reports neither a power limit nor application clocks")
    lowered = _lowered(settings)
    more = {name: {"set": now, "default": default} for name, (now, default) in settings.items()}
    expected = ", ".join(f"{name} {default:g}" for name, (_, default) in settings.items())
    measured = ", ".join(f"{name} {now:g}" for name, (now, _) in settings.items())
    if not lowered:
        return passed(measured, expected, evidence=more)
    because = "; ".join(
        f"{name} is set to {settings[name][0]:g}, its default is {settings[name][1]:g}" for name in lowered
    )
    model = evidence.once(_settings)[plain_model(gpu.model)]
    own, total, alike = model.by_node[str(subject.node)], model.gpus, model.alike
    if total > 1 and len(own) == 1 and model.usual == own:
        because += f", alike on {'all' if alike == total else f'{alike} of'} {total} GPUs of this model"
        return warned(because, measured, expected, evidence=more, remedy=ON_PURPOSE)
    return failed(because, measured, expected, evidence=more)


def settings_of(gpu: SmiGpu) -> Settings:
    """Limits of this GPU that the driver tells, with its defaults. Raises CannotReadError."""
    power = gpu.power or {}
    now = next((power[name] for name in CURRENT_POWER if name in power), "")
    found = {"power limit (W)": (now, power.get("default_power_limit", ""))}
    for element, name in CLOCKS.items():
        sections = (gpu.application_clocks or {}, gpu.default_application_clocks or {})
        found[f"{name} clock (MHz)"] = (sections[0].get(element, ""), sections[1].get(element, ""))
    return {
        name: (_figure(name, pair[0]), _figure(name, pair[1]))
        for name, pair in found.items()
        if not set(pair) & set(NOT_HERE)
    }


def _figure(name: str, text: str) -> float:
    match = _FIGURE.fullmatch(text)
    if match is None:
        raise CannotReadError(f"the {name} is {text[:40]!r}")
    return float(match[1])


def _lowered(settings: Settings) -> list[str]:
    return [name for name, (now, default) in settings.items() if now < default]


def _settings(evidence: Evidence) -> Mapping[str, _OfModel]:
    """By model: what its GPUs are set to, on all nodes whose driver answers."""
    found: dict[str, dict[str, Counter[tuple[float, ...]]]] = defaultdict(lambda: defaultdict(Counter))
    for node in evidence.reachable:
        for gpu in evidence.nodes[node].smi_gpus():
            try:
                settings = settings_of(gpu)
            except CannotReadError:
                continue
            if settings:
                found[plain_model(gpu.model)][node][tuple(now for now, _ in settings.values())] += 1
    return {model: _of_model(nodes) for model, nodes in found.items()}


def _of_model(nodes: Mapping[str, Counter[tuple[float, ...]]]) -> _OfModel:
    by_node = {node: frozenset(counts) for node, counts in nodes.items()}
    # Each node has one vote, for all the settings that its GPUs have.
    usual = find_majority(count_votes(Counter([found]) for found in by_node.values()))
    gpus = {node: sum(counts.values()) for node, counts in nodes.items()}
    alike = sum(count for node, count in gpus.items() if by_node[node] == usual)
    return _OfModel(by_node, usual, sum(gpus.values()), alike)


ON_PURPOSE = (
    "If the site limits all its GPUs on purpose, exclude the check with that reason (validation_exclusions); "
    "floors of profiles are those of the default. Otherwise: nvidia-smi -i N -pl WATTS, nvidia-smi -i N -rac."
)
_SMI = seeding.smi
_POWER = "gpu_power_readings/current_power_limit"


def _all(path: str, text: str) -> seeding.Inject:
    return seeding.chain(*(_SMI(f"gpu0{node}", gpu, path, text) for node in (1, 2, 3) for gpu in range(8)))


CHECK = Check(
    id="gpu-limits",
    title="Power limit and clocks",
    section=Section.GPU_STATE,
    scope=Scope.GPU,
    measures="each GPU's power limit and application clocks against the card's own defaults",
    method="nvidia-smi -q -x, gpu_power_readings, applications_clocks and default_applications_clocks",
    requires="GPUs that report them; drivers of newer GPUs have no application clocks",
    expectation="none below its default; a warning where all GPUs of the model are limited alike, on this "
    "node and on most",
    remedy="Set the default again: nvidia-smi -i N -pl WATTS (default_power_limit), nvidia-smi -i N -rac for "
    "the clocks; then find what sets it (a boot script, DCGM, the BMC's power capping).",
    subjects=every_gpu,
    judge=judge,
    faults=(
        SeededFault("power-limit-halved", _SMI("gpu01", 3, _POWER, "200.00 W"), Subject("gpu01", 3)),
        SeededFault("power-limit-just-below", _SMI("gpu02", 5, _POWER, "380.00 W"), Subject("gpu02", 5)),
        SeededFault(
            "graphics-clock-just-below",
            _SMI("gpu03", 0, "applications_clocks/graphics_clock", "1215 MHz"),
            Subject("gpu03", 0),
        ),
        SeededFault(
            "memory-clock-below",
            _SMI("gpu03", 1, "applications_clocks/mem_clock", "1215 MHz"),
            Subject("gpu03", 1),
        ),
        SeededFault("all-alike", _all(_POWER, "300.00 W"), Subject("gpu02", 0), Verdict.WARNING),
        SeededFault(
            "one-among-limited-ones",
            seeding.chain(_all(_POWER, "300.00 W"), _SMI("gpu01", 4, _POWER, "200.00 W")),
            Subject("gpu01", 4),
        ),
        SeededFault("not-a-figure", _SMI("gpu02", 6, _POWER, "viel"), Subject("gpu02", 6), Verdict.NOT_RUN),
    ),
)
