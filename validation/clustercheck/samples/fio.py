"""What fio says of healthy storage: the keys that are read, as fio 3.33 writes them; figures made up."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

SIZE_BYTES = 1 << 30


def fio_text(write_gbps: float, read_gbps: float) -> str:
    """fio's document of one group of files, written and read back."""

    def part(gbps: float) -> dict[str, Any]:
        return {
            "io_bytes": SIZE_BYTES, "io_kbytes": SIZE_BYTES >> 10, "bw_bytes": int(gbps * 1e9),
            "bw": int(gbps * 1e9) >> 10, "runtime": int(SIZE_BYTES / gbps / 1e6),
            "total_ios": SIZE_BYTES >> 20,
        }  # fmt: skip

    job = {
        "jobname": "clusterctl",
        "groupid": 0,
        "error": 0,
        "read": part(read_gbps),
        "write": part(write_gbps),
    }
    return json.dumps({"fio version": "fio-3.33", "timestamp": 1795527452, "jobs": [job]})


def storage_verdict(rank: int, nodes: Sequence[str]) -> Mapping[str, Any]:
    """What a node's rank says of a shared and a local file system."""
    ran = {"exit_code": 0, "limit_s": 120.0, "text": "", "command": "fio", "unable": "", "direct": True}
    near = 1 + (rank % 8) / 100
    return {
        "rank": rank, "world": len(nodes), "interface": "eth0", "simulated": False, "ok": True, "because": "",
        "without": "",
        "places": {
            "/data": {**ran, "json": fio_text(0.9 * near, 1.1 * near)},
            "/scratch": {**ran, "json": fio_text(1.8 * near, 2.9 * near)},
        },
    }  # fmt: skip
