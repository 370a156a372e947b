"""A flat apt repository in a directory: Packages, Release, InRelease."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path

from clusterlab.sources import deb, signing


@dataclass(frozen=True)
class Identity:
    """What a repository says of itself, and what pins can match."""

    origin: str
    label: str
    codename: str = ""


def index(directory: Path, identity: Identity, key: signing.SigningKey, stanzas: Mapping[str, str]) -> None:
    """Index every .deb of the directory and sign the index.

    stanzas: control stanzas already known, by file name; the others are read with dpkg-deb.
    """
    entries = []
    for path in sorted(directory.glob("*.deb")):
        stanza = stanzas.get(path.name) or deb.stanza_of(path)
        entries.append(
            f"{stanza}Filename: ./{path.name}\nSize: {path.stat().st_size}\nSHA256: {deb.checksum(path)}\n"
        )
    packages = "\n".join(entries).encode()
    contents = {"Packages": packages, "Packages.gz": gzip.compress(packages, mtime=0)}
    for name, data in contents.items():
        (directory / name).write_bytes(data)
    release = [
        f"Origin: {identity.origin}",
        f"Label: {identity.label}",
        *([f"Codename: {identity.codename}"] if identity.codename else []),
        "Architectures: amd64 all",
        f"Date: {formatdate(usegmt=True).replace('GMT', 'UTC')}",
        "SHA256:",
        *(f" {hashlib.sha256(data).hexdigest()} {len(data)} {name}" for name, data in contents.items()),
    ]
    (directory / "Release").write_text("\n".join(release) + "\n")
    signing.clearsign(key, {directory / "Release": directory / "InRelease"})
