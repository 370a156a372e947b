"""Xid messages of a GPU in the kernel log since boot, each judged by its own action."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from clustercheck.checks.base import Check, Finding, SeededFault, every_gpu, failed, not_run, passed
from clustercheck.checks.support import seeding
from clustercheck.evidence.cluster import Evidence
from clustercheck.model import Scope, Section, Severity, Subject, Verdict
from clustercheck.parse.kernel_log import Unnumbered, Xid
from clustercheck.parse.reading import CannotReadError
from clustercheck.probe.kernel_log import SEVERITY
from clustercheck.tables import read_table


@cache
def catalogue() -> Mapping[str, Any]:
    """The table of codes."""
    table: dict[str, Any] = read_table(Path(__file__).with_name("xid"))
    return table


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """The messages of this GPU, by its PCI address."""
    node, gpu = str(subject.node), int(subject.gpu or 0)
    slots = evidence.slots(node)
    if gpu >= len(slots):
        raise CannotReadError("this GPU's place on the PCI bus is not known")
    mine = [xid for xid in evidence.open_xids(node) if not xid.switch and xid.address == slots[gpu]]
    finding = judge_messages(mine, evidence.nodes[node].mapping("kernel_log"))
    ports = evidence.nodes[node].gpu_ports
    faults = [f for f in evidence.open_faults(node) if slots[gpu] in (f.address, ports.get(f.address))]
    if faults and finding.verdict is not Verdict.FAIL:
        finding = unnumbered(faults)
    return whole(finding, evidence.log_gap(node))


def unnumbered(faults: Sequence[Unnumbered]) -> Finding:
    """Fail with faults that the kernel tells without an Xid."""
    message = ", ".join(dict.fromkeys(fault.fault for fault in faults))
    return failed(
        f"the kernel reports: {message}, last at {faults[-1].when}", message, "no fatal message",
        source="the kernel log", remedy=WITHOUT_XID, evidence={"last": faults[-1].when},
    )  # fmt: skip


def whole(finding: Finding, gap: str) -> Finding:
    """Nothing found in a log that has lost its beginning is not a pass."""
    if finding.verdict is not Verdict.PASS or not gap:
        return finding
    return replace(finding, verdict=Verdict.NOT_RUN, because=gap, remedy=LOG_LOST)


def judge_messages(xids: Sequence[Xid], log: Mapping[str, Any]) -> Finding:
    """Fail where one is a fault, not run where one is unknown or some were dropped, else pass."""
    codes: Mapping[int, Mapping[str, Any]] = catalogue()["codes"]
    counted = Counter(xid.code for xid in xids)
    more = {
        "xids": {str(code): count for code, count in sorted(counted.items())},
        "last": [f"{xid.when} {xid.code} {xid.message}"[:200] for xid in xids[-3:]],
        "log": log.get("source"),
        "log_begins": log.get("first"),
        **({"older_alike": log["omitted"]} if log.get("omitted") else {}),
    }
    source = str(catalogue()["source"])
    asked = {xid.address: xid for xid in xids if xid.code == 154}  # the last of each device
    open_ones = [xid for xid in xids if xid.code != 154]
    open_ones += [xid for xid in asked.values() if not is_settled(xid)]
    faults = [xid for xid in open_ones if is_fault(xid)]
    if faults:
        last = faults[-1]
        entry = codes[last.code]
        text = ", ".join(
            f"Xid {code} ({codes[code]['name']})" for code in sorted({xid.code for xid in faults})
        )
        return failed(
            f"{text} since boot, last at {last.when}",
            ", ".join(map(str, sorted(counted))),
            "no fatal Xid",
            source=source,
            remedy=str(catalogue()["actions"][entry["action"]]),
            evidence=more,
        )
    strange = sorted({xid.code for xid in xids if is_fault(xid) is None})
    if strange:
        return not_run(
            f"Xid {', '.join(map(str, strange))}: the table of codes does not say whether it is a fault",
            source=source,
            evidence=more,
            remedy="Look the code up in NVIDIA's Xid catalogue; it may be a fault.",
        )
    if log.get("dropped"):
        return not_run(f"{log['dropped']} older messages were omitted", evidence=more)
    message = ", ".join(map(str, sorted(counted))) or "none"
    return passed(message, "no fatal Xid", source=source, evidence=more)


def is_fault(xid: Xid) -> bool | None:
    """Whether the GPU is faulty until what it asks for is done; None where the table cannot tell.

    NVLink 5's say it themselves: ``149, NETIR_LINK_EVT Fatal XC0 i0 Link 00 (...)``, or ``Nonfatal``.
    """
    fault = catalogue()["codes"].get(xid.code, {}).get("fault")
    if fault != "by_message":
        return None if fault is None else bool(fault)
    found = re.findall(SEVERITY, xid.message)
    return found[-1] == "Fatal" if found else None


def is_settled(xid: Xid) -> bool:
    """Xid 154 also tells that a recovery is no longer needed: ``... to 0x0 (None)``."""
    return xid.code == 154 and xid.message.rstrip().endswith("(None)")


def line(address: str, code: int, message: str = "") -> str:
    """A line as the driver writes it; the address without its function."""
    return f"2026-11-20T10:00:00.000000+0000 host kernel: NVRM: Xid (PCI:{address}): {code}, {message}"


WITHOUT_XID = (
    "Read the surrounding lines (`journalctl -k`), drain the node and power-cycle it; if it comes again, "
    "reseat the device and its cables, then have it replaced."
)
LOG_LOST = (
    "Earlier messages are lost. Reboot the drained node; or inspect it, record the time (validate "
    "--acknowledge NODE) and count from then on (--since-ack). Then keep the log: Storage=persistent and "
    "a larger SystemMaxUse in journald.conf."
)
_A = "0000:07:00"
_NVLINK5 = "NETIR_LINK_EVT %s XC0 i0 Link 00 (0x00000011 0x00000000 0x00000000 0x00000000)"
CHECK = Check(
    id="xid",
    title="Xid",
    section=Section.GPU_STATE,
    scope=Scope.GPU,
    severity=Severity.CRITICAL,
    measures="the driver's error messages on this GPU in the kernel log since boot",
    method="journalctl -k -b, else dmesg",
    requires="a readable kernel log that goes back to the boot, or to what was acknowledged",
    expectation="no Xid whose action is to reset, reboot or repair",
    remedy="Look the code up in NVIDIA's Xid catalogue.",
    subjects=every_gpu,
    judge=judge,
    faults=(
        SeededFault(
            "xid-79",
            seeding.kernel_says("gpu01", line(_A, 79, "GPU has fallen off the bus.")),
            Subject("gpu01", 0),
        ),
        SeededFault(
            "xid-119", seeding.kernel_says("gpu02", line(_A, 119, "Timeout after 6s")), Subject("gpu02", 0)
        ),
        SeededFault(
            "xid-154",
            seeding.kernel_says(
                "gpu02",
                line(_A, 154, "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"),
            ),
            Subject("gpu02", 0),
        ),
        SeededFault(
            "xid-unknown", seeding.kernel_says("gpu01", line(_A, 999)), Subject("gpu01", 0), Verdict.NOT_RUN
        ),
        SeededFault(
            "nvlink-5-fatal",
            seeding.kernel_says("gpu02", line(_A, 149, _NVLINK5 % "Fatal")),
            Subject("gpu02", 0),
        ),
        SeededFault(
            "nvlink-5-not-fatal",
            seeding.kernel_says("gpu02", line(_A, 149, _NVLINK5 % "Nonfatal")),
            Subject("gpu02", 0),
            Verdict.PASS,
        ),
        SeededFault(
            "nvlink-5-of-unknown-form",
            seeding.kernel_says("gpu02", line(_A, 149, "something new")),
            Subject("gpu02", 0),
            Verdict.NOT_RUN,
        ),
        SeededFault(
            "log-begins-late",
            seeding.edit("gpu02", lambda raw: raw["kernel_log"].update(from_boot=False)),
            Subject("gpu02", 0),
            Verdict.NOT_RUN,
        ),
        SeededFault(
            "off-the-bus-without-xid",
            seeding.kernel_says("gpu02", "kernel: NVRM: GPU at PCI:0000:07:00: GPU has fallen off the bus"),
            Subject("gpu02", 0),
        ),
        SeededFault(
            "adapter-not-initialised",
            seeding.kernel_says(
                "gpu02", "kernel: NVRM: GPU 0000:07:00.0: RmInitAdapter failed! (0x26:0x56:1482)"
            ),
            Subject("gpu02", 0),
        ),
        SeededFault(
            "uncorrected-pcie-error",
            seeding.kernel_says(
                "gpu02",
                "kernel: nvidia 0000:07:00.0: PCIe Bus Error: severity=Uncorrectable (Fatal), "
                "type=Transaction Layer, (Requester ID)",
            ),
            Subject("gpu02", 0),
        ),
        SeededFault(
            "uncorrected-pcie-error-of-its-port",
            seeding.kernel_says(
                "gpu03",
                "kernel: pcieport 0000:02:00.0: PCIe Bus Error: severity=Uncorrectable (Non-Fatal), "
                "type=Transaction Layer, (Requester ID)",
            ),
            Subject("gpu03", 0),
        ),
        SeededFault(
            "xid-79-beside-a-garbled-one",
            seeding.chain(
                seeding.kernel_says("gpu01", line(_A, 79, "GPU has fallen off the bus.")),
                seeding.kernel_says("gpu01", "kernel: NVRM: Xid (PCI:0000"),
            ),
            Subject("gpu01", 0),
        ),
        SeededFault(
            "xid-garbled",
            seeding.kernel_says("gpu01", "kernel: NVRM: Xid (PCI:0000"),
            Subject("gpu01", 0),
            Verdict.NOT_RUN,
        ),
        SeededFault(
            "log-unreadable",
            seeding.edit(
                "gpu03", lambda raw: raw["kernel_log"].update(source="", because="permission denied")
            ),
            Subject("gpu03", 0),
            Verdict.NOT_RUN,
        ),
    ),
)
