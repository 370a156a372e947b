# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE)
"""What preflight looks at on a node, besides its GPUs: network, limits, firewall, what others installed."""

from __future__ import annotations

import http.client
import os
import re
import resource
import shutil
import socket
import tempfile
import urllib.error
import urllib.request
from concurrent import futures
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ansible_collections.clusterctl.cluster.plugins.module_utils import gpu_node
from ansible_collections.clusterctl.cluster.plugins.module_utils.apt_run import settings
from ansible_collections.clusterctl.cluster.plugins.module_utils.apt_view import Proxies, RunFull, make_view
from ansible_collections.clusterctl.cluster.plugins.module_utils.dnf_run import environment
from ansible_collections.clusterctl.cluster.plugins.module_utils.http_fetch import Deadline, opened
from ansible_collections.clusterctl.cluster.plugins.module_utils.kubernetes_node import trace_of_kubelet
from ansible_collections.clusterctl.cluster.plugins.module_utils.masking import mask_answer
from ansible_collections.clusterctl.cluster.plugins.module_utils.nvlink_fabric import nvswitch_bridges
from ansible_collections.clusterctl.cluster.plugins.module_utils.package_managers import APT, DNF
from ansible_collections.clusterctl.cluster.plugins.module_utils.rpm_database import has_rpm, rpm_packages
from ansible_collections.clusterctl.cluster.plugins.module_utils.signing_key import enrolment, signing_key

TIMEOUT_S = 10


def unlimited_memlock() -> int:
    """The hard limit on locked memory in KiB; -1 for none."""
    _, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return -1 if hard == resource.RLIM_INFINITY else hard // 1024


def free_space(root: Path, directories: list[str]) -> dict[str, float]:
    """Free space in GB (1e9 bytes) by directory, the first of each filesystem.

    Where a directory is not there yet it is that of the nearest above it.
    """
    free, seen = {}, set()
    for directory in directories:
        path = root / directory.lstrip("/")
        while not path.is_dir() and path != root:
            path = path.parent
        if path.stat().st_dev not in seen:
            seen.add(path.stat().st_dev)
            free[str("/" / path.relative_to(root))] = shutil.disk_usage(path).free / 1e9
    return free


def unresolved(names: list[str]) -> list[str]:
    """Names that the resolver does not know, each asked within 10 s."""
    if not names:
        return []

    def fails(name: str) -> bool:
        try:
            socket.getaddrinfo(name, None)
        except OSError:
            return True
        return False

    pool = ThreadPoolExecutor(max_workers=len(names))
    answers = {name: pool.submit(fails, name) for name in names}
    found = []
    for name, answer in answers.items():
        try:
            if answer.result(timeout=TIMEOUT_S):
                found.append(name)
        except futures.TimeoutError:
            found.append(name)
    pool.shutdown(wait=False, cancel_futures=True)
    return found


def unreachable(urls: list[str], proxies: Proxies) -> dict[str, str]:
    """Why a URL cannot be read, by URL; those that can are left out."""
    if not urls:
        return {}

    def why(url: str) -> str:
        try:
            request = urllib.request.Request(url, method="HEAD", headers={"User-Agent": "clusterctl"})  # noqa: S310
            with opened(request, Deadline(TIMEOUT_S), proxy_for=proxies.for_url):
                return ""
        except urllib.error.HTTPError as error:
            return f"HTTP {error.code}"
        except (OSError, ValueError, http.client.HTTPException) as error:
            # Its reason may be the word of a server or proxy.
            return mask_answer(str(getattr(error, "reason", error)), (url, proxies.http, proxies.https))

    with ThreadPoolExecutor(max_workers=8) as pool:
        reasons = zip(urls, pool.map(why, urls))  # noqa: B905 - Python 3.9
        return {url: reason for url, reason in reasons if reason}


def apt_uris(run: RunFull) -> list[str]:
    """What apt would read of the sources that are configured: one URL a source."""
    _, output, _ = run(["apt-get", "update", "--print-uris"])
    uris = [line.split("'")[1] for line in output.splitlines() if line.startswith("'http")]
    return [uri for uri in uris if uri.endswith("Release")]


