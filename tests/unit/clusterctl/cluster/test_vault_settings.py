"""The vault settings of a cluster directory's ansible.cfg reach Ansible, and no other setting does."""

from __future__ import annotations

import grp
import os
import pwd
from pathlib import Path
from types import SimpleNamespace

import pytest
from ansible_collections.clusterctl.cluster.plugins.module_utils.vaulted import Vault

from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.cluster.inventory import load
from clusterctl.cluster.vault_settings import SETTINGS, adopt_vault_settings
from clusterctl.content import content_root
from clusterctl.errors import ClusterctlError
from clusterctl.interpreter import VAULT_SOURCES, ansible_environment

IN_USE = "ANSIBLE_VAULT_PASSWORD_FILE"


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in SETTINGS.values():
        monkeypatch.setenv(variable, "")


def test_an_inventory_with_an_encrypted_address_is_read_with_the_password_that_it_names(
    tmp_path: Path,
) -> None:
    (tmp_path / "word").write_text("golden\n")
    (tmp_path / "word").chmod(0o600)
    (tmp_path / "ansible.cfg").write_text("[defaults]\nvault_password_file = word\nforks = x\n")
    vault = Vault({**ansible_environment(content_root()), IN_USE: str(tmp_path / "word")})
    hidden = vault.encrypt("192.0.2.7").replace("\n", "\n        ").rstrip()
    vault.close()
    (tmp_path / "hosts.yml").write_text(
        f"gpu_nodes:\n  hosts:\n    gpu01:\n      ansible_host: !vault |\n        {hidden}\n"
    )
    assert load(ClusterDirectory(tmp_path)).host("gpu01").address == "192.0.2.7"
    assert ansible_environment(content_root())[IN_USE] == str(tmp_path / "word")
    assert "ANSIBLE_FORKS" not in os.environ


def test_the_environment_wins_and_identities_are_resolved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "word").touch(mode=0o600)
    (tmp_path / "ansible.cfg").write_text(
        "[defaults]\nvault_password_file = word ; ours\nvault_identity_list = a@word, b@prompt\n"
    )
    elsewhere = tmp_path / "elsewhere"
    elsewhere.touch(mode=0o600)
    monkeypatch.setenv(IN_USE, str(elsewhere))
    adopt_vault_settings(tmp_path)
    assert os.environ[IN_USE] == str(elsewhere)
    assert os.environ["ANSIBLE_VAULT_IDENTITY_LIST"] == f"a@{tmp_path}/word,b@prompt"


def test_a_directory_without_the_file_is_usual_and_one_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    adopt_vault_settings(tmp_path)
    assert os.environ[IN_USE] == ""
    (tmp_path / "ansible.cfg").write_text("no section\n")
    with pytest.raises(ClusterctlError, match="is not an INI file") as caught:
        adopt_vault_settings(tmp_path)
    assert caught.value.code == "secrets.ansible-cfg"
    (tmp_path / "ansible.cfg").unlink()
    os.mkfifo(tmp_path / "ansible.cfg")
    with pytest.raises(ClusterctlError, match="is not a regular file"):
        adopt_vault_settings(tmp_path)


def refused(root: Path) -> ClusterctlError:
    with pytest.raises(ClusterctlError) as caught:
        adopt_vault_settings(root)
    return caught.value


@pytest.mark.parametrize("variable", VAULT_SOURCES)
def test_a_program_that_others_can_write_is_not_run_nor_a_password_of_theirs_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    (tmp_path / "site").mkdir(mode=0o755)
    source = tmp_path / "site" / "word"
    source.write_text("#!/bin/sh\necho golden\n")
    monkeypatch.setenv(variable, str(source) if variable == IN_USE else f"prompt@prompt, dev@{source}")
    for mode, because in {
        0o777: "is world-writable",
        0o666: "is world-writable",
        0o644: "has mode 0644: others may read it",
    }.items():
        source.chmod(mode)
        told = refused(tmp_path / "site")
        assert (told.code, told.where) == ("secrets.vault", str(source))
        assert because in told.what
    for mode in (0o755, 0o600):
        source.chmod(mode)
        adopt_vault_settings(tmp_path / "site")
    source.parent.chmod(0o777)
    assert "is world-writable" in refused(tmp_path / "site").what
    assert f"the directory {source.parent}, in which it is" in refused(tmp_path / "elsewhere").what
    source.parent.chmod(0o1777)  # as /tmp
    adopt_vault_settings(tmp_path / "elsewhere")
    source.chmod(0o666)
    refused(tmp_path / "elsewhere")


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("vault_password_file", "word"),
        ("vault_password_file", "$PLACE/word"),
        ("vault_password_file", "${PLACE}/./word"),
        ("vault_identity_list", "dev@word"),
        ("vault_identity_list", "'dev@word'"),
        ("vault_identity_list", "dev@$PLACE/word"),
    ],
)
@pytest.mark.parametrize(
    "place", [("site", False), ("anna@example.com/site", False), ("anna@example.com/site", True)]
)
def test_what_is_checked_is_what_ansible_runs(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    setting: str,
    value: str,
    place: tuple[str, bool],
) -> None:
    inside, in_environment = place
    site = tmp_path / inside
    site.mkdir(parents=True)
    word = site / "word"
    word.write_text("#!/bin/sh\necho golden\n")
    word.chmod(0o777)
    monkeypatch.setenv("PLACE", str(site))
    monkeypatch.chdir(site)

    def set_variable() -> None:
        monkeypatch.setenv(SETTINGS[setting], value if in_environment else "")

    if not in_environment:
        (site / "ansible.cfg").write_text(f"[defaults]\n{setting} = {value}\n")
    set_variable()
    assert refused(site).where == str(word)
    word.chmod(0o755)
    set_variable()
    adopt_vault_settings(site)
    monkeypatch.chdir("/")
    named = ansible_environment(content_root())[SETTINGS[setting]]
    assert named == (str(word) if setting == "vault_password_file" else f"dev@{word}")
    vault = Vault(ansible_environment(content_root()))
    assert vault.encrypt("x").startswith("$ANSIBLE_VAULT;")
    vault.close()


