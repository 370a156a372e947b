"""Secrets at rest: by a real Ansible Vault with a real password file, in clear without one."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from ansible_collections.clusterctl.cluster.plugins.module_utils import vaulted
from ansible_collections.clusterctl.cluster.plugins.module_utils.vaulted import HEADER, Vault, VaultError
from pydantic import SecretStr
from tests.support.tree import ROOT

from clusterctl.cluster import secret_files
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.cluster.templating import Variables
from clusterctl.errors import ClusterctlError
from clusterctl.interpreter import ansible_environment, python_environment
from clusterctl.registry.harbor import vault as harbor_vault
from clusterctl.registry.harbor.secret_text import read_secret_file
from clusterctl.registry.oci.credentials import credentials_for

WORD = "Example-robot-1"


@pytest.fixture(autouse=True)
def unconfigured(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in (*os.environ,):
        if name.startswith("ANSIBLE_VAULT"):
            monkeypatch.delenv(name)
    yield
    secret_files.decrypt_value.cache_clear()


@pytest.fixture(scope="module")
def password_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("vault") / "password"
    file.write_text("golden\n", encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def ansible_vault(password_file: Path) -> Iterator[Vault]:
    vault = Vault({**ansible_environment(ROOT), "ANSIBLE_VAULT_PASSWORD_FILE": str(password_file)})
    yield vault
    vault.close()


@pytest.fixture
def configured(monkeypatch: pytest.MonkeyPatch, password_file: Path) -> None:
    monkeypatch.setenv("ANSIBLE_VAULT_PASSWORD_FILE", str(password_file))


@pytest.fixture
def directory(tmp_path: Path) -> ClusterDirectory:
    made = ClusterDirectory(tmp_path)
    made.ensure_state()
    return made


def private(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o600)
    return path


def keep_robot(file: Path) -> harbor_vault.Vault:
    kept = harbor_vault.Vault(file)
    kept.begin("push", SecretStr(WORD), now=datetime.now(UTC))
    kept.done("push", "robot$push", 7)
    kept.save()
    return kept


@pytest.mark.usefixtures("configured")
def test_robots_secrets_are_encrypted_and_plain_ansible_reads_them(
    directory: ClusterDirectory, password_file: Path
) -> None:
    file, password = directory.secrets / harbor_vault.FILE, directory.secrets / "robots/push.password"
    keep_robot(file)
    assert [WORD in path.read_text() for path in (file, password)] == [False, False]
    assert [path.stat().st_mode & 0o777 for path in (file, password)] == [0o600, 0o600]
    again = harbor_vault.Vault(file)
    assert again.robot("push")["secret"].get_secret_value() == WORD
    assert again.has_password_file("push")
    assert read_secret_file(password, "the password").get_secret_value() == WORD
    robots = f"{{{{ (lookup('file', '{file}') | from_json).robots.push.secret }}}}"
    directory.hosts_file.write_text("all: {hosts: {localhost: {ansible_connection: local}}}\n")
    shown = subprocess.run(
        [sys.executable, "-P", "-m", "ansible", "adhoc", "-i", directory.hosts_file, "localhost", "-m",
         "debug", "-a", f"msg={{{{ lookup('file', '{password}') }}}}={robots}"],
        env={**ansible_environment(ROOT), "ANSIBLE_VAULT_PASSWORD_FILE": str(password_file)},
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert f"{WORD}={WORD}" in shown.stdout, shown.stdout + shown.stderr


def test_what_was_plain_is_encrypted_once_a_password_is_configured(
    directory: ClusterDirectory, password_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, password = directory.secrets / harbor_vault.FILE, directory.secrets / "robots/push.password"
    assert keep_robot(file).has_password_file("push")
    assert WORD in password.read_text()
    assert secret_files.describe(directory) == "plain files of mode 0600 (no vault password is configured)"
    password.chmod(0o644)
    assert "others may read push.password" in secret_files.describe(directory)
    password.chmod(0o600)
    monkeypatch.setenv("ANSIBLE_VAULT_PASSWORD_FILE", str(password_file))
    assert "except registry-robots.json, push.password" in secret_files.describe(directory)
    kept = harbor_vault.Vault(file)
    assert kept.has_password_file("push")
    assert kept.lacks_encryption("push"), "which is what registry apply writes again"
    kept.done("push", "robot$push", 7)
    kept.save()
    assert secret_files.describe(directory) == "encrypted by Ansible Vault"
    before = password.read_text()
    assert kept.has_password_file("push")
    assert not kept.lacks_encryption("push")
    assert password.read_text() == before


@pytest.mark.usefixtures("configured")
def test_without_the_password_it_is_named_and_nothing_is_overwritten(
    directory: ClusterDirectory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = directory.secrets / harbor_vault.FILE
    auth = directory.secrets / "registry-pull.auth.json"
    keep_robot(file)
    private(auth, secret_files.encrypt_at_rest(json.dumps({"auths": {"h": {"auth": "dTpw"}}})))
    found = credentials_for(auth, "h")
    assert found is not None
    assert (found.user, found.password.get_secret_value()) == ("u", "p")
    before = file.read_bytes()
    other = private(tmp_path / "other", "another\n")
    for password, because in (("", "no vault password is configured"), (str(other), "Decryption failed")):
        monkeypatch.setenv("ANSIBLE_VAULT_PASSWORD_FILE", password)
        for read in (lambda: harbor_vault.Vault(file), lambda: credentials_for(auth, "h")):
            with pytest.raises(ClusterctlError) as caught:
                read()
            assert caught.value.code == "secrets.vault"
            assert because in caught.value.what
            assert "ANSIBLE_VAULT_PASSWORD_FILE" in str(caught.value.hint)
    monkeypatch.setenv("ANSIBLE_VAULT_PASSWORD_FILE", "")
    assert secret_files.describe(directory).endswith("but no vault password is configured")
    monkeypatch.setenv("ANSIBLE_VAULT_PASSWORD_FILE", str(tmp_path / "nowhere"))
    with pytest.raises(ClusterctlError, match="nowhere") as caught:
        secret_files.encrypt_at_rest(WORD)
    assert WORD not in str(caught.value)
    assert file.read_bytes() == before


def test_vault_values_that_clusterctl_needs_are_decrypted(
    ansible_vault: Vault, password_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {
        "ansible_host": {"__ansible_vault": ansible_vault.encrypt("10.0.0.5")},
        "site_plain": "at {{ ansible_host }}",
        "site_template": {"__ansible_vault": ansible_vault.encrypt("{{ inventory_hostname }}!")},
    }
    variables = Variables(values, {"inventory_hostname": "gpu01"}, "gpu01")
    with pytest.raises(ClusterctlError, match="no vault password is configured") as caught:
        variables.value("ansible_host")
    assert caught.value.code == "inventory.template"
    assert "ANSIBLE_VAULT_PASSWORD_FILE" in str(caught.value.hint)
    monkeypatch.setenv("ANSIBLE_VAULT_PASSWORD_FILE", str(password_file))
    assert variables.value("ansible_host") == "10.0.0.5"
    assert "10.0.0.5" not in repr(variables.value("ansible_host"))
    assert variables.value("site_plain") == "at 10.0.0.5"
    assert variables.value("site_template") == "gpu01!"


def test_an_identity_encrypts_under_its_name_and_reads_what_the_others_wrote(
    ansible_vault: Vault, password_file: Path, tmp_path: Path
) -> None:
    first, program = (
        private(tmp_path / "first", "one\n"),
        private(tmp_path / "second", "#!/bin/sh\ncat; echo two\n"),
    )
    program.chmod(0o700)
    vault = Vault(
        {**ansible_environment(ROOT), "ANSIBLE_VAULT_ENCRYPT_IDENTITY": "second",
         "ANSIBLE_VAULT_IDENTITY_LIST": f"first@{first},second@{program},old@{password_file}"}
    )  # fmt: skip
    try:
        hidden = vault.encrypt(WORD)
        assert hidden.startswith("$ANSIBLE_VAULT;1.2;AES256;second\n")
        assert vault.decrypt([hidden, "plain", ansible_vault.encrypt("old")]) == [WORD, "plain", "old"]
        with pytest.raises(VaultError):
            vault.decrypt([f"{HEADER}1.1;AES256\n6162\n"])
        assert vault.decrypt([hidden]) == [WORD], "one that is broken ends nothing"
    finally:
        vault.close()


def test_one_process_serves_all_and_is_started_again_if_it_is_gone(ansible_vault: Vault) -> None:
    hidden = ansible_vault.encrypt(WORD)
    process = ansible_vault._process
    assert process is not None
    assert ansible_vault.decrypt([hidden] * 50) == [WORD] * 50
    assert ansible_vault._process is process
    command = (
        Path(f"/proc/{process.pid}/cmdline").read_bytes() + Path(f"/proc/{process.pid}/environ").read_bytes()
    )
    assert WORD.encode() not in command
    assert b"golden" not in command
    process.kill()
    process.wait()
    assert ansible_vault.decrypt([hidden]) == [WORD]


def test_a_text_larger_than_a_pipe_is_encrypted_and_read(ansible_vault: Vault) -> None:
    text = WORD * 20_000
    assert ansible_vault.decrypt([ansible_vault.encrypt(text)]) == [text]


@pytest.mark.parametrize("digits", [1_000, 300_000])
def test_a_password_program_that_hangs_ends_with_the_limit(
    digits: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vaulted, "LIMIT_S", 2.0)
    program, hung = tmp_path / "program", tmp_path / "hung"
    os.mkfifo(hung)
    program.write_text(f"#!/bin/sh\nexec cat {hung}\n", encoding="utf-8")
    program.chmod(0o700)
    vault = Vault({**ansible_environment(ROOT), "ANSIBLE_VAULT_PASSWORD_FILE": str(program)})
    refused: list[Exception] = []

    def ask() -> None:
        try:
            vault.decrypt([f"{HEADER}1.1;AES256\n" + "6" * digits])
        except VaultError as error:
            refused.append(error)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(30)
    has_ended = not asking.is_alive()
    with contextlib.suppress(OSError):  # where the program has not come so far
        os.close(os.open(hung, os.O_WRONLY | os.O_NONBLOCK))
    asking.join(30)
    vault.close()
    assert has_ended
    assert [str(error) for error in refused] == ["Ansible Vault did not answer"]


def test_no_process_is_started_where_nothing_is_encrypted(directory: ClusterDirectory) -> None:
    vault = Vault({})
    file = private(directory.secrets / "x.password", WORD)
    assert (vault.encrypt(WORD), vault.read(file), vault.lacks(file)) == (WORD, WORD, False)
    assert vault._process is None


def test_a_relative_password_file_is_the_callers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    private(tmp_path / "word", "x\n")
    monkeypatch.chdir(tmp_path)
    given = python_environment(
        {"ANSIBLE_VAULT_IDENTITY_LIST": "a@word,b@prompt", "ANSIBLE_VAULT_IDENTITY": "a"}
    )
    assert given["ANSIBLE_VAULT_IDENTITY_LIST"] == f"a@{tmp_path}/word,b@prompt"
    assert given["ANSIBLE_VAULT_IDENTITY"] == "a"
    assert "ANSIBLE_VAULT_PASSWORD_FILE" not in python_environment({"ANSIBLE_VAULT_PASSWORD_FILE": ""})
