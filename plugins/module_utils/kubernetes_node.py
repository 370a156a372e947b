# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE)
"""Whether a host is a node of Kubernetes: its kubelet manages containers and cgroups, too."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from ansible_collections.clusterctl.cluster.plugins.module_utils.gpu_node import read_text
from ansible_collections.clusterctl.cluster.plugins.module_utils.processes import is_of

ROOT = 0

# Processes that are a kubelet, of kubeadm, MicroK8s, k3s and RKE2.
KUBELETS = frozenset({"kubelet", "kubelite", "k3s-server", "k3s-agent", "k3s", "rke2"})
# What kubeadm leaves where a kubelet is to run, now or later.
TRACES = ("var/lib/kubelet/config.yaml", "etc/kubernetes/kubelet.conf")


def trace_of_kubelet(root: Path = Path("/")) -> str:
    """What shows that a kubelet runs on this host, or is set up to: a file or a process; empty if nothing."""
    for trace in TRACES:
        if (root / trace).exists():
            return f"/{trace}"
    found = set()
    for path in (root / "proc").glob("[0-9]*/comm"):
        name = read_text(path).strip()
        with suppress(OSError):  # it has just ended
            if name in KUBELETS and is_of(path.parent, ROOT):
                found.add(name)
    return min(found, default="")


def has_kubelet(root: Path = Path("/")) -> bool:
    """Whether a kubelet runs on this host, or is set up to."""
    return bool(trace_of_kubelet(root))
