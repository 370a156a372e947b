"""How an entrance may refuse what comes: with an error that is explained, plain and short."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.support.hostile import require_plain

from clusterctl.errors import ExplainedError

MAX_WORDS = 2000


def explained(call: Callable[[], object]) -> Any:
    """What a call returns; None where it is refused as it must be. Anything else is an AssertionError."""
    try:
        return call()
    except ExplainedError as error:
        assert error.code != "internal.bug"
        require_sentences(error.what, error.where, error.hint)
    except AssertionError:
        raise
    except Exception as error:
        raise AssertionError(f"{type(error).__name__}: {error}"[:MAX_WORDS]) from error
    return None


def require_sentences(*texts: str) -> None:
    """What is said is plain, and not long."""
    require_plain(texts)
    for text in texts:
        assert len(text) <= MAX_WORDS, f"{len(text)} characters"


def seeds(*inputs: bytes) -> Callable[[], list[bytes]]:
    return lambda: list(inputs)
