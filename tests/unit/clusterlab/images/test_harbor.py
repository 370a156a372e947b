"""The stand-in Harbor: an installer of the real one's shape, a `prepare` as strict, its tokens."""

from __future__ import annotations

import gzip
import importlib.util
import json
import os
import sqlite3
import subprocess
import sys
import tarfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from ansible_collections.clusterctl.cluster.plugins.module_utils.node_files import sha256_of
from ansible_collections.clusterctl.cluster.plugins.modules import harbor_installer

from clusterlab import cluster_files
from clusterlab.images import harbor
from clusterlab.progress import LabProgress
from clusterlab.simulated.harbor import tokens
from clusterlab.simulated.harbor.api import system
from clusterlab.simulated.harbor.api.server import StandIn
from clusterlab.simulated.harbor.api.store import Store

PROGRAMS = harbor.IMAGE / "usr/lib/clusterlab/harbor"
SETTINGS: dict[str, Any] = {
    "_version": "2.14.0",
    "hostname": "registry01",
    "https": {"port": 8443, "certificate": "/etc/c", "private_key": "/etc/k"},
    "harbor_admin_password": "Pw",
    "data_volume": "/data/h",
    "jobservice": {"max_job_workers": 1, "job_loggers": [], "logger_sweeper_duration": 1},
    "notification": {"webhook_job_max_retry": 1, "webhook_job_http_client_timeout": 1},
    "log": {"level": "info", "local": {"location": "/var/log/harbor"}},
    "metric": {"enabled": True, "port": 9090, "path": "/metrics"},
}


