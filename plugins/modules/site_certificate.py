#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A certificate that a site brought, judged on the controller before a service gets it."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule, missing_required_lib

try:
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes, serialization

    HAS_CRYPTOGRAPHY = True
except ImportError:
    HAS_CRYPTOGRAPHY = False

DOCUMENTATION = r"""
module: site_certificate
short_description: Judge a certificate, its key and its chain
description:
  - Runs on the controller and changes nothing.
  - Fails where a service with this certificate would not be trusted.
options:
  certificate: {description: The certificate with its chain (PEM), type: path, required: true}
  key: {description: Its private key (PEM), type: path, required: true}
  authority: {description: Authority that it must lead to; empty does not look, type: path, default: ""}
  names: {description: Names and addresses that it must be for, type: list, elements: str, required: true}
  warn_before_days: {description: Days before its end that it is warned of, type: int, default: 60}
author: ["the clusterctl authors"]
"""

EXAMPLES = r"""
- name: Judge the site's certificate
  clusterctl.cluster.site_certificate:
    certificate: /etc/site/registry.crt
    key: /etc/site/registry.key
    names: [registry.example.org]
  delegate_to: localhost
  become: false
"""

RETURN = r"""
not_after: {description: When it ends, returned: always, type: str}
sha256: {description: Fingerprint of the first certificate, returned: always, type: str}
soon: {description: Why it should be renewed now; empty where not, returned: always, type: str}
code:
  description: "Stable code of the failure: harbor.certificate"
  returned: when the cause is known
  type: str
"""


@dataclass(frozen=True)
class Brought:
    """What the site brought: the certificate and its chain, the key's public half, who is trusted."""

    chain: list[x509.Certificate]
    public_key: bytes
    authorities: list[x509.Certificate]


@dataclass(frozen=True)
class Judgement:
    """What is wrong, and what will be soon."""

    errors: list[str]
    soon: str


def covers(certificate: x509.Certificate, name: str) -> bool:
    """Whether the certificate is for this host name or address; the common name does not count."""
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return False
    try:
        return ipaddress.ip_address(name) in found.get_values_for_type(x509.IPAddress)
    except ValueError:
        pass
    names = [one.lower() for one in found.get_values_for_type(x509.DNSName)]
    return name.lower() in names or f"*.{name.lower().partition('.')[2]}" in names


def leads_to(chain: list[x509.Certificate], authorities: list[x509.Certificate]) -> bool:
    """Whether the first certificate was signed, link by link, by one of the authorities."""
    for number, certificate in enumerate(chain):
        if any(certificate == one or signed_by(certificate, one) for one in authorities):
            return True
        if number + 1 == len(chain) or not signed_by(certificate, chain[number + 1]):
            return False
    return False


def signed_by(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    """Whether `issuer` signed the certificate."""
    try:
        certificate.verify_directly_issued_by(issuer)
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True


def judge(brought: Brought, names: list[str], now: datetime, warn_days: int) -> Judgement:
    """Everything that is wrong at once."""
    first, errors = brought.chain[0], []
    if public(first.public_key()) != brought.public_key:
        errors.append("its key belongs to another certificate")
    if missing := [name for name in names if not covers(first, name)]:
        errors.append(f"it is not for {', '.join(missing)}")
    if now >= first.not_valid_after_utc:
        errors.append(f"it ended {first.not_valid_after_utc:%Y-%m-%d %H:%M} UTC")
    if now < first.not_valid_before_utc:
        errors.append(f"it starts only {first.not_valid_before_utc:%Y-%m-%d %H:%M} UTC")
    if brought.authorities and not leads_to(brought.chain, brought.authorities):
        errors.append("its chain does not lead to the declared authority")
    left = first.not_valid_after_utc - now
    soon = f"it ends {first.not_valid_after_utc:%Y-%m-%d}" if left < timedelta(days=warn_days) else ""
    return Judgement(errors, "" if errors else soon)


def public(key: object) -> bytes:
    """A public key's own bytes, to compare."""
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return key.public_bytes(serialization.Encoding.DER, form)  # type: ignore[attr-defined]


def main() -> None:
    """Ansible's entry."""
    module = AnsibleModule(
        argument_spec={
            "certificate": {"type": "path", "required": True},
            "key": {"type": "path", "required": True, "no_log": False},
            "authority": {"type": "path", "default": ""},
            "names": {"type": "list", "elements": "str", "required": True},
            "warn_before_days": {"type": "int", "default": 60},
        },
        supports_check_mode=True,
    )
    if not HAS_CRYPTOGRAPHY:
        module.fail_json(msg=missing_required_lib("cryptography"))
    options = module.params
    where = options["certificate"]
    try:
        chain = x509.load_pem_x509_certificates(Path(where).read_bytes())
        where = options["key"]
        key = serialization.load_pem_private_key(Path(where).read_bytes(), password=None)
        where = options["authority"]
        authorities = x509.load_pem_x509_certificates(Path(where).read_bytes()) if where else []
    except (OSError, ValueError, TypeError) as error:
        module.fail_json(
            msg=f"{where} cannot be used: {error}. Give PEM files, the key without a passphrase."
        )
    brought = Brought(chain, public(key.public_key()), authorities)
    judged = judge(brought, options["names"], datetime.now(timezone.utc), options["warn_before_days"])
    if judged.errors:
        module.fail_json(
            msg=f"{options['certificate']} cannot serve: {', and '.join(judged.errors)}. "
            "It was not installed; provide a suitable certificate.",
            code="harbor.certificate",
        )
    if judged.soon:
        module.warn(f"{options['certificate']}: {judged.soon}. Bring its successor and apply again.")
    module.exit_json(
        changed=False,
        not_after=chain[0].not_valid_after_utc.isoformat(),
        sha256=chain[0].fingerprint(hashes.SHA256()).hex(),
        soon=judged.soon,
    )


if __name__ == "__main__":
    main()
