#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The CDI specification of this host's NVIDIA devices: fresh for the running driver, or made again."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.clusterctl.cluster.plugins.module_utils.bounded import late, run_bounded

DOCUMENTATION = r"""
module: nvidia_cdi_spec
short_description: Keep the CDI specification of NVIDIA devices in step with the running driver
description:
  - Compares driver and devices that the specification names with what the kernel has; refreshes it.
  - Does nothing while no driver runs. A static file of an operator that went stale is said, never changed.
options:
  spec: {description: The specification that is made at boot, type: path, default: /var/run/cdi/nvidia.yaml}
  static: {description: Where an operator may have put one, type: path, default: /etc/cdi/nvidia.yaml}
  driver: {description: What the kernel tells of the driver, type: path, default: /proc/driver/nvidia}
  planned:
    description: Driver version that this play installs; check mode judges the specification for it.
    type: str
    default: ""
  regrouped:
    description: Whether this play creates or destroys MIG instances, which check mode does not see.
    type: bool
    default: false
  before:
    description:
      - Driver version that ran before this play. Another one now is a change of the specification, also if
        the toolkit's own unit was the first to notice it.
    type: str
    default: ""
author: ["the clusterctl authors"]
"""

EXAMPLES = r"""
- name: Refresh the CDI specification after a change of the driver
  clusterctl.cluster.nvidia_cdi_spec:
"""

RETURN = r"""
because: {description: Why it was made again, returned: always, type: list}
driver: {description: Version of the running driver, returned: always, type: str}
devices: {description: Devices that the specification names, returned: always, type: list}
code:
  description: "Stable code of the failure: task.timed-out"
  returned: when the cause is known
  type: str
"""

UNIT = "nvidia-cdi-refresh.service"
WATCH = "nvidia-cdi-refresh.path"  # starts the unit when files of the driver change
CORRUPT_INFOROM = 14  # of one GPU: nvidia-smi lists everything all the same
# Library files of a driver carry its version: libcuda.so.580.95.05.
LIBRARY_VERSION = re.compile(r"\blib(?:cuda|nvidia-ml|nvidia-[a-z-]+)\.so\.(\d{3}\.\d+(?:\.\d+)?)")
MIG_NAME = re.compile(r"\d+:\d+|MIG-.+")
DEVICE_NAME = re.compile(r"""^\s*-?\s*"?name"?:\s*["']?([\w:.-]+)""", re.MULTILINE)


@dataclass(frozen=True)
class Spec:
    """What a specification says."""

    devices: tuple[str, ...]
    versions: frozenset[str]

    @property
    def gpus(self) -> int:
        """Number of whole GPUs, named 0, 1, ... (MIG devices are 0:0; UUIDs and `all` come next to)."""
        return sum(name.isdigit() for name in self.devices)

    @property
    def mig(self) -> set[str]:
        """MIG devices, by the GPU's number and their own on it; and by UUID, where it names those."""
        return {name for name in self.devices if MIG_NAME.fullmatch(name)}


def parse_spec(text: str) -> Spec:
    """Devices and driver versions that a CDI file (YAML or JSON) names."""
    return Spec(tuple(DEVICE_NAME.findall(text)), frozenset(LIBRARY_VERSION.findall(text)))


def parse_version(text: str) -> str:
    """The version in /proc/driver/nvidia/version, "" when it has none."""
    found = re.search(r"NVRM version:.*?\s(\d{3}\.\d+(?:\.\d+)?)\s", text)
    return found.group(1) if found else ""


def mig_devices() -> set[str] | None:
    """The MIG devices that nvidia-smi lists, by number and by UUID; None where it does not answer."""
    code, output, _ = run_bounded(["nvidia-smi", "-L"], 60)
    if code not in (0, CORRUPT_INFOROM):
        return None
    found, gpu = set(), ""
    for line in output.splitlines():
        if match := re.match(r"GPU (\d+): ", line):
            gpu = match[1]
        elif match := re.match(r"\s+MIG \S+\s+Device\s+(\d+): \(UUID: ([^)\s]+)\)", line):
            found |= {f"{gpu}:{match[1]}", match[2]}
    return found


