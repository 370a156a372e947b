"""What the kernel says of GPUs, their ports and adapters: whose fault it is, and what is none."""

from __future__ import annotations

from dataclasses import replace
from io import BytesIO

import pytest

from clustercheck.checks.all import BY_ID
from clustercheck.checks.base import evaluate
from clustercheck.checks.support import seeding
from clustercheck.checks.xid import catalogue, is_fault, judge_messages, line
from clustercheck.evidence.cluster import Evidence
from clustercheck.model import Subject, Verdict
from clustercheck.parse.kernel_log import Xid, parse_line, unnumbered_fault
from clustercheck.probe.kernel_log import BY_SEVERITY, KEEP_LINES, LAST_OF_KIND, MOST_KINDS, Sifted
from clustercheck.samples import sample

GPU = "0000:07:00"
# As drivers of Blackwell write it (leptonai/gpud, NVIDIA's decoding table).
NVLINK = "{unit} {severity} XC0 i0 Link 07 (0x00000011 0x00000002 0x00000000 0x00000000)"
# As Linux 5.x and 6.x write them (drivers/pci/pcie/aer.c), and as they wrote "Uncorrected" before.
AER = "kernel: {device}: {aer}PCIe Bus Error: severity={severity}, type=Transaction Layer, (Requester ID)"
PEERMEM = "kernel: nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context, skipping"
POWER = "kernel: mlx5_core 0000:0c:00.0: mlx5_pcie_event:299:(pid 7): Detected insufficient power on the slot"
HOT = "kernel: mlx5_core 0000:0c:00.0: Port module event[error]: module 0, Cable error, High Temperature"


def verdicts(evidence: Evidence) -> dict[str, set[Subject]]:
    """Who fails by the kernel's log, by check."""
    return {
        check: {one.subject for one in evaluate(BY_ID[check], evidence) if one.verdict is Verdict.FAIL}
        for check in ("xid", "kernel-log")
    }


def says(message: str) -> dict[str, set[Subject]]:
    return verdicts(seeding.kernel_says("gpu01", message)(sample.healthy(2)))


@pytest.mark.parametrize("code", range(144, 151))
@pytest.mark.parametrize(("severity", "fault"), [("Fatal", True), ("Nonfatal", False), ("Non-fatal", False)])
def test_xids_of_nvlink_5_are_judged_by_their_severity(code: int, severity: str, *, fault: bool) -> None:
    message = NVLINK.format(unit="NETIR_LINK_EVT", severity=severity)
    assert is_fault(Xid("0000:07:00.0", code, "", message)) is fault
    assert (Subject("gpu01", 0) in says(line(GPU, code, message))["xid"]) is fault


@pytest.mark.parametrize(
    ("code", "verdict", "remedy"),
    [
        (61, Verdict.FAIL, "reset the GPU"),
        (78, Verdict.FAIL, "Update the driver"),
        (162, Verdict.PASS, ""),
        (163, Verdict.PASS, ""),
        (164, Verdict.PASS, ""),
        (165, Verdict.PASS, ""),
        (166, Verdict.FAIL, "catalogue"),
        (167, Verdict.FAIL, "catalogue"),
        (168, Verdict.FAIL, "nvidia-smi -e 1"),
        (169, Verdict.FAIL, "catalogue"),
        (170, Verdict.FAIL, "catalogue"),
    ],
)
def test_newer_xids_have_an_action(code: int, verdict: Verdict, remedy: str) -> None:
    evidence = seeding.kernel_says("gpu01", line(GPU, code))(sample.healthy(1))
    result = evaluate(BY_ID["xid"], evidence)[0]
    assert result.verdict is verdict and remedy in result.remedy


def test_the_codes_that_the_issue_names_are_in_the_table() -> None:
    assert {61, 78, *range(144, 151), *range(162, 171)} <= set(catalogue()["codes"])


@pytest.mark.parametrize(
    "severity", ["Uncorrectable (Non-Fatal)", "Uncorrected (Non-Fatal)", "Uncorrectable (Fatal)"]
)
@pytest.mark.parametrize("aer", ["", "AER: "])
@pytest.mark.parametrize("device", ["nvidia 0000:0f:00.0", "pcieport 0000:02:01.0"])
def test_an_uncorrected_error_of_a_gpu_or_of_its_port_is_that_gpus(
    device: str, aer: str, severity: str
) -> None:
    message = AER.format(device=device, aer=aer, severity=severity)
    assert says(message) == {"xid": {Subject("gpu01", 1)}, "kernel-log": set()}


