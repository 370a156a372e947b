# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE)
"""From what a node's GPUs are to what is declared of them: which instances stay, and what is done."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ansible_collections.clusterctl.cluster.plugins.module_utils import mig_layout, mig_restore
from ansible_collections.clusterctl.cluster.plugins.module_utils.mig_layout import LayoutError, Profile
from ansible_collections.clusterctl.cluster.plugins.module_utils.mig_restore import MigError, Run, There

_COLUMNS = "pci.bus_id,compute_cap,mig.mode.current,mig.mode.pending"
QUERY = ["nvidia-smi", f"--query-gpu={_COLUMNS}", "--format=csv,noheader"]
_PROFILE = re.compile(r"\|\s+\d+\s+MIG (\S+)\s+(\d+)\s+\d+/(\d+)\s")
_PLACEMENT = re.compile(r"GPU\s+\d+ Profile ID\s+(\d+) Placements?\s*: \{([\d,]+)\}:(\d+)")


class Gpu(NamedTuple):
    """A GPU as it is: ``mode`` of None has no MIG. ``profiles`` is empty while the driver lists none.

    ``keeps_mode``: the GPU remembers its mode, as Ampere's do; from Hopper on only the driver knows it
    [NVIDIA MIG User Guide, "Enable MIG mode"].
    """

    index: int
    bus: str
    mode: bool | None
    pending: bool | None
    instances: tuple[There, ...] = ()
    profiles: Mapping[str, Profile] = {}
    keeps_mode: bool = False

    @property
    def shown(self) -> str:
        """What it is, as a layout."""
        if not self.mode:
            text = mig_layout.DISABLED
        else:
            text = mig_layout.shown(one.profile for one in self.instances)
            if any(set(one.computes) != {one.profile} for one in self.instances):
                text += " (with other compute instances)"
        return text if self.mode == self.pending else f"{text} (another mode after a reset)"


class Step(NamedTuple):
    """What one GPU is to be; ``instances`` of None says that they are planned when its mode is on."""

    gpu: Gpu
    layout: str
    enabled: bool
    instances: tuple[tuple[str, int], ...] | None
    actions: tuple[str, ...]

    @property
    def target(self) -> str:
        """What its layout means on this GPU."""
        if not self.enabled or self.instances is None:
            return self.layout
        return mig_layout.shown(name for name, _ in self.instances)

    @property
    def switches(self) -> bool:
        """Whether its mode changes."""
        return (self.gpu.mode, self.gpu.pending) != (self.enabled, self.enabled)

    @property
    def record(self) -> dict[str, Any]:
        """Its part of the file that the unit restores."""
        return {
            "bus": self.gpu.bus,
            "layout": self.layout,
            "enabled": self.enabled,
            "instances": self.instances,
        }


def read_gpus(run: Run, buses: Sequence[str], wanted: Sequence[int]) -> list[Gpu]:
    """The wanted of the node's GPUs, which are numbered by their place on the bus. Raises MigError."""
    code, output = run(QUERY)
    if code not in mig_restore.GOOD:
        raise MigError(
            f"nvidia-smi failed ({code}): {' '.join(output.split())[:300] or 'nothing was printed'}"
        )
    modes: dict[str, tuple[bool, bool | None, bool | None]] = {}
    for line in output.splitlines():
        bus, comma, rest = line.partition(",")
        if comma:
            capability, _, words = rest.partition(",")
            modes[_short(bus)] = (capability.strip().startswith("8."), *mig_restore.parse_modes(words))
    found = []
    for index in wanted:
        bus = buses[index]
        if _short(bus) not in modes:
            raise MigError(f"the driver does not list GPU {index} ({bus})")
        keeps_mode, mode, pending = modes[_short(bus)]
        instances = mig_restore.read_instances(run, bus) if mode else ()
        found.append(Gpu(index, bus, mode, pending, instances, keeps_mode=keeps_mode))
    return found


def after_reload(gpu: Gpu, record: Mapping[str, Any] | None) -> Gpu:
    """What a GPU will be after its driver was loaded again, and the unit restored its record, if any."""
    if gpu.mode is None:
        return gpu
    if record is None:
        mode = bool(gpu.pending and gpu.keeps_mode)
        return gpu._replace(mode=mode, pending=mode, instances=())
    mode = bool(record["enabled"])
    placed = enumerate(record["instances"] or ())
    instances = tuple(There(str(name), int(start), number, (str(name),)) for number, (name, start) in placed)
    return gpu._replace(mode=mode, pending=mode, instances=instances)


