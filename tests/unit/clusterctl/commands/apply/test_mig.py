"""`mig plan`, `mig apply` and `mig status` from the operator's side, with Ansible played by data."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from clustercheck.checks import gpu_mig
from clustercheck.evidence.node import NodeEvidence
from clustercheck.samples import sample
from clusterctl.commands.mig import status
from clusterctl.rollout import mig

from .played import records

A100 = "NVIDIA A100-SXM4-80GB"


@pytest.fixture
def declared(listing: dict[str, Any]) -> dict[str, Any]:
    """gpu01 is divided, gpu02 in part; gpu03 declares nothing."""
    variables = listing["_meta"]["hostvars"]
    layouts = {"gpu01": "all-1g.10gb", "gpu02": {"0-2": ["3g.40gb", "3g.40gb"], "all": "disabled"}}
    for host, layout in layouts.items():
        variables[host] |= {"hardware_mig": layout, "hardware_gpu_count": 8, "hardware_gpu_model": A100}
    return variables


def test_apply_is_the_part_mig_of_an_apply(clusterctl, ansible, declared, capsys) -> None:
    assert clusterctl("mig", "apply", "--yes", "--json") == 0
    lines, messages = records(capsys)
    assert lines[-1]["type"] == "summary"
    assert "apply mig to" in messages
    site = [one for one in ansible.requests if one.playbook == "site.yml"]
    assert {one.tags for one in site} == {("mig",)}
    assert ("gpu01",) in {one.hosts for one in site}  # the canary


def test_apply_asks_before_it_changes_a_host(clusterctl, ansible, declared, no_terminal, capsys) -> None:
    assert clusterctl("mig", "apply") == 2
    assert "apply.not-confirmed" in capsys.readouterr().err
    assert ansible.requests == []


def test_apply_may_change_busy_hosts_by_a_flag(clusterctl, ansible, declared) -> None:
    assert clusterctl("mig", "apply", "--yes", "--force-busy", "--limit", "gpu01") == 0
    site = next(one for one in ansible.requests if one.playbook == "site.yml")
    assert site.extra_vars["nvidia_driver_force_busy"] is True


def test_plan_is_check_mode(clusterctl, ansible, declared, capsys) -> None:
    assert clusterctl("mig", "plan") == 0
    assert {(one.playbook, one.check, one.tags) for one in ansible.requests} == {("site.yml", True, ("mig",))}
    assert "gpu01" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["plan", "apply"])
def test_without_a_declaration_there_is_nothing_to_do(clusterctl, ansible, command: str, capsys) -> None:
    assert clusterctl("mig", command, *(["--yes"] if command == "apply" else [])) == 2
    assert "no host declares hardware_mig" in capsys.readouterr().err
    assert ansible.requests == []


def test_a_layout_that_does_not_fit_is_refused_before_a_host_is_touched(
    clusterctl, ansible, declared, capsys
) -> None:
    declared["gpu01"]["hardware_mig"] = "7x1g.5gb"
    assert clusterctl("mig", "apply", "--yes") == 2
    assert "gpu01: this GPU has no profile 1g.5gb" in capsys.readouterr().err
    assert ansible.requests == []


@pytest.mark.parametrize(
    "words",
    [
        "mig-parted all-1g.10gb:\n  - devices: all\n",
        f"slurm Gres=gpu:{A100.lower().replace(' ', '_')}:5,gpu:3g.40gb:6",
        "kubernetes node gpu01 nvidia.com/mig.config=all-1g.10gb nvidia.com/mig.strategy=single",
    ],
)
def test_layouts_are_printed_for_others_without_a_host(
    clusterctl, ansible, declared, words: str, capsys
) -> None:
    output, _, words = words.partition(" ")
    assert clusterctl("mig", "plan", "--format", output) == 0
    printed = capsys.readouterr().out
    assert words in printed
    assert "gpu03" not in printed
    assert ansible.requests == []


def test_without_a_declaration_there_is_nothing_to_print(clusterctl, capsys) -> None:
    assert clusterctl("mig", "plan", "--format", "slurm") == 2
    assert "no host declares a MIG layout" in capsys.readouterr().err


class NoTransport:
    """Stands for ssh."""

    def __init__(self, *_arguments: object) -> None: ...
    def __enter__(self) -> NoTransport:
        return self

    def __exit__(self, *_how: object) -> None: ...


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> dict[str, NodeEvidence]:
    """What the nodes answer: gpu01 has two instances on one GPU, and gpu03 does not answer."""
    evidence = gpu_mig._split("gpu01", 3, "3g.40gb", "3g.40gb")(sample.healthy())
    found = {**evidence.nodes, "gpu03": replace(evidence.nodes["gpu03"], unreachable="no route", raw={})}
    monkeypatch.setattr(status, "OpenSshTransport", NoTransport)
    monkeypatch.setattr(mig, "collect", lambda names, *_arguments, **_options: {n: found[n] for n in names})
    return found


def test_status_compares_each_gpu_with_its_declaration(clusterctl, declared, nodes, capsys) -> None:
    declared["gpu01"]["hardware_mig"] = {3: "2x3g.40gb", "all": "disabled"}
    declared["gpu02"]["hardware_mig"] = {0: "3g.40gb"}
    assert clusterctl("mig", "status", "--limit", "gpu01,gpu02", "--json") == 1
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    by_gpu = {(one["host"], one["gpu"]): one for one in lines}
    assert by_gpu["gpu01", 3] == {
        "type": "gpu", "host": "gpu01", "gpu": 3, "layout": "2x3g.40gb", "declared": "2x3g.40gb",
        "verdict": "pass", "because": "",
    }  # fmt: skip
    assert by_gpu["gpu02", 0]["verdict"] == "fail"
    assert by_gpu["gpu02", 0]["because"] == "disabled, and 3g.40gb was declared"
    assert by_gpu["gpu02", 1]["verdict"] == "pass"


def test_status_shows_gpus_that_are_alike_on_one_line(clusterctl, declared, nodes, capsys) -> None:
    declared["gpu01"]["hardware_mig"] = {3: "2x3g.40gb", "all": "disabled"}
    assert clusterctl("mig", "status", "--limit", "gpu01") == 0
    printed = capsys.readouterr().out
    assert re.search(r"gpu01 +0-2,4-7 +disabled +disabled", printed)
    assert re.search(r"gpu01 +3 +2x3g\.40gb +2x3g\.40gb", printed)


def test_status_of_a_host_that_does_not_answer_is_incomplete(clusterctl, declared, nodes, capsys) -> None:
    assert clusterctl("mig", "status", "--limit", "gpu03") == 3
    assert "no route" in capsys.readouterr().out
