"""Clearing a fault releases what was there, and says so where it cannot: the scripts run here, on files."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clusterlab import faults
from clusterlab.faults.base import FaultTarget
from clusterlab.images.training import PACKAGE_DIRECTORY

# What scripts name by its path; here it lies under a directory of the test's own.
PLACES = ("/dev/nvidia", "/run/faults", "/etc/resolv.conf", "/etc/docker", "/var/lib/clusterlab")
RESOLVER = "nameserver 10.87.1.2\noptions ndots:1\n"


class Here(FaultTarget):
    """This machine as the node: the test's own programs come before its own."""

    @property
    def root(self) -> Path:
        return self.hardware_file

    def is_running(self) -> bool:
        return True

    def exec(
        self, argv: Sequence[str], stdin: str = "", timeout_s: float = 60, *, check: bool = True
    ) -> subprocess.CompletedProcess[bytes]:
        words = list(argv)
        for place in PLACES:
            words = [word.replace(place, f"{self.root}{place}") for word in words]
        path = f"{self.root}/bin:{os.environ['PATH']}"
        return subprocess.run(
            words,
            input=stdin.encode(),
            capture_output=True,
            timeout=timeout_s,
            check=check,
            env={**os.environ, "PATH": path},
        )

    def program(self, name: str, script: str) -> None:
        """Have a program of that name do this."""
        program = self.root / "bin" / name
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)


@pytest.fixture
def here(tmp_path: Path) -> Here:
    for place in ("bin", "dev", "etc", "run"):
        (tmp_path / place).mkdir()
    return Here("gpu01", "none", tmp_path, peer="gpu02", peer_address="10.87.1.12")


# --- device-files-closed

MODES = {"nvidia0": 0o666, "nvidia1": 0o640, "nvidia12": 0o600, "nvidiactl": 0o666}


def modes(here: Here) -> dict[str, int]:
    return {path.name: path.stat().st_mode & 0o777 for path in (here.root / "dev").iterdir()}


def with_devices(here: Here) -> Here:
    for name, mode in MODES.items():
        (here.root / "dev" / name).touch()
        (here.root / "dev" / name).chmod(mode)
    return here


def test_device_files_have_the_modes_again_that_each_had(here: Here) -> None:
    fault = faults.known()["device-files-closed"]
    fault.inject(with_devices(here))
    assert modes(here) == {name: 0o660 if name != "nvidiactl" else 0o666 for name in MODES}
    fault.inject(here)  # what is kept is from before the first
    fault.clear(here)
    assert modes(here) == MODES
    (here.root / "dev/nvidia1").chmod(0o604)  # somebody's own, since
    fault.clear(here)
    assert modes(here) == {**MODES, "nvidia1": 0o604}


def test_a_device_that_went_away_meanwhile_hinders_no_other(here: Here) -> None:
    fault = faults.known()["device-files-closed"]
    fault.inject(with_devices(here))
    (here.root / "dev/nvidia0").unlink()
    fault.clear(here)
    assert modes(here) == {name: mode for name, mode in MODES.items() if name != "nvidia0"}


def test_a_mode_that_cannot_be_given_back_is_said_and_can_be_tried_again(here: Here) -> None:
    fault = faults.known()["device-files-closed"]
    fault.inject(with_devices(here))
    here.program("chmod", "exit 1")
    with pytest.raises(subprocess.CalledProcessError):
        fault.clear(here)
    (here.root / "bin/chmod").unlink()
    fault.clear(here)
    assert modes(here) == MODES


def test_where_there_is_no_device_none_is_closed(here: Here) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        faults.known()["device-files-closed"].inject(here)
    faults.known()["device-files-closed"].clear(here)


# --- dns-broken


def test_the_resolver_that_was_there_is_there_again(here: Here) -> None:
    fault, file = faults.known()["dns-broken"], here.root / "etc/resolv.conf"
    file.write_text(RESOLVER)
    for _ in range(2):
        fault.inject(here)
    assert "192.0.2.53" in file.read_text()
    for _ in range(2):
        fault.clear(here)
    assert file.read_text() == RESOLVER
    assert list((here.root / "etc").iterdir()) == [file]


def test_a_resolver_that_nobody_kept_is_not_lost_in_silence(here: Here) -> None:
    fault, file = faults.known()["dns-broken"], here.root / "etc/resolv.conf"
    file.write_text(RESOLVER)
    fault.inject(here)
    broken = file.read_text()
    (here.root / "etc/resolv.conf.before-fault").unlink()
    with pytest.raises(subprocess.CalledProcessError):
        fault.clear(here)
    assert file.read_text() == broken


# --- options of Docker

DAEMON = {
    "exec-opts": ["native.cgroupdriver=cgroupfs", "another=one"],
    "default-ulimits": {"memlock": {"Name": "memlock", "Soft": -1, "Hard": -1}},
    "registry-mirrors": ["https://registry01"],
}
OPTIONS = {"files-limited": "default-ulimits", "cgroup-driver-systemd": "exec-opts"}


