#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The cluster's certificate authority, and certificates that it signs; made on the controller."""

from __future__ import annotations

import fcntl
import ipaddress
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule, missing_required_lib
from ansible_collections.clusterctl.cluster.plugins.module_utils.node_files import replace_file
from ansible_collections.clusterctl.cluster.plugins.module_utils.vaulted import Vault

try:
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    HAS_CRYPTOGRAPHY = True
except ImportError:
    HAS_CRYPTOGRAPHY = False

DOCUMENTATION = r"""
module: cluster_certificate
short_description: Make the cluster's certificate authority and certificates that it signs
description:
  - Runs on the controller. Makes an authority where there is none, and a server certificate.
  - A certificate is made again when it nears its end, names other hosts, or was signed by another authority.
  - An authority that is there is never replaced; a site may put its own there. Keys have mode 0600.
  - Where C(ANSIBLE_VAULT_PASSWORD_FILE) or C(ANSIBLE_VAULT_IDENTITY_LIST) is set, keys are encrypted by
    Ansible Vault, those that were written before, too. C(lookup('ansible.builtin.file')) reads either form.
options:
  directory: {description: Where ca.crt and ca.key are, type: path, required: true}
  cluster: {description: Name in the authority's subject, type: str, default: cluster}
  certificate: {description: Certificate to make, type: path}
  key: {description: Its key; required with O(certificate), type: path}
  names: {description: Host names and addresses that it is for, type: list, elements: str, default: []}
  valid_days: {description: Days that a new certificate is valid, type: int, default: 397}
  renew_before_days: {description: Days before its end that it is made again, type: int, default: 60}
author: ["the clusterctl authors"]
"""

EXAMPLES = r"""
- name: Make the registry's certificate
  clusterctl.cluster.cluster_certificate:
    directory: "{{ inventory_dir }}/.clusterctl/ca"
    certificate: "{{ inventory_dir }}/.clusterctl/ca/registry01.crt"
    key: "{{ inventory_dir }}/.clusterctl/secrets/registry01.key"
    names: [registry01, 10.0.0.5]
  delegate_to: localhost
  become: false
"""

RETURN = r"""
ca_certificate: {description: The authority's certificate in PEM, returned: always, type: str}
certificate_pem: {description: The certificate in PEM, returned: with O(certificate), type: str}
not_after: {description: When the certificate ends, returned: with O(certificate), type: str}
because: {description: Why it was made, returned: always, type: list}
"""

CA_DAYS = 3650
# A node's clock may be a little behind the controller's.
CLOCK_SLACK = timedelta(hours=1)


@dataclass(frozen=True)
class Pair:
    """A certificate and its private key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    def certificate_pem(self) -> bytes:
        """The certificate as PEM."""
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    def key_pem(self) -> bytes:
        """The key as unencrypted PKCS#8 PEM."""
        return self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )


