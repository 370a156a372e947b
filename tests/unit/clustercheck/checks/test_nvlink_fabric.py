"""Who manages a node's NVLink switches: the roles' rule in validation, and what the probe reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.day_one import SYSTEMS, evidence_of
from tests.support.tree import ROOT

from clustercheck.checks.all import BY_ID
from clustercheck.checks.base import evaluate
from clustercheck.checks.support import nvlink_fabric, seeding
from clustercheck.checks.support.imex import of_rack
from clustercheck.checks.support.nvlink_fabric import Manager, fabric_of
from clustercheck.evidence.cluster import Evidence
from clustercheck.evidence.node import NodeEvidence
from clustercheck.expect import profiles
from clustercheck.locate.culprits import find_culprits
from clustercheck.model import Verdict
from clustercheck.parse.reading import CannotReadError
from clustercheck.probe import devices, nvlink_services
from clustercheck.samples import sample

NODES = ("gpu01", "gpu02", "gpu03")


def test_the_roles_and_validation_know_the_same_gpus() -> None:
    compat = yaml.safe_load((ROOT / "roles/nvidia_driver/files/compat.yml").read_text())
    ids = {name: {hex(n) for n in fabric["device_ids"]} for name, fabric in compat["nvlink_fabrics"].items()}
    assert ids == {"nvlsm": nvlink_fabric.ON_ADAPTERS, "imex": nvlink_fabric.OF_RACK}


@pytest.mark.parametrize(
    ("system", "manager"),
    [
        ("HGX A100", Manager.FABRIC_MANAGER),
        ("HGX B200", Manager.WITH_NVLSM),
        ("GB200 tray", Manager.RACK),
        ("L40S server", Manager.NONE),
    ],
)
def test_the_bus_says_who_manages_the_switches(system: str, manager: Manager) -> None:
    assert fabric_of(evidence_of(SYSTEMS[system]).nodes["gpu01"]).manager is manager


def test_gpus_behind_nvswitches_that_are_no_devices_are_joined_by_them() -> None:
    names = {name for name in profiles.names() if profiles.load(name).switched}
    assert {"b200-sxm6-180gb", "hgx-a100-80gb", "h100-sxm5-80gb"} <= names
    assert names.isdisjoint({"h100-nvl-94gb", "a100-pcie-80gb", "v100-sxm2-16gb"})


def changed(**raw: Any) -> NodeEvidence:
    """HGX B200 without an adapter that is known to lead to its NVSwitches."""

    def change(record: seeding.Raw) -> None:
        for device in record["pci"]:
            if "nvswitch_bridge" in device:
                device["nvswitch_bridge"] = raw["mark"]
        record["virtual"].update(raw.get("virtual", {}))

    return seeding.edit("gpu01", change)(evidence_of(SYSTEMS["HGX B200"])).nodes["gpu01"]


def test_without_an_adapter_a_guest_has_nothing_to_manage_and_a_machine_has_lost_it() -> None:
    guest = fabric_of(changed(mark=False, virtual={"rc": 0, "stdout": "kvm\n"}))
    assert (guest.manager, guest.because.split(" has ")[0]) == (Manager.NONE, "this virtual machine")
    assert fabric_of(changed(mark=False)) == nvlink_fabric.NvLinkFabric(Manager.WITH_NVLSM)
    with pytest.raises(CannotReadError, match="root alone"):
        fabric_of(changed(mark=None))


def test_nvlsm_that_was_not_asked_about_is_no_pass() -> None:
    mute = seeding.edit("gpu01", lambda raw: raw["fabric_manager"].pop("nvlsm"))
    (result, _) = evaluate(BY_ID["fabric-manager"], mute(evidence_of(SYSTEMS["HGX B200"])))
    assert (result.verdict, result.because) == (
        Verdict.NOT_RUN,
        "cannot read: whether NVLSM runs is not known",
    )


def test_the_probe_finds_the_mark_the_process_the_module_and_the_nodes(tmp_path: Path) -> None:
    for path, text in {
        "adapter/vpd": "\x82 SMDL=SW_MNG",
        "proc/17/comm": "nvlsm\n",
        "proc/17/status": "Uid:\t0\t0\t0\t0\n",
        "proc/self/comm": "python3\n",
        "etc/nvidia-imex/nodes_config.cfg": "192.0.2.1\n192.0.2.2\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    (tmp_path / "sys/module/ib_umad").mkdir(parents=True)
    assert devices.leads_to_nvswitches(f"{tmp_path}/adapter/") is True
    assert devices.leads_to_nvswitches(f"{tmp_path}/nowhere/") is False
    found = nvlink_services.fabric_manager(5, str(tmp_path))
    assert (found["nvlsm"], found["umad"]) == (True, True)
    (tmp_path / "proc/17/status").write_text("Uid:\t1000\t0\t0\t0\n")
    assert (
        nvlink_services.fabric_manager(5, str(tmp_path))["nvlsm"] is False
    )  # anybody's program has any name
    assert nvlink_services.imex(5, str(tmp_path))["nodes"] == ["192.0.2.1", "192.0.2.2"]
    assert nvlink_services.imex(5, f"{tmp_path}/nowhere")["nodes"] == []


@pytest.mark.parametrize("liar", NODES)
def test_what_imex_of_one_node_is_told_fails_no_other_node_of_three(liar: str) -> None:
    lying = seeding.edit(liar, lambda raw: raw["imex"].update(nodes=["192.0.2.2", "192.0.2.1"]))(rack(3))
    found = {r.subject.node: r.verdict for r in evaluate(BY_ID["fabric-manager"], lying)}
    assert found == {node: Verdict.FAIL if node == liar else Verdict.PASS for node in NODES}


def test_of_two_nodes_whose_imex_is_told_of_other_nodes_the_pair_is_named() -> None:
    apart = seeding.edit("gpu02", lambda raw: raw["imex"].update(nodes=["192.0.2.2"]))(rack(2))
    results = evaluate(BY_ID["fabric-manager"], apart)
    assert [result.verdict for result in results] == [Verdict.FAIL, Verdict.FAIL]
    assert "cannot determine" in results[0].because
    (culprit,) = find_culprits(results, None, group_is_slow=False)
    assert (culprit.scope, culprit.node, culprit.peer) == ("link", "gpu01", "gpu02")


def rack(nodes: int) -> Evidence:
    """The sample as trays of GB200, whose IMEX are told of the same nodes."""
    return seeding.chain(*(seeding.edit(node, of_rack) for node in NODES[:nodes]))(sample.healthy(nodes))
