"""The real thing: Debian's own 535 packages, and NVIDIA's module built by the real DKMS."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.timeout(2400)]

BIN = Path(sys.executable).parent
# Debian's whole archive: the depot has only what the other roles need.
DEBIAN = """\
Types: deb
URIs: http://deb.debian.org/debian
Suites: bookworm bookworm-updates
Components: main contrib non-free non-free-firmware
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://deb.debian.org/debian-security
Suites: bookworm-security
Components: main contrib non-free non-free-firmware
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
"""
SETTINGS = {
    "nvidia_driver_source": "distribution",
    "nvidia_driver_flavor": "proprietary",
    "nvidia_driver_branch": "535",
    "nvidia_driver_version": "",
    "nvidia_driver_scope": "compute",
    # The machine's own kernel is not Debian's: the module is built for these headers, and not loaded.
    "nvidia_driver_kernel_header_packages": ["linux-headers-cloud-amd64"],
    "nvidia_driver_load": False,
}


def run(*argv: object, timeout_s: int = 600) -> str:
    """The program's standard output; its words are in the failure when it fails."""
    done = subprocess.run(
        [str(word) for word in argv], capture_output=True, text=True, timeout=timeout_s, check=False
    )
    assert done.returncode == 0, f"{argv}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def inventory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A lab of one PCIe node, of its own: no other test wants Debian's driver on its nodes."""
    directory = tmp_path_factory.mktemp("real") / "lab"
    clusterctl = [BIN / "clusterctl", "lab"]
    try:
        run(*clusterctl, "up", "--nodes", 1, "--hardware", "a100-pcie-40gb", "--dir", directory)
        yield directory / "cluster" / "hosts.yml"
    finally:
        run(*clusterctl, "down", "--dir", directory)


def node(inventory: Path, command: str) -> str:
    """What a command prints on the node, run as root."""
    printed = run(BIN / "ansible", "-i", inventory, "gpu01", "-b", "-m", "command", "-a", command)
    return printed.split(">>\n", 1)[-1]


def apply_driver(inventory: Path, settings: Path) -> int:
    """Plays the driver's playbook; how many tasks changed something."""
    printed = run(
        BIN / "ansible-playbook",
        "-i",
        inventory,
        "playbooks/driver.yml",
        "-e",
        f"@{settings}",
        timeout_s=1800,
    )
    found = re.search(r"gpu01 .*changed=(\d+)", printed)
    assert found, printed
    return int(found.group(1))


def test_debians_driver_is_installed_built_and_held(
    inventory: Path, tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(repository)
    sources = tmp_path / "debian.sources"
    sources.write_text(DEBIAN)
    settings = tmp_path / "settings.json"
    settings.write_text(json.dumps(SETTINGS))
    copy = f"src={sources} dest=/etc/apt/sources.list.d/debian.sources mode=0644"
    run(BIN / "ansible", "-i", inventory, "gpu01", "-b", "-m", "copy", "-a", copy)

    assert apply_driver(inventory, settings) > 0

    version = node(inventory, "dpkg-query -W -f ${Version} nvidia-kernel-dkms").strip()
    assert version.startswith("535.")
    upstream = version.rsplit("-", 1)[0]
    status = node(inventory, "dkms status")
    assert re.search(rf"nvidia.*{re.escape(upstream)}, \S+-cloud-amd64, x86_64: installed", status), status
    assert "/nvidia" in node(inventory, "find /lib/modules -name nvidia*.ko*")
    held = set(node(inventory, "apt-mark showhold").split())
    assert {"nvidia-kernel-dkms", "nvidia-smi", "libcuda1", "linux-headers-cloud-amd64"} & held >= {
        "nvidia-kernel-dkms",
        "nvidia-smi",
        "linux-headers-cloud-amd64",
    }

    assert apply_driver(inventory, settings) == 0
