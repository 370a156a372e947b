"""harbor.yml for every known release, by Ansible itself, held against what Harbor's `prepare` reads."""

from __future__ import annotations

import base64
import gzip
import json
import os
import socket
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import cluster_certificate
import harbor_release
import pytest
import yaml
from ansible.module_utils import harbor_kept as kept
from tests.unit.test_harbor_modules import tarball

ROOT = Path(__file__).resolve().parents[2]
# What `prepare` takes without asking whether it is there: one that is missing ends it with a KeyError.
INDEXED = {
    "hostname", "harbor_admin_password", "data_volume", "https.certificate", "https.private_key",
    "jobservice.max_job_workers", "jobservice.job_loggers", "jobservice.logger_sweeper_duration",
    "notification.webhook_job_max_retry", "notification.webhook_job_http_client_timeout", "log.level",
    "storage_service.redirect.disable", "metric.enabled", "metric.port", "metric.path",
}  # fmt: skip
# The settings of harbor.yml.tmpl, of 2.12 to 2.15, those in comments too.
TEMPLATE = INDEXED | {
    "http.port", "https.port", "https.strong_ssl_ciphers", "ip_family.ipv6.enabled", "ip_family.ipv4.enabled",
    "internal_tls.enabled", "internal_tls.dir", "external_url", "storage_service.ca_bundle",
    "trivy.ignore_unfixed", "trivy.skip_update", "trivy.skip_java_db_update", "trivy.offline_scan",
    "trivy.security_check", "trivy.insecure", "trivy.timeout", "trivy.github_token", "trivy.db_repository",
    "trivy.java_db_repository", "jobservice.max_job_duration_hours", "log.local.rotate_count",
    "log.local.rotate_size", "log.local.location", "log.external_endpoint.protocol",
    "log.external_endpoint.host", "log.external_endpoint.port", "_version", "external_database.harbor.host",
    "external_database.harbor.port", "external_database.harbor.db_name", "external_database.harbor.username",
    "external_database.harbor.password", "external_database.harbor.ssl_mode",
    "external_database.harbor.max_idle_conns", "external_database.harbor.max_open_conns",
    "external_redis.host", "external_redis.password", "external_redis.tlsOptions.enable",
    "external_redis.tlsOptions.rootCA", "external_redis.harbor_db_index", "external_redis.registry_db_index",
    "external_redis.jobservice_db_index", "external_redis.trivy_db_index",
    "external_redis.idle_timeout_seconds", "uaa.ca_file", "proxy.http_proxy", "proxy.https_proxy",
    "proxy.no_proxy", "proxy.components", "trace.enabled", "trace.sample_rate", "trace.otel.endpoint",
    "trace.otel.url_path", "trace.otel.compression", "trace.otel.insecure", "trace.otel.timeout",
    "upload_purging.enabled",
    "upload_purging.age", "upload_purging.interval", "upload_purging.dryrun", "cache.enabled",
    "cache.expire_hours", "core.quota_update_provider", "storage_service.s3.bucket",
}  # fmt: skip
FULL = {
    "harbor_external_url": "https://front.example.org",
    "harbor_ipv6": True,
    "harbor_internal_tls_dir": "/etc/harbor/tls/internal",
    "harbor_external_database": {"host": "db", "username": "harbor", "password": "p#w: \"x'"},
    "harbor_external_redis": {"host": "redis:6379", "password": "s", "tls": True, "harbor_db_index": 6},
    "harbor_storage_driver": "s3",
    "harbor_storage_options": {"bucket": "harbor"},
    "harbor_storage_ca_bundle": "/etc/ssl/s3.pem",
    "harbor_trivy_github_token": "t",
    "harbor_log_endpoint": {"host": "log", "port": 514},
    "harbor_uaa_ca_file": "/etc/ssl/uaa.pem",
    "harbor_trace": {"enabled": True, "otel": {"endpoint": "h:4318", "url_path": "/v1/traces"}},
}
PLAY = """
- hosts: localhost
  gather_facts: false
  vars_files: [{role}/defaults/main.yml, {role}/vars/main.yml, {extra}]
  tasks:
    - ansible.builtin.template: {{src: {role}/templates/harbor.yml.j2, dest: {out}, mode: "0600"}}
"""


