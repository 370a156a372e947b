"""A result document read from its JSON: typed, within bounds; also what older versions wrote."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, GetPydanticSchema, ValidationError
from pydantic_core.core_schema import no_info_after_validator_function

from clustercheck.model import (
    Coverage,
    Culprit,
    Direction,
    Figure,
    Judged,
    JudgedPart,
    Result,
    Subject,
    Verdict,
)
from clustercheck.parse.document import require_few_values
from clustercheck.parse.python39 import SLOTS, record
from clustercheck.parse.reading import CannotReadError
from clustercheck.result.document import SCHEMA, Document
from clustercheck.result.gc_pause import gc_paused
from clustercheck.result.memory import require_bounded_memory

MAX_BYTES = 1 << 30  # 4,000 nodes of eight GPUs have 860 MB
MAX_TEXT = 1 << 20
MAX_RESULTS = 10_000_000
MAX_FIGURES = 4096
MAX_GPUS = 1024  # of a node: reports draw a cell for each up to the highest number

# As JSON has it: a whole number stays one, and is shown as one; no format has room for a longer one.
Whole = Annotated[int, Field(ge=-(2**64), le=2**64)]
Number = Whole | float
Value = bool | Whole | float | str | None
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0, le=2**64)]
GpuNumber = Annotated[int, Field(ge=0, lt=MAX_GPUS)]


@dataclass(frozen=True, **SLOTS)
class _Subject(Subject):
    gpu: GpuNumber | None = None


@dataclass(frozen=True, **SLOTS)
class _Part(JudgedPart):
    limit: Number
    tolerance: Number


@dataclass(frozen=True, **SLOTS)
class _Figure:
    metric: str
    measured: Annotated[Number, Field(allow_inf_nan=False)]
    unit: str
    better: Direction
    method: str
    conditions: dict[str, Any]
    parts: Annotated[tuple[_Part, ...], Field(max_length=16)]
    efficiency: Share | None = None


def _judged(recorded: _Figure) -> Judged:
    """The figure with its parts, which hold all that is known of its limits."""
    figure = Figure(
        recorded.metric,
        recorded.measured,
        recorded.unit,
        recorded.method,
        better=recorded.better,
        nominal=_nominal(recorded),
        conditions=recorded.conditions,
    )
    return Judged(figure, recorded.parts)


def _nominal(recorded: _Figure) -> float | None:
    """What the efficiency is a part of; of nothing measured, or next to nothing, any that is high enough."""
    if recorded.efficiency is None:
        return None
    return recorded.measured / recorded.efficiency if recorded.efficiency else recorded.measured * 1e6 or 1.0


@record(frozen=True, **SLOTS)
class _Result(Result):
    subject: _Subject
    measured: Value = None
    expected: Value = None
    efficiency: Share | None = None
    evidence: dict[str, Any] = field(default_factory=dict)
    figures: Annotated[
        tuple[
            Annotated[
                Judged,
                GetPydanticSchema(
                    lambda _type, make: no_info_after_validator_function(_judged, make(_Figure))
                ),
            ],
            ...,
        ],
        Field(max_length=MAX_FIGURES),
    ] = ()


@dataclass(frozen=True)
class _Culprit(Culprit):
    node: Annotated[str, BeforeValidator(lambda node: node or "")]


class _Coverage(BaseModel):
    expected: Count
    passed: Annotated[Count, Field(alias="pass")]
    failed: Annotated[Count, Field(alias="fail")]
    not_run: Count
    excluded: Count
    warnings: Annotated[Count, Field(alias="warning")] = 0  # absent before 2026-11-23


class _Document(BaseModel):
    model_config = ConfigDict(str_max_length=MAX_TEXT, strict=True)

    schema_: Annotated[str, Field(alias="schema", pattern=f"^{SCHEMA.rpartition('/')[0]}/")]
    run: str
    started: str
    finished: str
    cluster: str
    suite: str
    verdict: str
    simulated: bool
    coverage: _Coverage
    culprits: Annotated[tuple[_Culprit, ...], Field(max_length=MAX_RESULTS)]
    results: Annotated[tuple[_Result, ...], Field(max_length=MAX_RESULTS)]
    environment: dict[str, Any]


def read(text: bytes | str) -> Document:
    """The document. Raises CannotReadError if it is not one; unknown members are ignored."""
    content = text if isinstance(text, bytes) else text.encode(errors="surrogatepass")
    require_few_values(content)
    require_bounded_memory(content)
    try:
        with gc_paused():
            recorded = _Document.model_validate_json(text)
    except ValidationError as error:
        raise CannotReadError(_reason(error)) from error
    document = Document(
        run=recorded.run,
        started=recorded.started,
        finished=recorded.finished,
        cluster=recorded.cluster,
        suite=recorded.suite,
        coverage=Coverage(**recorded.coverage.model_dump()),
        culprits=recorded.culprits,
        results=tuple(map(_with_waived, recorded.results)),
        environment=recorded.environment,
        simulated=recorded.simulated,
    )
    if document.verdict != recorded.verdict:
        raise CannotReadError(f"its verdict is {recorded.verdict}, by its coverage it is {document.verdict}")
    return document


def _reason(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(map(str, first["loc"]))
    return f"{place}: {first['msg']}" if place else str(first["msg"])


def _with_waived(result: Result) -> Result:
    """What the operator excluded says so by its reason alone in documents of before that flag."""
    if result.verdict is not Verdict.EXCLUDED or result.waived:
        return result
    waived = result.because.startswith("excluded by ") or " is taken out: " in result.because
    return replace(result, waived=True) if waived else result