def others_uris(uris: list[str], named: list[str]) -> list[str]:
    """Those of apt's sources that the settings do not name themselves."""
    ours = {url.rpartition("/")[0] for url in named}
    return [uri for uri in uris if uri.rpartition("/")[0].removesuffix("/.") not in ours]


def apt_proxies(run: RunFull, site: Proxies) -> Proxies:
    """The proxies that apt uses for the sources that are configured: its own, else the site's."""
    _, output, _ = run(["apt-config", "dump", "Acquire"])
    own = dict(re.findall(r'^Acquire::(https?)::Proxy "([^"]+)";$', output, re.MULTILINE))
    if not own:
        return site
    return Proxies(own.get("http", ""), own.get("https", own.get("http", "")), site.no_proxy)


def firewall(run: RunFull) -> list[str]:
    """Firewalls that refuse what is not allowed: by name."""
    services = ("firewalld", "ufw")
    found = [name for name in services if run(["systemctl", "is-active", "--quiet", name])[0] == 0]
    if "ufw" in found and "Status: active" not in run(["ufw", "status"])[1]:
        found.remove("ufw")
    for program in ("iptables", "ip6tables"):
        code, output, _ = run([program, "-S", "INPUT"])
        rules = output.splitlines() if code == 0 else []
        if "-P INPUT DROP" in rules or any(rule.endswith(("-j DROP", "-j REJECT")) for rule in rules):
            found.append(f"{program} (INPUT)")
    # Those before are tables of nftables too.
    return found or nftables(run(["nft", "list", "ruleset"])[1])


def nftables(ruleset: str) -> list[str]:
    """Chains of the kernel's own ruleset that refuse incoming packets unless something allows them."""
    found, table, chain, is_input = [], "", "", False
    for line in map(str.strip, ruleset.splitlines()):
        if match := re.match(r"table (\w+ \S+) \{", line):
            table = match.group(1)
        elif match := re.match(r"chain (\S+) \{", line):
            chain, is_input = match.group(1), False
        elif "hook input" in line:
            is_input = True
            if "policy drop" in line:
                found.append(f"nftables ({table} {chain})")
        elif is_input and re.match(r"(counter packets \d+ bytes \d+ )?(drop|reject)\b", line):
            found.append(f"nftables ({table} {chain})")
    return sorted(set(found))


def others(root: Path, packages: dict[str, str], run: RunFull) -> dict[str, str]:
    """What somebody else installed that stands in our way, and its version or place."""
    found = {}
    places = {
        "dgx_os": "etc/dgx-release",
        "docker_snap": "snap/docker",
        "gpu_operator": "run/nvidia/driver",
        "ofed": "etc/infiniband/info",
    }
    for what, place in places.items():
        if (root / place).exists():
            found[what] = f"/{place}"
    if kubelet := trace_of_kubelet(root):
        found["kubelet"] = kubelet
    owned = any(name.startswith(("nvidia-", "libnvidia-")) for name in packages)
    if (root / "usr/bin/nvidia-uninstall").exists() and not owned:
        found["runfile"] = gpu_node.loaded_driver(root) or "/usr/bin/nvidia-uninstall"
    for what, package in (("docker_ce", "docker-ce"), ("ofed", "mlnx-ofed-kernel-utils")):
        if package in packages:
            found[what] = packages[package]
    return found


def selinux(root: Path) -> str:
    """`enforcing`, `permissive` or `disabled`."""
    value = gpu_node.read_text(root / "sys/fs/selinux/enforce")
    return {"1": "enforcing", "0": "permissive"}.get(value, "disabled")


def headers_offered(run: RunFull, root: Path, names: list[str], proxies: Proxies) -> set[str]:
    """Those of the packages that the node's sources offer, by its own lists or by fresh ones."""
    if not names:
        return set()
    known = _candidates(run, [], names)
    if known == set(names):
        return known
    with tempfile.TemporaryDirectory(prefix="clusterctl-") as directory:
        options = make_view(root, Path(directory), proxy=settings(proxies, root), fresh_lists=True)
        run(["apt-get", *options, "-o", "Acquire::http::Timeout=20", "update"])
        return _candidates(run, options, names)


