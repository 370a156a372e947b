# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The certificate that Harbor's proxy shows: whether it is the declared one, and how it gets there."""

from __future__ import annotations

import hashlib
import os
import ssl
import stat
from dataclasses import dataclass
from pathlib import Path

from ansible_collections.clusterctl.cluster.plugins.module_utils.harbor_api import Harbor, HarborError
from ansible_collections.clusterctl.cluster.plugins.module_utils.node_files import open_below, replacing_below

# Harbor's containers run as this user, whatever the host calls it.
OWNER = (10000, 10000)
MODE = 0o600


# Below Harbor's data; a certificate with its chain has some kB.
SHOWN = "secret/cert"
LARGEST = 1 << 20


@dataclass(frozen=True)
class Copy:
    """A file that the proxy reads: its SHA-256, empty where it is none, and whether it can read it."""

    digest: str
    is_harbors: bool


@dataclass(frozen=True)
class Declared:
    """Certificate and key as they are declared, and where Harbor keeps its data."""

    certificate: Path
    key: Path
    data_dir: Path

    @property
    def copies(self) -> list[tuple[Path, str]]:
        """Each file with the one that the proxy reads, below the directory of data."""
        return [(self.certificate, f"{SHOWN}/server.crt"), (self.key, f"{SHOWN}/server.key")]

    def copy(self, inside: str) -> Copy:
        """What lies there. Harbor's containers may write there, links and pipes as well."""
        try:
            with open_below(self.data_dir, inside) as stream:
                status = os.fstat(stream.fileno())
                owner = (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode))
                return Copy(hashlib.sha256(stream.read(LARGEST)).hexdigest(), owner == (*OWNER, MODE))
        except OSError:
            return Copy("", True)


def digest(path: Path) -> str:
    """SHA-256 of a file; empty where it is not there."""
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


def fingerprint(path: Path) -> str:
    """SHA-256 of the first certificate of a PEM file."""
    text = path.read_text(encoding="ascii")
    end = "-----END CERTIFICATE-----"
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(text[: text.index(end) + len(end)] + "\n")).hexdigest()


def served(harbor: Harbor) -> str:
    """SHA-256 of the certificate that is shown now; empty if nobody answers."""
    try:
        return harbor.served()
    except HarborError:
        return ""


def why_put(declared: Declared, shown: str) -> str:
    """Why the declared one is to be put in place; empty where it is there, can be read, and is ``shown``."""
    copies = [(digest(ours), declared.copy(theirs)) for ours, theirs in declared.copies]
    if any(ours != theirs.digest for ours, theirs in copies):
        return "it was renewed"
    if not all(theirs.is_harbors for _, theirs in copies):
        return "Harbor's proxy could not read it at its next start"
    if shown and declared.certificate.is_file() and shown != fingerprint(declared.certificate):
        return "Harbor's proxy still shows another one"
    return ""


def put(declared: Declared) -> None:
    """Write it where Harbor's proxy reads it. Raises OSError."""
    root = (os.geteuid(), os.getegid())
    for ours, theirs in declared.copies:
        with replacing_below(declared.data_dir, theirs, MODE, owner=OWNER, makers=root) as stream:
            stream.write(ours.read_bytes())
            stream.flush()
            os.fsync(stream.fileno())
