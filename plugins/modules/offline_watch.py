#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Starts and ends a watch over whom this node turns to, and looks at where its packages would come from."""

from __future__ import annotations

import ipaddress
import json
import os
import re
import select
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.clusterctl.cluster.plugins.module_utils import offline_watcher
from ansible_collections.clusterctl.cluster.plugins.module_utils.bounded import run_bounded
from ansible_collections.clusterctl.cluster.plugins.module_utils.node_files import replace_file

DOCUMENTATION = r"""
module: offline_watch
short_description: Watch whom a node turns to
description:
  - C(started) writes a small program and a unit that outlives a reboot, and waits until it listens.
  - C(ended) stops it, reads what it wrote down, and takes everything away again.
  - C(looked) changes nothing; it says which sources of packages are not allowed hosts.
  - The watch blocks nothing and needs no package.
options:
  state: {description: What to do, type: str, choices: [looked, started, ended], default: looked}
  run: {description: The run that watches, type: str, default: ""}
  allowed: {description: Addresses and networks that may be contacted, type: list, elements: str, default: []}
  names: {description: Names that may be contacted, type: list, elements: str, default: []}
  limit_s: {description: The watch ends by itself after so long, type: int, default: 43200}
  directory: {description: Where the watch lives, type: path, default: /root/.clusterctl/offline}
  apt: {description: apt's directory, type: path, default: /etc/apt}
author: ["the clusterctl authors"]
"""

EXAMPLES = r"""
- name: Watch whom the node turns to
  clusterctl.cluster.offline_watch: {state: started, run: "20260101-120000", allowed: [10.0.0.0/24]}
"""

RETURN = r"""
clusterctl: {description: In C(facts.offline) what was found, returned: always, type: dict}
"""

UNIT = "clusterctl-offline.service"
UNIT_FILE = Path("/etc/systemd/system") / UNIT
# Before the network is up at a boot, and not ended by a shutdown: a reboot is not a gap.
UNIT_TEXT = """# Written by clusterctl for one run, and taken away after it.
[Unit]
Description=clusterctl: whom this node turns to during one run
DefaultDependencies=no
After=local-fs.target
Before=network-pre.target
Wants=network-pre.target

[Service]
ExecStart={python} {directory}/watch.py {directory}/config.json
Nice=-5
MemoryMax=256M

[Install]
WantedBy=sysinit.target
"""
LISTENING_S = 20.0
# A watch that hears writes twice a second; a node under load is given more.
BEAT_S = 20.0
LOOPBACK_NAMES = ("localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback")
BOOT = Path("/proc/sys/kernel/random/boot_id")
URI = re.compile(r"\b(?:https?|ftp)://(?:[^/\s@]*@)?([^/\s:@\]]+|\[[0-9a-fA-F:]+\])")


def networks(allowed: list[str]) -> list[Any]:
    """Addresses and networks as such. Raises ValueError for what is neither."""
    return [ipaddress.ip_network(one, strict=False) for one in allowed]


def addresses(name: str) -> list[str]:
    """The addresses of a name, as this node knows it; none where it does not."""
    try:
        return sorted({str(one[4][0]).partition("%")[0] for one in socket.getaddrinfo(name, None)})
    except (OSError, UnicodeError):
        return []


def name_servers(text: str) -> list[str]:
    """The name servers that a resolv.conf names."""
    found = re.findall(r"^[ \t]*nameserver[ \t]+([0-9a-fA-F.:]+)", text, re.MULTILINE)
    return sorted(set(found))


def apt_hosts(directory: Path) -> dict[str, list[str]]:
    """Hosts in apt's sources and proxies, each with the files that name it; comments do not count."""
    files = [directory / "sources.list", *sorted(directory.glob("sources.list.d/*.list"))]
    files += sorted(directory.glob("sources.list.d/*.sources"))
    files += [directory / "apt.conf", *sorted(directory.glob("apt.conf.d/*"))]
    found: dict[str, list[str]] = {}
    for path in files:
        if not path.is_file():
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        for stanza in re.split(r"\n[ \t]*\n", text):
            if path.suffix == ".sources" and re.search(
                r"^Enabled:\s*no\b", stanza, re.MULTILINE | re.IGNORECASE
            ):
                continue
            for line in stanza.splitlines():
                if line.lstrip().startswith(("#", "//")):
                    continue
                for host in URI.findall(line):
                    names = found.setdefault(host.strip("[]"), [])
                    names += [str(path)] if str(path) not in names else []
    return found


def outside_sources(
    hosts: dict[str, list[str]], names: list[str], allowed: list[Any]
) -> dict[str, list[str]]:
    """Those sources of packages whose host may not be contacted; a name that is not known here is one.

    So is the node itself by a loopback address: what listens there may be a tunnel to anywhere.
    """

    def is_allowed(host: str) -> bool:
        found = [ipaddress.ip_address(one) for one in addresses(host)]
        if any(one.is_loopback for one in found):
            # Debian gives a host's own name such an address, too: there it is the host.
            return host in names and host not in LOOPBACK_NAMES and not _is_address(host)
        return host in names or (bool(found) and all(any(one in net for net in allowed) for one in found))

    return {host: files for host, files in hosts.items() if not is_allowed(host)}


def _is_address(word: str) -> bool:
    try:
        ipaddress.ip_address(word)
    except ValueError:
        return False
    return True


def program() -> str:
    """The text of the watch, which lies next to this module's other parts, packed or not."""
    spec = offline_watcher.__spec__
    source = spec.loader.get_source(spec.name)
    if not source:
        raise OSError("the program of the watch is not in this module's package")
    return source


