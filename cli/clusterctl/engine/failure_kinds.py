"""What a host's failure is an instance of: a stable code, how it is recognized, and what to do.

Our modules return the code (``code`` in their results), and what they print is never read. Read is what ssh,
sudo, apt, dpkg, Docker and Ansible print; the words of ssh and sudo are in `clusterctl.cluster.ssh_failures`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from clusterctl.cluster import ssh_failures


@dataclass(frozen=True)
class Kind:
    """``says`` is a regular expression over what other people's programs print; empty for a kind that only
    modules report. ``remedy`` may name {host}. Codes are documented and do not change.

    ``general``: a module that reports it knows what failed and not why; a kind before it in `KINDS` that the
    message is recognized by applies instead.
    """

    code: str
    remedy: str
    says: str = ""
    general: bool = False

    def matches(self, text: str) -> bool:
        """Whether the message is recognized by the words of another program."""
        return bool(self.says) and re.search(self.says, text, re.IGNORECASE | re.MULTILINE) is not None


UNREACHABLE = Kind(
    code=ssh_failures.UNREACHABLE,
    says=ssh_failures.patterns_of(ssh_failures.UNREACHABLE),
    remedy="See that {host} is up and its sshd answers: ssh to it by hand. "
    "To continue without it: clusterctl hosts quarantine {host} --reason WHY.",
)
OTHER = Kind(code="task.failed", remedy="")
UNREADABLE = Kind(
    code="task.unreadable",
    remedy="See what changes the modules' answers on {host}. "
    "To continue without it: clusterctl hosts quarantine {host} --reason WHY.",
)

# The first that applies: what few programs print comes before what many print.
KINDS: tuple[Kind, ...] = (
    Kind(
        code="harbor.refused",
        remedy="Fix what the message names on {host}, or change the setting, then run it again.",
    ),
    Kind(
        code="harbor.installer",
        remedy="See harbor_version, harbor_installer_url (or _path) and harbor_installer_sha256.",
    ),
    Kind(
        code="harbor.certificate",
        remedy="Set harbor_certificate to a matching certificate, or to none for one that clusterctl issues.",
    ),
    Kind(
        code="registry.data-directory",
        remedy="Do what the message says on {host}, or set registry_data_dir to another directory.",
    ),
    Kind(
        code=ssh_failures.KEY_UNKNOWN,
        says=ssh_failures.patterns_of(ssh_failures.KEY_UNKNOWN),
        remedy="Check the host's key and pin it: clusterctl hosts scan.",
    ),
    Kind(
        code=ssh_failures.KEY_CHANGED,
        says=ssh_failures.patterns_of(ssh_failures.KEY_CHANGED),
        remedy="If the host was re-imaged: clusterctl hosts replace {host}; if it was not, another "
        "machine answers at its address: do not continue.",
    ),
    Kind(
        code=ssh_failures.LOGIN_REFUSED,
        says=ssh_failures.patterns_of(ssh_failures.LOGIN_REFUSED),
        remedy="Put the key of ansible_ssh_private_key_file into authorized_keys of ansible_user on {host}.",
    ),
    Kind(
        code=ssh_failures.SUDO_PASSWORD,
        says=ssh_failures.patterns_of(ssh_failures.SUDO_PASSWORD),
        remedy="Give the sudo password of {host} (--ask-become-pass or --become-pass-file), "
        "or allow ansible_user to sudo without one.",
    ),
    Kind(
        code=ssh_failures.SUDO_REFUSED,
        says=ssh_failures.patterns_of(ssh_failures.SUDO_REFUSED),
        remedy="Allow ansible_user to sudo on {host}: /etc/sudoers.d.",
    ),
    Kind(
        code="host.no-python",
        says=r"No python interpreters? found|python3?: (command )?not found"
        r"|interpreter [^\n]{1,300} not found",
        remedy="Install python3 on {host}, or set its ansible_python_interpreter.",
    ),
    Kind(
        code="host.python-too-old",
        says=r"requires a minimum of Python version|future feature annotations is not defined",
        remedy="Install a supported system on {host}, or Python 3.9 for its ansible_python_interpreter.",
    ),
    Kind(
        code="host.unsupported-system",
        remedy="Install a supported system on {host}, or take it out of the inventory.",
    ),
    Kind(
        code=ssh_failures.ADDRESS_UNKNOWN,
        says=ssh_failures.patterns_of(ssh_failures.ADDRESS_UNKNOWN),
        remedy="Set ansible_host of {host} to an address, or fix the DNS of this machine.",
    ),
    Kind(
        code="host.disk-full",
        says=r"No space left on device|don't have enough free space in|Disk quota exceeded",
        remedy="Free disk space on {host}, then run the same command again.",
    ),
    Kind(
        code="host.read-only",
        says=r"Read-only file ?system",
        remedy="Check the kernel log and the disk of {host} (dmesg, mount): a filesystem turns read-only "
        "after errors. Fix it, then run the same command again.",
    ),
    Kind(
        code="registry.certificate",
        remedy="Follow the message about the certificate. clusterctl apply --only registry renews the "
        "cluster's own, and makes {host} trust it.",
    ),
    Kind(
        code="registry.too-many-requests",
        remedy="Apply again later, or pull from the source as a user with a higher limit: "
        "training_image_source_auth_file.",
    ),
    Kind(
        code="registry.login-refused",
        remedy="For the cluster's registry see registry_auth, for the image's source "
        "training_image_source_auth_file.",
    ),
    Kind(
        code="packages.interrupted",
        says=r"dpkg was interrupted",
        remedy="Run dpkg --configure -a on {host}, fix what it reports, then run the same command again.",
    ),
    Kind(
        code="packages.locked",
        says=r"Could not get lock|is another process using it|(dpkg|frontend) lock",
        remedy="Another package operation runs on {host}: wait for it (unattended-upgrades?), then run this "
        "again.",
    ),
    Kind(
        code="packages.held",
        remedy="Lift the hold on {host} (apt-mark unhold, dnf versionlock delete), or declare the installed "
        "version.",
    ),
    Kind(
        code="packages.key-refused",
        remedy="Compare the key's fingerprint with what the repository's owner publishes, then declare it in "
        "the setting that ends in _repository_key_fingerprints.",
    ),
    Kind(
        code="packages.untrusted",
        says=r"NO_PUBKEY|EXPKEYSIG|BADSIG|is not signed|Hash Sum mismatch|couldn't be verified",
        remedy="See the repository's key in the settings; a mirror that is being updated recovers by itself.",
    ),
    Kind(
        code="host.dns",
        says=r"Temporary failure (in name resolution|resolving)|Could not resolve '|no such host"
        r"|Name or service not known",
        remedy="See /etc/resolv.conf of {host}, or site_http_proxy in the settings.",
    ),
    Kind(
        code="packages.source-down",
        says=r"Failed to fetch|Unable to fetch|^Err:\d",
        general=True,
        remedy="See that {host} reaches its package sources (site_http_proxy, site_no_proxy) and that they "
        "serve, then run the same command again: it resumes where it stopped.",
    ),
    Kind(
        code="packages.not-offered",
        says=r"Unable to locate package|No package matching|has no installation candidate"
        r"|Version '[^'\n]{0,100}' for '[^'\n]{0,200}' was not found",
        remedy="The package sources of {host} do not have it: see the version and the repository in the "
        "settings.",
    ),
    Kind(
        code="registry.no-image",
        remedy="See training_image_digest; the registry's host must have the image first: "
        "clusterctl apply --only images.",
    ),
    Kind(
        code="registry.unreachable",
        general=True,
        remedy="See that the registry serves and {host} reaches it: clusterctl apply --only registry.",
    ),
    Kind(
        code="host.docker-down",
        says=r"Cannot connect to the Docker daemon",
        remedy="See journalctl -u docker on {host}.",
    ),
    Kind(
        code="harbor.backup",
        general=True,
        remedy="Fix what the message names on {host}, then run it again; an incomplete backup is removed.",
    ),
    Kind(
        code="harbor.restore",
        general=True,
        remedy="See that {host} is empty and has the backup, and that harbor_version is its release; "
        "an interrupted restore resumes with the next `clusterctl registry restore`.",
    ),
    Kind(
        code="harbor.install-failed",
        general=True,
        remedy="Fix what the installer names on {host}, and apply again: the installation restarts.",
    ),
    Kind(
        code="harbor.unhealthy",
        general=True,
        remedy="See the named part's log in /var/log/harbor on {host} (harbor_log_dir), then apply again.",
    ),
    Kind(
        code="host.reboot-needed",
        remedy="Allow it: clusterctl apply --reboot; or reboot {host} by hand, and apply again.",
    ),
    Kind(
        code="task.timed-out",
        says=r"Timed out after \d+ second",
        remedy="See what hangs on {host}, then run the same command again.",
    ),
    Kind(
        code="task.out-of-memory",
        says=r"\ATask failed\.\Z",  # a MemoryError has no words
        remedy="Log in to {host} by hand and see that it does not print without end, as a .bashrc may.",
    ),
    UNREACHABLE,
)


# Also the code that `event_reading` gives a step: no module reports it.
BY_CODE = {kind.code: kind for kind in (*KINDS, UNREADABLE)}


def kind_of(text: str, code: object = "") -> Kind | None:
    """The kind of a failure by the code that a module reports, else by what other programs printed.

    None for a message that is not known. A code comes from a node: one that is not ours counts for nothing.
    """
    reported = BY_CODE.get(code) if isinstance(code, str) else None
    if reported is not None and not reported.general:
        return reported
    return next((kind for kind in KINDS if kind is reported or kind.matches(text)), None)


def known_code(code: object) -> str:
    """The code that a node reports; empty for anything but one of ours."""
    return code if isinstance(code, str) and code in BY_CODE else ""
