"""A cluster directory, and the records on a node, that 5954ee5 wrote are read by this version."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from ansible_collections.clusterctl.cluster.plugins.module_utils import (
    docker_daemon,
    driver_record,
    lease_file,
    package_task,
    vaulted,
)
from ansible_collections.clusterctl.cluster.plugins.modules import (
    cluster_certificate,
    node_preflight,
    registry_credentials,
)
from click.testing import CliRunner, Result
from tests.support.called_module import called

from clustercheck.running.suites import load
from clusterctl.cluster import known_hosts, lock, quarantine
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.cluster.opened import opened
from clusterctl.engine import journal, lease, lease_book
from clusterctl.main import cli
from clusterctl.registry.harbor.vault import FILE, Vault
from clusterctl.registry.images import registries
from clusterctl.registry.oci.credentials import credentials_for
from clusterctl.report import baselines
from clusterctl.rollout.drift.records import load_record

APPLIED, VALIDATED, OF_ONE, KILLED = (
    "20261123T122825649-apply-97e5",
    "20261123T123022226-validate-6100",
    "20261123T123114170-validate-7c0d",
    "20261123T123203796-apply-eccd",
)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Path:
    target = tmp_path_factory.mktemp("golden")
    # By tar, as Python 3.11.2, which Debian 12 has, knows no filters.
    archive = repository / "tests" / "golden" / "cluster-5954ee5.tar.gz"
    subprocess.run(["tar", "-xzf", archive, "-C", target, "--no-same-owner"], check=True)
    return target


@pytest.fixture
def site(written: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ClusterDirectory:
    (tmp_path / "vault").write_text("golden\n", encoding="utf-8")
    (tmp_path / "vault").chmod(0o600)
    monkeypatch.setenv("ANSIBLE_VAULT_PASSWORD_FILE", str(tmp_path / "vault"))
    return ClusterDirectory(written / "site")


def clusterctl(site: ClusterDirectory, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["-C", str(site.root), *arguments])


def lines(result: Result) -> list[dict[str, object]]:
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_its_hosts_and_vaulted_variables_are_read(site: ClusterDirectory) -> None:
    hosts = {str(one["host"]): one for one in lines(clusterctl(site, "hosts", "list", "--json"))}
    assert set(hosts) >= {"gpu01", "gpu02", "registry01"}
    assert "bad cable" in json.dumps(hosts["gpu02"])


def test_its_runs_are_listed_and_shown(site: ClusterDirectory) -> None:
    listed = [str(one["id"]) for one in lines(clusterctl(site, "runs", "list", "--json"))]
    assert listed == [APPLIED, VALIDATED, OF_ONE, KILLED]
    for run in listed:
        shown = clusterctl(site, "runs", "show", run)
        assert shown.exit_code == 0, shown.output
        assert run in shown.output
    assert all(list(journal.read(site.runs / run / "journal.jsonl")) for run in (APPLIED, KILLED))


@pytest.mark.parametrize("run", [VALIDATED, OF_ONE])
@pytest.mark.parametrize("form", ["table", "json", "junit", "markdown", "html", "prometheus"])
def test_its_results_are_rendered_again(site: ClusterDirectory, run: str, form: str) -> None:
    rendered = clusterctl(site, "report", run, "--format", form)
    assert rendered.exit_code == 0, rendered.output
    assert "gpu-transfer" in rendered.output


def test_its_baseline_lock_and_quarantine_are_read(site: ClusterDirectory) -> None:
    baseline = baselines.chosen(site, None, load("quick"), ["gpu01"])
    assert baseline is not None
    assert baseline.run == OF_ONE
    assert baseline.simulated
    pinned = lock.read(site)
    assert pinned is not None
    assert [image.name for image in pinned.images] == ["training"]
    assert lock.text_of(pinned) == lock.path(site).read_text(encoding="utf-8")
    assert quarantine.entries(site)["gpu02"].reason == "bad cable"


def test_its_leases_and_drift_records_are_read(site: ClusterDirectory, written: Path) -> None:
    book = json.loads((site.state / lease_book.FILE).read_text(encoding="utf-8"))
    assert [lease.from_record(one["lease"]).run for one in book] == [KILLED]
    held = lease_file.read(written / "node/root/.clusterctl/lease.json")
    assert held is not None
    assert lease.from_record(held) == lease.from_record(book[0]["lease"])
    assert load_record(site, "gpu02") is not None


def test_its_secrets_are_read(site: ClusterDirectory) -> None:
    vault = Vault(site.secrets / FILE)
    assert vault.is_set("nodes-pull", 7)
    assert vault.robot("nodes-pull")["secret"].get_secret_value() == "Example-robot-1"
    assert vault.has_password_file("nodes-pull")


def test_its_host_keys_are_read(site: ClusterDirectory) -> None:
    for host in opened(site.root).hosts:
        kinds = [key.type for key in known_hosts.pinned(site, host.address).keys]
        assert kinds == ["ecdsa-sha2-nistp256", "ssh-ed25519"], host.name


def test_its_authority_is_read(
    site: ClusterDirectory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = called(cluster_certificate, {"directory": str(site.authority)}, tmp_path, capsys, check=True)
    assert said["because"] == ["ca.key was not encrypted"], "no other authority is made"
    assert registries.own_endpoint(opened(site.root)).authorities == (site.root / ".clusterctl/ca/ca.crt",)


@pytest.mark.parametrize("name, registry", [("pull", "registry01:5000"), ("push", "127.0.0.1:5001")])
def test_its_registry_credentials_are_read(site: ClusterDirectory, name: str, registry: str) -> None:
    secrets = site.root / ".clusterctl/secrets"
    written: list[Path] = []
    registry_credentials.ensure(
        secrets,
        f"registry-{name}",
        name,
        [registry],
        put=lambda path, _: written.append(path),
        vault=vaulted.Vault({}),
    )
    assert written == [], "password, htpasswd and auth.json stay as they are"
    found = credentials_for(secrets / f"registry-{name}.auth.json", registry)
    assert found is not None
    password = (secrets / f"registry-{name}.password").read_text(encoding="utf-8").strip()
    assert (found.user, found.password.get_secret_value()) == (name, password)


def test_what_it_keeps_on_a_node_is_read(written: Path) -> None:
    record = driver_record.read_record(written / "node")
    assert record["packages"]
    assert record["held"]


def test_its_holds_on_a_node_are_read(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = written / "node"
    monkeypatch.setattr(package_task, "HOLDS", node / package_task.HOLDS.relative_to("/"))
    assert {"docker.io", "nvidia-container-toolkit"} <= package_task.our_holds()
    assert node_preflight.our_holds(node) == package_task.our_holds()


def test_what_it_recorded_of_a_nodes_docker_is_read(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docker_daemon, "STATE", written / "node" / docker_daemon.STATE.relative_to("/"))
    daemon = object.__new__(docker_daemon.Daemon)
    daemon.pid = 3115
    assert daemon.recall()["seen"] == ["/usr/bin/nvidia-container-runtime-hook"]
