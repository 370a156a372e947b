"""Files on the controller that roles read: what another user could have written is refused before a host."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from clusterctl.cluster import secret_files
from clusterctl.cluster.controller_files import FILES, require_trusted_files
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.cluster.inventory import Host, Inventory
from clusterctl.cluster.settings.options import SITE_OPTIONS
from clusterctl.cluster.templating import HiddenText
from clusterctl.errors import ClusterctlError
from clusterctl.registry.harbor.secret_text import read_secret_file
from clusterctl.registry.oci.credentials import credentials_for
from clusterctl.registry.oci.endpoint import trust
from clusterctl.rollout import opening
from clusterctl.rollout.training import PinnedTraining

OTHER = 64001
PRIVATE = [name for name, file in FILES.items() if file.is_private]
OF_FILES = [name for name, file in FILES.items() if not file.is_directory]
Make = Callable[..., Inventory]


@pytest.fixture
def inventory(tmp_path: Path) -> Make:
    """Builds a cluster of a registry and a GPU node with these settings."""

    def make(**variables: Any) -> Inventory:
        root = tmp_path / "cluster"
        root.mkdir(exist_ok=True)
        context = {"inventory_dir": str(root)}
        hosts = [
            Host(name, name, 22, "ops", groups, variables, context=context)
            for name, groups in (("registry01", ("registry",)), ("gpu01", ("gpu_nodes",)))
        ]
        return Inventory(ClusterDirectory(root), tuple(hosts))

    return make


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A directory of the site's own with a file."""
    directory = tmp_path / "site"
    directory.mkdir(mode=0o755)
    (directory / "file.pem").write_text("-----BEGIN CERTIFICATE-----\n")
    (directory / "file.pem").chmod(0o600)
    return directory


def refused(inventory: Inventory, code: str = "settings.untrusted-file") -> ClusterctlError:
    with pytest.raises(ClusterctlError) as found:
        require_trusted_files(inventory)
    assert (found.value.code, found.value.exit_code) == (code, 2)
    assert found.value.hint
    return found.value


def give_away(monkeypatch: pytest.MonkeyPatch, path: Path, *, group: int | None = None) -> None:
    """As if another user, or this group, owned it: tests run without root, too."""
    of_kernel = Path.lstat

    def lstat(found: Path) -> os.stat_result:
        state = of_kernel(found)
        owners = (OTHER, state.st_gid) if group is None else (state.st_uid, group)
        return os.stat_result((*state[:4], *owners, *state[6:10])) if found == path else state

    monkeypatch.setattr(Path, "lstat", lstat)


