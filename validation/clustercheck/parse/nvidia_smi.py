"""`nvidia-smi -q -x`: what the driver says of each GPU."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from xml.etree import ElementTree

from clustercheck.parse.reading import CORRUPT_INFOROM, MAX_GPUS, CannotReadError, bus_address, whole_number

KNOWN_ROOT = "nvidia_smi_log"
LARGEST = 64 * 1024 * 1024
# Of a section of a GPU: honest ones have some 40 elements, and paths of 60 characters.
MAX_ELEMENTS, MAX_PATH = 400, 200
# What a whole document has in fields of a GPU that is lost [nvidia-smi, NVML_ERROR_GPU_IS_LOST and its like].
GONE = frozenset({"GPU is lost", "GPU requires reset", "ERR!", "Unknown Error"})
_OF_PROCESSES = ("processes", "accounted_processes")  # their names may be anything
# What nvidia-smi adds to whatever it prints; it then ends with 14 [nvidia-smi(1), return value].
_CORRUPT_INFOROM = re.compile(rf"(?m)^[ \t]*WARNING: {CORRUPT_INFOROM} at gpu ([0-9A-Fa-f:.]{{4,20}})[ \t]*$")
# As drivers print it: "for GPU 0000:07:00.0: GPU is lost", "for GPU0: 0000:07:00.0: Unknown Error".
_LOST = re.compile(
    r"Unable to determine the device handle for GPU\s*(?:\d{1,4}: )?"
    r"([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])\b"
)


@dataclass(frozen=True)
class SmiGpu:
    """One GPU as the driver sees it. A field that the output lacks is empty or None, never a guess.

    ``lost`` is what stands in any field of a GPU that no longer answers; ``corrupt_inforom`` is what
    nvidia-smi warns of; ``c2c`` is Enabled where NVLink-C2C leads to the CPU.
    ``reset``, ``ecc``, ``remap``, ``reasons``, ``pcie``, ``fabric``, ``inforom``, ``power`` and those of
    clocks hold their sections' elements by name, as printed.
    """

    index: int
    address: str
    model: str
    serial: str = ""
    uuid: str = ""
    vbios: str = ""
    mig: str = ""
    mig_pending: str = ""
    recovery_action: str = ""
    reset: Mapping[str, str] | None = None
    ecc_mode: str = ""
    ecc: Mapping[str, str] | None = None
    remap: Mapping[str, str] | None = None
    retired: Mapping[str, str] | None = None
    reasons: Mapping[str, str] | None = None
    pcie: Mapping[str, str] | None = None
    utilization: str = ""
    max_clocks: Mapping[str, str] | None = None
    memory_mib: int | None = None
    lost: str = ""
    architecture: str = ""
    persistence: str = ""
    fabric: Mapping[str, str] | None = None
    inforom: Mapping[str, str] | None = None
    corrupt_inforom: bool = False
    application_clocks: Mapping[str, str] | None = None
    default_application_clocks: Mapping[str, str] | None = None
    power: Mapping[str, str] | None = None
    c2c: str = ""


@dataclass(frozen=True)
class SmiLog:
    """The whole output: driver, CUDA, GPUs in the driver's order, and whether it is a simulation."""

    driver_version: str
    cuda_version: str
    gpus: tuple[SmiGpu, ...]
    simulated: bool = False

    @cached_property
    def by_address(self) -> Mapping[str, SmiGpu]:
        """GPUs by their PCI address."""
        return {gpu.address: gpu for gpu in self.gpus}


def without_processes(text: str) -> str:
    """The XML without its lists of programs: users choose their names, which may be no UTF-8 and no XML."""
    for each in _OF_PROCESSES:
        whole, *parts = text.split(f"<{each}>")
        text = whole + "".join(part.partition(f"</{each}>")[2] for part in parts)
    return text


@lru_cache(maxsize=16)  # a self-test judges the same nodes again and again
def parse_smi(text: str) -> SmiLog:
    """Read the XML that `nvidia-smi -q -x` prints.

    Raises CannotReadError if it is truncated, is something else, or contradicts itself.
    """
    corrupt = frozenset(corrupt_inforoms(text))
    root = _root(_CORRUPT_INFOROM.sub("", text) if corrupt else text)
    driver = _text(root, "driver_version")
    if not driver:
        raise CannotReadError("the output of nvidia-smi -q -x names no driver version")
    elements = root.findall("gpu")
    attached = whole_number(_text(root, "attached_gpus"))
    if attached is None or attached != len(elements):
        raise CannotReadError(
            f"nvidia-smi -q -x says {_text(root, 'attached_gpus') or 'nothing'} of attached GPUs "
            f"and lists {len(elements)}"
        )
    if len(elements) > MAX_GPUS:
        raise CannotReadError(f"nvidia-smi -q -x lists {len(elements)} GPUs, at most {MAX_GPUS} are read")
    lost = any(message in text for message in GONE)  # in any field of any GPU
    gpus = tuple(_gpu(index, element, corrupt, lost) for index, element in enumerate(elements))
    if len({gpu.address for gpu in gpus}) != len(gpus):
        raise CannotReadError("nvidia-smi -q -x lists one PCI address twice")
    return SmiLog(
        driver_version=driver,
        cuda_version=_text(root, "cuda_version"),
        gpus=tuple(sorted(gpus, key=lambda gpu: gpu.index)),
        simulated=_says_simulated(root),
    )


def lost_gpus(text: str) -> tuple[str, ...]:
    """Addresses of the GPUs that nvidia-smi says it cannot reach, in whatever it printed when it failed."""
    return tuple(dict.fromkeys(bus_address(found) for found in _LOST.findall(text)))


