"""A key of OpenPGP, as GnuPG exports it, and packets as nobody exports them."""

from __future__ import annotations

import base64

# Made for these tests with `gpg --quick-generate-key`, ed25519, and a subkey for encryption.
FINGERPRINT = "2FE6A8EB64B78EF9D7CE5C7EA7A7A67A0513E909"
SUBKEY = "B89DFA8644497BEB637E3EFC29177603B459822C"
ARMORED = b"""-----BEGIN PGP PUBLIC KEY BLOCK-----

mDMEawVVpRYJKwYBBAHaRw8BAQdAkORMvVgoGUqPbtPpk4COLibuuT3shPPRadkp
MBix3ce0HmNsdXN0ZXJjdGwgdGVzdCA8dGVzdEBpbnZhbGlkPoiPBBMWCAA4FiEE
L+ao62S3jvnXzlx+p6emegUT6QkFAmsFVaUCGwMFCwkIBwIGFQoJCAsCBBYCAwEC
HgECF4AACgkQp6emegUT6QlEmgD48R0xf6UCxniI2s5IRzupEbvYNtytCEZRXAvD
O5upCwEA3yt/g8AwVMr6heY0I4p1swQQtfh0sm0UwULW5eJXaw64OARrBVWlEgor
BgEEAZdVAQUBAQdAEUYT3aXozgP9h69ZSqTxYnEgFpYf/WaGbjXMLNG8kSQDAQgH
iHgEGBYIACAWIQQv5qjrZLeO+dfOXH6np6Z6BRPpCQUCawVVpQIbDAAKCRCnp6Z6
BRPpCfTUAQD477V2HiPfA+D7NBTVlnvdJ+K9K6TAkmSz9JTGXxPouwD8CnGi14tq
omHw1OUlMfvJXO2MkFsCkp+YkqtkmcLp9QI=
=5Xfb
-----END PGP PUBLIC KEY BLOCK-----
"""
BINARY = base64.b64decode(b"".join(ARMORED.splitlines()[2:-2]))


def packet(kind: int, body: bytes) -> bytes:
    """A packet in the current format."""
    return bytes([0xC0 | kind, 255]) + len(body).to_bytes(4, "big") + body


def foreign_key(version: int = 4) -> bytes:
    """Another key's packets: as much of a key as its fingerprint is made of."""
    return packet(6, bytes([version]) + bytes(range(50))) + packet(13, b"somebody else")


def armored(binary: bytes) -> bytes:
    """In ASCII armour, without a checksum, which newer programs do not write."""
    lines = base64.encodebytes(binary)
    return b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n" + lines + b"-----END PGP PUBLIC KEY BLOCK-----\n"
