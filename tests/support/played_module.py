"""An Ansible module whose answers are played: what its code needs of AnsibleModule, and how it ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest


class Ended(Exception):
    """A module has ended, with its result."""


class PlayedModule:
    """As far as a module's code knows Ansible's. ``warned`` are its warnings."""

    def __init__(self, params: Mapping[str, Any] | None = None, *, check_mode: bool = False) -> None:
        self.params: dict[str, Any] = dict(params or {})
        self.check_mode = check_mode
        self.warned: list[str] = []

    def warn(self, text: str) -> None:
        self.warned.append(text)

    def exit_json(self, **result: Any) -> None:
        raise Ended(result)

    def fail_json(self, **result: Any) -> None:
        raise Ended({"failed": True, **result})


def result_of(part: Callable[..., object], *given: Any, **named: Any) -> dict[str, Any]:
    """The result with which a module, or a part of one, ends."""
    with pytest.raises(Ended) as ended:
        part(*given, **named)
    result: dict[str, Any] = ended.value.args[0]
    return result
