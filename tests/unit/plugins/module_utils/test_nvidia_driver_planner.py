"""Driver plans as data: facts and a request in, packages, removals, holds and refusals out."""

from __future__ import annotations

from dataclasses import replace

import pytest
import yaml
from ansible_collections.clusterctl.cluster.plugins.module_utils.driver_plan import Facts, Request
from ansible_collections.clusterctl.cluster.plugins.module_utils.nvidia_driver_planner import make_plan
from ansible_collections.clusterctl.cluster.plugins.module_utils.prebuilt_modules import Build
from hypothesis import given
from hypothesis import strategies as st
from tests.support.tree import ROOT

COMPAT = yaml.safe_load((ROOT / "roles/nvidia_driver/files/compat.yml").read_text())
VERSIONS = ["580.95.05-1", "580.105.08-1", "570.148.08-1"]
COMPONENTS = ["nvidia-driver-cuda", "libcuda1", "nvidia-kernel-open-dkms", "nvidia-kernel-dkms"]
CUDA = {
    **dict.fromkeys(["nvidia-open", "cuda-drivers", *COMPONENTS], VERSIONS),
    "nvidia-open-580": VERSIONS[:2],
    "nvidia-open-570": VERSIONS[2:],
    "cuda-drivers-580": VERSIONS[:2],
    "nvidia-fabricmanager-580": VERSIONS[:2],
    "nvidia-fabricmanager-570": VERSIONS[2:],
    "libnvidia-nscq-580": VERSIONS[:2],
    "libnvidia-nscq-570": VERSIONS[2:],
    "nvidia-driver-pinning-580": ["580-1"],
    "nvidia-driver-pinning-570": ["570-1"],
}
A100 = {"address": "0000:07:00.0", "vendor": "0x10de", "device": "0x20b2", "class": "0x030200"}
V100 = {**A100, "device": "0x1db5"}
B200 = {**A100, "device": "0x2901"}
KERNEL = "6.1.0-38-amd64"
REQUEST = Request(
    source="cuda",
    flavor="open",
    branch="580",
    version="580.95.05",
    scope="full",
    fabric_manager="auto",
    hold=True,
    hold_kernel=True,
    kernel_header_packages=[],
    load=True,
    existing="refuse",
)
BARE = Facts(
    os={"id": "debian", "version": "12", "name": "Debian GNU/Linux 12"},
    kernels=[KERNEL],
    headers={KERNEL: False},
    gpus=[A100] * 8,
    nvswitches=6,
    installed={f"linux-image-{KERNEL}": "6.1.140-1", "linux-image-amd64": "6.1.140-1"},
    held=set(),
    record={},
    loaded="",
    loaded_flavor="",
    nouveau=False,
    runfile=False,
    available=CUDA,
)


def applied(version: str = "580.95.05", branch: str = "580") -> Facts:
    """The node as this role leaves it."""
    debian = f"{version}-1"
    installed = {
        **BARE.installed,
        f"nvidia-open-{branch}": debian,
        f"nvidia-fabricmanager-{branch}": debian,
        f"libnvidia-nscq-{branch}": debian,
        **dict.fromkeys(COMPONENTS[:3], debian),
        f"nvidia-driver-pinning-{branch}": f"{branch}-1",
        f"linux-headers-{KERNEL}": "6.1.140-1",
    }
    held = set(installed) - {f"nvidia-driver-pinning-{branch}"}
    return replace(
        BARE,
        installed=installed,
        held=held,
        headers={KERNEL: True},
        record={"packages": sorted(held), "held": sorted(held)},
        loaded=version,
        loaded_flavor="open",
        available={},
    )


def plan(request: Request = REQUEST, facts: Facts = BARE):
    return make_plan(request, facts, COMPAT)


def test_a_bare_node_gets_driver_fabric_manager_headers_and_pin() -> None:
    made = plan()
    assert made.problems == []
    assert made.packages == {
        "nvidia-open-580": "580.95.05-1",
        "nvidia-fabricmanager-580": "580.95.05-1",
        "libnvidia-nscq-580": "580.95.05-1",
        "nvidia-driver-pinning-580": "",
        f"linux-headers-{KERNEL}": "",
    }
    assert made.transaction
    assert made.activation
    assert made.fabric_manager
    assert "linux-image-amd64" in made.hold
    assert "nvidia-driver-pinning-580" not in made.hold


