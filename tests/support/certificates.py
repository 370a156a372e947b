"""Certificates for tests: from when until when, for whom, and signed by whom the test says."""

from __future__ import annotations

import datetime

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAY = datetime.timedelta(days=1)
BACKDATED = 60 * DAY


def named(text: str) -> x509.Name:
    """What a subject or an issuer is called."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def unsigned(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, ends: datetime.timedelta
) -> x509.CertificateBuilder:
    """One that is valid since long, and for ``ends`` from now on."""
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + ends)
    )


def certificate_pem(builder: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey) -> bytes:
    """Signed with this key."""
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """A secret key, in clear."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def own_authority(host: x509.GeneralName, ends: datetime.timedelta) -> tuple[bytes, bytes]:
    """A certificate that is its own authority, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = named("test")
    made = (
        unsigned(name, name, key, ends)
        .add_extension(x509.SubjectAlternativeName([host]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    )
    return certificate_pem(made, key), key_pem(key)
