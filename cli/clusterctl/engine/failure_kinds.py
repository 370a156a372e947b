"""What a host's failure is an instance of: a stable code, the words it is known by, and what to do."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """``says`` is a regular expression over what Ansible, ssh, apt, dpkg, Docker and our modules say.

    A finding of preflight is read as "subject: found". ``remedy`` may name {host}. Codes are documented and
    do not change.
    """

    code: str
    says: str
    remedy: str


UNREACHABLE = Kind(
    code="host.unreachable",
    says=r"Connection (refused|timed out|reset|closed by)|No route to host|Network is unreachable"
    r"|Operation timed out|Broken pipe|port 22: Interrupted",
    remedy="See that {host} is up and its sshd answers: ssh to it by hand. "
    "To go on without it: clusterctl hosts quarantine {host} --reason WHY.",
)
OTHER = Kind(code="task.failed", says="", remedy="")

# An image on its way: what container_image and registry_image begin with.
IMAGE_COULD_NOT = r"could not be (pulled|copied|looked for): "

# The first that is found holds: what is said by fewer comes before what much else says too.
KINDS: tuple[Kind, ...] = (
    Kind(
        code="harbor.refused",
        says=r"Harbor cannot be installed here|Harbor \S+ was left as it is",
        remedy="Mend what is said on {host}, or set it otherwise, and run it again.",
    ),
    Kind(
        code="harbor.installer",
        says=r"Harbor's installer was not unpacked|Harbor's installer is not declared",
        remedy="See harbor_version, harbor_installer_url (or _path) and harbor_installer_sha256.",
    ),
    Kind(
        code="harbor.certificate",
        says=r" cannot serve: .*(it is not for|its key|it ended|it begins|its chain)",
        remedy="Bring a certificate that fits (harbor_certificate), or none, for one of clusterctl's own.",
    ),
    Kind(
        code="host.key-unknown",
        says=r"No \S+ host key is known",
        remedy="Look at the host's key and keep it: clusterctl hosts scan.",
    ),
    Kind(
        code="host.key-changed",
        says=r"REMOTE HOST IDENTIFICATION HAS CHANGED|Host key verification failed|Offending .* key in",
        remedy="If the host was re-imaged: clusterctl hosts replace {host}; if it was not, somebody else "
        "answers at its address: do not go on.",
    ),
    Kind(
        code="host.login-refused",
        says=r"Permission denied \((publickey|password|gssapi|keyboard|hostbased)"
        r"|Too many authentication failures",
        remedy="Put the key of ansible_ssh_private_key_file into authorized_keys of ansible_user on {host}.",
    ),
    Kind(
        code="host.sudo-password",
        says=r"Missing sudo password|sudo: a password is required|a terminal is required to read the password"
        r"|Incorrect sudo password|Sorry, try again|Timeout .* privilege|Duplicate become password prompt",
        remedy="Give the sudo password of {host} (--ask-become-pass or --become-pass-file), "
        "or allow ansible_user to sudo without one.",
    ),
    Kind(
        code="host.sudo-refused",
        says=r"is not in the sudoers file|is not allowed to (execute|run sudo)|may not run sudo",
        remedy="Allow ansible_user to sudo on {host}: /etc/sudoers.d.",
    ),
    Kind(
        code="host.no-python",
        says=r"No python interpreters? found|python3?: (command )?not found|interpreter .* not found",
        remedy="Install python3 on {host}, or set its ansible_python_interpreter.",
    ),
    Kind(
        code="host.python-too-old",
        says=r"requires a minimum of Python version|future feature annotations is not defined"
        r"|is not supported: Python [0-9.]+ is older",
        remedy="Install a supported system on {host}, or Python 3.9 for its ansible_python_interpreter.",
    ),
    Kind(
        code="host.address-unknown",
        says=r"Could not resolve hostname",
        remedy="Set ansible_host of {host} to an address, or mend the DNS of this machine.",
    ),
    Kind(
        code="host.disk-full",
        says=r"No space left on device|don't have enough free space in|Disk quota exceeded|disk is full"
        r"|GB free, (the image wants|and .* are to remain)|^disk: ",
        remedy="Free disk space on {host}, then run the same command again.",
    ),
    Kind(
        code="host.read-only",
        says=r"Read-only file ?system",
        remedy="Look at the kernel's log and the disk of {host} (dmesg, mount): a filesystem turns read-only "
        "after errors. Mend it, then run the same command again.",
    ),
    Kind(
        code="registry.certificate",
        says=IMAGE_COULD_NOT + ".*(x509|certificate)",
        remedy="Do what the message says of the certificate. clusterctl apply --only registry renews the "
        "cluster's own, and has {host} trust it.",
    ),
    Kind(
        code="registry.too-many-requests",
        says=IMAGE_COULD_NOT + r".*(toomanyrequests|too many requests|HTTP 429|StatusCode: 429"
        r"|registry 429|limits how often it is asked)",
        remedy="Apply again later; or come to the source as a user whom it allows more: "
        "training_image_source_auth_file.",
    ),
    Kind(
        code="registry.login-refused",
        says=IMAGE_COULD_NOT + ".*(unauthorized|authentication required|no basic auth credentials|denied"
        "|refuses the credentials|asks for a password)",
        remedy="For the cluster's registry see registry_auth, for the image's source "
        "training_image_source_auth_file.",
    ),
    Kind(
        code="packages.interrupted",
        says=r"dpkg was interrupted",
        remedy="Run dpkg --configure -a on {host}, mend what it says, then run the same command again.",
    ),
    Kind(
        code="packages.locked",
        says=r"Could not get lock|is another process using it|(dpkg|frontend) lock|has kept \S+apt\.lock",
        remedy="Another package run holds {host}: wait for it (unattended-upgrades?), then run this again.",
    ),
    Kind(
        code="packages.held",
        says=r"someone else holds|held by someone else",
        remedy="Lift the hold on {host} (apt-mark unhold), or declare the version that is there.",
    ),
    Kind(
        code="packages.untrusted",
        says=r"NO_PUBKEY|EXPKEYSIG|BADSIG|is not signed|Hash Sum mismatch|couldn't be verified",
        remedy="See the repository's key in the settings; a mirror in the middle of its own update mends "
        "itself.",
    ),
    Kind(
        code="host.dns",
        says=r"Temporary failure (in name resolution|resolving)|Could not resolve '|no such host"
        r"|Name or service not known|^DNS: ",
        remedy="See /etc/resolv.conf of {host}, or site_http_proxy in the settings.",
    ),
    Kind(
        code="packages.source-down",
        says=r"Failed to fetch|Unable to fetch|package (lists|source) cannot be read|key cannot be read from"
        r"|^Err:\d|^package source: ",
        remedy="See that {host} reaches its package sources (site_http_proxy, site_no_proxy) and that they "
        "serve, then run the same command again: it goes on from where it stopped.",
    ),
    Kind(
        code="packages.not-offered",
        says=r"Unable to locate package|No package matching|has no installation candidate|Version .* was not"
        r"|is not offered",
        remedy="The package sources of {host} do not have it: see the version and the repository in the "
        "settings.",
    ),
    Kind(
        code="registry.no-image",
        says=IMAGE_COULD_NOT + ".*(manifest unknown|not found)",
        remedy="See training_image_digest; the registry's host must have the image first: "
        "clusterctl apply --only images.",
    ),
    Kind(
        code="registry.unreachable",
        says=IMAGE_COULD_NOT + "|The registry does not answer",
        remedy="See that the registry serves and {host} reaches it: clusterctl apply --only registry.",
    ),
    Kind(
        code="host.docker-down",
        says=r"Docker (runs and )?does not answer|Cannot connect to the Docker daemon",
        remedy="See journalctl -u docker on {host}.",
    ),
    Kind(
        code="harbor.backup",
        says=r"Harbor's backup could not be",
        remedy="Mend what is said on {host}, then run it again; what was not whole is no backup, and goes.",
    ),
    Kind(
        code="harbor.restore",
        says=r"Harbor's backup was not restored",
        remedy="See that {host} is empty and has the backup, and that harbor_version is its release; "
        "one that was begun goes on with the next `clusterctl registry restore`.",
    ),
    Kind(
        code="harbor.install-failed",
        says=r"Harbor's installer failed|Harbor's images do not load|Harbor's own migration"
        r"|Harbor \S+ does not stop|Harbor's proxy does not take",
        remedy="Mend what its own words name on {host}, and apply again: it is done again from its start.",
    ),
    Kind(
        code="harbor.unhealthy",
        says=r"Harbor is not healthy",
        remedy="See the named part's log in /var/log/harbor on {host} (harbor_log_dir), then apply again.",
    ),
    Kind(
        code="host.reboot-needed",
        says=r"needs a reboot",
        remedy="Allow it: clusterctl apply --reboot; or reboot {host} by hand, and apply again.",
    ),
    Kind(
        code="task.timed-out",
        says=r"Timed out after \d+ second|did not end within",
        remedy="See what hangs on {host}, then run the same command again.",
    ),
    Kind(
        code="task.out-of-memory",
        says=r"\ATask failed\.\Z",  # a MemoryError has no words
        remedy="Log in to {host} by hand and see that it does not print without end, as a .bashrc may.",
    ),
    UNREACHABLE,
)


def kind_of(text: str) -> Kind | None:
    """The kind that a message is known to be of; None for a message that nobody has met."""
    return next((kind for kind in KINDS if re.search(kind.says, text, re.IGNORECASE | re.MULTILINE)), None)
