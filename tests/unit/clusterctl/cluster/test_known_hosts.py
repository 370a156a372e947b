"""known_hosts by OpenSSH's rules; what ssh-keygen finds, we find."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterctl.cluster import known_hosts
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.cluster.known_hosts import HostKey, lookup_name, parse

BODY = "AAAAC3NzaC1lZDI1NTE5AAAAIF1Rqpj60HLaS8TQ2dpbMJ2yOPE9JZSGVfqzWi7kRjOA"
KEY = HostKey("ssh-ed25519", BODY)


@pytest.mark.parametrize(
    ("names", "lookup", "concerned"),
    [
        ("gpu01", "gpu01", True),
        ("gpu01", "gpu010", False),
        ("GPU01", "gpu01", True),
        ("10.0.0.1,gpu01", "gpu01", True),
        ("10.0.0.*", "10.0.0.7", True),
        ("10.0.0.?", "10.0.0.17", False),
        ("*,!gpu01", "gpu01", False),
        ("*,!gpu01", "gpu02", True),
        ("[10.0.0.1]:2222", "[10.0.0.1]:2222", True),
        ("[10.0.0.1]:2222", "10.0.0.1", False),
        ("[abc]:22", "a:22", False),
    ],
)
def test_names_match_as_in_openssh(names: str, lookup: str, concerned: bool) -> None:
    (line,) = parse(f"{names} {KEY.type} {KEY.body}")
    assert line.concerns(lookup) is concerned


@pytest.mark.parametrize("odd", ["\r", "\x0b", "\x0c", "\x1c", "\x85", "\u2028"])
def test_a_line_feed_alone_ends_a_line_as_in_openssh(tmp_path: Path, odd: str) -> None:
    directory = ClusterDirectory(tmp_path)
    directory.known_hosts.parent.mkdir(exist_ok=True)
    before = f"gpu02 ssh-rsa AAAA comment{odd}gpu01 {KEY.type} {KEY.body}\r\n"
    directory.known_hosts.write_text(before, newline="")
    assert known_hosts.pinned(directory, "gpu01").keys == (), "ssh sees a comment there"
    known_hosts.pin(directory, "gpu01", [KEY], "")
    assert known_hosts.forget(directory, "gpu01")
    assert directory.known_hosts.read_bytes().decode() == before


def test_pinning_replaces_a_hosts_own_keys_and_leaves_every_other_line(tmp_path: Path) -> None:
    directory = ClusterDirectory(tmp_path)
    directory.ensure_state()
    others = (
        f"# ours\n@cert-authority * {KEY.type} {BODY}\n@revoked gpu01 {KEY.type} {BODY}\n"
        f"10.0.0.* {KEY.type} {BODY}\nbroken\ncaf\udce9 x y\n"
    )
    shared = f"gpu01,gpu09 {KEY.type} {BODY}\n"
    directory.known_hosts.write_bytes((others + shared).encode("utf-8", "surrogateescape"))
    new = HostKey("ecdsa-sha2-nistp256", "AAAA")
    known_hosts.pin(directory, "gpu01", [new], "gpu01")
    said = known_hosts.pinned(directory, "gpu01")
    assert (said.keys, said.authorities, said.revoked) == ((new,), (KEY,), (KEY,))
    assert known_hosts.pinned(directory, "gpu09").keys == (KEY,)
    assert known_hosts.forget(directory, "gpu01")
    assert not known_hosts.forget(directory, "gpu01")
    left = directory.known_hosts.read_bytes().decode("utf-8", "surrogateescape")
    assert left == others + shared.replace("gpu01,", "")


def test_a_directory_without_pins_has_none(tmp_path: Path) -> None:
    assert known_hosts.pinned(ClusterDirectory(tmp_path), "gpu01").keys == ()
    assert (lookup_name("a", 22), lookup_name("a", 2222)) == ("a", "[a]:2222")


@given(text=st.text(max_size=80), lookup=st.text(max_size=10))
def test_no_line_is_ever_an_error(text: str, lookup: str) -> None:
    for line in parse(text):
        line.concerns(lookup)
        if line.key:
            assert line.key.fingerprint
