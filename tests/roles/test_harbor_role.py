"""The role harbor, by Ansible itself: what a plan says, and what is refused before anything is touched."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from ansible_collections.clusterctl.cluster.plugins.modules import cluster_certificate
from tests.unit.plugins.modules.test_harbor_installer import tarball

from .harbor_plays import BACKUP, PORTS, ROOT, backed_up, installed, play_registry, render, said


@pytest.mark.drawn("plans of the role harbor")
def test_a_plan_of_a_bare_host_goes_to_its_end_and_makes_nothing(tmp_path: Path) -> None:
    ports = {"registry_port": 61443, "harbor_http_port": 61080, "harbor_metrics_port": 61090}
    done = play_registry(tmp_path, "registry.yml", **ports)
    assert done.returncode == 0, done.stdout
    assert "failed=0" in done.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hosts.yml"]


@pytest.mark.drawn("refusals of the role harbor")
def test_there_is_no_backup_and_no_upgrade_of_a_harbor_that_is_not_there(tmp_path: Path) -> None:
    assert "no Harbor of ours is installed here" in said(play_registry(tmp_path, "registry_backup.yml"))
    ports = {"registry_port": 61443, "harbor_http_port": 61080, "harbor_metrics_port": 61090}
    upgrade = said(play_registry(tmp_path, "registry_upgrade.yml", **ports))
    assert "`clusterctl apply` installs the declared release" in upgrade
    assert "there is no backup yet" in said(play_registry(tmp_path, "registry_restore.yml", **ports))


@pytest.mark.drawn("plans of the role harbor")
def test_a_plan_of_an_upgrade_goes_to_its_end(tmp_path: Path) -> None:
    installed(tmp_path, "v2.14.4")
    before = sorted(path for path in tmp_path.rglob("*"))
    done = play_registry(tmp_path, "registry_upgrade.yml", **PORTS)
    assert done.returncode == 0, done.stdout
    assert "install: v2.14.4 is here, and v2.15.2 is declared" in said(done)
    assert "Harbor is down meanwhile, for a minute or more" in said(done)
    assert sorted(path for path in tmp_path.rglob("*") if path.name != "hosts.yml") == before


@pytest.mark.drawn("plans of the role harbor")
def test_a_plan_judges_the_settings_that_are_to_be_and_says_that_harbor_goes_down(tmp_path: Path) -> None:
    installed(tmp_path, "v2.15.2")
    done = play_registry(tmp_path, "registry.yml", **PORTS)
    assert done.returncode == 0, done.stdout
    assert "install: harbor.yml changed; Harbor is down meanwhile" in said(done)


@pytest.mark.drawn("refusals of the role harbor")
def test_an_upgrade_over_the_sites_own_database_wants_a_word_that_it_was_backed_up(tmp_path: Path) -> None:
    installed(tmp_path, "v2.14.4")
    own = {"harbor_external_database": {"host": "db", "username": "harbor", "password": "x"}, **PORTS}
    refused = play_registry(tmp_path, "registry_upgrade.yml", **own)
    assert refused.returncode == 2
    assert "Harbor v2.14.4 was left as it is: its database is the site's own" in said(refused)
    done = play_registry(tmp_path, "registry_upgrade.yml", **own, harbor_database_backed_up=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.drawn("jobs of the role harbor")
def test_an_upgrade_that_was_cut_off_needs_no_second_backup(tmp_path: Path) -> None:
    backup = "Back up Harbor and verify the backup"
    assert backup in (ROOT / "roles/harbor/tasks/backup.yml").read_text(encoding="utf-8")
    installed(tmp_path, "v2.14.4", state="upgrading", to="v2.15.2", backup="20260101T000000Z")
    for playbook in ("registry_upgrade.yml", "registry.yml"):
        done = play_registry(tmp_path, playbook, **PORTS)
        assert done.returncode == 0, done.stdout
        assert "an upgrade from v2.14.4 to v2.15.2 was interrupted" in said(done)
        assert backup not in done.stdout


UNPACK = """
- hosts: localhost
  gather_facts: false
  vars: {{ansible_async_dir: {state}}}
  vars_files: [{extra}]
  tasks:
    - ansible.builtin.include_role: {{name: harbor, tasks_from: installer}}
    - ansible.builtin.copy: {{content: x, dest: {out}, mode: "0600"}}