def plain_model(model: str) -> str:
    """A model's name without the vendor's: drivers of the branches 440 to 460 print none before it."""
    return model.removeprefix("NVIDIA ").strip()


def corrupt_inforoms(text: str) -> tuple[str, ...]:
    """Addresses of the GPUs whose InfoROM nvidia-smi says is corrupted."""
    if CORRUPT_INFOROM not in text:
        return ()
    return tuple(dict.fromkeys(bus_address(found) for found in _CORRUPT_INFOROM.findall(text)))


def _root(text: str) -> ElementTree.Element:
    if len(text) > LARGEST:
        raise CannotReadError(f"the output of nvidia-smi -q -x is {len(text)} characters long")
    if "<!ENTITY" in text:
        raise CannotReadError("the output of nvidia-smi -q -x declares XML entities, which it never does")
    try:
        root = ElementTree.fromstring(text.strip())  # noqa: S314 - entities are refused above
    except (ElementTree.ParseError, ValueError) as error:
        raise CannotReadError(f"the output of nvidia-smi -q -x is not whole XML: {error}") from error
    if root.tag != KNOWN_ROOT:
        raise CannotReadError(f"the output of nvidia-smi -q -x starts with <{root.tag[:40]}>")
    return root


def _gpu(index: int, element: ElementTree.Element, corrupt: Collection[str], some_lost: bool) -> SmiGpu:
    printed = element.get("id") or _text(element, "pci/pci_bus_id")
    model = _text(element, "product_name")
    if not model:
        raise CannotReadError(f"nvidia-smi -q -x names no product for the GPU at {printed}")
    return SmiGpu(
        index=index,
        address=bus_address(printed),
        model=model,
        serial=_text(element, "serial"),
        uuid=_text(element, "uuid"),
        vbios=_text(element, "vbios_version"),
        c2c=_text(element, "c2c_mode"),
        mig=_text(element, "mig_mode/current_mig"),
        mig_pending=_text(element, "mig_mode/pending_mig"),
        recovery_action=_text(element, "gpu_recovery_action"),
        reset=_section(element, "gpu_reset_status"),
        ecc_mode=_text(element, "ecc_mode/current_ecc"),
        ecc=_section(element, "ecc_errors"),
        remap=_section(element, "remapped_rows"),
        retired=_section(element, "retired_pages"),
        # Drivers before 535 call the same section throttle reasons.
        reasons=_section(element, "clocks_event_reasons") or _section(element, "clocks_throttle_reasons"),
        pcie=_section(element, "pci/pci_gpu_link_info"),
        utilization=_text(element, "utilization/gpu_util"),
        max_clocks=_section(element, "max_clocks"),
        memory_mib=whole_number(_text(element, "fb_memory_usage/total")),
        lost=_lost(element) if some_lost else "",
        architecture=_text(element, "product_architecture"),
        persistence=_text(element, "persistence_mode"),
        fabric=_section(element, "fabric"),
        inforom=_section(element, "inforom_version"),
        corrupt_inforom=bus_address(printed) in corrupt,
        application_clocks=_section(element, "applications_clocks"),
        default_application_clocks=_section(element, "default_applications_clocks"),
        # Drivers before 535 call the same section without the GPU.
        power=_section(element, "gpu_power_readings") or _section(element, "power_readings"),
    )


def _lost(element: ElementTree.Element) -> str:
    """What stands in a field of a GPU that is lost; empty if none says so."""
    fields = (each for part in element if part.tag not in _OF_PROCESSES for each in part.iter())
    return next((message for each in fields if (message := (each.text or "").strip()) in GONE), "")


def _section(element: ElementTree.Element, name: str) -> Mapping[str, str] | None:
    """Leaves below a section, named by their path in it; None where the section is missing or empty.

    Raises CannotReadError for more of them, or longer paths, than any driver prints.
    """
    section = element.find(name)
    if section is None:
        return None
    if len(section) == 0:
        message = (section.text or "").strip()
        return {"": message} if message else None
    leaves: dict[str, str] = {}
    pending = [("", section)]
    read = 0
    while pending:
        path, parent = pending.pop()
        read += len(parent)
        if read > MAX_ELEMENTS:
            raise CannotReadError(f"nvidia-smi -q -x has more than {MAX_ELEMENTS} elements in {name}")
        for child in parent:
            if len(path) + len(child.tag) > MAX_PATH:
                raise CannotReadError(f"nvidia-smi -q -x has a path of over {MAX_PATH} characters in {name}")
            at = f"{path}/{child.tag}" if path else child.tag
            if len(child):
                pending.append((at, child))
            else:
                leaves[sys.intern(at)] = sys.intern((child.text or "").strip())  # alike on most GPUs
    return _shared(tuple(leaves.items()))


@lru_cache(maxsize=4096)
def _shared(leaves: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    """One mapping for the many sections of thousands of GPUs that are alike."""
    return dict(leaves)


def _text(element: ElementTree.Element, path: str) -> str:
    found: ElementTree.Element | None = element
    for name in path.split("/"):  # a path as a whole takes ElementTree several times as long
        found = found.find(name) if found is not None else None
    return (found.text or "").strip() if found is not None else ""


def _says_simulated(root: ElementTree.Element) -> bool:
    """A simulated driver prints an element of this name; a real one has none."""
    lines = [(node.text or "").strip().lower() for node in root.iter("simulated")]
    return any(word not in ("", "no", "false", "0") for word in lines)
