"""What a host says at a login, and what `known_hosts` and ssh say of it."""

from __future__ import annotations

import base64
import hmac
import re
import tempfile
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from tests.fuzz.target import Target, answer_of, encoded
from tests.support.hostile import require_plain

from clustercheck.evidence.node import NodeEvidence
from clustercheck.launch.transport import Completed
from clusterctl.cluster import known_hosts, login_probe, ssh_failures
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.cluster.reach import ReachError
from clusterctl.rollout.inspection import status_of

LOGIN = "motd\n@@clusterctl\nos=Debian GNU/Linux 12\nkernel=6.1.0\npython=3.11.2\nsudo=root\n@@end\n"
OTHER = "[192.0.2.1]:2222"
NEW_KEY = known_hosts.HostKey("ssh-ed25519", "bmV3")
FINGERPRINT = re.compile("SHA256:[A-Za-z0-9+/]{43}|unreadable")
HASHED_NAME = base64.b64encode(hmac.digest(b"salt", b"gpu01", "sha1")).decode()
KNOWN_HOSTS = (
    f"gpu01,{OTHER} ssh-rsa b25l\n{OTHER} ssh-rsa dHdv\n|1|c2FsdA==|{HASHED_NAME} ssh-rsa dGhyZWU=\n"
    "gpu*,!gpu02 ssh-rsa Zm91cg== by hand\n"
    "gpu01 ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIF1Rqpj60HLaS8TQ2dpbMJ2yOPE9JZSGVfqzWi7kRjOA gpu01\n"
    "@cert-authority * ssh-rsa AAAA\n|1|c2FsdA==|aGFzaA== ssh-rsa AAAA\n# comment\n"
)
STDERR = "Warning: x\nssh: connect to host gpu01 port 22: Connection refused\n"
STATUS = {
    "probe": 1,
    "errors": {},
    "host": {"kernel": "6.1.0", "os": {"PRETTY_NAME": "Debian GNU/Linux 12"}},
    "pci": [{"vendor": "0x10de", "class": "0x030200", "address": "0000:07:00.0"}],
    "module": {"version": "580.95.05", "proc": "NVRM"},
    "fabric_manager": {
        "unit": {"LoadState": "loaded", "ActiveState": "active"},
        "version": {"rc": 0, "stdout": "version is : 580.95.05\n"},
    },
    "toolkit": {"rc": 0, "stdout": "version 1.18.1\n"},
    "docker": {"rc": 0, "stdout": '{"ServerVersion":"26.1.5"}\n'},
    "busy": {"reasons": ["a job"], "lease": {"run": "r", "what": "apply", "who": "a", "since": "s"}},
}  # fmt: skip


def _login(data: bytes) -> None:
    try:
        facts = login_probe.read(data.decode(errors="replace"), 0.0, None)
    except ReachError as error:
        require_plain(error.because, error.remedy)
        return
    require_plain(facts.os, facts.kernel, facts.python, facts.sudo)


def _known_hosts(data: bytes) -> None:
    """A host's key is pinned and forgotten; lines of others stay byte for byte, and so does their trust."""
    with tempfile.TemporaryDirectory() as name:
        directory = ClusterDirectory(Path(name))
        directory.known_hosts.parent.mkdir(exist_ok=True)
        directory.known_hosts.write_bytes(data)
        before = known_hosts.pinned(directory, OTHER)
        for key in known_hosts.pinned(directory, "gpu01").keys:
            assert FINGERPRINT.fullmatch(key.fingerprint)
        others = [line for line in _lines_of(data) if not _one_line(line).concerns("gpu01")]
        known_hosts.pin(directory, "gpu01", [NEW_KEY], "fuzz")
        assert NEW_KEY in known_hosts.pinned(directory, "gpu01").keys
        for key in known_hosts.pinned(directory, "gpu01").keys:
            assert key == NEW_KEY or _of_a_pattern(key, data), f"{key} is still trusted"
        _require_kept(others, directory)
        assert known_hosts.pinned(directory, OTHER) == before
        assert known_hosts.forget(directory, "gpu01")
        assert NEW_KEY not in known_hosts.pinned(directory, "gpu01").keys
        _require_kept(others, directory)
        assert known_hosts.pinned(directory, OTHER) == before


def _lines_of(data: bytes) -> list[bytes]:
    """As OpenSSH has lines: a line feed ends one, and nothing else does."""
    return data.removesuffix(b"\n").split(b"\n") if data else []


def _one_line(line: bytes) -> known_hosts.Line:
    return next(iter(known_hosts.parse(line.decode(errors="surrogateescape"))), known_hosts.Line(""))


def _of_a_pattern(key: known_hosts.HostKey, data: bytes) -> bool:
    """Whether the key stands on a line that an operator wrote for more hosts than one."""
    lines = map(_one_line, _lines_of(data))
    return any(line.key == key and "gpu01" not in line.names.split(",") for line in lines)


def _require_kept(others: Iterable[bytes], directory: ClusterDirectory) -> None:
    left = iter(_lines_of(directory.known_hosts.read_bytes()))
    for line in others:
        assert line in left, f"{line[:80]!r} is lost"


def _ssh_stderr(data: bytes) -> None:
    text = data.decode(errors="replace")
    require_plain(ssh_failures.reason(text, "gpu01"))
    assert ssh_failures.code_of(text)


def _status(data: bytes) -> None:
    """The record of one host, as `status` reads it."""
    answer = answer_of(data)
    if not isinstance(answer, dict):
        return
    text = data[:200].decode(errors="replace")
    one = status_of(
        NodeEvidence("gpu01", answer), Completed(0, f"driver={text}\n", "", 0.0), wants_image=True
    )
    require_plain(*(value for value in asdict(one).values() if isinstance(value, str)))
    require_plain(*(one.lease or {}).values())


TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        Target("login-probe", lambda: [LOGIN.encode()], _login),
        Target("known-hosts", lambda: [KNOWN_HOSTS.encode()], _known_hosts),
        Target("ssh-stderr", lambda: [STDERR.encode()], _ssh_stderr),
        Target("status-record", lambda: encoded(STATUS), _status),
    )
}