def stale(spec: Spec | None, version: str, gpus: int, mig: set[str] | None = None) -> list[str]:
    """Why a specification does not serve the running driver; none when it does."""
    if spec is None:
        return ["there is none"]
    reasons = []
    if spec.versions and version not in spec.versions:
        reasons.append(f"it is for driver {', '.join(sorted(spec.versions))}, {version} runs")
    if mig is not None:
        by_uuid = any(name.startswith("MIG-") for name in spec.mig)
        mig = {name for name in mig if by_uuid or not name.startswith("MIG-")}
        if spec.mig != mig:
            there, now = (sum(":" in name for name in names) for names in (spec.mig, mig))
            reasons.append(f"it has {there} MIG devices, the driver {now if there != now else 'others'}")
    if spec.gpus != gpus and not spec.mig:
        reasons.append(f"it has {spec.gpus} GPUs, the kernel {gpus}")
    return reasons


def read_spec(path: Path) -> Spec | None:
    """The specification in `path`, None without one."""
    return parse_spec(path.read_text(encoding="utf-8")) if path.is_file() else None


def settled_state() -> str:
    """State of the toolkit's own unit once a run of it has ended, "" without the unit.

    A path unit starts it at each change of driver files, thus also half-way through a driver's change.
    """
    show = ["systemctl", "show", "--property=LoadState,ActiveState", UNIT]
    found = dict(line.partition("=")[::2] for line in run_bounded(show, 60)[1].splitlines())
    if found.get("LoadState") != "loaded":
        return ""
    if found.get("ActiveState") != "activating":
        return found.get("ActiveState", "")
    run_bounded(["systemctl", "start", UNIT], 180)  # joins the run under way, and waits for its end
    return run_bounded(["systemctl", "is-active", UNIT], 60)[1].strip()


def watch_failed() -> bool:
    """Whether the watch ended for good, as it does when the unit is beyond systemd's start limit."""
    return run_bounded(["systemctl", "is-active", WATCH], 60)[1].strip() == "failed"


def refresh(module: AnsibleModule, spec: Path, state: str) -> None:
    """Have the toolkit's own unit make it, or make it as the unit would where the toolkit is older."""
    if state:
        watch = watch_failed()
        # Many changes of files in a row are beyond systemd's start limit, which this forgets.
        run_bounded(["systemctl", "reset-failed", UNIT, *([WATCH] if watch else [])], 60)
        if watch:
            run_bounded(["systemctl", "start", WATCH], 60)
        command = ["systemctl", "restart", UNIT]
    else:
        command = ["nvidia-ctk", "cdi", "generate", f"--output={spec}"]
        spec.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    rc, out, err = run_bounded(command, 180)
    if rc != 0:
        why = (err or out).strip()[-400:]
        module.fail_json(msg=f"`{' '.join(command)}` failed: {why}", rc=rc, **late(rc))


def main() -> None:
    """Ansible's entry."""
    module = AnsibleModule(
        argument_spec={
            "spec": {"type": "path", "default": "/var/run/cdi/nvidia.yaml"},
            "static": {"type": "path", "default": "/etc/cdi/nvidia.yaml"},
            "driver": {"type": "path", "default": "/proc/driver/nvidia"},
            "planned": {"type": "str", "default": ""},
            "regrouped": {"type": "bool", "default": False},
            "before": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    spec, static, driver = (Path(module.params[name]) for name in ("spec", "static", "driver"))
    version_file, gpu_directory = driver / "version", driver / "gpus"
    version = parse_version(version_file.read_text(encoding="utf-8")) if version_file.is_file() else ""
    if not version or not module.get_bin_path("nvidia-ctk"):
        module.exit_json(changed=False, because=[], driver=version, devices=[])
    if module.check_mode:
        version = module.params["planned"] or version
    gpus = sum(1 for _ in gpu_directory.iterdir()) if gpu_directory.is_dir() else 0
    mig = mig_devices()
    if (reasons := stale(read_spec(static), version, gpus, mig)) and static.is_file():
        module.warn(
            f"{static} is stale: {'; '.join(reasons)}. It was not changed: remove it, {spec} has the devices."
        )
    state = settled_state()
    because = stale(read_spec(spec), version, gpus, mig)
    if module.check_mode and module.params["regrouped"]:
        because.append("MIG instances change")
    if state == "failed":
        because.append(f"the last run of {UNIT} failed")
    if watch_failed():
        because.append(f"{WATCH} has failed")
    if because and not module.check_mode:
        refresh(module, spec, state)
        if still := stale(read_spec(spec), version, gpus, mig):
            module.fail_json(
                msg=f"{spec} was made again, yet {'; '.join(still)}. See `journalctl -u {UNIT}`."
            )
    if not because and module.params["before"] not in ("", version):
        because = [f"it was for driver {module.params['before']}"]
    after = read_spec(spec)
    devices = list(after.devices) if after else []
    module.exit_json(changed=bool(because), because=because, driver=version, devices=devices)


if __name__ == "__main__":
    main()
