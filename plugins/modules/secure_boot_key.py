#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE)
"""Ansible module: the key that dkms signs with, requested for enrolment under Secure Boot."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.clusterctl.cluster.plugins.module_utils.bounded import late, run_bounded
from ansible_collections.clusterctl.cluster.plugins.module_utils.gpu_node import os_release
from ansible_collections.clusterctl.cluster.plugins.module_utils.signing_key import (
    PKCS11,
    SigningKey,
    enrolment,
    signing_key,
)

DOCUMENTATION = r"""
module: secure_boot_key
short_description: Request that Secure Boot trusts the key that dkms signs with
description:
  - Finds the key by dkms' configuration and the distribution's rules. Makes one if there is none.
  - With I(enroll) a request is handed to shim, with a password for this one time. A person confirms it at the
    console during the next boot; no program can.
  - Does nothing if the key is enrolled. Check mode is supported.
options:
  enroll:
    description: Request the enrolment; without it a key that is not enrolled is an error.
    type: bool
    default: false
author: [the clusterctl authors]
"""

EXAMPLES = r"""
- name: Request the enrolment of the signing key
  clusterctl.cluster.secure_boot_key:
    enroll: true
"""

RETURN = r"""
certificate: {description: The certificate of the key., type: str, returned: always}
step:
  description: What a person must do at the console, with the one-time password; empty if the key is enrolled.
  type: str
  returned: always
code:
  description: "Stable code of the failure: task.timed-out"
  returned: when the cause is known
  type: str
"""

ARGUMENTS: dict[str, Any] = {"enroll": {"type": "bool", "default": False}}
ROOT = Path("/")
# MokManager reads a keyboard with the layout of the United States: digits are where they are on any other.
PASSWORD_DIGITS = 10
LIMIT_S = 120
# shim forgets the request as soon as MokManager starts: a console that nobody watches costs another apply.
CONSOLE = (
    "reboot the host with a person at its console (BMC), who presses a key within 10 seconds when "
    "MokManager asks for it, chooses Enroll MOK, Continue and Yes, enters {}, and chooses Reboot (if it was "
    "missed, apply requests it again)"
)


def make_key(module: AnsibleModule, key: SigningKey) -> None:
    """Makes the key as the distribution does; ends the module if that fails."""
    certificate = ROOT / key.certificate.lstrip("/")
    if os_release(ROOT)["id"] == "ubuntu" and key.certificate.startswith("/var/lib/shim-signed/"):
        # It makes none beside the half of a lost pair; nor would dkms keep that half.
        certificate.unlink(missing_ok=True)
        argv, remedy = ["update-secureboot-policy", "--new-key"], "install shim-signed"
    else:
        private = ROOT / key.private.lstrip("/")
        private.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        certificate.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        argv = [
            *("openssl", "req", "-new", "-x509", "-nodes", "-days", "36500", "-newkey", "rsa:2048"),
            *("-subj", "/CN=DKMS module signing key", "-addext", "extendedKeyUsage=codeSigning"),
            *("-keyout", str(private), "-outform", "DER", "-out", str(certificate)),
        ]
        remedy = "install openssl"
    before = os.umask(0o077)
    try:
        code, output, error = run_bounded(argv, LIMIT_S, {"LC_ALL": "C", "SHIM_NOTRIGGER": "y"})
    finally:
        os.umask(before)
    if code != 0 or not certificate.is_file():
        why = (error or output).strip().splitlines()[-1:]
        module.fail_json(
            msg=f"The key {key.certificate}, which signs modules for Secure Boot, cannot be made: "
            f"{why[0] if why else 'no certificate was written'}. See that its program is there: {remedy}.",
            **late(code),
        )


def refuse(module: AnsibleModule, key: SigningKey) -> None:
    """Ends the module: without enrolment the kernel would load no module that is built here."""
    signed = (
        "Use the modules that Ubuntu has signed (nvidia_driver_source: distribution), or have it enrolled: "
    )
    module.fail_json(
        msg=f"Secure Boot is on and does not trust the key that dkms signs with ({key.certificate}). "
        f"{signed if os_release(ROOT)['id'] == 'ubuntu' else 'Have it enrolled: '}set "
        "nvidia_driver_enroll_key: true, with a person at the console for one reboot."
    )


def run(argv: list[str]) -> tuple[int, str, str]:
    """A program in plain English."""
    return run_bounded(argv, LIMIT_S, {"LC_ALL": "C"})


def request(module: AnsibleModule, key: SigningKey) -> str:
    """Hands the request to shim; returns the one-time password."""
    password = "".join(secrets.choice("0123456789") for _ in range(PASSWORD_DIGITS))
    argv = ["mokutil", "--import", str(ROOT / key.certificate.lstrip("/"))]
    code, output, error = run_bounded(argv, LIMIT_S, {"LC_ALL": "C"}, told=f"{password}\n{password}\n")
    if code != 0:
        why = (error or output).strip().splitlines()[-1:]
        module.fail_json(
            msg=f"mokutil does not accept {key.certificate}: {why[0] if why else f'it ended with {code}'}. "
            "See `mokutil --list-new` and `mokutil --sb-state` on the host.",
            **late(code),
        )
    # It ends with 0 also where it skips a key.
    if enrolment(run, ROOT, key) != "requested":
        why = ((output + error).strip() or "it says nothing").splitlines()[-1]
        module.fail_json(msg=f"mokutil requested no enrolment of {key.certificate}: {why}.")
    return password


def main() -> None:
    """Entry point."""
    module = AnsibleModule(ARGUMENTS, supports_check_mode=True)
    key = signing_key(ROOT, os.uname().release)
    state = enrolment(run, ROOT, key)
    if state == "enrolled":
        module.exit_json(changed=False, certificate=key.certificate, step="")
    if state == "requested":
        step = CONSOLE.format(
            "the one-time password that an earlier apply showed (if it is lost, run "
            "`mokutil --revoke-import` on the host and apply again)"
        )
        module.exit_json(changed=False, certificate=key.certificate, step=step)
    if state.startswith("unknown"):
        module.fail_json(
            msg=f"Whether Secure Boot trusts {key.certificate} is {state}. Install mokutil, or see "
            f"`mokutil --test-key {key.certificate}` on the host."
        )
    if state == "blocked":
        module.fail_json(
            msg=f"Secure Boot refuses every module that {key.certificate} signs: it is on a list of blocked "
            "keys (dbx or MokListX). Name another pair in /etc/dkms/framework.conf (mok_signing_key, "
            "mok_certificate), or remove the file, so that a new pair is made."
        )
    if state == "no key" and key.private.startswith(PKCS11):
        module.fail_json(
            msg=f"dkms signs with the key {key.private}, whose certificate {key.certificate} is missing. "
            "Put it there, in DER, or correct /etc/dkms/framework.conf."
        )
    if not module.params["enroll"]:
        refuse(module, key)
    if module.check_mode:
        step = CONSOLE.format("the one-time password that apply will show")
        module.exit_json(changed=True, certificate=key.certificate, step=step)
    if state == "no key":
        make_key(module, key)
    step = CONSOLE.format(f"the one-time password {request(module, key)}")
    module.exit_json(changed=True, certificate=key.certificate, step=step)


if __name__ == "__main__":
    main()
