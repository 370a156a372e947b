"""Row remapping (Ampere and later) and retired pages (before): is repair pending, or has it failed?"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from xml.etree import ElementTree

from clustercheck.checks.base import Check, Finding, SeededFault, every_gpu, failed, not_applicable, passed
from clustercheck.checks.support import seeding
from clustercheck.checks.support.gpu import gpu_of
from clustercheck.evidence.cluster import Evidence
from clustercheck.model import Scope, Section, Severity, Subject, Verdict
from clustercheck.parse.reading import CannotReadError, whole_number

_NOT_HERE = ("", "N/A")
MOST_PAGES = 63
PAGES = "NVIDIA/DCGM, DcgmGPUHardwareLimits.h, as in NVIDIA's field diagnostic"
# Drivers of 580 and later say these beside the ECC errors, and from 590 on unrepairable_memory.
REPAIRS = {
    "channel_repair_pending": "a memory channel",
    "tpc_repair_pending": "a processing cluster (TPC)",
}
REPLACE = "Have the GPU replaced: its memory keeps losing pages."
MOST_ROWS = 512
ROWS = "NVIDIA/DCGM, DCGM_LIMIT_MAX_ROW_REMAP_UNCORRECTABLE: a GPU with so many is in a bad state"
REPLACE_ROWS = "Have the GPU replaced: its memory keeps losing rows, and spare ones are few."


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """A failed remap needs a new GPU, a pending one a reset; so do retired pages, where they are many."""
    gpu, profile = gpu_of(evidence, subject), evidence.profile(str(subject.node))
    remap, retired, ecc = gpu.remap or {}, gpu.retired or {}, gpu.ecc or {}
    if ecc.get("unrepairable_memory") == "Yes":
        return failed(
            "its memory cannot be repaired", "failed", "no failure", remedy="Have the GPU replaced."
        )
    waiting = [unit for name, unit in REPAIRS.items() if ecc.get(name) == "Yes"]
    if waiting:
        return failed(f"the repair of {waiting[0]} waits for a reset", "pending", "nothing pending")
    if any(remap.get(name, "") not in _NOT_HERE for name in ("remapped_row_pending", "remapped_row_failure")):
        return _remapped(remap)
    if retired.get("pending_retirement", "") not in _NOT_HERE:
        return _retired(retired)
    if profile is not None and not profile.ecc:
        return not_applicable(f"{gpu.model} repairs no memory")
    raise CannotReadError("neither row remapping nor page retirement is printed")


def _remapped(remap: Mapping[str, str]) -> Finding:
    pending, failure = remap.get("remapped_row_pending", ""), remap.get("remapped_row_failure", "")
    more = {name: remap[name] for name in ("remapped_row_corr", "remapped_row_unc") if name in remap}
    if failure == "Yes":
        return failed(
            "a memory row could not be remapped",
            "failed",
            "no failure",
            evidence=more,
            remedy="Have the GPU replaced: its spare rows are used up.",
        )
    rows = whole_number(remap.get("remapped_row_unc", "")) or 0
    if rows >= MOST_ROWS:
        because = (
            f"{rows} rows are remapped for uncorrectable errors; at {MOST_ROWS} DCGM considers a GPU bad"
        )
        return failed(because, rows, MOST_ROWS, unit="rows", source=ROWS, evidence=more, remedy=REPLACE_ROWS)
    if pending == "Yes":
        return failed("a remapped row waits for a reset", "pending", "nothing pending", evidence=more)
    if pending != "No" or failure != "No":
        raise CannotReadError(f"row remapping says pending {pending!r}, failure {failure!r}")
    return passed("nothing pending", "nothing pending", evidence=more)


def _retired(retired: Mapping[str, str]) -> Finding:
    pending = retired["pending_retirement"]
    more = {name: value for name, value in retired.items() if name.endswith("retired_count")}
    if pending == "Yes":
        return failed("a retired page waits for a reset", "pending", "nothing pending", evidence=more)
    counts = [whole_number(value) for value in more.values()]
    pages = sum(count or 0 for count in counts)
    if pages >= MOST_PAGES:
        because = f"{pages} pages are retired; at {MOST_PAGES} NVIDIA considers a GPU defective"
        return failed(because, pages, MOST_PAGES, unit="pages", source=PAGES, evidence=more, remedy=REPLACE)
    if pending != "No":
        raise CannotReadError(f"page retirement says {pending!r}")
    if not counts or any(count is None for count in counts):
        raise CannotReadError("how many pages are retired is not printed")
    return passed("nothing pending", "nothing pending", evidence=more)


def _says(name: str, root: ElementTree.Element) -> None:
    for errors in root.findall("gpu")[5].iterfind("ecc_errors"):
        ElementTree.SubElement(errors, name).text = "Yes"


_SMI = seeding.smi
CHECK = Check(
    id="gpu-row-remap",
    title="Memory repair",
    section=Section.GPU_STATE,
    scope=Scope.GPU,
    severity=Severity.CRITICAL,
    measures="whether memory repair is pending or has failed, and how much was repaired",
    method="nvidia-smi -q -x, remapped_rows, or retired_pages before Ampere, and repairs in ecc_errors",
    requires="a GPU that repairs memory",
    expectation=f"nothing pending, no failure, fewer than {MOST_ROWS} rows remapped for uncorrectable errors "
    f"or {MOST_PAGES} pages retired",
    remedy="Drain the node, then reset the GPU (nvidia-smi --gpu-reset -i N) or reboot.",
    subjects=every_gpu,
    judge=judge,
    faults=(
        SeededFault(
            "remap-pending",
            _SMI("gpu01", 0, "remapped_rows/remapped_row_pending", "Yes"),
            Subject("gpu01", 0),
        ),
        SeededFault(
            "remap-failure",
            _SMI("gpu02", 7, "remapped_rows/remapped_row_failure", "Yes"),
            Subject("gpu02", 7),
        ),
        SeededFault(
            "remap-failure-alone",
            seeding.chain(
                _SMI("gpu02", 6, "remapped_rows/remapped_row_pending", "N/A"),
                _SMI("gpu02", 6, "remapped_rows/remapped_row_failure", "Yes"),
            ),
            Subject("gpu02", 6),
        ),
        SeededFault(
            "rows-remapped-within-the-limit",
            _SMI("gpu02", 4, "remapped_rows/remapped_row_unc", "486"),
            Subject("gpu02", 4),
            Verdict.PASS,
        ),
        SeededFault(
            "many-rows-remapped",
            _SMI("gpu02", 4, "remapped_rows/remapped_row_unc", "538"),
            Subject("gpu02", 4),
        ),
        *(
            SeededFault(
                name.replace("_", "-"), seeding.smi_root("gpu01", partial(_says, name)), Subject("gpu01", 5)
            )
            for name in (*REPAIRS, "unrepairable_memory")
        ),
        SeededFault(
            "remap-translated",
            _SMI("gpu01", 3, "remapped_rows/remapped_row_pending", "Nein"),
            Subject("gpu01", 3),
            Verdict.NOT_RUN,
        ),
        SeededFault(
            "remap-missing", _SMI("gpu01", 3, "remapped_rows", None), Subject("gpu01", 3), Verdict.NOT_RUN
        ),
    ),
)
