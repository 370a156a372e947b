"""A release of Harbor: installed once, upgraded by a step that may be refused or cut off anywhere."""

from __future__ import annotations

import hashlib
import pwd
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from ansible_collections.clusterctl.cluster.plugins.module_utils import (
    harbor_host,
    harbor_migration,
    harbor_steps,
)
from ansible_collections.clusterctl.cluster.plugins.modules import harbor_preflight

from .harbor_programs import BACKUP, INSTALL, composes, docker_does, lines, older, play, programs

GOOD = harbor_steps.Found(
    record={"version": "v2.15.2", "settings": "abc", "trivy": False, "state": "installed"},
    settings="abc",
    composed=True,
    certificate="",
    unit={"UnitFileState": "enabled", "ActiveState": "active"},
)


@pytest.mark.parametrize(
    ("found", "todo"),
    [
        (GOOD, []),
        (replace(GOOD, settings="abd"), ["install"]),
        (replace(GOOD, record={**GOOD.record, "version": "v2.14.3"}), ["install"]),
        (replace(GOOD, record={**GOOD.record, "trivy": True}), ["install"]),
        (replace(GOOD, record={**GOOD.record, "state": "installing"}), ["install"]),
        (replace(GOOD, composed=False), ["install"]),
        (replace(GOOD, certificate="it was renewed"), ["certificate"]),
        (replace(GOOD, certificate="it was renewed", settings="abd"), ["install"]),
        (replace(GOOD, unit={"UnitFileState": "disabled", "ActiveState": "failed"}), ["enable", "start"]),
        (replace(GOOD, record={}, unit={}), ["install", "enable", "start"]),
        (replace(GOOD, missing=("core", "proxy")), ["reload"]),
        (replace(GOOD, missing=("core",), unit={"ActiveState": "failed"}), ["enable", "start"]),
        (replace(GOOD, missing=("core",), settings="abd"), ["install"]),
        (replace(GOOD, unit_differs=True), ["unit"]),
        (
            replace(
                GOOD, record={**GOOD.record, "version": "v2.14.3", "state": "upgrading", "to": "v2.15.2"}
            ),
            ["install"],
        ),
    ],
)
def test_the_installer_runs_only_when_release_or_settings_changed(
    found: harbor_steps.Found, todo: list[str]
) -> None:
    steps = harbor_steps.steps(found, "v2.15.2", trivy=False)
    assert [what for what, _ in steps] == todo
    assert all(because for _, because in steps)


def test_a_release_is_installed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = programs(tmp_path, monkeypatch, INSTALL)
    planned = play("harbor_release", check=True, **wanted)
    assert planned["done"][0] == "install: it is not installed"
    assert not any("install" in line for line in lines(tmp_path))
    play("harbor_release", **wanted)
    play("harbor_release", **wanted)
    assert [line for line in lines(tmp_path) if line.startswith("install")] == ["install "]
    play("harbor_release", **wanted, trivy=True)
    assert [line for line in lines(tmp_path) if line.startswith("install")][-1] == "install --with-trivy"


def test_an_installation_that_failed_is_said_in_its_own_words_and_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = programs(tmp_path, monkeypatch, "#!/bin/sh\necho 'no space left on device' >&2\nexit 1\n")
    failed = play("harbor_release", **wanted)
    assert failed["failed"]
    assert "no space left on device" in failed["msg"]
    assert harbor_host.read_record(wanted["directory"])["state"] == "installing"
    Path(wanted["release"], "install.sh").write_text(INSTALL, encoding="utf-8")
    done = play("harbor_release", **wanted)["done"]
    assert done[0].startswith("install: an earlier installation did not complete")
    assert harbor_host.read_record(wanted["directory"])["state"] == "installed"


def test_a_migration_that_is_refused_leaves_what_runs_and_its_unit_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = programs(tmp_path, monkeypatch, INSTALL)
    record = older(tmp_path, wanted)
    docker_does(tmp_path, 'case "$*" in *migrate*) echo "version not supported"; exit 1 ;; esac')
    composes(tmp_path, monkeypatch)
    refused = play("harbor_release", **wanted, upgrade=True)
    assert "Harbor's own migration of harbor.yml from v2.14.3 failed: version not supported" in refused["msg"]
    assert harbor_host.read_record(wanted["directory"]) == record
    assert (tmp_path / "units/harbor.service").read_text(encoding="utf-8") == "the old one\n"
    assert not any("down" in line or line.startswith("install") for line in lines(tmp_path))
    assert not list(Path(wanted["release"]).glob(".migrate.*"))


