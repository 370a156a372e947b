"""Messages that belong to no GPU of the node: NVSwitch errors, and Xids of devices that are gone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from clustercheck import model
from clustercheck.checks.base import Check, Finding, SeededFault, every_gpu_node, failed, not_run, warned
from clustercheck.checks.support import seeding
from clustercheck.checks.support.gpu import number_of
from clustercheck.checks.xid import judge_messages, line, unnumbered, whole
from clustercheck.evidence.cluster import Evidence
from clustercheck.model import Scope, Section, Subject, Verdict
from clustercheck.parse.kernel_log import Unnumbered
from clustercheck.parse.sxid import Sxid, SxidSeverity, switch_errors
from clustercheck.probe.kernel_log import NOT_FATAL, PEERMEM
from clustercheck.tables import read_table

GRAVITY = ("cooling", "links", "routing", "reset_fabric", "reboot_node")  # the last one's remedy is told
GRAVEST = (Verdict.FAIL, Verdict.NOT_RUN, Verdict.WARNING, Verdict.PASS)


@cache
def catalogue() -> Mapping[str, Any]:
    """The table of SXids."""
    table: dict[str, Any] = read_table(Path(__file__).with_name("sxid"))
    return table


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """The switches' errors by their table, and every Xid whose address no GPU of this node has."""
    name = str(subject.node)
    node = evidence.nodes[name]
    xids = evidence.open_xids(name)
    switches = switch_errors(xids)
    strangers = [xid for xid in xids if not xid.switch and number_of(evidence, name, xid.address) is None]
    ports = node.gpu_ports
    faults = [
        one
        for one in evidence.open_faults(name)
        if number_of(evidence, name, ports.get(one.address, one.address)) is None and one.fault != NOT_FATAL
    ]
    grave = [one for one in faults if one.fault != PEERMEM]
    found = [
        of_switches(switches.errors),
        judge_messages(strangers, node.mapping("kernel_log")),
        unnumbered(grave) if grave else _warn_of_peermem(faults),
    ]
    finding = min((one for one in found if one is not None), key=lambda one: GRAVEST.index(one.verdict))
    return whole(finding, switches.garbled[-1] if switches.garbled else evidence.log_gap(name))


def _warn_of_peermem(faults: Sequence[Unnumbered]) -> Finding | None:
    if not faults:
        return None
    because = f"{PEERMEM}: {len(faults)}, last at {faults[-1].when}"
    return warned(because, len(faults), 0, unit="messages", source="the kernel log", remedy=PEERMEM_REMEDY)


def of_switches(errors: Sequence[Sxid]) -> Finding | None:
    """Fail where one is a fault, not run where one is unknown, else None."""
    codes: Mapping[int, Mapping[str, Any]] = catalogue()["codes"]
    source = str(catalogue()["source"])
    faults = [
        error
        for error in errors
        if error.severity is SxidSeverity.FATAL or codes.get(error.code, {}).get("fault")
    ]
    if faults:
        last = max(reversed(faults), key=lambda error: GRAVITY.index(_action(error)))
        entry = codes.get(last.code, {})
        listed = ", ".join(str(code) for code in sorted({error.code for error in faults}))
        link = f", link {last.link}" if last.link is not None else ""
        answer = entry.get("name") or last.message
        return failed(
            f"SXid {listed} of the NVSwitch at {last.address}{link}, last at {last.when}: {answer}",
            listed,
            "no fatal SXid",
            source=source,
            remedy=str(catalogue()["actions"][_action(last)]),
            evidence={"last": last.message, "address": last.address, "link": last.link},
        )
    strange = sorted({error.code for error in errors if error.code not in codes})
    if strange:
        return not_run(
            f"SXid {', '.join(map(str, strange))} is not in the table of codes",
            source=source,
            remedy="Look the code up in NVIDIA's Fabric Manager user guide; it may be a fault.",
        )
    return None


def _action(error: Sxid) -> str:
    """What the table asks for, or for what the driver alone calls fatal, a reset."""
    entry = catalogue()["codes"].get(error.code, {})
    return str(entry["action"]) if entry.get("fault") else "reset_fabric"


def _says(code: int, message: str) -> str:
    begin = "2026-11-20T10:00:00.000000+0000 host kernel: nvidia-nvswitch0"
    return f"{begin}: SXid (PCI:0000:c4:00.0): {code}, {message}"


