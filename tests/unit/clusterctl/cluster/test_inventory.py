"""The inventory as data: hosts, limits, quarantine, templates, and what validation is told."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from clustercheck.parse.plain_text import one_line
from clustercheck.spec import Mount
from clusterctl.cluster import inventory, quarantine, spec
from clusterctl.cluster.access import Passwords, ansible_variables, read_password
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.cluster.inventory import Inventory, from_listing, load
from clusterctl.errors import ClusterctlError

DIGEST = "sha256:" + "a" * 64
COMMON = {"ansible_user": "{{ site_user }}", "site_user": "ops", "training_image_digest": DIGEST}
LISTING: dict[str, Any] = {
    "_meta": {
        "hostvars": {
            "gpu01": {
                **COMMON,
                "ansible_host": "10.0.0.{{ 1 }}",
                "hardware_gpu_count": "{{ 4 * 2 }}",
                "ansible_local": {},
            },
            "gpu02": {**COMMON, "ansible_host": "10.0.0.2", "ansible_port": "2222"},
            "registry01": {**COMMON, "ansible_host": "10.0.0.9"},
        }
    },
    "all": {"children": ["ungrouped", "rack1", "registry"]},
    "rack1": {"children": ["gpu_nodes"]},
    "gpu_nodes": {"hosts": ["gpu01", "gpu02"]},
    "registry": {"hosts": ["registry01"]},
}  # fmt: skip


@pytest.fixture
def directory(tmp_path: Path) -> ClusterDirectory:
    return ClusterDirectory(tmp_path)


def made(directory: ClusterDirectory, **variables: Any) -> Inventory:
    """The inventory above, with more variables for each host."""
    listing = {**LISTING, "_meta": {"hostvars": {}}}
    for name, own in LISTING["_meta"]["hostvars"].items():
        listing["_meta"]["hostvars"][name] = {**own, **variables}
    return from_listing(directory, listing)


def test_hosts_have_their_templates_evaluated(directory: ClusterDirectory) -> None:
    first, second, registry = made(directory).hosts
    assert (first.address, first.port, first.user) == ("10.0.0.1", 22, "ops")
    assert (second.port, registry.groups) == (2222, ("registry",))
    assert first.groups == ("rack1", "gpu_nodes")
    assert first.value("hardware_gpu_count") == 8
    assert first.value("absent", "x") == "x"
    assert "ansible_local" not in first.variables


def test_a_group_that_is_reached_in_many_ways_is_read_once(directory: ClusterDirectory) -> None:
    levels = 200
    listing: dict[str, Any] = {"_meta": {"hostvars": {}}, "all": {"children": ["l0a", "l0b"]}}
    for level in range(levels):
        below = [f"l{level + 1}a", f"l{level + 1}b"]
        listing |= {f"l{level}{side}": {"children": below, "hosts": [f"h{level}{side}"]} for side in "ab"}
    listing |= {f"l{levels}a": {"hosts": ["last"]}, f"l{levels}b": {"hosts": ["last"], "children": ["l0a"]}}
    hosts = {host.name: host.groups for host in from_listing(directory, listing).hosts}
    assert len(hosts["last"]) == 2 * levels + 2
    assert hosts["h1b"] == tuple(name for name in listing if name not in ("_meta", "all", f"l{levels}a"))
    assert list(hosts)[:4] == ["h0a", "h1a", "h2a", "h3a"], "as deep as it goes, as Ansible lists them"


@pytest.mark.parametrize(
    ("limit", "names"),
    [
        (None, ["gpu01", "gpu02", "registry01"]),
        ("", ["gpu01", "gpu02", "registry01"]),
        ("gpu_nodes", ["gpu01", "gpu02"]),
        ("rack1,registry", ["gpu01", "gpu02", "registry01"]),
        ("gpu*, !gpu01", ["gpu02"]),
        ("!registry", ["gpu01", "gpu02"]),
        ("registry01,gpu01", ["gpu01", "registry01"]),
        ("all,!gpu_nodes", ["registry01"]),
    ],
)
def test_limits(directory: ClusterDirectory, limit: str | None, names: list[str]) -> None:
    assert [host.name for host in made(directory).select(limit)] == names


@pytest.mark.parametrize(
    ("limit", "code", "hint"),
    [
        ("gpo01", "inventory.unknown-host", "Did you mean gpu01?"),
        ("gpu_node", "inventory.unknown-host", "Did you mean gpu_nodes?"),
        ("!nobody", "inventory.unknown-host", "clusterctl hosts list names all."),
        ("login", "inventory.nothing-selected", "clusterctl hosts list names all."),
        ("gpu01,!gpu_nodes", "inventory.nothing-selected", "clusterctl hosts list names all."),
    ],
)
def test_limits_that_name_nothing(directory: ClusterDirectory, limit: str, code: str, hint: str) -> None:
    with pytest.raises(ClusterctlError) as caught:
        made(directory).select(limit)
    assert (caught.value.code, caught.value.hint, caught.value.exit_code) == (code, hint, 2)


def test_a_quarantined_host_is_seen_and_not_touched(directory: ClusterDirectory) -> None:
    entry = quarantine.put(directory, "gpu02", " dead: fan, '#3' ")
    assert entry.by.endswith("@" + os.uname().nodename)
    found = made(directory)
    assert [host.name for host in found.select()] == ["gpu01", "registry01"]
    assert [(host.name, host.quarantined) for host in found.quarantined] == [("gpu02", "dead: fan, '#3'")]
    assert [host.name for host in found.matching("gpu_nodes")] == ["gpu01", "gpu02"]
    with pytest.raises(ClusterctlError) as caught:
        found.select("gpu02")
    assert "gpu02 (dead: fan, '#3')" in caught.value.what
    excluded = {node.name: node.excluded for node in spec.cluster_spec(found).nodes}
    assert excluded == {"gpu01": "", "gpu02": "quarantined: dead: fan, '#3'"}
    assert quarantine.release(directory, "gpu02") == entry
    assert quarantine.release(directory, "gpu02") is None
    assert len(made(directory).select()) == 3


def test_a_quarantine_ends_after_its_last_day(directory: ClusterDirectory) -> None:
    today = datetime.now(UTC).date()
    quarantine.put(directory, "gpu01", "swap the riser", until=str(today))
    assert list(quarantine.active(directory, today)) == ["gpu01"]
    assert quarantine.active(directory, today + timedelta(days=1)) == {}
    assert list(quarantine.entries(directory)) == ["gpu01"]


@pytest.mark.parametrize("until", ["2020-01-01", "tomorrow", "01.02.2030", "2030-13-01"])
def test_a_quarantine_ends_on_a_day_to_come(directory: ClusterDirectory, until: str) -> None:
    with pytest.raises(ClusterctlError) as caught:
        quarantine.put(directory, "gpu01", "x", until)
    assert caught.value.code == "quarantine.until"


@pytest.mark.parametrize(
    "text",
    ["[", "a: b", "gpu01: {reason: x}", "gpu01: {reason: x, by: y, since: z, until: w}", "- x", "\x00"],
)
def test_a_broken_record_of_quarantine_is_a_sentence(directory: ClusterDirectory, text: str) -> None:
    directory.ensure_state()
    directory.quarantine_file.write_text(text)
    with pytest.raises(ClusterctlError) as caught:
        quarantine.active(directory, date(2026, 1, 1))
    assert caught.value.code == "quarantine.unreadable"


def test_what_validation_is_told(directory: ClusterDirectory) -> None:
    told = spec.cluster_spec(made(directory, cluster_name="blue", nvidia_driver_version="580.95.05"))
    assert (told.name, told.driver_version, told.driver_branch) == ("blue", "580.95.05", "580")
    assert told.image == f"registry01:5000/library/paddle@{DIGEST}"
    assert told.container_gpu_arguments == ("--gpus", "all")
    first = told.nodes[0]
    assert (first.name, first.address, first.gpu_count) == ("gpu01", "10.0.0.1", 8)


@pytest.mark.parametrize(
    ("variables", "image"),
    [
        ({"training_image_digest": ""}, ""),
        ({"training_image_enabled": False}, ""),
        (
            {"registry_hostname": "hub.example", "registry_port": 443},
            f"hub.example:443/library/paddle@{DIGEST}",
        ),
        ({"training_image_repository": "{{ site_user }}/p"}, f"registry01:5000/ops/p@{DIGEST}"),
    ],
)
def test_the_image_is_named_as_the_nodes_pull_it(
    directory: ClusterDirectory, variables: dict[str, Any], image: str
) -> None:
    assert spec.cluster_spec(made(directory, **variables)).image == image


def test_validation_is_told_memory_and_mounts(directory: ClusterDirectory) -> None:
    mounts = [
        {"path": "/data", "type": "nfs", "user": "{{ site_user }}"},
        {"path": "/scratch", "measure": True},
    ]
    numbers = {"hardware_memory_gib": "{{ 1024 }}", "hardware_nvme": "{{ 4 }}"}
    told = spec.cluster_spec(made(directory, **numbers, validation_mounts=mounts))
    expected = (Mount("/data", "nfs", "ops"), Mount("/scratch", measure=True))
    assert told.mounts == told.settings_of("gpu02").mounts == expected
    assert [(node.memory_gib, node.nvme) for node in told.nodes] == [(1024, 4)] * 2
    rails = spec.cluster_spec(made(directory, hardware_rdma_ports="{{ 8 }}", hardware_rdma_gbps=200))
    assert {(node.rdma_ports, node.rdma_gbps) for node in rails.nodes} == {(8, 200)}
    leaf = spec.cluster_spec(made(directory, hardware_leaf_switch="leaf-{{ site_user }}"))
    assert [node.leaf_switch for node in leaf.nodes] == ["leaf-ops"] * 2
    bare = spec.cluster_spec(made(directory))
    assert bare.nodes[0].leaf_switch == "" and bare.nodes[0].rdma_ports is bare.nodes[0].rdma_gbps is None
    assert (bare.mounts, bare.nodes[0].memory_gib, bare.nodes[0].nvme) == ((), None, None)


@pytest.mark.parametrize(
    ("variables", "code"),
    [
        ({"hardware_memory_gib": "{{ 'much' }}"}, "inventory.memory"),
        ({"hardware_nvme": "{{ 'some' }}"}, "inventory.nvme"),
        ({"hardware_rdma_ports": "{{ 'all' }}"}, "inventory.rdma"),
        ({"validation_mounts": "{{ '/data' }}"}, "inventory.mounts"),
        ({"validation_mounts": [{"type": "nfs"}]}, "inventory.mounts"),
        ({"validation_environment": "{{ 'NCCL_IB_TC=1' }}"}, "inventory.environment"),
        ({"validation_environment": {"NCCL_IB_TC": "{{ 'a\nb' }}"}}, "inventory.environment"),
        ({"validation_environment": {"PATH": "/bin"}}, "inventory.environment"),
        ({"validation_environment_suites": {"quick": "{{ 7 }}"}}, "inventory.environment"),
        ({"validation_environment_suites": "{{ 'quick' }}"}, "inventory.environment"),
        (
            {"validation_environment": {"NCCL_IB_HCA": "mlx4"}, "hardware_rails": ["mlx5_0"]},
            "inventory.environment",
        ),
        ({"hardware_rails": "{{ 'mlx5*' }}"}, "inventory.rails"),
        ({"hardware_rails": [f"mlx5_{n}" for n in range(33)]}, "inventory.rails"),
    ],
)
def test_what_a_template_makes_of_them_must_be_right(
    directory: ClusterDirectory, variables: dict[str, Any], code: str
) -> None:
    with pytest.raises(ClusterctlError) as caught:
        spec.cluster_spec(made(directory, **variables), "quick")
    assert caught.value.code == code


@pytest.mark.parametrize("suites", ["{{ 'text' }}", {"quick": "{{ 'text' }}"}, {"quick": {"PATH": "/bin"}}])
def test_what_is_wrong_with_the_environment_of_a_suite_names_that_setting(
    directory: ClusterDirectory, suites: Any
) -> None:
    with pytest.raises(ClusterctlError, match=r"^validation_environment_suites of gpu01: ") as caught:
        spec.cluster_spec(made(directory, validation_environment_suites=suites), "quick")
    assert caught.value.where == "gpu01: validation_environment_suites"


def test_validation_is_told_the_environment_of_its_suite_and_the_rails(directory: ClusterDirectory) -> None:
    found = made(
        directory,
        validation_environment={"NCCL_IB_TC": 106, "UCX_TLS": "{{ site_user }}"},
        validation_environment_suites={"full": {"NCCL_IB_TC": "105", "NCCL_ALGO": "RING"}},
    )
    assert spec.cluster_spec(found).environment == {"NCCL_IB_TC": "106", "UCX_TLS": "ops"}
    of_full = {"NCCL_IB_TC": "105", "UCX_TLS": "ops", "NCCL_ALGO": "RING"}
    assert spec.cluster_spec(found, "full").settings_of("gpu02").environment == of_full
    other = tuple(
        replace(host, variables={**host.variables, "validation_environment": {"NCCL_IB_TC": "1"}})
        if host.name == "gpu02"
        else host
        for host in found.hosts
    )
    by_host = spec.cluster_spec(replace(found, hosts=other), "quick")
    assert by_host.settings_of("gpu02").environment == {"NCCL_IB_TC": "1"}
    rails = spec.cluster_spec(made(directory, hardware_rails=["mlx5_0", "{{ 'mlx5_1' }}"]))
    assert {node.rails for node in rails.nodes} == {("mlx5_0", "mlx5_1")}
    assert rails.environment == {"NCCL_IB_HCA": "=mlx5_0,mlx5_1"}
    bare = spec.cluster_spec(made(directory))
    assert (bare.environment, bare.nodes[0].rails) == ({}, ())


def test_cdi_is_asked_for_where_the_settings_say_so(directory: ClusterDirectory) -> None:
    told = spec.cluster_spec(made(directory, nvidia_container_toolkit_mode="cdi"))
    assert told.container_gpu_arguments == ("--device", "nvidia.com/gpu=all")


def test_validation_is_told_what_differs_by_host(directory: ClusterDirectory) -> None:
    found = made(directory, nvidia_driver_version="580.95.05")
    canary = {
        "nvidia_driver_version": "580.105.08",
        "nvidia_container_toolkit_mode": "cdi",
        "registry_port": 443,
        "gpu_holders_ignored": ["site-*"],
    }
    hosts = tuple(
        replace(host, variables={**host.variables, **canary}) if host.name == "gpu02" else host
        for host in found.hosts
    )
    told = spec.cluster_spec(replace(found, hosts=hosts))
    first, second = told.settings_of("gpu01"), told.settings_of("gpu02")
    assert (first.driver_version, second.driver_version) == ("580.95.05", "580.105.08")
    assert first.container_gpu_arguments == ("--gpus", "all")
    assert second.container_gpu_arguments == ("--device", "nvidia.com/gpu=all")
    assert second.image == f"registry01:443/library/paddle@{DIGEST}"
    assert (first.holders_ignored, second.holders_ignored) == ((), ("site-*",))
    assert (told.driver_version, told.image) == (first.driver_version, first.image)


@pytest.mark.parametrize(
    ("value", "because"),
    [
        ("{{ nowhere }}", "'nowhere' is undefined"),
        ("{{ x ", "unexpected end of template"),
        ("{{ site_a }}", "needs itself"),
        ("{{ 1 / 0 }}", "division by zero"),
        ("{{ lookup('file', '/etc/passwd') }}", "'lookup' is undefined"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ({"__ansible_vault": "..."}, "is encrypted"),
    ],
)
def test_templates_that_cannot_be_evaluated_are_a_sentence(
    directory: ClusterDirectory, value: Any, because: str
) -> None:
    host = made(directory, site_a=value, site_b="good").hosts[0]
    assert host.value("site_b") == "good"
    with pytest.raises(ClusterctlError) as caught:
        host.value("site_a")
    assert caught.value.code == "inventory.template"
    assert because in caught.value.what


def test_values_keep_their_types(directory: ClusterDirectory) -> None:
    host = made(
        directory, site_l=["{{ site_user }}", 2], site_v="58{{ 0 }}.10", site_u={"__ansible_unsafe": "{{ x"}
    ).hosts[0]
    assert host.value("site_l") == ["ops", 2]
    assert host.value("site_v") == "580.10"
    assert host.value("site_u") == "{{ x"


def test_ansible_itself_reads_the_inventory_once_a_process(
    directory: ClusterDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANSIBLE_INVENTORY_ENABLED", "ini")
    directory.hosts_file.write_text("gpu_nodes:\n  hosts:\n    gpu[01:02]:\n      ansible_host: 10.0.0.1\n")
    directory.group_vars.mkdir()
    (directory.group_vars / "all.yml").write_text("site_x: [1]\nsite_p: !vault x\n")
    found = load(directory)
    assert [host.name for host in found.gpu_nodes] == ["gpu01", "gpu02"]
    assert found.hosts[0].value("site_x") == [1]
    monkeypatch.setattr(inventory, "_listing", lambda _: pytest.fail("read twice"))
    assert load(directory).hosts == found.hosts
    monkeypatch.undo()
    inventory.forget_cached()
    directory.hosts_file.write_text("gpu_nodes: [\n")
    with pytest.raises(ClusterctlError) as caught:
        load(directory)
    assert caught.value.code == "inventory.unreadable"
    inventory.forget_cached()


@pytest.mark.parametrize("between", ["\0", "\x1b[0m", "\u200b", "\x1b]0;x\x07"], ids=repr)
def test_a_password_that_is_put_together_by_cleaning_is_masked(between: str) -> None:
    hidden = Passwords(become=SecretStr("S3cret-pw")).hide(f"sudo: S3c{between}ret-pw is wrong")
    assert one_line(hidden) == "sudo: (masked) is wrong"


@pytest.mark.parametrize(
    ("password", "said"),
    [
        ("open sesame", "open \t\0sesame"),
        ("open sesame", "open\nsesame"),
        ("open  sesame", "open sesame"),
        ('a"b', '{"x": "a\\"b"}'),
        ("a b/c", "a%20b/c"),
        ("longer", "longer"),
    ],
)
def test_a_password_is_masked_in_any_form(password: str, said: str) -> None:
    hidden = one_line(Passwords(ssh=SecretStr("long"), become=SecretStr(password)).hide(said))
    assert hidden in ("(masked)", '{"x": "(masked)"}')


def test_passwords_are_shown_to_nobody(tmp_path: Path) -> None:
    given = Passwords(become=SecretStr("a{{ b"))
    assert "{{" not in repr(given)
    assert ansible_variables(given) == b'{"ansible_become_password": {"__ansible_unsafe": "a{{ b"}}'
    assert ansible_variables(Passwords()) == b""

    source = tmp_path / "word"
    source.write_text("hunter2\nmore\n")
    assert read_password(str(source)).get_secret_value() == "hunter2"
    descriptor = os.open(source, os.O_RDONLY)
    assert read_password(str(descriptor)).get_secret_value() == "hunter2"
    os.close(descriptor)
    source.write_text("\n")
    for bad in (str(source), str(tmp_path / "absent"), "987654"):
        with pytest.raises(ClusterctlError) as caught:
            read_password(bad)
        assert caught.value.code == "access.password-file"
