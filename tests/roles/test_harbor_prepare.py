"""harbor.yml read by Harbor's own `prepare`, where CLUSTERCTL_HARBOR_RELEASES has unpacked installers.

As the role makes it, that is `harbor_directory`/releases: `VERSION/harbor/prepare` runs, in a copy.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from cryptography.x509 import DNSName
from tests.support.certificates import DAY, own_authority

from .harbor_plays import render

RELEASES = Path(os.environ.get("CLUSTERCTL_HARBOR_RELEASES", "/nowhere"))
VERSIONS = sorted(one.name for one in RELEASES.glob("v*") if (one / "harbor/prepare").is_file())

pytestmark = pytest.mark.skipif(
    not VERSIONS, reason="CLUSTERCTL_HARBOR_RELEASES names no unpacked installers"
)

DATABASE = {"host": "db.site", "port": 6432, "username": "harbor", "password": "s3cret"}
REDIS = {"host": "redis.site:6379"}
COMPOSE, CORE, JOBS = "docker-compose.yml", "common/config/core/env", "common/config/jobservice/env"
JOB_SERVICE, REGISTRY = "common/config/jobservice/config.yml", "common/config/registry/config.yml"
NGINX, TRIVY = "common/config/nginx/nginx.conf", "common/config/trivy-adapter/env"


class Variant(NamedTuple):
    """Settings, and what they have Harbor's components read."""

    settings: dict[str, Any]
    expected: tuple[tuple[str, str], ...]
    since: str = "v2.12"


VARIANTS = {
    "plain": Variant({}, ((COMPOSE, "goharbor/harbor-db:"), (NGINX, "listen 8443 ssl"))),
    "ports": Variant(
        {"harbor_http_port": 8080, "harbor_https_port": 8443},
        ((COMPOSE, "8080:8080"), (COMPOSE, "8443:8443"), (CORE, "EXT_ENDPOINT=https://registry01:8443")),
    ),
    "external url": Variant(
        {"harbor_external_url": "https://front.site"}, ((CORE, "EXT_ENDPOINT=https://front.site"),)
    ),
    "strong ciphers": Variant({"harbor_strong_ssl_ciphers": True}, ((NGINX, "!AES128"),)),
    "ipv6": Variant({"harbor_ipv6": True}, ((NGINX, "listen [::]:8443 ssl"),)),
    "own database": Variant(
        {"harbor_database_max_idle_conns": 7, "harbor_database_max_open_conns": 70},
        ((CORE, "POSTGRESQL_MAX_IDLE_CONNS=7"), (CORE, "POSTGRESQL_MAX_OPEN_CONNS=70")),
    ),
    "external database": Variant(
        {"harbor_external_database": DATABASE},
        ((CORE, "POSTGRESQL_HOST=db.site"), (CORE, "POSTGRESQL_PORT=6432"),
         (CORE, "POSTGRESQL_SSLMODE=verify-full")),
    ),
    "numbers in redis": Variant(
        {"harbor_redis": {"registry_db_index": 3, "harbor_db_index": 6, "cache_layer_db_index": 7}},
        ((CORE, "_REDIS_URL_REG=redis://redis:6379/3"), (CORE, "_REDIS_URL_HARBOR=redis://redis:6379/6")),
    ),
    "external redis": Variant(
        {"harbor_external_redis": {**REDIS, "password": "r", "harbor_db_index": 6}},
        ((CORE, "_REDIS_URL_CORE=redis://:r@redis.site:6379"), (CORE, "redis.site:6379/6"),
         (JOB_SERVICE, "redis.site:6379/2"), (REGISTRY, "addr: redis.site:6379")),
    ),
    "redis over tls": Variant(
        {"harbor_external_redis": {**REDIS, "username": "u", "password": "r", "tls": True}},
        ((CORE, "_REDIS_URL_CORE=rediss://u:r@redis.site:6379"), (REGISTRY, "enableTLS: true")),
        since="v2.13",
    ),
    "redis sentinel": Variant(
        {"harbor_external_redis": {"host": "s1:26379,s2:26379", "sentinel_master_set": "mymaster"}},
        ((CORE, "redis+sentinel://s1:26379,s2:26379/mymaster"), (REGISTRY, "sentinelMasterSet: mymaster")),
    ),
    "s3": Variant(
        {"harbor_storage_driver": "s3", "harbor_storage_redirect": False,
         "harbor_storage_options": {"region": "r", "bucket": "images", "accesskey": "a", "secretkey": "s"}},
        ((REGISTRY, "bucket: images"), (REGISTRY, "disable: true"), (CORE, "PROVIDER_NAME=s3")),
    ),
    "gcs": Variant(
        {"harbor_storage_driver": "gcs", "harbor_storage_options": {"bucket": "images"}},
        ((REGISTRY, "bucket: images"), (CORE, "PROVIDER_NAME=gcs")),
    ),
    "azure": Variant(
        {"harbor_storage_driver": "azure",
         "harbor_storage_options": {"accountname": "n", "accountkey": "k", "container": "images"}},
        ((REGISTRY, "container: images"), (CORE, "PROVIDER_NAME=azure")),
    ),
    "swift": Variant(
        {"harbor_storage_driver": "swift",
         "harbor_storage_options": {"authurl": "https://keystone.site/v3", "username": "u", "password": "p",
                                    "container": "images"}},
        ((REGISTRY, "container: images"), (CORE, "PROVIDER_NAME=swift")),
    ),
    "oss": Variant(
        {"harbor_storage_driver": "oss",
         "harbor_storage_options": {"accesskeyid": "a", "accesskeysecret": "s", "region": "r",
                                    "bucket": "images"}},
        ((REGISTRY, "bucket: images"), (CORE, "PROVIDER_NAME=oss")),
    ),
    "trivy": Variant(
        {"harbor_trivy_enabled": True, "harbor_trivy_offline": True, "harbor_trivy_timeout": "9m0s"},
        ((COMPOSE, "trivy-adapter-photon"), (TRIVY, "SCANNER_TRIVY_TIMEOUT=9m0s"),
         (TRIVY, "SCANNER_TRIVY_OFFLINE_SCAN=True"), (CORE, "WITH_TRIVY=True")),
    ),
    "proxy": Variant(
        {"harbor_http_proxy": "http://proxy.site:3128", "harbor_https_proxy": "http://proxy.site:3128",
         "harbor_no_proxy": "mirror.site"},
        ((CORE, "HTTPS_PROXY=http://proxy.site:3128"), (JOBS, "HTTP_PROXY=http://proxy.site:3128"),
         (CORE, "mirror.site")),
    ),
    "no metrics": Variant({"harbor_metrics": False}, ()),
    "metrics": Variant(
        {"harbor_metrics_port": 9191, "harbor_metrics_path": "/m"},
        ((COMPOSE, "9191:9090"), (COMPOSE, "harbor-exporter"), (CORE, "METRIC_PATH=/m")),
    ),
    "trace by otel": Variant(
        {"harbor_trace": {"otel": {"endpoint": "otel.site:4318", "url_path": "/v1/traces"}}},
        ((CORE, "TRACE_OTEL_ENDPOINT=otel.site:4318"), (JOBS, "TRACE_ENABLED=true")),
    ),
    "trace by jaeger": Variant(
        {"harbor_trace": {"sample_rate": 0.5, "jaeger": {"endpoint": "http://jaeger.site:14268/api/traces"}}},
        ((CORE, "TRACE_JAEGER_ENDPOINT=http://jaeger.site:14268"), (CORE, "TRACE_SAMPLE_RATE=0.5")),
    ),
    "cache": Variant(
        {"harbor_cache": True, "harbor_cache_hours": 5, "harbor_quota_update_provider": "redis"},
        ((CORE, "CACHE_ENABLED=true"), (CORE, "CACHE_EXPIRE_HOURS=5"), (CORE, "QUOTA_UPDATE_PROVIDER=redis")),
    ),
    "uploads purged": Variant(
        {"harbor_upload_purging_age_h": 48, "harbor_upload_purging_interval_h": 12},
        ((REGISTRY, "age: 48h"), (REGISTRY, "interval: 12h")),
    ),
    "job service": Variant(
        {"harbor_jobservice_workers": 3, "harbor_jobservice_loggers": ["FILE", "DB"],
         "harbor_jobservice_log_days": 9, "harbor_webhook_retries": 5},
        ((JOB_SERVICE, "workers: 3"), (JOB_SERVICE, 'name: "DB"'), (JOB_SERVICE, "duration: 9"),
         (JOBS, "WEBHOOK_JOB_MAX_RETRY=5")),
    ),
    "logs": Variant(
        {"harbor_log_level": "debug", "harbor_log_dir": "/srv/log",
         "harbor_log_endpoint": {"protocol": "tcp", "host": "log.site", "port": 1514}},
        ((COMPOSE, "/srv/log/:/var/log/docker/"), (CORE, "LOG_LEVEL=debug"),
         ("common/config/log/rsyslog_docker.conf", 'Target="log.site" Port="1514"')),
    ),
}  # fmt: skip
CASES = [(v, name) for v in VERSIONS for name, one in VARIANTS.items() if v >= one.since]


