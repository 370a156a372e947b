"""A certificate whose files have another owner or mode, as root finds it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.clusterctl.cluster.plugins.module_utils import harbor_certificate
from tests.unit.plugins.modules.test_harbor_renewal import Proxy, serving_proxy

pytestmark = pytest.mark.needs("root")


@pytest.fixture
def proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    with serving_proxy(tmp_path, monkeypatch) as found:
        yield found


@pytest.mark.parametrize("name", ["server.crt", "server.key"])
def test_a_file_that_harbors_proxy_could_not_read_is_mended(proxy: Proxy, name: str) -> None:
    path = proxy.root / "data/secret/cert" / name
    path.chmod(0o000)
    assert proxy.certificate_steps() == ["certificate: Harbor's proxy could not read it at its next start"]
    assert path.stat().st_mode & 0o777 == 0o600
    assert proxy.certificate_steps() == []


def test_the_owner_counts(proxy: Proxy) -> None:
    declared = harbor_certificate.Declared(
        proxy.root / "tls.crt", proxy.root / "tls.key", proxy.root / "data"
    )
    assert "could not read it" in harbor_certificate.why_put(declared, ""), "it is not Harbor's user's"
