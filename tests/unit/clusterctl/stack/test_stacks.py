"""From settings, a locked image and recorded facts to stacks, conflicts with their reasons, and drift."""

from __future__ import annotations

import dataclasses
import datetime
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from tests.support.validated_site import result

from clustercheck.evidence.node import NodeEvidence
from clusterctl import main
from clusterctl.cluster import inventory as inventory_module
from clusterctl.cluster import lock as lock_file
from clusterctl.cluster.compat_rows import compatibility
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.cluster.inventory import Inventory, from_listing
from clusterctl.cluster.lock import Lock, LockedBlob, LockedImage
from clusterctl.cluster.resolver import CompatibilityRow, solve
from clusterctl.commands import status
from clusterctl.report import files, markdown, terminal
from clusterctl.rollout.inspection import status_of
from clusterctl.runs.store import RunStore
from clusterctl.stack.facts import NodeFacts, recorded, system_of
from clusterctl.stack.judge import StackReport, judge_stacks, locked_environment
from clusterctl.stack.kinds import kinds_of
from clusterctl.stack.resolution import resolve, stacks_of, support_warnings

DIGEST = f"sha256:{'a' * 64}"
TAG = "3.3.1-gpu-cuda12.9-cudnn9.9"
BLOB = LockedBlob(digest=DIGEST, size=7)
PADDLE = LockedImage(
    name="training", source=f"docker.io/paddlepaddle/paddle:{TAG}", target="library/paddle", tag=TAG,
    digest=DIGEST, platforms=("linux/amd64",), manifest=DIGEST, config=BLOB, layers=(BLOB,),
    cuda="12.9", cudnn="9.9", minimum_driver="525.60.13", drivers=(("525.60.13", ""),),
    minimum_driver_from="its CUDA, by compat/cuda.yml",
)  # fmt: skip
SEEN = NodeFacts(
    os="debian 12", kernel="6.1.0-18-amd64", driver="580.95.05", fabric_manager="580.95.05", toolkit="1.18.1",
    docker="20.10.24", seen_by="validation x",
)  # fmt: skip


def site(tmp_path: Path, everywhere: Mapping[str, Any], **hosts: Mapping[str, Any]) -> Inventory:
    """GPU nodes with settings for all of them and for each, written down and as Ansible lists them."""
    names = hosts or {"gpu01": {}, "gpu02": {}}
    tmp_path.mkdir(exist_ok=True)
    directory = ClusterDirectory(tmp_path)
    declared = {
        name: {"ansible_host": f"192.0.2.{n}", **own} for n, (name, own) in enumerate(names.items(), 1)
    }
    directory.hosts_file.write_text(yaml.safe_dump({"gpu_nodes": {"hosts": declared}}))
    directory.group_vars.mkdir(exist_ok=True)
    (directory.group_vars / "gpu_nodes.yml").write_text(yaml.safe_dump(dict(everywhere)))
    inventory_module.forget_cached()
    variables = {name: {**everywhere, **own} for name, own in declared.items()}
    return from_listing(directory, {"_meta": {"hostvars": variables}, "gpu_nodes": {"hosts": list(declared)}})


def judged(inventory: Inventory, image: LockedImage | None = None, **facts: NodeFacts) -> StackReport:
    return judge_stacks(inventory, Lock(images=(image,) if image else ()), facts)