def compose() -> list[str]:
    """Compose, in whichever form is installed."""
    if (one := shutil.which("docker-compose")) is not None:
        return [one]
    asked = subprocess.run(["docker", "compose", "version"], capture_output=True, check=False)
    return ["docker", "compose"] if asked.returncode == 0 else []


@pytest.mark.parametrize(("version", "variant"), CASES)
def test_prepare_reads_the_settings_and_compose_what_it_makes(
    tmp_path: Path, version: str, variant: str
) -> None:
    settings, expected, _ = VARIANTS[variant]
    for name, pem in zip(("tls.crt", "tls.key"), own_authority(DNSName("registry01"), DAY), strict=True):
        (tmp_path / name).write_bytes(pem)
    places = {"harbor_data_dir": str(tmp_path / "data"), "_harbor_settings": str(tmp_path)}
    render(tmp_path, harbor_version=version, **places, **settings)
    place = tmp_path / "release"
    place.mkdir()
    shutil.move(tmp_path / "harbor.yml", place)
    asked = ["--with-trivy"] if settings.get("harbor_trivy_enabled") else []
    done = subprocess.run(
        [str(RELEASES / version / "harbor/prepare"), *asked],
        env={**os.environ, "HARBOR_BUNDLE_DIR": str(place)},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    for path, text in expected:
        assert text in (place / path).read_text(encoding="utf-8"), path
    services = yaml.safe_load((place / COMPOSE).read_text(encoding="utf-8"))["services"]
    assert ("exporter" in services) == settings.get("harbor_metrics", True)
    assert ("postgresql" in services) == ("harbor_external_database" not in settings)
    assert ("redis" in services) == ("harbor_external_redis" not in settings)
    if program := compose():
        checked = subprocess.run(
            [*program, "-f", str(place / COMPOSE), "config", "-q"],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert checked.returncode == 0, checked.stderr
