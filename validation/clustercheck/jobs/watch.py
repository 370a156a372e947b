"""One GPU's state by nvidia-smi while a program runs: heat, power, clocks, throttling, link, errors."""

from __future__ import annotations

import re
import subprocess
import threading
from collections.abc import Mapping
from typing import Any
from xml.etree import ElementTree

PERIOD_S = 2.0  # throttling lasts seconds, and nvidia-smi itself takes part of one
EXIT_CORRUPT_INFOROM = 14  # nvidia-smi's exit code; it prints everything, and a warning
WARNING = re.compile(r"(?m)^WARNING: infoROM is corrupted.*$")
LIMIT_S = 10.0  # after one timeout it is not run again
NUMBERS = {
    "temperature_c": "temperature/gpu_temp",
    "sm_clock_mhz": "clocks/sm_clock",
    "pcie_generation": "pci/pci_gpu_link_info/pcie_gen/current_link_gen",
    "pcie_width": "pci/pci_gpu_link_info/link_widths/current_link_width",
    "pcie_generation_possible": "pci/pci_gpu_link_info/pcie_gen/max_link_gen",
    "pcie_width_possible": "pci/pci_gpu_link_info/link_widths/max_link_width",
}
POWER = (
    "gpu_power_readings/power_draw",
    "gpu_power_readings/instant_power_draw",
    "power_readings/power_draw",
)
REASONS = ("clocks_event_reasons", "clocks_throttle_reasons")  # the latter before driver 535
UNCORRECTED = ("uncorrectable", "double_bit")


def parse_gpu(text: str) -> dict[str, Any]:
    """One GPU of `nvidia-smi -q -x`: numbers, active reasons, errors since the driver was loaded.

    Raises ValueError if it does not show exactly one GPU, or is not XML.
    """
    try:
        gpus = ElementTree.fromstring(text).findall("gpu")  # noqa: S314 - the driver's own program
    except ElementTree.ParseError as error:
        raise ValueError(f"nvidia-smi printed incomplete XML: {error}") from error
    if len(gpus) != 1:
        raise ValueError(f"nvidia-smi shows {len(gpus)} GPUs, expected one")
    found: dict[str, Any] = {name: _parse_number(gpus[0].findtext(path)) for name, path in NUMBERS.items()}
    found["power_w"] = next(
        (n for path in POWER if (n := _parse_number(gpus[0].findtext(path))) is not None), None
    )
    sections = [section for name in REASONS if (section := gpus[0].find(name)) is not None]
    found["reasons"] = None
    if sections:
        active = [one.tag for one in sections[0] if (one.text or "").strip() == "Active"]
        found["reasons"] = [tag.partition("_reason_")[2] for tag in active]
    found["uncorrected_errors"] = _uncorrected(gpus[0].find("ecc_errors/volatile"))
    return found


def _parse_number(text: str | None) -> float | None:
    """The number at the start of the text: 33 C, 1410 MHz, 16x; None if there is none."""
    words = (text or "").split()
    try:
        return float(words[0].removesuffix("x")) if words else None
    except ValueError:
        return None


def _uncorrected(counters: ElementTree.Element | None) -> int | None:
    """The sum of uncorrected errors; None if the GPU does not count them, as with ECC off."""
    if counters is None:
        return None
    numbers = [
        _parse_number(leaf.text)
        for section in counters
        for leaf in section.iter()
        if any(word in f"{section.tag} {leaf.tag}" for word in UNCORRECTED)
    ]
    known = [int(number) for number in numbers if number is not None]
    return sum(known) if known else None


class GpuWatch:
    """Samples a GPU every few seconds, in its own thread, within the context."""

    def __init__(self, pci_address: str | None, program: str = "nvidia-smi") -> None:
        self._argv = [program, "-q", "-x", "-i", str(pci_address)]
        self._because = "" if pci_address else "the device's PCI address is not known"
        self._has_failed = not pci_address
        self._samples: list[dict[str, Any]] = []
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> GpuWatch:
        self._sample()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join(LIMIT_S + PERIOD_S)
        self._sample()

    def summarize(self) -> Mapping[str, Any]:
        """Extremes of all samples, and errors before and after; ``because`` if a sample failed."""
        if not self._samples:
            return {"samples": 0, "because": self._because}
        first, last = self._samples[0], self._samples[-1]
        reasons = [sample["reasons"] for sample in self._samples if sample["reasons"] is not None]
        highest = ("temperature_c", "power_w", "pcie_generation", "pcie_width")
        return {
            "samples": len(self._samples),
            "because": self._because,
            **{name: _extreme(sample[name] for sample in self._samples) for name in highest},
            "sm_clock_mhz_lowest": _extreme(
                (sample["sm_clock_mhz"] for sample in self._samples[1:-1]), sign=-1
            ),
            "pcie_generation_possible": last["pcie_generation_possible"],
            "pcie_width_possible": last["pcie_width_possible"],
            "reasons": sorted({reason for active in reasons for reason in active}) if reasons else None,
            "uncorrected_before": first["uncorrected_errors"],
            "uncorrected_after": last["uncorrected_errors"],
        }

    def _run(self) -> None:
        while not self._stopped.wait(PERIOD_S):
            self._sample()

    def _sample(self) -> None:
        if self._has_failed:
            return
        try:
            done = subprocess.run(self._argv, capture_output=True, text=True, timeout=LIMIT_S, check=False)
            if done.returncode != EXIT_CORRUPT_INFOROM:
                done.check_returncode()
            self._samples.append(parse_gpu(WARNING.sub("", done.stdout)))
        except subprocess.CalledProcessError as error:
            words = (error.stdout or error.stderr).strip().splitlines()
            self._because = f"nvidia-smi: {words[-1] if words else error}"[:300]
        except subprocess.TimeoutExpired:
            self._because = f"nvidia-smi did not answer within {LIMIT_S:.0f} s"
            self._has_failed = True
        except (OSError, ValueError) as error:
            self._because = f"nvidia-smi: {error}"[:300]


def _extreme(values: Any, sign: int = 1) -> float | None:
    known = [value for value in values if value is not None]
    return sign * max(sign * value for value in known) if known else None
