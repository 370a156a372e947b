"""What modules keep on the controller is encrypted by Ansible Vault where a vault password is configured."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.clusterctl.cluster.plugins.module_utils.vaulted import HEADER
from ansible_collections.clusterctl.cluster.plugins.modules import cluster_certificate, registry_credentials
from tests.support.tree import ROOT

ENDS = ("auth.json", "htpasswd", "password")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    file = tmp_path / "word"
    file.write_text("golden\n", encoding="utf-8")
    return {"ANSIBLE_VAULT_PASSWORD_FILE": str(file), "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")}


def run(module: Any, given: dict[str, str], *, check: bool = False, **params: Any) -> dict[str, Any]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
    done = subprocess.run(
        [sys.executable, module.__file__],
        input=json.dumps({"ANSIBLE_MODULE_ARGS": {**params, "_ansible_check_mode": check}}),
        capture_output=True, text=True, timeout=120, check=False,
        env={**kept, **given, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    return json.loads(done.stdout)


def test_the_authoritys_key_is_encrypted_and_still_the_same_authority(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    key = tmp_path / "ca/ca.key"
    asked = {
        "directory": str(tmp_path / "ca"), "certificate": str(tmp_path / "ca/r.crt"),
        "key": str(tmp_path / "secrets/r.key"), "names": ["registry01"],
    }  # fmt: skip
    plain = run(cluster_certificate, {}, **asked)
    pem = key.read_text()
    assert pem.startswith("-----BEGIN")
    due = run(cluster_certificate, environment, check=True, **asked)
    assert due["because"] == ["ca.key was not encrypted", "r.key was not encrypted"]
    assert key.read_text() == pem
    turned = run(cluster_certificate, environment, **asked)
    assert (turned["changed"], turned["certificate_pem"]) == (True, plain["certificate_pem"])
    assert [path.read_text().startswith(HEADER) for path in (key, tmp_path / "secrets/r.key")] == [True, True]
    assert key.stat().st_mode & 0o777 == 0o600
    again = run(cluster_certificate, environment, **{**asked, "names": ["registry01", "registry02"]})
    assert again["because"] == ["it is not for registry02"]
    assert again["ca_certificate"] == plain["ca_certificate"]
    refused = run(cluster_certificate, {"ANSIBLE_CONFIG": environment["ANSIBLE_CONFIG"]}, **asked)
    assert refused["failed"]
    assert "ca.key is encrypted by Ansible Vault and cannot be read: no vault password" in refused["msg"]


def test_a_registrys_password_is_kept_and_only_its_form_changes(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    asked = {
        "directory": str(tmp_path / "s"),
        "users": [{"name": "registry-push", "user": "push", "servers": ["127.0.0.1:5001"]}],
    }
    run(registry_credentials, {}, **asked)
    files = [tmp_path / f"s/registry-push.{end}" for end in ENDS]
    password = files[2].read_text().strip()
    linked = tmp_path / "elsewhere"
    files[0].rename(linked)
    files[0].symlink_to(linked)
    turned = run(registry_credentials, environment, **asked)
    assert turned["written"] == ["registry-push.password", "registry-push.htpasswd"]
    assert HEADER not in linked.read_text(), "what a link leads to is somebody else's"
    files[0].unlink()
    assert run(registry_credentials, environment, **asked)["written"] == ["registry-push.auth.json"]
    assert [path.read_text().startswith(HEADER) for path in files] == [True] * 3
    assert [path.stat().st_mode & 0o777 for path in files] == [0o600] * 3
    assert not run(registry_credentials, environment, **asked)["changed"]
    shown = subprocess.run(
        [sys.executable, "-P", "-m", "ansible", "vault", "view", str(files[2])], check=True, timeout=120,
        env={**os.environ, **environment}, capture_output=True, text=True,
    )  # fmt: skip
    assert shown.stdout.strip() == password
    files[2].write_text("their own\n", encoding="utf-8")
    assert len(run(registry_credentials, environment, **asked)["written"]) == 3


@pytest.mark.parametrize("module", [cluster_certificate, registry_credentials])
def test_a_lock_that_is_a_link_is_not_written_through(tmp_path: Path, module: Any) -> None:
    victim, directory = tmp_path / "victim", tmp_path / "kept"
    victim.write_text("mine")
    directory.mkdir()
    (directory / ".lock").symlink_to(victim)
    asked = {
        cluster_certificate: {"certificate": str(directory / "r.crt"), "key": str(directory / "r.key"),
                              "names": ["registry01"]},
        registry_credentials: {"users": [{"name": "r", "user": "r", "servers": ["127.0.0.1:5001"]}]},
    }[module]  # fmt: skip
    with contextlib.suppress(json.JSONDecodeError):  # a traceback
        run(module, {}, directory=str(directory), **asked)
    assert victim.read_text() == "mine"
    assert [path.name for path in directory.iterdir()] == [".lock"]
