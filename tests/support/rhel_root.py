"""A RHEL 9 to everything that Ansible runs: a root of its own with this machine's programs in it.

Its /etc and /var are its own, with Rocky's release files and an empty RPM database; /usr is this machine's.
Modules run there by real Python, dnf and rpm. Nothing outside of it is written.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support import rpm_archive
from tests.support.tree import ROOT

from clusterlab.sources import signing

RELEASE = "Rocky Linux release 9.6 (Blue Onyx)\n"
OS_RELEASE = (
    'NAME="Rocky Linux"\nID="rocky"\nID_LIKE="rhel centos fedora"\nVERSION_ID="9.6"\n'
    'PLATFORM_ID="platform:el9"\nPRETTY_NAME="Rocky Linux 9.6 (Blue Onyx)"\n'
)
# RHEL's program for the trust store, which this machine has not.
UPDATE_CA_TRUST = """\
#!/bin/sh
mkdir -p /etc/pki/ca-trust/extracted/pem
cat /etc/pki/ca-trust/source/anchors/* >/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem
"""
# Called again from inside, by what runs a module in the background.
PYTHON = """\
#!/bin/sh
[ -e /.rhel ] && exec /usr/bin/python3 "$@"
exec unshare --mount --propagation private /bin/sh -c '
set -e
for one in usr proc sys dev tmp; do mount --rbind /$one {root}/$one; done
mount --bind {root}/.local {root}/usr/local
exec chroot {root} /usr/bin/env HOME=/root PATH=/usr/local/bin:/usr/sbin:/usr/bin /usr/bin/python3 "$@"
' sh "$@"
"""


class RhelRoot:
    """The root, and plays on it; `repositories` are what its dnf knows."""

    def __init__(self, directory: Path, repositories: list[Path]) -> None:
        self.directory, self.root = directory, directory / "root"
        for name in (
            "usr",
            "proc",
            "sys",
            "dev",
            "tmp",
            ".local/bin",
            "root/.rpmdb",
            "etc/yum.repos.d",
            "run",
        ):
            (self.root / name).mkdir(parents=True)
        for name in ("etc/dnf/modules.d", "etc/modprobe.d", "etc/pki/ca-trust/source/anchors", "var/tmp"):
            (self.root / name).mkdir(parents=True)
        for name in ("var/lib/rpm", "var/cache", "var/log", "etc/pki/rpm-gpg", "etc/pki/ca-trust/extracted"):
            (self.root / name).mkdir(parents=True)
        for name in ("bin", "sbin", "lib", "lib64"):
            (self.root / name).symlink_to(f"usr/{name}")
        files = {
            "etc/os-release": OS_RELEASE, "etc/redhat-release": RELEASE, "etc/rocky-release": RELEASE,
            ".rhel": "", "etc/passwd": "root:x:0:0:root:/root:/bin/sh\n", "etc/group": "root:x:0:\n",
            "etc/hosts": "127.0.0.1 localhost\n", "etc/dnf/dnf.conf": "[main]\ngpgcheck=1\n",
        }  # fmt: skip
        for number, repository in enumerate(repositories):
            files[f"etc/yum.repos.d/site{number}.repo"] = (
                f"[site{number}]\nname=x\nbaseurl=file://{repository}\ngpgcheck=0\n"
            )
        for name, content in files.items():
            (self.root / name).write_text(content)
        self.add_program("update-ca-trust", UPDATE_CA_TRUST)
        self.python = directory / "python"
        self.python.write_text(PYTHON.format(root=shlex.quote(str(self.root))))
        self.python.chmod(0o755)

    def add_program(self, name: str, text: str) -> None:
        """A program that comes first on PATH."""
        path = self.root / ".local/bin" / name
        path.write_text(text)
        path.chmod(0o755)

    def run(self, program: str) -> str:
        """Output of a program there."""
        code = f"import os; os.execvp('/bin/sh', ['sh', '-c', {program!r}])"
        done = subprocess.run(
            [self.python, "-c", code], capture_output=True, text=True, timeout=120, check=False
        )
        return done.stdout + done.stderr

    def play(
        self, tasks: list[dict[str, Any]], variables: dict[str, Any], *words: str
    ) -> tuple[dict[str, int], str]:
        """Counts of the play's recap, and what it printed; facts are gathered there."""
        inventory = {"all": {"children": {"gpu_nodes": {"hosts": {"gpu01": {
            "ansible_connection": "local", "ansible_python_interpreter": str(self.python),
        }}}}}}  # fmt: skip
        (self.directory / "hosts.json").write_text(json.dumps(inventory), encoding="utf-8")
        play = [{"hosts": "gpu_nodes", "become": False, "gather_subset": ["min"], "tasks": tasks}]
        (self.directory / "play.json").write_text(json.dumps(play), encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "-m", "ansible", "playbook", "-i", str(self.directory / "hosts.json"),
             "-e", json.dumps({"ansible_async_dir": str(self.directory / "async"), **variables}),
             *words, str(self.directory / "play.json")],
            cwd=ROOT, capture_output=True, text=True, timeout=900, check=False,
            env={
                **os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
                "ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.default",
                "ANSIBLE_REMOTE_TMP": str(self.directory / "remote"),
            },
        )  # fmt: skip
        output = done.stdout + done.stderr
        recap = next((line for line in output.splitlines() if line.startswith("gpu01") and "ok=" in line), "")
        counts = dict(word.split("=") for word in recap.split() if "=" in word)
        return {name: int(value) for name, value in counts.items()}, output


def role(name: str, tasks_from: str = "main") -> dict[str, Any]:
    """A task that plays a role, or one of its files."""
    return {"ansible.builtin.import_role": {"name": f"clusterctl.cluster.{name}", "tasks_from": tasks_from}}


def site_settings(directory: Path) -> dict[str, Any]:
    """Repositories of a site, as settings: NVIDIA's, Docker's and the toolkit's, with a key of the site."""
    key = signing.ensure(directory / "key")
    everything = rpm_archive.build(directory / "made", key=key)
    (directory / "gpg").write_bytes(key.armored.read_bytes())
    (directory / "ca.crt").write_text("-----BEGIN CERTIFICATE-----\nQUJD\n-----END CERTIFICATE-----\n")
    paths = ("cuda/rhel9/x86_64", "docker/9/x86_64/stable", "toolkit/stable/rpm/x86_64")
    for path in (*paths, "epel/9/Everything/x86_64"):
        link = directory / path
        link.parent.mkdir(parents=True)
        link.symlink_to(everything)
    url, pinned = f"file://{directory}", [signing.fingerprint(key)]
    return {
        "nvidia_driver_repository_url": f"{url}/cuda",
        "nvidia_driver_repository_key_url": f"{url}/gpg",
        "nvidia_driver_repository_key_fingerprints": pinned,
        "nvidia_driver_epel_url": f"{url}/epel",
        "nvidia_driver_epel_key_url": f"{url}/gpg",
        "nvidia_driver_epel_key_fingerprints": pinned,
        "nvidia_driver_kernel_header_packages": ["kernel-devel"],
        "nvidia_driver_load": False,
        "nvidia_driver_fabric_manager": "true",
        "nvidia_driver_version": "580.95.05",
        "container_runtime_repository_url": f"{url}/docker",
        "container_runtime_repository_key_url": f"{url}/gpg",
        "container_runtime_repository_key_fingerprints": pinned,
        "nvidia_container_toolkit_repository_url": f"{url}/toolkit/stable/deb",
        "nvidia_container_toolkit_repository_key_url": f"{url}/gpg",
        "nvidia_container_toolkit_repository_key_fingerprints": pinned,
        "registry_client_hostname": "registry01",
        "registry_client_host_address": "192.0.2.1",
        "registry_client_ca_file": str(directory / "ca.crt"),
    }
