"""ssh's words as codes and plain words, the same for the transport, the scan and the engine."""

from __future__ import annotations

import pytest

from clusterctl.cluster import ssh_failures
from clusterctl.cluster.reach import ReachError
from clusterctl.engine.failure_kinds import BY_CODE, kind_of
from clusterctl.explanations import explanations

CHANGED = "@@@\n@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed."
SAID = [
    ("No ED25519 host key is known for x\nHost key verification failed.", "host.key-unknown", "hosts scan"),
    (CHANGED, "host.key-changed", "hosts replace gpu01"),
    ("Host key verification failed.", "host.key-changed", "not the pinned one"),
    ("ops@10.0.0.1: Permission denied (publickey,password).", "host.login-refused", "(publickey,password)"),
    ("Received disconnect from x: Too many authentication failures", "host.login-refused", "too many keys"),
    ("ssh: Could not resolve hostname gpu9: Name or service not known", "host.address-unknown", "name gpu9"),
    ("ssh: connect to host x port 22: Connection refused", "host.unreachable", "refuses connections"),
    ("ssh: connect to host x port 22: Operation timed out", "host.unreachable", "does not answer"),
    ("Connection timed out during banner exchange", "host.unreachable", "it hangs"),
    ("Connection closed by 10.0.0.1 port 22", "host.unreachable", "SSH: Connection closed by 10.0.0.1"),
    ("something that nobody has met", "host.unreachable", "SSH: something that nobody has met"),
]  # fmt: skip


@pytest.mark.parametrize(("stderr", "code", "words"), SAID)
def test_what_ssh_prints_has_one_code_everywhere(stderr: str, code: str, words: str) -> None:
    assert ssh_failures.code_of(stderr) == code
    assert words in ssh_failures.reason(stderr, "gpu01")
    kind = kind_of(stderr)
    assert kind is BY_CODE[code] if "nobody has met" not in stderr else kind is None


@pytest.mark.parametrize(
    ("state", "code"),
    [
        ("ok", ""),
        ("no-shell", ""),
        ("unpinned", "host.key-unknown"),
        ("key-changed", "host.key-changed"),
        ("key-revoked", "host.key-changed"),
        ("auth", "host.login-refused"),
        ("dns", "host.address-unknown"),
        ("timeout", "host.unreachable"),
        ("refused", "host.unreachable"),
        ("jump", "host.unreachable"),
    ],
)
def test_a_state_of_a_scan_has_the_code_of_the_same_failure(state: str, code: str) -> None:
    assert ReachError(state, "").code == code
    assert not code or code in explanations()


def test_openssh_names_the_code_of_a_scan_that_it_did() -> None:
    assert ReachError("openssh", "", code=ssh_failures.code_of(CHANGED)).code == "host.key-changed"
