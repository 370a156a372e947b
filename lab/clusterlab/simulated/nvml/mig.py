"""`nvidia-smi mig` and `-mig`: profiles, instances, and the mode that they need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from . import node as nvml


@dataclass(frozen=True)
class Profile:
    """One way to cut a GPU instance: slices of compute (of 7) and of memory (of 8)."""

    identifier: int
    compute: int
    memory: int
    limit: int
    media: bool = False


# NVIDIA's MIG User Guide, A100: profile ids, slices and how many fit.
PROFILES = (
    Profile(19, 1, 1, 7),
    Profile(20, 1, 1, 1, media=True),
    Profile(15, 1, 2, 4),
    Profile(14, 2, 2, 3),
    Profile(9, 3, 4, 2),
    Profile(5, 4, 4, 1),
    Profile(0, 7, 8, 1),
)


def name(node: nvml.Node, profile: Profile) -> str:
    """The profile's name on this GPU, such as 3g.40gb."""
    slice_gb = node.model["memory_mib"] / 1024 / 8
    return f"{profile.compute}g.{slice_gb * profile.memory:.0f}gb{'+me' if profile.media else ''}"


def free(taken: list[dict[str, Any]], profile: Profile) -> int:
    """How many more instances of the profile fit next to those taken."""
    compute: int = 7 - sum(instance["compute"] for instance in taken)
    memory: int = 8 - sum(instance["memory"] for instance in taken)
    media = sum(1 for instance in taken if instance["media"])
    fits = min(compute // profile.compute, memory // profile.memory, profile.limit)
    return max(0, min(fits, 1 - media) if profile.media else fits)


def set_mode(node: nvml.Node, gpus: list[dict[str, Any]], *, enabled: bool) -> str:
    """`nvidia-smi -mig 0|1`; a GPU in use keeps its mode, and says so."""
    word = "Enabled" if enabled else "Disabled"
    lines = []
    for gpu in gpus:
        if not node.model["mig_capable"]:
            raise nvml.NvmlError(f"Unable to set MIG mode for GPU {nvml.bus_id(gpu)}: Not Supported", 3)
        if node.processes(gpu):
            lines += [
                f"Warning: MIG mode is in pending {word[:-1].lower()} state for GPU {nvml.bus_id(gpu)}:"
                "In use by another client",
                f"{nvml.bus_id(gpu)} is currently being used by one or more other processes "
                "(e.g. CUDA application or a monitoring application such as another instance of nvidia-smi).",
            ]
            continue
        node.save_mig_mode(gpu, enabled)
        node.save_mig_instances(gpu, [])
        lines.append(f"{word} MIG Mode for GPU {nvml.bus_id(gpu)}")
    return "".join(f"{line}\n" for line in [*lines, "All done."])


def create(node: nvml.Node, gpus: list[dict[str, Any]], wanted: list[str], *, compute: bool) -> str:
    """`mig -cgi ID,ID [-C]`; raises NvmlError when one does not fit."""
    lines = []
    for gpu in _with_mode(node, gpus):
        instances = list(node.mig_instances(gpu))
        for word in wanted:
            profile = _find(node, word)
            if not free(instances, profile):
                raise nvml.NvmlError(
                    f"Unable to create a GPU instance on GPU {gpu['index']:>2} using profile "
                    f"{profile.identifier}: Insufficient Resources\n"
                    "Failed to create GPU instances: Insufficient Resources",
                    19,
                )
            used = {instance["gi_id"] for instance in instances}
            number = next(n for n in range(1, 15) if n not in used)
            instances.append(_instance(node, profile, number))
            lines.append(
                f"Successfully created GPU instance ID {number:>2} on GPU {gpu['index']:>2} using profile "
                f"MIG {name(node, profile)} (ID {profile.identifier:>2})"
            )
            if compute:
                lines.append(
                    f"Successfully created compute instance ID  0 on GPU {gpu['index']:>2} GPU instance ID "
                    f"{number:>2} using profile MIG {name(node, profile)} (ID {profile.compute - 1:>2})"
                )
        node.save_mig_instances(gpu, instances)
    return "".join(f"{line}\n" for line in lines)


def destroy(node: nvml.Node, gpus: list[dict[str, Any]], wanted: list[int]) -> str:
    """`mig -dgi [-gi ID,ID]`: all instances, or those."""
    lines = []
    for gpu in _with_mode(node, gpus):
        instances = node.mig_instances(gpu)
        gone = [item for item in instances if not wanted or item["gi_id"] in wanted]
        if not gone:
            raise nvml.NvmlError("No GPU instances found: Not Found", 6)
        node.save_mig_instances(gpu, [item for item in instances if item not in gone])
        lines += [
            f"Successfully destroyed GPU instance ID {item['gi_id']:>2} from GPU {gpu['index']:>2}"
            for item in gone
        ]
    return "".join(f"{line}\n" for line in lines)


def list_profiles(node: nvml.Node, gpus: list[dict[str, Any]]) -> str:
    """`mig -lgip`."""
    rule = "+-------------------------------------------------------------------------------+"
    lines = [
        rule,
        f"| {'GPU instance profiles:':<77} |",
        "| GPU   Name               ID    Instances   Memory     P2P    SM    DEC   ENC  |",
        "|                                Free/Total   GiB              CE    JPEG  OFA  |",
        "|===============================================================================|",
    ]
    for gpu in _with_mode(node, gpus):
        for profile in PROFILES:
            room = f"{free(node.mig_instances(gpu), profile)}/{profile.limit}"
            memory = node.model["memory_mib"] / 1024 / 8 * profile.memory * 0.95
            lines.append(
                f"| {gpu['index']:>3}  MIG {name(node, profile):<14}{profile.identifier:>3}"
                f"{room:>10}{memory:>12.2f}       No{profile.compute * 14:>7}     0     0   |"
            )
            lines.append(f"| {'':<62}{profile.compute:>2}     0     0   |")
            lines.append(rule)
    return "\n".join([*lines, ""])


def list_instances(node: nvml.Node, gpus: list[dict[str, Any]]) -> str:
    """`mig -lgi`."""
    rule = "+-------------------------------------------------------+"
    rows = [(gpu, item) for gpu in _with_mode(node, gpus) for item in node.mig_instances(gpu)]
    if not rows:
        raise nvml.NvmlError("No GPU instances found: Not Found", 6)
    lines = [
        rule,
        f"| {'GPU instances:':<53} |",
        "| GPU   Name             Profile  Instance   Placement  |",
        "|                          ID       ID       Start:Size |",
        "|=======================================================|",
    ]
    for gpu, item in rows:
        place = f"{item['gi_id'] - 1}:{item['memory']}"
        numbers = f"{item['profile']:>5}{item['gi_id']:>9}{place:>14}"
        lines.append(f"| {gpu['index']:>3}  MIG {item['name']:<14}{numbers}   |")
        lines.append(rule)
    return "\n".join([*lines, ""])


def _with_mode(node: nvml.Node, gpus: list[dict[str, Any]]) -> list[dict[str, Any]]:
    enabled = [gpu for gpu in gpus if node.mig_mode(gpu)]
    if not enabled:
        raise nvml.NvmlError("No MIG-enabled devices found.", 6)
    return enabled


def _find(node: nvml.Node, word: str) -> Profile:
    for profile in PROFILES:
        if word in (str(profile.identifier), name(node, profile)):
            return profile
    raise nvml.NvmlError(f"Invalid GPU instance profile: {word}", 2)


def _instance(node: nvml.Node, profile: Profile, number: int) -> dict[str, Any]:
    return {
        "gi_id": number,
        "profile": profile.identifier,
        "name": name(node, profile),
        "compute": profile.compute,
        "memory": profile.memory,
        "media": profile.media,
        "multiprocessors": profile.compute * 14,
        "memory_mib": int(node.model["memory_mib"] / 8 * profile.memory * 0.95),
    }
