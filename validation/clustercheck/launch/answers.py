"""What a node may answer to a launcher; anything else is a failure of that node only."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

# The largest is NCCL's log of its transports, 512 KiB (launch/on_node.py).
Line = Annotated[str, Field(max_length=4096)]
Text = Annotated[str, Field(max_length=2 * 1024 * 1024)]
Port = Annotated[int, Field(ge=1, le=65535)]


class Answer(BaseModel):
    """The answer to one kind of request; unknown members are ignored."""

    model_config = ConfigDict(strict=True, frozen=True)


class FrameworkAnswer(Answer):
    """How the image's framework is built, and the GPUs its container sees."""

    model_config = ConfigDict(strict=True, frozen=True, extra="allow")

    version: Line
    cuda: bool
    gpus: Annotated[int, Field(ge=0, le=64)]
    devices: Annotated[int, Field(ge=0, le=64)] | None = None


class PrepareAnswer(Answer):
    """To ``prepare``. ``memlock`` in bytes, -1 for no limit."""

    interface: Line
    address: Line
    interface_because: Line
    ports: Annotated[tuple[Port, ...], Field(strict=False, max_length=256)]
    memlock: int
    infiniband: bool
    framework: FrameworkAnswer
    removed: Annotated[tuple[Text, ...], Field(strict=False, max_length=4096)] = ()


class EmptyAnswer(Answer):
    """To ``stop`` and ``remove``: it was done."""


class StartAnswer(Answer):
    """To ``start``."""

    container: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$")]
    directory: Line


class RankEnd(Answer):
    """How a rank ended, as its supervisor saw it."""

    model_config = ConfigDict(strict=True, frozen=True, extra="allow")

    exit_code: int | None = None
    order: int = 0
    killed: Line = ""
    state: Line = ""


class RankProgress(Answer):
    """The phase that a rank last reported."""

    model_config = ConfigDict(strict=True, frozen=True, extra="allow")

    phase: Line = "starting"
    collective: bool = False
    counter: int = 0


class RankRecord(Answer):
    """What one rank left behind: verdict, end, progress and logs."""

    verdict: dict[str, Any] | None = None
    end: RankEnd | None = None
    progress: RankProgress | None = None
    stack: Text = ""
    log_tail: Text = ""
    nccl_log: Text = ""


class WaitAnswer(Answer):
    """To ``wait``."""

    exit_code: int | None = None
    out_of_memory: bool = False
    log_tail: Text = ""
    ranks: dict[str, RankRecord] = {}


def describe_error(error: ValidationError) -> str:
    """The first error, briefly."""
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"[:200]