def test_a_node_with_the_whole_driver_keeps_it_when_only_computing_is_asked_for() -> None:
    compute = replace(REQUEST, scope="compute")
    assert not plan(compute, applied()).transaction
    newer = plan(replace(compute, version="580.105.08"), replace(applied(), available=CUDA))
    assert newer.remove == []
    assert newer.packages["nvidia-open-580"] == "580.105.08-1"


def test_an_applied_node_needs_nothing_and_no_package_lists() -> None:
    made = plan(facts=applied())
    assert (made.problems, made.missing, made.remove) == ([], [], [])
    assert not made.transaction
    assert not made.activation


def test_the_newest_of_the_branch_is_by_number_and_the_installed_one_is_kept() -> None:
    anything = replace(REQUEST, version="")
    assert plan(anything).version == "580.105.08"
    assert plan(anything, applied()).version == "580.95.05"


@pytest.mark.parametrize(("before", "after"), [("580.95.05", "580.105.08"), ("580.105.08", "580.95.05")])
def test_up_and_down_within_a_branch_takes_every_part_along(before: str, after: str) -> None:
    made = plan(replace(REQUEST, version=after), replace(applied(before), available=CUDA))
    assert made.problems == []
    assert made.packages["libcuda1"] == f"{after}-1"
    assert made.packages["nvidia-fabricmanager-580"] == f"{after}-1"
    assert made.remove == []
    assert made.transaction
    assert made.activation


def test_another_branch_removes_what_bears_the_old_ones_name() -> None:
    made = plan(replace(REQUEST, branch="570", version=""), replace(applied(), available=CUDA))
    assert made.version == "570.148.08"
    numbered = ["libnvidia-nscq-580", "nvidia-fabricmanager-580", "nvidia-open-580"]
    assert made.remove == sorted(["nvidia-driver-pinning-580", *numbered])
    assert made.packages["libcuda1"] == "570.148.08-1"
    assert made.packages["nvidia-driver-pinning-570"] == ""
    assert not set(made.remove) & set(made.hold)


def test_another_flavour_removes_the_old_modules() -> None:
    made = plan(replace(REQUEST, flavor="proprietary"), replace(applied(), available=CUDA))
    assert made.problems == []
    assert "nvidia-kernel-open-dkms" in made.remove
    assert "nvidia-open-580" in made.remove
    assert made.activation


def test_a_part_of_another_version_is_brought_along() -> None:
    node = applied()
    skewed = {**node.installed, "nvidia-fabricmanager-580": "580.105.08-1", "libcuda1": "580.105.08-1"}
    made = plan(facts=replace(node, installed=skewed, available=CUDA))
    assert made.missing == ["libcuda1", "nvidia-fabricmanager-580"]


def test_the_running_module_decides_not_the_package_list() -> None:
    made = plan(facts=replace(applied(), loaded="580.105.08"))
    assert not made.transaction
    assert made.activation


def test_a_key_must_be_trusted_for_modules_that_are_built_here_and_loaded() -> None:
    assert plan(facts=replace(BARE, secure_boot=True)).signing
    assert not plan().signing
    assert not plan(facts=replace(applied(), secure_boot=True)).signing
    assert not plan(replace(REQUEST, load=False), replace(BARE, secure_boot=True)).signing


def test_a_lost_hold_is_a_reason_to_act() -> None:
    node = applied()
    assert plan(facts=replace(node, held=node.held - {"libcuda1"})).transaction
    assert not plan(replace(REQUEST, hold=False), replace(node, held=set())).transaction


GB200 = {**A100, "device": "0x2941"}
ON_B200 = replace(BARE, gpus=[B200] * 8, nvswitches=0, nvswitch_bridges=4)
IN_RACK = replace(BARE, gpus=[GB200] * 4, nvswitches=0)
FABRIC = {"libnvsdm": VERSIONS[:2], "nvidia-imex": VERSIONS[:2], "nvlsm": ["2025.06.11-1"]}


def test_the_adapters_of_hgx_b200_decide_on_fabric_manager_with_nvlsm() -> None:
    node = replace(ON_B200, available={**CUDA, **FABRIC})
    made = plan(facts=node)
    assert made.problems == []
    assert (made.fabric_manager, made.nvlsm, made.imex) == (True, True, False)
    assert made.packages["libnvsdm"] == "580.95.05-1"
    assert made.packages["nvlsm"] == made.packages["infiniband-diags"] == ""
    assert {"nvlsm", "libnvsdm"} <= set(made.hold) and "infiniband-diags" not in made.hold
    guest = plan(facts=replace(node, nvswitch_bridges=0))
    assert (guest.fabric_manager, guest.nvlsm) == (False, False)
    without = plan(replace(REQUEST, fabric_manager="false"), node)
    assert not {"nvlsm", "libnvsdm", "nvidia-fabricmanager-580"} & set(without.packages)