def test_hosts_alike_are_one_kind_and_its_stack_satisfies_every_row(tmp_path: Path) -> None:
    inventory = site(
        tmp_path,
        {"hardware_profile": "hgx-a100-80gb"},
        gpu01={},
        gpu02={},
        gpu03={"nvidia_driver_branch": "595"},
    )
    found = judged(inventory, PADDLE, gpu01=SEEN, gpu02=SEEN)
    assert [one.kind.hosts for one in found.resolutions] == [("gpu01", "gpu02"), ("gpu03",)]
    for one in found.resolutions:
        for row in (*compatibility().rows, *one.kind.declared):
            assert row.is_satisfied(one.assignment), row
    first = found.resolutions[0]
    assert first.values == {
        "source": "cuda", "driver": "580", "modules": "open", "fabric_manager": "580", "gpu": "8.0",
        "nvswitch": "yes", "os": "debian 12", "kernel": "6.1.0-18-amd64", "engine": "docker",
        "docker": "20.10.24", "gpu_mode": "auto", "toolkit": "1.18.1", "image_requires": "none",
        "cuda": "12.9", "cudnn": "9.9", "containerd": "none", "nccl": "none", "capabilities": "none",
        "paddle": "cu129",
    }  # fmt: skip
    assert first.unknown == ()
    # Of the third nothing was seen: its system and versions are not claimed.
    assert set(found.resolutions[1].unknown) == {"os", "kernel", "docker", "toolkit"}
    assert found.conflicts == ()


@pytest.mark.parametrize(
    ("settings", "image", "rows", "remedies"),
    [
        (
            {"hardware_profile": "v100-sxm2-32gb"},
            None,
            {"open-modules-gpu"},
            {"set nvidia_driver_flavor: proprietary"},
        ),
        (
            {"hardware_profile": "b200-sxm6-180gb", "nvidia_driver_branch": "550"},
            None,
            {"b200-driver"},
            {"set nvidia_driver_branch: 580 or 595 or 590 or 570"},
        ),
        (
            {"nvidia_driver_branch": "570"},
            PADDLE.model_copy(update={"source": "x.example/app:1", "tag": "1", "cuda": "13.0", "cudnn": ""}),
            {"cuda-13-driver"},
            {
                "set nvidia_driver_branch: 580 or 595 or 590",
                "take a training image with CUDA 12.9 or 12.8 or 12.6 or 12.4 or 12.2 or 11.8",
            },
        ),
        (
            {"hardware_profile": "b200-sxm6-180gb"},
            PADDLE.model_copy(update={"compute_capabilities": "8.0 9.0"}),
            {"image-capabilities"},
            {"take a training image that is built for these GPUs"},
        ),
        (
            {},
            PADDLE.model_copy(update={"cuda": "12.6"}),
            {"paddle-cu129"},
            None,
        ),
    ],
)
def test_a_conflict_names_what_requires_what_where_and_what_solves_it(
    tmp_path: Path,
    settings: dict[str, Any],
    image: LockedImage | None,
    rows: set[str],
    remedies: set[str] | None,
) -> None:
    found = judged(site(tmp_path, settings), image)
    assert [{row.id for row in one.rows if not row.origin} for one in found.conflicts] == [rows]
    conflict = found.conflicts[0]
    assert conflict.hosts == ("gpu01", "gpu02")
    if remedies is not None:
        assert set(conflict.remedies) == remedies
    for row in conflict.rows:
        if row.origin in settings:
            line = (
                list(yaml.safe_load((tmp_path / "group_vars/gpu_nodes.yml").read_text())).index(row.origin)
                + 1
            )
            assert row.source == f"group_vars/gpu_nodes.yml:{line}"
    # Its proof: these rows alone are too many, and any of them can be what is one too many.
    domains = {**compatibility().domains}
    for row in conflict.rows:
        for name, text in row.needs if row.origin else ():
            domains[name] = tuple(dict.fromkeys((*domains[name], text)))
    assert solve(domains, conflict.rows) is None
    for row in conflict.rows:
        assert solve(domains, [other for other in conflict.rows if other is not row]) is not None


def test_what_an_image_says_of_drivers_itself_is_what_counts(tmp_path: Path) -> None:
    image = PADDLE.model_copy(
        update={
            "drivers": (("535", "536"), ("575.51.03", "")),
            "minimum_driver_from": "environment NVIDIA_REQUIRE_CUDA",
        }
    )
    assert judged(site(tmp_path, {"nvidia_driver_branch": "580"}), image).conflicts == ()
    (conflict,) = judged(site(tmp_path, {"nvidia_driver_branch": "550"}), image).conflicts
    assert {row.origin for row in conflict.rows} == {"nvidia_driver_branch", "training image"}
    assert "535, < 536 or >= 575.51.03" in conflict.what


