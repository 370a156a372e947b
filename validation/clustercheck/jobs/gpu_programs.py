"""Several programs for one device, one after the other in one process: what starting costs is paid once."""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clustercheck.jobs import bench as benches

ALONE = True


def run(bench: benches.Bench, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments: programs, each with its ``job``, ``program`` and ``arguments``. Verdicts are kept by job.

    After each one the verdict so far is left behind: a program that crashes or hangs costs no other its own.
    """
    done: dict[str, Any] = {}
    for each in arguments["programs"]:
        name = each["program"]
        bench.entitle(each["job"])
        try:
            module = importlib.import_module(f"{__package__}.{name}" if __package__ else name)
            whole = getattr(module, "WHOLE_NODE", False)
            with bench.whole_node() if whole else bench.in_use():
                done[each["job"]] = module.run(bench, each["arguments"])
        except Exception as error:  # noqa: BLE001 - whatever it was, the next program says for itself
            traceback.print_exc()
            done[each["job"]] = {"ok": False, "because": bench.blames(error), "raised": type(error).__name__}
        bench.keep({"programs": done})
    return {"ok": all(verdict["ok"] for verdict in done.values()), "because": "", "programs": done}