def test_the_tools_of_an_installed_ofed_stay_in_their_version() -> None:
    there = {**BARE.installed, "infiniband-diags": "2410mlnx", "nvlsm": "2024.10-1"}
    made = plan(facts=replace(ON_B200, available={**CUDA, **FABRIC}, installed=there))
    assert "infiniband-diags" not in made.packages
    assert made.packages["nvlsm"] == ""


def test_the_gpus_of_a_rack_decide_on_imex_without_fabric_manager() -> None:
    node = replace(IN_RACK, available={**CUDA, **FABRIC})
    made = plan(facts=node)
    assert made.problems == []
    assert (made.fabric_manager, made.nvlsm, made.imex) == (False, False, True)
    assert made.packages["nvidia-imex"] == "580.95.05-1"
    assert not {"nvidia-fabricmanager-580", "libnvidia-nscq-580", "nvlsm"} & set(made.packages)
    refused = plan(replace(REQUEST, fabric_manager="true"), node)
    assert "switch trays of this rack run Fabric Manager" in refused.problems[0]["what"]


def test_other_nodes_for_imex_are_a_reason_to_act_that_waits_for_jobs() -> None:
    nodes = ["192.0.2.1", "192.0.2.2"]
    applied_rack = applied()
    installed = {
        name: version
        for name, version in applied_rack.installed.items()
        if "fabricmanager" not in name and "nscq" not in name
    } | {"nvidia-imex": "580.95.05-1"}
    node = replace(
        applied_rack, gpus=[GB200] * 4, nvswitches=0, installed=installed, held=set(installed),
        record={"packages": sorted(installed), "held": sorted(installed)},
    )  # fmt: skip
    asked = replace(REQUEST, imex_nodes=nodes)
    assert not plan(facts=node).activation
    assert plan(asked, node).activation
    assert not plan(asked, replace(node, secure_boot=True)).signing
    assert not plan(asked, replace(node, imex_nodes=nodes)).activation
    assert plan(asked, replace(node, imex_nodes=nodes[::-1])).activation
    assert not plan(asked, applied()).activation


@pytest.mark.parametrize(
    ("facts", "changes", "words"),
    [
        (ON_B200, {"source": "distribution", "branch": "580"}, "Ubuntu 24.04 packages no NVLSM"),
        (IN_RACK, {"imex_nodes": ["192.0.2.1 # first"]}, "nvidia_driver_imex_nodes has '192.0.2.1 # first'"),
    ],
)
def test_what_such_a_fabric_cannot_be_given_is_said(facts: Facts, changes: dict, words: str) -> None:
    ubuntu = {"id": "ubuntu", "version": "24.04", "name": "Ubuntu 24.04"}
    offered = {
        **CUDA, **FABRIC,
        **dict.fromkeys(["nvidia-headless-no-dkms-580-server-open", "nvidia-driver-580-server-open",
                         "nvidia-utils-580-server"], VERSIONS[:2]),
    }  # fmt: skip
    build = Build("580.95.05", KERNEL)
    node = replace(
        facts, available=offered, os=ubuntu if "source" in changes else facts.os,
        builds={f"linux-modules-nvidia-580-server-open-{KERNEL}": {"1": build}},
    )  # fmt: skip
    assert words in " ".join(problem["what"] for problem in plan(replace(REQUEST, **changes), node).problems)


def test_nvswitch_decides_on_fabric_manager_unless_the_operator_does() -> None:
    pcie = replace(BARE, nvswitches=0)
    assert not plan(facts=pcie).fabric_manager
    assert plan(replace(REQUEST, fabric_manager="true"), pcie).fabric_manager
    assert not plan(replace(REQUEST, fabric_manager="false")).fabric_manager


