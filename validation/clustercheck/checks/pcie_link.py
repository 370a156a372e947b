"""Has each GPU all of its PCI Express lanes, at the generation that it and its slot can do?"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from clustercheck.checks.base import Check, Finding, SeededFault, every_gpu, failed, passed
from clustercheck.checks.support import seeding
from clustercheck.checks.support.gpu import gpu_of
from clustercheck.evidence.cluster import Evidence
from clustercheck.model import Scope, Section, Subject, Verdict
from clustercheck.parse.nvidia_smi import SmiGpu
from clustercheck.parse.reading import CannotReadError, whole_number

WIDTHS = (1, 2, 4, 8, 12, 16, 32)  # of PCI Express
GENERATIONS = range(1, 8)
PARTS: Mapping[str, range | tuple[int, ...]] = {
    "pcie_gen/current_link_gen": GENERATIONS,
    "pcie_gen/max_link_gen": GENERATIONS,
    "link_widths/current_link_width": WIDTHS,
    "link_widths/max_link_width": WIDTHS,
}
LOADED_PERCENT = 50  # of utilization: below it the GPU may have put its link to a lower generation
SLOT = (
    "The slot, riser or cable offers less than the GPU can do: look in the BIOS at bifurcation and speed of "
    "the slot, and whether the GPU is in the right one."
)


@dataclass(frozen=True)
class PcieLink:
    """A GPU's link as the driver tells it; ``*_max`` is what GPU and slot can do together.

    A number that it does not tell is None; ``untold`` says which.
    """

    generation: int | None
    generation_max: int | None
    width: int | None
    width_max: int | None
    loaded: bool
    untold: str = ""


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """Lanes are never lost at rest; the generation is, and is judged where the GPU works."""
    gpu, profile = gpu_of(evidence, subject), evidence.profile(str(subject.node))
    link = link_of(gpu)
    width = profile.pcie.width if profile is not None else link.width_max
    generation = profile.pcie.generation if profile is not None else link.generation_max
    now = f"PCIe generation {link.generation} x{link.width}"
    expected = f"PCIe generation {generation} x{width}"
    more = {
        "generation": link.generation, "generation_max": link.generation_max,
        "width": link.width, "width_max": link.width_max, "under_load": link.loaded,
    }  # fmt: skip
    words = {
        "source": "the hardware profile"
        if profile is not None
        else "what the driver says GPU and slot can do"
    }
    narrow = _less(width, link.width, _seen_by_kernel(evidence, subject, gpu))
    because, remedy = "", ""
    if _less(width, link.width_max) is not None:
        because, remedy = f"GPU and slot can do x{link.width_max}, not x{width}", SLOT
    elif narrow is not None:
        because = f"{narrow} of {width} lanes are in use"
    elif _less(generation, link.generation_max) is not None:
        because = f"GPU and slot can do PCIe generation {link.generation_max}, not {generation}"
        remedy = SLOT
    elif link.loaded and _less(generation, link.generation) is not None:
        because = f"PCIe generation {link.generation} under load, not {generation}"
    if because:
        return failed(because, now, expected, evidence=more, remedy=remedy, **words)
    if link.untold:
        raise CannotReadError(link.untold)
    return passed(now, expected, evidence=more, **words)


def _less(expected: int | None, *found: int | None) -> int | None:
    """The least of what is told, where it is less than expected."""
    told = [number for number in found if number is not None and expected is not None and number < expected]
    return min(told, default=None)


def link_of(gpu: SmiGpu) -> PcieLink:
    """The link. Raises CannotReadError where the driver tells what no link is."""
    record: Mapping[str, str] = gpu.pcie or {}
    numbers = {name: _number(record.get(name, ""), known) for name, known in PARTS.items()}
    generation, generation_max, width, width_max = numbers.values()
    if _less(width, width_max) is not None or _less(generation, generation_max) is not None:
        raise CannotReadError("nvidia-smi reports a PCIe link that is better than its own maximum")
    untold = [name for name, number in numbers.items() if number is None]
    why = (
        f"nvidia-smi says {record.get(untold[0], '')[:20]!r} of {untold[0].rpartition('/')[2]}"
        if untold
        else ""
    )
    busy = whole_number(gpu.utilization)
    loaded = busy is not None and busy >= LOADED_PERCENT
    return PcieLink(generation, generation_max, width, width_max, loaded, why)


def _number(text: str, known: range | tuple[int, ...]) -> int | None:
    match = re.fullmatch(r"(\d{1,2})x?", text)
    return int(match[1]) if match is not None and int(match[1]) in known else None


def _seen_by_kernel(evidence: Evidence, subject: Subject, gpu: SmiGpu) -> int | None:
    """The lanes that sysfs shows, None where it shows no number that a link can have."""
    for device in evidence.nodes[str(subject.node)].records("pci"):
        if device.get("address") == gpu.address:
            width = whole_number(str(device.get("link_width") or ""))
            return width if width in WIDTHS else None
    return None


def _widths(node: str, gpu: int, now: str, most: str = "16x") -> seeding.Inject:
    at = "pci/pci_gpu_link_info/link_widths/"
    return seeding.chain(
        seeding.smi(node, gpu, at + "current_link_width", now),
        seeding.smi(node, gpu, at + "max_link_width", most),
    )


def _generations(node: str, gpu: int, now: str, most: str = "4") -> seeding.Inject:
    at = "pci/pci_gpu_link_info/pcie_gen/"
    return seeding.chain(
        seeding.smi(node, gpu, at + "current_link_gen", now),
        seeding.smi(node, gpu, at + "max_link_gen", most),
    )


def _lost_for_the_kernel(raw: seeding.Raw) -> None:
    raw["pci"][3]["link_width"] = "4"


CHECK = Check(
    id="pcie-link",
    title="PCIe link of the GPU",
    section=Section.GPU_STATE,
    scope=Scope.LINK,
    measures="lanes and generation of each GPU's PCI Express link, and what GPU and slot can do together",
    method="nvidia-smi -q -x, pci_gpu_link_info, and current_link_width in sysfs; a lower generation now is "
    f"judged where the GPU is busy ({LOADED_PERCENT} % utilization): at rest it saves power",
    requires="nothing",
    expectation="all lanes, and a slot of the generation that the hardware profile says",
    remedy="Drain the node, power it off, and seat GPU, riser and cable again; where lanes are missing in "
    "another slot too, have the GPU replaced.",
    subjects=every_gpu,
    judge=judge,
    faults=(
        SeededFault("lanes-lost", _widths("gpu01", 3, "8x"), Subject("gpu01", 3)),
        SeededFault(
            "lanes-lost-for-the-kernel", seeding.edit("gpu02", _lost_for_the_kernel), Subject("gpu02", 3)
        ),
        SeededFault(
            "lanes-lost-beside-a-generation-not-told",
            seeding.chain(_widths("gpu03", 2, "8x"), _generations("gpu03", 2, "N/A", "N/A")),
            Subject("gpu03", 2),
        ),
        SeededFault("narrow-slot", _widths("gpu02", 0, "8x", "8x"), Subject("gpu02", 0)),
        SeededFault("slow-slot", _generations("gpu02", 1, "3", "3"), Subject("gpu02", 1)),
        SeededFault(
            "slow-under-load",
            seeding.chain(
                _generations("gpu03", 7, "1"), seeding.smi("gpu03", 7, "utilization/gpu_util", "98 %")
            ),
            Subject("gpu03", 7),
        ),
        SeededFault("link-not-told", _widths("gpu01", 2, "N/A"), Subject("gpu01", 2), Verdict.NOT_RUN),
    ),
)
