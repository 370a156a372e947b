"""What is known of one node before it is judged: its raw probe record, read on demand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from clustercheck.parse.document import read_answer
from clustercheck.parse.infiniband import RdmaAdapter, parse_infiniband
from clustercheck.parse.kernel_log import KernelLog, parse_kernel_log
from clustercheck.parse.nvidia_smi import SmiGpu, SmiLog, lost_gpus, parse_smi, without_processes
from clustercheck.parse.nvlink import GpuLinkErrors, GpuLinks, Listed, parse_nvlink, parse_nvlink_errors
from clustercheck.parse.plain_text import one_line
from clustercheck.parse.reading import (
    MAX_GPUS,
    CannotReadError,
    bus_address,
    printed_output,
    program_output,
)
from clustercheck.parse.replays import parse_replays
from clustercheck.parse.topology import Topology, parse_topology

NVIDIA = "0x10de"
GPU_CLASSES = ("0x0300", "0x0302")
NVSWITCH_CLASS = "0x0680"
CANNOT_TELL_BUSY = "cannot determine whether it is busy"
MAX_BUSY = 1000  # characters: every check of a job repeats why the node is left alone

T = TypeVar("T")


def _read(read: Callable[[], T]) -> T | CannotReadError:
    """What was read, or why it could not be: kept, so that each output is read once."""
    try:
        return read()
    except CannotReadError as error:
        return error


def _read_all_but_lost(
    record: Any, what: str, parse: Callable[[str], T], gpus_of: Callable[[T], Sequence[SmiGpu | Listed]]
) -> T:
    """What nvidia-smi printed. With a lost GPU it fails, and may still describe all the others.

    Raises CannotReadError.
    """
    try:
        return parse(program_output(record, what))
    except CannotReadError:
        with suppress(CannotReadError):
            found = parse(text := printed_output(record, what))
            if any(gpu.lost for gpu in gpus_of(found)) or lost_gpus(f"{text}\n{record.get('stderr')}"):
                return found
        raise


def _known(found: T | CannotReadError) -> T:
    if isinstance(found, CannotReadError):
        raise CannotReadError(str(found))
    return found


@dataclass(frozen=True)
class NodeEvidence:
    """One node's raw probe record. ``unreachable`` says why there is none, or is empty.

    ``asked`` is when it was asked for and when it came back, by this machine's clock in seconds since 1970.
    """

    name: str
    raw: Mapping[str, Any] = field(default_factory=dict)
    unreachable: str = ""
    asked: tuple[float, float] | None = None

    def part(self, name: str) -> Any:
        """A part of the record. Raises CannotReadError where the probe could not collect it."""
        errors = self.raw.get("errors")
        if errors and isinstance(errors, Mapping) and name in errors:
            raise CannotReadError(f"the probe could not collect {name}: {errors[name]}")
        if name not in self.raw:
            raise CannotReadError(f"the probe's record has no part {name}")
        return self.raw[name]

    def mapping(self, name: str) -> Mapping[str, Any]:
        """A part that is a mapping. Raises CannotReadError where it is not."""
        part = self.part(name)
        if type(part) is not dict and not isinstance(part, Mapping):
            raise CannotReadError(f"the probe's part {name} has an unexpected form")
        return part

    def records(self, name: str) -> list[Mapping[str, Any]]:
        """A part that is a list of mappings. Raises CannotReadError where it is not."""
        part = self.part(name)
        if not isinstance(part, list) or not all(type(e) is dict or isinstance(e, Mapping) for e in part):
            raise CannotReadError(f"the probe's part {name} has an unexpected form")
        return part

    @cached_property
    def _smi(self) -> SmiLog | CannotReadError:
        return _read(self._read_smi)

    def _read_smi(self) -> SmiLog:
        record = self.part("nvidia_smi")
        if isinstance(record, Mapping):
            record = {**record, "stdout": without_processes(str(record.get("stdout") or ""))}
        return _read_all_but_lost(record, "nvidia-smi -q -x", parse_smi, lambda log: log.gpus)

    def smi(self) -> SmiLog:
        """What nvidia-smi says. Raises CannotReadError."""
        return _known(self._smi)

    def smi_gpus(self) -> tuple[SmiGpu, ...]:
        """The GPUs that nvidia-smi lists; none where it cannot be read."""
        return () if isinstance(self._smi, CannotReadError) else self._smi.gpus

    @cached_property
    def _nvlinks(self) -> tuple[GpuLinks, ...] | CannotReadError:
        what = "nvidia-smi nvlink -s"
        return _read(lambda: _read_all_but_lost(self.part("nvlink"), what, parse_nvlink, tuple))

    def nvlinks(self) -> tuple[GpuLinks, ...]:
        """NVLinks of each GPU. Raises CannotReadError."""
        return _known(self._nvlinks)

    @cached_property
    def _nvlink_errors(self) -> tuple[GpuLinkErrors, ...] | CannotReadError:
        what = "nvidia-smi nvlink -e"
        return _read(lambda: _read_all_but_lost(self.part("nvlink_errors"), what, parse_nvlink_errors, tuple))

    def nvlink_errors(self) -> tuple[GpuLinkErrors, ...]:
        """What the NVLinks of each GPU have counted. Raises CannotReadError."""
        return _known(self._nvlink_errors)

    @cached_property
    def _pcie_replays(self) -> Mapping[str, int | None] | CannotReadError:
        return _read(lambda: parse_replays(self.part("pcie_replays")))

    def pcie_replays(self) -> Mapping[str, int | None]:
        """What the PCI Express link of each GPU has counted, by address. Raises CannotReadError."""
        return _known(self._pcie_replays)

    @cached_property
    def _topology(self) -> Topology | CannotReadError:
        return _read(lambda: parse_topology(program_output(self.part("topology"), "nvidia-smi topo -m")))

    def topology(self) -> Topology:
        """How the GPUs reach each other. Raises CannotReadError."""
        return _known(self._topology)

    @cached_property
    def _kernel_log(self) -> KernelLog | CannotReadError:
        return _read(lambda: parse_kernel_log(self.part("kernel_log")))

    def kernel_log(self) -> KernelLog:
        """Messages of the kernel on GPUs since boot. Raises CannotReadError."""
        return _known(self._kernel_log)

    @cached_property
    def _rdma(self) -> tuple[RdmaAdapter, ...] | CannotReadError:
        return _read(lambda: parse_infiniband(self.part("infiniband")))

    def rdma(self) -> tuple[RdmaAdapter, ...]:
        """InfiniBand and RoCE adapters. Raises CannotReadError."""
        return _known(self._rdma)

    def docker_info(self) -> Mapping[str, Any]:
        """What `docker info` says of itself. Raises CannotReadError."""
        return read_answer(program_output(self.part("docker"), "docker info"), "docker info")

    def read_parts(self) -> None:
        """Read every property: a reader that fails on a record does so here, not during a run."""
        for name, value in vars(type(self)).items():
            if isinstance(value, (property, cached_property)):
                getattr(self, name)

    def gpu_addresses(self) -> tuple[str, ...]:
        """Addresses of NVIDIA GPUs on the PCI bus, in order. Raises CannotReadError."""
        return _known(self._gpus_on_bus)

    @cached_property
    def _gpus_on_bus(self) -> tuple[str, ...] | CannotReadError:
        return _read(self._find_gpus)

    def _find_gpus(self) -> tuple[str, ...]:
        found = self._nvidia(GPU_CLASSES)
        if len(found) > MAX_GPUS:
            raise CannotReadError(f"the PCI bus has {len(found)} GPUs, at most {MAX_GPUS} are read")
        return found

    def lost_gpus(self) -> tuple[str, ...]:
        """Addresses of GPUs on the PCI bus that do not answer: they read all ones, or nvidia-smi lost them.

        Raises CannotReadError where the bus could not be read.
        """
        return _known(self._lost_gpus)

    @cached_property
    def _lost_gpus(self) -> tuple[str, ...] | CannotReadError:
        return _read(self._find_lost_gpus)

    def _find_lost_gpus(self) -> tuple[str, ...]:
        lost: set[str] = set()
        for name in ("nvidia_smi", "nvlink"):
            record = self.raw.get(name)
            if isinstance(record, Mapping) and record.get("rc") != 0:
                lost.update(lost_gpus(f"{record.get('stdout')}\n{record.get('stderr')}"))
        lost.update(gpu.address for gpu in self.smi_gpus() if gpu.lost)
        lost.update(
            str(device.get("address")) for device in self.records("pci") if device.get("answers") is False
        )
        return tuple(address for address in self.gpu_addresses() if address in lost)

    @cached_property
    def gpu_ports(self) -> Mapping[str, str]:
        """The GPU behind each port that has one directly below it, by address; none where it is not known."""
        found: dict[str, str] = {}
        with suppress(CannotReadError):
            gpus, devices = self.gpu_addresses(), self.mapping("pcie").get("devices")
            for device in devices if isinstance(devices, list) else ():
                bridges = device.get("bridges") if isinstance(device, Mapping) else None
                if isinstance(bridges, list) and bridges and device.get("address") in gpus:
                    found[str(bridges[-1])] = str(device["address"])
        return found

    def gpu_models(self) -> frozenset[str]:
        """Device ids of the GPUs on the PCI bus, as sysfs has them. Raises CannotReadError."""
        return frozenset(
            str(device.get("device"))
            for device in self.records("pci")
            if device.get("vendor") == NVIDIA and str(device.get("class", "")).startswith(GPU_CLASSES)
        )

    def nvswitch_addresses(self) -> tuple[str, ...]:
        """Addresses of NVSwitches on the PCI bus, in order. Raises CannotReadError."""
        return self._nvidia((NVSWITCH_CLASS,))

    def _nvidia(self, classes: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(
            sorted(
                bus_address(str(device.get("address")))
                for device in self.records("pci")
                if device.get("vendor") == NVIDIA and str(device.get("class", "")).startswith(classes)
            )
        )

    def module_version(self) -> str:
        """Version of the running kernel module. Raises CannotReadError where none is loaded."""
        version = self.mapping("module").get("version")
        if not isinstance(version, str) or not version:
            raise CannotReadError("no NVIDIA kernel module is loaded")
        return version

    def busy(self) -> str:
        """Why this node must not be disturbed, or an empty string. An unknown state counts as busy."""
        errors = self.raw.get("errors")
        if "busy" not in self.raw and not (isinstance(errors, Mapping) and "busy" in errors):
            return ""  # it was not asked
        try:
            found = self.mapping("busy")
        except CannotReadError as error:
            return f"{CANNOT_TELL_BUSY}: {error}"
        reasons, unknown = found.get("reasons"), found.get("unknown", [])
        if not isinstance(reasons, list) or not isinstance(unknown, list):
            return f"{CANNOT_TELL_BUSY}: the probe's part busy has an unexpected form"
        doubts = [f"{CANNOT_TELL_BUSY}: {', '.join(map(str, unknown))}"] if unknown else []
        return one_line("; ".join([*map(str, reasons), *doubts]), MAX_BUSY)

    @cached_property
    def simulated(self) -> bool:
        """Whether this node's devices say that they are simulated: the driver's program, else its module.

        Each result asks; what the program prints may be megabytes.
        """
        if isinstance(self._smi, SmiLog):
            return self._smi.simulated
        record = self.raw.get("nvidia_smi")
        printed = isinstance(record, Mapping) and "<simulated>" in str(record.get("stdout") or "")
        return printed or self.simulated_by_module

    @property
    def simulated_by_module(self) -> bool:
        """Whether nvidia-smi does not answer, and the kernel module's banner says that it is simulated."""
        module = self.raw.get("module")
        banner = module.get("proc") if isinstance(module, Mapping) else None
        return not isinstance(self._smi, SmiLog) and "(simulated@" in str(banner or "")
