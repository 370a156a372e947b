# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE)
"""Facts of a node and what is expected of it in, findings out. Pure."""

from __future__ import annotations

from typing import Any

from ansible_collections.clusterctl.cluster.plugins.module_utils.apt_packages import matching, upstream
from ansible_collections.clusterctl.cluster.plugins.module_utils.driver_plan import driver_packages
from ansible_collections.clusterctl.cluster.plugins.module_utils.gpu_node import version_key
from ansible_collections.clusterctl.cluster.plugins.module_utils.masking import mask_urls
from ansible_collections.clusterctl.cluster.plugins.module_utils.nvlink_fabric import (
    IMEX,
    NVLSM,
    is_of,
    nvlink_fabric,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.package_managers import APT
from ansible_collections.clusterctl.cluster.plugins.module_utils.supported_systems import (
    CODE as UNSUPPORTED_SYSTEM,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.supported_systems import refusal

Finding = dict[str, str]
ORDER = {"error": 0, "warning": 1, "info": 2}
OPEN_PORTS = (
    "all TCP between GPU nodes (NCCL, Gloo and jobs take any free port), TCP 22 and the registry's port"
)


def finding(
    severity: str, subject: str, found: str, expected: str, remedy: str, *, code: str = ""
) -> Finding:
    """One thing that preflight has to say; ``code`` is that of the failure that it leads to, if known."""
    return {
        "severity": severity,
        "subject": subject,
        "found": mask_urls(found),
        "expected": mask_urls(expected),
        "remedy": mask_urls(remedy),
        "code": code,
    }


def judge(facts: dict[str, Any], wanted: dict[str, Any], compat: dict[str, Any]) -> list[Finding]:
    """All findings, the grave ones first. `wanted` holds the module's parameters.

    Of an unsupported operating system nothing else is said: what is missing there goes with it.
    """
    if unsupported := refusal(facts["os"], compat):
        named = (unsupported.found, unsupported.expected, unsupported.remedy)
        return [finding("error", "operating system", *named, code=UNSUPPORTED_SYSTEM)]
    findings = [
        *_kernel(facts, compat),
        *_access(facts, wanted),
        *_network(facts, wanted),
        *_capacity(facts, wanted),
        *_hardware(facts, wanted, compat),
        *_kernel_modules(facts, wanted),
        *_others(facts, wanted),
        *_registry(facts, wanted),
        *_driver(facts, wanted, compat),
        *_busy(facts),
        *_holders(facts),
    ]
    return sorted(findings, key=lambda found: ORDER[found["severity"]])


def _kernel(facts: dict[str, Any], compat: dict[str, Any]) -> list[Finding]:
    if version_key(facts["kernel"]) >= version_key(compat["minimum_kernel"]):
        return []
    expected = f">= {compat['minimum_kernel']}"
    return [finding("error", "kernel", facts["kernel"], expected, "upgrade the kernel")]


def _access(facts: dict[str, Any], wanted: dict[str, Any]) -> list[Finding]:
    found = []
    if not facts["root"]:
        found.append(
            finding(
                "error",
                "sudo",
                wanted["sudo_error"] or "the log-in user is not root",
                "root by sudo",
                "allow sudo for the log-in user, or give its password (--ask-become-pass)",
            )
        )
    skew, limit = facts["clock_skew_s"], wanted["max_clock_skew_s"]
    if abs(skew) > limit:
        found.append(
            finding(
                "error",
                "clock",
                f"{abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} the controller",
                f"within {limit} s",
                "run an NTP client (chrony or systemd-timesyncd), and set the clock",
            )
        )
    return found


def _network(facts: dict[str, Any], wanted: dict[str, Any]) -> list[Finding]:
    found = [
        finding(
            "error",
            "DNS",
            f"{name} is unknown",
            "an address",
            "fix /etc/resolv.conf or the name server",
            code="host.dns",
        )
        for name in facts["unresolved"]
    ]
    if not facts["hostname_resolves"]:
        found.append(
            finding("warning", "DNS", "the host's own name is unknown", "an address", "name it in /etc/hosts")
        )
    found += [
        finding(
            "error",
            "package source",
            f"{url}: {why}",
            "answers",
            "check the URL, the firewall, site_http_proxy and site_no_proxy",
            code="packages.source-down",
        )
        for url, why in sorted(facts["unreachable"].items())
    ]
    found += [
        finding(
            "warning",
            "package source",
            f"{url}: {why}",
            "answers, or is not configured",
            "fix it, or take it out of apt's sources: packages that only it has cannot be installed",
        )
        for url, why in sorted(facts["unreachable_others"].items())
    ]
    found += [
        finding("warning", "firewall", f"{name} refuses by default", OPEN_PORTS, _opening(name))
        for name in facts["firewalls"]
    ]
    return found


def _opening(firewall: str) -> str:
    """What opens a firewall between the nodes."""
    if firewall == "firewalld":
        return "name the nodes' networks in container_runtime_firewalld_sources: apply trusts them"
    return "allow them between the nodes"


def _capacity(facts: dict[str, Any], wanted: dict[str, Any]) -> list[Finding]:
    limit = wanted["min_free_gb"]
    found = [
        finding(
            "error",
            "disk",
            f"{free:.1f} GB free on {path}",
            f">= {limit:g} GB",
            "free or add space",
            code="host.disk-full",
        )
        for path, free in sorted(facts["free_gb"].items())
        if free < limit
    ]
    if facts["rdma_adapters"] and facts["memlock_kib"] != -1:
        found.append(
            finding(
                "warning",
                "memlock",
                f"{facts['memlock_kib']} KiB",
                "unlimited: RDMA pins its buffers",
                "set LimitMEMLOCK=infinity for Docker, and memlock in /etc/security/limits.d",
            )
        )
    return found


def _hardware(facts: dict[str, Any], wanted: dict[str, Any], compat: dict[str, Any]) -> list[Finding]:
    found = []
    count, expected = len(facts["gpus"]), wanted["gpu_count"]
    if expected not in (-1, count):  # -1: the inventory does not say
        found.append(
            finding(
                "error",
                "GPUs",
                f"{count} on the PCI bus",
                str(expected),
                "check lspci -d 10de: and the BMC; a missing GPU may return after a cold start. "
                "If the inventory is wrong, set hardware_gpu_count",
            )
        )
    ids = sorted({gpu["device"] for gpu in facts["gpus"]})
    if len(ids) > 1:
        found.append(finding("warning", "GPUs", f"models {', '.join(ids)}", "one model", "check the slots"))
    found += _nvlink_fabric(facts, wanted, compat)
    limits = compat["open_kernel_modules"]
    numbers = [int(device, 16) for device in ids if device]
    if wanted["driver_flavor"] == "open" and numbers and numbers[0] < limits["first_device_id"]:
        found.append(
            finding(
                "error",
                "GPUs",
                f"device {ids[0]} is older than Turing",
                "Turing or newer for the open kernel modules",
                "set nvidia_driver_flavor: proprietary",
            )
        )
    return found


def _nvlink_fabric(facts: dict[str, Any], wanted: dict[str, Any], compat: dict[str, Any]) -> list[Finding]:
    """Whether what leads to the NVLink switches is there, and what an unusual fabric needs of the node."""
    fabric = nvlink_fabric(facts["gpus"], facts["nvswitches"], facts["nvswitch_bridges"], compat)
    if fabric == IMEX:
        with_manager = matching(facts["packages"], ["nvidia-fabricmanager*"])
        manager = f"{with_manager[0]} is installed, and the rack's" if with_manager else "the rack's"
        return [
            finding(
                "warning" if with_manager else "info",
                "NVLink fabric",
                f"{manager} switch trays run Fabric Manager",
                "nvidia-imex on the node, and no Fabric Manager",
                "systemctl disable --now nvidia-fabricmanager: it fails here"
                if with_manager
                else "set nvidia_driver_imex_nodes to run nvidia-imex always, not only for a job of Slurm or "
                "Kubernetes",
            )
        ]
    if fabric == NVLSM:
        expected = "Fabric Manager with NVLSM"
        reached = f"{facts['nvswitch_bridges']} adapters lead to the NVSwitches"
        return [finding("info", "NVLink fabric", reached, expected, "nothing to do: apply installs it")]
    if wanted["nvswitches"] == "true" and not fabric:
        remedy = "check the BMC, cold start the machine"
        return [
            finding(
                "error", "NVSwitch", "none on the PCI bus, and no adapter that leads to one", "some", remedy
            )
        ]
    if not fabric and is_of(NVLSM, facts["gpus"], compat):
        return [
            finding(
                "warning",
                "NVLink fabric",
                "GPUs of an HGX board with NVSwitches, and no adapter that leads to them",
                "a ConnectX adapter whose vital product data names SW_MNG, or sudo to read it",
                "check the BMC and lspci -d 15b3:; of a virtual machine the host runs Fabric Manager",
            )
        ]
    return []


def _kernel_modules(facts: dict[str, Any], wanted: dict[str, Any]) -> list[Finding]:
    found = [
        finding(
            "error",
            "kernel headers",
            f"{name} is offered nowhere",
            "headers of the running and of the newest installed kernel",
            "add a source that has them, or boot a kernel of the distribution",
            code="packages.not-offered",
        )
        for name in facts["headers_missing"]
    ]
    if facts["dkms_missing"]:
        found.append(
            finding(
                "error",
                "dkms",
                "offered nowhere",
                "dkms, which builds the kernel modules",
                "set nvidia_driver_epel_url, or enable EPEL or a mirror of it on the host (dnf install "
                "epel-release), or use NVIDIA's compiled proprietary modules (nvidia_driver_precompiled)",
                code="packages.not-offered",
            )
        )
    if facts["secure_boot"] == "enabled" and wanted["driver_branch"]:
        found.append(_secure_boot(facts, wanted))
    if facts["selinux"] == "enforcing":
        found.append(
            finding(
                "info",
                "SELinux",
                "enforcing",
                "jobs that may use /dev/nvidia*",
                "nothing to do: where Docker confines containers (selinux-enabled), apply switches "
                "container_use_devices on",
            )
        )
    if facts["nouveau"]:
        found.append(
            finding("info", "nouveau", "loaded", "not loaded", "apply unloads it, or asks for a reboot")
        )
    return found


def _secure_boot(facts: dict[str, Any], wanted: dict[str, Any]) -> Finding:
    """Which road applies: signed modules, a trusted key, one that is requested, or one to be enrolled."""
    certificate, state = facts["signing_key"]["certificate"], facts["signing_key"]["state"]
    level = "error"
    if not wanted["needs_headers"]:
        level, found, remedy = "info", "modules signed by Ubuntu", "nothing to do"
    elif state == "enrolled":
        level, found, remedy = "info", f"{certificate} enrolled", "nothing to do"
    elif state == "requested":
        level, found = "warning", f"enrolment of {certificate} requested"
        remedy = (
            "reboot with a person at the console, who presses a key within 10 seconds and confirms it in "
            "MokManager (Enroll MOK) with the one-time password; if that is lost, mokutil --revoke-import "
            "and apply again"
        )
    elif state == "blocked":
        found = f"{certificate} on a list of blocked keys"
        remedy = "name another pair in /etc/dkms/framework.conf (mok_signing_key, mok_certificate)"
    elif state.startswith("unknown"):
        found = f"enrolment of {certificate} {state}"
        remedy = f"install mokutil, or see `mokutil --test-key {certificate}` on the host"
    else:
        found = "no key to sign with yet" if state == "no key" else f"{certificate} not enrolled"
        prebuilt = "use Ubuntu's signed modules (nvidia_driver_source: distribution), or "
        remedy = (
            f"{prebuilt if facts['os']['id'] == 'ubuntu' else ''}set nvidia_driver_enroll_key: true, with a "
            "person at the console for one reboot"
        )
        if wanted["enroll_key"]:
            level = "warning"
            remedy = "apply requests its enrolment: have a person at the console for the reboot after it"
    return finding(level, "Secure Boot", f"enabled, {found}", "modules that the firmware trusts", remedy)


def _others(facts: dict[str, Any], wanted: dict[str, Any]) -> list[Finding]:
    severity = "warning" if wanted["existing"] == "adopt" else "error"
    words = {
        "runfile": ("error", "driver", "installed by NVIDIA's .run file", "remove it with nvidia-uninstall"),
        "gpu_operator": (
            severity,
            "driver",
            "provided by a GPU Operator's container",
            "take the node out of the operator, or out of gpu_nodes",
        ),
        "dgx_os": (
            severity,
            "DGX OS",
            "it brings its own driver stack",
            "keep NVIDIA's packages, or adopt the node: nvidia_driver_existing: adopt",
        ),
        "docker_snap": ("error", "Docker", "installed as a snap", "snap remove docker: it cannot give GPUs"),
        "docker_ce": ("info", "Docker", "Docker CE is installed", "it is adopted (container_runtime_adopt)"),
        "kubelet": (
            "warning",
            "Kubernetes",
            "a kubelet runs here, or is set up to",
            "drain it before its driver or MIG changes; its containerd is left alone, and no Docker is "
            "installed beside it",
        ),
        "ofed": ("info", "OFED", "installed", "it stays as it is"),
    }
    return [
        finding(
            words[what][0], words[what][1], f"{words[what][2]} ({where})", "a plain system", words[what][3]
        )
        for what, where in sorted(facts["others"].items())
        if not (what == "docker_ce" and "docker-ce" in facts["our_holds"])
    ]


def _registry(facts: dict[str, Any], wanted: dict[str, Any]) -> list[Finding]:
    """RHEL has no package of the registry, nor of skopeo's and Compose's that the roles install."""
    if not wanted["registry"] or facts["manager"] == APT:
        return []
    return [
        finding(
            "error",
            "registry",
            f"on {facts['os']['name']}",
            "Debian or Ubuntu on the registry's host",
            "put a host with Debian or Ubuntu into the group registry",
            code=UNSUPPORTED_SYSTEM,
        )
    ]


def _driver(facts: dict[str, Any], wanted: dict[str, Any], compat: dict[str, Any]) -> list[Finding]:
    branch = wanted["driver_branch"]
    found = _support(branch, wanted["today"], compat) if wanted["driver_branch"] else []
    ours = set(facts["record"].get("packages", []))
    installed = driver_packages(facts["packages"], compat)
    theirs = {name: upstream(facts["packages"][name]) for name in installed if name not in ours}
    parts = {name: version for name, version in theirs.items() if version.split(".", maxsplit=1)[0].isdigit()}
    other = {n: v for n, v in parts.items() if v.split(".", maxsplit=1)[0] != branch and v[:3].isdigit()}
    if other and not ours and branch:
        name, version = sorted(other.items())[0]
        adopt = wanted["existing"] == "adopt"
        found.append(
            finding(
                "warning" if adopt else "error",
                "driver",
                f"{name} {version}, not installed by clusterctl",
                f"none, or branch {branch}",
                "apply will replace it"
                if adopt
                else "ask for its branch, or set nvidia_driver_existing: adopt",
            )
        )
    holds = sorted(
        (facts["held"] - set(facts["record"].get("held", [])) - facts["our_holds"])
        & (set(installed) | set(matching(facts["packages"], ["docker*", "containerd*", "nvidia-container*"])))
    )
    if holds:
        found.append(
            finding(
                "warning",
                "held packages",
                ", ".join(holds[:5]),
                "none but ours",
                f"apply leaves them; release them with {facts['manager'].unhold} {' '.join(holds[:5])}",
            )
        )
    return found


def _support(branch: str, today: str, compat: dict[str, Any]) -> list[Finding]:
    known = compat["branches"].get(branch)
    if known is None:
        return [
            finding("info", "driver branch", branch, "a known branch", "nothing is recorded of its support")
        ]
    end = known["end_of_support"]
    if not known["ended"] and (end is None or today <= end):
        return []
    return [
        finding(
            "warning",
            "driver branch",
            f"{branch}: support ended {end or 'already'}",
            f"a supported branch, such as {compat['recommended_branch']}",
            f'set nvidia_driver_branch: "{compat["recommended_branch"]}"',
        )
    ]


def _busy(facts: dict[str, Any]) -> list[Finding]:
    return [
        finding(
            "warning",
            "busy",
            reason,
            "idle",
            "apply skips the node until it is idle (or --force-busy)",
        )
        for reason in facts["busy"]
    ]


def _holders(facts: dict[str, Any]) -> list[Finding]:
    if not facts["holders"]:
        return []
    found = f"held by {', '.join(facts['holders'][:5])}, not by a job"
    remedy = (
        "a reload of the driver stops and starts them (gpu_holders_ignored names others); stop by hand what "
        "has no unit"
    )
    return [finding("info", "GPUs", found, "jobs, or nobody", remedy)]
