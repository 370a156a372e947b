"""Scanning: trust comes first, and nothing is said to a host that is not who it was."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from pydantic import SecretStr

from clusterctl.cluster import scan
from clusterctl.cluster.access import Passwords
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.cluster.pinning import proposal
from clusterctl.cluster.scan import look_at_keys

from .ssh_servers import Keys, hosts, one, pin, ssh_server


def test_nothing_but_the_keys_is_asked_of_a_host_that_is_not_pinned(
    directory: ClusterDirectory, keys: Keys
) -> None:
    with ssh_server([keys.ecdsa, keys.host], {"ops": keys.user}, {"ops": "pw"}) as served:
        reached = one(directory, keys, served.port, passwords=Passwords(SecretStr("pw"), SecretStr("pw")))
    assert reached.state == "unpinned"
    assert [key.type for key in reached.keys] == ["ssh-ed25519", "ecdsa-sha2-nistp256"]
    assert reached.keys[0].fingerprint == keys.host.fingerprint
    assert (served.logins, served.commands) == ([], [])


def test_of_several_keys_the_one_that_is_compared_is_pinned(directory: ClusterDirectory, keys: Keys) -> None:
    """Who is on the way can pass one key on, and offer others of his own beside it."""
    with ssh_server([keys.ecdsa, keys.host], {"ops": keys.user}) as served:
        reached = one(directory, keys, served.port)
    asked = proposal(reached, {})
    assert [key.fingerprint for key in asked.keys] == [keys.host.fingerprint]
    expected = proposal(reached, {reached.node: {keys.ecdsa.fingerprint}})
    assert [key.fingerprint for key in expected.keys] == [keys.ecdsa.fingerprint]


def test_a_changed_key_is_refused_with_old_and_new_before_any_login(
    directory: ClusterDirectory, keys: Keys
) -> None:
    with ssh_server([keys.other], {"ops": keys.user}, {"ops": "pw"}) as served:
        pin(directory, served.port, keys.host)
        reached = one(directory, keys, served.port, passwords=Passwords(SecretStr("pw")))
    assert reached.state == "key-changed"
    assert keys.host.fingerprint in reached.because
    assert keys.other.fingerprint in reached.because
    assert "hosts replace gpu01" in reached.remedy
    assert served.logins == []


def test_the_pinned_kind_of_key_is_compared_though_the_host_prefers_another(
    directory: ClusterDirectory, keys: Keys
) -> None:
    with ssh_server([keys.host, keys.ecdsa], {"ops": keys.user}) as served:
        pin(directory, served.port, keys.ecdsa)
        assert one(directory, keys, served.port).state == "ok"


@pytest.mark.parametrize("line", ["@revoked {name} {key}", "@revoked * {key}"])
def test_a_revoked_key_is_refused_though_it_is_pinned(
    directory: ClusterDirectory, keys: Keys, line: str
) -> None:
    with ssh_server([keys.host], {"ops": keys.user}) as served:
        pin(directory, served.port, keys.host)
        key = f"{keys.host.get_name()} {keys.host.get_base64()}"
        with directory.known_hosts.open("a") as stream:
            stream.write(line.format(name=f"[127.0.0.1]:{served.port}", key=key) + "\n")
        reached = one(directory, keys, served.port)
    assert reached.state == "key-revoked"
    assert served.logins == []


def test_lines_that_paramiko_does_not_know_harm_nothing(directory: ClusterDirectory, keys: Keys) -> None:
    directory.ensure_state()
    directory.known_hosts.write_text(
        f"@cert-authority *.elsewhere ssh-ed25519 {keys.other.get_base64()}\n@marker-to-come x y z\n"
        "broken\n\n# words\n|1|bm8=|bm8= ssh-ed25519 AAAA\nhost sk-ssh-ed25519@openssh.com AAAA\n"
        "host x not-base64!\n"
    )
    with ssh_server([keys.host], {"ops": keys.user}) as served:
        pin(directory, served.port, keys.host)
        assert one(directory, keys, served.port).state == "ok"
    assert "@cert-authority *.elsewhere" in directory.known_hosts.read_text()


def test_where_an_authority_signs_host_keys_openssh_judges(directory: ClusterDirectory, keys: Keys) -> None:
    with ssh_server([keys.host], {"ops": keys.user}) as served:
        directory.ensure_state()
        directory.known_hosts.write_text(
            f"@cert-authority [127.0.0.1]:{served.port} ssh-ed25519 {keys.other.get_base64()}\n"
        )
        with patch.object(scan, "run_captured", wraps=scan.run_captured) as started:
            refused = one(directory, keys, served.port)
        (command,) = started.call_args.args
        assert "ControlPath=none" in command, (
            "a connection that the operator's own ssh keeps is checked by nobody"
        )
        assert refused.state == "openssh"
        assert "Host key verification failed" in refused.because
        assert refused.code == "host.key-unknown"
        assert served.logins == []
        with directory.known_hosts.open("a") as stream:
            stream.write(f"[127.0.0.1]:{served.port} {keys.host.get_name()} {keys.host.get_base64()}\n")
        assert one(directory, keys, served.port).state == "ok"


def test_looking_at_keys_compares_them_with_the_pinned(directory: ClusterDirectory, keys: Keys) -> None:
    with ssh_server([keys.host], {"ops": keys.user}) as served:
        (host,) = hosts(directory, keys, served.port)
        states = [look_at_keys(directory, host).state]
        for key in (keys.other, keys.host):
            pin(directory, served.port, key)
            states.append(look_at_keys(directory, host).state)
    assert states == ["unpinned", "key-changed", "ok"]
    assert served.logins == []


def test_one_changed_key_among_two_is_a_changed_host(directory: ClusterDirectory, keys: Keys) -> None:
    with ssh_server([keys.other, keys.ecdsa], {"ops": keys.user}) as served:
        pin(directory, served.port, keys.ecdsa, keys.host)
        (host,) = hosts(directory, keys, served.port)
        assert look_at_keys(directory, host).state == "key-changed"
        assert one(directory, keys, served.port).state == "key-changed"
        pin(directory, served.port, keys.ecdsa)
        assert look_at_keys(directory, host).state == "ok"
    assert served.logins == []