@pytest.mark.parametrize(
    ("device", "severity", "blamed"),
    [
        ("nvme 0000:e1:00.0", "Uncorrectable (Non-Fatal)", False),  # plain machines have such
        ("pcieport 0000:01:00.0", "Uncorrectable (Non-Fatal)", False),  # above the switch: not one GPU's
        ("pcieport 0000:01:00.0", "Uncorrectable (Fatal)", True),
        ("nvidia 0000:0f:00.0", "Corrected", False),
    ],
)
def test_what_is_no_gpus_is_the_nodes_where_it_is_fatal(device: str, severity: str, *, blamed: bool) -> None:
    found = says(AER.format(device=device, aer="", severity=severity))
    assert found == {"xid": set(), "kernel-log": {Subject("gpu01")} if blamed else set()}


def test_errors_of_peermem_are_a_warning() -> None:
    result = evaluate(BY_ID["kernel-log"], seeding.kernel_says("gpu01", PEERMEM)(sample.healthy(1)))[0]
    assert (result.verdict, result.measured) == (Verdict.WARNING, 1)
    assert "nvidia-peermem reports errors" in result.because


def test_a_port_that_is_not_known_costs_no_gpu_its_verdict() -> None:
    evidence = seeding.edit("gpu01", lambda raw: raw.pop("pcie"))(sample.healthy(1))
    assert {one.verdict for one in evaluate(BY_ID["xid"], evidence)} == {Verdict.PASS}


@pytest.mark.parametrize(
    ("message", "kept"),
    [
        (AER.format(device="pcieport 0000:02:01.0", aer="AER: ", severity="Uncorrectable (Non-Fatal)"), True),
        (AER.format(device="pcieport 0000:02:01.0", aer="", severity="Uncorrected (Fatal)"), True),
        (AER.format(device="pcieport 0000:02:01.0", aer="", severity="Corrected"), False),
        (PEERMEM, True),
        (POWER, True),
        (HOT, True),
        ("kernel: nvidia-peermem: module verification failed: signature missing", False),
    ],
)  # fmt: skip
def test_the_probe_keeps_the_lines_that_are_judged_and_no_others(message: str, *, kept: bool) -> None:
    sifted = Sifted()
    sifted.read(BytesIO(f"{message}\n".encode()))
    assert bool(sifted.kept) is kept
    assert (unnumbered_fault(message) is not None) is kept


def test_a_killed_job_pushes_no_fault_out_of_the_log() -> None:
    """It brings a line for each region of memory that was registered."""
    sifted = Sifted()
    sifted.read(BytesIO(f"{HOT}\n{line(GPU, 79)}\n".encode() + f"{PEERMEM}\n".encode() * 5000))
    assert sifted.kept[:2] == [HOT, line(GPU, 79)]
    assert (len(sifted.kept), sifted.dropped) == (2 + KEEP_LINES, 0)


def test_of_each_device_and_code_the_last_lines_are_kept_whatever_others_bring() -> None:
    """One program with a wrong address has a line for each multiprocessor of each GPU."""
    crashed = [
        line("0000:47:00", 13, f"pid=7, name=python3, Warp Exception on (SM {sm})") for sm in range(900)
    ]
    nonfatal = [line(GPU, 149, "pid=7, name=Fatal, NETIR_LINK_EVT Nonfatal XC0")] * 9
    fatal = line(GPU, 149, "pid=7, name=Nonfatal, NETIR_LINK_EVT Fatal XC0")
    log = Sifted()
    log.read(BytesIO("\n".join([line(GPU, 79), HOT, fatal, *nonfatal, *crashed, *[POWER] * 9]).encode()))
    assert log.kept == [
        line(GPU, 79), HOT, fatal,
        *nonfatal[-LAST_OF_KIND:], *crashed[-LAST_OF_KIND:], *[POWER] * LAST_OF_KIND,
    ]  # fmt: skip
    assert (log.omitted, log.dropped) == (4 + 895 + 4, 0)
    named = [line(GPU, 13, f"pid=7, name={name}, x") for name in ("Fatal", "Nonfatal", "a") * LAST_OF_KIND]
    log = Sifted()
    log.read(BytesIO("\n".join(named).encode()))
    assert len(log.kept) == LAST_OF_KIND, "a program's name makes no kind"
    read = [parse_line(one) for one in (fatal, nonfatal[0])]
    assert [one and is_fault(one) for one in read] == [True, False]


