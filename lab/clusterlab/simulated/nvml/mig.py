"""MIG of a GPU: profiles, where instances go, and the mode that they need."""

from __future__ import annotations

from typing import Any, NamedTuple

from . import node as nvml

IN_USE = 19  # NVML_ERROR_IN_USE, and what nvidia-smi ends with for want of room
SLICES = 8


class Profile(NamedTuple):
    """One way to cut a GPU instance: slices of compute (of 7) and of memory (of 8).

    ``starts`` are in the order in which the driver tries them.
    """

    identifier: int
    compute: int
    memory: int
    limit: int
    starts: tuple[int, ...]
    media: bool = False


# NVIDIA's MIG User Guide, A100: `nvidia-smi mig -lgip` and `-lgipp`; the order of the starts is that of its
# examples of `-cgi` (14,19,19,19,19,19 and 9,19,14,19, and 19,19,14,9, which fails).
PROFILES = (
    Profile(19, 1, 1, 7, (6, 4, 5, 0, 1, 2, 3)),
    Profile(20, 1, 1, 1, (6, 4, 5, 0, 1, 2, 3), media=True),
    Profile(15, 1, 2, 4, (6, 4, 0, 2)),
    Profile(14, 2, 2, 3, (4, 0, 2)),
    Profile(9, 3, 4, 2, (4, 0)),
    Profile(5, 4, 4, 1, (0,)),
    Profile(0, 7, 8, 1, (0,)),
)
# What `-lgip` prints in this order: multiprocessors, copy engines, decoders, JPEG and OFA engines.
ENGINES = {
    "Ampere": ((14, 1, 0, 0, 0), (14, 1, 1, 1, 1), (14, 1, 1, 0, 0), (28, 2, 1, 0, 0), (42, 3, 2, 0, 0),
               (56, 4, 2, 0, 0), (98, 7, 5, 1, 1)),
    "Hopper": ((16, 1, 1, 1, 0), (16, 1, 1, 1, 1), (26, 1, 1, 1, 0), (32, 2, 2, 2, 0), (60, 3, 3, 3, 0),
               (64, 4, 4, 4, 0), (132, 8, 7, 7, 1)),
}  # fmt: skip
# GiB of 1, 2, 4 and 8 memory slices, by the GPU's memory in MiB.
MEMORY_GIB = {
    40960: {1: 4.75, 2: 9.62, 4: 19.62, 8: 39.5},
    81920: {1: 9.5, 2: 19.5, 4: 39.25, 8: 78.75},
    81559: {1: 9.75, 2: 19.62, 4: 39.5, 8: 79.25},
}


def name(node: nvml.Node, profile: Profile) -> str:
    """The profile's name on this GPU, such as 3g.40gb."""
    slice_gb = node.model["memory_mib"] / 1024 / SLICES
    return f"{profile.compute}g.{slice_gb * profile.memory:.0f}gb{'+me' if profile.media else ''}"


def memory_gib(node: nvml.Node, profile: Profile) -> float:
    """Its memory, without what the driver keeps for itself."""
    return MEMORY_GIB[node.model["memory_mib"]][profile.memory]


def engines(node: nvml.Node, profile: Profile) -> tuple[int, int, int, int, int]:
    """Multiprocessors, copy engines, decoders, JPEG and OFA engines of an instance."""
    return ENGINES[node.model["architecture"]][PROFILES.index(profile)]


def room(taken: list[dict[str, Any]], profile: Profile) -> list[int]:
    """Where another instance of the profile could start next to those taken, the driver's choice first."""
    media = sum(1 for instance in taken if instance["media"])
    same = sum(1 for instance in taken if instance["profile"] == profile.identifier)
    if same >= profile.limit or (profile.media and media):
        return []
    used = {part for one in taken for part in range(one["start"], one["start"] + one["memory"])}
    return [start for start in profile.starts if used.isdisjoint(range(start, start + profile.memory))]


def free(taken: list[dict[str, Any]], profile: Profile) -> int:
    """How many more instances of the profile fit next to those taken."""
    there = list(taken)
    while starts := room(there, profile):
        there.append(_place(profile, starts[0]))
    return len(there) - len(taken)


