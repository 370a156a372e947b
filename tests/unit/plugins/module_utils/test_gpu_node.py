"""What is read from a node: fake sysfs, procfs and dpkg under a directory, fake programs next to them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.clusterctl.cluster.plugins.module_utils import gpu_busy, gpu_node, nvlink_fabric
from ansible_collections.clusterctl.cluster.plugins.module_utils.driver_record import (
    read_record,
    write_record,
)
from tests.support.mokutil_answers import SB_STATE

from clustercheck.probe import busy

STATUS = """\
Package: libcuda1
Status: hold ok installed
Architecture: amd64
Version: 580.95.05-1

Package: nvidia-open-570
Status: deinstall ok config-files
Version: 570.148.08-1

Package: linux-image-6.1.0-38-amd64
Status: install ok installed
Version: 6.1.147-1

Package: linux-image-6.1.0-9-amd64
Status: install ok installed
Version: 6.1.27-1
"""


def write(root: Path, path: str, text: str) -> None:
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)


def pci(root: Path, address: str, vendor: str, device: str, kind: str) -> None:
    for name, value in (("vendor", vendor), ("device", device), ("class", kind)):
        write(root, f"sys/bus/pci/devices/{address}/{name}", f"{value}\n")


def test_gpus_nvswitches_and_adapters_are_told_apart_by_class(tmp_path: Path) -> None:
    pci(tmp_path, "0000:07:00.0", "0x10de", "0x20b2", "0x030200")
    pci(tmp_path, "0000:c4:00.0", "0x10de", "0x1af1", "0x068000")
    pci(tmp_path, "0000:0c:00.0", "0x15b3", "0x101b", "0x020700")
    pci(tmp_path, "0000:00:02.0", "0x1a03", "0x2000", "0x030000")
    devices = gpu_node.pci_devices(tmp_path)
    assert [d["address"] for d in gpu_node.gpus(devices)] == ["0000:07:00.0"]
    assert [d["address"] for d in gpu_node.nvswitches(devices)] == ["0000:c4:00.0"]
    assert [d["address"] for d in gpu_node.rdma_adapters(devices)] == ["0000:0c:00.0"]
    assert gpu_node.pci_devices(tmp_path / "nowhere") == []


def test_an_adapter_that_leads_to_nvswitches_says_so_in_its_vital_product_data(tmp_path: Path) -> None:
    for address, text in (("0000:05:00.0", "SMDL=SW_MNG"), ("0000:0c:00.0", "PN MCX75310AAS")):
        pci(tmp_path, address, "0x15b3", "0x1021", "0x020700")
        write(tmp_path, f"sys/bus/pci/devices/{address}/vpd", f"\x00{text}\x00")
    pci(tmp_path, "0000:0d:00.0", "0x15b3", "0x1021", "0x020700")
    pci(tmp_path, "0000:0e:00.0", "0x8086", "0x1572", "0x020000")
    write(tmp_path, "sys/bus/pci/devices/0000:0e:00.0/vpd", "SW_MNG")
    found = nvlink_fabric.nvswitch_bridges(tmp_path, gpu_node.pci_devices(tmp_path))
    assert [device["address"] for device in found] == ["0000:05:00.0"]


@pytest.mark.parametrize(
    ("banner", "version", "flavor"),
    [
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (dvs@host)\n",
            "580.95.05",
            "open",
        ),
        (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.06  Wed Jun 26 06:46:07 UTC 2024\n",
            "535.183.06",
            "proprietary",
        ),
    ],
)
def test_the_running_driver_is_read_from_its_own_banner(
    tmp_path: Path, banner: str, version: str, flavor: str
) -> None:
    write(tmp_path, "proc/driver/nvidia/version", banner + "GCC version: gcc version 12.2.0\n")
    assert gpu_node.loaded_driver(tmp_path) == version
    assert gpu_node.loaded_flavor(tmp_path) == flavor


def test_without_a_banner_sysfs_tells_the_version(tmp_path: Path) -> None:
    assert gpu_node.loaded_driver(tmp_path) == ""
    write(tmp_path, "sys/module/nvidia/version", "580.95.05\n")
    assert gpu_node.loaded_driver(tmp_path) == "580.95.05"
    assert gpu_node.loaded_flavor(tmp_path) == ""


def test_dpkg_is_read_with_its_holds_and_without_what_is_only_configured(tmp_path: Path) -> None:
    write(tmp_path, "var/lib/dpkg/status", STATUS)
    installed, held = gpu_node.installed_packages(tmp_path)
    assert "nvidia-open-570" not in installed
    assert installed["libcuda1"] == "580.95.05-1"
    assert held == {"libcuda1"}
    assert gpu_node.kernels(tmp_path, "6.1.0-9-amd64", installed) == ["6.1.0-9-amd64", "6.1.0-38-amd64"]
    assert gpu_node.kernels(tmp_path, "6.1.0-38-amd64", installed) == ["6.1.0-38-amd64"]


def test_versions_sort_by_number() -> None:
    versions = ["580.95.05", "580.105.08", "535.9", "580"]
    assert sorted(versions, key=gpu_node.version_key) == ["535.9", "580", "580.95.05", "580.105.08"]


def test_secure_boot_is_unknown_without_its_variable(tmp_path: Path) -> None:
    assert gpu_node.secure_boot(tmp_path) == "no efi"
    (tmp_path / gpu_node.EFI_VARIABLES).mkdir(parents=True)
    assert gpu_node.secure_boot(tmp_path) == "disabled"
    (tmp_path / gpu_node.SECURE_BOOT).write_bytes(b"\x06\x00\x00\x00\x01")
    assert gpu_node.secure_boot(tmp_path) == "enabled"


@pytest.mark.parametrize("values", SB_STATE)
def test_secure_boot_is_as_mokutil_reports_it(tmp_path: Path, values: tuple[int, int, int | None]) -> None:
    (tmp_path / gpu_node.EFI_VARIABLES).mkdir(parents=True)
    for name, value in zip(
        (gpu_node.SECURE_BOOT, gpu_node.SETUP_MODE, gpu_node.SHIM_INSECURE), values, strict=True
    ):
        if value is not None:
            (tmp_path / name).write_bytes(bytes([6, 0, 0, 0, value]))
    said = SB_STATE[values].output
    secure = said.startswith("SecureBoot enabled") and "disabled in shim" not in said
    assert gpu_node.secure_boot(tmp_path) == ("enabled" if secure else "disabled")


def test_a_variable_that_anybody_could_have_set_does_not_make_shim_insecure(tmp_path: Path) -> None:
    (tmp_path / gpu_node.EFI_VARIABLES).mkdir(parents=True)
    (tmp_path / gpu_node.SECURE_BOOT).write_bytes(b"\x06\x00\x00\x00\x01")
    (tmp_path / gpu_node.SHIM_INSECURE).write_bytes(b"\x07\x00\x00\x00\x01")
    assert gpu_node.secure_boot(tmp_path) == "enabled"


def holder(
    root: Path, pid: int, name: str, device: str, cgroup: str = "0::/user.slice", *, uid: int = 0
) -> None:
    write(root, f"proc/{pid}/comm", f"{name}\n")
    write(root, f"proc/{pid}/status", f"Name:\t{name}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n")
    write(root, f"proc/{pid}/cgroup", f"{cgroup}\n")
    (root / f"proc/{pid}/fd").mkdir()
    (root / f"proc/{pid}/fd/3").symlink_to(device)


def test_a_file_that_a_process_closes_meanwhile_hides_no_gpu_of_it(tmp_path: Path) -> None:
    holder(tmp_path, 20, "python3", "/dev/nvidia0")
    (tmp_path / "proc/20/fd/1").touch()  # readlink() fails, as of what is gone
    assert gpu_busy.device_holders(tmp_path) == {20: "python3"}


@pytest.mark.parametrize(
    ("top", "cgroup", "unit"),
    [
        ("", "0::/system.slice/node_exporter.service", "node_exporter"),
        ("", "0::/system.slice/system-x.slice/x@1.service/below", "x@1"),
        ("/docker/0a", "1:name=systemd:/docker/0a/system.slice/node_exporter.service", "node_exporter"),
        ("", "0::/user.slice/user-1.slice/user@1.service/app.slice/system.slice/ssh.service", ""),
        ("", "0::/system.slice/docker-0a.scope/system.slice/ssh.service", ""),
        ("", "0::/system.slice/slurmd.service/system.slice/ssh.service", "slurmd"),
    ],
)
def test_a_unit_is_known_by_where_systemd_puts_it_alone(
    tmp_path: Path, top: str, cgroup: str, unit: str
) -> None:
    """Whom a part of the tree was given to names groups as he likes, and root stops units."""
    write(tmp_path, "proc/1/cgroup", f"0::{top}/init.scope\n")
    write(tmp_path, "proc/31/cgroup", f"{cgroup}\n")
    assert gpu_busy._unit(tmp_path, 31) == unit


def test_a_users_group_with_a_containers_name_is_no_container(tmp_path: Path) -> None:
    identity = "ab" * 32
    write(tmp_path, "proc/1/cgroup", "0::/init.scope\n")
    for pid, path in (
        (31, f"/system.slice/docker-{identity}.scope"),
        (32, f"/user.slice/u/docker-{identity}.scope"),
    ):
        write(tmp_path, f"proc/{pid}/cgroup", f"0::{path}\n")
    assert (gpu_busy._container(tmp_path, 31), gpu_busy._container(tmp_path, 32)) == (identity, "")


def quiet(argv: list[str]) -> tuple[int, str]:
    return 127, ""


def test_a_process_that_holds_a_gpu_is_busy_and_the_drivers_daemons_are_not(tmp_path: Path) -> None:
    holder(tmp_path, 10, "nvidia-persiste", "/dev/nvidia0")
    holder(tmp_path, 11, "python3", "/dev/nvidia-uvm", "0::/system.slice/nvidia-dcgm.service")
    holder(tmp_path, 12, "bash", "/dev/null")
    assert gpu_busy.busy_reasons(tmp_path, quiet) == []
    holder(tmp_path, 13, "python3", "/dev/nvidia3")
    assert gpu_busy.busy_reasons(tmp_path, quiet) == ["1 compute process: python3 (13)"]


def container(**host: object) -> dict:
    return {"Name": "/train", "HostConfig": host, "Config": {"Env": ["NVIDIA_VISIBLE_DEVICES=all"]}}


@pytest.mark.parametrize(
    ("found", "busy"),
    [
        (container(DeviceRequests=[{"Driver": "", "Count": -1, "Capabilities": [["gpu"]]}]), True),
        (container(DeviceRequests=[{"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=all"]}]), True),
        (container(Devices=[{"PathOnHost": "/dev/nvidia0"}]), True),
        (container(Runtime="nvidia"), True),
        (container(Runtime="runc"), False),
    ],
)
def test_a_container_with_gpus_is_busy_before_it_computes(tmp_path: Path, found: dict, busy: bool) -> None:
    def run(argv: list[str]) -> tuple[int, str]:
        answers = {"ps": "abc\n", "inspect": json.dumps([found])}
        return (0, answers[argv[1]]) if argv[0] == "docker" else (127, "")

    assert gpu_busy.busy_reasons(tmp_path, run) == (["GPU containers: train"] if busy else [])


def answering(**answers: tuple[int, str]):
    """Programs by name, `-` written as `_`; every other one is absent."""
    return lambda argv: answers.get(argv[0].replace("-", "_"), (127, ""))


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        ({"systemctl": (0, ""), "squeue": (124, "")}, "cannot tell: slurmd runs and squeue does not answer"),
        ({"systemctl": (0, ""), "squeue": (1, "")}, "cannot tell: slurmd runs and squeue does not answer"),
        ({"nvidia_smi": (124, "")}, "cannot tell: nvidia-smi does not answer"),
        ({"nvidia_smi": (15, "GPU is lost")}, "cannot tell: nvidia-smi does not answer (exit code 15)"),
        ({"docker": (124, "")}, "cannot tell: Docker does not answer"),
        ({"docker": (1, ""), "systemctl": (0, ""), "squeue": (0, "")}, "cannot tell: Docker does not answer"),
        ({"docker": (0, "abc")}, "cannot tell: Docker does not answer"),  # ps answers, inspect with no JSON
    ],
)
def test_who_does_not_answer_counts_as_busy(tmp_path: Path, answers: dict, reason: str) -> None:
    assert gpu_busy.busy_reasons(tmp_path, answering(**answers)) == [reason]


@pytest.mark.parametrize(
    "answers",
    [
        {"nvidia_smi": (9, "couldn't communicate with the NVIDIA driver")},
        {"nvidia_smi": (6, "No devices were found")},
        {"nvidia_smi": (12, "couldn't find libnvidia-ml.so")},
        {"nvidia_smi": (18, "Driver/library version mismatch")},
        {"nvidia_smi": (14, "WARNING: infoROM is corrupted at gpu 0000:07:00.0\n")},
        {"docker": (1, ""), "systemctl": (3, "")},
        {},
    ],
)
def test_a_node_without_a_driver_or_a_daemon_is_idle(tmp_path: Path, answers: dict) -> None:
    assert gpu_busy.busy_reasons(tmp_path, answering(**answers)) == []


def test_processes_are_told_beside_a_corrupted_inforom(tmp_path: Path) -> None:
    listed = "4711, python3\nWARNING: infoROM is corrupted at gpu 0000:07:00.0\n"
    (reason,) = gpu_busy.busy_reasons(tmp_path, answering(nvidia_smi=(14, listed)))
    assert "python3" in reason and "4711" in reason


def test_a_slurm_job_that_is_being_prepared_counts(tmp_path: Path) -> None:
    def run(argv: list[str]) -> tuple[int, str]:
        if argv[0] == "squeue":
            return 0, "4711\n" if "CF" in argv[argv.index("--states") + 1].split(",") else ""
        return (0, "") if argv == ["systemctl", "is-active", "--quiet", "slurmd"] else (127, "")

    assert gpu_busy.busy_reasons(tmp_path, run) == ["Slurm jobs: 4711"]


def test_the_record_survives_and_a_broken_one_is_none(tmp_path: Path) -> None:
    assert read_record(tmp_path) == {}
    write_record(tmp_path, {"libcuda1"}, set())
    assert read_record(tmp_path) == {"packages": ["libcuda1"], "held": []}
    write(tmp_path, "var/lib/clusterctl/nvidia_driver.json", "{")
    assert read_record(tmp_path) == {}


ID = "c0ffee" * 10 + "1234"
SCOPE = f"0::/system.slice/docker-{ID}.scope"
SESSION = "0::/user.slice/user-1000.slice/session-2.scope"


def of_docker(*containers: dict) -> Any:
    """Programs, of which Docker alone is there, with these containers."""

    def run(argv: list[str]) -> tuple[int, str]:
        answers = {"ps": "".join(f"{one['Id']}\n" for one in containers), "inspect": json.dumps(containers)}
        return (0, answers[argv[1]]) if argv[0] == "docker" else (127, "")

    return run


@pytest.mark.parametrize(
    ("name", "cgroup", "unit"),
    [
        ("node_exporter", "0::/system.slice/prometheus-node-exporter.service", "prometheus-node-exporter"),
        ("python3", "0::/system.slice/prometheus-node-exporter.service", "prometheus-node-exporter"),
        ("nv-hostengine", "0::/system.slice/dcgm.service", "dcgm"),
        ("nv-hostengine", "0::/system.slice/nvidia-dcgm.service", "nvidia-dcgm"),
        ("nv-hostengine", SESSION, ""),
        ("prometheus-node", "0::/user.slice", ""),  # as the kernel cuts the name
        ("Xorg", SESSION, "display-manager"),
        ("Xorg", "0::/system.slice/lightdm.service", "lightdm"),
        ("gnome-shell", "0::/user.slice/user-1000.slice/user@1000.service/app.slice/x", "display-manager"),
        ("site-watch", "0::/system.slice/site-watch.service", "site-watch"),
    ],
)
def test_monitoring_and_displays_hold_gpus_and_are_no_jobs(
    tmp_path: Path, name: str, cgroup: str, unit: str
) -> None:
    holder(tmp_path, 20, name, "/dev/nvidia0", cgroup)
    reasons, holders = gpu_busy.gpu_users(tmp_path, quiet, ["site-*"])
    assert (reasons, holders) == ([], [gpu_busy.Holder(name, unit=unit)])
    holder(tmp_path, 21, "python3", "/dev/nvidia1", SESSION)
    assert gpu_busy.busy_reasons(tmp_path, quiet, ["site-*"]) == ["1 compute process: python3 (21)"]


@pytest.mark.parametrize(
    ("name", "cgroup", "unit"),
    [
        ("Xorg", "0::/system.slice/cron.service", ""),
        ("nv-hostengine", "0::/system.slice/ssh.service", ""),
        ("Xorg", SESSION, ""),
        ("nv-hostengine", "0::/system.slice/dcgm.service", "dcgm"),
    ],
)
def test_root_stops_no_service_for_the_name_that_a_users_process_in_it_has(
    tmp_path: Path, name: str, cgroup: str, unit: str
) -> None:
    holder(tmp_path, 20, name, "/dev/nvidia0", cgroup, uid=1000)
    assert gpu_busy.gpu_users(tmp_path, quiet) == ([], [gpu_busy.Holder(name, unit=unit)])


@pytest.mark.parametrize(
    ("uid", "service", "unit"),
    [
        (1000, "gdm-password", "display-manager"),
        (1000, "sddm", "display-manager"),
        (1000, "sshd", ""),
        (1000, "", ""),
        (1001, "gdm-password", ""),
    ],
)
def test_the_display_manager_is_stopped_for_those_whom_it_logged_in(
    tmp_path: Path, uid: int, service: str, unit: str
) -> None:
    write(tmp_path, "run/systemd/sessions/2", f"UID=1000\nUSER=ann\nTYPE=x11\nSERVICE={service}\n")
    write(tmp_path, "run/systemd/sessions/c1", "UID=1001\nSERVICE=login\n")
    holder(tmp_path, 20, "Xorg", "/dev/nvidia0", SESSION, uid=uid)
    assert gpu_busy.gpu_users(tmp_path, quiet) == ([], [gpu_busy.Holder("Xorg", unit=unit)])


def test_apply_and_validate_know_the_same_holders() -> None:
    assert set(busy.HOLDERS) == {*gpu_busy.MONITORS, *gpu_busy.DISPLAYS}


def test_a_host_engine_that_profiles_is_no_compute_process(tmp_path: Path) -> None:
    """nvidia-smi lists it with its path while DCGM reads performance counters."""
    write(tmp_path, "proc/50/cgroup", "0::/system.slice/dcgm.service\n")
    write(tmp_path, "proc/50/comm", "nv-hostengine\n")
    found = gpu_busy.gpu_users(tmp_path, answering(nvidia_smi=(0, "50, /usr/bin/nv-hostengine\n")))
    assert found == ([], [gpu_busy.Holder("nv-hostengine", unit="dcgm")])


def test_a_holder_is_shown_with_what_is_stopped_for_it() -> None:
    holder = gpu_busy.Holder
    assert holder("nv-hostengine", unit="dcgm").shown == "nv-hostengine (dcgm.service)"
    assert holder("metrics", container="metrics").shown == "container metrics"
    assert holder("nv-hostengine").shown == "nv-hostengine (no unit)"


def test_what_the_site_does_not_name_is_a_job(tmp_path: Path) -> None:
    holder(tmp_path, 20, "site-watch", "/dev/nvidia0", "0::/system.slice/site-watch.service")
    assert gpu_busy.busy_reasons(tmp_path, quiet) == ["1 compute process: site-watch (20)"]


@pytest.mark.parametrize(
    ("name", "image", "ignored", "busy"),
    [
        ("/mon", "nvcr.io/nvidia/k8s/dcgm-exporter:4.2.0-ubuntu22.04", [], False),
        ("/dcgm-exporter", "sha256:0123", [], False),
        ("/mon", "nvcr.io/nvidia/cloud-native/dcgm:4.2.3-1-ubuntu22.04", [], False),
        ("/mon", "registry:5000/site/gpu-watch@sha256:0123", ["gpu-watch"], False),
        ("/mon", "registry:5000/site/gpu-watch@sha256:0123", [], True),
        ("/train", "registry:5000/paddle/dcgm-exporter-based-training:1", [], True),
    ],
)
def test_a_container_that_monitors_is_a_holder_with_all_its_processes(
    tmp_path: Path, name: str, image: str, ignored: list[str], busy: bool
) -> None:
    one = {"Id": ID, "Name": name, "HostConfig": {"Runtime": "nvidia"}}
    one["Config"] = {"Env": ["NVIDIA_VISIBLE_DEVICES=all"], "Image": image}
    holder(tmp_path, 30, "python3", "/dev/nvidia0", SCOPE)
    reasons, holders = gpu_busy.gpu_users(tmp_path, of_docker(one), ignored)
    plain = name.lstrip("/")
    if busy:
        assert (reasons[1], holders) == (f"GPU containers: {plain}", [])
    else:
        assert (reasons, holders) == ([], [gpu_busy.Holder(plain, container=plain)])


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        ("50, /usr/bin/python3\n50, /usr/bin/python3\n", {50: "/usr/bin/python3"}),
        ("50, x\n\u00b2, y\n", {50: "x"}),
        (f"50, x\n{'9' * 5000}, y\n", {50: "x"}),
        ("50, x\n70, nv-hostengine\n70, python3\n", {50: "x", 70: ""}),
    ],
    ids=["on-two-gpus", "no-number", "long-number", "row-of-another"],
)
def test_rows_that_a_process_adds_by_its_name_hide_no_job(
    rows: str, found: dict[int, str], tmp_path: Path
) -> None:
    """The name is the process's own words, and a line feed in it makes another row."""
    assert gpu_busy.compute_processes(tmp_path, lambda _: (0, rows)) == found


def test_a_row_that_a_process_adds_names_no_other_that_holds_a_gpu(tmp_path: Path) -> None:
    """nvidia-smi lists no process that uses a GPU for graphics or video alone."""
    holder(tmp_path, 50, "dcgm-exporter", "/dev/nvidia0", SESSION, uid=1001)
    holder(tmp_path, 70, "train", "/dev/nvidia0", SESSION, uid=1000)
    rows = "50, dcgm-exporter\n70, dcgm-exporter\n"
    reasons = gpu_busy.busy_reasons(tmp_path, answering(nvidia_smi=(0, rows)))
    assert reasons == ["1 compute process: train (70)"]
