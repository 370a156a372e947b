"""The role registry_client as Ansible plays it: in check mode, on this machine, which it leaves alone."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.clusterctl.cluster.plugins.module_utils.vaulted import Vault
from tests.support.tree import ROOT

HUB = {"upstream": "docker.io", "url": "https://harbor.lan"}
HARBOR = {"registry_hostname": "harbor.lan", "registry_port": 443}
ROBOT = {"registry_client_auth": "robot", "registry_client_robot": "nodes"}


def checked(
    tmp_path: Path,
    variables: dict[str, Any],
    password_file: str = "",
    hosts: dict[str, dict[str, Any]] = {"localhost": {}},  # noqa: B006 (it is not changed)
) -> tuple[int, str]:
    """Exit code, and what the play said."""
    secrets = tmp_path / ".clusterctl/secrets"
    secrets.mkdir(parents=True)
    vault = secrets / "registry-robots.json"
    robot = {"user": "robot$nodes", "secret": "Kept0ByUs-alone", "set": True}
    vaulted = {"ANSIBLE_VAULT_PASSWORD_FILE": password_file} if password_file else {}
    kept = Vault(vaulted)
    vault.write_text(kept.encrypt(json.dumps({"robots": {"nodes": robot}})), encoding="utf-8")
    kept.close()
    vault.chmod(0o600)
    here = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    inventory = {
        "all": {"children": {"gpu_nodes": {"hosts": {name: {**here, **own} for name, own in hosts.items()}}}}
    }
    (tmp_path / "hosts.json").write_text(json.dumps(inventory), encoding="utf-8")
    play = [{"hosts": "gpu_nodes", "gather_facts": False, "roles": ["registry_client"]}]
    (tmp_path / "play.json").write_text(json.dumps(play), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "ansible", "playbook", "-i", str(tmp_path / "hosts.json"), "--check", "--diff",
         "-e", json.dumps(variables), str(tmp_path / "play.json")],
        cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
        env={
            **os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "ANSIBLE_ROLES_PATH": str(ROOT / "roles"),
            **vaulted,
        },
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


@pytest.mark.drawn("ways through the role registry_client")
@pytest.mark.parametrize(
    ("variables", "shown"),
    [
        ({}, []),
        (HARBOR, ["/usr/local/share/ca-certificates/clusterctl-cluster.crt"]),
        (
            {**HARBOR, **ROBOT, "registry_client_engines": ["containers"], "registry_client_mirrors": [HUB]},
            ["/etc/clusterctl/registry-client/config.json", '+location = "harbor.lan"'],
        ),
        (
            {**HARBOR, "registry_client_engines": ["containers"], "registry_client_mirrors": [HUB],
             "registry_client_fail_closed": True},
            ['+prefix = "docker.io"\n+location = "harbor.lan"'],
        ),
    ],
)  # fmt: skip
def test_every_way_through_the_role_can_be_looked_at(
    variables: dict[str, Any], shown: list[str], tmp_path: Path
) -> None:
    code, said = checked(tmp_path, variables)
    assert code == 0, said[-3000:]
    assert [text for text in shown if text not in said] == []
    assert "Kept0ByUs-alone" not in said
    assert [path.name for path in (tmp_path / ".clusterctl/secrets").iterdir()] == ["registry-robots.json"]


def test_robots_secrets_that_ansible_vault_encrypted_are_read(tmp_path: Path) -> None:
    (tmp_path / "word").write_text("golden\n", encoding="utf-8")
    code, said = checked(tmp_path, {**HARBOR, **ROBOT}, str(tmp_path / "word"))
    assert code == 0, said[-3000:]
    assert "/etc/clusterctl/registry-client/config.json" in said
    assert "Kept0ByUs-alone" not in said
    secrets = tmp_path / ".clusterctl/secrets"
    assert (secrets / "registry-robots.json").read_text().startswith("$ANSIBLE_VAULT;")


@pytest.mark.drawn("refusals of the role registry_client")
@pytest.mark.parametrize(
    ("variables", "because"),
    [
        ({**HARBOR, "registry_client_auth": "robot"}, "but no robot account is set"),
        ({**HARBOR, **ROBOT, "registry_client_robot": "other"}, "knows no robot other"),
        ({**HARBOR, "registry_client_engines": ["podman"]}, "one or more of: docker, containerd, containers"),
        ({**HARBOR, "registry_client_mirrors": [{**HUB, "url": "harbor"}]}, "is not an address of a mirror"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_with_a_reason(
    variables: dict[str, Any], because: str, tmp_path: Path
) -> None:
    code, said = checked(tmp_path, variables)
    assert code != 0
    assert because in " ".join(said.split())


def test_no_host_is_given_the_account_of_another(tmp_path: Path) -> None:
    both = {key: value for key, value in {**HARBOR, **ROBOT}.items() if key != "registry_client_robot"}
    hosts = {"builder01": {"registry_client_robot": "nodes"}, "gpu01": {"registry_client_robot": "other"}}
    code, said = checked(tmp_path, both, hosts=hosts)
    assert code != 0
    (host,) = re.findall(r"fatal: \[(\S+)\]", said)
    assert host == "gpu01"
    assert "The account for pulls is not the same on all hosts" in " ".join(said.split())
    _, written = said.split("Write the credentials for Docker's client", 1)
    assert "changed: [builder01]" in written.split("TASK")[0] and "gpu01" not in written.split("TASK")[0]


def test_a_host_without_an_account_keeps_none_from_the_others(tmp_path: Path) -> None:
    hosts = {"registry01": {"registry_client_auth": "anonymous"}, "gpu01": {}}
    code, said = checked(tmp_path, {**HARBOR, "registry_client_robot": "nodes"}, hosts={
        name: {"registry_client_auth": "robot", **own} for name, own in hosts.items()
    })  # fmt: skip
    assert code == 0, said[-3000:]
    assert "changed: [gpu01 -> localhost]" in said
