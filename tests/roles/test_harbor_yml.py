"""harbor.yml for every known release, by Ansible itself, held against what Harbor's `prepare` reads."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.clusterctl.cluster.plugins.modules import harbor_release

from .harbor_plays import PLAY, ROOT, render

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


def names(value: Any, prefix: str = "") -> set[str]:
    """Every setting that stands there, as `log.level`."""
    found = set()
    for key, inner in value.items():
        found |= names(inner, f"{prefix}{key}.") if isinstance(inner, dict) and inner else {f"{prefix}{key}"}
    return found


@pytest.mark.drawn("harbor.yml of a release")
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


@pytest.mark.drawn("harbor.yml for the next migration")
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
