"""Is each GPU split into the MIG instances that were declared, or not split at all?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
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
from clustercheck.checks.support.gpu import gpu_of
from clustercheck.evidence.cluster import Evidence
from clustercheck.expect.mig import mig_profiles
from clustercheck.model import Scope, Section, Subject, Verdict
from clustercheck.parse.gpu_list import parse_gpu_list
from clustercheck.parse.nvidia_smi import SmiGpu
from clustercheck.parse.reading import CannotReadError, program_output
from clustercheck.spec import MIG_DISABLED, MIG_FILL, mig_layout

DECLARE = (
    "Declare in hardware_mig what every GPU of the node must be: `disabled`, or its instances as "
    "`3g.40gb, 3g.40gb` or `all-1g.10gb`."
)
SETTLE = (
    "Restore the declared layout with `clusterctl mig apply`; it also installs the unit that restores it at "
    "boot, which `systemctl status clusterctl-mig` shows. Or correct hardware_mig."
)


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """The mode, whether another one waits for a reset, and the instances."""
    gpu = gpu_of(evidence, subject)
    declared = evidence.declared[str(subject.node)].mig_of(int(subject.gpu or 0))
    if gpu.mig in ("", "N/A"):
        if declared not in ("", MIG_DISABLED):
            return failed("this GPU does not support MIG", "no MIG", declared)
        return not_applicable("this GPU does not support MIG")
    if gpu.mig not in ("Enabled", "Disabled") or gpu.mig_pending not in ("Enabled", "Disabled"):
        raise CannotReadError(f"the mode of MIG is {gpu.mig!r}, and {gpu.mig_pending!r} after a reset")
    if gpu.mig_pending != gpu.mig:
        because = f"MIG is {gpu.mig.lower()} and will be {gpu.mig_pending.lower()} after a reset of the GPU"
        return failed(because, gpu.mig.lower(), declared or "no pending change")
    shown = _shown(_layout(evidence, str(subject.node), gpu)) if gpu.mig == "Enabled" else MIG_DISABLED
    return _compared(shown, declared, gpu.model)


def _compared(shown: str, declared: str, model: str) -> Finding:
    if not declared:
        if shown == MIG_DISABLED:
            return passed(shown, "no MIG where none is declared")
        return not_run(f"MIG is on ({shown}), and this was not declared", measured=shown, remedy=DECLARE)
    wanted = _wanted(declared, model)
    expected = MIG_DISABLED if wanted is None else _shown(Counter(wanted))
    if shown != expected:
        return failed(f"{shown}, and {expected} was declared", shown, expected, source="hardware_mig")
    return passed(shown, expected, source="hardware_mig")


def _wanted(declared: str, model: str) -> tuple[str, ...] | None:
    """The declared instances. Raises CannotReadError where a GPU is to be filled, and its room is unknown."""
    if not declared.startswith(MIG_FILL):
        return mig_layout(declared)
    name = declared.removeprefix(MIG_FILL)
    profile = mig_profiles(model).get(name)
    if profile is None:
        raise CannotReadError(f"how many {name} fit on a {model} is not known: declare their number")
    return (name,) * profile.limit


def _layout(evidence: Evidence, node: str, gpu: SmiGpu) -> Counter[str]:
    listed = evidence.once(partial(_listed, node=node), ("MIG devices", node))
    if isinstance(listed, CannotReadError):
        raise listed
    if gpu.uuid not in listed:
        raise CannotReadError(f"nvidia-smi -L does not list {gpu.uuid or 'this GPU'}")
    return Counter(listed[gpu.uuid])


def _listed(evidence: Evidence, node: str) -> Mapping[str, tuple[str, ...]] | CannotReadError:
    try:
        return parse_gpu_list(program_output(evidence.nodes[node].part("gpu_list"), "nvidia-smi -L"))
    except CannotReadError as error:
        return error


def _shown(layout: Counter[str]) -> str:
    parts = [f"{count}x{name}" if count > 1 else name for name, count in sorted(layout.items())]
    return ", ".join(parts) or "no instance"


def _declared(layout: str) -> seeding.Inject:
    """The operator says what every GPU is to be."""

    def inject(evidence: Evidence) -> Evidence:
        nodes = tuple(replace(each, mig=layout) for each in evidence.spec.nodes)
        return replace(evidence, spec=replace(evidence.spec, nodes=nodes))

    return inject


_split = seeding.split_gpu

CHECK = Check(
    id="gpu-mig",
    title="MIG layout",
    section=Section.DRIVER,
    scope=Scope.GPU,
    measures="whether each GPU is split into MIG instances, into which, and whether a mode waits for a reset",
    method="nvidia-smi -q -x, mig_mode, and nvidia-smi -L, against hardware_mig",
    requires="a GPU that knows MIG",
    expectation="the declared instances on every GPU of the node, or MIG disabled; not declared: disabled",
    remedy=SETTLE,
    subjects=every_gpu,
    judge=judge,
    faults=(
        SeededFault("split-undeclared", _split("gpu02", 3, "3g.40gb"), Subject("gpu02", 3), Verdict.NOT_RUN),
        SeededFault(
            "split-and-meant-whole",
            seeding.chain(_declared(MIG_DISABLED), _split("gpu02", 3, "3g.40gb")),
            Subject("gpu02", 3),
        ),
        SeededFault("whole-and-meant-split", _declared("7x1g.10gb"), Subject("gpu01", 0)),
        SeededFault(
            "an-instance-missing",
            seeding.chain(_declared("2x3g.40gb"), _split("gpu03", 5, "3g.40gb")),
            Subject("gpu03", 5),
        ),
        SeededFault(
            "one-less-than-fits",
            seeding.chain(_declared("all-1g.10gb"), _split("gpu03", 5, *["1g.10gb"] * 6)),
            Subject("gpu03", 5),
        ),
        SeededFault(
            "reset-pending", seeding.smi("gpu01", 2, "mig_mode/pending_mig", "Enabled"), Subject("gpu01", 2)
        ),
        SeededFault(
            "mode-translated",
            seeding.smi("gpu01", 2, "mig_mode/current_mig", "Désactivé"),
            Subject("gpu01", 2),
            Verdict.NOT_RUN,
        ),
        SeededFault(
            "list-unreadable",
            seeding.chain(
                _split("gpu02", 1, "3g.40gb"), seeding.stdout("gpu02", "gpu_list", "GPU 0:", "Carte 0 :")
            ),
            Subject("gpu02", 1),
            Verdict.NOT_RUN,
        ),
    ),
)