def set_mode(node: nvml.Node, gpus: list[dict[str, Any]], *, enabled: bool) -> str:
    """`nvidia-smi -mig 0|1`: at once where nothing is in the way, else pending until a reset."""
    lines: list[str] = []
    for gpu in gpus:
        if not node.model["mig_capable"]:
            word = "enable" if enabled else "disable"
            lines.append(f"Unable to {word} MIG Mode for GPU {nvml.bus_id(gpu)}: Not Supported")
            lines.append("Treating as warning and moving on.")
        elif node.mig_mode(gpu) == enabled:
            node.save_mig_mode(gpu, enabled)
            lines.append(f"{_word(enabled)} MIG Mode for GPU {nvml.bus_id(gpu)}")
        else:
            lines += _switch(node, gpu, enabled)
    return "".join(f"{line}\n" for line in [*lines, "All done."])


def _switch(node: nvml.Node, gpu: dict[str, Any], enabled: bool) -> list[str]:
    bus = nvml.bus_id(gpu)
    pending = f"Warning: MIG mode is in pending {_word(enabled)[:-1].lower()} state for GPU {bus}:"
    if node.mig_clients(gpu):
        node.save_mig_mode(gpu, enabled, pending=True)
        return [
            f"{pending}In use by another client",
            f"{bus} is currently being used by one or more other processes "
            "(e.g. CUDA application or a monitoring application such as another instance of nvidia-smi). "
            "Please first kill all processes using the device and retry the command or reboot the system to "
            "make MIG mode effective.",
        ]
    if not node.can_reset_alone():
        node.save_mig_mode(gpu, enabled, pending=True)
        return [
            f"{pending}Not Supported",
            f"Reboot the system or try nvidia-smi --gpu-reset to make MIG mode effective on GPU {bus}",
        ]
    node.save_mig_mode(gpu, enabled)
    node.save_mig_instances(gpu, [])
    return [f"{_word(enabled)} MIG Mode for GPU {bus}"]


def _word(enabled: bool) -> str:
    return "Enabled" if enabled else "Disabled"


def create(node: nvml.Node, gpus: list[dict[str, Any]], wanted: list[str], *, compute: bool) -> str:
    """`mig -cgi PROFILE[:START],... [-C]`; those before one that does not fit stay."""
    lines: list[str] = []
    for gpu in with_mode(node, gpus):
        for word in wanted:
            profile, start = _asked(node, word)
            instances = node.mig_instances(gpu)
            starts = [one for one in room(instances, profile) if start in (None, one)]
            if not starts:
                lines.append(
                    f"Unable to create a GPU instance on GPU {gpu['index']:>2} using profile "
                    f"{profile.identifier}: Insufficient Resources"
                )
                raise nvml.NvmlError(
                    "\n".join([*lines, "Failed to create GPU instances: Insufficient Resources"]), IN_USE
                )
            made = _instance(node, profile, starts[0])
            node.save_mig_instances(gpu, sorted([*instances, made], key=lambda one: one["gi_id"]))
            lines.append(
                f"Successfully created GPU instance ID {made['gi_id']:>2} on GPU {gpu['index']:>2} using "
                f"profile MIG {made['name']} (ID {profile.identifier:>2})"
            )
            if compute:
                lines += _compute(node, gpu, made["gi_id"])
    return "".join(f"{line}\n" for line in lines)


def create_compute(node: nvml.Node, gpus: list[dict[str, Any]], wanted: list[int]) -> str:
    """`mig -cci [-gi ID,...]`: the compute instance that has all of its GPU instance."""
    lines: list[str] = []
    for gpu in with_mode(node, gpus):
        for instance in _chosen(node, gpu, wanted):
            if instance["ci"]:
                raise nvml.NvmlError(
                    f"Unable to create a compute instance on GPU {gpu['index']:>2} GPU instance ID "
                    f"{instance['gi_id']:>2} using profile {instance['compute'] - 1}: Insufficient Resources"
                    "\nFailed to create compute instances: Insufficient Resources",
                    IN_USE,
                )
            lines += _compute(node, gpu, instance["gi_id"])
    return "".join(f"{line}\n" for line in lines)


def destroy_compute(node: nvml.Node, gpus: list[dict[str, Any]], wanted: list[int]) -> str:
    """`mig -dci [-gi ID,...]`; a process on the GPU may be in any of its instances."""
    lines: list[str] = []
    for gpu in with_mode(node, gpus):
        there = [one for one in _chosen(node, gpu, wanted) if one["ci"]]
        if not there:
            raise nvml.NvmlError("No compute instances found: Not Found", 6)
        for instance in there:
            where = (
                f"compute instance ID  0 from GPU {gpu['index']:>2} GPU instance ID {instance['gi_id']:>2}"
            )
            if node.processes(gpu):
                raise nvml.NvmlError(
                    f"Unable to destroy {where}: In use by another client\n"
                    "Failed to destroy compute instances: In use by another client",
                    IN_USE,
                )
            _update(node, gpu, instance["gi_id"], ci=False)
            lines.append(f"Successfully destroyed {where}")
    return "".join(f"{line}\n" for line in lines)


