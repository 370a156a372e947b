"""What faults do to a host: nothing where it is off, and nothing to what is another party's."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from clusterctl.errors import ClusterctlError
from clusterlab import docker, faults
from clusterlab.fault_book import require_kind
from clusterlab.faults.base import FaultTarget


class Link(FaultTarget):
    """A node whose tc says one root discipline, and remembers what it was told."""

    def exec(
        self, argv: Sequence[str], stdin: str = "", timeout_s: float = 60, *, check: bool = True
    ) -> subprocess.CompletedProcess[bytes]:
        if "show" in argv:
            return subprocess.CompletedProcess(argv, 0, self.undo["said"].encode(), b"")
        self.undo["told"] = " ".join(argv)
        return subprocess.CompletedProcess(argv, 0, b"", b"")

    def is_running(self) -> bool:
        return True


def a_link(said: str) -> Link:
    return Link("gpu01", "none", Path("none"), undo={"said": said})


@pytest.mark.parametrize(
    ("said", "ours"),
    [
        ("qdisc noqueue 0: root refcnt 2", True),
        ("", True),
        ("qdisc tbf c1ab: root refcnt 2 rate 100Mbit burst 4Kb lat 50ms", True),
        ("qdisc tbf 8001: root refcnt 2 rate 1Gbit burst 4Kb lat 50ms", False),
    ],
)
def test_a_slow_link_never_replaces_what_an_operator_has_set_up(said: str, ours: bool) -> None:
    link = a_link(said)
    if ours:
        require_kind("slow-link").inject(link)
        assert "root handle c1ab: tbf rate 100mbit" in link.undo["told"]
    else:
        with pytest.raises(ClusterctlError, match="8001:") as caught:
            require_kind("slow-link").inject(link)
        assert caught.value.code == "lab.link-shaped"
        assert "told" not in link.undo
    link = a_link(said)
    require_kind("slow-link").clear(link)
    assert link.undo.get("told") == ("tc qdisc del dev eth0 root handle c1ab:" if "c1ab:" in said else None)


class Engine:
    """Answers what faults ask of a host; says what it was told to do."""

    def __init__(
        self, *, running: bool = True, paused: bool = False, codes: Mapping[str, int] | None = None
    ) -> None:
        self.state = {"Running": running, "Paused": paused}
        self.codes = codes or {}
        self.told: list[str] = []

    def inspect(self, _kind: str, _names: Sequence[str]) -> list[dict[str, Any]]:
        return [{"State": self.state}]

    def run(self, arguments: Sequence[str]) -> None:
        self.told.append(arguments[0])

    def execute(
        self, _container: str, argv: Sequence[str], *, check: bool = True, **_more: Any
    ) -> subprocess.CompletedProcess[bytes]:
        said = " ".join(argv)
        code = next((code for words, code in self.codes.items() if words in said), 0)
        assert code == 0 or not check
        self.told.append(said)
        return subprocess.CompletedProcess(argv, code, b"", b"")


# What these do, they do on the host alone: hardware.json is not touched.
HOST_FAULTS = sorted(
    {kind for kind, fault in faults.known().items() if fault.scope != "gpu"}
    - {
        "node-down",
        "node-hung",
        "driver-version-skew",
        "fabricmanager-version-skew",
        "toolkit-broken",
        "sxid",
        "adapter-power-low",
        "nvswitch-missing",
    }
)


def engine_target(monkeypatch: pytest.MonkeyPatch, engine: Engine) -> FaultTarget:
    for name in ("inspect", "run", "execute"):
        monkeypatch.setattr(docker, name, getattr(engine, name))
    return FaultTarget("gpu01", "container", Path("/nowhere"))


@pytest.mark.parametrize("kind", HOST_FAULTS)
def test_clearing_touches_nothing_on_a_host_that_is_off(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(running=False)
    require_kind(kind).clear(engine_target(monkeypatch, engine))
    assert engine.told == []


@pytest.mark.parametrize(("paused", "told"), [(True, ["unpause"]), (False, [])])
def test_a_host_that_was_restarted_hangs_no_more(
    monkeypatch: pytest.MonkeyPatch, paused: bool, told: list[str]
) -> None:
    engine = Engine(paused=paused)
    require_kind("node-hung").clear(engine_target(monkeypatch, engine))
    assert engine.told == told


@pytest.mark.parametrize(
    ("kind", "codes", "expected"),
    [
        ("registry-down", {"systemctl cat": 1}, "lab.no-registry"),
        ("clock-skew", {"[ ! -e": 1}, "lab.program-taken"),
    ],
)
def test_what_is_not_there_or_somebody_elses_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, kind: str, codes: dict[str, int], expected: str
) -> None:
    engine = Engine(codes=codes)
    with pytest.raises(ClusterctlError) as caught:
        require_kind(kind).inject(engine_target(monkeypatch, engine))
    assert caught.value.code == expected
    assert all(said.startswith(("systemctl cat ", "sh -c [ ! -e")) for said in engine.told), engine.told


def test_of_a_registry_host_the_service_that_is_there_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(codes={"cat clusterctl-registry": 1})
    target = engine_target(monkeypatch, engine)
    require_kind("registry-down").inject(target)
    require_kind("registry-down").clear(target)
    assert [said for said in engine.told if "cat" not in said] == [
        "systemctl stop harbor.service", "systemctl start harbor.service",
    ]  # fmt: skip