"""


@pytest.mark.drawn("jobs of the role harbor")
def test_an_installer_is_unpacked_by_a_job_that_is_asked_for_separately(tmp_path: Path) -> None:
    archive = tmp_path / "brought.tgz"
    declared = {
        "harbor_version": "v2.15.2", "harbor_installer_path": str(archive),
        "harbor_installer_sha256": tarball(archive), "harbor_directory": str(tmp_path / "opt"),
    }  # fmt: skip
    unpack = UNPACK.replace("{state}", str(tmp_path / "jobs"))
    render(tmp_path, unpack, **declared)
    release = tmp_path / "opt/releases/v2.15.2/harbor"
    assert (release / "install.sh").is_file()
    assert list((tmp_path / "jobs").iterdir()) == [], "its outcome was read"
    before = (release / "install.sh").stat().st_ino
    render(tmp_path, unpack, **declared)
    assert (release / "install.sh").stat().st_ino == before


UPGRADE = """
- hosts: localhost
  gather_facts: false
  vars: {{ansible_async_dir: {state}, __harbor_backed_up: true}}
  vars_files: [{extra}]
  tasks:
    - block:
        - ansible.builtin.include_role: {{name: harbor, tasks_from: install}}
      rescue:
        - ansible.builtin.copy:
            content: "{{{{ {{'msg': ansible_failed_result.msg}} | to_json }}}}"
            dest: {out}
