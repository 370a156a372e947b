"""The lab command if there is no lab, or the request is wrong: a sentence, and exit code 2."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterctl.main import run
from clusterlab import docker, lab, nodes
from clusterlab.images.training import TrainingImage
from clusterlab.lab import Artifacts, Request
from clusterlab.packages import Packages
from clusterlab.progress import LabProgress
from clusterlab.state import LabDirectory, LabNode, LabState


@pytest.mark.parametrize(
    "arguments",
    [
        ["status"],
        ["ssh", "gpu01"],
        ["fault", "inject", "gpu01", "node-down"],
        ["fault", "clear"],
    ],
)
def test_without_a_lab_the_way_to_one_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    position = 2 if arguments[0] == "fault" else 1
    code = run(["lab", *arguments[:position], "--dir", str(tmp_path), *arguments[position:]])
    said = capsys.readouterr()
    assert code == 2
    assert "there is no lab here" in said.err
    assert "clusterctl lab up" in said.err
    assert said.out == ""


def test_the_kinds_of_fault_are_listed_without_a_lab(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["lab", "fault", "list", "--dir", str(tmp_path), "--json"]) == 0
    assert '"kind": "node-down"' in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["--nodes", "0"], ["--nodes", "many"], ["--os", "plan9"], ["--what"]])
def test_wrong_options_are_usage_errors(tmp_path: Path, arguments: list[str]) -> None:
    assert run(["lab", "up", "--dir", str(tmp_path), *arguments]) == 2


def test_unknown_hardware_names_the_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["lab", "up", "--dir", str(tmp_path), "--hardware", "abacus"]) == 2
    assert "hgx-a100-80gb" in capsys.readouterr().err
    assert not (tmp_path / "state.json").exists()


@pytest.mark.parametrize(
    "request_",
    [
        Request(1, "hgx-a100-80gb", "debian12"),
        Request(2, "hgx-a100-40gb", "debian12"),
        Request(2, "hgx-a100-80gb", "debian13"),
    ],
)
def test_a_lab_does_not_turn_into_another_by_itself(tmp_path: Path, request_: Request) -> None:
    where = LabDirectory(tmp_path)
    nodes = [LabNode(name=f"gpu0{n}", role="gpu", address=f"10.87.1.1{n}", image="i") for n in (1, 2)]
    where.save(LabState(suffix=where.names.suffix, system="debian12", hardware="hgx-a100-80gb", nodes=nodes))
    with pytest.raises(lab.ClusterctlError) as caught:
        lab._agreed(where, request_)
    assert caught.value.code == "lab.another"
    assert "clusterctl lab down" in caught.value.hint
    assert lab._agreed(where, Request(3, "hgx-a100-80gb", "debian12")).suffix == where.names.suffix


@pytest.mark.parametrize(
    ("image", "directory", "made"),
    [("new", "packages", False), ("old", "packages", True), ("new", "elsewhere", True)],
)
def test_a_depot_of_another_image_or_with_other_contents_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, image: str, directory: str, made: bool
) -> None:
    packages, registry = tmp_path / "home" / "packages", tmp_path / "registry"
    packages.mkdir(parents=True)
    training, contents = TrainingImage(registry, "r", "t", "d"), Packages(packages, b"", "AB" * 20)
    built = Artifacts("node", "registry", "new", training, contents)
    found = {
        "State": {"Running": True},
        "Config": {"Image": image},
        "Mounts": [
            {"Destination": "/srv/depot", "Source": str(tmp_path / "home" / directory)},
            {"Destination": "/var/lib/registry", "Source": str(registry)},
        ],
    }
    monkeypatch.setattr(docker, "inspect", lambda *_names, **_options: [found])
    created: list[str] = []
    monkeypatch.setattr(nodes, "remove", lambda *_arguments: None)
    monkeypatch.setattr(nodes, "create_depot", lambda _names, node, *_paths: created.append(node.image))
    where = LabDirectory(tmp_path / ".lab")
    depot = LabNode(name="depot", role="depot", address="10.87.1.2", image="old")
    lab._ensure_depot(where, depot, built, LabProgress(lambda _text: None))
    assert created == (["new"] if made else [])
