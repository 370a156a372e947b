# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Harbor on its host: what was installed, what holds its ports, how its containers are spoken to."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from ansible_collections.clusterctl.cluster.plugins.module_utils.bounded import run_bounded
from ansible_collections.clusterctl.cluster.plugins.module_utils.gpu_node import read_text
from ansible_collections.clusterctl.cluster.plugins.module_utils.node_files import replace_file
from ansible_collections.clusterctl.cluster.plugins.module_utils.processes import open_files, process_ids

RECORD = "installed.json"
INSTALLED = "installed"
# The release before was backed up and is being stopped: `version` is its, `to` the one that is to come.
UPGRADING = "upgrading"
# What a restore that did not complete left: images are there, and the database may be empty.
RESTORE = "restore.json"
COMPOSE = "/usr/local/lib/clusterctl/harbor-compose"
LISTENING = "0A"
LOOK_S, HOLDERS_S = 30, 10
# What to know of a program that did not end within the installer's time.
PULLING = "images may still be being pulled: harbor_install_timeout_s is the time that they have"
OURS = "label=com.docker.compose.project=harbor"
# Series of Harbor that this content knows, oldest first; its documents name each hop.
SERIES = ("2.12", "2.13", "2.14", "2.15")
MOST_SERIES_AT_ONCE = 2


def release_directory(directory: str, version: str) -> Path:
    """Where the installer of a release is unpacked."""
    return Path(directory, "releases", version, "harbor")


