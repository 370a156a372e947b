"""Which tests a tier of script/test runs, and in which lanes, which run in parallel.

A lane is one pytest process with a log of its own. Labs wait in part, so that two of them and tests without
a lab fill two cores; tests that judge bandwidth (marker `quiet`) run when all other lanes have ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests"
# Need nothing but Python, git and bash, and no root.
FAST = ("tests/unit",)
# Need programs that script/test installs, or take long; in two lanes, which end at about the same time.
PROGRAMS = ("integration", "roles", "contract")
IMAGES = ("images", "report_page", "locate", "fuzz", "mutation")
# In the order in which they run. The lane `site` has the lab that the demo applied, for all that needs one.
LABS: Mapping[str, tuple[str, ...]] = {
    "bare": (
        "test_bare_nodes", "test_collection", "test_lab_lifecycle", "test_demo_of_two", "test_debian13",
        "test_first_racks", "test_containerd", "test_rocky9", "test_real_driver",
    ),
    "harbor": ("test_harbor",),
    "site": (
        "test_demo", "test_fast_apply", "test_drift_differential", "test_road", "test_apply_manners",
        "test_manners", "test_preflight_role", "test_runtime_roles", "test_paddle_in_image",
        "test_distributed_jobs", "test_failures", "test_traps", "test_leases", "test_driver_role",
        "test_images_on_nodes", "test_mig", "test_nvidia_smi_silent", "test_faults",
    ),
}  # fmt: skip
MARKS: Mapping[str, str] = {
    "fast": "not slow and not bench and not campaign",
    "ordinary": "not slow and not bench and not campaign",
    "slow": "not bench and not campaign",
}


@dataclass(frozen=True)
class Lane:
    """One pytest process: what it runs, and how.

    ``lab``: the name of its lab. ``nice``: its niceness, as nice(1) has it. ``after``: the lane that must end
    first. ``quiet_last``: its tests that judge bandwidth wait for the end of all other lanes.
    """

    name: str
    paths: tuple[str, ...]
    marks: str
    options: tuple[str, ...] = ()
    lab: str = ""
    nice: int = 0
    after: str = ""
    quiet_last: bool = False


def lanes(tier: str) -> tuple[Lane, ...]:
    """The lanes of a tier. Raises KeyError for a tier that is not one."""
    marks = MARKS[tier]
    options = (
        ("--hypothesis-profile", "ordinary", "--all-drawn")
        if tier == "slow"
        else ("--hypothesis-profile", "fast")
    )
    unit = Lane("unit", FAST, marks, (*options, "--timeout", "180", "-n", "2"), nice=5)
    if tier == "fast":
        return (replace(unit, options=(*unit.options, "--light"), nice=0),)
    programs, images = (tuple(f"tests/{name}" for name in names) for names in (PROGRAMS, IMAGES))
    return (
        # The longest one has the processors first, and no more than two labs are busy at a time.
        Lane("site", lab_files("site"), marks, options, "site", quiet_last=True),
        Lane("harbor", lab_files("harbor"), marks, options, "harbor", nice=3, after="unit"),
        Lane("bare", lab_files("bare"), marks, options, "bare", nice=3, after="harbor"),
        unit,
        Lane("programs", programs, marks, options, nice=5),
        Lane("images", images, marks, options, nice=5, after="unit"),
    )


def lab_files(lane: str) -> tuple[str, ...]:
    """The test files of a lane with a lab."""
    return tuple(f"tests/lab/{name}.py" for name in LABS[lane])
