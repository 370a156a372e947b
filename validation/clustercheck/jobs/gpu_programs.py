"""Several programs for one device, one after the other in one process: its start is needed only once."""

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

    The verdict so far is written after each program: one that crashes or hangs does not affect earlier ones.
    """
    done: dict[str, Any] = {}
    for each in arguments["programs"]:
        name = each["program"]
        bench.set_program(each["job"])
        try:
            module = importlib.import_module(f"{__package__}.{name}" if __package__ else name)
            takes_node = getattr(module, "WHOLE_NODE", False)
            with bench.take_node() if takes_node else bench.use_device():
                done[each["job"]] = module.run(bench, each["arguments"])
        except Exception as error:  # noqa: BLE001 - the verdict has it; the next program runs
            traceback.print_exc()
            done[each["job"]] = {
                "ok": False,
                "because": bench.describe_error(error),
                "raised": type(error).__name__,
            }
        bench.keep({"programs": done})
    return {"ok": all(verdict["ok"] for verdict in done.values()), "because": "", "programs": done}
