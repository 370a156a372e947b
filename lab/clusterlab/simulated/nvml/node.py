"""What NVML knows: the node's hardware as the loaded driver shows it, or the reason why it shows nothing."""

from __future__ import annotations

import functools
import json
import os
from pathlib import Path
from typing import Any, NamedTuple, cast

NOT_LOADED = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
    "Make sure that the latest NVIDIA driver is installed and running.\n"
)
WITHOUT_FABRIC = ("Volta", "Ampere")  # these report none, although there may be NVSwitches
MIG_MODES, MIG_HELD = "mig-modes.json", "mig-held.json"
RESET_CLIENTS = ("nv-hostengine",)
# Processes that hold devices for the driver's sake.
DAEMONS = ("nvidia-persiste", "nv-fabricmanage", "nvidia-smi", "nv-hostengine")


class NvmlError(Exception):
    """A failed call: what nvidia-smi prints, and its exit code (NVML's return value where it has one)."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


class Paths(NamedTuple):
    """Where the simulated machine is described; another root serves tests."""

    root: Path = Path("/")

    @property
    def hardware(self) -> Path:
        """hardware.json, as the lab mounts it into nodes and the runtime into containers."""
        return self.root / "opt/clusterlab/node/hardware.json"

    @property
    def kernel(self) -> Path:
        """State of the node's kernel, gone after a reboot."""
        return self.root / "run/clusterlab/kernel"

    @property
    def inforom(self) -> Path:
        """State that GPUs keep through a reboot: the MIG mode of those before Hopper."""
        return self.root / "var/lib/clusterlab/inforom/mig-mode.json"


class Node(NamedTuple):
    """The node as its driver shows it."""

    hardware: dict[str, Any]
    driver_version: str
    flavor: str
    paths: Paths

    @property
    def branch(self) -> int:
        """The driver's branch, such as 580."""
        return int(self.driver_version.split(".", 1)[0])

    @property
    def cuda_version(self) -> str:
        """The newest CUDA that this driver serves."""
        known = {570: "12.8", 575: "12.9", 580: "13.0", 590: "13.1", 595: "13.2"}
        return known.get(self.branch, "12.4" if self.branch < 570 else "13.2")

    @property
    def model(self) -> dict[str, Any]:
        """What all GPUs have in common."""
        return cast(dict[str, Any], self.hardware["gpu_model"])

    @property
    def gpus(self) -> list[dict[str, Any]]:
        """The GPUs that the driver knows and this caller may open, lost ones too.

        NVML counts what is there: a GPU that vanished shifts the indices behind it, and a container
        counts its own from 0. The minor number stays with the device file.
        """
        found: list[dict[str, Any]] = []
        for gpu in self.hardware["gpus"]:
            minor = gpu["index"]
            if gpu["state"] != "missing" and self._may_open(minor):
                found.append({**gpu, "index": len(found), "minor": minor})
        return found

    def _may_open(self, minor: int) -> bool:
        devices = self.paths.root / "dev"
        device = devices / f"nvidia{minor}"
        there = device.exists() or not (devices / "nvidiactl").exists()
        return there and (not device.exists() or os.access(device, os.R_OK | os.W_OK))

    @property
    def switches(self) -> list[dict[str, Any]]:
        """The NVSwitches on the bus."""
        return [switch for switch in self.hardware["nvswitches"] if switch["state"] != "missing"]

    def state(self, name: str) -> dict[str, Any]:
        """A part of the kernel's state; empty when nothing was set since the driver was loaded."""
        path = self.paths.kernel / name
        return cast(dict[str, Any], json.loads(path.read_text())) if path.exists() else {}

    def save_state(self, name: str, value: dict[str, Any]) -> None:
        """Keep a part of the kernel's state; raises NvmlError without the right to."""
        _save(self.paths.kernel / name, value)

    def persistence(self, gpu: dict[str, Any]) -> bool:
        """Whether persistence mode is on."""
        return bool(self.state("persistence.json").get(gpu["uuid"], False))

    def mig_mode(self, gpu: dict[str, Any]) -> bool:
        """Whether MIG mode is on."""
        if (override := gpu.get("mig_override")) is not None:
            return bool(override)
        held = self.state(MIG_HELD).get(gpu["uuid"])
        return self.mig_mode_pending(gpu) if held is None else bool(held)

    def mig_mode_pending(self, gpu: dict[str, Any]) -> bool:
        """Whether MIG mode is on after a reset."""
        if (override := gpu.get("mig_override")) is not None:
            return bool(override)
        return bool(self._mig_modes().get(gpu["uuid"], False))

    def save_mig_mode(self, gpu: dict[str, Any], enabled: bool, *, pending: bool = False) -> None:
        """Switch MIG mode, or have it switch with the next reset.

        GPUs before Hopper keep it in their InfoROM; later ones know it while the driver is loaded.
        """
        held = {**self.state(MIG_HELD), gpu["uuid"]: self.mig_mode(gpu) if pending else None}
        self.save_state(MIG_HELD, held)
        modes = {**self._mig_modes(), gpu["uuid"]: enabled}
        if self._keeps_mig_mode:
            _save(self.paths.inforom, modes)
        else:
            self.save_state(MIG_MODES, modes)

    @property
    def _keeps_mig_mode(self) -> bool:
        return bool(self.model["architecture"] == "Ampere")

    def _mig_modes(self) -> dict[str, Any]:
        if not self._keeps_mig_mode:
            return self.state(MIG_MODES)
        path = self.paths.inforom
        return cast(dict[str, Any], json.loads(path.read_text())) if path.exists() else {}

    def mig_clients(self, gpu: dict[str, Any]) -> list[str]:
        """Names of the processes that keep MIG mode from switching: of a reset, monitoring too."""
        names = [process["name"] for process in self.processes(gpu)]
        if self._keeps_mig_mode:
            holders = _holders(self.paths.root).get(f"/dev/nvidia{gpu['minor']}", [])
            names += [name for _, name in holders if name in RESET_CLIENTS]
        return names

    def can_reset_alone(self) -> bool:
        """Whether one GPU may be reset: on Ampere's NVSwitch boards Fabric Manager does its part of it."""
        return (
            not self.switches
            or not self._keeps_mig_mode
            or self.state("fabric.json").get("state") == "completed"
        )

    def mig_instances(self, gpu: dict[str, Any]) -> list[dict[str, Any]]:
        """MIG instances of a GPU; they do not survive the driver's unloading."""
        return cast(list[dict[str, Any]], self.state("mig-instances.json").get(gpu["uuid"], []))

    def mig_devices(self, gpu: dict[str, Any]) -> list[dict[str, Any]]:
        """What programs can use: the instances that have a compute instance."""
        return [one for one in self.mig_instances(gpu) if one["ci"]]

    def save_mig_instances(self, gpu: dict[str, Any], instances: list[dict[str, Any]]) -> None:
        """Replace the MIG instances of a GPU."""
        self.save_state("mig-instances.json", {**self.state("mig-instances.json"), gpu["uuid"]: instances})

    def fabric_state(self, gpu: dict[str, Any]) -> str:
        """Where Fabric Manager got to: Completed, In Progress, or N/A on GPUs that report none."""
        if not self.switches or self.model["architecture"] in WITHOUT_FABRIC:
            return "N/A"
        joins = gpu.get("joins_fabric", True) and self.state("fabric.json").get("state") == "completed"
        return "Completed" if joins else "In Progress"

    def processes(self, gpu: dict[str, Any]) -> list[dict[str, Any]]:
        """Processes that hold the GPU: declared in hardware.json, or really having its device open."""
        device = f"/dev/nvidia{gpu['minor']}"
        real = [
            {"pid": pid, "name": name, "type": "C", "used_memory_mib": 512}
            for pid, name in _holders(self.paths.root).get(device, [])
            if name not in DAEMONS
        ]
        return [*gpu["processes"], *real]

    def used_mib(self, gpu: dict[str, Any]) -> int:
        """Memory that processes use, in MiB."""
        return sum(process["used_memory_mib"] for process in self.processes(gpu))