def test_an_upgrade_that_was_cut_off_after_the_stop_goes_on_with_its_backup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = programs(tmp_path, monkeypatch, INSTALL)
    older(tmp_path, wanted)
    composes(tmp_path, monkeypatch, 'case "$*" in *down*) kill -9 $PPID ;; esac')
    with pytest.raises(ValueError, match="Expecting value"):
        play("harbor_release", **wanted, upgrade=True)
    begun = harbor_host.read_record(wanted["directory"])
    assert (begun["state"], begun["version"], begun["to"]) == ("upgrading", "v2.14.3", "v2.15.2")
    assert begun["backup"] == BACKUP
    assert (tmp_path / "units/harbor.service").read_text(encoding="utf-8") == "the old one\n", (
        "for a boot now"
    )
    composes(tmp_path, monkeypatch)
    looked = {"directory": wanted["directory"], "data_dir": wanted["data_dir"], "ports": {}}
    docker_does(tmp_path, '[ "$1" != inspect ]')
    there = play("harbor_preflight", **looked, version="v2.15.2")
    assert (there["installed"], there["goes_on"]) == ("v2.14.3", True)
    assert (
        "declare v2.15.2, or v2.14.3 to go back"
        in play("harbor_preflight", **looked, version="v2.15.1", upgrade=True)["msg"]
    )
    done = play("harbor_release", **{**wanted, "backup": ""})["done"]
    assert done[0].startswith("install: an upgrade from v2.14.3 to v2.15.2 was interrupted")
    after = harbor_host.read_record(wanted["directory"])
    assert (after["version"], after["state"]) == ("v2.15.2", "installed")
    assert (tmp_path / "units/harbor.service").read_text(encoding="utf-8") == "the new one\n"


@pytest.mark.parametrize(("shell", "warned"), [("/bin/bash", True), ("", True), ("/usr/sbin/nologin", False)])
def test_an_account_that_owns_harbors_files_is_warned_of_where_it_can_log_in(
    monkeypatch: pytest.MonkeyPatch, shell: str, warned: bool
) -> None:
    def account(uid: int) -> pwd.struct_passwd:
        if uid != 10000:
            raise KeyError(uid)
        return pwd.struct_passwd(("ada", "x", uid, uid, "", "/home/ada", shell))

    monkeypatch.setattr(pwd, "getpwuid", account)
    warnings = harbor_preflight.owners_who_log_in()
    assert [one.split(" of this host")[0] for one in warnings] == (["ada"] if warned else [])


def test_an_upgrade_stops_nothing_where_others_may_write_the_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = programs(tmp_path, monkeypatch, INSTALL)
    older(tmp_path, wanted)
    composes(tmp_path, monkeypatch)
    Path(wanted["data_dir"]).mkdir(parents=True, exist_ok=True)
    Path(wanted["data_dir"]).chmod(0o777)
    refused = play("harbor_release", **wanted, upgrade=True)
    assert refused["code"] == "harbor.refused" and "may be written by others" in refused["msg"]
    assert not any("down" in line for line in lines(tmp_path))
    Path(wanted["data_dir"]).chmod(0o755)
    assert play("harbor_release", **wanted, upgrade=True)["changed"]
    assert any("down" in line for line in lines(tmp_path))


def test_an_upgrade_that_was_cut_off_where_the_old_runs_again_wants_a_new_backup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = programs(tmp_path, monkeypatch, INSTALL)
    record = older(tmp_path, wanted)
    harbor_host.write_record(wanted["directory"], {**record, "state": "upgrading", "to": "v2.15.2"})
    docker_does(tmp_path, 'case "$*" in ps*) echo core; echo proxy ;; inspect*) exit 1 ;; esac')
    looked = {"directory": wanted["directory"], "data_dir": wanted["data_dir"], "ports": {}}
    assert "v2.14.3 runs again" in play("harbor_preflight", **looked, version="v2.15.2")["msg"]
    assert "v2.14.3 runs again" in play("harbor_release", **wanted)["msg"]
    there = play("harbor_preflight", **looked, version="v2.15.2", upgrade=True)
    assert there["goes_on"] is False


def test_an_upgrade_that_was_cut_off_can_be_gone_back_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = programs(tmp_path, monkeypatch, INSTALL)
    record = older(tmp_path, wanted)
    harbor_host.write_record(wanted["directory"], {**record, "state": "upgrading", "to": "v2.15.2"})
    composes(tmp_path, monkeypatch)
    old = Path(record["release"])
    (old / "install.sh").write_text(INSTALL, encoding="utf-8")
    (old / "install.sh").chmod(0o755)
    done = play("harbor_release", **{**wanted, "version": "v2.14.3", "release": str(old)})["done"]
    assert "v2.14.3 is declared again" in done[0]
    assert harbor_host.read_record(wanted["directory"])["state"] == "installed"
    assert not any("down" in line for line in lines(tmp_path))


def test_the_migrated_settings_with_their_passwords_are_nowhere_that_others_can_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = programs(tmp_path, monkeypatch, INSTALL)
    older(tmp_path, wanted)
    (Path(wanted["release"]) / "harbor.yml.migrated").touch()
    # As Harbor's own ends: shutil.copy gives the copy the mode of what it is made of.
    script = (
        'case "$*" in *migrate*) for last; do :; done; chmod 644 $last\n'
        f'stat -c %a "$(dirname $last)" >{tmp_path}/mode ;; esac'
    )
    docker_does(tmp_path, script)
    composes(tmp_path, monkeypatch)
    assert play("harbor_release", **wanted, upgrade=True).get("done")
    assert (tmp_path / "mode").read_text(encoding="utf-8").strip() == "700"
    holding = [p for p in Path(wanted["release"]).rglob("*") if p.is_file() and b"s3cr3t" in p.read_bytes()]
    assert holding == []
    assert not (Path(wanted["release"]) / "harbor.yml.migrated").exists()


