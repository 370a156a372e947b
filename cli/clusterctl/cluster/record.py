"""What is read from a file of ours, or written to one."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """Nothing else than what is known may stand in it, and nothing changes afterwards."""

    model_config = ConfigDict(extra="forbid", frozen=True)
