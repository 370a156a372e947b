# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE)
"""One dnf transaction: simulated, judged by what it would change, then done. `run` is that of `dnf_run`.

`dnf shell` takes a module's stream, removals and installations as one transaction.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ansible_collections.clusterctl.cluster.plugins.module_utils.apt_packages import Change
from ansible_collections.clusterctl.cluster.plugins.module_utils.apt_view import RunFull
from ansible_collections.clusterctl.cluster.plugins.module_utils.rpm_database import Rpm

# Titles of the table, without their colon, by what happens to the packages below.
INSTALLED = ("Installing", "Upgrading", "Downgrading")
REMOVED = ("Removing",)
STREAMS = ("Enabling module streams", "Switching module streams")
# What simulating ends with where all is well.
SIMULATED = "Error: Operation aborted."
# Its shell goes on without the packages that it has a problem with.
COMPLAINT = re.compile(r"\s*(Error|Problem)\b")
# Of a name, a version or a stream, with globs: its shell splits a line, and takes addresses for packages.
PLAIN = re.compile(r"[A-Za-z0-9._+~^:*?@-]+")


@dataclass(frozen=True)
class Transaction:
    """What dnf is asked for, as its shell takes it: `install` names packages, with their version or not."""

    install: Sequence[str] = ()
    remove: Sequence[str] = ()
    stream: str = ""

    def odd_words(self) -> list[str]:
        """What is neither a package's name and version nor a stream's."""
        words = [*self.install, *self.remove, *filter(None, [self.stream])]
        return [word for word in words if not PLAIN.fullmatch(word)]

    def script(self) -> str:
        """The lines for dnf's shell."""
        lines = [f"module enable {self.stream}"] if self.stream else []
        lines += [f"remove {' '.join(self.remove)}"] if self.remove else []
        lines += [f"install {' '.join(self.install)}"] if self.install else []
        return "".join(f"{line}\n" for line in [*lines, "ts run"])


@dataclass
class Outcome:
    """What a transaction would change: (before, after) by a package's key, and streams by their module."""

    changes: dict[str, Change] = field(default_factory=dict)
    streams: dict[str, Change] = field(default_factory=dict)


def rows(output: str) -> list[tuple[str, str]]:
    """Title and line of every row in dnf's table; a row that dnf broke, for its long name, is one again."""
    found: list[tuple[str, str]] = []
    title = ""
    for line in output.splitlines():
        if not line.startswith(" "):
            title = line.rstrip(":").strip() if line.endswith(":") else ""
        elif title and line.startswith("  ") and found and "replacing" not in line:
            found[-1] = (title, f"{found[-1][1]} {line.strip()}")
        elif title:
            found.append((title, line.strip()))
    return found


def parse_table(output: str, installed: Mapping[str, str]) -> Outcome:
    """What dnf's table says that it would do; `installed` are versions by key."""
    outcome = Outcome()
    for title, line in rows(output):
        words = line.split()
        if title in STREAMS:
            before, after = (words[1], words[3]) if "->" in words else ("", words[1])
            outcome.streams[words[0]] = (before, after)
        elif words[0] == "replacing":
            name = words[1].rpartition(".")[0]
            outcome.changes[name] = (words[2], "")
        elif title.startswith((*INSTALLED, *REMOVED)) and len(words) > 3:
            name, architecture, evr = words[:3]
            key = Rpm(name, evr, architecture).key
            gone = title.startswith(REMOVED)
            outcome.changes[key] = (evr, "") if gone else (installed.get(key, ""), evr)
    return outcome


def simulate(
    run: RunFull, transaction: Transaction, installed: Mapping[str, str], options: Sequence[str] = ()
) -> tuple[Outcome, str]:
    """What dnf would change, and its complaint if it cannot do that."""
    code, output, error = _shell(run, transaction, ["--assumeno", *options])
    lines = [line for line in f"{error}\n{output}".splitlines() if line.strip() not in ("", SIMULATED)]
    if code != 0 or any(COMPLAINT.match(line) for line in lines):
        return Outcome(), "\n".join(lines) or f"dnf ended with {code}"
    return parse_table(output, installed), ""


def install(run: RunFull, transaction: Transaction) -> tuple[int, str, str]:
    """Has dnf do the transaction. Its shell ends with 0 unless it is killed: read the packages afterwards."""
    code, output, error = _shell(run, transaction, ["--assumeyes"])
    return code, output, f"{error}\nError: dnf ended with {code}" if code else error


def _shell(run: RunFull, transaction: Transaction, options: Sequence[str]) -> tuple[int, str, str]:
    if odd := transaction.odd_words():
        return 1, "", f"Error: {odd[0]!r} is no package, version or stream of dnf's"
    with tempfile.NamedTemporaryFile("w", prefix="clusterctl-", suffix=".dnf") as file:
        file.write(transaction.script())
        file.flush()
        return run(["dnf", *options, "shell", file.name])
