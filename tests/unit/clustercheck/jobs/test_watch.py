"""What nvidia-smi says of a GPU while a program measures it."""

from __future__ import annotations

import pytest

from clustercheck.jobs import watch

SMI = """<?xml version="1.0" ?><nvidia_smi_log><gpu id="00000000:07:00.0">
<pci><pci_gpu_link_info><pcie_gen><max_link_gen>4</max_link_gen><current_link_gen>{generation}</current_link_gen>
</pcie_gen><link_widths><max_link_width>16x</max_link_width><current_link_width>16x</current_link_width>
</link_widths></pci_gpu_link_info></pci>
<clocks_event_reasons><clocks_event_reason_gpu_idle>Not Active</clocks_event_reason_gpu_idle>
<clocks_event_reason_hw_slowdown>Active</clocks_event_reason_hw_slowdown></clocks_event_reasons>
<ecc_errors><volatile><sram_correctable>5</sram_correctable><dram_uncorrectable>{errors}</dram_uncorrectable>
</volatile><aggregate><dram_uncorrectable>90</dram_uncorrectable></aggregate></ecc_errors>
<temperature><gpu_temp>71 C</gpu_temp></temperature>
<gpu_power_readings><power_draw>N/A</power_draw><instant_power_draw>398.5 W</instant_power_draw>
</gpu_power_readings><clocks><sm_clock>1245 MHz</sm_clock></clocks></gpu></nvidia_smi_log>"""


def test_samples_are_summarized_as_extremes_and_errors_before_and_after(tmp_path):
    for number, (generation, errors) in enumerate(((1, 0), (4, 2)), 1):
        (tmp_path / f"{number}.xml").write_text(SMI.format(generation=generation, errors=errors))
    script = tmp_path / "nvidia-smi"
    script.write_text(
        f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\ncat {tmp_path}/$(wc -l < {tmp_path}/asked).xml\n'
    )
    script.chmod(0o755)
    with watch.GpuWatch("0000:07:00.0", str(script)) as watching:
        pass
    told = watching.summarize()
    assert (told["samples"], told["because"]) == (2, "")
    assert (told["pcie_generation"], told["pcie_generation_possible"], told["pcie_width"]) == (4, 4, 16)
    assert (told["uncorrected_before"], told["uncorrected_after"]) == (0, 2)
    assert told["reasons"] == ["hw_slowdown"]
    assert (told["temperature_c"], told["power_w"]) == (71, 398.5)
    assert (tmp_path / "asked").read_text().splitlines() == ["-q -x -i 0000:07:00.0"] * 2


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo 'No devices were found'; exit 6", "No devices were found"),
        ("echo '<nvidia_smi_log><gpu>'", "incomplete XML"),
        ("echo '<nvidia_smi_log/>'", "shows 0 GPUs"),
        ("exec sleep 60", "did not answer"),
    ],
)
def test_a_watch_without_samples_gives_the_reason_without_delay(tmp_path, monkeypatch, script, words):
    monkeypatch.setattr(watch, "LIMIT_S", 0.5)
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    with watch.GpuWatch("0000:07:00.0", str(program)) as watching:
        pass
    assert watching.summarize()["samples"] == 0
    assert words in watching.summarize()["because"]
    with watch.GpuWatch(None) as blind:
        pass
    assert blind.summarize() == {"samples": 0, "because": "the device's PCI address is not known"}


def test_a_corrupted_inforom_costs_no_sample(tmp_path):
    """nvidia-smi prints everything, a warning behind it, and ends with 14."""
    (tmp_path / "whole.xml").write_text(SMI.format(generation=4, errors=0))
    program = tmp_path / "nvidia-smi"
    warning = "WARNING: infoROM is corrupted at gpu 0000:07:00.0"
    program.write_text(f"#!/bin/sh\ncat {tmp_path}/whole.xml\necho; echo '{warning}'\nexit 14\n")
    program.chmod(0o755)
    with watch.GpuWatch("0000:07:00.0", str(program)) as watching:
        pass
    told = watching.summarize()
    assert (told["samples"], told["because"]) == (2, "")