def with_profiles(run: Run, gpu: Gpu) -> Gpu:
    """The GPU with the profiles that it lists; without any where its driver lists none before MIG is on."""
    words = ["nvidia-smi", "mig", "-i", gpu.bus]
    (code, table), (placed, places) = run([*words, "-lgip"]), run([*words, "-lgipp"])
    if code not in mig_restore.GOOD or placed not in mig_restore.GOOD:
        if gpu.mode:
            raise MigError(f"GPU {gpu.index} lists no MIG profiles: {(table + places).strip()[:300]}")
        return gpu
    return gpu._replace(profiles=parse_profiles(table, places))


def parse_profiles(table: str, places: str) -> dict[str, Profile]:
    """Profiles by name, of `mig -lgip` and `mig -lgipp`. Raises MigError where they do not fit together."""
    placements = {
        number: (tuple(int(start) for start in starts.split(",")), int(size))
        for number, starts, size in _PLACEMENT.findall(places)
    }
    found = {}
    for name, number, limit in _PROFILE.findall(table):
        if number not in placements:
            raise MigError(f"`nvidia-smi mig -lgipp` has no placement of profile {number}, {name}")
        starts, size = placements[number]
        found[name] = Profile(name, size, starts, int(limit))
    if not found:
        raise MigError("`nvidia-smi mig -lgip` printed a table that cannot be read")
    return found


def plan(gpu: Gpu, layout: str) -> Step | None:
    """What is done to bring a GPU to a layout; None if it has no MIG, and needs none. Raises LayoutError."""
    if gpu.mode is None:
        if layout == mig_layout.DISABLED:
            return None
        raise LayoutError(f"GPU {gpu.index} does not support MIG, and {layout} is declared")
    if layout == mig_layout.DISABLED:
        return Step(gpu, layout, False, (), tuple(_mode_actions(gpu, False)))
    actions = _mode_actions(gpu, True)
    if not gpu.profiles:
        return Step(gpu, layout, True, None, (*actions, f"GPU {gpu.index}: create {layout}"))
    try:
        wanted = mig_layout.instances(layout, gpu.profiles) or ()
        there = [mig_layout.Instance(one.profile, one.start) for one in gpu.instances]
        kept, made = mig_layout.change(there, wanted, gpu.profiles)
    except LayoutError as error:
        raise LayoutError(f"GPU {gpu.index}: {error}") from None
    instances = tuple(sorted(((one.profile, one.start) for one in (*kept, *made)), key=lambda one: one[1]))
    actions += [
        f"GPU {gpu.index}: destroy {one.profile} at {one.start}"
        for one in gpu.instances
        if (one.profile, one.start) not in kept
    ]
    actions += [f"GPU {gpu.index}: create {one.profile} at {one.start}" for one in made]
    actions += [
        f"GPU {gpu.index}: create the compute instance of {one.profile} at {one.start} again"
        for one in gpu.instances
        if (one.profile, one.start) in kept and set(one.computes) != {one.profile}
    ]
    return Step(gpu, layout, True, instances, tuple(actions))


def _mode_actions(gpu: Gpu, enabled: bool) -> list[str]:
    if (gpu.mode, gpu.pending) == (enabled, enabled):
        return []
    return [f"GPU {gpu.index}: {'enable' if enabled else 'disable'} MIG"]


def document(steps: Sequence[Step]) -> str:
    """The file that the unit restores at boot; empty where no GPU needs it: whole GPUs come by themselves."""
    if not any(step.enabled for step in steps):
        return ""
    return json.dumps({"version": 1, "gpus": [step.record for step in steps]}, indent=1) + "\n"


def parse_document(text: str) -> dict[str, Mapping[str, Any]]:
    """The records of a document by bus; none in a text that is no such document."""
    try:
        return {str(record["bus"]): record for record in json.loads(text or "{}").get("gpus", ())}
    except (ValueError, TypeError, KeyError, AttributeError):
        return {}


def _short(bus: str) -> str:
    """A PCI address as the kernel writes it: nvidia-smi has eight digits of domain, and capitals."""
    domain, _, rest = bus.strip().lower().partition(":")
    return f"{domain[-4:]}:{rest}"