def test_two_conflicts_are_both_named(tmp_path: Path) -> None:
    settings = {
        "hardware_profile": "b200-sxm6-180gb",
        "nvidia_driver_branch": "550",
        "nvidia_driver_flavor": "proprietary",
    }
    found = judged(site(tmp_path, settings))
    assert sorted(row.id for one in found.conflicts for row in one.rows if not row.origin) == [
        "b200-driver",
        "blackwell-modules",
    ]


def test_another_fabric_manager_than_the_driver_is_a_conflict_of_what_is_installed(tmp_path: Path) -> None:
    seen = NodeFacts(driver="580.95.05", fabric_manager="580.105.08", seen_by="seen now")
    found = judged(site(tmp_path, {"hardware_profile": "hgx-a100-80gb"}), None, gpu01=SEEN, gpu02=seen)
    (conflict,) = found.conflicts
    assert conflict.hosts == ("gpu02",)
    assert [row.id for row in conflict.rows if not row.origin] == ["fabric-manager-version"]
    assert "bring Fabric Manager to 580.95.05" in conflict.remedies


def drift(
    before: Inventory, now: Inventory, *, image: LockedImage = PADDLE, then: Any = None, **facts: Any
) -> list[str]:
    data = compatibility()
    stacks = stacks_of(resolve(kinds_of(before, PADDLE, then or {}, data), data))
    report = judge_stacks(now, Lock(images=(image,)), facts, locked=Lock(stacks=stacks))
    return [one.text for one in report.differences]


def test_drift_names_settings_images_and_nodes_that_are_other_than_locked(tmp_path: Path) -> None:
    a100 = {"hardware_profile": "hgx-a100-80gb"}
    before = site(tmp_path / "before", a100)
    assert drift(before, site(tmp_path / "now", a100)) == []
    # What a validation saw since is new knowledge, and no drift; another driver of the branch is none either.
    assert drift(before, site(tmp_path / "now", a100), gpu01=SEEN) == []
    assert drift(before, site(tmp_path / "now", {**a100, "nvidia_driver_branch": "595"})) == [
        "gpu01, gpu02: driver 580 is locked, now 595 (nvidia_driver_branch is 595)",
        "gpu01, gpu02: Fabric Manager 580 is locked, now 595 (by the compatibility data)",
    ]
    image = PADDLE.model_copy(update={"cudnn": "9.10", "nccl": "2.27.3"})
    assert drift(before, site(tmp_path / "now", a100), image=image) == [
        "gpu01, gpu02: cuDNN 9.9 is locked, now 9.10 (the training image has cuDNN 9.10)",
        "gpu01, gpu02: NCCL none is locked, now 2.27.3 (the training image has NCCL 2.27.3)",
    ]
    other = NodeFacts(driver="570.124.06", kernel="6.1.0-21-amd64", os="debian 12", seen_by="validation y")
    assert drift(before, site(tmp_path / "now", a100), then={"gpu02": SEEN}, gpu02=other) == [
        "gpu02: kernel 6.1.0-18-amd64 is locked, now 6.1.0-21-amd64 (kernel is 6.1.0-21-amd64)",
        "gpu02: driver 580 is locked, now 570.124.06 (loaded: validation y)",
    ]
    assert drift(before, site(tmp_path / "now", a100, gpu01={}, gpu03={})) == [
        "gpu03: not in the lock",
        "gpu02: in the lock, and no longer declared",
    ]


PINNED = {
    "nvidia_container_toolkit_version": "1.18.1",
    "container_runtime_packages": ["docker.io=20.10.24+dfsg1-1+deb12u1"],
}