def connect(library_version: str, paths: Paths | None = None) -> Node:
    """What nvmlInit does: find the loaded driver, loading it where the caller may.

    Raises NvmlError with the text and exit code of the real nvidia-smi.
    """
    paths = paths or Paths()
    module_file = paths.kernel / "modules/nvidia"
    if not module_file.exists():
        _load_driver(paths)
    if not module_file.exists():
        raise NvmlError(NOT_LOADED, 9)
    module = json.loads(module_file.read_text())
    hardware = json.loads(paths.hardware.read_text())
    override = hardware.get("driver_override")
    version = override or module["version"]
    if override is None and version != library_version:
        short = ".".join(library_version.split(".")[:2])
        raise NvmlError(
            f"Failed to initialize NVML: Driver/library version mismatch\nNVML library version: {short}",
            18,
        )
    node = Node(hardware=hardware, driver_version=version, flavor=module["flavor"], paths=paths)
    if not node.gpus:
        raise NvmlError("No devices were found", 6)
    return node


def require_reachable(gpus: list[dict[str, Any]]) -> None:
    """Raise NvmlError when one of the GPUs has fallen off the bus."""
    for gpu in gpus:
        if gpu["state"] == "lost":
            raise NvmlError(lost_text(gpu), 15)


def lost_text(gpu: dict[str, Any]) -> str:
    """What nvidia-smi says of a GPU that fell off the bus."""
    return (
        f"Unable to determine the device handle for GPU{gpu['index']}: {gpu['pci_address']}: "
        "GPU is lost.  Reboot the system to recover this GPU"
    )


def product(node: Node, gpu: dict[str, Any]) -> str:
    """The name of its model."""
    return cast(str, gpu.get("product_name") or node.model["name"])


def vbios(node: Node, gpu: dict[str, Any]) -> str:
    """The version of its VBIOS."""
    return cast(str, gpu.get("vbios_version") or node.model["vbios_version"])


def bus_id(gpu: dict[str, Any]) -> str:
    """The PCI address as NVML writes it: eight digits of domain, capitals."""
    return f"0000{gpu['pci_address']}".upper()


def _load_driver(paths: Paths) -> None:
    import subprocess  # noqa: PLC0415 - an eighth of a run's time, for what happens once after a boot

    program = paths.root / "usr/bin/nvidia-modprobe"
    if os.geteuid() == 0 and program.exists():
        subprocess.run([str(program), "-c", "0"], check=False, capture_output=True)


@functools.cache
def _holders(root: Path) -> dict[str, list[tuple[int, str]]]:
    """Who has which NVIDIA device open: process id and command name, by device; looked up once a run."""
    found: dict[str, list[tuple[int, str]]] = {}
    for process in (root / "proc").glob("[0-9]*"):
        try:
            targets = {str(link.readlink()) for link in (process / "fd").iterdir()}
            name = (process / "comm").read_text().strip()
        except OSError:
            continue  # it ended, or is not ours to look into
        for target in targets:
            if target.startswith("/dev/nvidia"):
                found.setdefault(target, []).append((int(process.name), name))
    return found


def _save(path: Path, value: dict[str, Any]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.new")
        temporary.write_text(json.dumps(value) + "\n")
        temporary.replace(path)
    except PermissionError as error:
        raise NvmlError("Insufficient Permissions", 4) from error
