"""What mokutil and dkms print, as captured on 2026-11-26, with paths, keys and passwords replaced.

mokutil 0.6.0-2 with libefivar1 37-6 of Debian 12, and mokutil 0.7.2-1 of Debian 13, as root with LC_ALL=C.
The states of a firmware with Secure Boot are files in a directory that EFIVARFS_PATH names, which libefivar
reads instead of /sys/firmware/efi/efivars: SecureBoot 1 and SetupMode 0, and the lists as shim (MokListRT,
MokListXRT), the firmware (db, dbx) and mokutil itself (MokNew, MokAuth) write them. dkms 3.0.10-8+deb12u1
built a module for Linux 6.1.0-50-amd64, dkms 3.2.2-1~deb13u1 for 6.12.117+deb13-amd64. Under OVMF with
Secure Boot on, after MokManager, both mokutils printed the same of the enrolled key, and 0.6.0 of the state.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Answer:
    """Exit code, standard output and standard error; ``{}`` is the certificate's path."""

    rc: int
    output: str = ""
    error: str = ""


# By version: the state of the certificate, and the answer to `mokutil --test-key CERTIFICATE`.
TEST_KEY = {
    "0.6.0": {
        "absent": Answer(0, "{} is not enrolled\n"),
        "requested": Answer(1, "{} is already in the enrollment request\n"),
        "enrolled": Answer(1, "{} is already enrolled\n"),
        "enrolled in db": Answer(1, "{} is already in db\n"),
        "blocked in dbx": Answer(1, "{} is blocked in dbx\n"),
        "blocked by shim": Answer(1, "{} is blocked in MokListXRT\n"),
        "not there": Answer(255, error="Failed to open {}\n"),
        "in PEM": Answer(255, error="Not a valid x509 certificate\n"),
        "no EFI": Answer(1, error="EFI variables are not supported on this system\n"),
    },
    "0.7.2": {
        "absent": Answer(0, "{} is not enrolled\n"),
        "requested": Answer(1, "{} is already in the enrollment request\n"),
        "enrolled": Answer(1, "{} is already enrolled\n"),
        "enrolled in db": Answer(1, "{} is already in db\n"),
        "blocked in dbx": Answer(1, "{} is blocked in dbx\n"),
        "blocked by shim": Answer(1, "{} is blocked in MokListX\n"),
        "not there": Answer(255, error="Failed to open {}\n"),
        "in PEM": Answer(255, error="Not a valid x509 certificate\n"),
        "no EFI": Answer(1, error="EFI variables are not supported on this system\n"),
    },
}
# Before its answer on a kernel whose keyrings it cannot read (0.6.0).
NO_KEYRING = (
    "libkeyutils: Can't open /proc/keys: No such file or directory\n"
    "Failed to accesss kernel trusted keyring: No such file or directory\n"
)
# `mokutil --import CERTIFICATE`, the same of both versions: with the password twice on standard input, with
# two that differ, with none, and of a key whose enrolment is requested, granted or impossible.
IMPORT = {
    "password twice": Answer(0, "input password: \ninput password again: \n"),
    "passwords differ": Answer(
        255,
        "input password: \ninput password again: \ninput password again: \ninput password again: \n",
        "password doesn't match\npassword doesn't match\npassword doesn't match\nAbort\n",
    ),
    "no password": Answer(
        255,
        "input password: \ninput password: \ninput password: \n",
        "password should be 1~256 characters\n" * 3 + "Abort\n",
    ),
    "requested": Answer(0, "SKIP: {} is already in the enrollment request\n"),
    "enrolled": Answer(0, "SKIP: {} is already enrolled\n"),
    "blocked": Answer(0, "SKIP: {} is blocked in dbx\n"),
    "in PEM": Answer(255, error="Abort!!! {} is not a valid x509 certificate in DER format\n"),
}
# `mokutil --sb-state`, the same of both versions, by SecureBoot, SetupMode and MokSBStateRT (None: absent).
SB_STATE = {
    (0, 1, None): Answer(0, "SecureBoot disabled\nPlatform is in Setup Mode\n"),
    (0, 0, None): Answer(0, "SecureBoot disabled\n"),
    (1, 0, None): Answer(0, "SecureBoot enabled\n"),
    (1, 0, 1): Answer(0, "SecureBoot enabled\nSecureBoot validation is disabled in shim\n"),
}
# How dkms names the pair it signs with, in what it prints at a build.
DKMS_BUILD = {
    "3.0.10": (
        "Sign command: /usr/lib/linux-kbuild-6.1/scripts/sign-file\n"
        "Signing key: /var/lib/dkms/mok.key\n"
        "Public certificate (MOK): /var/lib/dkms/mok.pub\n"
        "Certificate or key are missing, generating self signed certificate for MOK...\n"
    ),
    "3.2.2": (
        "Sign command: /lib/modules/6.12.117+deb13-amd64/build/scripts/sign-file\n"
        "Signing key: /var/lib/dkms/mok.key\n"
        "Public certificate (MOK): /var/lib/dkms/mok.pub\n"
        "Certificate or key are missing, generating self signed certificate for MOK...\n"
    ),
}
# The lines of framework.conf that are about keys, as each version ships it.
DKMS_FRAMEWORK = {
    "3.0.10": "# mok_signing_key=/var/lib/dkms/mok.key\n# mok_certificate=/var/lib/dkms/mok.pub\n",
    "3.2.2": "# mok_signing_key=/var/lib/dkms/mok.key\n# mok_certificate=/var/lib/dkms/mok.pub\n",
}
