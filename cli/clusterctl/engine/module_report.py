"""What a module of ours says to clusterctl next to its result: `clusterctl` in what it returns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from clusterctl.cluster.untrusted import HostAnswer, Message, Sentence, bounded

MAX_FINDINGS = 500


class ModuleReport(HostAnswer, extra="allow"):
    """``facts`` are for who asked the module; each has a model of its own where it is read."""

    busy: Sentence = ""
    reboot: Sentence = ""
    remedy: Message = ""
    findings: Annotated[list[dict[str, Any]], Field(max_length=MAX_FINDINGS)] = Field(default=[])
    facts: dict[str, Any] = Field(default={})


def _checked(report: Mapping[str, Any]) -> dict[str, Any]:
    """The report, bounded and cleaned. Raises ValueError."""
    return ModuleReport.model_validate(bounded(report)).model_dump(exclude_unset=True)


# The mapping itself, as it came, for the journal and for JSON.
CheckedReport = Annotated[Mapping[str, Any], AfterValidator(_checked)]
