"""Messages that belong to no GPU of the node: NVSwitch errors, and Xids of devices that are gone."""

from __future__ import annotations

from clustercheck.checks import seeding
from clustercheck.checks.base import Check, Fault, Finding, bad, every_gpu_node
from clustercheck.checks.of_gpu import number_of
from clustercheck.checks.xid import judge_messages, line
from clustercheck.evidence import Evidence
from clustercheck.model import Scope, Subject


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """Fatal SXids, and every Xid whose address no GPU of this node has."""
    name = str(subject.node)
    node = evidence.nodes[name]
    xids = node.xids()
    fatal = [xid for xid in xids if xid.switch and "non-fatal" not in xid.message.lower()]
    if fatal:
        last = fatal[-1]
        codes = ", ".join(sorted({str(xid.code) for xid in fatal}))
        return bad(
            f"SXid {codes} of the NVSwitch at {last.address}, last at {last.when}: {last.message}",
            codes,
            "no fatal SXid",
            remedy="Read the Fabric Manager's log; reset the GPUs and switches or reboot the node.",
            evidence={"last": last.message, "address": last.address},
        )
    strangers = [xid for xid in xids if not xid.switch and number_of(evidence, name, xid.address) is None]
    return judge_messages(strangers, node.mapping("kernel_log"))


_SXID = (
    "2026-11-20T10:00:00.000000+0000 host kernel: nvidia-nvswitch0: SXid (PCI:0000:c4:00.0): 20034, "
    "Fatal, Link 30 LTSSM Fault Up"
)
CHECK = Check(
    id="kernel-log",
    title="NVSwitch and stray Xids",
    scope=Scope.HOST,
    measures="fatal NVSwitch errors (SXid), and Xids of devices that are no longer on the bus, since boot",
    method="journalctl -k -b, else dmesg",
    requires="a readable kernel log",
    expectation="no fatal message",
    remedy="Reboot the node; if the message comes again, call the supplier.",
    subjects=every_gpu_node,
    judge=judge,
    faults=(
        Fault("sxid-fatal", seeding.kernel_says("gpu01", _SXID), Subject("gpu01")),
        Fault("xid-of-a-gone-gpu", seeding.kernel_says("gpu02", line("0000:ee:00", 79)), Subject("gpu02")),
    ),
)