@pytest.mark.parametrize(
    ("request_changes", "facts_changes", "words"),
    [
        ({"version": "570.148.08"}, {}, "not of nvidia_driver_branch 580"),
        ({"version": "580.1.1"}, {}, "it has 570.148.08, 580.95.05, 580.105.08"),
        ({"branch": "599", "version": ""}, {}, "offers no nvidia-open-599"),
        ({}, {"gpus": [V100] * 8}, "older than Turing"),
        ({"flavor": "proprietary"}, {"gpus": [B200]}, "Blackwell"),
        ({}, {"gpus": []}, "no NVIDIA GPU"),
        ({}, {"runfile": True}, ".run installer"),
        ({}, {"os": {"id": "rocky", "version": "8.9", "name": "Rocky Linux 8.9"}}, "(Rocky Linux 8.9: "),
        (
            {"source": "distribution"},
            {"os": {"id": "rocky", "version": "9.4", "name": "Rocky Linux 9.4"}},
            "Rocky Linux 9.4 packages no driver",
        ),
        ({"precompiled": True}, {}, "only for RHEL 9"),
        ({"source": "distribution"}, {}, "packages no Fabric Manager"),
        ({"source": "distribution", "fabric_manager": "false"}, {"available": {}}, "non-free"),
    ],
)
def test_what_cannot_be_is_refused_with_a_remedy(request_changes, facts_changes, words: str) -> None:
    facts = replace(BARE, **{"available": {**CUDA, "nvidia-kernel-dkms": ["580.95.05-1"]}, **facts_changes})
    made = plan(replace(REQUEST, **request_changes), facts)
    assert any(words in problem["what"] for problem in made.problems), made.problems
    assert all(problem["remedy"] for problem in made.problems)
    assert not made.transaction


def test_somebody_elses_driver_is_refused_or_adopted_by_choice() -> None:
    theirs = {**BARE.installed, "nvidia-open-580": "580.105.08-1", "libcuda1": "580.105.08-1"}
    node = replace(BARE, installed=theirs)
    assert "clusterctl did not install" in plan(facts=node).problems[0]["what"]
    assert plan(replace(REQUEST, existing="adopt"), node).problems == []
    same = replace(REQUEST, version="580.105.08")
    assert plan(same, node).problems == []


def test_somebody_elses_hold_is_never_released() -> None:
    node = applied()
    record = {**node.record, "held": [name for name in node.record["held"] if name != "libcuda1"]}
    made = plan(replace(REQUEST, version="580.105.08"), replace(node, record=record, available=CUDA))
    assert made.problems == [
        {
            "what": "held by someone else: libcuda1",
            "remedy": "release them if they may change: apt-mark unhold libcuda1",
            "code": "packages.held",
        }
    ]


def test_debians_own_driver_is_versioned_by_its_kernel_part_alone() -> None:
    parts = ["nvidia-kernel-dkms", "nvidia-smi", "libcuda1", "libnvidia-ptxjitcompiler1", "libnvidia-nvvm4"]
    offered = {
        **{key: ["535.309.01-1~deb12u1"] for key in parts},
        "nvidia-persistenced": ["535.171.04-1~deb12u1"],
    }
    request = replace(
        REQUEST,
        source="distribution",
        flavor="proprietary",
        branch="535",
        version="",
        scope="compute",
        kernel_header_packages=["linux-headers-cloud-amd64"],
    )
    made = plan(request, replace(BARE, nvswitches=0, available=offered))
    assert made.problems == []
    assert made.version == "535.309.01"
    assert made.packages == {
        **dict.fromkeys(parts, "535.309.01-1~deb12u1"),
        "nvidia-persistenced": "",
        "nvidia-modprobe": "",
        "linux-headers-cloud-amd64": "",
    }


UBUNTU = {"id": "ubuntu", "version": "22.04", "name": "Ubuntu 22.04.5 LTS"}


@pytest.mark.parametrize(
    ("branch", "flavor", "names"),
    [
        (
            "580",
            "open",
            ["libnvidia-compute-580", "nvidia-dkms-580-open", "nvidia-utils-580", "nvidia-compute-utils-580"],
        ),
        (
            "580",
            "proprietary",
            ["libnvidia-compute-580", "nvidia-dkms-580", "nvidia-utils-580", "nvidia-compute-utils-580"],
        ),
        (
            "590",
            "open",
            ["libnvidia-compute", "nvidia-dkms-open", "nvidia-persistenced"],
        ),
        ("590", "proprietary", ["libnvidia-compute", "nvidia-dkms", "nvidia-persistenced"]),
    ],
)
def test_computing_on_ubuntu_has_nvidia_smi_and_the_persistence_daemon(branch, flavor, names) -> None:
    version = f"{branch}.44.01-0ubuntu1"
    node = replace(BARE, os=UBUNTU, nvswitches=0, available={key: [version] for key in names})
    made = plan(replace(REQUEST, branch=branch, flavor=flavor, version="", scope="compute"), node)
    assert made.problems == []
    assert {name: made.packages[name] for name in names} == dict.fromkeys(names, version)


