"""The tables of `nvidia-smi mig`: profiles, placements, GPU instances, compute instances.

In the widths of the drivers from 570 on [captures of an H100, of `-lgip`, `-lgi` and `-lci`]; while MIG is
off, as an H100 and an H200 with driver 580.159.04 print them [docs/measurements.md].
"""

from __future__ import annotations

from typing import Any

from . import mig
from . import node as nvml

Instances = list[tuple[dict[str, Any], dict[str, Any]]]
ALL_WHOLE = "No MIG-enabled devices found.\n"


def profiles(node: nvml.Node, gpus: list[dict[str, Any]]) -> str:
    """`mig -lgip`: also of GPUs whose mode is off, with room for all."""
    lines = [
        "GPU instance profiles:".ljust(78),
        "GPU   Name               ID    Instances   Memory     P2P    SM    DEC   ENC  ",
        "                               Free/Total   GiB              CE    JPEG  OFA  ",
    ]
    rows = []
    for gpu in mig.capable(node, gpus):
        for profile in mig.PROFILES:
            free = mig.free(node.mig_instances(gpu) if node.mig_mode(gpu) else [], profile)
            processors, copy, decoders, jpeg, ofa = mig.engines(node, profile)
            room, memory = f"{free}/{profile.limit}", f"{mig.memory_gib(node, profile):.2f}"
            rows.append([
                f" {gpu['index']:>2}  MIG {mig.name(node, profile):<15}{profile.identifier:>3}     {room:<11}"
                f"{memory:<5}      No     {processors:<3}{decoders:>5}     0   ",
                f"{'':<62}{copy:>1}     {jpeg}     {ofa}   ",
            ])  # fmt: skip
    return _table(lines, rows, 78)


def placements(node: nvml.Node, gpus: list[dict[str, Any]]) -> str:
    """`mig -lgipp`."""
    lines = []
    for gpu in mig.capable(node, gpus):
        for profile in mig.PROFILES:
            word = "Placements:" if len(profile.starts) > 1 else "Placement :"
            starts = ",".join(str(start) for start in sorted(profile.starts))
            which = f"GPU {gpu['index']:>2} Profile ID {profile.identifier:>2}"
            lines.append(f"{which} {word} {{{starts}}}:{profile.memory}")
    return "".join(f"{line}\n" for line in lines)


def gpu_instances(node: nvml.Node, gpus: list[dict[str, Any]]) -> str:
    """`mig -lgi`; with exit code 0 also where no GPU's mode is on."""
    if mig.all_are_whole(node, gpus):
        return ALL_WHOLE
    lines = [
        "GPU instances:".ljust(56),
        "GPU   Name               Profile  Instance   Placement  ",
        "                           ID       ID       Start:Size ",
    ]
    rows = [
        [
            f" {gpu['index']:>2}  MIG {one['name']:<14}{one['profile']:>6}{one['gi_id']:>9}"
            f"{one['start']:>11}:{one['memory']:<6}"
        ]
        for gpu, one in _there(node, gpus, "No GPU instances found: Not Found")
    ]
    return _table(lines, rows, 56)


def compute_instances(node: nvml.Node, gpus: list[dict[str, Any]]) -> str:
    """`mig -lci`; with exit code 0 also where no GPU's mode is on."""
    if mig.all_are_whole(node, gpus):
        return ALL_WHOLE
    lines = [
        "Compute instances:".ljust(67),
        "GPU     GPU       Name             Profile   Instance   Placement  ",
        "      Instance                       ID        ID       Start:Size ",
        "        ID                                                         ",
    ]
    rows = [
        [
            f" {gpu['index']:>2}{one['gi_id']:>7}       MIG {one['name']:<14}{one['compute'] - 1:>4}"
            f"{0:>10}{0:>11}:{one['compute']:<6}"
        ]
        for gpu, one in _there(node, gpus, "No compute instances found: Not Found")
        if one["ci"]
    ]
    if not rows:
        raise nvml.NvmlError("No compute instances found: Not Found", 6)
    return _table(lines, rows, 67)


def _there(node: nvml.Node, gpus: list[dict[str, Any]], nothing: str) -> Instances:
    found = [(gpu, one) for gpu in mig.with_mode(node, gpus) for one in node.mig_instances(gpu)]
    if not found:
        raise nvml.NvmlError(nothing, 6)
    return sorted(found, key=lambda pair: (pair[0]["index"], -pair[1]["profile"], pair[1]["gi_id"]))


def _table(heads: list[str], rows: list[list[str]], width: int) -> str:
    rule = f"+{'-' * (width + 1)}+"
    lines = [rule, *(f"| {head}|" for head in heads), f"|{'=' * (width + 1)}|"]
    for row in rows:
        lines += [*(f"| {line:<{width}}|" for line in row), rule]
    return "\n".join([*lines, ""])
