"""Parts of a driver whose names have no branch, and packages that pin one: what a plan removes and leaves."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.clusterctl.cluster.plugins.module_utils.driver_plan import Facts, driver_packages

from .test_nvidia_driver_planner import BARE, COMPAT, REQUEST, UBUNTU, plan

V580, V590 = "580.105.08-0ubuntu1", "590.48.01-0ubuntu1"
NAMES_580 = [
    "libnvidia-compute-580", "nvidia-dkms-580-open", "nvidia-utils-580", "nvidia-compute-utils-580",
    "nvidia-fabricmanager-580", "libnvidia-nscq-580",
]  # fmt: skip
NAMES_590 = [
    "libnvidia-compute", "nvidia-dkms-open", "nvidia-persistenced", "nvidia-fabricmanager", "libnvidia-nscq",
]  # fmt: skip
OFFERED = {
    **{name: [V580] for name in NAMES_580},
    **{name: [V590] for name in NAMES_590},
    "nvidia-driver-pinning-580": ["580-1"],
    "nvidia-driver-pinning-590": ["590-1"],
}
PARTS_590 = [
    "libnvidia-cfg1", "libnvidia-compute", "libnvidia-nscq", "nvidia-dkms-open", "nvidia-fabricmanager",
    "nvidia-firmware", "nvidia-kernel-common", "nvidia-kernel-source-open", "nvidia-modprobe",
    "nvidia-persistenced",
]  # fmt: skip
TO_580 = replace(REQUEST, branch="580", version="", scope="compute")


def on_590(**besides: str) -> Facts:
    """An Ubuntu node as an apply of branch 590 leaves it; the operator has these besides."""
    parts = dict.fromkeys(PARTS_590, V590)
    return replace(
        BARE,
        os=UBUNTU,
        installed={**BARE.installed, **parts, "nvidia-driver-pinning-590": "590-1", **besides},
        held=set(parts),
        record={"packages": sorted(parts), "held": sorted(parts)},
        available=OFFERED,
        loaded="590.48.01",
        loaded_flavor="open",
    )


def test_the_way_back_removes_every_part_without_a_branch_and_the_pin_of_the_other() -> None:
    made = plan(TO_580, on_590())
    assert made.problems == []
    assert made.remove == sorted([*PARTS_590, "nvidia-driver-pinning-590"])
    assert made.packages["nvidia-fabricmanager-580"] == V580
    assert made.packages["nvidia-driver-pinning-580"] == ""
    assert made.activation


def test_a_part_that_the_source_has_in_the_planned_version_is_replaced_not_removed() -> None:
    both = {**OFFERED, "nvidia-modprobe": [V590, V580], "nvidia-fabricmanager": [V590, V580]}
    made = plan(TO_580, replace(on_590(), available=both))
    assert {"nvidia-modprobe", "nvidia-fabricmanager"}.isdisjoint(made.remove)
    assert made.packages["nvidia-modprobe"] == made.packages["nvidia-fabricmanager"] == V580


def test_what_the_operator_has_besides_stays_whatever_its_version() -> None:
    theirs = {"nvidia-settings": "510.47.03-0ubuntu1", "nvidia-fs-dkms": "2.24.2-1"}
    made = plan(TO_580, on_590(**theirs))
    assert made.problems == []
    assert set(theirs).isdisjoint([*made.remove, *made.packages])


@pytest.mark.parametrize(
    ("pin", "goes", "added"),
    [
        ("nvidia-driver-pinning-580.105.08", False, False),
        ("nvidia-driver-pinning-580", False, True),
        ("nvidia-driver-pinning-580.95.05", True, True),
        ("nvidia-driver-pinning-58", True, True),
    ],
)
def test_a_pin_that_the_planned_version_fits_stays(pin: str, goes: bool, added: bool) -> None:
    node = on_590()
    installed = {n: v for n, v in node.installed.items() if "pinning" not in n} | {pin: "1-1"}
    made = plan(TO_580, replace(node, installed=installed))
    assert (pin in made.remove) is goes
    assert ("nvidia-driver-pinning-580" in made.packages) is added


def test_a_pin_on_somebody_elses_hold_is_refused() -> None:
    node = on_590()
    held = node.held | {"nvidia-driver-pinning-590"}
    (problem,) = plan(TO_580, replace(node, held=held)).problems
    assert problem["what"] == "held by someone else: nvidia-driver-pinning-590"


def test_somebody_elses_driver_without_a_branch_is_refused_or_adopted_whole() -> None:
    theirs = replace(on_590(), record={}, held=set())
    (problem,) = plan(TO_580, theirs).problems
    assert "clusterctl did not install" in problem["what"]
    adopted = plan(replace(TO_580, existing="adopt"), theirs)
    assert adopted.remove == sorted([*PARTS_590, "nvidia-driver-pinning-590"])


def test_a_name_that_debian_uses_too_is_the_drivers_by_its_version() -> None:
    assert driver_packages({"nvidia-kernel-common": V590}, COMPAT) == ["nvidia-kernel-common"]
    assert driver_packages({"nvidia-kernel-common": "20240109+1"}, COMPAT) == []
    assert "nvidia-kernel-common" in plan(replace(TO_580, branch="590"), on_590()).hold


DEBIAN_13 = {"id": "debian", "version": "13", "name": "Debian GNU/Linux 13 (trixie)"}
OWN = "550.163.01-2"
# As Debian 13 has them (contrib and non-free, read on 2026-11-26).
OF_THE_DRIVER = [
    "nvidia-open-kernel-dkms", "nvidia-kernel-dkms", "nvidia-driver", "nvidia-smi", "libcuda1",
    "libnvidia-ptxjitcompiler1", "libnvidia-nvvm4",
]  # fmt: skip
TRIXIE = {
    **{name: [OWN] for name in OF_THE_DRIVER},
    "nvidia-persistenced": ["550.163.01-1"],
    "nvidia-modprobe": ["570.133.07-1"],
}


@pytest.mark.parametrize("scope", ["compute", "full"])
@pytest.mark.parametrize(
    ("flavor", "modules"), [("open", "nvidia-open-kernel-dkms"), ("proprietary", "nvidia-kernel-dkms")]
)
def test_debian_13s_own_550_keeps_the_parts_that_debian_versions_by_themselves(
    flavor: str, modules: str, scope: str
) -> None:
    request = replace(REQUEST, source="distribution", flavor=flavor, branch="550", version="", scope=scope)
    bare = replace(BARE, os=DEBIAN_13, nvswitches=0, available=TRIXIE)
    made = plan(request, bare)
    assert made.problems == []
    assert made.version == "550.163.01"
    assert made.packages[modules] == made.packages["nvidia-smi"] == made.packages["libcuda1"] == OWN
    assert ("nvidia-driver" in made.packages) is (scope == "full")
    assert made.packages["nvidia-modprobe"] == made.packages["nvidia-persistenced"] == ""

    brought = {name: version or TRIXIE.get(name, ["1"])[0] for name, version in made.packages.items()}
    # As its dependencies and an operator's hand bring them.
    along = {"nvidia-alternative": OWN, "nvidia-settings": "535.171.04-1"}
    held = sorted({*made.hold, *along})
    applied = replace(
        bare,
        installed={**BARE.installed, **brought, **along, "nvidia-kernel-common": "20240109+1"},
        held=set(held),
        record={"packages": sorted({**brought, **along}), "held": held},
        loaded="550.163.01",
        loaded_flavor=flavor,
    )
    again = plan(request, applied)
    assert (again.missing, again.remove, again.transaction, again.activation) == ([], [], False, False)


def test_debian_13_has_no_fabric_manager_and_no_newer_branch() -> None:
    asked = replace(REQUEST, source="distribution", branch="550", version="", scope="compute")
    bare = replace(BARE, os=DEBIAN_13, available=TRIXIE)
    assert "packages no Fabric Manager" in plan(asked, bare).problems[0]["what"]
    newer = plan(replace(asked, branch="580"), replace(bare, nvswitches=0))
    assert "offers no nvidia-open-kernel-dkms of branch 580; it has 550.163.01" in newer.problems[0]["what"]
