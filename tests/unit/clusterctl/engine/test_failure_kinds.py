"""What ssh, sudo, apt, dpkg, Docker and our modules say when they fail, and the code that it is known by."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from clusterctl.engine.events import TaskResult, TaskStarted
from clusterctl.engine.failure import failure_of
from clusterctl.engine.failure_kinds import KINDS, OTHER, UNREACHABLE, kind_of

# (status, what was said, code)
SAID = [
    ("failed", "Harbor cannot be installed here, and nothing was touched. port 443 (https) is held by nginx: "
     "stop it, or set another port.", "harbor.refused"),
    ("failed", "Harbor's installer was not unpacked: its SHA-256 is ab, and cd is declared. It was removed "
     "from this host.", "harbor.installer"),
    ("failed", "/etc/site/r.crt cannot serve: it is not for registry01, and it ended 2026-01-01 00:00 UTC.",
     "harbor.certificate"),
    ("failed", "Harbor's installer failed: loading images | Error response from daemon: bad tar.",
     "harbor.install-failed"),
    ("failed", "Harbor's installer failed: write /data: no space left on device.", "host.disk-full"),
    ("failed", "Harbor is not healthy: database (unhealthy). Its logs are in harbor_log_dir on this host.",
     "harbor.unhealthy"),
    ("failed", "Harbor's backup could not be taken: the database's dump was cut off.", "harbor.backup"),
    ("failed", "Harbor's backup was not restored: Harbor v2.15.2 is installed here.", "harbor.restore"),
    ("unreachable", "Failed to connect to the host via ssh: ops@10.0.0.1: Permission denied (publickey).",
     "host.login-refused"),
    ("unreachable", "Failed to connect to the host via ssh: No ED25519 host key is known for 10.0.0.1 "
     "and you have requested strict checking.\r\nHost key verification failed.", "host.key-unknown"),
    ("unreachable", "Failed to connect to the host via ssh: @@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@\n"
     "@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\n@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@\n"
     "IT IS POSSIBLE THAT SOMEONE IS DOING SOMETHING NASTY!\nHost key verification failed.",
     "host.key-changed"),
    ("unreachable", "Failed to connect to the host via ssh: ssh: connect to host 10.0.0.1 port 22: "
     "Connection refused", "host.unreachable"),
    ("unreachable", "ssh: connect to host 10.0.0.1 port 22: Connection timed out", "host.unreachable"),
    ("unreachable", "ssh: connect to host 10.0.0.1 port 22: No route to host", "host.unreachable"),
    ("unreachable", "something that nobody has met", "host.unreachable"),
    ("unreachable", "ssh: Could not resolve hostname gpu01: Name or service not known",
     "host.address-unknown"),
    ("failed", "Task failed: Missing sudo password", "host.sudo-password"),
    ("failed", "sudo: a terminal is required to read the password; either use the -S option\n"
     "sudo: a password is required", "host.sudo-password"),
    ("failed", "Task failed: Incorrect sudo password", "host.sudo-password"),
    ("failed", "ops is not in the sudoers file.", "host.sudo-refused"),
    ("failed", "Sorry, user ops is not allowed to execute '/bin/sh' as root on gpu01.", "host.sudo-refused"),
    ("failed", "E: You don't have enough free space in /var/cache/apt/archives/.", "host.disk-full"),
    ("failed", "[Errno 28] No space left on device: '/etc/docker/.daemon.json.x.new'", "host.disk-full"),
    ("failed", "registry01:5000/a/b@sha256:0 could not be pulled: failed to register layer: "
     "write /usr/lib/x: no space left on device; the engine's disk is full: make room", "host.disk-full"),
    ("failed", "/var/lib/docker has 2.0 GB free, the image wants 8.0 GB. Make room.", "host.disk-full"),
    ("failed", "/srv/docker has 1.0 GB free, and 2.0 GB are to remain (training_image_min_free_gb). Nothing "
     "was pulled.", "host.disk-full"),
    ("failed", "[Errno 30] Read-only file system: '/etc/apt/keyrings/.x.new'", "host.read-only"),
    ("failed", "E: Could not open lock file /var/lib/dpkg/lock-frontend - open (30: Read-only file system)",
     "host.read-only"),
    ("failed", "E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 4711 (apt-get)",
     "packages.locked"),
    ("failed", "Packages cannot be installed now: another run has kept /run/clusterctl/apt.lock for 600 s.",
     "packages.locked"),
    ("failed", "E: dpkg was interrupted, you must manually run 'dpkg --configure -a' to correct the problem.",
     "packages.interrupted"),
    ("failed", "docker.io=2 is asked for, but someone else holds docker.io.", "packages.held"),
    ("failed", "E: Unable to locate package nvidia-open", "packages.not-offered"),
    ("failed", "E: Version '1.2.3' for 'x' was not found", "packages.not-offered"),
    ("failed", "E: Failed to fetch http://depot/x.deb  Could not connect to depot:80 (10.0.0.2). - connect "
     "(113: No route to host)", "packages.source-down"),
    ("failed", "x could not be installed: E: Unable to locate package x W: Failed to fetch "
     "http://depot/Packages  404  Not Found", "packages.source-down"),
    ("failed", "E: Failed to fetch http://depot/x.deb  Temporary failure resolving 'depot'", "host.dns"),
    ("failed", "W: GPG error: http://depot Release: The following signatures couldn't be verified because "
     "the public key is not available: NO_PUBKEY 1234", "packages.untrusted"),
    ("failed", "registry01:5000/a@sha256:0 could not be pulled: Error response from daemon: Get "
     '"https://registry01:5000/v2/": dial tcp 10.0.0.5:5000: connect: connection refused',
     "registry.unreachable"),
    ("failed", "registry01:5000/a@sha256:0 could not be pulled: x509: certificate signed by unknown "
     "authority",
     "registry.certificate"),
    ("failed", "registry01:5000/a@sha256:0 could not be pulled: manifest unknown", "registry.no-image"),
    ("failed", "depot:5000/a@sha256:0 could not be copied: unauthorized: authentication required",
     "registry.login-refused"),
    ("failed", "depot:5000/a@sha256:0 could not be copied: toomanyrequests: You have reached your pull rate "
     "limit.", "registry.too-many-requests"),
    ("failed", "harbor.lan:443/a@sha256:0 could not be looked for: unauthorized: authentication required",
     "registry.login-refused"),
    ("failed", "Docker runs and does not answer. Look at `journalctl -u docker`.", "host.docker-down"),
    ("failed", "gpu01 needs a reboot: the old module is loaded.", "host.reboot-needed"),
    ("failed", "Timed out after 900 second(s).", "task.timed-out"),
    ("failed", "Task failed.", "task.out-of-memory"),
    ("failed", "Task failed. Read on.", "task.failed"),
    ("failed", "something that nobody has met", "task.failed"),
]  # fmt: skip


@pytest.mark.parametrize(("status", "said", "code"), SAID)
def test_a_message_is_known_by_its_code_and_comes_with_a_cure(status: str, said: str, code: str) -> None:
    failure = failure_of(
        TaskResult(1.0, "gpu01", "t", status, said),
        TaskStarted(1.0, "t", "Install", "a_role", "apt", "x.yml:3"),
    )
    assert failure.code == code
    assert (failure.host, failure.where) == ("gpu01", "x.yml:3")
    assert bool(failure.remedy) is (code != OTHER.code)
    assert "{" not in failure.remedy


@pytest.mark.parametrize(
    ("finding", "code"),
    [
        ("disk: 0.3 GB free on /var", "host.disk-full"),
        ("package source: http://depot/Release: [Errno 111] Connection refused", "packages.source-down"),
        ("DNS: depot is unknown", "host.dns"),
        ("sudo: Missing sudo password", "host.sudo-password"),
    ],
)
def test_a_finding_of_preflight_has_the_code_of_the_failure_that_it_foresees(finding: str, code: str) -> None:
    kind = kind_of(finding)
    assert kind is not None
    assert kind.code == code


def test_codes_are_distinct_and_each_has_been_met() -> None:
    codes = [kind.code for kind in KINDS]
    assert [code for code, count in Counter(codes).items() if count > 1] == []
    assert all(re.fullmatch(r"[a-z]+\.[a-z-]+", code) for code in codes)
    assert {code for _, _, code in SAID} - {OTHER.code} == set(codes) - {
        "host.no-python",
        "host.python-too-old",
    }
    assert kind_of("/bin/sh: 1: /usr/bin/python3: not found").code == "host.no-python"  # type: ignore[union-attr]
    said = "ansible-core requires a minimum of Python version 3.8. Current version: 3.6.15"
    assert kind_of(said).code == "host.python-too-old"  # type: ignore[union-attr]


def test_a_host_that_is_not_reached_is_named_in_what_to_do() -> None:
    assert "quarantine gpu01" in UNREACHABLE.remedy.format(host="gpu01")