PEERMEM_REMEDY = (
    "See whether jobs ended in the middle then. If the messages come while jobs run, GPUDirect RDMA between "
    "GPU and adapter fails: see nccl-transport and rdma-write, and load the driver's module again."
)
CHECK = Check(
    id="kernel-log",
    title="NVSwitch and stray Xids",
    section=Section.GPU_STATE,
    scope=Scope.HOST,
    severity=model.Severity.CRITICAL,
    measures="NVSwitch errors (SXid), Xids of devices that are no longer on the bus, fatal PCI Express "
    "errors, adapters that are too hot or lack power, and errors of nvidia-peermem, since boot",
    method="journalctl -k -b, else dmesg",
    requires="a readable kernel log that goes back to the boot, or to what was acknowledged",
    expectation="no SXid whose action is to reset, reboot or repair, and no stray Xid that asks for as much",
    remedy="Reboot the node; if the message comes again, call the supplier.",
    subjects=every_gpu_node,
    judge=judge,
    faults=(
        SeededFault(
            "sxid-fatal",
            seeding.kernel_says("gpu01", _says(20034, "Fatal, Link 30 LTSSM SeededFault Up")),
            Subject("gpu01"),
        ),
        SeededFault(
            "sxid-non-fatal-but-a-fault",
            seeding.kernel_says(
                "gpu01", _says(12028, "Non-fatal, Link 32 egress non-posted PRIV error (First)")
            ),
            Subject("gpu01"),
        ),
        SeededFault(
            "sxid-unknown",
            seeding.kernel_says("gpu03", _says(29999, "Non-fatal, Link 3 something new")),
            Subject("gpu03"),
            Verdict.NOT_RUN,
        ),
        SeededFault(
            "sxid-garbled",
            seeding.kernel_says("gpu03", _says(20034, "Tödlich, Link 3")),
            Subject("gpu03"),
            Verdict.NOT_RUN,
        ),
        SeededFault(
            "sxid-fatal-beside-a-garbled-one",
            seeding.chain(
                seeding.kernel_says("gpu01", _says(20034, "Fatal, Link 30 LTSSM SeededFault Up")),
                seeding.kernel_says("gpu01", _says(20034, "Sev")),
            ),
            Subject("gpu01"),
        ),
        SeededFault(
            "xid-of-a-gone-gpu-beside-a-garbled-sxid",
            seeding.chain(
                seeding.kernel_says("gpu02", line("0000:ee:00", 79)),
                seeding.kernel_says("gpu02", _says(20034, "Sev")),
            ),
            Subject("gpu02"),
        ),
        SeededFault(
            "xid-of-a-gone-gpu-beside-an-unknown-sxid",
            seeding.chain(
                seeding.kernel_says("gpu02", line("0000:ee:00", 79)),
                seeding.kernel_says("gpu02", _says(29999, "Non-fatal, Link 3 something new")),
            ),
            Subject("gpu02"),
        ),
        SeededFault(
            "log-begins-late",
            seeding.edit("gpu02", lambda raw: raw["kernel_log"].update(from_boot=False)),
            Subject("gpu02"),
            Verdict.NOT_RUN,
        ),
        SeededFault(
            "too-little-power",
            seeding.kernel_says(
                "gpu01",
                "kernel: mlx5_core 0000:0c:00.0: mlx5_pcie_event:301:(pid 7): Detected insufficient power on "
                "the PCIe slot (27W).",
            ),
            Subject("gpu01"),
        ),
        SeededFault(
            "cable-too-hot",
            seeding.kernel_says(
                "gpu03",
                "kernel: mlx5_core 0000:0c:00.0: port_module:252:(pid 0): Port module event[error]: "
                "module 0, Cable error, High Temperature",
            ),
            Subject("gpu03"),
        ),
        SeededFault(
            "peermem-errors",
            seeding.kernel_says(
                "gpu03",
                "kernel: nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context, "
                "skipping further processing",
            ),
            Subject("gpu03"),
            Verdict.WARNING,
        ),
        SeededFault(
            "uncorrected-error-of-a-disk",
            seeding.kernel_says(
                "gpu03",
                "kernel: nvme 0000:e1:00.0: PCIe Bus Error: severity=Uncorrectable (Non-Fatal), "
                "type=Transaction Layer, (Requester ID)",
            ),
            Subject("gpu03"),
            Verdict.PASS,
        ),
        SeededFault(
            "xid-of-a-gone-gpu", seeding.kernel_says("gpu02", line("0000:ee:00", 79)), Subject("gpu02")
        ),
    ),
)
