"""A certificate whose files have another owner or mode, as root finds it."""

from __future__ import annotations

import os
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


def test_a_link_that_the_proxy_puts_in_place_gives_it_no_file_of_the_host(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who runs as Harbor's user owns the directory, and exchanges a file as soon as it is there."""
    victim = proxy.root / "victim"
    victim.write_text("root's")
    directory = proxy.root / "data/secret/cert"
    replace = os.replace

    def exchange(*where: str | Path, **descriptors: int) -> None:
        replace(*where, **descriptors)
        (directory / Path(where[1]).name).unlink()
        (directory / Path(where[1]).name).symlink_to(victim)

    monkeypatch.setattr(harbor_certificate.os, "replace", exchange)
    declared = harbor_certificate.Declared(
        proxy.root / "tls.crt", proxy.root / "tls.key", proxy.root / "data"
    )
    harbor_certificate.put(declared)
    assert (victim.stat().st_uid, victim.stat().st_gid) == (0, 0)
    monkeypatch.undo()
    assert harbor_certificate.why_put(declared, "") == "it was renewed", "no link is read through"


@pytest.mark.parametrize("owner", [0, 10_000])
def test_no_link_is_written_through_and_the_failure_is_said(proxy: Proxy, owner: int) -> None:
    secret, elsewhere = proxy.root / "data/secret", proxy.root / "elsewhere"
    secret.rename(elsewhere)
    secret.symlink_to(elsewhere)
    os.chown(secret, owner, owner, follow_symlinks=False)
    (elsewhere / "cert/server.key").unlink()
    answer = proxy.apply()
    assert "certificate cannot be written" in answer["msg"] and answer["code"] == "harbor.install-failed"
    assert not (elsewhere / "cert/server.key").exists()
