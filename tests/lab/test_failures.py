"""What goes wrong on real hosts, one thing at a time: said by its code, and fixed by the next apply.

cause                        | how it is made here                                | code
-----------------------------|----------------------------------------------------|---------------------
wrong SSH key                | authorized_keys is moved away                      | host.login-refused
changed host key             | sshd gets new host keys                            | host.key-changed
unreachable host             | sshd is stopped                                    | host.unreachable
sudo that needs a password   | a rule without NOPASSWD                            | host.sudo-password
full disk                    | a full tmpfs over apt's archives                   | host.disk-full
read-only file system        | apt's archives remounted read-only                 | host.read-only
held dpkg lock               | another process has /var/lib/dpkg/lock-frontend    | packages.locked
package source gone half-way | refuses between the package lists and the packages | packages.source-down
reboot in the middle of apt  | the node loses power in a package's own script     | host.unreachable
registry down                | its service is stopped                             | registry.unreachable
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

from .conftest import RunningLab, json_lines
from .on_node import (
    BOUND_S,
    INSTALLS,
    NODE,
    TOOLKIT,
    Apply,
    apply_arguments,
    inside,
    lock_held,
    until,
    without_toolkit,
)

pytestmark = pytest.mark.lab

ARCHIVES = "/var/cache/apt/archives"
# A dpkg that waits for a lock would wait ten minutes: the node's own configuration has the last word.
IMPATIENT = "/etc/apt/apt.conf.d/99-impatient"
POSTINST_HELPER = "/usr/bin/deb-systemd-helper"
IN_POSTINST = "/run/in-postinst"

Cause = Callable[[RunningLab], AbstractContextManager[None]]


def restart_sshd(lab: RunningLab) -> None:
    """Connections that are shared would outlive what is broken, and what is fixed."""
    inside(lab, "systemctl kill --kill-who=all --signal=KILL ssh; systemctl restart ssh")


@contextmanager
def authorized_keys_gone(lab: RunningLab) -> Iterator[None]:
    inside(lab, "mv /home/ops/.ssh/authorized_keys /home/ops/.ssh/elsewhere")
    restart_sshd(lab)
    try:
        yield
    finally:
        inside(lab, "mv /home/ops/.ssh/elsewhere /home/ops/.ssh/authorized_keys")


@contextmanager
def other_host_keys(lab: RunningLab) -> Iterator[None]:
    inside(lab, "mkdir /etc/ssh/before; mv /etc/ssh/ssh_host_* /etc/ssh/before; ssh-keygen -A")
    restart_sshd(lab)
    try:
        yield
    finally:
        inside(lab, "rm /etc/ssh/ssh_host_*; mv /etc/ssh/before/* /etc/ssh; rmdir /etc/ssh/before")
        restart_sshd(lab)


@contextmanager
def sshd_stopped(lab: RunningLab) -> Iterator[None]:
    inside(lab, "systemctl kill --kill-who=all --signal=KILL ssh; systemctl stop ssh")
    try:
        yield
    finally:
        inside(lab, "systemctl start ssh")


@contextmanager
def sudo_wants_a_password(lab: RunningLab) -> Iterator[None]:
    inside(lab, "cp -p /etc/sudoers.d/ops /root/ops.sudo; echo 'ops ALL=(ALL) ALL' >/etc/sudoers.d/ops")
    try:
        yield
    finally:
        inside(lab, "cp -p /root/ops.sudo /etc/sudoers.d/ops; rm /root/ops.sudo")


@contextmanager
def disk_full(lab: RunningLab) -> Iterator[None]:
    with without_toolkit(lab):
        inside(lab, f"mount -t tmpfs -o size=64k full {ARCHIVES}; mkdir {ARCHIVES}/partial")
        inside(lab, f"dd if=/dev/zero of={ARCHIVES}/fill bs=4k 2>/dev/null", check=False)
        try:
            yield
        finally:
            inside(lab, f"umount {ARCHIVES}")


@contextmanager
def read_only(lab: RunningLab) -> Iterator[None]:
    with without_toolkit(lab):
        inside(lab, f"mount --bind {ARCHIVES} {ARCHIVES}; mount -o remount,bind,ro {ARCHIVES}")
        try:
            yield
        finally:
            inside(lab, f"umount {ARCHIVES}")


@contextmanager
def lock_held_for_too_long(lab: RunningLab) -> Iterator[None]:
    with without_toolkit(lab):
        inside(lab, f"""echo 'DPkg::Lock::Timeout "2";' >{IMPATIENT}""")
        try:
            with lock_held(lab):
                yield
        finally:
            inside(lab, f"rm -f {IMPATIENT}")


@contextmanager
def registry_stopped(lab: RunningLab) -> Iterator[None]:
    inside(lab, "docker image prune --all --force")
    inside(lab, "systemctl stop clusterctl-registry", host="registry01")
    try:
        yield
    finally:
        inside(lab, "systemctl start clusterctl-registry", host="registry01")


def codes(lines: list[dict[str, Any]]) -> set[str]:
    """What is said of the node, by preflight or by the apply itself."""
    return {line["code"] for line in lines if line.get("host") == NODE and line.get("code")}


def converges(lab: RunningLab, part: str) -> None:
    """With the cause gone the next apply succeeds, and leaves nothing for the one after it."""
    done = lab.clusterctl(*apply_arguments(part))
    assert done.returncode == 0, done.stderr
    assert inside(lab, "dpkg --audit") == ""
    if part == "runtime":
        for package in (TOOLKIT, f"{TOOLKIT}-base"):
            assert inside(lab, f"dpkg-query -W -f '${{db:Status-Abbrev}}' {package}") == "hi"
    if part == "images":
        assert "paddle" in inside(lab, "docker image ls")


def in_group(group: str, *values: Any) -> Any:
    """A case of which an ordinary run draws one per group."""
    return pytest.param(*values, marks=pytest.mark.drawn(group))


@pytest.mark.parametrize(
    ("cause", "part", "code", "hint"),
    [
        in_group(
            "other people's hosts", authorized_keys_gone, "driver", "host.login-refused", "authorized_keys"
        ),
        in_group(
            "other people's hosts",
            other_host_keys,
            "driver",
            "host.key-changed",
            f"clusterctl hosts replace {NODE}",
        ),
        in_group(
            "other people's hosts",
            sshd_stopped,
            "driver",
            "host.unreachable",
            f"clusterctl hosts quarantine {NODE}",
        ),
        in_group("other people's hosts", sudo_wants_a_password, "driver", "host.sudo-password", "password"),
        in_group("packages and images", disk_full, "runtime", "host.disk-full", "Free disk space"),
        in_group("packages and images", read_only, "runtime", "host.read-only", "Fix it"),
        in_group("packages and images", lock_held_for_too_long, "runtime", "packages.locked", "wait for it"),
        in_group(
            "packages and images", registry_stopped, "images", "registry.unreachable", "apply --only registry"
        ),
    ],
    ids=lambda value: value.__name__ if callable(value) else None,
)
def test_a_cause_is_said_by_its_code_and_the_next_apply_converges(
    applied_lab: RunningLab, cause: Cause, part: str, code: str, hint: str
) -> None:
    try:
        with cause(applied_lab):
            done = applied_lab.clusterctl(*apply_arguments(part), timeout=BOUND_S)
    finally:
        converges(applied_lab, part)
    lines = json_lines(done)
    assert done.returncode == 1, done.stderr
    assert codes(lines) == {code}
    assert lines[-1]["exit"] == 1
    remedies = [line.get("remedy", "") for line in lines if line["type"] == "finding"]
    assert hint in "\n".join([*remedies, done.stderr])
    assert "Traceback" not in done.stderr


@pytest.mark.drawn("packages and images")
def test_a_package_source_that_goes_half_way_is_named(applied_lab: RunningLab) -> None:
    refused = "OUTPUT -p tcp -d depot --dport 80 -j REJECT --reject-with tcp-reset"
    try:
        with without_toolkit(applied_lab), Apply(applied_lab, *apply_arguments("runtime")) as running:
            with lock_held(applied_lab):
                # It has read the package lists, and waits for dpkg before it fetches the packages.
                until(applied_lab, f"{INSTALLS} -q")
                inside(applied_lab, f"iptables -I {refused}")
            code, lines, messages = running.end()
    finally:
        inside(applied_lab, f"iptables -D {refused}")
        converges(applied_lab, "runtime")
    assert code == 1
    assert codes(lines) == {"packages.source-down"}, messages
    assert "Failed to fetch http://depot/" in messages


@pytest.mark.drawn("packages and images")
def test_a_node_that_loses_power_in_the_middle_of_apt_is_completed(applied_lab: RunningLab) -> None:
    hang = f"#!/bin/sh\\ntouch {IN_POSTINST}\\nexec sleep 600\\n"
    try:
        with without_toolkit(applied_lab), Apply(applied_lab, *apply_arguments("runtime")) as running:
            # A mount and not a change: it is gone with the power.
            inside(applied_lab, f"printf '{hang}' >/root/hang; chmod +x /root/hang")
            inside(applied_lab, f"mount --bind /root/hang {POSTINST_HELPER}")
            until(applied_lab, f"test -e {IN_POSTINST}")
            # Until apply has ended: a node that is back before a second try of ssh goes on, and all is done.
            applied_lab.inject(NODE, "node-down")
            code, lines, messages = running.end()
    finally:
        applied_lab.clear_faults()
        broken = inside(applied_lab, "rm /root/hang; ls /var/lib/dpkg/updates")
        converges(applied_lab, "runtime")
    assert code == 1
    assert codes(lines) == {"host.unreachable"}, messages
    assert broken != "", "dpkg was in the middle of a transaction"