def destroy(node: nvml.Node, gpus: list[dict[str, Any]], wanted: list[int]) -> str:
    """`mig -dgi [-gi ID,...]`: an instance with a compute instance in it stays."""
    lines: list[str] = []
    for gpu in with_mode(node, gpus):
        for instance in _chosen(node, gpu, wanted):
            where = f"GPU instance ID {instance['gi_id']:>2} from GPU {gpu['index']:>2}"
            if instance["ci"]:
                raise nvml.NvmlError(
                    "\n".join(
                        [*lines, f"Unable to destroy {where}: In use by another client",
                         "Failed to destroy GPU instances: In use by another client"]
                    ),
                    IN_USE,
                )  # fmt: skip
            rest = [one for one in node.mig_instances(gpu) if one["gi_id"] != instance["gi_id"]]
            node.save_mig_instances(gpu, rest)
            lines.append(f"Successfully destroyed {where}")
    return "".join(f"{line}\n" for line in lines)


def all_are_whole(node: nvml.Node, gpus: list[dict[str, Any]]) -> bool:
    """Whether MIG is off on all of them."""
    return not any(node.mig_mode(gpu) for gpu in gpus)


def with_mode(node: nvml.Node, gpus: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those GPUs whose MIG mode is on. Raises NvmlError where none is."""
    enabled = [gpu for gpu in gpus if node.mig_mode(gpu)]
    if not enabled:
        raise nvml.NvmlError("No MIG-enabled devices found.", 6)
    return enabled


def capable(node: nvml.Node, gpus: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those GPUs that have MIG at all. Raises NvmlError where none has."""
    if not node.model["mig_capable"]:
        raise nvml.NvmlError("No MIG-supported devices found.", 6)
    return gpus


def _chosen(node: nvml.Node, gpu: dict[str, Any], wanted: list[int]) -> list[dict[str, Any]]:
    found = [one for one in node.mig_instances(gpu) if not wanted or one["gi_id"] in wanted]
    if not found:
        raise nvml.NvmlError("No GPU instances found: Not Found", 6)
    return found


def _compute(node: nvml.Node, gpu: dict[str, Any], number: int) -> list[str]:
    _update(node, gpu, number, ci=True)
    made = next(one for one in node.mig_instances(gpu) if one["gi_id"] == number)
    return [
        f"Successfully created compute instance ID  0 on GPU {gpu['index']:>2} GPU instance ID {number:>2} "
        f"using profile MIG {made['name']} (ID {made['compute'] - 1:>2})"
    ]


def _update(node: nvml.Node, gpu: dict[str, Any], number: int, **changed: Any) -> None:
    there = node.mig_instances(gpu)
    node.save_mig_instances(gpu, [{**one, **changed} if one["gi_id"] == number else one for one in there])


def _asked(node: nvml.Node, word: str) -> tuple[Profile, int | None]:
    """A profile by its ID or name, and where it is to start."""
    wanted, _, start = word.partition(":")
    for profile in PROFILES:
        if wanted in (str(profile.identifier), name(node, profile)):
            if start and not (start.isdigit() and int(start) in profile.starts):
                raise nvml.NvmlError(f"Invalid placement start index: {start}", 2)
            return profile, int(start) if start else None
    raise nvml.NvmlError(f"Invalid GPU instance profile: {word}", 2)


def _place(profile: Profile, start: int) -> dict[str, Any]:
    return {
        "profile": profile.identifier,
        "compute": profile.compute,
        "memory": profile.memory,
        "media": profile.media,
        "start": start,
    }


def _instance(node: nvml.Node, profile: Profile, start: int) -> dict[str, Any]:
    # As the guide's examples number them: from 1 for half a GPU, from 3 for a quarter, from 7 for an eighth.
    first = {8: 0, 4: 1, 2: 3, 1: 7}[profile.memory]
    return {
        **_place(profile, start),
        "gi_id": first + start // profile.memory,
        "name": name(node, profile),
        "multiprocessors": engines(node, profile)[0],
        "memory_mib": int(memory_gib(node, profile) * 1024),
        "ci": False,
    }
