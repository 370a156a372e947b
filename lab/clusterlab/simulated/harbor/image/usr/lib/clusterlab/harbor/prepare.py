"""Simulated by clusterlab: what Harbor's ``prepare`` makes of harbor.yml, and its ``migrate``."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

HARBOR_ID = 10000
VERSION = os.environ.get("HARBOR_VERSION", "")
# As `prepare` takes them, without asking whether they are there.
INDEXED = (
    ("hostname",), ("harbor_admin_password",), ("data_volume",), ("https", "certificate"),
    ("https", "private_key"), ("jobservice", "max_job_workers"), ("jobservice", "job_loggers"),
    ("jobservice", "logger_sweeper_duration"), ("notification", "webhook_job_max_retry"),
    ("notification", "webhook_job_http_client_timeout"), ("log", "level"), ("log", "local", "location"),
)  # fmt: skip
HOST = "/hostfs"
# What the real one's template asks for without a default, of sections that may be left away.
UNDEFINED = {
    "external_redis": ("host", "password", "registry_db_index", "jobservice_db_index"),
    "trace": ("enabled", "sample_rate"),
}
SERIES = ("2.12", "2.13", "2.14", "2.15")
IMAGES = {
    "log": "harbor-log", "registry": "registry-photon", "registryctl": "harbor-registryctl",
    "postgresql": "harbor-db", "core": "harbor-core", "portal": "harbor-portal",
    "jobservice": "harbor-jobservice", "redis": "redis-photon", "proxy": "nginx-photon",
}  # fmt: skip
# Services whose container goes by another name.
CONTAINERS = {
    "log": "harbor-log", "postgresql": "harbor-db", "core": "harbor-core", "portal": "harbor-portal",
    "jobservice": "harbor-jobservice", "proxy": "nginx",
}  # fmt: skip


def read(path: Path) -> dict[str, Any]:
    """The settings; a KeyError for what is missing, as Harbor's own ends."""
    settings: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    for names in INDEXED:
        value: Any = settings
        for name in names:
            value = value[name]
    if settings["hostname"] in ("127.0.0.1", "reg.mydomain.com"):
        sys.exit(f"{settings['hostname']} can not be the hostname")
    return settings


def own(path: Path, mode: int) -> None:
    """Harbor's containers run as one user."""
    os.chown(path, HARBOR_ID, HARBOR_ID)
    path.chmod(mode)


def directory(path: Path) -> Path:
    """A directory that Harbor's containers may write to."""
    path.mkdir(parents=True, exist_ok=True)
    own(path, 0o755)
    return path


def prepare_secrets(settings: dict[str, Any]) -> None:
    """The certificate that is shown, the key that tokens are signed with, and the one that encrypts."""
    shown = Path("/data/secret/cert")
    shutil.rmtree(shown, ignore_errors=True)
    directory(shown)
    for setting, name in (("certificate", "server.crt"), ("private_key", "server.key")):
        shutil.copy2(f"/hostfs{settings['https'][setting]}", shown / name)
        own(shown / name, 0o600)
    encrypts = Path("/data/secret/keys/secretkey")
    if not encrypts.is_file():
        directory(encrypts.parent)
        encrypts.write_text(os.urandom(8).hex(), encoding="ascii")
        own(encrypts, 0o600)
    key, root = Path("/data/secret/core/private_key.pem"), Path("/data/secret/registry/root.crt")
    directory(key.parent)
    directory(root.parent)
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-sha256", "-days", "3650",
         "-subj", "/CN=harbor-token-issuer", "-keyout", str(key), "-out", str(root)],
        check=True, capture_output=True,
    )  # fmt: skip
    own(key, 0o600)
    own(root, 0o644)


def prepare_configs(settings: dict[str, Any]) -> None:
    """What each container reads."""
    port = settings["https"].get("port", 443)
    public = f"https://{settings['hostname']}" + ("" if port == 443 else f":{port}")
    files = {
        "registry/config.yml": yaml.safe_dump(
            {
                "version": 0.1,
                "log": {"level": "info"},
                "storage": {"filesystem": {"rootdirectory": "/storage"}, "delete": {"enabled": True},
                            "cache": {"blobdescriptor": "inmemory"}},
                "http": {"addr": ":5000", "relativeurls": True},
                "auth": {"token": {"issuer": "harbor-token-issuer", "realm": f"{public}/service/token",
                                   "service": "harbor-registry", "rootcertbundle": "/etc/registry/root.crt"}},
            }
        ),
        "core/admin-password": f"{settings['harbor_admin_password']}\n",
        "nginx/nginx.conf": Path("/usr/lib/clusterlab/harbor/nginx.conf").read_text(encoding="utf-8"),
    }  # fmt: skip
    for name, text in files.items():
        path = Path("/config", name)
        directory(path.parent)
        path.write_text(text, encoding="utf-8")
        own(path, 0o600)


