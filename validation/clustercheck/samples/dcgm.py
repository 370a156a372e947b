"""What `dcgmi diag -r 2 -j` prints, in the forms of DCGM 4 and DCGM 3, written by hand.

After DCGM's own sources (dcgmi/Diag.cpp: HelperJsonBuildOutput, and the output of release 3.3).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

GOOD: Mapping[int, str] = {}
WARNING = "Memory test of this GPU did not end as it should."


def dcgm4_text(gpus: int, memory: Mapping[int, str] = GOOD) -> str:
    """DCGM 4's output; ``memory`` has GPUs whose memory test ended with another word than Pass."""
    worst = next((word for word in ("Fail", "Warn") if word in memory.values()), "Pass")

    def test(name: str, words: Mapping[int, str], summary: str) -> dict[str, Any]:
        results: list[dict[str, Any]] = []
        for gpu in range(gpus):
            word = words.get(gpu, "Pass")
            results.append({"entity_group": "GPU", "entity_group_id": 1, "entity_id": gpu, "status": word})
            if word != "Pass":
                results[-1]["warnings"] = [
                    {"error_category": 8, "error_id": 29, "error_severity": 2, "warning": WARNING}
                ]
        return {"name": name, "results": results, "test_summary": {"status": summary}}

    categories = [
        {"category": "Deployment", "tests": [test("software", GOOD, "Pass")]},
        {"category": "Hardware", "tests": [test("memory", memory, worst)]},
    ]
    document = {
        "DCGM Diagnostic": {"test_categories": categories},
        "entity_groups": [],
        "metadata": {"Driver Version Detected": "580.95.05", "version": "4.2.3"},
    }
    return json.dumps(document, indent=2)


def dcgm3_text(gpus: int, memory: Mapping[int, str] = GOOD) -> str:
    """DCGM 3's output; a GPU's number is a text there."""
    results = [
        {
            "gpu_id": str(gpu),
            "status": word,
            **({} if word == "Pass" else {"warnings": [{"warning": WARNING}]}),
        }
        for gpu, word in ((gpu, memory.get(gpu, "Pass")) for gpu in range(gpus))
    ]
    categories = [
        {"category": "Deployment", "tests": [{"name": "Denylist", "results": [{"status": "Pass"}]}]},
        {"category": "Hardware", "tests": [{"name": "GPU Memory", "results": results}]},
    ]
    document = {
        "DCGM GPU Diagnostic": {"test_categories": categories},
        "Driver Version Detected": "580.95.05",
        "version": "3.3.9",
    }
    return json.dumps(document, indent=2)
