# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE)
"""What pulling an image and copying one have in common: digests, and failures in one sentence."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.clusterctl.cluster.plugins.module_utils.masking import mask_urls

DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
# What a registry's refusal is known by, in the words of Docker, containerd and skopeo.
EXPIRED = r"certificate has expired"
TOO_MANY = r"toomanyrequests|too many requests|\bHTTP 429\b|StatusCode: 429|status code from registry 429"
ITS_OWN_ERROR = r"\b5\d\d \(?(Internal|Not|Bad|Service|Gateway|Insufficient)|StatusCode: 5\d\d"
REFUSED = (
    r"unauthorized|authentication required|no basic auth credentials|denied|\b40[13] \(?(Unauth|Forb)"
    r"|StatusCode: 40[13]|\bHTTP 40[13]\b"
)
# The codes of a failed pull or copy, by signs in the program's error; the first that is found applies.
CODES = {
    r"no space left on device|disk quota exceeded": "host.disk-full",
    r"read-only file ?system": "host.read-only",
    r"x509|certificate": "registry.certificate",
    TOO_MANY: "registry.too-many-requests",
    REFUSED: "registry.login-refused",
    r"no such host|temporary failure in name resolution|name or service not known": "host.dns",
    r"manifest unknown|not found": "registry.no-image",
}


def require_digest(module: AnsibleModule, digest: str) -> None:
    """Ends the module where `digest` is none."""
    if not DIGEST.fullmatch(digest):
        module.fail_json(msg=f"{digest!r} is not a digest (sha256: and 64 hexadecimal digits).")


def find_program(module: AnsibleModule, name: str, role: str, **absent: object) -> str:
    """The program's path; ends the module where it is not here: in check mode `role` would bring it."""
    path = module.get_bin_path(name)
    if path:
        return path
    if module.check_mode:
        module.exit_json(changed=True, wanted=True, **absent)
    module.fail_json(msg=f"{name} is not on this host; apply the {role} first.")
    return ""  # not reached: fail_json ends the module


def code_of(error: str) -> str:
    """The code of a failed pull or copy, by what Docker, containerd or skopeo printed."""
    found = (code for sign, code in CODES.items() if re.search(sign, error, re.IGNORECASE))
    return next(found, "registry.unreachable")


def failure(what: str, reason: str, error: str, cures: Mapping[str, str], otherwise: str) -> str:
    """One sentence: what failed, why, and the cure of the first sign (a pattern) in the program's error."""
    found = (cure for sign, cure in cures.items() if re.search(sign, error, re.IGNORECASE))
    return f"{what}: {mask_urls(reason.strip())}; {next(found, otherwise)}."
