"""The public keys that a signature policy names: read within bounds, and of the right kind."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from pathlib import Path

from clusterctl.cluster.bounded_file import UnusableFileError, read_trusted
from clusterctl.cluster.signature_policy import KeyRequirement, SignedBy
from clusterctl.cluster.user_path import user_path

# A key with many certifications has some hundred kilobytes.
MAX_KEY_BYTES = 1 << 20
# https://www.rfc-editor.org/rfc/rfc9580#section-5: packets 5 and 6, in the old form and in the new one.
_SECRET_PACKETS = (*range(0x94, 0x98), 0xC5)
_PUBLIC_PACKETS = (*range(0x98, 0x9C), 0xC6)


class UnusableKeyError(Exception):
    """Why a key is not used: a part of a sentence that starts with it."""


def keys(requirement: KeyRequirement, root: Path) -> Iterator[tuple[str, bytes]]:
    """Each public key with the words that name it. Raises UnusableKeyError."""
    for text in requirement.paths:
        yield text, _read(requirement, root, text)
    for number, data in enumerate(requirement.data, 1):
        name = f"keyData {number}"
        try:
            content = base64.b64decode("".join(data.split()), validate=True)
        except ValueError:
            raise UnusableKeyError(f"{name} is not base64") from None
        _require_public(requirement, content, name)
        yield name, content


def _read(requirement: KeyRequirement, root: Path, text: str) -> bytes:
    """The content of a key's file; a relative path starts at the cluster directory."""
    try:
        content = read_trusted(root / user_path(text), root, MAX_KEY_BYTES)
    except UnusableFileError as error:
        raise UnusableKeyError(f"{text} {error}") from None
    except OSError as error:
        raise UnusableKeyError(f"{text} cannot be read: {error.strerror}") from None
    except (ValueError, RuntimeError):  # a null character, or the home of an unknown user
        raise UnusableKeyError(f"{text!r} is not a path") from None
    _require_public(requirement, content, text)
    return content


def _require_public(requirement: KeyRequirement, content: bytes, name: str) -> None:
    """Refuse what is a private key, or none of this kind at all. Raises UnusableKeyError."""
    is_gpg = isinstance(requirement, SignedBy)
    first = content[:1][0] if content else 0
    if re.search(rb"-----BEGIN [A-Z ]*PRIVATE KEY", content) or (is_gpg and first in _SECRET_PACKETS):
        raise UnusableKeyError(f"{name} is a private key, and only the public one is needed")
    if is_gpg and b"-----BEGIN PGP PUBLIC KEY BLOCK-----" not in content and first not in _PUBLIC_PACKETS:
        raise UnusableKeyError(f"{name} is not an OpenPGP public key")
    if not is_gpg and not re.search(rb"-----BEGIN [A-Z ]*PUBLIC KEY-----", content):
        raise UnusableKeyError(f"{name} is not a public key in PEM")
