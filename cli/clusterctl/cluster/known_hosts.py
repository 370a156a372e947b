"""The cluster's pinned host keys, in OpenSSH's own format and with its own rules.

Lines that are not ours to judge (`@cert-authority`, `@revoked`, hashed names, comments, key types that
paramiko does not know) are kept as they are.
"""

from __future__ import annotations

import base64
import binascii
import fnmatch
import hashlib
import hmac
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from clusterctl.cluster.bounded_file import UnusableFileError, describe_unusable, read_bounded
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.cluster.state_files import locked, replace_file
from clusterctl.errors import ClusterctlError

DEFAULT_PORT = 22
HASHED = "|1|"
FIELD = re.compile(r"[^ \t\r]+")
MAX_BYTES = 64 << 20  # ten thousand hosts with three keys each have some MiB


def checking_options(known_hosts: Path) -> tuple[str, ...]:
    """ssh's options that check host keys against this file and no other; first on its line they hold."""
    return (
        "StrictHostKeyChecking=yes",
        f'UserKnownHostsFile="{known_hosts}"',
        "GlobalKnownHostsFile=/dev/null",
        "UpdateHostKeys=no",
    )


@dataclass(frozen=True, order=True)
class HostKey:
    """One public host key: its type and its base64 body, as known_hosts writes them."""

    type: str
    body: str

    @property
    def fingerprint(self) -> str:
        """SHA256:..., as ssh-keygen -l prints it."""
        try:
            blob = base64.b64decode(self.body, validate=True)
        except (binascii.Error, ValueError):
            return "unreadable"
        return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


@dataclass(frozen=True)
class Line:
    """One line of known_hosts; ``key`` is None for comments and for what cannot be read."""

    text: str
    marker: str = ""
    names: str = ""
    key: HostKey | None = None

    def concerns(self, lookup: str) -> bool:
        """True where OpenSSH would apply this line to the host looked up as ``lookup``."""
        if self.key is None:
            return False
        if self.names.startswith(HASHED):
            return _hash_matches(self.names, lookup)
        patterns = self.names.split(",")
        if any(p.startswith("!") and _glob(lookup, p[1:]) for p in patterns):
            return False
        return any(_glob(lookup, p) for p in patterns)


@dataclass(frozen=True)
class PinnedKeys:
    """What the file says of one host."""

    keys: tuple[HostKey, ...]
    authorities: tuple[HostKey, ...]
    revoked: tuple[HostKey, ...]


def lookup_name(address: str, port: int) -> str:
    """The name under which OpenSSH looks a host up: the address, with its port where it is not 22."""
    return address if port == DEFAULT_PORT else f"[{address}]:{port}"


def parse(text: str) -> list[Line]:
    """The lines of a known_hosts file; no line is ever an error."""
    # A line feed alone ends one, as for OpenSSH; str.splitlines knows nine more ends.
    return [_line(raw) for raw in text.removesuffix("\n").split("\n")] if text else []


def pinned(directory: ClusterDirectory, lookup: str) -> PinnedKeys:
    """The keys pinned for one host, the authorities that may sign for it, the keys revoked.

    Raises ClusterctlError (``known-hosts.unreadable``).
    """
    concerned = [line for line in _read(directory) if line.concerns(lookup)]

    def keys(marker: str) -> tuple[HostKey, ...]:
        return tuple(dict.fromkeys(line.key for line in concerned if line.marker == marker and line.key))

    return PinnedKeys(keys(""), keys("@cert-authority"), keys("@revoked"))


def pin(directory: ClusterDirectory, lookup: str, keys: Iterable[HostKey], comment: str) -> None:
    """Trust exactly these keys of a host from now on; its earlier ones are dropped."""
    with locked(directory):
        kept = _without(_read(directory), lookup)
        added = [f"{lookup} {key.type} {key.body} {comment}".rstrip() for key in keys]
        _write(directory, [*kept, *added])


def forget(directory: ClusterDirectory, lookup: str) -> bool:
    """Trust no key of a host any more. Returns whether there was one."""
    with locked(directory):
        before = _read(directory)
        kept = _without(before, lookup)
        changed = kept != [line.text for line in before]
        if changed:
            _write(directory, kept)
    return changed


def _without(lines: Sequence[Line], lookup: str) -> list[str]:
    """The lines with this host's plain pins taken out; what names other hosts too keeps those."""
    kept: list[str] = []
    for line in lines:
        names = line.names.split(",")
        if line.key is None or line.marker or not line.concerns(lookup):
            kept.append(line.text)
        elif lookup in names and len(names) > 1:
            rest = ",".join(name for name in names if name != lookup)
            kept.append(line.text.replace(line.names, rest, 1))
        elif lookup not in names and not line.names.startswith(HASHED):
            kept.append(line.text)  # a pattern, written by hand: not ours to remove
    return kept


def _line(raw: str) -> Line:
    fields = FIELD.findall(raw)
    if not fields or fields[0].startswith("#"):
        return Line(raw)
    marker = fields.pop(0) if fields[0].startswith("@") else ""
    if len(fields) < 3:
        return Line(raw)
    return Line(raw, marker, fields[0], HostKey(fields[1], fields[2]))


def _glob(lookup: str, pattern: str) -> bool:
    # OpenSSH knows * and ? alone; brackets belong to [address]:port.
    return fnmatch.fnmatchcase(lookup.lower(), pattern.lower().replace("[", "[[]"))


def _hash_matches(names: str, lookup: str) -> bool:
    try:
        salt, digest = (base64.b64decode(part, validate=True) for part in names[len(HASHED) :].split("|"))
    except (binascii.Error, ValueError):
        return False
    return hmac.compare_digest(hmac.new(salt, lookup.encode(), "sha1").digest(), digest)


def _read(directory: ClusterDirectory) -> list[Line]:
    try:
        return parse(read_bounded(directory.known_hosts, MAX_BYTES).decode(errors="surrogateescape"))
    except FileNotFoundError:
        return []
    except (OSError, UnusableFileError) as error:
        raise ClusterctlError(
            f"the pinned host keys cannot be read: {describe_unusable(error)}",
            code="known-hosts.unreadable",
            where=str(directory.known_hosts),
            hint="Work as the user who owns the cluster directory; move away what is not a file of keys.",
        ) from error


def _write(directory: ClusterDirectory, lines: Iterable[str]) -> None:
    text = "".join(f"{line}\n" for line in lines)
    replace_file(directory.known_hosts, text, mode=0o644)