@pytest.mark.parametrize(
    ("settings", "seen", "expected"),
    [
        (PINNED, {"toolkit": "1.18.1", "docker": "20.10.24+dfsg1"}, []),
        (
            PINNED,
            {"toolkit": "1.17.8", "docker": "26.1.5+dfsg1"},
            [
                "container toolkit 1.18.1 is locked, now 1.17.8 (installed: validation y)",
                "Docker 20.10.24 is locked, now 26.1.5+dfsg1 (installed: validation y)",
            ],
        ),
        # By no setting: what the nodes had then is locked, and the difference told once.
        (
            {},
            {"toolkit": "1.17.8", "docker": "20.10.24"},
            ["container toolkit 1.18.1 is locked, now 1.17.8 (container toolkit is 1.17.8)"],
        ),
        ({"container_runtime_packages": ["docker-ce=5:26.1.*"]}, {"docker": "26.1.5"}, []),
        (
            {"container_runtime_engine": "containerd"},
            {"docker": "20.10.24"},
            ["container engine containerd is locked, now docker (Docker 20.10.24 runs: validation y)"],
        ),
        ({"container_runtime_engine": "containerd"}, {}, []),
        (
            {
                "container_runtime_engine": "containerd",
                "container_runtime_packages": ["containerd.io=2.1.4-1"],
            },
            {"containerd": "1.7.28"},
            ["containerd 2.1.4 is locked, now 1.7.28 (installed: validation y)"],
        ),
        # The containerd that Docker brings is no variable of its own.
        ({}, {"toolkit": "1.18.1", "docker": "20.10.24", "containerd": "1.7.28"}, []),
    ],
)
def test_an_installed_toolkit_or_engine_other_than_the_locked_one_is_drift(
    tmp_path: Path, settings: dict[str, Any], seen: dict[str, str], expected: list[str]
) -> None:
    a100 = {"hardware_profile": "hgx-a100-80gb", **settings}
    then = NodeFacts(toolkit="1.18.1", docker="" if settings else "20.10.24", seen_by="validation x")
    now = NodeFacts(**seen, seen_by="validation y")
    found = drift(site(tmp_path / "a", a100), site(tmp_path / "b", a100), then={"gpu02": then}, gpu02=now)
    assert found == [f"gpu02: {text}" for text in expected]


def test_a_kernel_that_the_branch_does_not_build_for_is_a_conflict(tmp_path: Path) -> None:
    seen = NodeFacts(os="ubuntu 24.04", kernel="6.17.0-8-generic", seen_by="seen now")
    inventory = site(tmp_path, {"hardware_profile": "hgx-a100-80gb", "nvidia_driver_branch": "550"})
    (conflict,) = judged(inventory, gpu01=seen, gpu02=seen).conflicts
    assert "kernel is 6.17.0-8-generic" in conflict.what
    assert "set nvidia_driver_branch: 580 or 595 or 590 or 570 or 535" in conflict.remedies
    # Ubuntu patches its own packages.
    own = {"hardware_profile": "a100-pcie-40gb", "nvidia_driver_branch": "550"}
    inventory = site(tmp_path / "own", {**own, "nvidia_driver_source": "distribution"})
    assert judged(inventory, gpu01=seen, gpu02=seen).conflicts == ()


def test_containerd_alone_is_judged_by_the_version_that_the_node_has(tmp_path: Path) -> None:
    settings = {"container_runtime_engine": "containerd", "nvidia_container_toolkit_mode": "cdi"}
    seen = NodeFacts(os="debian 12", containerd="1.6.20", toolkit="1.18.1", seen_by="seen now")
    (conflict,) = judged(site(tmp_path, settings), gpu01=seen, gpu02=seen).conflicts
    assert [row.id for row in conflict.rows if not row.origin] == ["cdi-containerd"]
    seen = dataclasses.replace(seen, containerd="1.7.15", toolkit="1.19.1")
    (conflict,) = judged(site(tmp_path / "b", settings), gpu01=seen, gpu02=seen).conflicts
    assert [row.id for row in conflict.rows if not row.origin] == ["cdi-0.7-containerd"]
    pinned = {**settings, "container_runtime_packages": ["containerd=1.7.24~ds1-6"]}
    found = judged(site(tmp_path / "c", pinned), gpu01=seen, gpu02=seen)
    assert found.conflicts == ()
    assert found.resolutions[0].values["containerd"] == "1.7.24"


