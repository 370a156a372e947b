"""How SSH would reach a host: asked of the operator's OpenSSH, which knows Include and Match."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass, replace

from clusterctl.cluster.inventory import Host
from clusterctl.cluster.known_hosts import lookup_name
from clusterctl.cluster.ssh_options import (
    CLOSED,
    MAX_WORDS,
    SHELL_WORDS,
    SHELL_WORDS_HINT,
    as_words,
    split_words,
)
from clusterctl.errors import ClusterctlError

ASK_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class Endpoint:
    """One host as SSH sees it. ``proxy`` is the command line that reaches it, empty for a direct line.

    ``arguments`` are the inventory's own words for ssh, as Ansible hands them on.
    """

    node: str
    address: str
    port: int
    user: str
    lookup: str
    identity_files: tuple[str, ...] = ()
    identities_only: bool = False
    jump: str = ""
    proxy: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()


def endpoint(host: Host, connect_timeout_s: float) -> Endpoint:
    """Ask ``ssh -G``. Raises ClusterctlError (``ssh.*``, and as inventory_arguments does)."""
    arguments = inventory_arguments(host)
    answer = _ask_ssh(host, arguments)
    address, port = answer.get("hostname", [host.address])[0], int(answer.get("port", [str(host.port)])[0])
    user = answer.get("user", [host.user])[0]
    found = Endpoint(
        node=host.name,
        address=address,
        port=port,
        user=user,
        lookup=_lookup(answer, address, port),
        identity_files=tuple(answer.get("identityfile", ())),
        identities_only=answer.get("identitiesonly", ["no"])[0] == "yes",
        arguments=(*arguments, host.address),
    )
    jump, proxy = _proxy(answer, found, connect_timeout_s)
    return replace(found, jump=jump, proxy=proxy)


def _lookup(record: dict[str, list[str]], address: str, port: int) -> str:
    alias = record.get("hostkeyalias", ["none"])[0]
    return alias if alias != "none" else lookup_name(address, port)


def inventory_arguments(host: Host) -> tuple[str, ...]:
    """The inventory's own words for ssh, without the address.

    Raises ClusterctlError (``settings.value``, ``inventory.template``).
    """
    words: list[str] = []
    if host.value("ansible_port", host.value("ansible_ssh_port")) is not None:
        words += ["-p", str(host.port)]
    if host.user:
        words += ["-l", host.user]
    key = host.value("ansible_ssh_private_key_file", host.value("ansible_private_key_file"))
    if key:
        words += ["-i", str(key)]  # ssh knows whose home directory ~ is
    for name in SHELL_WORDS:
        try:
            words += split_words(str(host.value(name, "")))
        except ValueError as error:
            raise ClusterctlError(
                f"{name} of {host.name} {error}",
                code="settings.value",
                where=f"{host.name}: {name}",
                hint=SHELL_WORDS_HINT,
            ) from None
    if (length := sum(map(len, words))) > MAX_WORDS:
        raise ClusterctlError(
            f"the arguments for ssh to {host.name} have {length} characters, more than {MAX_WORDS}",
            code="settings.value",
            where=f"{host.name}: {', '.join(SHELL_WORDS)}, ansible_ssh_private_key_file",
            hint="Write long options into ~/.ssh/config.",
        )
    return tuple(words)


def _ask_ssh(host: Host, arguments: tuple[str, ...]) -> dict[str, list[str]]:
    try:
        done = subprocess.run(
            ["ssh", *arguments, "-G", "--", host.address],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=ASK_TIMEOUT_S,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except FileNotFoundError:
        raise ClusterctlError(
            "OpenSSH's client is not installed on this machine",
            code="ssh.missing",
            hint="Install it: apt-get install openssh-client",
        ) from None
    except subprocess.TimeoutExpired:
        raise _config(
            host, f"no answer from `ssh -G` in {ASK_TIMEOUT_S:.0f} s: a Match exec that hangs?"
        ) from None
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise _config(host, lines[0] if lines else f"`ssh -G` ended with {done.returncode}")
    record: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        key, _, value = line.partition(" ")
        record.setdefault(key, []).append(value)
    return record


def _proxy(
    record: dict[str, list[str]], way: Endpoint, connect_timeout_s: float
) -> tuple[str, tuple[str, ...]]:
    """The jump host's name and the command that reaches the host through it; empty for a direct line."""
    jump = record.get("proxyjump", ["none"])[0]
    if jump != "none":
        *before, last = jump.split(",")
        # OpenSSH itself logs in to the jump host: with its own keys, agent, and known_hosts.
        own = (*CLOSED, "BatchMode=yes", f"ConnectTimeout={max(1, round(connect_timeout_s))}")
        command = ["ssh", *as_words(own)]
        command += _configuration_file(way.arguments)
        if before:
            command += ["-J", ",".join(before)]
        target = f"[{way.address}]:{way.port}"
        return last, (*command, "-W", target, "--", last if "://" in last else f"ssh://{last}")
    template = record.get("proxycommand", ["none"])[0]
    if template == "none":
        return "", ()
    tokens = {"%h": way.address, "%p": str(way.port), "%r": way.user, "%n": way.arguments[-1], "%%": "%"}
    command_line = re.sub(r"%[hprn%]", lambda match: tokens[match[0]], template)
    return template, ("/bin/sh", "-c", f"exec {command_line}")


def _configuration_file(arguments: tuple[str, ...]) -> list[str]:
    """``-F FILE`` of the inventory's own words: the jump host is looked up in the same file."""
    for word, following in zip(arguments, (*arguments[1:], ""), strict=True):
        if word == "-F":
            return ["-F", following]
        if word.startswith("-F"):
            return [word]
    return []


def _config(host: Host, because: str) -> ClusterctlError:
    return ClusterctlError(
        f"SSH's configuration for {host.name} cannot be read: {because}",
        code="ssh.config",
        where=host.name,
        hint="Look at ~/.ssh/config, and at ansible_ssh_common_args in the settings.",
    )
