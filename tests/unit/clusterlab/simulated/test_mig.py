"""The simulated `nvidia-smi mig`, held to what real ones print, and to the ways in which they refuse."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.unit.clusterlab.simulated.test_nvml import Machine, make

from clustercheck.expect.mig import mig_profiles
from clusterlab import hardware
from clusterlab.hardware import PROFILES
from clusterlab.simulated.nvml import node as nvml

H100 = "h100-sxm5-80gb"
A100 = "hgx-a100-80gb"

# Of an H100 with driver 570 or later [captures in public notes on `nvidia-smi mig`].
LGIP = """+-------------------------------------------------------------------------------+
| GPU instance profiles:                                                        |
| GPU   Name               ID    Instances   Memory     P2P    SM    DEC   ENC  |
|                                Free/Total   GiB              CE    JPEG  OFA  |
|===============================================================================|
|   0  MIG 1g.10gb         19     7/7        9.75       No     16     1     0   |
|                                                               1     1     0   |
+-------------------------------------------------------------------------------+
|   0  MIG 1g.10gb+me      20     1/1        9.75       No     16     1     0   |
|                                                               1     1     1   |
+-------------------------------------------------------------------------------+
|   0  MIG 1g.20gb         15     4/4        19.62      No     26     1     0   |
|                                                               1     1     0   |
+-------------------------------------------------------------------------------+
|   0  MIG 2g.20gb         14     3/3        19.62      No     32     2     0   |
|                                                               2     2     0   |
+-------------------------------------------------------------------------------+
|   0  MIG 3g.40gb          9     2/2        39.50      No     60     3     0   |
|                                                               3     3     0   |
+-------------------------------------------------------------------------------+
|   0  MIG 4g.40gb          5     1/1        39.50      No     64     4     0   |
|                                                               4     4     0   |
+-------------------------------------------------------------------------------+
|   0  MIG 7g.80gb          0     1/1        79.25      No     132    7     0   |
|                                                               8     7     1   |
+-------------------------------------------------------------------------------+
"""
LGIPP = """GPU  0 Profile ID 19 Placements: {0,1,2,3,4,5,6}:1
GPU  0 Profile ID 20 Placements: {0,1,2,3,4,5,6}:1
GPU  0 Profile ID 15 Placements: {0,2,4,6}:2
GPU  0 Profile ID 14 Placements: {0,2,4}:2
GPU  0 Profile ID  9 Placements: {0,4}:4
GPU  0 Profile ID  5 Placement : {0}:4
GPU  0 Profile ID  0 Placement : {0}:8
"""
CGI = """Successfully created GPU instance ID  2 on GPU  0 using profile MIG 3g.40gb (ID  9)
Successfully created GPU instance ID  3 on GPU  0 using profile MIG 2g.20gb (ID 14)
"""
LGI = """+---------------------------------------------------------+
| GPU instances:                                          |
| GPU   Name               Profile  Instance   Placement  |
|                            ID       ID       Start:Size |
|=========================================================|
|   0  MIG 2g.20gb           14        3          0:2     |
+---------------------------------------------------------+
|   0  MIG 3g.40gb            9        2          4:4     |
+---------------------------------------------------------+
"""
CCI = (
    "Successfully created compute instance ID  0 on GPU  0 GPU instance ID  2 "
    "using profile MIG 3g.40gb (ID  2)\n"
)
LCI = """+--------------------------------------------------------------------+
| Compute instances:                                                 |
| GPU     GPU       Name             Profile   Instance   Placement  |
|       Instance                       ID        ID       Start:Size |
|         ID                                                         |
|====================================================================|
|   0      3       MIG 2g.20gb          1         0          0:2     |
+--------------------------------------------------------------------+
|   0      2       MIG 3g.40gb          2         0          0:3     |
+--------------------------------------------------------------------+
"""


def enabled(root: Path, profile: str = H100) -> Machine:
    machine = make(root, profile)
    (machine.paths.kernel / "fabric.json").write_text(json.dumps({"state": "completed"}))
    machine.run("-mig", "1", "-i", "0")
    return machine


def modes(machine: Machine) -> list[str]:
    query = "--query-gpu=mig.mode.current,mig.mode.pending"
    return machine.run(query, "--format=csv,noheader", "-i", "0").strip().split(", ")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return enabled(tmp_path)


def test_tables_are_those_of_a_real_one(machine: Machine) -> None:
    assert machine.run("mig", "-lgip", "-i", "0") == LGIP
    assert machine.run("mig", "-lgipp", "-i", "0") == LGIPP
    assert machine.run("mig", "-cgi", "9,2g.20gb", "-i", "0") == CGI
    assert machine.run("mig", "-lgi", "-i", "0") == LGI
    assert machine.run("mig", "-cci", "-gi", "2", "-i", "0") == CCI
    machine.run("mig", "-cci", "-gi", "3", "-i", "0")
    assert machine.run("mig", "-lci", "-i", "0") == LCI


# The examples of the MIG User Guide, with the names of an 80 GB GPU.
@pytest.mark.parametrize(
    ("wanted", "made"),
    [
        ("14,19,19,19,19,19", [5, 13, 7, 8, 9, 10]),
        ("9,19,14,19", [2, 7, 4, 8]),
    ],
)
def test_instances_are_numbered_and_placed_as_in_the_guide(
    machine: Machine, wanted: str, made: list[int]
) -> None:
    printed = machine.run("mig", "-cgi", wanted, "-i", "0").splitlines()
    assert [int(line.split(" ID ")[1].split()[0]) for line in printed] == made


def test_what_came_before_an_instance_without_room_stays(machine: Machine) -> None:
    text, code = machine.fails("mig", "-cgi", "19,19,14,9", "-i", "0")
    assert code == 19
    assert text.count("Successfully created") == 3
    assert text.endswith(
        "Unable to create a GPU instance on GPU  0 using profile 9: Insufficient Resources\n"
        "Failed to create GPU instances: Insufficient Resources"
    )
    assert machine.run("mig", "-lgi", "-i", "0").count("MIG ") == 3


def test_an_instance_starts_where_it_was_asked_to(machine: Machine) -> None:
    machine.run("mig", "-cgi", "1g.10gb:3,9:4", "-C", "-i", "0")
    listed = machine.run("mig", "-lgi", "-i", "0")
    assert "3:1 " in listed and "4:4 " in listed
    assert machine.fails("mig", "-cgi", "9:2", "-i", "0")[1] == 2
    assert machine.fails("mig", "-cgi", "1g.10gb:3", "-i", "0")[1] == 19


def test_only_what_has_a_compute_instance_is_a_device(machine: Machine) -> None:
    machine.run("mig", "-cgi", "9,9", "-i", "0")
    assert "MIG" not in machine.run("-L", "-i", "0")
    machine.run("mig", "-cci", "-i", "0")
    assert machine.run("-L", "-i", "0").count("MIG 3g.40gb") == 2
    assert machine.fails("mig", "-dgi", "-i", "0") == (
        "Unable to destroy GPU instance ID  1 from GPU  0: In use by another client\n"
        "Failed to destroy GPU instances: In use by another client",
        19,
    )
    assert machine.run("mig", "-dci", "-gi", "1", "-i", "0") == (
        "Successfully destroyed compute instance ID  0 from GPU  0 GPU instance ID  1\n"
    )
    gone = machine.run("mig", "-dgi", "-gi", "1", "-i", "0")
    assert gone == "Successfully destroyed GPU instance ID  1 from GPU  0\n"


def test_nothing_is_said_to_be_nothing(machine: Machine) -> None:
    assert machine.fails("mig", "-lgi", "-i", "0") == ("No GPU instances found: Not Found", 6)
    assert machine.fails("mig", "-lci", "-i", "0") == ("No compute instances found: Not Found", 6)
    assert machine.fails("mig", "-dgi", "-i", "0") == ("No GPU instances found: Not Found", 6)


# H100 and H200, driver 580.159.04.
def test_while_mig_is_off_all_profiles_have_room_and_lists_end_well(machine: Machine) -> None:
    assert machine.run("mig", "-lgip", "-i", "1") == LGIP.replace("|   0  MIG", "|   1  MIG")
    assert machine.run("mig", "-lgi", "-i", "1") == "No MIG-enabled devices found.\n"
    assert machine.run("mig", "-lci", "-i", "1") == "No MIG-enabled devices found.\n"
    assert machine.fails("mig", "-cgi", "9", "-i", "1") == ("No MIG-enabled devices found.", 6)


def test_a_gpu_without_mig_says_so(machine: Machine) -> None:
    assert machine.run("-mig", "0", "-i", "1").endswith("All done.\n")
    text = machine.paths.hardware.read_text().replace('"mig_capable": true', '"mig_capable": false')
    machine.paths.hardware.write_text(text)
    assert machine.fails("mig", "-lgip") == ("No MIG-supported devices found.", 6)
    assert "Not Supported\nTreating as warning" in machine.run("-mig", "1", "-i", "0")
    assert modes(machine) == ["[N/A]", "[N/A]"]


def occupied(machine: Machine) -> None:
    busy = hardware.Process(pid=4711, name="python train.py", used_memory_mib=30000)
    machine.edit(lambda built: setattr(built.gpu(0), "processes", [busy]))


def test_instances_in_use_stay(machine: Machine) -> None:
    machine.run("mig", "-cgi", "9", "-C", "-i", "0")
    occupied(machine)
    text, code = machine.fails("mig", "-dci", "-i", "0")
    where = "compute instance ID  0 from GPU  0 GPU instance ID  2"
    assert (text.splitlines()[0], code) == (f"Unable to destroy {where}: In use by another client", 19)
    assert machine.run("mig", "-lci", "-i", "0")


def test_a_gpu_in_use_has_its_mode_after_a_reset(tmp_path: Path) -> None:
    machine = enabled(tmp_path, A100)
    occupied(machine)
    assert "in pending disable state for GPU 00000000:07:00.0:In use by another client" in machine.run(
        "-mig", "0", "-i", "0"
    )
    assert modes(machine) == ["Enabled", "Disabled"]
    assert machine.fails("-r", "-i", "0")[1] == 19
    machine.edit(lambda built: setattr(built.gpu(0), "processes", []))
    assert "successfully reset" in machine.run("-r", "-i", "0")
    assert modes(machine) == ["Disabled", "Disabled"]


def test_a_reset_of_amperes_board_needs_fabric_manager(tmp_path: Path) -> None:
    machine = make(tmp_path, A100)
    assert "pending enable state for GPU 00000000:07:00.0:Not Supported" in machine.run(
        "-mig", "1", "-i", "0"
    )
    assert machine.fails("-r", "-i", "0") == ("Resetting GPU 00000000:07:00.0 is not supported.", 3)
    (machine.paths.kernel / "fabric.json").write_text(json.dumps({"state": "completed"}))
    machine.run("-r", "-i", "0")
    assert modes(machine) == ["Enabled", "Enabled"]


@pytest.mark.parametrize(("profile", "kept"), [(A100, "Enabled"), (H100, "Disabled")])
def test_from_hopper_on_the_mode_is_gone_with_the_driver_and_instances_always(
    tmp_path: Path, profile: str, kept: str
) -> None:
    machine = enabled(tmp_path, profile)
    machine.run("mig", "-cgi", "9", "-C", "-i", "0")
    for path in machine.paths.kernel.iterdir():  # as rmmod does, and a reboot
        if path.is_file():
            path.unlink()
    assert modes(machine) == [kept, kept]
    assert "MIG" not in machine.run("-L")


@examples(40)
@given(st.lists(st.sampled_from(["0", "5", "9", "14", "15", "19", "20"]), max_size=9))
def test_mig_never_gives_more_than_the_gpu_has(
    tmp_path_factory: pytest.TempPathFactory, wanted: list[str]
) -> None:
    machine = enabled(tmp_path_factory.mktemp("mig"), "a100-pcie-40gb")
    for profile in wanted:
        try:
            machine.run("mig", "-cgi", profile, "-i", "0")
        except nvml.NvmlError as error:
            assert error.code == 19
    kept = json.loads((machine.paths.kernel / "mig-instances.json").read_text())
    for instances in kept.values():
        taken = [part for one in instances for part in range(one["start"], one["start"] + one["memory"])]
        assert len(set(taken)) == len(taken)
        assert sum(item["compute"] for item in instances) <= 7
        assert len({item["gi_id"] for item in instances}) == len(instances)


@pytest.mark.parametrize("profile", sorted(set(PROFILES) - {"none"}))
def test_every_simulated_gpu_has_the_profiles_that_are_expected_of_its_model(
    tmp_path: Path, profile: str
) -> None:
    machine = make(tmp_path, profile)
    model = machine.run("--query-gpu=name", "--format=csv,noheader", "-i", "0").strip()
    names = [line.split()[3] for line in machine.run("mig", "-lgip", "-i", "0").splitlines() if "MIG" in line]
    assert names == list(mig_profiles(model))


@pytest.mark.parametrize(("override", "words"), [(True, ["Enabled"] * 8), (False, ["Disabled"] * 8)])
def test_an_overridden_mig_mode_is_told_whatever_was_set(
    machine: Machine, override: bool, words: list[str]
) -> None:
    def change(node: hardware.Hardware) -> None:
        for gpu in node.gpus:
            gpu.mig_override = override

    machine.edit(change)
    assert machine.run("--query-gpu=mig.mode.current", "--format=csv,noheader").splitlines() == words