@pytest.mark.parametrize("system", ["debian 12", "rocky 9", "rhel 9", "almalinux 9"])
def test_containerd_alone_is_for_every_system_as_the_role_installs_it(tmp_path: Path, system: str) -> None:
    inventory = site(tmp_path, {"container_runtime_engine": "containerd"})
    seen = {name: NodeFacts(os=system, seen_by="seen now") for name in ("gpu01", "gpu02")}
    assert judged(inventory, **seen).conflicts == ()


@pytest.mark.parametrize(
    ("branch", "today", "expected"),
    [
        ("535", "2026-11-25", "support of driver branch 535 ended on 2026-06-30"),
        ("535", "2026-06-30", "support of driver branch 535 ends on 2026-06-30"),
        ("525", "2026-11-25", "support of driver branch 525 has ended"),
        ("580", "2026-11-25", ""),
        ("999", "2026-11-25", ""),
    ],
)
def test_a_branch_past_its_end_is_a_warning_with_the_date(
    tmp_path: Path, branch: str, today: str, expected: str
) -> None:
    data = compatibility()
    resolutions = resolve(kinds_of(site(tmp_path, {"nvidia_driver_branch": branch}), None, {}, data), data)
    found = support_warnings(resolutions, data, datetime.date.fromisoformat(today))
    assert len(found) == bool(expected)
    assert all(expected in one and "recommended: 580" in one for one in found)


@pytest.mark.parametrize(
    ("pretty", "system"),
    [
        ("Debian GNU/Linux 12 (bookworm)", "debian 12"),
        ("Ubuntu 22.04.5 LTS", "ubuntu 22.04"),
        ("Rocky Linux 9.4 (Blue Onyx)", "rocky 9"),
        ("AlmaLinux 9.6 (Sage Margay)", "almalinux 9"),
        ("Red Hat Enterprise Linux 9.6 (Plow)", "rhel 9"),
        ("Debian GNU/Linux trixie/sid", ""),
        ("", ""),
    ],
)
def test_systems_are_told_by_their_names(pretty: str, system: str) -> None:
    assert system_of(pretty) == system


def call(root: Path, *words: str) -> Result:
    inventory_module.forget_cached()
    return CliRunner().invoke(main.cli, ["-C", str(root), *words], standalone_mode=False)


def validated(directory: ClusterDirectory, **nodes: dict[str, Any]) -> None:
    store = RunStore(directory)
    run = store.create("validate", [])
    document = result(run.id)
    files.write_result(run, document.__class__(**{**document.__dict__, "environment": {"nodes": nodes}}))
    store.finish(run, 0, {"verdict": "pass"})


def test_lock_writes_the_stacks_and_check_exits_1_with_what_differs(tmp_path: Path) -> None:
    directory = site(tmp_path, {"hardware_profile": "hgx-a100-80gb"}).directory
    assert call(tmp_path, "lock").return_value == 0
    (stack,) = lock_file.read(directory).stacks
    assert stack.hosts == ("gpu01", "gpu02")
    assert (stack.values["driver"], stack.values["gpu"]) == ("580", "8.0")
    assert "os" not in stack.values
    text = lock_file.path(directory).read_text()
    assert call(tmp_path, "lock", "--check").return_value == 0
    site(tmp_path, {"hardware_profile": "hgx-a100-80gb", "nvidia_driver_branch": "595"})
    validated(directory, gpu02={"os": "Debian GNU/Linux 12 (bookworm)", "driver": "570.124.06"})
    assert recorded(directory)["gpu02"].os == "debian 12"
    checked = call(tmp_path, "lock", "--check", "--json")
    assert checked.return_value == 1
    records = [json.loads(line) for line in checked.stdout.splitlines()]
    named = {
        (one["variable"], one["locked"], one["now"], *one["hosts"])
        for one in records
        if one["type"] == "difference"
    }
    assert named == {
        ("driver", "580", "595", "gpu01", "gpu02"),
        ("fabric_manager", "580", "595", "gpu01", "gpu02"),
        ("driver", "580", "570.124.06", "gpu02"),
    }
    assert records[-1]["exit"] == 1
    assert lock_file.path(directory).read_text() == text
    assert call(tmp_path, "lock").return_value == 0
    assert lock_file.read(directory).stacks[0].values["driver"] == "595"


