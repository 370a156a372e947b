"""Where a bundle comes from: a signature of its index, made and verified by ssh-keygen.

The index names every part by its SHA-256, and each part is compared as it is read: so who signed the index
signed every byte that is loaded. The signature is that of `ssh-keygen -Y sign -n clusterctl-bundle`.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from clustercheck.parse.plain_text import one_line
from clusterctl.cluster.bounded_file import UnusableFileError, describe_unusable, read_bounded_text
from clusterctl.cluster.known_hosts import HostKey
from clusterctl.cluster.private_place import private_place
from clusterctl.cluster.public_keys import public_key
from clusterctl.cluster.state_files import replace_file
from clusterctl.errors import EXIT_CLUSTER_BAD, ClusterctlError

# Also the name that ssh-keygen knows a signer by.
SETTING = "images_bundle_signers"
# The code of what is wrong with it.
SIGNERS = "images.bundle-signers"
SUFFIX = ".sig"
NAMESPACE = "clusterctl-bundle"
# A signature of RSA with 16384 bits has some 6 kB.
LARGEST_SIGNATURE = 64 * 1024
VERIFY_S = 60.0
# A passphrase may have to be typed, a security key to be touched.
SIGN_S = 600.0
PROGRAM = "ssh-keygen"


@dataclass(frozen=True)
class TrustPolicy:
    """What makes a bundle one that is loaded.

    ``signers``: public keys of the settings. ``pinned``: the index was compared with a SHA-256 that came
    another way than the bundle. ``allow_unsigned``: the operator accepts a bundle without a signature.
    """

    signers: Sequence[str]
    pinned: bool = False
    allow_unsigned: bool = False


def signature_of(index: Path) -> Path:
    """Where the signature of an index lies: next to it."""
    return index.with_name(index.name + SUFFIX)


def require_signing_key(key: Path) -> None:
    """See that there is something to sign with. Raises ClusterctlError (``images.bundle-sign``)."""
    try:
        is_file = key.is_file()
    except OSError as error:
        raise _cannot_sign(error.strerror or str(error), key) from None
    if not is_file:
        raise _cannot_sign("there is no such file", key)
    done = _keygen(["-l", "-f", str(key)], b"", VERIFY_S)
    if done.returncode != 0:
        raise _cannot_sign(_said(done), key)


def sign(raw: bytes, index: Path, key: Path) -> Path:
    """Sign the bytes of an index with a private key, or with one of the agent that a public key names.

    Not those that lie at ``index`` by now. Raises ClusterctlError (``images.bundle-sign``, ``ssh.missing``).
    """
    done = _keygen(["-Y", "sign", "-n", NAMESPACE, "-f", str(key)], raw, SIGN_S)
    if done.returncode != 0 or not done.stdout:
        raise _cannot_sign(_said(done), key)
    target = signature_of(index)
    replace_file(target, done.stdout.decode("ascii"), mode=0o644)
    return target


def require_trusted(raw: bytes, index: Path, policy: TrustPolicy) -> str:
    """Refuse an index whose origin cannot be verified; ``raw`` are its bytes, as they will be read.

    Returns how it was verified, as a sentence. Raises ClusterctlError (``images.bundle-unsigned``,
    ``images.bundle-signature``, ``images.bundle-signers``, ``ssh.missing``).
    """
    if policy.pinned:
        return "the bundle's index has the SHA-256 that was given"
    signers = [_signer(line) for line in policy.signers]
    signature = signature_of(index)
    if signers and signature.exists():
        return f"the bundle is signed by {_verified(raw, signature, signers)}"
    if policy.allow_unsigned:
        return "the origin of the bundle is not verified: --allow-unsigned"
    because = (
        f"there is no {signature.name} next to its index"
        if not signature.exists()
        else f"{SETTING} names no key that may sign"
    )
    raise ClusterctlError(
        f"the origin of the bundle cannot be verified: {because}",
        code="images.bundle-unsigned",
        where=str(signature),
        hint=f"Sign it where it is made (`images bundle create --sign-with KEY`) and name the public key in "
        f"{SETTING}; or give the SHA-256 that `create` printed: --sha256 HEX. --allow-unsigned loads it "
        "as it is.",
    )


def _signer(line: str) -> HostKey:
    key = public_key(line)
    if key is None:
        raise ClusterctlError(
            f"{one_line(line, 80)!r} is not a public key",
            code=SIGNERS,
            where=SETTING,
            hint="Write the line of a .pub file of ssh-keygen, such as: ssh-ed25519 AAAAC3... release@site",
        )
    return key


def _verified(raw: bytes, signature: Path, signers: Sequence[HostKey]) -> str:
    """The fingerprint of the signer among these. Raises ClusterctlError (``images.bundle-signature``)."""
    try:
        text = read_bounded_text(signature, LARGEST_SIGNATURE)
    except (OSError, UnusableFileError) as error:
        raise _not_good(f"it cannot be read: {describe_unusable(error)}", signature) from None
    with private_place("clusterctl-signers-") as place:
        ours, allowed = place / "signature", place / "allowed_signers"
        ours.write_text(text, encoding="utf-8")
        lines = [f'{SETTING} namespaces="{NAMESPACE}" {key.type} {key.body}\n' for key in signers]
        allowed.write_text("".join(lines), encoding="ascii")
        words = ["-n", NAMESPACE, "-s", str(ours)]
        done = _keygen(["-Y", "verify", "-f", str(allowed), "-I", SETTING, *words], raw, VERIFY_S)
        printed = done.stdout.decode("utf-8", errors="replace").split()
        found = next((key.fingerprint for key in signers if key.fingerprint in printed), "")
        if done.returncode == 0 and found:
            return found
        # Whether the bundle was changed, or somebody else signed it.
        whole = _keygen(["-Y", "check-novalidate", *words], raw, VERIFY_S).returncode == 0
    if whole:
        raise _not_good(f"its key is none of {SETTING}", signature)
    raise _not_good(_said(done), signature)


def _keygen(words: Sequence[str], given: bytes, limit_s: float) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(
            [PROGRAM, *words], input=given, capture_output=True, timeout=limit_s, check=False
        )
    except FileNotFoundError:
        raise ClusterctlError(
            "OpenSSH's client is not installed on this machine",
            code="ssh.missing",
            hint="Install it: apt-get install openssh-client",
        ) from None
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(words, 124, b"", f"no answer within {limit_s:.0f} s".encode())


def _said(done: subprocess.CompletedProcess[bytes]) -> str:
    lines = (done.stderr + done.stdout).decode("utf-8", errors="replace").splitlines()
    return one_line("; ".join(filter(None, map(str.strip, lines)))) or f"exit code {done.returncode}"


def _cannot_sign(because: str, where: Path) -> ClusterctlError:
    return ClusterctlError(
        f"the bundle cannot be signed: {because}",
        code="images.bundle-sign",
        where=str(where),
        hint="Name a private key of ssh-keygen with --sign-with (ssh-keygen -t ed25519 -f KEY makes one), or "
        "a public key whose private key is in the ssh-agent.",
    )


def _not_good(because: str, where: Path) -> ClusterctlError:
    return ClusterctlError(
        f"the bundle's signature is not good: {because}",
        code="images.bundle-signature",
        where=str(where),
        hint="Do not load it before it is known why. Get the bundle again, or compare the SHA-256 that "
        "`images bundle create` printed: --sha256 HEX.",
        exit_code=EXIT_CLUSTER_BAD,
    )
