"""The simulated container toolkit: what a container is given, and how engines are configured."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from clusterlab import hardware
from clusterlab.simulated.toolkit.clusterlab_toolkit import cdi, ctk, edits, hook, runtime

VERSION = "580.95.05"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    hardware.save(hardware.build("hgx-a100-80gb", "gpu01"), tmp_path / "opt/clusterlab/node/hardware.json")
    python = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for path in (
        "usr/bin/nvidia-smi",
        f"{edits.LIBRARIES}/libnvidia-ml.so.{VERSION}",
        f"{edits.LIBRARIES}/libcuda.so.{VERSION}",
        f"usr/bin/{python}",
        "lib64/ld-linux-x86-64.so.2",
        *(f"dev/nvidia{index}" for index in range(8)),
        "dev/nvidiactl",
        "dev/nvidia-uvm",
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    module = tmp_path / "run/clusterlab/kernel/modules/nvidia"
    module.parent.mkdir(parents=True)
    module.write_text(json.dumps({"version": VERSION, "flavor": "open"}))
    return tmp_path


def container(value: str | None) -> dict[str, Any]:
    environment = ["PATH=/usr/bin"] + ([f"NVIDIA_VISIBLE_DEVICES={value}"] if value is not None else [])
    return {"process": {"env": environment}, "root": {"path": "rootfs"}}


def targets(plan: dict[str, Any] | None) -> set[str]:
    assert plan is not None
    return {pair[1] for pair in plan["mounts"]}


def test_a_container_that_wants_all_gets_all(root: Path) -> None:
    plan = hook.make_plan(container("all"), Path("/bundle"), root)
    given_to_it = targets(plan)
    assert {f"/dev/nvidia{index}" for index in range(8)} | {"/dev/nvidiactl"} <= given_to_it
    assert {"/usr/bin/nvidia-smi", "/opt/clusterlab/node", "/run/clusterlab/kernel"} <= given_to_it
    assert f"/{edits.LIBRARIES}/libcuda.so.{VERSION}" in given_to_it
    assert f"{edits.GUEST}/python3" in given_to_it
    assert plan is not None
    assert plan["rootfs"] == "/bundle/rootfs"
    writable = {pair[1] for pair in plan["mounts"] if not pair[2]}
    assert all(path.startswith("/dev/nvidia") for path in writable)


def test_a_container_gets_the_gpus_that_it_names(root: Path) -> None:
    wanted = hardware.build("hgx-a100-80gb", "gpu01").gpu(5).uuid
    got = targets(hook.make_plan(container(f"2,{wanted}"), Path("/b"), root))
    assert {path for path in got if path[-1].isdigit() and "/dev/" in path} == {
        "/dev/nvidia2",
        "/dev/nvidia5",
    }


def test_indices_follow_nvml_when_a_gpu_is_missing(root: Path) -> None:
    path = root / "opt/clusterlab/node/hardware.json"
    built = hardware.load(path)
    built.gpu(0).state = "missing"
    hardware.save(built, path)
    assert "/dev/nvidia1" in targets(hook.make_plan(container("0"), Path("/b"), root))
    with pytest.raises(edits.ToolkitError, match="7: unknown device"):
        hook.make_plan(container("7"), Path("/b"), root)


def test_a_gpu_that_the_toolkit_hides_is_in_no_container(root: Path) -> None:
    path = root / "opt/clusterlab/node/hardware.json"
    built = hardware.load(path)
    built.toolkit_hides = [7]
    hardware.save(built, path)
    got = targets(hook.make_plan(container("all"), Path("/b"), root))
    assert {f"/dev/nvidia{index}" for index in range(7)} <= got
    assert "/dev/nvidia7" not in got
    assert {"path": "/dev/nvidia7"} not in cdi.specification(root)["devices"][-1]["containerEdits"][
        "deviceNodes"
    ]


@pytest.mark.parametrize("value", [None, "", "void"])
def test_other_containers_are_left_alone(root: Path, value: str | None) -> None:
    assert hook.make_plan(container(value), Path("/b"), root) is None


def test_no_driver_no_container(root: Path) -> None:
    (root / "run/clusterlab/kernel/modules/nvidia").unlink()
    with pytest.raises(edits.ToolkitError, match="driver not loaded"):
        hook.make_plan(container("all"), Path("/b"), root)


def test_half_an_upgrade_is_no_driver(root: Path) -> None:
    module = root / "run/clusterlab/kernel/modules/nvidia"
    module.write_text(json.dumps({"version": "580.105.08", "flavor": "open"}))
    with pytest.raises(edits.ToolkitError, match="version mismatch"):
        edits.driver(root)


def test_links_of_an_image_do_not_lead_out_of_it(tmp_path: Path) -> None:
    rootfs = tmp_path / "rootfs"
    (rootfs / "usr/lib").mkdir(parents=True)
    (rootfs / "lib").symlink_to("usr/lib")
    (rootfs / "opt").symlink_to("/usr")
    (rootfs / "out").symlink_to("../../../etc")
    assert hook.inside(rootfs, "/lib/x.so") == rootfs / "usr/lib/x.so"
    assert hook.inside(rootfs, "/opt/clusterlab") == rootfs / "usr/clusterlab"
    assert hook.inside(rootfs, "/out/passwd") == rootfs / "etc/passwd"


@given(st.lists(st.sampled_from(["..", "a", "b"]), min_size=1, max_size=8))
def test_no_path_leads_out_of_the_container(parts: list[str]) -> None:
    rootfs = Path("/nowhere/rootfs")
    found = Path(hook.inside(rootfs, "/" + "/".join(parts)))
    assert str(found.resolve()).startswith(str(rootfs))


def test_a_ring_of_links_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="symbolic links"):
        hook.inside(tmp_path, "/a/x")


def test_the_cdi_specification_is_yaml_that_names_every_gpu(root: Path) -> None:
    document = cdi.specification(root)
    assert yaml.safe_load(cdi.to_yaml(document)) == document
    names = {device["name"] for device in document["devices"]}
    assert {"0", "7", "all"} <= names
    assert len(names) == 17
    every = next(device for device in document["devices"] if device["name"] == "all")
    assert len(every["containerEdits"]["deviceNodes"]) == 8
    mounted = [mount["containerPath"] for mount in document["containerEdits"]["mounts"]]
    assert f"/{edits.LIBRARIES}/libcuda.so.{VERSION}" in mounted
    assert not any(path.startswith("/proc") for path in mounted)


def test_cdi_list_reads_what_generate_wrote(root: Path, tmp_path: Path) -> None:
    directory = tmp_path / "cdi"
    directory.mkdir()
    (directory / "nvidia.yaml").write_text(f"---\n{cdi.to_yaml(cdi.specification(root))}\n")
    found = cdi.names((directory,))
    assert "nvidia.com/gpu=all" in found
    assert len(found) == 17


def options(**changes: object) -> argparse.Namespace:
    usual = {"nvidia_runtime_name": "nvidia", "nvidia_runtime_path": "nvidia-container-runtime"}
    return argparse.Namespace(**{**usual, "set_as_default": False, "cdi": False, **changes})


def test_docker_keeps_what_an_operator_configured() -> None:
    before = {
        "log-driver": "journald",
        "runtimes": {"kata": {"path": "kata"}},
        "features": {"buildkit": True},
    }
    after = ctk.docker_config(before, options(cdi=True, set_as_default=True))
    assert after["log-driver"] == "journald"
    assert after["runtimes"] == {
        "kata": {"path": "kata"},
        "nvidia": {"args": [], "path": "nvidia-container-runtime"},
    }
    assert after["features"] == {"buildkit": True, "cdi": True}
    assert after["default-runtime"] == "nvidia"
    assert ctk.docker_config(after, options(cdi=True, set_as_default=True)) == after


def test_the_runtime_adds_its_hook_once(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps(container("all")))
    runtime.edit(config)
    runtime.edit(config)
    hooks = json.loads(config.read_text())["hooks"]["prestart"]
    assert hooks == [{"path": runtime.HOOK, "args": [runtime.HOOK, "prestart"]}]


def test_the_runtime_leaves_other_containers_alone(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps(container(None)))
    before = config.read_text()
    runtime.edit(config)
    assert config.read_text() == before


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--root", "/r", "create", "--bundle", "/b", "id"], "/b"),
        (["create", "--bundle=/b", "id"], "/b"),
        (["create", "-b", "/b", "id"], "/b"),
    ],
)
def test_the_runtime_finds_the_bundle(arguments: list[str], expected: str) -> None:
    assert runtime.bundle(arguments) == Path(expected)
