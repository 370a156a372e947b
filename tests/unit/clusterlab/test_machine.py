"""Whether a lab fits on a machine, and what the machine's capabilities mean for its containers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterlab.limits import A_NODE, raised_limit
from clusterlab.machine import (
    CAPABILITIES,
    Demand,
    Disk,
    HostMachine,
    Purpose,
    available_memory_mb,
    bounding_set,
    capability_flags,
    look,
    refusal,
    wanted_mb,
)
from clusterlab.nodes import server_flags

PLACES: dict[Purpose, Path] = {
    "engine": Path("/var/lib/docker"),
    "cache": Path("/root/.cache/clusterctl-lab"),
    "temporary": Path("/var/tmp"),
    "lab": Path("/srv/clone/.lab"),
}


def one_disk(free_mb: int) -> tuple[Disk, ...]:
    return tuple(Disk(purpose, str(path), 1, free_mb) for purpose, path in PLACES.items())


def with_small(purpose: Purpose, free_mb: int) -> tuple[Disk, ...]:
    """Every place on a file system of its own; that of ``purpose`` is small."""
    return tuple(
        Disk(name, str(path), device, free_mb if name == purpose else 100_000)
        for device, (name, path) in enumerate(PLACES.items())
    )


ROOMY = HostMachine(root=True, missing_packages=(), disks=one_disk(100_000), memory_available_mb=16_000)
TWO_NODES = Demand(new_hosts=3, images_cached=False)


def test_an_ordinary_machine_is_not_refused() -> None:
    assert refusal(ROOMY, TWO_NODES) is None


@pytest.mark.parametrize(
    ("machine", "code", "said"),
    [
        (replace(ROOMY, root=False), "lab.root", "root"),
        (
            replace(ROOMY, missing_packages=("mmdebstrap", "docker.io")),
            "lab.missing-package",
            "mmdebstrap docker.io",
        ),
        (replace(ROOMY, disks=one_disk(5_000)), "lab.disk", "needs 11.5 GB of disk; 5.0 GB are free"),
        (
            replace(ROOMY, memory_available_mb=2_000),
            "lab.memory",
            "needs 2.5 GB of memory; 2.0 GB are available",
        ),
    ],
)
def test_what_is_lacking_is_said_in_one_sentence_with_figures(
    machine: HostMachine, code: str, said: str
) -> None:
    error = refusal(machine, TWO_NODES)
    assert error is not None
    assert error.code == code
    assert said in error.what
    assert error.hint
    assert error.exit_code == 2
    assert ". " not in error.what


def test_the_missing_package_is_named_in_the_hint_as_a_command() -> None:
    error = refusal(replace(ROOMY, missing_packages=("mmdebstrap",)), TWO_NODES)
    assert error is not None
    assert error.hint == "apt-get install mmdebstrap"


def test_a_lab_that_is_up_wants_nothing_more() -> None:
    full = replace(ROOMY, disks=one_disk(10), memory_available_mb=10)
    assert refusal(full, Demand(new_hosts=0, images_cached=True)) is None


@given(st.integers(0, 10**6), st.integers(0, 20))
def test_more_disk_never_turns_a_yes_into_a_no(free: int, new: int) -> None:
    demand = Demand(new_hosts=new, images_cached=True)
    enough = replace(ROOMY, memory_available_mb=10**6, disks=one_disk(free))
    if refusal(enough, demand) is None:
        assert refusal(replace(enough, disks=one_disk(free + 1)), demand) is None


@pytest.mark.parametrize(
    ("purpose", "needed"), [("engine", 8.5), ("cache", 1.5), ("temporary", 1.3), ("lab", 0.2)]
)
def test_each_file_system_must_hold_what_goes_there(purpose: Purpose, needed: float) -> None:
    short = replace(ROOMY, disks=with_small(purpose, int(needed * 1000) - 100))
    error = refusal(short, TWO_NODES)
    assert error is not None
    assert error.code == "lab.disk"
    assert f"needs {needed:.1f} GB of disk; {needed - 0.1:.1f} GB are free" in error.what
    assert error.where == str(PLACES[purpose])
    assert refusal(replace(ROOMY, disks=with_small(purpose, int(needed * 1000))), TWO_NODES) is None


def test_what_shares_a_file_system_is_added_up_and_named() -> None:
    total = sum(wanted_mb(TWO_NODES).values())
    assert refusal(replace(ROOMY, disks=one_disk(total)), TWO_NODES) is None
    error = refusal(replace(ROOMY, disks=one_disk(total - 1)), TWO_NODES)
    assert error is not None
    assert all(str(path) in error.where for path in PLACES.values())


def test_a_place_that_is_not_there_yet_is_its_parents(tmp_path: Path) -> None:
    (disk,) = look({"lab": tmp_path / "clone" / ".lab"}).disks
    assert (disk.path, disk.device) == (str(tmp_path), tmp_path.stat().st_dev)
    assert disk.free_mb > 0


def test_available_memory_is_read_in_mb() -> None:
    assert available_memory_mb("MemTotal:  9 kB\nMemAvailable:   2000000 kB\n") == 2048


def test_capabilities_are_read_from_the_bounding_set() -> None:
    everything = bounding_set("Name:\tx\nCapBnd:\t000001ffffffffff\n")
    assert everything == set(CAPABILITIES)
    assert everything - bounding_set("CapBnd:\t000001fffeffffff\n") == {"SYS_RESOURCE"}


@given(st.sets(st.sampled_from(CAPABILITIES)))
def test_a_node_never_gets_the_clock_nor_what_the_machine_lacks(held: set[str]) -> None:
    flags = capability_flags(held)
    dropped = {flags[i + 1] for i, flag in enumerate(flags) if flag == "--cap-drop"}
    assert {"SYS_TIME", "SYS_MODULE"} <= dropped
    assert dropped == (set(CAPABILITIES) - held) | {"SYS_TIME", "SYS_MODULE"}
    assert "--privileged" not in flags


def test_debian_13_is_told_about_old_cgroups_only_where_they_are_old() -> None:
    assert not any("SYSTEMD" in flag for flag in server_flags("debian13", "2", frozenset()))
    assert not any("SYSTEMD" in flag for flag in server_flags("debian12", "1", frozenset()))
    assert any("unified_cgroup_hierarchy=0" in flag for flag in server_flags("debian13", "1", frozenset()))


@given(st.integers(1, 4096), st.integers(0, 4096), st.integers(0, 99))
def test_the_inotify_limit_is_raised_only_where_hosts_would_not_fit(limit: int, used: int, new: int) -> None:
    raised = raised_limit(limit, used, new)
    assert (raised is None) == (used + A_NODE * new <= limit)
    if raised is not None:
        assert raised > limit
        assert raised >= used + A_NODE * new
