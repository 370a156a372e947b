"""Which tests a tier of script/test runs, and in which lanes beside each other.

A lane is one pytest process with a log of its own. Labs wait most of the time, so a few of them fill two
cores; tests that judge bandwidth (marker `quiet`) run when all other lanes have ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests"
# Need nothing but Python, git and bash, and no root.
FAST = ("tests/unit",)
# Need programs that script/test installs.
PROGRAMS = ("integration", "roles", "contract", "images", "report_page", "locate")
# In the order in which they run: what wants bare nodes comes before what applies a site to them.
LABS: Mapping[str, tuple[str, ...]] = {
    "site": (
        "test_bare_nodes", "test_paddle_in_image", "test_fast_apply", "test_preflight_role",
        "test_distributed_jobs", "test_nvidia_smi_silent", "test_faults", "test_road",
    ),
    "hosts": (
        "test_demo", "test_apply_manners", "test_manners", "test_runtime_roles", "test_failures",
        "test_traps", "test_leases", "test_driver_role", "test_images_on_nodes",
    ),
    "harbor": ("test_harbor",),
    "lifecycle": ("test_lab_lifecycle", "test_demo_of_two", "test_debian13", "test_real_driver"),
}  # fmt: skip
MARKS: Mapping[str, str] = {
    "fast": "not slow and not bench and not campaign",
    "ordinary": "not slow and not bench and not campaign",
    "slow": "not bench and not campaign",
}


@dataclass(frozen=True)
class Lane:
    """One pytest process: what it runs, which lab it has, and which lanes must have ended before it.

    ``keep``: "after" leaves the lab up for a later lane, "before" takes over one that is up. ``niced``: it
    gets the processor time that others leave.
    """

    name: str
    paths: tuple[str, ...]
    marks: str
    options: tuple[str, ...] = ()
    lab: str = ""
    keep: str = ""
    after: tuple[str, ...] = ()
    niced: bool = False


def lanes(tier: str) -> tuple[Lane, ...]:
    """The lanes of a tier, those that others wait for first. Raises KeyError for a tier that is not one."""
    marks = MARKS[tier]
    unit = Lane("unit", FAST, marks, ("--hypothesis-profile", "fast", "-n", "2"))
    if tier == "fast":
        return (unit,)
    options = ("--hypothesis-profile", "ordinary", "--all-drawn") if tier == "slow" else unit.options[:2]
    programs = tuple(f"tests/{name}" for name in PROGRAMS)
    busy, quiet = f"({marks}) and not quiet", f"({marks}) and quiet"
    with_labs = tuple(
        Lane(name, lab_files(name), busy, options, name, "after" if name == "site" else "") for name in LABS
    )
    first = (*with_labs, replace(unit, niced=True), Lane("programs", programs, marks, options, niced=True))
    every = tuple(file for name in LABS for file in lab_files(name))
    waits_for = tuple(lane.name for lane in first)
    return (*first, Lane("quiet", every, quiet, options, "site", "before", waits_for))


def lab_files(lane: str) -> tuple[str, ...]:
    """The test files of a lane with a lab."""
    return tuple(f"tests/lab/{name}.py" for name in LABS[lane])
