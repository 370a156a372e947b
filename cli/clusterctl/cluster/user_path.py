"""Paths as operators write them."""

from __future__ import annotations

import os
from pathlib import Path


def user_path(text: str | Path) -> Path:
    """The path with ~ and ~USER as homes; as it is where no such user, or no home, is known."""
    return Path(os.path.expanduser(text))  # noqa: PTH111 - pathlib's raises for unknown users