def start(module: AnsibleModule, allowed: list[Any]) -> None:
    """Write program and unit, and wait until it listens; ends the module where it does not."""
    options = module.params
    directory = Path(options["directory"])
    # What an earlier run left would answer for this one.
    remove(directory)
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    resolv = Path("/etc/resolv.conf")
    config = {
        "run": options["run"],
        "allowed": [str(network) for network in allowed],
        "name_servers": name_servers(resolv.read_text(encoding="utf-8")) if resolv.is_file() else [],
        "until": time.time() + options["limit_s"],
        "output": str(directory / "record.json"),
    }
    replace_file(directory / "watch.py", program(), 0o600)
    replace_file(directory / "config.json", json.dumps(config), 0o600)
    python = module.get_bin_path("python3") or "/usr/bin/python3"
    replace_file(UNIT_FILE, UNIT_TEXT.format(python=python, directory=directory), 0o644)
    with records(directory) as wait_for_record:
        for command in (["daemon-reload"], ["enable", UNIT], ["start", UNIT]):
            rc, _, err = run_bounded(["systemctl", "--quiet", *command], 60)
            if rc != 0:
                remove(directory)
                module.fail_json(
                    msg=f"The watch cannot be started: `systemctl {' '.join(command)}`: {err.strip()}"
                )
        wait_for_record(LISTENING_S)
    if read(directory).get("run") != options["run"]:
        answer = run_bounded(["journalctl", "-u", UNIT, "-n", "5", "--no-pager", "-o", "cat"], 30)[1]
        remove(directory)
        module.fail_json(msg=f"The watch does not listen: {' | '.join(answer.split(chr(10))).strip(' |')}")


@contextmanager
def records(directory: Path) -> Iterator[Callable[[float], bool]]:
    """Wait for a record that the watch writes from now on: whether one came within so many seconds."""
    bell = directory / offline_watcher.BELL
    with suppress(FileExistsError):
        os.mkfifo(bell, 0o600)
    # For writing, too: that who rang has gone is then taken for no ring.
    stream = os.open(bell, os.O_RDWR | os.O_NONBLOCK)
    try:
        with suppress(BlockingIOError):
            os.read(stream, select.PIPE_BUF)  # a ring before now, which who rang still holds
        yield lambda seconds: bool(select.select([stream], [], [], seconds)[0])
    finally:
        os.close(stream)


def read(directory: Path) -> dict[str, Any]:
    """What the watch wrote down, {} if there is nothing."""
    try:
        found = json.loads((directory / "record.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def is_hearing(directory: Path) -> bool:
    """Whether the watch runs now, in this boot, and writes: only then has it heard all until now."""
    before = read(directory)
    if not before or before.get("boots", [])[-1:] != [BOOT.read_text(encoding="utf-8").strip()]:
        return False
    # Another record than a moment ago, not a late one: a clock may be set while it runs.
    with records(directory) as wait_for_record:
        hears = is_active() and wait_for_record(BEAT_S) and is_active()
    # One that somebody stopped writes a last record, and is still there for a moment after it.
    return hears and not read(directory).get("drained")


def is_active() -> bool:
    """Whether the unit runs."""
    return run_bounded(["systemctl", "--quiet", "is-active", UNIT], 60)[0] == 0


def end(directory: Path) -> dict[str, Any]:
    """Stop the watch, take all of it away, and hand out what it wrote down.

    The record is ``ended`` where the watch still heard when it was stopped here, and read what was left: one
    that somebody else stopped, or that its time ended, has not heard what came after.
    """
    heard = UNIT_FILE.exists() and is_hearing(directory)
    record = remove(directory)
    return {**record, "ended": heard and record.get("drained") is True} if record else {}


def remove(directory: Path) -> dict[str, Any]:
    """Stop the watch, if there is one, and take all of it away; what it wrote down."""
    ours = UNIT_FILE.exists()
    if ours:
        run_bounded(["systemctl", "--quiet", "stop", UNIT], 60)
    record = read(directory)
    if ours:
        run_bounded(["systemctl", "--quiet", "disable", UNIT], 60)
        UNIT_FILE.unlink(missing_ok=True)
        run_bounded(["systemctl", "--quiet", "daemon-reload"], 60)
    shutil.rmtree(directory, ignore_errors=True)
    return record


def main() -> None:
    """Ansible's entry."""
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["looked", "started", "ended"], "default": "looked"},
            "run": {"type": "str", "default": ""},
            "allowed": {"type": "list", "elements": "str", "default": []},
            "names": {"type": "list", "elements": "str", "default": []},
            "limit_s": {"type": "int", "default": 43200},
            "directory": {"type": "path", "default": "/root/.clusterctl/offline"},
            "apt": {"type": "path", "default": "/etc/apt"},
        },
        supports_check_mode=True,
    )
    options = module.params
    names = sorted({*options["names"], socket.gethostname()})
    try:
        allowed = networks([*options["allowed"], *(one for name in names for one in addresses(name))])
    except ValueError as error:
        module.fail_json(msg=f"{error}; write addresses or networks, such as 10.0.0.0/24.")
    record: dict[str, Any] = {}
    if options["state"] == "ended" and not module.check_mode:
        record["record"] = end(Path(options["directory"]))
    else:
        record["sources"] = outside_sources(apt_hosts(Path(options["apt"])), names, allowed)
        if options["state"] == "started" and not module.check_mode and not record["sources"]:
            try:
                start(module, allowed)
            except OSError as error:
                module.fail_json(msg=f"The watch cannot be started: {error}")
            record["listening"] = True
    module.exit_json(changed=False, clusterctl={"facts": {"offline": record}})


if __name__ == "__main__":
    main()
