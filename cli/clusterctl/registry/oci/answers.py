"""What registries answer in JSON: models with bounds, and why a document is none of them."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from clustercheck.parse.plain_text import one_line

MAX_BLOB_BYTES = 1 << 50
LONG_TEXT = 8192

Digest = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
Size = Annotated[int, Field(ge=0, le=MAX_BLOB_BYTES)]
# Cleaned on arrival: it may be shown, or written into a file of ours.
Word = Annotated[str, AfterValidator(lambda text: one_line(text, 300))]
LongText = Annotated[str, AfterValidator(lambda text: one_line(text, LONG_TEXT))]


class Answer(BaseModel):
    """A document of others: what is not read of it may be anything, and nothing changes afterwards."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)


def reason(error: ValidationError) -> str:
    """Where a document differs from its model, and how; without what stands there."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    place = one_line(".".join(map(str, first["loc"])), 100)
    return one_line(f"{place}: {first['msg']}" if place else first["msg"])