def rpms_offered(run: RunFull, root: Path, names: list[str], proxies: Proxies) -> set[str]:
    """The same for dnf; of a kernel's packages the names with their release."""
    if not names:
        return set()
    query = ["--quiet", "repoquery", "--available", "--qf", "%{name}|%{name}-%{evr}.%{arch}"]
    with environment(proxies, root) as (dnf, variables):
        settings_ = [f"{name}={value}" for name, value in variables.items()]
        _, output, _ = run(["env", *settings_, *dnf, *query, *names])
    return {name for line in output.splitlines() for name in line.split("|")} & set(names)


def _candidates(run: RunFull, options: list[str], names: list[str]) -> set[str]:
    _, output, _ = run(["apt-cache", *options, "madison", *names])
    return {line.split("|")[0].strip() for line in output.splitlines() if "|" in line}


def collect(root: Path, run: RunFull, parameters: dict[str, Any]) -> dict[str, Any]:
    """Everything that preflight judges, as plain data."""
    rpm = has_rpm(root)
    packages, held = rpm_packages(run, root) if rpm else gpu_node.installed_packages(root)
    system = gpu_node.os_release(root)
    devices = gpu_node.pci_devices(root)
    kernels = gpu_node.kernels(root, os.uname().release, packages)
    without = [kernel for kernel in kernels if not gpu_node.has_headers(root, kernel)]
    proxies = Proxies(*(parameters[name] for name in ("http_proxy", "https_proxy", "no_proxy")))
    urls = parameters["package_sources"]
    direct = {urlsplit(url).hostname or "" for url in urls if not proxies.for_url(url)}
    names = sorted(name for name in direct | set(parameters["dns_names"]) if name)
    form = parameters["compat"]["packages"]["cuda"].get(system["id"], {}).get("headers", "{kernel}")
    wanted = [form.format(kernel=kernel) for kernel in without] if parameters["needs_headers"] else []
    # Debian and Ubuntu have dkms; RHEL has it not.
    wants_dkms = rpm and parameters["needs_headers"] and not parameters["dkms_added"]
    builder = ["dkms"] if wants_dkms and "dkms" not in packages else []
    offered = (rpms_offered if rpm else headers_offered)(run, root, [*wanted, *builder], proxies)
    secure_boot = gpu_node.secure_boot(root)
    key = signing_key(root, os.uname().release)
    return {
        "os": system,
        "kernel": os.uname().release,
        "root": os.geteuid() == 0,
        "hostname_resolves": not unresolved([socket.gethostname()]),
        "unresolved": unresolved(names),
        "unreachable": unreachable(urls, proxies),
        # What the operating system reads besides is the site's own, and may be down for good.
        "unreachable_others": unreachable(others_uris(apt_uris(run), urls), apt_proxies(run, proxies)),
        "free_gb": free_space(root, parameters["disks"]),
        "memlock_kib": unlimited_memlock(),
        "secure_boot": secure_boot,
        "signing_key": {
            "certificate": key.certificate,
            "state": enrolment(run, root, key) if secure_boot == "enabled" else "",
        },
        "gpus": gpu_node.gpus(devices),
        "nvswitches": len(gpu_node.nvswitches(devices)),
        "nvswitch_bridges": len(nvswitch_bridges(root, devices)),
        "rdma_adapters": len(gpu_node.rdma_adapters(devices)),
        "headers_missing": [name for name in wanted if name not in offered],
        "dkms_missing": not set(builder) <= offered,
        "manager": DNF if rpm else APT,
        "firewalls": firewall(run),
        "selinux": selinux(root),
        "others": others(root, packages, run),
        "packages": packages,
        "held": held,
        "loaded": gpu_node.loaded_driver(root),
        "nouveau": gpu_node.module_loaded(root, "nouveau"),
    }
