# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE)
"""The key of a package repository: fetched, and refused unless every key in it is pinned."""

from __future__ import annotations

import http.client
import io
import subprocess
import tarfile
import tempfile
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.clusterctl.cluster.plugins.module_utils.apt_view import Proxies
from ansible_collections.clusterctl.cluster.plugins.module_utils.http_fetch import Deadline, opened, pieces
from ansible_collections.clusterctl.cluster.plugins.module_utils.masking import mask_answer, mask_urls
from ansible_collections.clusterctl.cluster.plugins.module_utils.openpgp_keys import (
    LARGEST,
    UnusableKeyError,
    fingerprints,
    normalize,
)

FETCH_S = 60.0
# cuda-keyring unpacks to some 10 kB.
LARGEST_UNPACKED = 16 << 20


class Member(tarfile.TarInfo):
    """A member of a Debian package's archive: of a kind that dpkg unpacks, and of a size that is one.

    tarfile goes back by a negative size, and reads the same member for ever.
    """

    @classmethod
    def frombuf(cls, buf: bytes, encoding: str, errors: str) -> Member:
        """As tarfile's own; raises ValueError too."""
        found = super().frombuf(buf, encoding, errors)
        if found.type not in tarfile.SUPPORTED_TYPES or found.type == tarfile.GNUTYPE_SPARSE:
            raise ValueError(f"it is no Debian package: a member is of type {found.type!r}")
        if not 0 <= found.size <= LARGEST_UNPACKED:
            raise ValueError(f"it is no Debian package: a member has {found.size} bytes")
        return found


def fetch(url: str, proxies: Proxies) -> bytes:
    """The document at a URL, within FETCH_S and of LARGEST bytes at most; raises OSError, ValueError."""
    deadline = Deadline(FETCH_S)
    try:
        with opened(url, deadline, proxy_for=proxies.for_url) as answer:
            return b"".join(pieces(answer, deadline, LARGEST))
    except http.client.HTTPException as error:
        raise ValueError(f"the server's answer is not HTTP: {error}") from None


def key_of_package(package: bytes) -> bytes:
    """The first keyring that a Debian package ships; raises ValueError."""
    with tempfile.NamedTemporaryFile(suffix=".deb") as file:
        file.write(package)
        file.flush()
        command = ["dpkg-deb", "--fsys-tarfile", file.name]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            archive = process.stdout.read(LARGEST_UNPACKED + 1)
            process.kill()  # it has ended, or is about to write what nobody reads
    if not archive or len(archive) > LARGEST_UNPACKED:
        raise ValueError("it is no Debian package, or none of a keyring's size")
    return keyring_of(archive)


def keyring_of(archive: bytes) -> bytes:
    """The first keyring in a Debian package's archive of files; raises ValueError."""
    try:
        # "r:": dpkg-deb has unpacked it; what is compressed once more is no archive.
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:", tarinfo=Member) as tar:
            for member in tar:
                if "/keyrings/" not in member.name or not member.isfile():
                    continue
                if member.size > LARGEST:
                    raise ValueError(f"its keyring {member.name[:100]!r} is too large")
                content = tar.extractfile(member)
                if content is not None:
                    return content.read(LARGEST + 1)
    except (tarfile.TarError, RecursionError, OverflowError, MemoryError) as error:
        raise ValueError(f"it is no Debian package: {error}") from None
    raise ValueError("it ships no keyring")


def key_address(params: dict) -> str:
    """Where the key is read from."""
    return params["key_url"] or params["keyring_package_url"]


def read_key(params: dict, proxies: Proxies) -> bytes:
    """The repository's key as it is served; raises OSError, ValueError."""
    if params["key_url"]:
        return fetch(params["key_url"], proxies)
    return key_of_package(fetch(params["keyring_package_url"], proxies))


def get_key(module: AnsibleModule, proxies: Proxies) -> bytes:
    """The repository's key; ends the module where it cannot be had."""
    try:
        return read_key(module.params, proxies)
    except (OSError, ValueError) as error:
        url = key_address(module.params)
        reason = mask_answer(str(error), (url, proxies.http, proxies.https))
        module.fail_json(
            msg=f"The repository's key cannot be read from {mask_urls(url)}: {reason}. "
            "Check the repository URL, and that this host reaches it (site_http_proxy, site_no_proxy).",
            code="packages.source-down",
        )
        raise  # not reached: fail_json ends the module


def pinned_fingerprints(module: AnsibleModule) -> set[str]:
    """The fingerprints that are declared; ends the module where there is none, or one is malformed."""
    try:
        found = {normalize(one) for one in module.params["key_fingerprints"]}
    except ValueError as error:
        refuse(module, f"A declared key fingerprint cannot be used: {error}.")
    if not found:
        refuse(module, "No fingerprint is declared for the repository's key.")
    return found


def require_pinned(module: AnsibleModule, key: bytes, pinned: set[str]) -> None:
    """Ends the module unless every key in the file is pinned."""
    url = mask_urls(key_address(module.params))
    try:
        foreign = sorted(set(fingerprints(key)) - pinned)
    except UnusableKeyError as error:
        refuse(module, f"The repository's key from {url} cannot be judged: {error}.")
    if foreign:
        refuse(
            module,
            f"The repository's key from {url} is not the declared one: it holds {', '.join(foreign[:3])}, "
            f"and declared is {', '.join(sorted(pinned))}.",
        )


def refuse(module: AnsibleModule, because: str) -> None:
    """Ends the module: nothing was written."""
    module.fail_json(
        msg=f"{because} Nothing was written. If this repository is signed with another key, compare its "
        "fingerprint with what the owner publishes and declare it: the setting that ends in "
        "_repository_key_fingerprints.",
        code="packages.key-refused",
    )


def holds_pinned_keys_alone(file: Path, pinned: set[str]) -> bool:
    """Whether a key file on this host holds no key that is not pinned."""
    try:
        return set(fingerprints(file.read_bytes())) <= pinned
    except (OSError, UnusableKeyError):
        return False


def dropped_keys(file: Path, pinned: set[str]) -> set[str]:
    """The keys in a key file on this host that were pinned when it was written, and are no more."""
    try:
        return set(fingerprints(file.read_bytes())) - pinned
    except (OSError, UnusableKeyError):
        return set()


def usable_key(module: AnsibleModule, proxies: Proxies, pinned: set[str]) -> bytes | None:
    """The repository's key, compared; None in check mode where it cannot be read yet."""
    if module.check_mode:
        try:
            key = read_key(module.params, proxies)
        except (OSError, ValueError):
            # An apply may first do what lets this host reach the source.
            return None
    else:
        key = get_key(module, proxies)
    require_pinned(module, key, pinned)
    return key