def read_record(directory: str) -> dict[str, Any]:
    """What the last installation wrote down; {} if there was none."""
    try:
        found = json.loads((Path(directory) / RECORD).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except ValueError:
        return {"state": "unreadable"}
    return found if isinstance(found, dict) else {"state": "unreadable"}


def write_record(directory: str, record: Mapping[str, Any]) -> None:
    """Write down what is installed, or is being installed."""
    replace_file(Path(directory) / RECORD, json.dumps(record, indent=1, sort_keys=True) + "\n", 0o600)


def read_restore(directory: str) -> dict[str, Any]:
    """What a restore that was interrupted has done; {} if there was none. Raises OSError or ValueError."""
    path = Path(directory) / RESTORE
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def why_half_restored(directory: str) -> str:
    """Why nothing else may be done with a Harbor whose restore was interrupted; empty if none was."""
    mark = read_restore(directory)
    if not mark:
        return ""
    return (
        f"a restore of {mark.get('backup')} was started here and is not complete: "
        "`clusterctl registry restore` completes it"
    )


def series(version: str) -> str:
    """`v2.15.2` -> `2.15`."""
    found = re.match(r"v?(\d+\.\d+)\.", version)
    return found[1] if found else ""


def numbers(version: str) -> tuple[int, ...]:
    """`v2.15.2-rc1` -> (2, 15, 2)."""
    found = re.match(r"v?(\d+)\.(\d+)\.(\d+)", version)
    return tuple(int(part) for part in found.groups()) if found else ()


def why_no_upgrade(before: str, after: str) -> str:
    """Why Harbor cannot go from one release to another in one step; empty where it can."""
    if series(before) not in SERIES or series(after) not in SERIES:
        known = f"{SERIES[0]} to {SERIES[-1]}"
        return f"{before} to {after} is not a hop that is known here (releases {known} are)"
    if numbers(after) < numbers(before):
        return f"Harbor has no way back from {before} to {after}; restore a backup of {after} instead"
    if SERIES.index(series(after)) - SERIES.index(series(before)) > MOST_SERIES_AT_ONCE:
        step = SERIES[SERIES.index(series(before)) + MOST_SERIES_AT_ONCE]
        return f"Harbor documents no step from {before} to {after}; go to a {step} release first"
    return ""


def why_not(record: Mapping[str, Any], version: str, *, upgrade: bool, running: bool) -> str:
    """Why a host with this record cannot be brought to a release; empty where it can.

    ``upgrade`` says that it is asked for and backed up, ``running`` that what is here runs.
    """
    before = str(record.get("version", ""))
    to = str(record.get("to", "")) if record.get("state") == UPGRADING else ""
    if to and version not in (before, to):
        return f"an upgrade from {before} to {to} was started here: declare {to}, or {before} to go back"
    if not before or before == version:
        return ""
    why = why_no_upgrade(before, version)
    if why or upgrade or (to and not running):
        return why
    if to:
        return (
            f"the upgrade to {to} was interrupted, and {before} runs again: "
            "`clusterctl registry upgrade` creates a new backup and upgrades"
        )
    return "`clusterctl registry upgrade` backs up, and goes there"


def running_services() -> set[str]:
    """Services of Harbor whose containers run; none where Docker does not answer."""
    label = '{{.Label "com.docker.compose.service"}}'
    rc, out, _ = run_bounded(["docker", "ps", "--filter", OURS, "--format", label], LOOK_S)
    return set(out.split()) if rc == 0 else set()


def containers_left() -> bool:
    """Whether any container of Harbor is there, running or not; also where Docker does not answer."""
    rc, out, _ = run_bounded(["docker", "ps", "--all", "--quiet", "--filter", OURS], LOOK_S)
    return rc != 0 or bool(out.strip())


def runs() -> bool:
    """Whether a Harbor of ours takes pushes now."""
    return {"core", "proxy"} <= running_services()


def published() -> list[tuple[str, str, set[int]]] | None:
    """Running containers: name, directory of the Compose project, TCP ports; None if nobody answers."""
    place = '{{.Label "com.docker.compose.project.working_dir"}}'
    asked = ["docker", "ps", "--no-trunc", "--format", f"{{{{.Names}}}}\t{place}\t{{{{.Ports}}}}"]
    rc, out, _ = run_bounded(asked, LOOK_S)
    if rc != 0:
        return None
    found = []
    for line in out.splitlines():
        name, where, ports = [*line.split("\t"), "", ""][:3]
        found.append((name, where, published_ports(ports)))
    return found


def published_ports(text: str) -> set[int]:
    """`[::]:443->8443/tcp, 0.0.0.0:8000-8001->80-81/tcp, 6379/tcp` -> {443, 8000, 8001}."""
    spans = re.findall(r":(\d+)(?:-(\d+))?->[\d-]+/tcp", text)
    return {port for first, last in spans for port in range(int(first), int(last or first) + 1)}


def listeners(tables: list[str]) -> dict[int, str]:
    """Inodes of listening sockets by port, of the texts of /proc/net/tcp and tcp6."""
    found = {}
    for table in tables:
        for line in table.splitlines()[1:]:
            fields = line.split()
            if len(fields) > 9 and fields[3] == LISTENING:
                found[int(fields[1].rpartition(":")[2], 16)] = fields[9]
    return found


def holders(inodes: Collection[str], proc: Path = Path("/proc")) -> dict[str, str]:
    """Names of the programs that have these sockets, by inode, as far as they are found within HOLDERS_S.

    Any user may have millions of files open.
    """
    wanted = {f"socket:[{inode}]": inode for inode in inodes}
    found: dict[str, str] = {}
    end = time.monotonic() + HOLDERS_S
    opened = ((pid, link) for pid in process_ids(proc) for link in open_files(proc, pid))
    while len(found) < len(wanted) and time.monotonic() < end:
        pid, link = next(opened, (0, ""))
        if not pid:
            break
        if link in wanted:
            found.setdefault(wanted[link], read_text(proc / str(pid) / "comm"))
    return found


def compose(release: str, *words: str) -> list[str]:
    """The command line of Compose for the release that lies there."""
    return [COMPOSE, "--project-directory", release, "-f", f"{release}/docker-compose.yml", *words]


def plain(text: str) -> list[str]:
    """Lines of an installer's output without its colours."""
    return [line for line in re.sub(r"\x1b\[[0-9;]*m|\x1b\(B", "", text).splitlines() if line.strip()]