def test_a_comma_in_a_files_name_hides_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    word = tmp_path / "a,b"
    word.touch(mode=0o666)
    word.chmod(0o666)
    monkeypatch.setenv(IN_USE, str(word))
    assert "cannot be used" in refused(tmp_path).what


@pytest.mark.parametrize("mode", [0o755, 0o600], ids=["program", "password"])
def test_what_lies_behind_a_link_may_lie_below_a_directory_of_a_group_and_not_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    """A team's directory on the way is usual; a member could put a program in a password's place, too."""
    programs, link = tmp_path / "team" / "bin", tmp_path / "word"
    programs.mkdir(parents=True, mode=0o755)
    (programs / "word").write_text("#!/bin/sh\necho golden\n")
    (programs / "word").chmod(mode)
    link.symlink_to(programs / "word")
    members: list[str] = []
    mine = pwd.getpwuid(os.geteuid()).pw_name
    monkeypatch.setattr(grp, "getgrgid", lambda _gid: SimpleNamespace(gr_name=mine, gr_mem=members))
    for directory in (programs, programs.parent):
        directory.chmod(0o2775)
    monkeypatch.setenv(IN_USE, str(link))
    adopt_vault_settings(tmp_path / "site")
    assert os.environ[IN_USE] == str(link)  # Ansible, and the program, know it by this name
    members.append("colleague")
    told = refused(tmp_path / "site")
    assert f"leads to {programs}, which can be written by the group" in told.what
    assert f"chmod go-w {programs}," in told.hint
    programs.chmod(0o755)
    adopt_vault_settings(tmp_path / "site")
    programs.parent.chmod(0o777)
    assert "is world-writable" in refused(tmp_path / "site").what


@pytest.mark.parametrize("variable", VAULT_SOURCES)
def test_ansible_gets_the_way_that_was_checked_and_no_link_of_a_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    for name in ("good", "site"):
        (tmp_path / name).mkdir(mode=0o755)
    (tmp_path / "good/word").touch(mode=0o600)
    way = tmp_path / "way"
    way.symlink_to("good")
    identity = "" if variable == IN_USE else "dev@"
    monkeypatch.setenv(variable, f"{identity}{way}/word")
    adopt_vault_settings(tmp_path / "site")
    assert os.environ[variable] == f"{identity}{tmp_path}/good/word"
    lstat = Path.lstat

    def of_another(path: Path) -> os.stat_result:
        state = lstat(path)
        return os.stat_result((*state[:4], 64001, *state[5:])) if path == way else state

    monkeypatch.setattr(Path, "lstat", of_another)
    monkeypatch.setenv(variable, f"{identity}{way}/word")
    told = refused(tmp_path / "site")
    assert told.code == "secrets.vault"
    assert f"it leads to {way}, which belongs to 64001" in told.what


@pytest.mark.parametrize("variable", VAULT_SOURCES)
def test_what_is_not_there_yet_is_refused_since_others_might_make_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    missing = tmp_path / "none" / "word"
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "dangling").symlink_to(missing)
    for path in (missing, tmp_path / "site" / "dangling"):
        monkeypatch.setenv(variable, str(path) if variable == IN_USE else f"a@prompt,dev@{path}")
        told = refused(tmp_path / "site")
        assert (told.code, told.where) == ("secrets.vault", str(path))
        assert "No such file" in told.what


@pytest.mark.parametrize("word", ["prompt", "prompt_ask_vault_pass"])
def test_what_is_asked_for_is_no_file_whatever_lies_in_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    (tmp_path / word).touch(mode=0o666)
    monkeypatch.chdir(tmp_path)
    for text in (word, f"dev@{word}"):
        monkeypatch.setenv("ANSIBLE_VAULT_IDENTITY_LIST", text)
        adopt_vault_settings(tmp_path)
        assert ansible_environment(content_root())["ANSIBLE_VAULT_IDENTITY_LIST"] == text


def test_an_identity_without_a_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANSIBLE_VAULT_IDENTITY_LIST", "dev@")
    assert "it names no file" in refused(tmp_path).what


@pytest.mark.parametrize("name", ["~nobody-of-that-name/word", "x" * 300, "a\0b"])
def test_a_name_that_no_file_can_have_is_refused_wherever_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / "ansible.cfg").write_text(f"[defaults]\nvault_password_file = {name}\n")
    is_too_long = name.startswith("x")  # which the kernel says
    assert refused(tmp_path).code == ("secrets.vault" if is_too_long else "secrets.ansible-cfg")
    if "\0" in name:
        return  # no variable can hold it
    monkeypatch.setenv(IN_USE, name)
    assert refused(tmp_path).code == "secrets.vault"
    assert ansible_environment(content_root())[IN_USE].endswith(name)
