"""What a node may answer to a launcher; anything else is a failure of that node only."""

from __future__ import annotations

import ipaddress
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from clustercheck.parse.bounded import Bounds
from clustercheck.parse.document import LARGEST, MAX_VALUES
from clustercheck.parse.plain_text import one_line

MAX_MESSAGE = 500  # characters of an error: every check of the job repeats it
MAX_PHASE = 200
MAX_GPUS = 64
MAX_RANKS = 1_000_000

# The node sends the last 8000 bytes of logs and stacks, and 512 KiB of NCCL's log (launch/on_node.py).
Tail = Annotated[str, Field(max_length=16 * 1024)]
NcclLog = Annotated[str, Field(max_length=1024 * 1024)]
Name = Annotated[str, Field(max_length=128)]
Message = Annotated[str, AfterValidator(lambda text: one_line(text, MAX_MESSAGE))]
Phase = Annotated[str, AfterValidator(lambda text: one_line(text, MAX_PHASE))]
Count = Annotated[int, Field(ge=0, le=MAX_GPUS)]
# What `free_ports` binds are never those of root alone.
Port = Annotated[int, Field(ge=1024, le=65535)]
# Linux: IFNAMSIZ is 16 with the terminating zero.
Interface = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:@-]{0,14}$")]


def _require_address(text: str) -> str:
    """An IPv4 address in its usual spelling, as `find_interface` reports it."""
    if str(ipaddress.IPv4Address(text)) != text:
        raise ValueError("is not an IPv4 address in its usual spelling")
    return text


def _require_readable_verdict(verdict: dict[str, Any]) -> dict[str, Any]:
    """The members that the launcher itself reads; what the job's checks read, they judge."""
    kinds = {"because": str, "phase": str, "collective": bool}
    strange = [
        name for name, kind in kinds.items() if name in verdict and not isinstance(verdict[name], kind)
    ]
    if strange:
        raise ValueError(f"its {strange[0]!r} has an unexpected form")
    return verdict


Address = Annotated[str, AfterValidator(_require_address)]
Verdict = Annotated[dict[str, Any], AfterValidator(_require_readable_verdict)]


class Answer(BaseModel):
    """The answer to one kind of request; unknown members are ignored. The limits are of the document."""

    model_config = ConfigDict(strict=True, frozen=True)

    characters: ClassVar[int] = 1024 * 1024
    values: ClassVar[int] = 10_000
    bounds: ClassVar[Bounds] = Bounds(text=16 * 1024, prose={"because": MAX_MESSAGE})


class FrameworkAnswer(Answer):
    """How the image's framework is built, and the GPUs its container sees."""

    version: Name
    cuda: bool
    gpus: Count
    devices: Count | None = None


class PrepareAnswer(Answer):
    """To ``prepare``. ``memlock`` in bytes, -1 for no limit."""

    interface: Interface
    address: Address
    interface_because: Message
    ports: Annotated[tuple[Port, ...], Field(strict=False, max_length=256)]
    memlock: Annotated[int, Field(ge=-1)]
    infiniband: bool
    framework: FrameworkAnswer
    removed: Annotated[tuple[Message, ...], Field(strict=False, max_length=4096)] = ()

    @model_validator(mode="after")
    def _require_ports(self) -> PrepareAnswer:
        needed = 1 + max(1, self.framework.gpus)
        if len(set(self.ports)) != len(self.ports) or len(self.ports) < needed:
            raise ValueError(f"its ports are not {needed} different ones")
        return self


class EmptyAnswer(Answer):
    """To ``stop`` and ``remove``: it was done."""


class StartAnswer(Answer):
    """To ``start``."""

    container: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$")]


class RankEnd(Answer):
    """How a rank ended, as its supervisor saw it."""

    exit_code: Annotated[int, Field(ge=-256, le=256)] | None = None
    order: Annotated[int, Field(ge=0, le=MAX_RANKS)] = 0
    killed: Name = ""
    state: Name = ""


class RankProgress(Answer):
    """The phase that a rank last reported."""

    phase: Phase = "starting"
    collective: bool = False
    counter: Annotated[int, Field(ge=0)] = 0


class RankRecord(Answer):
    """What one rank left behind: verdict, end, progress and logs."""

    verdict: Verdict | None = None
    end: RankEnd | None = None
    progress: RankProgress | None = None
    stack: Tail = ""
    log_tail: Tail = ""
    nccl_log: NcclLog = ""


class WaitAnswer(Answer):
    """To ``wait``."""

    characters: ClassVar[int] = LARGEST
    values: ClassVar[int] = MAX_VALUES
    bounds: ClassVar[Bounds] = Bounds(
        text=64 * 1024,
        # What programs printed: jobs/nccl_tests.py and jobs/run_check.py send as much.
        long_texts={"nccl_log": 1024 * 1024, "text": 1024 * 1024, "json": 1024 * 1024},
        prose={"because": MAX_MESSAGE},
    )

    exit_code: Annotated[int, Field(ge=-256, le=256)] | None = None
    out_of_memory: bool = False
    log_tail: Tail = ""
    ranks: Annotated[dict[str, RankRecord], Field(max_length=MAX_GPUS)] = {}


def describe_error(error: ValidationError) -> str:
    """The first error, briefly."""
    first = error.errors(include_url=False, include_input=False)[0]
    return one_line(f"{'.'.join(map(str, first['loc']))}: {first['msg']}", 200)
