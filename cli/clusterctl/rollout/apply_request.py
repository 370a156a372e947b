"""What an apply is asked for, and whoever asks for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from clusterctl.cluster.access import Passwords
from clusterctl.rollout.parts import Asked
from clusterctl.rollout.preflight import PreflightReport
from clusterctl.rollout.session import WaveLimits
from clusterctl.rollout.waiting import Wait
from clusterctl.rollout.waves import WavePlan


@dataclass(frozen=True)
class ApplyRequest:
    """``cluster`` is the directory that was named, if any; ``wait`` is for hosts that are in use."""

    cluster: Path | None
    asked: Asked = field(default_factory=Asked)
    canaries: int = 1
    limits: WaveLimits = field(default_factory=WaveLimits)
    offline: bool = False
    wait: Wait = field(default_factory=Wait)
    as_json: bool = False
    passwords: Passwords = field(default_factory=Passwords)


@dataclass(frozen=True)
class Caller:
    """What the caller sees and decides before hosts are changed; by default it agrees to everything."""

    show: Callable[[PreflightReport], None] = lambda _report: None
    confirm: Callable[[WavePlan], bool] = lambda _plan: True