def make_authority(cluster: str, now: datetime) -> Pair:
    """A new self-signed authority that may sign servers but no further authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"clusterctl {cluster} CA"[:64])])
    usage = x509.KeyUsage(
        digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False,
        key_encipherment=False,
        data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    builder = _builder(name, name, key, now, CA_DAYS)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(usage, critical=True)
    return Pair(builder.sign(key, hashes.SHA256()), key)


def make_server(authority: Pair, names: list[str], now: datetime, days: int) -> Pair:
    """A new server certificate for `names`, signed by `authority`, never outliving it."""
    key = ec.generate_private_key(ec.SECP256R1())
    days = min(days, (authority.certificate.not_valid_after_utc - now).days)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0][:64])])
    builder = _builder(subject, authority.certificate.subject, key, now, days)
    alternatives = x509.SubjectAlternativeName([_general_name(name) for name in names])
    server = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(alternatives, critical=False).add_extension(server, critical=False)
    return Pair(builder.add_extension(issuer, critical=False).sign(authority.key, hashes.SHA256()), key)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime, days: int
) -> x509.CertificateBuilder:
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now - CLOCK_SLACK).not_valid_after(now + timedelta(days=days))
    return builder.add_extension(identifier, critical=False)


def _general_name(name: str) -> x509.GeneralName:
    try:
        # `registry_address` may be in the form that URLs have.
        return x509.IPAddress(ipaddress.ip_address(name.strip("[]")))
    except ValueError:
        return x509.DNSName(name)


def why_renew(
    pair: Pair | None, authority: Pair, names: list[str], now: datetime, before_days: int
) -> list[str]:
    """Reasons to make the certificate again; none when it serves."""
    if pair is None:
        return ["there is none yet"]
    reasons = []
    if pair.certificate.not_valid_after_utc - now < timedelta(days=before_days):
        reasons.append(f"it ends {pair.certificate.not_valid_after_utc:%Y-%m-%d}")
    try:
        found = pair.certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        found = x509.SubjectAlternativeName([])
    if missing := [name for name in names if _general_name(name) not in found]:
        reasons.append(f"it is not for {', '.join(missing)}")
    if not _signed_by(pair.certificate, authority.certificate):
        reasons.append("another authority signed it")
    if pair.key.public_key() != pair.certificate.public_key():
        reasons.append("its key belongs to another certificate")
    return reasons


def _signed_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True


def load(certificate: Path, key: Path, vault: Vault) -> Pair | None:
    """The pair on disk, None when either file is missing. Raises ValueError on a file that is no PEM."""
    if not certificate.is_file() or not key.is_file():
        return None
    loaded = serialization.load_pem_private_key(vault.read(key).encode(), password=None)
    return Pair(x509.load_pem_x509_certificate(certificate.read_bytes()), loaded)


def save(pair: Pair, certificate: Path, key: Path, vault: Vault) -> None:
    """Write the pair, each file atomically; the key is never readable by others."""
    for path in (key, certificate):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_file(key, vault.encrypt(pair.key_pem().decode()), 0o600)
    replace_file(certificate, pair.certificate_pem(), 0o644)


def encrypt_kept(key: Path, vault: Vault, *, check_mode: bool) -> list[str]:
    """Encrypt a key that was written before a vault password was configured; the reason, if it was due."""
    if not vault.lacks(key):
        return []
    if not check_mode:
        replace_file(key, vault.encrypt(key.read_text(encoding="utf-8")), 0o600)
    return [f"{key.name} was not encrypted"]


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hosts of one play make the authority once."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(directory / ".lock", flags, 0o600), "w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def ensure(module: AnsibleModule, vault: Vault) -> dict[str, object]:
    """Make what is missing or unfit; in check mode only in memory."""
    options, now = module.params, datetime.now(tz=timezone.utc)
    directory = Path(options["directory"])
    because: list[str] = []
    authority = load(directory / "ca.crt", directory / "ca.key", vault)
    if authority is None:
        if (directory / "ca.crt").exists() or (directory / "ca.key").exists():
            raise ValueError(f"{directory} holds half an authority; put ca.crt and ca.key there, or neither")
        authority = make_authority(options["cluster"], now)
        because.append("there was no authority")
        if not module.check_mode:
            save(authority, directory / "ca.crt", directory / "ca.key", vault)
    because += encrypt_kept(directory / "ca.key", vault, check_mode=module.check_mode)
    if authority.certificate.not_valid_after_utc < now:
        raise ValueError(f"{directory}/ca.crt ended {authority.certificate.not_valid_after_utc:%Y-%m-%d}")
    result: dict[str, object] = {"ca_certificate": authority.certificate_pem().decode()}
    if options["certificate"]:
        certificate, key = Path(options["certificate"]), Path(options["key"])
        pair = load(certificate, key, vault)
        reasons = why_renew(pair, authority, options["names"], now, options["renew_before_days"])
        if reasons or pair is None:
            pair = make_server(authority, options["names"], now, options["valid_days"])
            because += reasons
            if not module.check_mode:
                save(pair, certificate, key, vault)
        because += encrypt_kept(key, vault, check_mode=module.check_mode)
        result["certificate_pem"] = pair.certificate_pem().decode()
        result["not_after"] = pair.certificate.not_valid_after_utc.isoformat()
    return {**result, "changed": bool(because), "because": because}


def main() -> None:
    """Ansible's entry."""
    module = AnsibleModule(
        argument_spec={
            "directory": {"type": "path", "required": True},
            "cluster": {"type": "str", "default": "cluster"},
            "certificate": {"type": "path"},
            "key": {"type": "path", "no_log": False},
            "names": {"type": "list", "elements": "str", "default": []},
            "valid_days": {"type": "int", "default": 397},
            "renew_before_days": {"type": "int", "default": 60},
        },
        required_by={"certificate": ["key"]},
        supports_check_mode=True,
    )
    if not HAS_CRYPTOGRAPHY:
        module.fail_json(msg=missing_required_lib("cryptography"))
    if module.params["certificate"] and not module.params["names"]:
        module.fail_json(msg="A certificate needs the names that it is for: set `names`.")
    vault = Vault()
    try:
        if module.check_mode:
            module.exit_json(**ensure(module, vault))
        with locked(Path(module.params["directory"])):
            result = ensure(module, vault)
    except (ValueError, OSError) as error:
        module.fail_json(msg=f"{error}. The cluster's authority is in {module.params['directory']}.")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
