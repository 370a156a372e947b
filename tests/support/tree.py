"""Where the tree under test is."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# How Ansible, and the modules themselves, import what modules share.
UTILS = "ansible_collections.clusterctl.cluster.plugins.module_utils"
