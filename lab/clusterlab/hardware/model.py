"""The model of hardware.json. Units are in the names; what is the same for all GPUs is said once."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

SCHEMA: Final = "clusterlab/hardware/1"

PciAddress = Annotated[str, Field(pattern=r"^[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$")]
PciId = Annotated[str, Field(pattern=r"^[0-9a-f]{4}$")]
Count = Annotated[int, Field(ge=0)]

# present: works. lost: on the bus, but the driver cannot reach it ("fallen off the bus", Xid 79).
# missing: neither the driver nor the bus knows it.
GpuState = Literal["present", "lost", "missing"]

ClockReason = Literal[
    "gpu_idle",
    "applications_clocks_setting",
    "sw_power_cap",
    "hw_slowdown",
    "hw_thermal_slowdown",
    "hw_power_brake_slowdown",
    "sync_boost",
    "sw_thermal_slowdown",
    "display_clocks_setting",
]

RecoveryAction = Literal["None", "Reset", "Reboot", "Drain P2P", "Drain and Reset"]


class Strict(BaseModel):
    """A part of hardware.json: unknown keys are refused, so that a misspelt fault is not a silent one."""

    model_config = ConfigDict(extra="forbid")


class Clocks(Strict):
    """Clocks in MHz."""

    graphics_mhz: Count
    sm_mhz: Count
    memory_mhz: Count
    video_mhz: Count


class GpuModel(Strict):
    """What every GPU of the node has in common."""

    name: str
    architecture: Literal["Volta", "Ampere", "Hopper", "Blackwell"]
    compute_capability: str
    device_id: PciId
    subsystem_id: PciId
    vbios_version: str
    board_part_number: str
    gpu_part_number: str
    inforom_image: str
    inforom_oem: str
    inforom_ecc: str
    memory_mib: int
    memory_reserved_mib: int
    bar1_mib: int
    max_clocks: Clocks
    idle_clocks: Clocks
    default_graphics_mhz: int
    min_graphics_mhz: int
    memory_clocks_mhz: list[int]
    power_limit_w: float
    power_limit_min_w: float
    power_limit_max_w: float
    slowdown_temperature_c: int
    shutdown_temperature_c: int
    max_operating_temperature_c: int
    max_memory_temperature_c: int
    remap_banks: int
    pcie_gen_max: int
    pcie_width_max: int
    nvlink_count: Count
    nvlink_gbps: float = Field(description="GB/s of one link in one direction, as nvidia-smi prints it")
    mig_capable: bool


class NvLinkErrors(Strict):
    """Error counters of one link since the driver was loaded."""

    replay: Count = 0
    recovery: Count = 0
    crc_flit: Count = 0
    crc_data: Count = 0
    # Unix time; from then on one replay a second more.
    counting_since: float | None = None


class SimulatedNvLink(Strict):
    """One NVLink of a GPU and the device at its other end."""

    active: bool = True
    remote: PciAddress | None = None
    errors: NvLinkErrors = NvLinkErrors()


class EccCounters(Strict):
    """ECC errors of one GPU, volatile (since driver load) or aggregate (for life)."""

    sram_correctable: Count = 0
    sram_uncorrectable_parity: Count = 0
    sram_uncorrectable_secded: Count = 0
    dram_correctable: Count = 0
    dram_uncorrectable: Count = 0


class SramSources(Strict):
    """Where aggregate uncorrectable SRAM errors came from."""

    l2: Count = 0
    sm: Count = 0
    microcontroller: Count = 0
    pcie: Count = 0
    other: Count = 0


class Ecc(Strict):
    """ECC mode and counters."""

    enabled: bool = True
    pending_enabled: bool = True
    volatile: EccCounters = EccCounters()
    aggregate: EccCounters = EccCounters()
    sram_sources: SramSources = SramSources()
    sram_threshold_exceeded: bool = False


class RemappedRows(Strict):
    """Rows that HBM replaced (Ampere and later)."""

    correctable: Count = 0
    uncorrectable: Count = 0
    pending: bool = False
    failure: bool = False
    banks_high: Count = 0
    banks_partial: Count = 0
    banks_low: Count = 0
    banks_none: Count = 0


class RetiredPages(Strict):
    """Pages that the driver retired (Volta and before; later GPUs remap rows and print N/A)."""

    supported: bool = False
    single_bit: Count = 0
    double_bit: Count = 0
    pending: bool = False


class SimulatedPcieLink(Strict):
    """The PCIe link as it is now; what it could be is in GpuModel."""

    gen: int
    width: int
    replay_counter: Count = 0
    replay_rollover_counter: Count = 0
    # Unix time; from then on five replays a second more.
    counting_since: float | None = None


class Process(Strict):
    """A process that holds a GPU; it makes the node busy and the driver's module unremovable."""

    pid: int
    name: str
    type: Literal["C", "G", "C+G"] = "C"
    used_memory_mib: Count = 0