def compose(settings: dict[str, Any], *, trivy: bool) -> dict[str, Any]:
    """The services, by the names that Harbor gives them."""
    data = settings["data_volume"]
    volumes = {
        "log": [f"{settings['log']['local']['location']}:/var/log/docker"],
        "registry": [f"{data}/registry:/storage", "./common/config/registry:/etc/registry-config",
                     f"{data}/secret/registry/root.crt:/etc/registry/root.crt"],
        "postgresql": [f"{data}/database:/database"],
        "core": [f"{data}/database:/database", f"{data}/secret/core:/etc/core",
                 f"{data}/secret/registry:/etc/token",
                 "./common/config/core:/etc/core-config"],
        "proxy": ["./common/config/nginx:/etc/nginx", f"{data}/secret/cert:/etc/cert"],
    }  # fmt: skip
    http, https = (settings.get("http") or {}).get("port", 80), settings["https"].get("port", 443)
    metric = settings.get("metric") or {}
    ports = [f"{http}:8080", f"{https}:8443"] + ([f"{metric['port']}:9090"] if metric.get("enabled") else [])
    images = {**IMAGES, **({"trivy-adapter": "trivy-adapter-photon"} if trivy else {})}
    services = {}
    for name, image in images.items():
        service: dict[str, Any] = {
            "image": f"goharbor/{image}:{VERSION}",
            "container_name": CONTAINERS.get(name, name),
            "restart": "always",
            "command": [name, *(["--no-scanner"] if name == "core" and not trivy else [])],
            "networks": ["harbor"],
            "volumes": volumes.get(name, []),
            **({} if name == "log" else {"user": f"{HARBOR_ID}:{HARBOR_ID}"}),
        }
        if name == "log":
            service["ports"] = ["127.0.0.1:1514:10514"]
        else:
            # Where the log collector does not answer yet, Docker does not start the container.
            options = {"syslog-address": "tcp://localhost:1514", "tag": name}
            service |= {"depends_on": ["log"], "logging": {"driver": "syslog", "options": options}}
        if name == "proxy":
            service |= {"ports": ports, "depends_on": ["log", "core", "registry"]}
        services[name] = service
    return {"services": services, "networks": {"harbor": {}}}


def prepare(*, trivy: bool) -> None:
    """Everything that Compose starts from."""
    settings = read(Path("/input/harbor.yml"))
    for name in ("registry", "database", "job_logs", "redis", "ca_download"):
        directory(Path("/data", name))
    directory(Path(f"/hostfs{settings['log']['local']['location']}"))
    prepare_secrets(settings)
    prepare_configs(settings)
    text = json.dumps(compose(settings, trivy=trivy), indent=1)
    Path("/compose_location/docker-compose.yml").write_text(f"{text}\n", encoding="utf-8")


def migrate(path: Path) -> None:
    """Settings of an earlier release as this one has them; it refuses what it does not know.

    As the real one, it copies what it made with its mode: whoever may read that, may read the passwords.
    """
    place = Path(f"{HOST}{path}")
    settings = yaml.safe_load(place.read_text(encoding="utf-8"))
    series = ".".join(VERSION.lstrip("v").split(".")[:2])
    before = str(settings.get("_version", "")).rpartition(".")[0]
    if before not in SERIES or SERIES.index(before) > SERIES.index(series):
        sys.exit(f"the version {settings.get('_version')} not supported")
    for section, names in UNDEFINED.items():
        for name in names if settings.get(section) else ():
            if name not in settings[section]:
                sys.exit(f"jinja2.exceptions.UndefinedError: '{section}' has no attribute '{name}'")
    settings["_version"] = f"{series}.0"
    with tempfile.TemporaryDirectory() as scratch:
        made = Path(scratch, "harbor.yml.tmp")
        made.write_text(yaml.safe_dump(settings), encoding="utf-8")
        shutil.copy(made, place)
    sys.stdout.write(f"Written new values to {path}\n")


def main() -> None:
    """The program's entry."""
    parser = argparse.ArgumentParser(description="Prepares a simulated Harbor.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("prepare").add_argument("--with-trivy", action="store_true")
    verbs.add_parser("migrate").add_argument("-i", "--input", type=Path, required=True)
    asked = parser.parse_args()
    os.umask(0o022)
    if asked.verb == "prepare":
        prepare(trivy=asked.with_trivy)
    else:
        migrate(asked.input)


if __name__ == "__main__":
    main()