def render(tmp_path: Path, steps: str = PLAY, **settings: Any) -> tuple[str, dict[str, Any]]:
    """harbor.yml as the role writes it: its text, and what it says."""
    state = tmp_path / "state/secrets"
    state.mkdir(parents=True, exist_ok=True)
    for name in ("harbor-admin", "harbor-database"):
        (state / f"{name}.password").write_text("Kept1234\n", encoding="utf-8")
    extra, out, play = (tmp_path / name for name in ("extra.json", "harbor.yml", "play.yml"))
    base = {"harbor_hostname": "registry01", "harbor_address": "10.0.0.5",
            "harbor_controller_dir": str(tmp_path / "state")}  # fmt: skip
    extra.write_text(json.dumps({**base, **settings}), encoding="utf-8")
    play.write_text(steps.format(role=ROOT / "roles/harbor", extra=extra, out=out), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "ansible", "playbook", "-i", "localhost,", "-c", "local",
         "-e", f"ansible_python_interpreter={sys.executable}", str(play)],
        env={**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    text = out.read_text(encoding="utf-8")
    return text, yaml.safe_load(text)


def names(value: Any, prefix: str = "") -> set[str]:
    """Every setting that stands there, as `log.level`."""
    found = set()
    for key, inner in value.items():
        found |= names(inner, f"{prefix}{key}.") if isinstance(inner, dict) and inner else {f"{prefix}{key}"}
    return found


@pytest.mark.parametrize("version", ["v2.12.4", "2.13.5", "v2.14.4", "v2.15.2"])
def test_what_prepare_indexes_is_there_in_every_release(tmp_path: Path, version: str) -> None:
    text, said = render(tmp_path, harbor_version=version)
    assert names(said) >= INDEXED
    assert names(said) <= TEMPLATE | {
        "database.password", "database.max_idle_conns", "database.max_open_conns",
        "storage_service.filesystem.maxthreads",
    }  # fmt: skip
    assert said["_version"] == f"{version.removeprefix('v')[:4]}.0"
    assert said["harbor_admin_password"] == "Kept1234"
    assert ("db_repository" in said["trivy"]) == (said["_version"] == "2.15.0")
    # As `prepare` finds it, with grep and awk.
    lines = [line for line in text.splitlines() if "data_volume:" in line.partition("#")[0]]
    assert [line.split()[-1] for line in lines] == ["/var/lib/clusterctl/harbor"]


def test_every_setting_of_harbors_template_can_be_declared(tmp_path: Path) -> None:
    _, said = render(tmp_path, harbor_version="v2.15.2", **FULL)
    assert TEMPLATE - names(said) == set()
    assert said["external_database"]["harbor"]["password"] == "p#w: \"x'"
    assert "database" not in said
    assert "tls" not in said["external_redis"]


# Of what may be left away, all that Harbor's migration to 2.15 asks for without a default.
MIGRATED = {
    "external_redis": {"host", "password", "registry_db_index", "jobservice_db_index"},
    "trace": {"enabled", "sample_rate"},
    "trace.otel": {"endpoint", "url_path", "compression", "insecure", "timeout"},
    "trace.jaeger": {"endpoint", "username", "password", "agent_host", "agent_port"},
    "external_database.harbor": {"host", "port", "db_name", "username", "password", "ssl_mode",
                                 "max_idle_conns", "max_open_conns"},
    "log.external_endpoint": {"protocol", "host", "port"},
    "ip_family.ipv6": {"enabled"}, "internal_tls": {"enabled"}, "storage_service.redirect": {"disable"},
    "database": {"password", "max_idle_conns", "max_open_conns"},
}  # fmt: skip
LEAST: dict[str, dict[str, Any]] = {
    "harbor_external_redis": {"host": "redis:6379"},
    "harbor_external_database": {"host": "db", "username": "harbor"},
    "harbor_log_endpoint": {"host": "log", "port": 514},
}


@pytest.mark.parametrize("exporter", ["jaeger", "otel"])
def test_what_the_next_releases_migration_asks_for_is_there_by_default(tmp_path: Path, exporter: str) -> None:
    trace = {exporter: {"endpoint": "h:4318"}}
    _, said = render(tmp_path, harbor_version="v2.14.0", **{**FULL, **LEAST, "harbor_trace": trace})
    for section, wanted in MIGRATED.items():
        found: Any = said
        for name in section.split("."):
            found = found.get(name) if found is not None else None
        if found is not None:
            assert wanted <= set(found), section
    assert said["trace"][exporter]["endpoint"] == "h:4318"
    assert set(said["trace"]) == {"enabled", "sample_rate", exporter}
    assert said["external_redis"]["registry_db_index"] == 1


def test_a_plan_hashes_the_very_bytes_that_an_apply_writes(tmp_path: Path) -> None:
    (tmp_path / "templates").symlink_to(ROOT / "roles/harbor/templates")
    text = "{{ _harbor_yml | b64encode ~ ' ' ~ (_harbor_deciding | hash('sha256')) }}"
    extra = {"looked": text, "harbor_directory": "/opt/harbor"}
    play = (
        PLAY
        + "    - ansible.builtin.copy: {{content: '{{{{ looked }}}}', dest: '{out}.looked', mode: '0600'}}\n"
    )
    render(tmp_path, play, harbor_version="v2.15.2", **extra)
    written, digest = (tmp_path / "harbor.yml.looked").read_text(encoding="utf-8").split()
    assert base64.b64decode(written).endswith(b"\n"), "else one is added"
    assert b"harbor_admin_password: " in base64.b64decode(written)
    (tmp_path / "written.yml").write_bytes(base64.b64decode(written))
    assert harbor_release.digest(tmp_path / "written.yml") == digest, "check mode judges as an apply does"


def test_redis_of_harbor_itself_takes_other_numbers(tmp_path: Path) -> None:
    _, said = render(tmp_path, harbor_version="v2.14.0", harbor_redis={"registry_db_index": 3})
    assert said["redis"] == {"registry_db_index": 3}


def play_registry(
    tmp_path: Path, playbook: str, check: bool = True, **settings: Any
) -> subprocess.CompletedProcess[str]:
    """A playbook of the registry's host, with all its places in a directory."""
    inventory = tmp_path / "hosts.yml"
    host = {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "ansible_become": False,
    }
    declared = {
        "registry_kind": "harbor", "registry_address": "10.0.0.5", "harbor_version": "v2.15.2",
        "registry_controller_dir": str(tmp_path / "state"), "harbor_directory": str(tmp_path / "opt"),
        "harbor_data_dir": str(tmp_path / "data"), "harbor_backup_dir": str(tmp_path / "backups"),
        "harbor_installer_url": "http://nowhere.invalid/h.tgz", "harbor_installer_sha256": "0" * 64,
        "harbor_manage_engine": False, "harbor_min_free_gb": 0, **settings,
    }  # fmt: skip
    groups = {"registry": {"hosts": {"registry01": host}, "vars": declared}}
    inventory.write_text(yaml.safe_dump({"all": {"children": groups}}), encoding="utf-8")
    asked = ["--check", "--diff"] if check else []
    return subprocess.run(
        [sys.executable, "-m", "ansible", "playbook", *asked, "-i", str(inventory),
         "-e", "ansible_become=false", str(ROOT / "playbooks" / playbook)],
        env={**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def said(done: subprocess.CompletedProcess[str]) -> str:
    """On one line, whatever Ansible wrapped."""
    return " ".join(done.stdout.split())


def test_a_plan_of_a_bare_host_goes_to_its_end_and_makes_nothing(tmp_path: Path) -> None:
    ports = {"registry_port": 61443, "harbor_http_port": 61080, "harbor_metrics_port": 61090}
    done = play_registry(tmp_path, "registry.yml", **ports)
    assert done.returncode == 0, done.stdout
    assert "failed=0" in done.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hosts.yml"]


def test_there_is_no_backup_and_no_upgrade_of_a_harbor_that_is_not_there(tmp_path: Path) -> None:
    assert "no Harbor of ours is installed here" in said(play_registry(tmp_path, "registry_backup.yml"))
    ports = {"registry_port": 61443, "harbor_http_port": 61080, "harbor_metrics_port": 61090}
    upgrade = said(play_registry(tmp_path, "registry_upgrade.yml", **ports))
    assert "`clusterctl apply` installs the declared release" in upgrade
    assert "there is no backup yet" in said(play_registry(tmp_path, "registry_restore.yml", **ports))


def installed(tmp_path: Path, version: str, **more: Any) -> Path:
    """A Harbor on this host, by its record; its release's directory."""
    release = tmp_path / f"opt/releases/{version}/harbor"
    release.mkdir(parents=True)
    (release / "harbor.yml").write_text("hostname: registry01\n", encoding="utf-8")
    record = {"version": version, "release": str(release), "state": "installed", "settings": "0" * 64,
              "data_dir": str(tmp_path / "data"), "trivy": False, **more}  # fmt: skip
    (tmp_path / "opt/installed.json").write_text(json.dumps(record), encoding="utf-8")
    return release


BACKUP = "20260101T000000Z"
PORTS = {"registry_port": 61443, "harbor_http_port": 61080, "harbor_metrics_port": 61090}


def test_a_plan_of_an_upgrade_goes_to_its_end(tmp_path: Path) -> None:
    installed(tmp_path, "v2.14.4")
    before = sorted(path for path in tmp_path.rglob("*"))
    done = play_registry(tmp_path, "registry_upgrade.yml", **PORTS)
    assert done.returncode == 0, done.stdout
    assert "install: v2.14.4 is here, and v2.15.2 is declared" in said(done)
    assert "Harbor is down meanwhile, for a minute or more" in said(done)
    assert sorted(path for path in tmp_path.rglob("*") if path.name != "hosts.yml") == before


def test_a_plan_judges_the_settings_that_are_to_be_and_says_that_harbor_goes_down(tmp_path: Path) -> None:
    installed(tmp_path, "v2.15.2")
    done = play_registry(tmp_path, "registry.yml", **PORTS)
    assert done.returncode == 0, done.stdout
    assert "install: harbor.yml changed; Harbor is down meanwhile" in said(done)


def test_an_upgrade_over_the_sites_own_database_wants_a_word_that_it_was_backed_up(tmp_path: Path) -> None:
    installed(tmp_path, "v2.14.4")
    own = {"harbor_external_database": {"host": "db", "username": "harbor", "password": "x"}, **PORTS}
    refused = play_registry(tmp_path, "registry_upgrade.yml", **own)
    assert refused.returncode == 2
    assert "Harbor v2.14.4 was left as it is: its database is the site's own" in said(refused)
    done = play_registry(tmp_path, "registry_upgrade.yml", **own, harbor_database_backed_up=True)
    assert done.returncode == 0, done.stdout


def test_an_upgrade_that_was_cut_off_needs_no_second_backup(tmp_path: Path) -> None:
    installed(tmp_path, "v2.14.4", state="upgrading", to="v2.15.2", backup="20260101T000000Z")
    for playbook in ("registry_upgrade.yml", "registry.yml"):
        done = play_registry(tmp_path, playbook, **PORTS)
        assert done.returncode == 0, done.stdout
        assert "an upgrade from v2.14.4 to v2.15.2 was cut off" in said(done)
        assert "Back Harbor up, and verify" not in done.stdout


def backed_up(tmp_path: Path) -> Path:
    """A whole backup in its place; what Harbor encrypts with, in it."""
    backup = tmp_path / "backups" / BACKUP
    key = backup / kept.DATA / kept.KEY_FILE
    key.parent.mkdir(parents=True)
    key.write_text("0123456789abcdef", encoding="utf-8")
    owned = kept.Kept(kept.KEY_FILE, 16, kept.digest(key), 0o600, os.getuid(), os.getgid())
    kept.write_files(backup, [owned])
    (backup / kept.DUMP).write_bytes(gzip.compress(kept.DUMPED))
    kept.write_manifest(backup, {"version": "v2.15.2", "database": "own"})
    return key


UNPACK = """
- hosts: localhost
  gather_facts: false
  vars: {{ansible_async_dir: {state}}}
  vars_files: [{extra}]
  tasks:
    - ansible.builtin.include_role: {{name: harbor, tasks_from: installer}}
    - ansible.builtin.copy: {{content: x, dest: {out}, mode: "0600"}}
"""


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
        asked = [task for task in inner if {"harbor_release", "harbor_installer"} & set(task)]
        assert [task.get("check_mode", "async" in task) for task in asked] == [True, True], name


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
    assert "It was not put in place" in said(refused)
    assert not (tmp_path / "data").exists()
    assert not (tmp_path / "opt").exists()


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


def test_an_apply_and_an_upgrade_refuse_a_harbor_that_is_half_restored(tmp_path: Path) -> None:
    installed(tmp_path, "v2.15.2")
    mark = json.dumps({"backup": "20260101T000000Z", "phase": "loaded"})
    (tmp_path / "opt/restore.json").write_text(mark, encoding="utf-8")
    for playbook in ("registry.yml", "registry_upgrade.yml", "registry_backup.yml"):
        refused = play_registry(tmp_path, playbook, **PORTS)
        assert refused.returncode == 2
        assert "`clusterctl registry restore` ends it" in said(refused)


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