def spoilt(how: str, site: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Make the site's file one that others could replace; what is said of it."""
    file, shared = site / "file.pem", site.parent / "shared"
    if how == "world-writable":
        file.chmod(0o602)
    elif how == "in a world-writable directory":
        site.chmod(0o777)
    elif how == "in a group's directory":
        site.chmod(0o775)
        give_away(monkeypatch, site, group=12)
        return "can be written by the group"
    elif how == "above: world-writable":
        site.parent.chmod(0o777)
    elif how == "another user's":
        give_away(monkeypatch, file)
        return f"belongs to {OTHER}"
    elif how == "above: another user's":
        give_away(monkeypatch, site.parent)
        return f"belongs to {OTHER}"
    elif how == "through a foreign link":
        target = file.rename(site / "real.pem")
        file.symlink_to(target)
        give_away(monkeypatch, file)
        return f"belongs to {OTHER}"
    elif how == "a link into a shared directory":
        shared.mkdir()
        shared.chmod(0o777)
        (shared / "x.pem").write_text(file.read_text())
        (shared / "x.pem").chmod(0o600)
        file.unlink()
        file.symlink_to(shared / "x.pem")
    elif how == "missing where all may write":
        shared.mkdir()
        shared.chmod(0o1777)
        file.unlink()
        file.symlink_to(shared / "x.pem")
    elif how == "FIFO":
        file.unlink()
        os.mkfifo(file, 0o600)
        return "not a regular file"
    return "is world-writable"


HOW = (
    "world-writable",
    "in a world-writable directory",
    "above: world-writable",
    "another user's",
    "above: another user's",
    "through a foreign link",
    "a link into a shared directory",
    "missing where all may write",
    "FIFO",
)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("name", OF_FILES)
def test_a_file_that_another_user_could_replace_is_refused(
    name: str, how: str, inventory: Make, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = inventory(**{name: str(site / "file.pem")})
    require_trusted_files(whole)
    said = spoilt(how, site, monkeypatch)
    error = refused(whole)
    assert said in error.what
    assert name in error.what
    assert error.where == str(site / "file.pem")


def test_a_comment_hides_no_file(inventory: Make, site: Path) -> None:
    """Ansible removes it, and would open what was not looked at."""
    site.chmod(0o777)
    whole = inventory(site_shared=f"{site}{{# ours #}}", registry_client_ca_file="{{ site_shared }}/file.pem")
    assert refused(whole).where == str(site / "file.pem")


def test_a_group_must_not_write_where_it_lies(
    inventory: Make, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is opened later, by its path."""
    whole = inventory(registry_client_ca_file=str(site / "file.pem"))
    assert spoilt("in a group's directory", site, monkeypatch) in refused(whole).what


@pytest.mark.parametrize("name", OF_FILES)
@pytest.mark.parametrize("mode", [0o640, 0o604])
def test_others_may_read_certificates_and_no_keys(name: str, mode: int, inventory: Make, site: Path) -> None:
    (site / "file.pem").chmod(mode)
    whole = inventory(**{name: str(site / "file.pem")})
    if name in PRIVATE:
        assert f"has mode {mode:04o}: others may read it" in refused(whole).what
    else:
        require_trusted_files(whole)


@pytest.mark.parametrize("name", ["harbor_certificate_authority", "registry_client_ca_file"])
@pytest.mark.parametrize(
    "text",
    [
        f"-----BEGIN CERTIFICATE-----\nx\n-----BEGIN {kind}PRIVATE KEY-----\n"
        for kind in ("", "EC ", "ENCRYPTED ")
    ]
    + ["no certificate", "\x30\x82"],
)
def test_an_authority_that_all_users_of_a_host_read_is_certificates_alone(
    name: str, text: str, inventory: Make, site: Path
) -> None:
    (site / "file.pem").write_text(text)
    error = refused(inventory(**{name: str(site / "file.pem")}))
    assert "it must contain certificates, and no private key" in error.what


def test_a_key_that_vault_encrypted_goes_to_no_host_either(
    inventory: Make, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = {"encrypted": "-----BEGIN CERTIFICATE-----\n-----BEGIN PRIVATE KEY-----\n"}
    monkeypatch.setattr(
        secret_files, "_vault", lambda: SimpleNamespace(decrypt=lambda all_: [texts[one] for one in all_])
    )
    (site / "file.pem").write_text("encrypted")
    refused(inventory(registry_client_ca_file=str(site / "file.pem")))


@pytest.mark.parametrize("name", [name for name in FILES if name not in OF_FILES])
def test_a_directory_with_the_authority_is_compared_too(name: str, inventory: Make, site: Path) -> None:
    whole = inventory(**{name: str(site)})
    require_trusted_files(whole)
    site.chmod(0o777)
    assert "world-writable" in refused(whole).what
    site.chmod(0o755)
    assert "not a directory" in refused(inventory(**{name: str(site / "file.pem")})).what


@pytest.mark.parametrize("whose", ["another user's", "world-writable", "a link of another user"])
@pytest.mark.parametrize("inner", ["ca", "ca/ca.crt", "ca/ca.key", "secrets", "secrets/robots/pull.password"])
def test_what_lies_in_such_a_directory_is_compared_too(
    inner: str, whose: str, inventory: Make, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, place = inventory(registry_client_controller_dir=str(site)), site / inner
    for directory in ("ca", "secrets/robots"):
        (site / directory).mkdir(parents=True)
    for file in ("ca/ca.crt", "ca/ca.key", "secrets/robots/pull.password"):
        (site / file).touch(0o600)
    require_trusted_files(whole)
    if whose == "world-writable":
        place.chmod(0o703)
    elif whose == "another user's":
        give_away(monkeypatch, place)
    else:
        place.rename(site / "real")
        place.symlink_to(site / "real")
        require_trusted_files(whole)
        give_away(monkeypatch, place)
    error = refused(whole)
    assert f"{inner} in it: " in error.what
    assert ("is world-writable" if whose == "world-writable" else f"belongs to {OTHER}") in error.what
    assert error.where == str(place)


@pytest.mark.parametrize("name", [name for name in FILES if name not in OF_FILES])
def test_a_key_in_such_a_directory_that_others_may_read_is_refused(
    name: str, inventory: Make, site: Path
) -> None:
    (site / "ca").mkdir()
    (site / "ca/ca.key").touch()
    (site / "ca/ca.key").chmod(0o644)
    assert refused(inventory(**{name: str(site)}), "cluster.secret-exposed").where == str(site / "ca/ca.key")


@pytest.mark.parametrize(
    "text",
    ["file.pem", "../site/file.pem", "SITE/../site/file.pem", "$HOME/file.pem", "SITE/$X", "~nobody-x/a",
     " SITE/file.pem", "'SITE/file.pem'"],
)  # fmt: skip
def test_a_path_that_ansible_would_read_otherwise_is_refused(text: str, inventory: Make, site: Path) -> None:
    whole = inventory(registry_client_ca_file=text.replace("SITE", str(site)))
    assert "must be an absolute path" in refused(whole, "settings.value").what


@pytest.mark.parametrize("text", ["s3cr3t-Hunter2", "/s3cr3t-Hunter2"])
def test_a_secret_in_the_place_of_its_files_name_is_not_quoted(text: str, inventory: Make) -> None:
    error = refused(inventory(registry_client_password_file=HiddenText(text)), "settings.value")
    assert "(an encrypted value)" in error.what
    assert "Hunter2" not in f"{error.what} {error.where} {error.hint}"


def test_home_and_templates_are_followed(
    inventory: Make, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(site))
    settings: list[dict[str, Any]] = [
        {"registry_client_ca_file": "~/file.pem"},
        {"site_pki": str(site), "registry_client_ca_file": "{{ site_pki }}/file.pem"},
        {"harbor_certificate_authority": str(site / "file.pem")},
    ]
    for each in settings:
        require_trusted_files(inventory(**each))
    (site / "file.pem").chmod(0o666)
    for each in settings:
        refused(inventory(**each))
    lookup = "{{ lookup('env', 'HOME') }}/file.pem"
    refused(inventory(registry_client_ca_file=lookup), "inventory.template")


def test_a_node_of_its_own_authority_counts(inventory: Make, site: Path) -> None:
    """The default of registry_client_ca_file is another setting, which a node may have for itself."""
    (site / "file.pem").chmod(0o666)
    whole = inventory()
    node = replace(whole.hosts[1], variables={"harbor_certificate_authority": str(site / "file.pem")})
    error = refused(replace(whole, hosts=(whole.hosts[0], node)))
    assert "registry_client_ca_file of gpu01" in error.what


def test_what_an_apply_itself_makes_may_be_missing(inventory: Make) -> None:
    whole = inventory(registry_client_ca_file="{{ inventory_dir }}/.clusterctl/ca/ca.crt")
    require_trusted_files(whole)


def test_an_apply_is_refused_before_any_host_is_chosen(inventory: Make, site: Path) -> None:
    (site / "file.pem").chmod(0o666)
    whole = inventory(harbor_certificate=str(site / "file.pem"))
    with pytest.raises(ClusterctlError) as found:
        opening._chosen(PinnedTraining(whole, {}), None)
    assert found.value.code == "settings.untrusted-file"


def paths_of(options: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Every option that is a path, those of lists too, with its description."""
    for name, option in options.items():
        if option.get("type") == "path":
            yield name, option["description"]
        yield from paths_of(option.get("options") or {})


def test_every_path_of_a_role_that_is_on_the_controller_is_compared(repository: Path) -> None:
    found, read = set(), set()
    for path in (repository / "roles").glob("*/meta/argument_specs.yml"):
        specs = yaml.safe_load(path.read_text(encoding="utf-8"))["argument_specs"]
        options = {name: one for spec in specs.values() for name, one in spec.get("options", {}).items()}
        found |= {name for name, description in paths_of(options) if "controller" in description.lower()}
    for path in (repository / "roles").rglob("*.yml"):
        text = path.read_text(encoding="utf-8")
        read |= set(re.findall(r"lookup\('ansible.builtin.file', ([a-z]\w+)\)", text))
        read |= set(re.findall(r"src: \"\{\{ ([a-z]\w+) \}\}\"", text))
    assert found == set(FILES)
    assert {"registry_client_ca_file", "harbor_installer_path"} <= read <= found


# Of the site's own settings: those that clusterctl reads, by whom.
READ_BY = {
    "images_auth_file": "credentials",
    "images_push_auth_file": "credentials",
    "images_ca_file": "authority",
    "registry_api_ca_file": "authority",
    "registry_api_password_file": "secret",
    "access_secret_file": "secret",
    "password_file": "secret",
    "requirements_file": "build",
    "pip_ca_file": "build",
}
ON_NODES = {"path"}


def read(kind: str, file: Path) -> None:
    if kind == "credentials":
        credentials_for(file, "docker.io")
    elif kind == "secret":
        read_secret_file(file, "the password")
    else:
        trust((file,))


def test_every_path_of_the_site_has_a_reader_that_compares_it() -> None:
    options = yaml.safe_load(SITE_OPTIONS.read_text(encoding="utf-8"))["options"]
    assert {name for name, _ in paths_of(options)} - ON_NODES == set(READ_BY)


@pytest.mark.parametrize("how", [how for how in HOW if how not in ("missing where all may write", "FIFO")])
@pytest.mark.parametrize("kind", ["credentials", "secret", "authority"])
def test_what_clusterctl_reads_itself_is_compared_there(
    kind: str, how: str, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (site / "file.pem").write_text('{"auths": {}}' if kind == "credentials" else "word")
    said = spoilt(how, site, monkeypatch)
    with pytest.raises(ClusterctlError) as found:
        read(kind, site / "file.pem")
    assert said in found.value.what


@pytest.mark.parametrize("name", [*FILES, "harbor_hostname", "registry_hostname"])
@pytest.mark.parametrize(
    "template",
    [
        "{{ ansible_hostname }}.pem",
        "/x/{{ ansible_hostname | default('a') }}.pem",
        "/x/{{ (ansible_facts | default({})).hostname | default('a') }}.pem",
        "/x/{{ hostvars['registry01'].ansible_hostname | default('a') }}.pem",
        "/x/{{ hostvars['registry01'].ansible_facts.hostname | default('a') }}.pem",
        "/x/{{ (vars | default({})).ansible_hostname | default('a') }}.pem",
        "/x/{{ 'a' if inventory_hostname == 'none' else ansible_local | default('a') }}.pem",
        "/x/{% if ansible_hostname is defined %}{{ ansible_hostname }}{% else %}a{% endif %}.pem",
        "/x/{{ __harbor_registered | default('a') }}.pem",
        "/x/{{ site_part }}.pem",
    ],
)
def test_a_path_in_which_a_node_has_a_say_is_refused(inventory: Make, name: str, template: str) -> None:
    """With a default it would be another path here than for Ansible, which knows what the node says."""
    site_part = "{{ ansible_nodename | default('a') }}"
    error = refused(inventory(**{name: template, "site_part": site_part}), "inventory.template")
    assert "a host could choose" in error.what


def test_a_fact_that_the_inventory_sets_is_refused_too(inventory: Make) -> None:
    """Plain Ansible may let a host's own override it."""
    refused(
        inventory(ansible_hostname="a", harbor_certificate="/x/{{ ansible_hostname }}"), "inventory.template"
    )


def test_a_path_of_the_inventorys_own_variables_is_taken(inventory: Make, site: Path) -> None:
    require_trusted_files(
        inventory(
            ansible_host="file",
            site_directory=str(site),
            harbor_hostname="{{ registry_hostname }}",
            registry_hostname="registry01",
            harbor_certificate="{{ site_directory }}/{{ ansible_host }}.{{ 'pem' if inventory_dir else '' }}",
        )
    )
