"""The one shape in which this project says what went wrong."""

from __future__ import annotations

EXIT_GOOD = 0
EXIT_CLUSTER_BAD = 1
EXIT_USAGE = 2
EXIT_INCOMPLETE = 3
EXIT_INTERRUPTED = 130


class ExplainedError(Exception):
    """An error a person can act on: what happened, where, and what to do.

    ``code`` is stable and documented (``area.kind``, lower case with hyphens). ``exit_code`` is one of
    the five documented exit codes of the program.
    """

    def __init__(
        self,
        what: str,
        *,
        code: str,
        where: str = "",
        hint: str = "",
        exit_code: int = EXIT_USAGE,
    ) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.hint = hint
        self.code = code
        self.exit_code = exit_code
