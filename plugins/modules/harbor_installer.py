#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Harbor's installer: a tarball that is unpacked only when it is byte for byte the one that was declared."""

from __future__ import annotations

import base64
import http.client
import json
import re
import shutil
import tarfile
import tempfile
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.clusterctl.cluster.plugins.module_utils.apt_view import Proxies
from ansible_collections.clusterctl.cluster.plugins.module_utils.bounded import run_bounded
from ansible_collections.clusterctl.cluster.plugins.module_utils.harbor_host import release_directory
from ansible_collections.clusterctl.cluster.plugins.module_utils.http_fetch import Deadline, opened, pieces
from ansible_collections.clusterctl.cluster.plugins.module_utils.masking import mask_answer
from ansible_collections.clusterctl.cluster.plugins.module_utils.node_files import (
    CHUNK,
    replace_file,
    sha256_of,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.trusted_directory import trusted_directory

DOCUMENTATION = r"""
module: harbor_installer
short_description: Download, verify and unpack Harbor's installer
description:
  - Compares SHA-256, and the signature where a key is given, before anything is unpacked.
  - Refuses an archive of another release, with files outside of its own directory, or without images.
options:
  archive: {description: The tarball on this host; removed once it is unpacked, type: path, required: true}
  url: {description: Where it is downloaded from; empty where it was brought, type: str, default: ""}
  http_proxy: {description: Proxy for http, type: str, default: ""}
  https_proxy: {description: Proxy for https, type: str, default: ""}
  no_proxy: {description: Hosts to reach without a proxy, type: str, default: ""}
  sha256: {description: Its SHA-256, type: str, required: true}
  signature: {description: Its detached signature (ASCII armour), type: str, default: ""}
  key: {description: Public key of who signed it (ASCII armour); empty does not look, type: str, default: ""}
  version: {description: Harbor's release that it must be of, type: str, required: true}
  directory: {description: Where releases are unpacked, type: path, required: true}
  images_by_tag: {description: Allow an archive without images, type: bool, default: false}
author: ["the clusterctl authors"]
"""

EXAMPLES = r"""
- name: Unpack the installer
  clusterctl.cluster.harbor_installer:
    archive: /opt/harbor/harbor-v2.15.2.tgz
    sha256: 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
    version: v2.15.2
    directory: /opt/harbor
"""

RETURN = r"""
release: {description: Directory of the release, returned: always, type: str}
wanted: {description: Whether the tarball was not unpacked yet, returned: always, type: bool}
code:
  description: "Stable code of the failure: harbor.installer"
  returned: when the cause is known
  type: str
"""

MARK = ".unpacked.json"
INSIDE = "harbor"
# What Harbor's install.sh loads, where it is there.
IMAGES = "harbor*.tar.gz"
MUST_HAVE = ("install.sh", "prepare", "common.sh", "harbor.yml.tmpl")
VERIFY_S = 300
# A server that says nothing for so long says nothing more.
STALLED_S = 60
# The offline installer of v2.15 has 0.7 GB; 2 hours are 1 Mbit/s.
DOWNLOAD_S = 7200.0
MAX_ARCHIVE_BYTES = 4 << 30
STATUS = re.compile(r"^\[GNUPG:\] ([A-Z_]+)(?: (.*))?$", re.MULTILINE)
# https://github.com/gpg/gnupg/blob/master/doc/DETAILS#format-of-the-status-fd-output
DOUBTS = {
    "REVKEYSIG": "it is by a key that was revoked",
    "EXPKEYSIG": "it is by a key that has expired",
}
# The word of VALIDSIG with the hash algorithm, and those that others can collide (RFC 9580, 9.5).
HASH = 7
BROKEN_HASHES = {"1": "MD5", "2": "SHA-1", "3": "RIPEMD-160"}


class RefusedError(Exception):
    """The archive is not what was declared."""


def download(url: str, proxies: Proxies, target: Path) -> None:
    """Fetch it next to its place, then put it there as a whole. Raises OSError, ValueError, HTTPException."""
    part = target.with_name(f".{target.name}.part")
    target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    try:
        deadline = Deadline(DOWNLOAD_S)
        with (
            opened(url, deadline, stalled_s=STALLED_S, proxy_for=proxies.for_url) as answer,
            part.open("wb") as file,
        ):
            for piece in pieces(answer, deadline, MAX_ARCHIVE_BYTES):
                file.write(piece)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def require_digest(archive: Path, wanted: str) -> None:
    """Refuse an archive that is not byte for byte the declared one."""
    if not archive.is_file():
        raise RefusedError("it is not there")
    found = sha256_of(archive)
    if found != wanted:
        raise RefusedError(f"its SHA-256 is {found}, and {wanted} is declared")


def dearmor(armoured: str) -> bytes:
    """The bytes of an ASCII-armoured key: gpgv reads keyrings in binary only."""
    body = re.search(
        r"-----BEGIN [^-]+-----\n(?:[^\n]+: [^\n]*\n)*\n(.+?)\n(?:=|-----END)", armoured, re.DOTALL
    )
    if not body:
        raise RefusedError("harbor_installer_key holds no key in ASCII armour")
    return base64.b64decode(body[1])


def require_signature(archive: Path, signature: str, key: str) -> None:
    """Refuse an archive that was not signed with this key."""
    with tempfile.TemporaryDirectory() as kept:
        keyring, signed = Path(kept, "key.gpg"), Path(kept, "signature.asc")
        keyring.write_bytes(dearmor(key))
        signed.write_text(signature, encoding="utf-8")
        command = ["gpgv", "--status-fd", "1", "--keyring", str(keyring), str(signed), str(archive)]
        rc, status, err = run_bounded(command, VERIFY_S)
    if rc != 0:
        message = " ".join(line.removeprefix("gpgv: ") for line in err.splitlines()[-2:])
        raise RefusedError(f"its signature is not good: {message}")
    if why := why_doubtful(status):
        raise RefusedError(f"its signature is not good: {why}")


def why_doubtful(status: str) -> str:
    """Why a signature does not count although gpgv exits with 0, as for a revoked key; else empty."""
    found = STATUS.findall(status)
    names = [name for name, _ in found]
    if doubts := [why for name, why in DOUBTS.items() if name in names]:
        return doubts[0]
    valid = [words.split() for name, words in found if name == "VALIDSIG"]
    if [names.count(name) for name in ("NEWSIG", "GOODSIG")] != [1, 1] or [len(one) for one in valid] != [10]:
        return "it is not one good signature"
    broken = BROKEN_HASHES.get(valid[0][HASH])
    return f"it is over {broken}, which others can collide" if broken else ""


def members(archive: tarfile.TarFile) -> list[tarfile.TarInfo]:
    """What is to be unpacked; refuses whatever would lie elsewhere, and everything but files."""
    found = []
    for member in archive.getmembers():
        parts = Path(member.name).parts
        if parts[:1] != (INSIDE,) or ".." in parts or not (member.isfile() or member.isdir()):
            raise RefusedError(f"it holds {member.name!r}, which no installer of Harbor does")
        if member.isfile():
            found.append(member)
    return found


def release_of(prepare: str) -> str:
    """Which release an installer's `prepare` is of."""
    found = re.search(r"goharbor/prepare:(\S+)", prepare)
    return found[1] if found else "an unknown release"


def has_images(release: Path) -> bool:
    """Whether an installer brings Harbor's images, as the offline one does."""
    return any(path.is_file() for path in release.glob(IMAGES))


def require_images(there: bool, images_by_tag: bool) -> None:
    """Refuse an installer that brings no images: root would run what a registry gives under their tags."""
    if not there and not images_by_tag:
        raise RefusedError(
            "it brings no images, as the online installer: root would run what a registry gives under "
            "Harbor's tags, which no checksum covers. Declare the offline one, or set harbor_images_by_tag"
        )


def unpack(archive: Path, target: Path, version: str, *, images_by_tag: bool = False) -> bool:
    """Unpack next to the target, look at it, then move file by file: settings that lie there stay.

    Returns whether images came with it.
    """
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as kept, tarfile.open(archive) as stream:
        for member in members(stream):
            place = Path(kept, member.name)
            place.parent.mkdir(parents=True, exist_ok=True)
            source = stream.extractfile(member)
            if source is not None:
                with source, place.open("wb") as file:
                    shutil.copyfileobj(source, file, CHUNK)
            place.chmod(0o755 if member.mode & 0o111 else 0o644)
        root = Path(kept, INSIDE)
        if missing := [name for name in MUST_HAVE if not (root / name).is_file()]:
            raise RefusedError(f"it lacks {', '.join(missing)}")
        require_images(images := has_images(root), images_by_tag)
        found = release_of((root / "prepare").read_text(encoding="utf-8"))
        if found != version:
            raise RefusedError(f"it is of {found}, and {version} is declared")
        for path in sorted(root.rglob("*")):
            place = target / path.relative_to(root)
            if path.is_dir():
                place.mkdir(exist_ok=True)
            else:
                path.replace(place)
    return images


def main() -> None:
    """Ansible's entry."""
    module = AnsibleModule(
        argument_spec={
            "archive": {"type": "path", "required": True},
            "url": {"type": "str", "default": ""},
            "http_proxy": {"type": "str", "default": "", "no_log": True},
            "https_proxy": {"type": "str", "default": "", "no_log": True},
            "no_proxy": {"type": "str", "default": "", "no_log": False},
            "sha256": {"type": "str", "required": True},
            "signature": {"type": "str", "default": "", "no_log": False},
            "key": {"type": "str", "default": "", "no_log": False},
            "version": {"type": "str", "required": True},
            "directory": {"type": "path", "required": True},
            "images_by_tag": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    options = module.params
    archive, wanted_sum = Path(options["archive"]), options["sha256"].lower()
    release = release_directory(options["directory"], options["version"])
    mark = release / MARK
    known = json.loads(mark.read_text(encoding="utf-8")) if mark.is_file() else {}
    # Earlier versions did not record whether images came, and they may be removed once Docker has them.
    known_images = "images" in known or options["images_by_tag"] or has_images(release)
    wanted = known.get("sha256") != wanted_sum or not known_images
    if not wanted:
        try:
            require_images(known.get("images", True), options["images_by_tag"])
        except RefusedError as error:
            module.fail_json(
                msg=f"Harbor's installer in {release} is not used: {error}.", code="harbor.installer"
            )
    if wanted and not module.check_mode:
        try:
            # What lies below is run as root.
            with trusted_directory(Path(options["directory"]), make=True, follow=True):
                pass
            if options["url"]:
                proxies = Proxies(*(options[name] for name in ("http_proxy", "https_proxy", "no_proxy")))
                download(options["url"], proxies, archive)
            require_digest(archive, wanted_sum)
            if options["key"]:
                require_signature(archive, options["signature"], options["key"])
            images = unpack(archive, release, options["version"], images_by_tag=options["images_by_tag"])
        # A key that is not base64, an address that is none, a server that speaks no HTTP.
        except (
            RefusedError, tarfile.TarError, OSError, EOFError, ValueError, http.client.HTTPException
        ) as error:  # fmt: skip
            archive.unlink(missing_ok=True)
            reason = mask_answer(str(error), options.values())
            module.fail_json(
                msg=f"Harbor's installer was not unpacked: {reason}. Nothing of it was kept; "
                "see that harbor_installer_url is reached, and that sha256 and harbor_version fit it.",
                code="harbor.installer",
            )
        replace_file(mark, json.dumps({"sha256": wanted_sum, "images": images}) + "\n", 0o644)
        archive.unlink(missing_ok=True)
    module.exit_json(changed=wanted, wanted=wanted, release=str(release))


if __name__ == "__main__":
    main()
