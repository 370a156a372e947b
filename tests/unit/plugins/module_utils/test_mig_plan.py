"""From one layout to another on a simulated GPU, interrupted anywhere, and completed by the next run."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

import pytest
from ansible_collections.clusterctl.cluster.plugins.module_utils import mig_layout, mig_plan, mig_restore
from ansible_collections.clusterctl.cluster.plugins.module_utils.mig_layout import LayoutError
from ansible_collections.clusterctl.cluster.plugins.module_utils.mig_restore import MigError
from hypothesis import given
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.support.simulated_smi import SimulatedSmi

A100, H100 = "hgx-a100-80gb", "h100-sxm5-80gb"


def step_of(machine: SimulatedSmi, layout: str) -> mig_plan.Step:
    (gpu,) = mig_plan.read_gpus(machine.run, machine.buses, [0])
    found = mig_plan.plan(mig_plan.with_profiles(machine.run, gpu), layout)
    assert found is not None
    return found


def bring(machine: SimulatedSmi, layout: str) -> list[str]:
    """Changes GPU 0, and returns what was done."""
    done: list[str] = []
    assert mig_restore.restore(machine.run, [step_of(machine, layout).record], done.append) == []
    return done


def shown(machine: SimulatedSmi) -> str:
    (gpu,) = mig_plan.read_gpus(machine.run, machine.buses, [0])
    return gpu.shown


@pytest.fixture
def machine(tmp_path: Path) -> SimulatedSmi:
    return SimulatedSmi(tmp_path)


def test_the_profiles_of_a_gpu_are_those_that_it_lists(machine: SimulatedSmi) -> None:
    (gpu,) = mig_plan.read_gpus(machine.run, machine.buses, [0])
    profiles = mig_plan.with_profiles(machine.run, gpu).profiles
    assert profiles["1g.20gb"] == ("1g.20gb", 2, (0, 2, 4, 6), 4)
    assert list(profiles) == ["1g.10gb", "1g.10gb+me", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"]


def test_a_plan_says_each_thing_that_is_done(machine: SimulatedSmi) -> None:
    assert step_of(machine, "2x3g.40gb").actions == (
        "GPU 0: enable MIG",
        "GPU 0: create 3g.40gb at 0",
        "GPU 0: create 3g.40gb at 4",
    )
    bring(machine, "2x3g.40gb")
    assert step_of(machine, "2x3g.40gb").actions == ()
    assert step_of(machine, "3g.40gb, 2x2g.20gb").actions == (
        "GPU 0: destroy 3g.40gb at 0",
        "GPU 0: create 2g.20gb at 0",
        "GPU 0: create 2g.20gb at 2",
    )
    assert step_of(machine, "disabled").actions == ("GPU 0: disable MIG",)


@pytest.mark.parametrize("profile", [A100, H100])
def test_what_is_done_is_what_was_declared_and_a_second_run_does_nothing(
    tmp_path: Path, profile: str
) -> None:
    machine = SimulatedSmi(tmp_path, profile)
    for layout, found in (("all-1g.10gb", "7x1g.10gb"), ("enabled", "enabled"), ("disabled", "disabled")):
        assert bring(machine, layout) != []
        assert shown(machine) == found
        assert bring(machine, layout) == []


@pytest.mark.parametrize("profile", [A100, H100])
def test_after_a_boot_the_record_restores_mode_and_instances(tmp_path: Path, profile: str) -> None:
    machine = SimulatedSmi(tmp_path, profile)
    record = step_of(machine, "3g.40gb, 4x1g.10gb").record
    mig_restore.restore(machine.run, [record], lambda _line: None)
    machine.boot()
    assert shown(machine) == ("enabled" if profile == A100 else "disabled")
    done: list[str] = []
    assert mig_restore.restore(machine.run, [record], done.append) == []
    assert shown(machine) == "4x1g.10gb, 3g.40gb"
    assert any("enable MIG" in line for line in done) == (profile == H100)


class Killed(Exception):
    """The program is no more."""


LAYOUTS = st.sampled_from(
    ["disabled", "enabled", "all-1g.10gb", "2x3g.40gb", "3g.40gb", "4g.40gb, 3g.40gb", "3x2g.20gb, 1g.10gb",
     "7g.80gb", "1g.10gb+me, 2x1g.20gb", "3g.40gb, 2g.20gb, 2x1g.10gb"]
)  # fmt: skip


@examples(60)
@given(LAYOUTS, LAYOUTS, st.integers(0, 40), st.sampled_from([A100, H100]))
def test_wherever_a_change_is_killed_the_next_one_completes_it(
    tmp_path_factory: pytest.TempPathFactory, before: str, after: str, calls: int, profile: str
) -> None:
    machine = SimulatedSmi(tmp_path_factory.mktemp("mig"), profile)
    bring(machine, before)
    left = [calls]

    def run(argv: Sequence[str]) -> tuple[int, str]:
        if left[0] == 0:
            raise Killed
        left[0] -= 1
        return machine.run(argv)

    with contextlib.suppress(Killed):
        mig_restore.restore(run, [step_of(machine, after).record], lambda _line: None)
    step = step_of(machine, after)
    bring(machine, after)
    assert shown(machine) == step.target
    assert step_of(machine, after).actions == ()


def test_an_instance_without_its_compute_instance_is_given_one(machine: SimulatedSmi) -> None:
    bring(machine, "2x3g.40gb")
    machine.run(["nvidia-smi", "mig", "-i", machine.buses[0], "-dci", "-gi", "1"])
    assert shown(machine) == "2x3g.40gb (with other compute instances)"
    assert step_of(machine, "2x3g.40gb").actions == (
        "GPU 0: create the compute instance of 3g.40gb at 0 again",
    )
    bring(machine, "2x3g.40gb")
    assert shown(machine) == "2x3g.40gb"


def test_a_gpu_in_use_stays_as_it_is_and_others_do_not_wait_for_it(machine: SimulatedSmi) -> None:
    bring(machine, "2x3g.40gb")
    machine.occupy(0)
    records = [
        step_of(machine, "all-1g.10gb").record,
        {"bus": machine.buses[1], "enabled": True, "instances": []},
    ]
    (reason,) = mig_restore.restore(machine.run, records, lambda _line: None)
    assert "In use by another client" in reason
    assert shown(machine) == "2x3g.40gb"
    assert mig_plan.read_gpus(machine.run, machine.buses, [1])[0].mode is True


def test_a_mode_that_waits_for_a_reset_is_completed_by_one(tmp_path: Path) -> None:
    machine = SimulatedSmi(tmp_path, A100)
    (machine.paths.kernel / "fabric.json").unlink()
    machine.run(["nvidia-smi", "-i", machine.buses[0], "-mig", "1"])
    assert shown(machine) == "disabled (another mode after a reset)"
    (machine.paths.kernel / "fabric.json").write_text('{"state": "completed"}')
    assert bring(machine, "3g.40gb")[0].endswith("enable MIG")
    assert shown(machine) == "3g.40gb"


def test_without_a_reset_it_says_so(tmp_path: Path) -> None:
    machine = SimulatedSmi(tmp_path, A100)
    (machine.paths.kernel / "fabric.json").unlink()
    (reason,) = mig_restore.restore(machine.run, [step_of(machine, "3g.40gb").record], lambda _line: None)
    assert "Resetting GPU 00000000:07:00.0 is not supported" in reason


def test_a_gpu_without_mig_needs_none_and_can_have_none(machine: SimulatedSmi) -> None:
    text = machine.paths.hardware.read_text().replace('"mig_capable": true', '"mig_capable": false')
    machine.paths.hardware.write_text(text)
    (gpu,) = mig_plan.read_gpus(machine.run, machine.buses, [0])
    assert mig_plan.plan(gpu, "disabled") is None
    with pytest.raises(LayoutError, match="GPU 0 does not support MIG"):
        mig_plan.plan(gpu, "3g.40gb")


def test_a_layout_that_does_not_fit_changes_nothing(machine: SimulatedSmi) -> None:
    with pytest.raises(LayoutError, match=r"GPU 0: this GPU has no profile 1g\.5gb"):
        step_of(machine, "7x1g.5gb")


def test_where_no_profiles_are_listed_before_the_mode_is_on_it_is_switched_first(
    machine: SimulatedSmi,
) -> None:
    def run(argv: Sequence[str]) -> tuple[int, str]:
        return (6, "No MIG-enabled devices found.\n") if "-lgip" in argv else machine.run(argv)

    (gpu,) = mig_plan.read_gpus(run, machine.buses, [0])
    found = mig_plan.plan(mig_plan.with_profiles(run, gpu), "all-1g.10gb")
    assert found is not None
    assert found.instances is None
    assert found.actions == ("GPU 0: enable MIG", "GPU 0: create all-1g.10gb")
    assert mig_restore.restore(run, [found.record], lambda _line: None) == []
    assert shown(machine) == "enabled"


@pytest.mark.parametrize("line", ["", "Enabled", "Activé, Activé", "Enabled, [N/A]"])
def test_a_mode_that_cannot_be_read_is_no_mode(line: str) -> None:
    with pytest.raises(MigError):
        mig_restore.parse_modes(line)


def test_a_gpu_of_which_nvidia_smi_says_nothing_keeps_no_other_from_its_layout() -> None:
    asked = []

    def run(argv):
        asked.append(argv)
        return 0, "" if "first" in argv else "Disabled, Disabled\n"

    gpus = [{"bus": bus, "enabled": False, "instances": None} for bus in ("first", "second")]
    (failed,) = mig_restore.restore(run, gpus, lambda _line: None)
    assert "nvidia-smi says of a MIG mode: ''" in failed
    assert any("second" in argv for argv in asked)


def test_a_gpu_that_the_driver_has_lost_is_named(machine: SimulatedSmi) -> None:
    with pytest.raises(MigError, match="does not list GPU 0"):
        mig_plan.read_gpus(machine.run, ["0000:ff:00.0"], [0])


# The width that drivers before 570 print [MIG User Guide].
OLDER = """+----------------------------------------------------+
| GPU instances:                                     |
| GPU   Name          Profile  Instance   Placement  |
|                       ID       ID       Start:Size |
|====================================================|
|   0  MIG 1g.5gb       19        7          0:1     |
+----------------------------------------------------+
|   0  MIG 3g.20gb       9        2          4:4     |
+----------------------------------------------------+
"""
OLDER_COMPUTE = """+-------------------------------------------------------+
| Compute instances:                                    |
| GPU     GPU       Name             Profile   Instance |
|       Instance                       ID        ID     |
|         ID                                            |
|=======================================================|
|   0      2       MIG 1c.3g.20gb       0         0     |
+-------------------------------------------------------+
|   0      2       MIG 1c.3g.20gb       0         1     |
+-------------------------------------------------------+
"""


def test_tables_of_older_drivers_are_read() -> None:
    def run(argv: Sequence[str]) -> tuple[int, str]:
        return 0, OLDER if "-lgi" in argv else OLDER_COMPUTE

    assert mig_restore.read_instances(run, "0") == (
        ("1g.5gb", 0, 7, ()),
        ("3g.20gb", 4, 2, ("1c.3g.20gb", "1c.3g.20gb")),
    )


def test_a_table_that_is_half_read_is_refused() -> None:
    with pytest.raises(MigError, match="cannot be read"):
        mig_restore.read_instances(lambda argv: (0, OLDER.replace("0:1 ", "zero")), "0")


def test_only_layouts_with_mig_are_kept_for_the_boot(machine: SimulatedSmi) -> None:
    assert mig_plan.document([step_of(machine, "disabled")]) == ""
    assert '"3g.40gb"' in mig_plan.document([step_of(machine, "3g.40gb")])
    assert mig_layout.listed("disabled") is None