@pytest.mark.parametrize("left", [False, True])
def test_a_network_that_docker_keeps_is_in_nobodys_way_and_a_container_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: bool
) -> None:
    wanted = programs(tmp_path, monkeypatch, INSTALL)
    older(tmp_path, wanted)
    composes(
        tmp_path, monkeypatch, 'case "$*" in *down) echo "network has active endpoints" >&2; exit 1 ;; esac'
    )
    docker_does(tmp_path, 'case "$*" in *--all*) echo c0ffee ;; esac' if left else "")
    done = play("harbor_release", **wanted, upgrade=True)
    if left:
        assert "v2.14.3 does not stop: network has active endpoints" in done["msg"]
        assert not any(line.startswith("install") for line in lines(tmp_path))
    else:
        assert harbor_host.read_record(wanted["directory"])["version"] == "v2.15.2"


def test_images_that_are_pulled_have_the_installers_time_and_a_message_that_names_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = programs(tmp_path, monkeypatch, INSTALL)
    older(tmp_path, wanted)
    composes(tmp_path, monkeypatch)
    docker_does(tmp_path, 'case "$*" in *migrate*) sleep 5 ;; esac')
    late = play("harbor_release", **wanted, upgrade=True, timeout_s=1)
    assert "docker did not end within 1 s (images may still be being pulled" in late["msg"]
    assert "harbor_install_timeout_s" in late["msg"]
    assert not any("down" in line for line in lines(tmp_path)), "the old release runs on"


def test_another_administrators_password_is_no_cause_to_stop_harbor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = programs(tmp_path, monkeypatch, INSTALL)
    settings = Path(wanted["release"], "harbor.yml")
    settings.write_text('hostname: r\nharbor_admin_password: "one"\nlog: {}\n', encoding="utf-8")
    play("harbor_release", **wanted)
    settings.write_text('hostname: r\nharbor_admin_password: "two"\nlog: {}\n', encoding="utf-8")
    assert not any(one.startswith("install") for one in play("harbor_release", **wanted)["done"])
    settings.write_text('hostname: s\nharbor_admin_password: "two"\nlog: {}\n', encoding="utf-8")
    assert play("harbor_release", **wanted)["done"][0].startswith("install: harbor.yml changed")


def test_a_migration_is_asked_in_words_that_harbors_template_understands() -> None:
    """Its template for 2.15 asks `redis` for what `external_redis` has, and knows no default."""
    text = '_version: 2.14.0\nexternal_redis: {"host": "r:6379", "harbor_db_index": 6}\n'
    assert yaml.safe_load(harbor_migration.copy_for_migration(text))["redis"] == {"harbor_db_index": 6}
    for plain in ('external_redis: {"host": "r:6379"}\n', "_version: 2.14.0\n", "external_redis: {x\n"):
        assert harbor_migration.copy_for_migration(plain) == plain


def test_check_mode_judges_the_settings_that_are_to_be_and_says_that_harbor_goes_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = programs(tmp_path, monkeypatch, INSTALL)
    play("harbor_release", **wanted)
    same = hashlib.sha256(Path(wanted["release"], "harbor.yml").read_bytes()).hexdigest()
    first = play("harbor_release", check=True, **wanted, settings_sha256=same)["done"]
    assert not any(one.startswith("install") for one in first)
    planned = play("harbor_release", check=True, **wanted, settings_sha256="0" * 64)
    assert planned["done"][0] == "install: harbor.yml changed; Harbor is down meanwhile, for a minute or more"
    assert "Harbor is down meanwhile" in planned["diff"][0]["after"]
    assert len([line for line in lines(tmp_path) if line.startswith("install")]) == 1


def test_a_release_of_another_version_is_left_as_it_is_until_an_upgrade_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = programs(tmp_path, monkeypatch, INSTALL)
    old = tmp_path / "opt/releases/v2.14.3/harbor"
    old.mkdir(parents=True)
    (old / "docker-compose.yml").touch()
    (old / "harbor.yml").write_text("_version: 2.14.0\n", encoding="utf-8")
    record = {"version": "v2.14.3", "release": str(old), "state": "installed"}
    harbor_host.write_record(wanted["directory"], record)
    refused = play("harbor_release", **wanted)
    assert "clusterctl registry upgrade" in refused["msg"]
    assert harbor_host.read_record(wanted["directory"]) == record
    composes(tmp_path, monkeypatch)
    assert play("harbor_release", **wanted, upgrade=True).get("done"), "it goes there"
    asked = lines(tmp_path)
    migrated = next(n for n, line in enumerate(asked) if "goharbor/prepare:v2.15.2 migrate -i" in line)
    stopped = next(n for n, line in enumerate(asked) if line.startswith("compose") and line.endswith("down"))
    installed = next(n for n, line in enumerate(asked) if line.startswith("install"))
    assert migrated < stopped < installed
    assert harbor_host.read_record(wanted["directory"])["version"] == "v2.15.2"
