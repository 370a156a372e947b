"""Keys of the lab: the operator's SSH key, and the authority that vouches for the depot."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from clusterctl.cluster.state_files import replace_file
from clusterlab.names import DEPOT

# Valid from a while ago: the clocks of nodes may be skewed, by accident or as a fault.
BACKDATED = timedelta(days=2)
VALID = timedelta(days=3650)


def ensure_ssh_key(path: Path) -> str:
    """Make the operator's Ed25519 key where it is missing; returns the public key's line."""
    public = path.with_name(f"{path.name}.pub")
    if not path.exists():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        key = ed25519.Ed25519PrivateKey.generate()
        line = key.public_key().public_bytes(
            serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
        )
        replace_file(public, f"{line.decode()} clusterctl-lab\n", 0o644)
        replace_file(path, _pem(key, serialization.PrivateFormat.OpenSSH))
    return public.read_text(encoding="ascii").strip()


def ensure_authority(directory: Path) -> tuple[Path, Path]:
    """Make a certificate authority where it is missing; returns the paths of ca.crt and ca.key."""
    certificate, secret = directory / "ca.crt", directory / "ca.key"
    if not (certificate.exists() and secret.exists()):
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name("clusterctl lab authority")
        signed = (
            _certificate(name, name, key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(signs=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        replace_file(secret, _pem(key, serialization.PrivateFormat.PKCS8))
        _write_certificate(certificate, signed)
    return certificate, secret


def ensure_depot_certificate(authority: Path, target: Path, address: str) -> None:
    """Make ``depot.crt`` and ``depot.key`` in ``target``, where missing, for ``depot`` and its address."""
    certificate, secret = target / f"{DEPOT}.crt", target / f"{DEPOT}.key"
    if certificate.exists() and secret.exists():
        return
    issuer_path, issuer_key_path = ensure_authority(authority)
    issuer = x509.load_pem_x509_certificate(issuer_path.read_bytes())
    issuer_key = serialization.load_pem_private_key(issuer_key_path.read_bytes(), password=None)
    assert isinstance(issuer_key, ec.EllipticCurvePrivateKey)  # noqa: S101 - we made it, in ensure_authority
    key = ec.generate_private_key(ec.SECP256R1())
    names = [x509.DNSName(DEPOT), x509.IPAddress(ipaddress.ip_address(address))]
    signed = (
        _certificate(_name(DEPOT), issuer.subject, key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False
        )
        .sign(issuer_key, hashes.SHA256())
    )
    target.mkdir(parents=True, exist_ok=True)
    replace_file(secret, _pem(key, serialization.PrivateFormat.PKCS8))
    _write_certificate(certificate, signed)


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    start = datetime.now(UTC) - BACKDATED
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + VALID)
    )


def _key_usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _pem(
    key: ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey, form: serialization.PrivateFormat
) -> str:
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()).decode()


def _write_certificate(path: Path, certificate: x509.Certificate) -> None:
    replace_file(path, certificate.public_bytes(serialization.Encoding.PEM).decode(), 0o644)