def with_docker(here: Here, options: Mapping[str, Any]) -> Path:
    here.program("systemctl", "exit 0")
    file = here.root / "etc/docker/daemon.json"
    file.parent.mkdir()
    file.write_text(json.dumps(options, indent=2) + "\n")
    return file


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("order", [list(OPTIONS), list(OPTIONS)[::-1]])
def test_options_of_docker_are_byte_by_byte_as_before_in_whatever_order(
    here: Here, order: list[str], there: bool
) -> None:
    file = with_docker(here, DAEMON if there else {"debug": False})
    before, targets = file.read_text(), {kind: replace(here, undo={}) for kind in order}
    for kind in [*OPTIONS, *OPTIONS]:
        faults.known()[kind].inject(targets[kind])
    assert json.loads(file.read_text()) == {
        **json.loads(before),
        "exec-opts": [*(["another=one"] if there else []), "native.cgroupdriver=systemd"],
        "default-ulimits": {
            **(DAEMON["default-ulimits"] if there else {}),
            "nofile": {"Name": "nofile", "Soft": 1024, "Hard": 1024},
        },
    }
    for kind in [*order, *order]:
        faults.known()[kind].clear(targets[kind])
    assert file.read_text() == before


@pytest.mark.parametrize("kind", OPTIONS)
def test_an_option_that_was_changed_since_is_kept(here: Here, kind: str) -> None:
    file = with_docker(here, DAEMON)
    faults.known()[kind].inject(here)
    since = {**json.loads(file.read_text()), OPTIONS[kind]: ["set by an apply"]}
    file.write_text(json.dumps(since))
    faults.known()[kind].clear(here)
    assert json.loads(file.read_text()) == since


# --- what is laid into the training image


@pytest.mark.parametrize("kind", ["sums-wrong", "rank-raises", "samples-repeated"])
def test_a_spoiled_image_is_whole_again_where_docker_is_stopped_too(here: Here, kind: str) -> None:
    packages = Path(f"{here.root}/layer{PACKAGE_DIRECTORY}")
    packages.mkdir(parents=True)
    (packages / "own.py").touch()
    here.program("docker", f'[ "$2" = ls ] && echo 0123abcd || echo {here.root}/layer')
    faults.known()[kind].inject(here)
    assert len(list(packages.iterdir())) == 3
    here.program("docker", "echo 'Cannot connect to the Docker daemon' >&2; exit 1")
    for _ in range(2):
        faults.known()[kind].clear(here)
    assert [path.name for path in packages.iterdir()] == ["own.py"]
    with pytest.raises(subprocess.CalledProcessError):
        faults.known()[kind].inject(here)


# --- what a program of the node must do

SAYS_RULE = 'case "$*" in *-S*) exit 0 ;; *-C*) [ -e {there} ] ;; *-D*) rm {there} ;; esac'


@pytest.mark.parametrize("kind", ["firewall", "packet-loss", "pair-slow"])
def test_rules_are_taken_out_as_often_as_they_are_there(here: Here, kind: str) -> None:
    here.program("tc", "exit 0")
    there = here.root / "there"
    there.touch()
    here.program("iptables", SAYS_RULE.format(there=there))
    for _ in range(2):
        faults.known()[kind].clear(here)
    assert not there.exists()


@pytest.mark.parametrize(
    ("kind", "program"),
    [
        ("firewall", "iptables"),
        ("packet-loss", "iptables"),
        ("pair-slow", "iptables"),
        ("link-cut", "ip"),
        ("rank-crash", "systemctl"),
        ("clock-skew", "python3"),
    ],
)
def test_what_cannot_be_taken_back_is_said(here: Here, kind: str, program: str) -> None:
    here.program("tc", "exit 0")
    here.program(program, "exit 4")
    with pytest.raises(subprocess.CalledProcessError):
        faults.known()[kind].clear(here)


def told(here: Here, program: str, answers: str) -> Callable[[], list[str]]:
    """Have a program answer, and return how to learn what it was told."""
    log = here.root / "told"
    log.touch()
    here.program(program, f'echo "$@" >> {log}\n{answers}')
    return lambda: log.read_text().splitlines()


@pytest.mark.parametrize("there", [True, False])
def test_a_route_is_taken_out_where_it_is(here: Here, there: bool) -> None:
    said = "unreachable 10.87.1.12" if there else ""
    asked = told(here, "ip", f'[ "$2" = del ] || echo "{said}"')
    faults.known()["link-cut"].clear(here)
    assert ("route del unreachable 10.87.1.12/32" in asked()) is there


@pytest.mark.parametrize(("state", "stopped"), [("loaded", True), ("not-found", False)])
def test_an_ambush_is_ended_where_one_is_laid(here: Here, state: str, stopped: bool) -> None:
    asked = told(here, "systemctl", f'[ "$1" = stop ] || echo {state}')
    faults.known()["rank-crash"].clear(here)
    assert any(line.startswith("stop ") for line in asked()) is stopped
