"""Harbor's certificate is always checked: who signed it, until when, and for whom."""

from __future__ import annotations

import contextlib
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from pydantic import SecretStr
from tests.support.certificates import DAY, certificate_pem, key_pem, named, unsigned
from tests.support.harbor_play import PASSWORD

from clusterctl.errors import ClusterctlError
from clusterctl.registry.harbor.client import Access, Client
from clusterlab.simulated.harbor.api.server import StandIn


class Authority:
    """Signs what it is asked to."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = named("An authority")
        made = unsigned(self.name, self.name, self.key, 30 * DAY).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        self.file = directory / "ca.crt"
        self.file.write_bytes(certificate_pem(made, self.key))

    def certificate(self, host: str, days: int) -> Path:
        """Certificate and key in one file."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = unsigned(named(host), self.name, key, days * DAY).add_extension(
            x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False
        )
        path = self.directory / f"{host}.pem"
        path.write_bytes(certificate_pem(builder, self.key) + key_pem(key))
        return path


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@contextlib.contextmanager
def over_tls(certificate: Path) -> Iterator[str]:
    server = StandIn(("127.0.0.1", 0), ":memory:")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"https://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def health(url: str, authority: Path | None, name: str) -> str:
    waited: list[float] = []
    access = Access(url, "admin", SecretStr(PASSWORD), authority, name)
    with Client(access, wait=waited.append) as client:
        try:
            return str(client.get("health", "/health")["status"])
        finally:
            assert waited == []


def refusal(url: str, authority: Path | None, name: str) -> ClusterctlError:
    with pytest.raises(ClusterctlError) as caught:
        health(url, authority, name)
    assert (caught.value.code, caught.value.exit_code) == ("registry.api-certificate", 1)
    return caught.value


def test_it_is_held_to_the_registrys_name_whatever_address_it_is_reached_at(authority: Authority) -> None:
    with over_tls(authority.certificate("registry01", 30)) as url:
        assert health(url, authority.file, "registry01") == "healthy"
        assert "127.0.0.1" in refusal(url, authority.file, "").what
        assert "registry02" in refusal(url, authority.file, "registry02").what


def test_one_that_has_expired_is_said_so_and_not_tried_again(authority: Authority) -> None:
    with over_tls(authority.certificate("registry01", -1)) as url:
        assert "certificate has expired" in refusal(url, authority.file, "registry01").what


def test_one_of_an_unknown_authority_is_refused(authority: Authority) -> None:
    with over_tls(authority.certificate("registry01", 30)) as url:
        assert "unable to get local issuer certificate" in refusal(url, None, "registry01").what


def test_an_authority_that_cannot_be_read_is_named(authority: Authority, tmp_path: Path) -> None:
    for broken in (tmp_path / "none.crt", tmp_path / "empty.crt"):
        (tmp_path / "empty.crt").write_text("no PEM\n")
        assert refusal("https://127.0.0.1:9", broken, "").where == str(broken)
