# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE)
"""The key that this system's dkms signs modules with, and whether Secure Boot trusts it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from ansible_collections.clusterctl.cluster.plugins.module_utils.apt_view import RunFull
from ansible_collections.clusterctl.cluster.plugins.module_utils.gpu_node import os_release, read_text

FRAMEWORK = "etc/dkms/framework.conf"
DEBIAN_KEY = ("/var/lib/dkms/mok.key", "/var/lib/dkms/mok.pub")
UBUNTU_KEY = ("/var/lib/shim-signed/mok/MOK.priv", "/var/lib/shim-signed/mok/MOK.der")
# As mokutil answers; a key in the firmware's own list or in the kernel's is trusted as well.
TRUSTED = ("is already enrolled", "is already in db", "is already in the built-in trusted keyring")
REQUESTED = "is already in the enrollment request"
UNKNOWN_TO_SHIM = "is not enrolled"
# In dbx, or in MokListX (MokListXRT up to mokutil 0.6).
BLOCKED = "is blocked in "
PKCS11 = "pkcs11:"


@dataclass(frozen=True)
class SigningKey:
    """Where private key and certificate are; the key may be a PKCS#11 address."""

    private: str
    certificate: str


def signing_key(root: Path, kernel: str) -> SigningKey:
    """The key by dkms' own rules: its configuration first, then the distribution's place for it."""
    files = [root / FRAMEWORK, *sorted((root / f"{FRAMEWORK}.d").glob("*.conf"))]
    configured = {}
    for line in "\n".join(read_text(file) for file in files).splitlines():
        if match := re.match(r"""\s*(mok_signing_key|mok_certificate)=(["']?)(.*?)\2\s*(#.*)?$""", line):
            value = match.group(3).replace("${kernelver}", kernel).replace("$kernelver", kernel)
            configured[match.group(1)] = value
    if not configured.get("mok_signing_key") and os_release(root)["id"] == "ubuntu":
        return SigningKey(*UBUNTU_KEY)
    return SigningKey(
        configured.get("mok_signing_key") or DEBIAN_KEY[0], configured.get("mok_certificate") or DEBIAN_KEY[1]
    )


def enrolment(run: RunFull, root: Path, key: SigningKey) -> str:
    """`enrolled`, `requested`, `absent` (neither), `blocked`, `no key` (not made yet), or `unknown` and why.

    A certificate without its private key is no key: dkms replaces both.
    """
    certificate = root / key.certificate.lstrip("/")
    files = [certificate] if key.private.startswith(PKCS11) else [certificate, root / key.private.lstrip("/")]
    if not all(file.is_file() for file in files):
        return "no key"
    # Its exit code was another before 0.7.3; what it prints was not.
    _, output, error = run(["mokutil", "--test-key", str(certificate)])
    answer = f"{output}\n{error}"
    if any(words in answer for words in TRUSTED):
        return "enrolled"
    if REQUESTED in answer:
        return "requested"
    if BLOCKED in answer:
        return "blocked"
    if UNKNOWN_TO_SHIM in answer:
        return "absent"
    # Before it says what is wrong, it may complain that it cannot read the kernel's keys.
    return f"unknown: {answer.strip().splitlines()[-1] if answer.strip() else 'mokutil does not answer'}"
