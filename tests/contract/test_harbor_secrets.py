"""What the reconciler gives to Harbor of secrets, passwords and authorities for others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from tests.support.certificates import DAY, certificate_pem, named, unsigned
from tests.support.harbor_play import REAL, applied, changes, states

from clusterlab.simulated.harbor.api import preheat as preheat_api
from clusterlab.simulated.harbor.api.server import StandIn


def endpoint_with_secret(directory: Path, upstream: str, word: str) -> tuple[Path, dict[str, str]]:
    """The file of its secret, and how it is declared."""
    secret = directory / "secret"
    secret.write_text(f"{word}\n")
    secret.chmod(0o600)
    end = {
        "name": "up",
        "type": "harbor",
        "url": upstream,
        "access_key": "me",
        "access_secret_file": secret.name,
    }
    return secret, end


def test_the_secret_of_an_endpoint_is_sent_when_it_is_another_and_with_another_address(
    harbor: StandIn, upstream: str, tmp_path: Path
) -> None:
    secret, end = endpoint_with_secret(tmp_path, upstream, "first")
    raw = {"registry_endpoints": [end]}

    def kept() -> str:
        return harbor.store.all("registry")[0]["credential"]["access_secret"]

    applied(harbor.url, tmp_path, raw)
    assert kept() == "first"
    assert changes(applied(harbor.url, tmp_path, raw)) == []
    secret.write_text("second\n")
    done = applied(harbor.url, tmp_path, raw)
    assert [part.field for part in done.plan.changes[0].differences] == ["access_secret"]
    assert kept() == "second"
    end["url"] = upstream.replace("127.0.0.1", "localhost")
    applied(harbor.url, tmp_path, raw)
    assert kept() == "second"
    assert "second" not in (tmp_path / "robots.json").read_text()


def test_an_upstreams_secret_of_another_day_is_replaced(
    harbor: StandIn, upstream: str, tmp_path: Path
) -> None:
    """As after a restore, or a click: Harbor's record is not the one that we left."""
    _, end = endpoint_with_secret(tmp_path, upstream, "now")
    raw = {"registry_endpoints": [end]}
    applied(harbor.url, tmp_path, raw)
    (was,) = harbor.store.all("registry")
    then = {**was["credential"], "access_secret": "of another day"}
    harbor.store.put("registry", was["id"], {**was, "credential": then})
    done = applied(harbor.url, tmp_path, raw)
    assert [part.field for part in done.plan.changes[0].differences] == ["access_secret"]
    assert harbor.store.all("registry")[0]["credential"]["access_secret"] == "now"
    assert changes(applied(harbor.url, tmp_path, raw)) == []


@pytest.mark.parametrize("tells", [True, False])
def test_a_networks_password_of_another_day_is_replaced_where_harbor_tells(
    harbor: StandIn, tmp_path: Path, tells: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where Harbor does not show it, only a network that was made again is noticed."""
    usual = preheat_api._shown
    if tells:
        monkeypatch.setattr(
            preheat_api, "_shown", lambda found: usual(found) | {"auth_info": found["auth_info"]}
        )
    password = tmp_path / "password"
    password.write_text("now\n")
    password.chmod(0o600)
    network = {"name": "d", "vendor": "dragonfly", "endpoint": "http://d", "user": "u"}
    raw = {"registry_preheat": {"instances": [{**network, "password_file": "password"}]}}
    applied(harbor.url, tmp_path, raw)
    assert changes(applied(harbor.url, tmp_path, raw)) == []
    (was,) = harbor.store.all("preheat instance")
    harbor.store.remove("preheat instance", was["id"])
    then = {**was, "auth_info": {"u": "of another day"}}
    if tells:
        harbor.store.put("preheat instance", was["id"], then)
    else:
        harbor.store.add("preheat instance", then)
    assert changes(applied(harbor.url, tmp_path, raw)) == [("update", "preheat instance", "d")]
    assert harbor.store.all("preheat instance")[0]["auth_info"] == {"u": "now"}
    assert changes(applied(harbor.url, tmp_path, raw)) == []


def test_a_secret_may_come_from_a_program_and_a_network_may_want_a_password(
    harbor: StandIn, upstream: str, tmp_path: Path
) -> None:
    password = tmp_path / "password"
    password.write_text("first\n")
    password.chmod(0o600)
    end = {"name": "up", "type": "harbor", "url": upstream, "access_key": "me"}
    raw: dict[str, Any] = {
        "registry_endpoints": [{**end, "access_secret_command": ["/bin/echo", "from a program"]}],
        "registry_preheat": {
            "instances": [
                {
                    "name": "d",
                    "vendor": "dragonfly",
                    "endpoint": "http://d",
                    "user": "u",
                    "password_file": "password",
                }
            ]
        },
    }
    applied(harbor.url, tmp_path, raw)
    assert harbor.store.all("registry")[0]["credential"]["access_secret"] == "from a program"
    assert harbor.store.all("preheat instance")[0]["auth_info"] == {"u": "first"}
    assert changes(applied(harbor.url, tmp_path, raw)) == []
    password.write_text("second\n")
    assert changes(applied(harbor.url, tmp_path, raw)) == [("update", "preheat instance", "d")]
    assert harbor.store.all("preheat instance")[0]["auth_info"] == {"u": "second"}


def test_an_upstreams_own_authority_goes_there_and_one_that_is_none_is_refused(
    harbor: StandIn, upstream: str, tmp_path: Path
) -> None:
    key, name = ec.generate_private_key(ec.SECP256R1()), named("an authority")
    pem = certificate_pem(unsigned(name, name, key, DAY), key).decode()
    if upstream in REAL:
        if REAL[upstream].version.startswith("v2.14."):
            pytest.skip("Harbor knows authorities of upstreams since 2.15")
        if authority := REAL[upstream].authority:
            pem = authority.read_text()
    cut = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
    for text, state in (("no PEM", "failed"), (cut, "failed"), (pem, "done"), (pem.strip(), None)):
        end = {"name": "up", "type": "docker-registry", "url": upstream, "ca_certificate": text}
        done = applied(harbor.url, tmp_path, {"registry_endpoints": [end]})
        assert states(done) == ({("endpoint", "up"): state} if state else {})