@pytest.mark.parametrize(
    ("source", "theirs", "stays"),
    [
        (
            "cuda",
            ["libnvidia-cfg1-580-server", "nvidia-firmware-580-server-580.95.05", "nvidia-utils-580-server"],
            ["nvidia-fabricmanager-580"],
        ),
        (
            "distribution",
            [
                "libnvidia-cfg1-580",
                "nvidia-dkms-580-open",
                "nvidia-firmware-580-580.95.05",
                "nvidia-open-580",
            ],
            ["nvidia-fabricmanager-580", "libnvidia-nscq-580"],
        ),
    ],
)
def test_the_driver_of_ubuntus_other_source_gives_way_as_a_whole_with_the_operators_word(
    source: str, theirs: list[str], stays: list[str]
) -> None:
    version, kernel = "580.95.05-0ubuntu0.22.04.1", BARE.kernels[0]
    names = ["libnvidia-compute-580", "nvidia-dkms-580-open", "nvidia-utils-580", "nvidia-compute-utils-580"]
    servers = ["nvidia-headless-no-dkms-580-server-open", "nvidia-utils-580-server"]
    modules = f"linux-modules-nvidia-580-server-open-{kernel}"
    node = replace(
        BARE,
        os=UBUNTU,
        nvswitches=0,
        installed={**BARE.installed, **dict.fromkeys([*theirs, *stays], version)},
        available={key: [version] for key in (*names, *servers, modules)},
        builds={modules: {version: Build("580.95.05", kernel)}},
    )
    request = replace(REQUEST, source=source, scope="compute")
    (refused,) = plan(request, node).problems
    assert "a driver that clusterctl did not install" in refused["what"]
    made = plan(replace(request, existing="adopt"), node)
    assert made.problems == []
    assert made.remove == sorted(theirs)


@given(
    installed=st.dictionaries(st.sampled_from(sorted(CUDA)), st.sampled_from(VERSIONS)),
    branch=st.sampled_from(["570", "580"]),
    flavor=st.sampled_from(["open", "proprietary"]),
    scope=st.sampled_from(["full", "compute"]),
)
def test_a_plan_never_removes_what_it_installs_and_reaches_a_fixed_point(
    installed, branch, flavor, scope
) -> None:
    facts = replace(BARE, installed=installed, record={"packages": sorted(installed), "held": []})
    facts = replace(facts, available={**CUDA, "cuda-drivers-570": VERSIONS[2:]})
    request = replace(REQUEST, branch=branch, version="", flavor=flavor, scope=scope)
    made = plan(request, facts)
    assert made.problems == []
    assert not set(made.packages) & set(made.remove)
    after = {name: version for name, version in installed.items() if name not in made.remove}
    after |= {name: version or "1" for name, version in made.packages.items()}
    again = plan(request, replace(facts, installed=after, held=set(made.hold), loaded=made.version))
    assert (again.missing, again.remove, again.transaction) == ([], [], False)


def test_every_system_has_every_part_of_the_data() -> None:
    """A part that one system lacks would stop the plan of another: names are gathered from all."""
    needed = {
        "full", "compute", "fabric_manager", "nvlsm", "with_nvlsm", "imex", "pinning", "with_driver", "dkms",
        "headers", "prebuilt",
    }  # fmt: skip
    for source in COMPAT["packages"].values():
        assert {name: needed - set(system) for name, system in source.items() if needed - set(system)} == {}


def test_an_hgx_b200_with_rocky_gets_its_fabrics_packages() -> None:
    version = "3:580.95.05-1.el9"
    names = ["nvidia-driver-cuda", "kmod-nvidia-open-dkms", "nvidia-persistenced", "nvidia-fabricmanager"]
    facts = replace(
        BARE,
        os={"id": "rocky", "version": "9.6", "name": "Rocky Linux 9.6"},
        gpus=[B200] * 8,
        nvswitches=0,
        nvswitch_bridges=2,
        available={name: [version] for name in (*names, "libnvidia-nscq", "libnvsdm")},
        streams=["580-open"],
    )
    made = plan(replace(REQUEST, scope="compute"), facts)
    assert made.problems == []
    assert made.stream == "580-open"
    assert {"libnvsdm", "nvlsm", "infiniband-diags", "nvidia-fabricmanager"} <= set(made.packages)
