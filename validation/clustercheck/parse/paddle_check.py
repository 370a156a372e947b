"""What ``paddle.utils.run_check()`` prints [Paddle 2.6 to 3.3, python/paddle/utils/install_check.py]."""

from __future__ import annotations

import re
from dataclasses import dataclass

from clustercheck.parse.reading import CannotReadError

_WORKS = re.compile(r"^PaddlePaddle works well on (\d{1,6}) (CPU|GPU|XPU)s?\.\s*$", re.MULTILINE)
_GOOD = re.compile(r"^PaddlePaddle is installed successfully!", re.MULTILINE)
_SINGLE = re.compile(r"^PaddlePaddle is installed successfully ONLY for single", re.MULTILINE)


@dataclass(frozen=True)
class PaddleCheck:
    """On how many devices of which kind Paddle worked; ``alone``: on one, and not on all of them together."""

    device: str
    devices: int
    alone: bool


def parse_run_check(text: str) -> PaddleCheck:
    """Read it. Raises CannotReadError where it does not say that Paddle worked on something."""
    worked = _WORKS.findall(text)
    alone = _SINGLE.search(text) is not None
    if not worked or not (alone or _GOOD.search(text)):
        raise CannotReadError("run_check does not say on what Paddle works")
    if len({device for _, device in worked}) > 1:
        raise CannotReadError("run_check names devices of two kinds")
    return PaddleCheck(worked[-1][1], max(int(count) for count, _ in worked), alone)