Part = Annotated[float, Field(gt=0, le=1)]


class Performance(Strict):
    """What programs that compute on the GPU see of it: parts of what its model does, and what is wrong."""

    compute: Part = 1.0
    memory: Part = 1.0
    peers: Part = 1.0
    # Of copies from it to its peers, and not of those to it.
    sends: Part = 1.0
    peers_together: Part = 1.0
    launch: Part = 1.0
    wrong_products: bool = False
    wrong_copies: bool = False
    stuck_bits: Count = 0


class SimulatedGpu(Strict):
    """One GPU."""

    index: Count
    state: GpuState = "present"
    product_name: str | None = Field(default=None, description="where it is of another model than the others")
    vbios_version: str | None = Field(default=None, description="where it is of another than the others")
    mig_override: bool | None = Field(
        default=None, description="whether the driver reports MIG as on, whatever was set"
    )
    serial: str
    uuid: str
    pci_address: PciAddress
    numa_node: Count
    module_id: Count
    pcie: SimulatedPcieLink
    nvlinks: list[SimulatedNvLink] = []
    joins_fabric: bool = Field(
        default=True, description="whether Fabric Manager joins it, where GPUs report a fabric"
    )
    peer_access: bool = Field(default=True, description="whether other GPUs may reach its memory")
    inforom_corrupted: bool = False
    clocks: Clocks
    application_graphics_mhz: int | None = Field(
        default=None, description="where it was set below the default"
    )
    clock_reasons: list[ClockReason] = ["gpu_idle"]
    temperature_c: int = 33
    memory_temperature_c: int = 34
    power_draw_w: float = 62.0
    power_limit_w: float
    utilization_percent: Annotated[int, Field(ge=0, le=100)] = 0
    ecc: Ecc = Ecc()
    remapped_rows: RemappedRows = RemappedRows()
    retired_pages: RetiredPages = RetiredPages()
    recovery_action: RecoveryAction = "None"
    performance: Performance = Performance()
    processes: list[Process] = []


class NvSwitch(Strict):
    """One NVSwitch of the baseboard; its presence is what asks for Fabric Manager."""

    pci_address: PciAddress
    device_id: PciId
    state: Literal["present", "missing"] = "present"
    fatal_error: bool = False


class Hca(Strict):
    """One host channel adapter on the PCI bus."""

    pci_address: PciAddress
    name: str
    vendor_id: PciId = "15b3"
    device_id: PciId
    numa_node: Count
    state: Literal["present", "missing"] = "present"


class Hardware(Strict):
    """Everything simulated in one node."""

    schema_: Literal["clusterlab/hardware/1"] = Field(default=SCHEMA, alias="schema")
    simulated: Literal[True] = True
    node: str
    profile: str
    system_vendor: str
    system_product: str
    system_serial: str
    gpu_model: GpuModel | None
    gpus: list[SimulatedGpu]
    nvswitches: list[NvSwitch] = []
    hcas: list[Hca] = []
    driver_override: str | None = Field(
        default=None,
        pattern=r"^\d+\.\d+(\.\d+)?$",
        description="the version that the loaded driver reports, whatever was installed",
    )
    fabricmanager_override: str | None = Field(
        default=None,
        pattern=r"^\d+\.\d+(\.\d+)?$",
        description="the version that Fabric Manager is of, whatever was installed",
    )
    toolkit_hides: list[Count] = Field(
        default=[], description="GPUs that containers are not given, as by a stale CDI specification"
    )
    preloaded_modules: list[str] = Field(
        default=[], description="modules that the node's kernel loads at boot, such as nouveau"
    )

    model_config = ConfigDict(extra="forbid", populate_by_name=True, serialize_by_alias=True)

    @model_validator(mode="after")
    def _consistent(self) -> Hardware:
        if self.gpus and self.gpu_model is None:
            raise ValueError("gpus need a gpu_model")
        addresses = [
            *(gpu.pci_address for gpu in self.gpus),
            *(switch.pci_address for switch in self.nvswitches),
            *(hca.pci_address for hca in self.hcas),
        ]
        if len(set(addresses)) != len(addresses):
            raise ValueError("two devices share a PCI address")
        return self

    def gpu(self, index: int) -> SimulatedGpu:
        """The GPU of that index; raises LookupError when the node was built without it."""
        for gpu in self.gpus:
            if gpu.index == index:
                return gpu
        raise LookupError(f"{self.node} has no GPU {index}; it was built with {len(self.gpus)}")