def test_lock_tells_a_conflict_with_its_chain_and_code(tmp_path: Path) -> None:
    directory = site(tmp_path, {"hardware_profile": "v100-sxm2-32gb"}).directory
    done = call(tmp_path, "lock")
    assert done.return_value == 1
    for part in (
        "hardware_profile is v100-sxm2-32gb: compute capability 7.0 (Volta) (group_vars/gpu_nodes.yml:1)",
        "nvidia_driver_flavor is open (default of the role)",
        "(open-modules-gpu: NVIDIA Driver Installation Guide",
        "set nvidia_driver_flavor: proprietary",
        "lock.conflict",
    ):
        assert part in done.stderr
    assert lock_file.read(directory).stacks == ()
    (conflict,) = [
        json.loads(line)
        for line in call(tmp_path, "lock", "--json").stdout.splitlines()
        if "conflict" in line and "rows" in line
    ]
    assert conflict["remedies"] == ["set nvidia_driver_flavor: proprietary"]


def test_of_two_kinds_the_one_that_fits_is_locked_and_the_other_is_told_once(tmp_path: Path) -> None:
    a100 = {"hardware_profile": "hgx-a100-80gb"}
    directory = site(tmp_path, {}, gpu01=a100, gpu02={"hardware_profile": "v100-sxm2-32gb"}).directory
    assert call(tmp_path, "lock").return_value == 1
    assert [stack.hosts for stack in lock_file.read(directory).stacks] == [("gpu01",)]
    checked = call(tmp_path, "lock", "--check", "--json")
    assert checked.return_value == 1
    kinds = [json.loads(line)["type"] for line in checked.stdout.splitlines()]
    assert kinds == ["stack", "conflict", "summary"]


def test_status_names_what_differs_from_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site(tmp_path, {"hardware_profile": "hgx-a100-80gb"})
    assert call(tmp_path, "lock").return_value == 0
    probed = {"probe": 1, "module": {"version": "570.124.06"}}
    found = [
        status_of(NodeEvidence("gpu01", probed), None, wants_image=False),
        status_of(NodeEvidence("gpu02", unreachable="no route"), None, wants_image=False),
    ]
    monkeypatch.setattr(status, "inspect", lambda *_arguments, **_options: found)
    sentence = "gpu01: driver 580 is locked, now 570.124.06 (loaded: seen now)"
    assert sentence in call(tmp_path, "status").stdout
    records = [json.loads(line) for line in call(tmp_path, "status", "--json").stdout.splitlines()]
    assert [one["drift"] for one in records] == [[sentence], []]


def test_a_report_notes_what_differs_from_the_lock(tmp_path: Path) -> None:
    inventory = site(tmp_path, {"hardware_profile": "hgx-a100-80gb"})
    stacks = stacks_of(judged(inventory, PADDLE).resolutions)
    lock = Lock(stacks=stacks, images=(PADDLE,))
    seen = {"nodes": {"gpu01": {"driver": "580.95.05", "fabric_manager": "580.105.08"}}, "notes": ["a note"]}
    found = locked_environment(inventory, lock, seen, "r1")
    assert found["lock"]["stacks"][0]["values"]["driver"] == "580"
    assert found["lock"]["drift"] == []
    assert found["notes"][0] == "a note"
    assert "Fabric Manager and driver must be of the same version" in found["notes"][1]
    seen = {"nodes": {"gpu01": {"driver": "570.124.06"}}, "notes": []}
    sentence = "gpu01: driver 580 is locked, now 570.124.06 (loaded: validation r1)"
    found = locked_environment(inventory, lock, seen, "r1")
    assert (found["notes"], len(found["lock"]["drift"])) == ([sentence], 1)
    document = result("r1")
    document = document.__class__(**{**document.__dict__, "environment": found | {"nodes": seen["nodes"]}})
    assert sentence in markdown.render(document)
    assert sentence in terminal.render(document, width=200)
    assert locked_environment(inventory, None, seen, "r1") == {"lock": None}


