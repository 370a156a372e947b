"""The cluster directory that the lab writes, and what it leaves alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import yaml
from hypothesis import given
from hypothesis import strategies as st
from tests.support.tree import ROOT

from clusterlab.cluster_files import Offer, inventory, pin, settings, write
from clusterlab.state import LabDirectory, LabNode, LabState

OFFER = Offer("NVIDIA A100-SXM4-80GB", 8, "paddlepaddle/paddle", "sha256:" + "0" * 64, "AB" * 20)
KEYS = {"gpu01": ["ssh-ed25519 AAAA1"], "registry01": ["ssh-ed25519 AAAA2"]}


def a_state(*gpu_nodes: str) -> LabState:
    nodes = [
        LabNode(name=name, role="gpu", address=f"10.87.1.{10 + number}", image="i")
        for number, name in enumerate(gpu_nodes, 1)
    ]
    nodes.append(LabNode(name="registry01", role="registry", address="10.87.1.5", image="i"))
    return LabState(suffix="0" * 8, system="debian12", hardware="hgx-a100-80gb", nodes=nodes)


def test_ansible_reads_what_was_written(tmp_path: Path) -> None:
    write(tmp_path, a_state("gpu01"), OFFER, KEYS)
    done = subprocess.run(
        [
            str(Path(sys.executable).with_name("ansible-inventory")),
            "-i",
            str(tmp_path / "hosts.yml"),
            "--list",
        ],
        capture_output=True,
        check=True,
        env={**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")},
    )
    variables = json.loads(done.stdout)["_meta"]["hostvars"]
    assert variables["gpu01"]["ansible_host"] == "10.87.1.11"
    assert variables["gpu01"]["hardware_gpu_count"] == 8
    assert "hardware_gpu_count" not in variables["registry01"]
    assert variables["registry01"]["training_image_digest"] == OFFER.image_digest


def test_host_keys_are_always_checked() -> None:
    arguments = settings(a_state("gpu01"), OFFER)["all"]["ansible_ssh_common_args"]
    assert "StrictHostKeyChecking=yes" in arguments


def test_no_setting_says_that_this_is_a_lab() -> None:
    text = yaml.safe_dump(settings(a_state("gpu01"), OFFER)).lower()
    assert "simulat" not in text


def test_the_controller_is_told_how_the_depots_registry_is_asked(tmp_path: Path) -> None:
    state = a_state("gpu01")
    state.nodes.append(LabNode(name="depot", role="depot", address="10.87.1.2", image="i"))
    said = settings(state, OFFER)["all"]
    source = said["training_image_source"].partition("/")[0]
    assert said["images_source_addresses"] == {source: "10.87.1.2:5000"}
    lab = LabDirectory(tmp_path)
    assert (lab.cluster / said["images_ca_file"]).resolve() == (lab.authority / "ca.crt").resolve()


def test_the_depot_is_not_in_the_inventory() -> None:
    assert "depot" not in json.dumps(inventory(a_state("gpu01").hosts))


def test_what_an_operator_changed_stays_and_is_named(tmp_path: Path) -> None:
    state = a_state("gpu01")
    state.written, kept = write(tmp_path, state, OFFER, KEYS)
    assert kept == []
    edited = tmp_path / "group_vars" / "all.yml"
    edited.write_text(edited.read_text().replace("580.95.05", "580.105.08"))
    bigger = a_state("gpu01", "gpu02")
    bigger.written = state.written
    bigger.written, kept = write(tmp_path, bigger, OFFER, KEYS)
    assert kept == ["group_vars/all.yml"]
    assert "580.105.08" in edited.read_text()
    assert "gpu02" in (tmp_path / "hosts.yml").read_text()


def test_a_second_writing_touches_nothing(tmp_path: Path) -> None:
    state = a_state("gpu01")
    state.written, _ = write(tmp_path, state, OFFER, KEYS)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    write(tmp_path, state, OFFER, KEYS)
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}


def test_a_host_made_again_gets_its_new_key_pinned_and_loses_the_old(tmp_path: Path) -> None:
    nodes = {node.name: node for node in a_state("gpu01").hosts}
    text = pin("10.1.1.1,mine ssh-ed25519 KEEP\n", nodes, KEYS)
    again = pin(text, nodes, {**KEYS, "gpu01": ["ssh-ed25519 NEW"]})
    assert "10.1.1.1,mine ssh-ed25519 KEEP" in again
    assert "10.87.1.11,gpu01 ssh-ed25519 NEW" in again
    assert "AAAA1" not in again
    assert "gpu01 ssh-ed25519 NEW" in pin(again, nodes, {}), "a host that is off keeps its pin"


@given(st.lists(st.sampled_from(["ssh-ed25519 A", "ssh-ed25519 B", "ecdsa-sha2-nistp256 C"]), unique=True))
def test_pinning_twice_is_pinning_once(keys: list[str]) -> None:
    nodes = {node.name: node for node in a_state("gpu01").hosts}
    once = pin("", nodes, {"gpu01": keys})
    assert pin(once, nodes, {"gpu01": keys}) == once
