"""The cluster's authority and its certificates: right names, renewed in time, keys private."""

from __future__ import annotations

import ipaddress
import json
import os
import ssl
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.clusterctl.cluster.plugins.modules import cluster_certificate as module
from cryptography import x509
from tests.support.tree import ROOT

NOW = datetime(2026, 11, 20, tzinfo=UTC)
NAMES = ["registry01", "10.20.0.5"]


@pytest.fixture(scope="module")
def authority() -> module.Pair:
    return module.make_authority("mysite", NOW)


def run(directory: Path, *, check: bool = False, **params: Any) -> dict[str, Any]:
    """The module as Ansible runs it: a process, arguments on standard input, JSON out."""
    arguments = {"directory": str(directory / "ca"), **params, "_ansible_check_mode": check}
    done = subprocess.run(
        [sys.executable, module.__file__],
        input=json.dumps({"ANSIBLE_MODULE_ARGS": arguments}),
        capture_output=True, text=True, timeout=30, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    return json.loads(done.stdout)


def test_a_server_certificate_is_for_its_names_and_signed_by_the_authority(authority: module.Pair) -> None:
    pair = module.make_server(authority, NAMES, NOW, 397)
    names = pair.certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["registry01"]
    assert names.get_values_for_type(x509.IPAddress) == [ipaddress.ip_address("10.20.0.5")]
    pair.certificate.verify_directly_issued_by(authority.certificate)
    assert module.why_renew(pair, authority, NAMES, NOW, 60) == []


@pytest.mark.parametrize("name", ["fd00::10", "[fd00::10]"])
def test_an_ipv6_address_is_no_host_name_in_either_form(authority: module.Pair, name: str) -> None:
    pair = module.make_server(authority, [name, "registry01"], NOW, 397)
    names = pair.certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["registry01"]
    assert names.get_values_for_type(x509.IPAddress) == [ipaddress.ip_address("fd00::10")]


def test_it_passes_the_strict_rules_of_python_3_13(tmp_path: Path) -> None:
    """From that version on what has no identifier of its authority's key is refused."""
    authority = module.make_authority("mysite", datetime.now(UTC))
    pair = module.make_server(authority, NAMES, datetime.now(UTC), 397)
    shown = tmp_path / "shown.pem"
    shown.write_bytes(pair.certificate_pem() + pair.key_pem())
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(shown)
    trusting = ssl.create_default_context(cadata=authority.certificate_pem().decode())
    trusting.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = serving.wrap_bio(there, back, server_side=True)
    client = trusting.wrap_bio(back, there, server_hostname=NAMES[0])
    for side in (client, server, client):
        with suppress(ssl.SSLWantReadError):
            side.do_handshake()
    assert x509.load_der_x509_certificate(client.getpeercert(binary_form=True) or b"") == pair.certificate


def test_a_certificate_never_outlives_its_authority(authority: module.Pair) -> None:
    late = authority.certificate.not_valid_after_utc - timedelta(days=10)
    pair = module.make_server(authority, NAMES, late, 397)
    assert pair.certificate.not_valid_after_utc <= authority.certificate.not_valid_after_utc


def test_it_is_made_anew_near_its_end_for_new_names_and_by_another_authority(authority: module.Pair) -> None:
    pair = module.make_server(authority, NAMES, NOW, 397)
    other = module.make_authority("other", NOW)
    assert module.why_renew(None, authority, NAMES, NOW, 60) == ["there is none yet"]
    assert module.why_renew(pair, authority, NAMES, NOW + timedelta(days=336), 60) == []
    assert "ends" in module.why_renew(pair, authority, NAMES, NOW + timedelta(days=338), 60)[0]
    assert module.why_renew(pair, authority, [*NAMES, "10.20.0.6"], NOW, 60) == ["it is not for 10.20.0.6"]
    assert module.why_renew(pair, other, NAMES, NOW, 60) == ["another authority signed it"]
    stranger = replace(pair, key=other.key)
    assert module.why_renew(stranger, authority, NAMES, NOW, 60) == ["its key belongs to another certificate"]


def test_the_module_makes_both_once_with_private_keys(tmp_path: Path) -> None:
    wanted = {
        "certificate": str(tmp_path / "ca/r.crt"),
        "key": str(tmp_path / "secrets/r.key"),
        "names": NAMES,
    }
    planned = run(tmp_path, check=True, **wanted)
    assert planned["changed"] is True
    assert not (tmp_path / "ca").exists()
    made = run(tmp_path, **wanted)
    assert made["changed"] is True
    assert "PRIVATE" not in json.dumps(made)
    for key in (tmp_path / "ca/ca.key", tmp_path / "secrets/r.key"):
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
    again = run(tmp_path, **wanted)
    assert again["changed"] is False
    assert again["ca_certificate"] == (tmp_path / "ca/ca.crt").read_text(encoding="utf-8")


def test_hosts_that_ask_at_once_share_one_authority(tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: run(tmp_path), range(4)))
    assert len({result["ca_certificate"] for result in results}) == 1
    assert sum(result["changed"] for result in results) == 1


def test_half_an_authority_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ca").mkdir()
    (tmp_path / "ca/ca.crt").write_text("x", encoding="utf-8")
    answer = run(tmp_path)
    assert answer["failed"] is True
    assert "half an authority" in answer["msg"]
