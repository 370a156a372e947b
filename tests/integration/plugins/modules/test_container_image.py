"""What a pull moves, with a real registry and a real engine."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.clusterctl.cluster.plugins.module_utils import image_pull
from ansible_collections.clusterctl.cluster.plugins.module_utils.vaulted import Vault
from ansible_collections.clusterctl.cluster.plugins.modules import cluster_certificate, container_image
from tests.support.called_module import called
from tests.support.loopback_registry import Registry, needs_registry, push_tiny, registry
from tests.unit.plugins.modules.test_container_image import A


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Registry, Path, str]]:
    """A registry over TLS, the directory with its CA as Docker would have it, and an image's digest."""
    authority = cluster_certificate.make_authority("test", datetime.now(tz=UTC))
    pair = cluster_certificate.make_server(authority, ["127.0.0.1"], datetime.now(tz=UTC), 2)
    certificate, key = tmp_path / "r.crt", tmp_path / "r.key"
    cluster_certificate.save(pair, certificate, key, Vault({}))
    with registry(tmp_path / "registry", tls=(certificate, key)) as running:
        ca = tmp_path / "certs.d" / running.address / "ca.crt"
        ca.parent.mkdir(parents=True)
        ca.write_bytes(authority.certificate_pem())
        digest = push_tiny(f"{running.address}/library/tiny:1", tmp_path, size=300_000)
        yield running, tmp_path / "certs.d", digest


@needs_registry
def test_a_node_asks_the_registry_as_its_docker_would(
    served: tuple[Registry, Path, str], tmp_path: Path
) -> None:
    running, certificates, digest = served
    repository = f"{running.address}/library/tiny"
    found = image_pull.look(repository, digest, "", certificates, platform.machine())
    assert 300_000 < found["bytes"] < 302_000
    assert len(found["layers"]) == 1
    assert found["device"] == "lo"
    stranger = image_pull.look(repository, digest, "", tmp_path / "no-ca", platform.machine())
    assert "CERTIFICATE_VERIFY_FAILED" in stranger["unknown"]
    absent = image_pull.look(repository, A, "", certificates, platform.machine())
    assert "404" in absent["unknown"]


@pytest.mark.lab
@pytest.mark.usefixtures("engine")
def test_docker_pulls_and_the_module_says_how_it_went(
    served: tuple[Registry, Path, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    running, certificates, digest = served
    repository = f"{running.address}/library/tiny"

    def run(*, check: bool) -> dict[str, Any]:
        arguments = {"repository": repository, "digest": digest, "docker_certs": str(certificates)}
        return called(container_image, arguments, tmp_path, capsys, check=check)

    try:
        before = run(check=True)["clusterctl"]["facts"]["pull"]
        done = run(check=False)
        after = done["clusterctl"]["facts"]["pull"]
        assert done["changed"]
        assert after["bytes"] == before["bytes"] > 300_000
        assert 0 < after["download_s"] <= after["seconds"]
        again = run(check=True)
        assert not again["changed"]
        assert "clusterctl" not in again
    finally:
        subprocess.run(["docker", "rmi", f"{repository}@{digest}"], capture_output=True, check=False)
