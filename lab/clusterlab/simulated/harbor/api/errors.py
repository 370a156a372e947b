"""Refusals in the shape of Harbor's own."""

from __future__ import annotations

CODES = {
    400: "BAD_REQUEST",
    401: "UNAUTHORIZED",
    403: "FORBIDDEN",
    404: "NOT_FOUND",
    405: "METHOD_NOT_ALLOWED",
    409: "CONFLICT",
    412: "PRECONDITION",
    422: "UNPROCESSABLE_ENTITY",
    429: "TOO_MANY_REQUEST",
}


class ApiError(Exception):
    """An answer other than success. Above 500 Harbor keeps what happened to itself."""

    def __init__(self, status: int, message: str, code: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.code = code or CODES.get(status, "UNKNOWN")
        self.message = message if status < 500 else "internal server error"

    @property
    def body(self) -> dict[str, object]:
        """As JSON."""
        return {"errors": [{"code": self.code, "message": self.message}]}


def bad(message: str) -> ApiError:
    """400."""
    return ApiError(400, message)


def missing(message: str) -> ApiError:
    """404."""
    return ApiError(404, message)