def test_what_one_device_no_longer_needs_settles_nothing_of_another() -> None:
    needed = Xid(
        "0000:ee:00.0", 154, "", "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"
    )
    settled = Xid(
        "0000:ef:00.0", 154, "", "GPU recovery action changed from 0x2 (Node Reboot Required) to 0x0 (None)"
    )
    assert judge_messages([needed, settled], {}).verdict is Verdict.FAIL
    assert judge_messages([settled, replace(needed, address=settled.address)], {}).verdict is Verdict.FAIL
    assert judge_messages([settled], {}).verdict is Verdict.PASS


def test_the_probe_tells_by_severity_what_the_table_judges_by_it() -> None:
    codes = catalogue()["codes"]
    assert {str(code) for code, entry in codes.items() if entry["fault"] == "by_message"} == BY_SEVERITY


def test_kinds_that_do_not_fit_are_counted_and_nothing_passes_then() -> None:
    log = Sifted()
    log.read(BytesIO("".join(f"{line(GPU, 1000 + code)}\n" for code in range(MOST_KINDS + 3)).encode()))
    assert (len(log.kept), log.dropped) == (MOST_KINDS, 3)
    assert judge_messages([], {"dropped": log.dropped}).verdict is Verdict.NOT_RUN


@pytest.mark.parametrize("instance", [" GPU-I:05", " GPU-I:05 GPU-CI:00"])
def test_with_mig_the_driver_names_instances_after_the_address(instance: str) -> None:
    """As the open driver's kernel_rc.c prints it of what belongs to a GPU instance or a compute instance."""
    said = line("0000:07:00", 95, "pid=7, name=python3, Uncontained ECC error").replace(
        "07:00)", f"07:00{instance})"
    )
    assert says(said) == {"xid": {Subject("gpu01", 0)}, "kernel-log": set()}


# As Linux 6.18 printed them of programs that any account started; its own name is cut after 15 letters.
REPEATED = [
    "NVRM: Xid (PCI:[498]: segfault at 0 ip 00005584220fc132 sp 00007ffda097c960 error 6 in "
    "NVRM: Xid (PCI:0000:07:00): 79, pid=1, GPU has fallen off the bus.[1132,5584220fc000+1000]",
    "NVRM: Xid (PCI: invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
    "NVRM: Xid (0000: page allocation failure: order:9, mode:0xcc0(GFP_KERNEL), nodemask=(null),cpuset="
    "NVRM: Xid (PCI:0000:07:00): 79,mems_allowed=0",
    "nvidia-nvswitch[498]: segfault at 0 ip 00005584220fc132 sp 00007ffda097c960 error 6 in "
    "nvidia-nvswitch0: SXid (PCI:0000:c4:00.0): 20034, Fatal, Link 30 LTSSM Fault Up[1132,5584220fc000+1000]",
    "traps: NVRM: GPU 0000:[498] trap int3 ip:5584220fc132 sp:7ffda097c960 error:0 in "
    "NVRM: GPU 0000:07:00.0: RmInitAdapter failed![1132,5584220fc000+1000]",
    "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=user.slice,mems_allowed=0,oom_memcg="
    "/user.slice/nvidia 0000:07:00.0: PCIe Bus Error: severity=Uncorrectable (Fatal),task=x,pid=498,uid=1000",
    "mlx5_core 0000:[498]: segfault at 0 ip 00005584220fc132 sp 00007ffda097c960 error 6 in "
    "mlx5_core 0000:0c:00.0: insufficient power[1132,5584220fc000+1000]",
]


@pytest.mark.parametrize("before", ["kernel: ", "2026-11-20T10:00:00.1+0000 gpu01 kernel: ", "[ 12.3] "])
@pytest.mark.parametrize("said", REPEATED, ids=lambda said: said.split("[")[0][:20])
def test_names_that_the_kernel_repeats_are_no_messages_of_the_driver(said: str, before: str) -> None:
    assert says(before + said) == {"xid": set(), "kernel-log": set()}
    evidence = seeding.kernel_says("gpu01", before + said)(sample.healthy(2))
    assert {one.verdict for name in ("xid", "kernel-log") for one in evaluate(BY_ID[name], evidence)} == {
        Verdict.PASS
    }


def test_names_that_the_kernel_repeats_do_not_push_the_drivers_messages_out() -> None:
    log = Sifted()
    log.read(BytesIO("\n".join([line(GPU, 79, "gone"), *REPEATED * KEEP_LINES]).encode()))
    assert (log.kept, log.dropped) == ([line(GPU, 79, "gone")], 0)