"""


@pytest.mark.drawn("jobs of the role harbor")
def test_a_release_is_installed_by_a_job_whose_failure_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = installed(tmp_path, "v2.14.4")
    (release / "docker-compose.yml").touch()
    (tmp_path / "opt/releases/v2.15.2/harbor").mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    docker = tmp_path / "bin/docker"
    docker.write_text('#!/bin/sh\ncase "$*" in *migrate*) echo "it is refused"; exit 1 ;; esac\n')
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    declared = {"harbor_version": "v2.15.2", "harbor_directory": str(tmp_path / "opt"),
                "harbor_data_dir": str(tmp_path / "data"), "harbor_https_port": 61443}  # fmt: skip
    _, told = render(tmp_path, UPGRADE.replace("{state}", str(tmp_path / "jobs")), **declared)
    assert "migration of harbor.yml from v2.14.4 failed: it is refused" in told["msg"]
    assert len(list((tmp_path / "jobs").iterdir())) == 1, "a job that failed keeps its file"


def test_what_takes_the_installers_time_is_a_job(tmp_path: Path) -> None:
    """Else a host that says nothing for 20 minutes is given up, whatever the setting says."""
    for name in ("install.yml", "installer.yml"):
        tasks = yaml.safe_load((ROOT / "roles/harbor/tasks" / name).read_text(encoding="utf-8"))
        inner = [task for one in tasks for task in one.get("block", [one])]
        jobs = {f"clusterctl.cluster.{module}" for module in ("harbor_release", "harbor_installer")}
        asked = [task for task in inner if jobs & set(task)]
        assert [task.get("check_mode", "async" in task) for task in asked] == [True, True], name


@pytest.mark.drawn("refusals of the role harbor")
def test_a_restore_that_cannot_end_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    backed_up(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as holder:
        ports = {**PORTS, "registry_port": holder.getsockname()[1]}
        refused = play_registry(tmp_path, "registry_restore.yml", check=False, **ports)
        assert "cannot be installed here, and nothing was touched. port" in said(refused)
        assert not (tmp_path / "data").exists()
        assert not (tmp_path / "opt").exists(), "no mark either"
        (tmp_path / "opt").mkdir()
        mark = json.dumps({"backup": BACKUP, "phase": "database"})
        (tmp_path / "opt/restore.json").write_text(mark, encoding="utf-8")
        refused = play_registry(tmp_path, "registry_restore.yml", check=False, **ports)
        assert "here, and what the restore has written so far is left as it is. port" in said(refused)


@pytest.mark.drawn("refusals of the role harbor")
def test_a_restore_with_a_certificate_that_ended_is_refused_before_anything_is_written(
    tmp_path: Path,
) -> None:
    backed_up(tmp_path)
    born = datetime.now(UTC) - timedelta(days=200)
    authority = cluster_certificate.make_authority("site", born)
    pair = cluster_certificate.make_server(authority, ["registry01"], born, 100)
    (tmp_path / "site.crt").write_bytes(pair.certificate_pem())
    (tmp_path / "site.key").write_bytes(pair.key_pem())
    own = {
        "harbor_certificate": str(tmp_path / "site.crt"),
        "harbor_certificate_key": str(tmp_path / "site.key"),
    }
    refused = play_registry(tmp_path, "registry_restore.yml", check=False, **own, **PORTS)
    assert "cannot serve: it ended" in said(refused)
    assert "It was not installed" in said(refused)
    assert not (tmp_path / "data").exists()
    assert not (tmp_path / "opt").exists()


@pytest.mark.drawn("plans of the role harbor")
@pytest.mark.parametrize("begun", [False, True])
def test_a_plan_of_a_restore_reads_the_backup_and_goes_to_its_end(tmp_path: Path, begun: bool) -> None:
    key = backed_up(tmp_path)
    if begun:
        (tmp_path / "opt").mkdir()
        (tmp_path / "data/database/pg15").mkdir(parents=True)
        mark = json.dumps({"backup": BACKUP, "phase": "database"})
        (tmp_path / "opt/restore.json").write_text(mark, encoding="utf-8")
    done = play_registry(tmp_path, "registry_restore.yml", **PORTS)
    assert done.returncode == 0, done.stdout
    assert begun or not (tmp_path / "opt").exists()
    key.write_text("0123456789abcdeF", encoding="utf-8")
    if not begun:
        refused = play_registry(tmp_path, "registry_restore.yml", **PORTS)
        assert "secretkey was changed. Nothing was touched" in said(refused)


@pytest.mark.drawn("refusals of the role harbor")
def test_an_apply_and_an_upgrade_refuse_a_harbor_that_is_half_restored(tmp_path: Path) -> None:
    installed(tmp_path, "v2.15.2")
    mark = json.dumps({"backup": "20260101T000000Z", "phase": "loaded"})
    (tmp_path / "opt/restore.json").write_text(mark, encoding="utf-8")
    for playbook in ("registry.yml", "registry_upgrade.yml", "registry_backup.yml"):
        refused = play_registry(tmp_path, playbook, **PORTS)
        assert refused.returncode == 2
        assert "`clusterctl registry restore` completes it" in said(refused)


def test_a_role_that_cannot_work_says_so_before_it_looks_at_the_host(tmp_path: Path) -> None:
    inventory = tmp_path / "hosts.yml"
    host = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    declared = {
        "registry_kind": "harbor", "registry_address": "10.0.0.5", "harbor_version": "v2.16.0",
        "registry_controller_dir": str(tmp_path / "state"),
    }  # fmt: skip
    groups = {"registry": {"hosts": {"registry01": host}, "vars": declared}}
    inventory.write_text(yaml.safe_dump({"all": {"children": groups}}), encoding="utf-8")
    play = tmp_path / "play.yml"
    play.write_text("- {hosts: registry, gather_facts: false, roles: [registry]}\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "ansible", "playbook", "-i", str(inventory), str(play)],
        env={**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "Set it to a release of Harbor 2.12, 2.13, 2.14 or 2.15" in done.stdout
    assert not (tmp_path / "state").exists()