def test_no_node_image_or_setting_is_read_as_a_condition(tmp_path: Path) -> None:
    for word in (
        "as nothing",
        "not none",
        ">= 1",
        "none | 1",
        "in x",
        "1, 2",
        "\x1b[2J",
        "é",
        "x" * 300,
        "|",
    ):
        seen = NodeFacts(*[word] * 8, "seen now")
        image = PADDLE.model_copy(
            update={"cuda": word, "cudnn": word, "nccl": word, "compute_capabilities": word, "tag": word,
                    "drivers": ((f"535 {word}", f" {word}"),), "minimum_driver_from": "label x"}
        )  # fmt: skip
        settings = {"nvidia_container_toolkit_version": word, "hardware_gpu_model": word}
        found = judged(site(tmp_path, settings), image, gpu01=seen, gpu02=seen)
        assert [set(one.values) & {"os", "kernel", "toolkit"} for one in found.resolutions] == [set()]
        assert stacks_of(found.resolutions)
        assert {one.values["cuda"] for one in found.resolutions} == {"none"}


def test_fabric_manager_is_as_the_setting_says_also_as_a_boolean(tmp_path: Path) -> None:
    for value, expected in (("auto", "580"), (True, "580"), ("true", "580")):
        settings = {"hardware_profile": "hgx-a100-80gb", "nvidia_driver_fabric_manager": value}
        assert judged(site(tmp_path, settings)).resolutions[0].values["fabric_manager"] == expected
    for value in (False, "false"):
        settings = {"hardware_profile": "hgx-a100-80gb", "nvidia_driver_fabric_manager": value}
        (conflict,) = judged(site(tmp_path, settings)).conflicts
        assert conflict.remedies == ("set nvidia_driver_fabric_manager: auto",)


def test_hgx_b200_needs_fabric_manager_with_nvlsm_which_ubuntus_own_archive_lacks(tmp_path: Path) -> None:
    settings = {"hardware_profile": "b200-sxm6-180gb"}
    assert judged(site(tmp_path, settings)).resolutions[0].values["fabric_manager"] == "580"
    seen = NodeFacts(os="ubuntu 24.04", kernel="6.8.0-151-generic", seen_by="seen now")
    settings["nvidia_driver_source"] = "distribution"
    conflict = judged(site(tmp_path, settings), gpu01=seen, gpu02=seen).conflicts[0]
    assert "nvlsm-distribution-ubuntu" in [row.id for row in conflict.rows]


def test_a_validation_is_not_lost_over_a_setting_that_cannot_be_evaluated(tmp_path: Path) -> None:
    inventory = site(tmp_path, {"nvidia_container_toolkit_mode": "{{ nowhere.at_all }}"})
    found = locked_environment(inventory, Lock(), {"nodes": {}, "notes": ["a note"]}, "r1")
    assert found["notes"][0] == "a note"
    assert found["notes"][1].startswith("the nodes were not compared with clusterctl.lock: ")


def test_a_declared_row_is_the_settings_first_word(tmp_path: Path) -> None:
    inventory = site(
        tmp_path,
        {
            "nvidia_driver_version": "580.95.05",
            "container_runtime_packages": ["docker-ce=5:28.1.1-1~debian.12~bookworm"],
        },
    )
    (kind,) = kinds_of(inventory, None, {"gpu01": SEEN, "gpu02": SEEN}, compatibility())
    assert kind.values["driver"] == "580.95.05"
    assert kind.values["docker"] == "28.1.1"
    assert all(isinstance(row, CompatibilityRow) and row.source for row in kind.declared)