def program(name: str) -> ModuleType:
    """A program of the image."""
    spec = importlib.util.spec_from_file_location(f"harbor_image_{name}", PROGRAMS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def installers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> harbor.Installers:
    """The installers, with a root file system of one file."""

    def bootstrap(_system: str, _packages: Any, target: Path, **_: Any) -> None:
        with tarfile.open(target, "w") as archive:
            archive.add(__file__, "etc/issue")

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(harbor, "bootstrap", bootstrap)
    return harbor.ensure_installers(LabProgress(lambda _: None))


def test_an_installer_is_what_the_role_unpacks(installers: harbor.Installers, tmp_path: Path) -> None:
    for one in installers.releases:
        path = installers.directory / one.file
        assert sha256_of(path) == one.sha256
        harbor_installer.unpack(path, tmp_path / one.version, one.version)
        assert (tmp_path / one.version / "install.sh").stat().st_mode & 0o111
    assert harbor.ensure_installers(LabProgress(print)) == installers, "built once"
    assert installers.newest.version == "v2.15.2"


def test_its_images_load_under_the_names_that_harbors_have(
    installers: harbor.Installers, tmp_path: Path
) -> None:
    path = installers.directory / installers.newest.file
    harbor_installer.unpack(path, tmp_path / "h", "v2.15.2")
    (images,) = (tmp_path / "h").glob("harbor.*.tar.gz")
    with gzip.open(images) as packed, tarfile.open(fileobj=packed) as archive:
        read = {member.name: archive.extractfile(member) for member in archive.getmembers()}
        manifest = json.load(read["manifest.json"])  # type: ignore[arg-type]
        config = json.load(read[manifest[0]["Config"]])  # type: ignore[arg-type]
    assert "goharbor/prepare:v2.15.2" in manifest[0]["RepoTags"]
    assert {tag.partition(":")[0].removeprefix("goharbor/") for tag in manifest[0]["RepoTags"]} == set(
        harbor.NAMES
    )
    assert "HARBOR_VERSION=v2.15.2" in config["config"]["Env"]


def test_the_lab_declares_what_the_depot_serves() -> None:
    said = cluster_files.harbor_settings(harbor.Installer("v2.15.2", "h.tgz", "0" * 64))
    assert said["harbor_installer_url"] == "http://depot/harbor/h.tgz"
    assert (said["registry_kind"], said["harbor_version"]) == ("harbor", "v2.15.2")


@pytest.mark.parametrize("missing", ["hostname", "https.private_key", "jobservice.job_loggers", "log.level"])
def test_prepare_ends_where_harbors_own_ends(tmp_path: Path, missing: str) -> None:
    settings: dict[str, Any] = json.loads(json.dumps(SETTINGS))
    outer, _, inner = missing.partition(".")
    if inner:
        del settings[outer][inner]
    else:
        del settings[outer]
    (tmp_path / "harbor.yml").write_text(yaml.safe_dump(settings), encoding="utf-8")
    with pytest.raises(KeyError, match=missing.rpartition(".")[2]):
        program("prepare").read(tmp_path / "harbor.yml")


def test_migrate_leaves_what_it_made_for_everybody_to_read_and_refuses_half_a_section(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare = program("prepare")
    monkeypatch.setattr(prepare, "HOST", "")
    monkeypatch.setattr(prepare, "VERSION", "v2.15.2")
    path = tmp_path / "harbor.yml"
    path.write_text(yaml.safe_dump(SETTINGS), encoding="utf-8")
    path.chmod(0o600)
    umask = os.umask(0o022)
    try:
        prepare.migrate(path)
    finally:
        os.umask(umask)
    assert path.stat().st_mode & 0o777 == 0o644
    assert yaml.safe_load(path.read_text(encoding="utf-8"))["_version"] == "2.15.0"
    path.write_text(yaml.safe_dump({**SETTINGS, "external_redis": {"host": "r:6379"}}), encoding="utf-8")
    with pytest.raises(SystemExit, match="no attribute 'password'"):
        prepare.migrate(path)


def test_containers_and_services_have_the_names_that_the_role_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    from ansible_collections.clusterctl.cluster.plugins.modules import harbor_release, harbor_restore

    composed = program("prepare").compose(SETTINGS, trivy=True)["services"]
    names = {one["container_name"] for one in composed.values()}
    assert {"harbor-core", "harbor-db", harbor_release.PROXY} <= names
    assert set(harbor_restore.BASE) <= set(composed)
    assert "8443:8443" in composed["proxy"]["ports"]
    # What makes a unit of ours necessary: a container whose collector does not answer is not started.
    assert all(one["logging"]["driver"] == "syslog" for name, one in composed.items() if name != "log")


def test_a_dump_is_whole_and_loads_as_a_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    database = program("database")
    monkeypatch.setattr(database, "STATE", str(tmp_path / "state.sqlite"))
    store = Store(tmp_path / "state.sqlite")
    store.put("project", 7, {"name": "golden"})
    monkeypatch.setattr(sys, "argv", ["pg_dump", "--clean"])
    database.dump()
    dumped = capsys.readouterr().out
    assert dumped.rstrip().endswith("-- PostgreSQL database dump complete\n--")
    store.put("project", 8, {"name": "later"})
    whole, begun = f"BEGIN;\n{dumped}\nCOMMIT;\n", f"BEGIN;\n{dumped}"
    for text, names, good in (
        (whole.replace("COMMIT", "nonsense; COMMIT"), ["golden", "later"], False),
        (begun, ["golden", "later"], True),  # cut off: psql succeeds, and nothing was committed
        (whole, ["golden"], True),
    ):
        load = f"import database; database.STATE = {str(tmp_path / 'state.sqlite')!r}; database.load()"
        done = subprocess.run(
            [sys.executable, "-c", load], input=text, env={"PYTHONPATH": str(PROGRAMS)},
            capture_output=True, text=True, check=False, timeout=30,
        )  # fmt: skip
        assert (done.returncode == 0) == good, done.stderr
        rows = sqlite3.connect(tmp_path / "state.sqlite").execute(
            "select body from object where kind='project'"
        )
        assert [json.loads(row[0])["name"] for row in rows] == names


@pytest.fixture
def store(tmp_path: Path) -> Store:
    server = StandIn(("127.0.0.1", 0), tmp_path / "state.sqlite")
    server.server_close()
    return Store(tmp_path / "state.sqlite")


def test_anybody_pulls_from_a_public_project_and_only_the_administrator_pushes(store: Store) -> None:
    scope = "repository:library/paddle:pull,push"
    assert tokens.granted(store, "", None, scope) == {
        "type": "repository",
        "name": "library/paddle",
        "actions": ["pull"],
    }
    admin = tokens.granted(store, "admin", None, scope)
    assert admin is not None
    assert admin["actions"] == ["pull", "push"]
    assert tokens.granted(store, "admin", None, "repository:nowhere/x:push") is None
    assert tokens.granted(store, "admin", None, "registry:catalog:*") is None


def test_nobody_pushes_while_harbor_is_read_only(store: Store) -> None:
    system.configure(store, read_only=True)
    admin = tokens.granted(store, "admin", None, "repository:library/x:pull,push")
    assert admin is not None
    assert admin["actions"] == ["pull"]
