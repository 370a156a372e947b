# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE)
"""What clusterctl itself did to a node's driver: so that it undoes only its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ansible_collections.clusterctl.cluster.plugins.module_utils.node_files import replace_file

RECORD = Path("var/lib/clusterctl/nvidia_driver.json")


def read_record(root: Path) -> dict[str, Any]:
    """`packages` that we installed and `held` that we hold; empty where we never installed a driver."""
    try:
        record = json.loads((root / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def write_record(root: Path, packages: set[str], held: set[str]) -> None:
    """Replaces the record in one step."""
    content = json.dumps({"packages": sorted(packages), "held": sorted(held)}, indent=1) + "\n"
    replace_file(root / RECORD, content, 0o644)
