"""What the fields of a declared object may hold: names, sizes, times and addresses as Harbor takes them."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from clusterctl.cluster.record import Record

NAME = r"^[a-z0-9]+(?:[._-][a-z0-9]+)*$"
# A robot's name as Harbor shows it: a prefix that the administrator chooses, a project's name, its own name.
# Of prefixes none that a shell, the options of a program or a URL would read as something else.
ROBOT_KEY = re.compile(r"(?:[a-z0-9]+(?:[._-][a-z0-9]+)*\+)?[a-z0-9]+(?:[._-][a-z0-9]+)*", re.ASCII)
ROBOT_PREFIX = re.compile(r"(?:[A-Za-z0-9_$][A-Za-z0-9_$.@+-]{0,63})?", re.ASCII)
MAX_ROBOT_KEY = 511
UNLIMITED = -1
UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
CRON_FIELDS = 6


def _quota(value: Any) -> Any:
    """``unlimited``, a number of bytes, or a size such as 500G."""
    if isinstance(value, str):
        if value == "unlimited":
            return UNLIMITED
        match = re.fullmatch(r"([0-9]+)([KMGT]?)(?:i?B)?", value)
        if not match:
            raise ValueError("write unlimited, or a size such as 500G")
        return int(match[1]) * UNITS[match[2]]
    return value


def size_words(size: int) -> str:
    """A quota as one writes it: in the largest unit that it is a multiple of."""
    if size == UNLIMITED:
        return "unlimited"
    unit = next(word for word, many in reversed(UNITS.items()) if size % many == 0)
    return f"{size // UNITS[unit]}{unit}"


def _some(quota: int) -> int:
    """Harbor takes 0 for "as the site's default"."""
    if quota < UNLIMITED or not quota:
        raise ValueError("write unlimited, or a size such as 500G")
    return quota


def _cron(text: str) -> str:
    """Harbor's cron has six fields, and the seconds must be 0."""
    if text and (len(text.split(" ")) != CRON_FIELDS or not text.startswith("0 ")):
        raise ValueError("write six fields with one space between, the first (seconds) 0: 0 0 3 * * 0")
    return text


def _url(text: str) -> str:
    if not re.match(r"https?://[^/\s]+", text):
        raise ValueError("write an address that starts with https:// or http://")
    return text.rstrip("/")


Name = Annotated[str, Field(pattern=NAME, max_length=255)]
Cron = Annotated[str, AfterValidator(_cron)]
Url = Annotated[str, AfterValidator(_url)]
Quota = Annotated[int, BeforeValidator(_quota), AfterValidator(_some)]


def is_robot_key(key: str) -> bool:
    """Whether it is a robot's name without Harbor's prefix, as Harbor forms it."""
    return len(key) <= MAX_ROBOT_KEY and ROBOT_KEY.fullmatch(key) is not None


class Declaration(Record):
    """What an operator declares of Harbor."""

    def undeclared(self, name: str) -> str:
        """Why nothing of this field is pruned: nobody wrote it, and none is not the same as an empty one."""
        return "" if name in self.model_fields_set else f"{name} is not written, not even as []"
