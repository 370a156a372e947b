"""Credentials for registries, from a Docker client's file."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from pathlib import Path

from pydantic import SecretStr

from clusterctl.cluster.bounded_file import UnusableFileError, describe_unusable
from clusterctl.cluster.secret_files import read_secret_text
from clusterctl.errors import ClusterctlError
from clusterctl.registry.oci.reference import DOCKER_HUB, HOSTS

MAX_BYTES = 1 << 20
HUB_KEYS = ("https://index.docker.io/v1/", "index.docker.io", DOCKER_HUB, HOSTS[DOCKER_HUB])


@dataclass(frozen=True)
class Credentials:
    """A user and a password, which is never shown."""

    user: str
    password: SecretStr

    @property
    def basic(self) -> str:
        """The header's value."""
        return (
            "Basic " + base64.b64encode(f"{self.user}:{self.password.get_secret_value()}".encode()).decode()
        )


def credentials_for(file: Path | None, registry: str) -> Credentials | None:
    """What the file has for a registry; None without a file or an entry: then we ask without credentials.

    Raises ClusterctlError (``images.auth-file``, ``secrets.vault``).
    """
    if file is None:
        return None
    try:
        entries = json.loads(read_secret_text(file, MAX_BYTES)).get("auths", {})
        keys = (
            HUB_KEYS if registry in HUB_KEYS else (registry, f"https://{registry}", f"https://{registry}/v2/")
        )
        entry = next((entries[key] for key in keys if key in entries), None)
        if entry is None:
            return None
        if "auth" in entry:
            user, _, password = base64.b64decode(entry["auth"], validate=True).decode().partition(":")
        else:
            user, password = str(entry["username"]), str(entry["password"])
        f"{user}{password}".encode()  # what has no bytes is nobody's
    except (OSError, UnusableFileError) as error:
        raise _refusal(file, f"cannot be read: {describe_unusable(error)}") from None
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        # No word of what stands there: it is a secret.
        raise _refusal(file, f"has no credentials that can be read for {registry}") from None
    return Credentials(user, SecretStr(password))


def _refusal(file: Path, because: str) -> ClusterctlError:
    return ClusterctlError(
        f"the file with credentials {because}",
        code="images.auth-file",
        where=str(file),
        hint='As `docker login` writes it: {"auths": {"HOST": {"auth": "..."}}}.',
    )
