"""Which systems are supported stands in one place; others are refused by name, and the documents agree."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from ansible_collections.clusterctl.cluster.plugins.module_utils.apt_run import require_apt
from ansible_collections.clusterctl.cluster.plugins.module_utils.gpu_node import os_release
from ansible_collections.clusterctl.cluster.plugins.module_utils.supported_systems import (
    CODE,
    name_of,
    refusal,
)
from tests.support.played_module import PlayedModule, result_of
from tests.support.tree import ROOT

COMPAT = yaml.safe_load((ROOT / "roles/nvidia_driver/files/compat.yml").read_text())
# Ansible Galaxy names releases by these.
CODENAMES = {"12": "bookworm", "13": "trixie", "22.04": "jammy", "24.04": "noble"}
REBUILDS = {"almalinux": "el", "rhel": "el", "rocky": "el"}
# The first lines of os-release as each system has them.
RELEASES = {
    "rhel8": 'NAME="Red Hat Enterprise Linux"\nVERSION_ID="8.10"\nID="rhel"\n'
    'PRETTY_NAME="Red Hat Enterprise Linux 8.10 (Ootpa)"\n',
    "alma8": 'NAME="AlmaLinux"\nID="almalinux"\nVERSION_ID="8.10"\n'
    'PRETTY_NAME="AlmaLinux 8.10 (Cerulean Leopard)"\n',
    "rocky9": 'NAME="Rocky Linux"\nID="rocky"\nVERSION_ID="9.4"\nPRETTY_NAME="Rocky Linux 9.4 (Blue Onyx)"\n',
    "rhel9": 'NAME="Red Hat Enterprise Linux"\nVERSION_ID="9.6"\nID="rhel"\n'
    'PRETTY_NAME="Red Hat Enterprise Linux 9.6 (Plow)"\n',
    "alma9": 'ID="almalinux"\nVERSION_ID="9.6"\nPRETTY_NAME="AlmaLinux 9.6 (Sage Margay)"\n',
    "rocky10": 'ID="rocky"\nVERSION_ID="10.0"\nPRETTY_NAME="Rocky Linux 10.0 (Red Quartz)"\n',
    "focal": 'NAME="Ubuntu"\nID=ubuntu\nVERSION_ID="20.04"\nPRETTY_NAME="Ubuntu 20.04.6 LTS"\n',
    "bullseye": 'PRETTY_NAME="Debian GNU/Linux 11 (bullseye)"\nVERSION_ID="11"\nID=debian\n',
    "sid": 'PRETTY_NAME="Debian GNU/Linux forky/sid"\nID=debian\n',
    "sles": 'NAME="SLES"\nVERSION_ID="15.6"\nID="sles"\nPRETTY_NAME="SUSE Linux Enterprise Server 15 SP6"\n',
    "arch": 'NAME="Arch Linux"\nPRETTY_NAME="Arch Linux"\nID=arch\n',
}


def system(root: Path, release: str) -> dict[str, str]:
    (root / "etc").mkdir(exist_ok=True)
    (root / "etc/os-release").write_text(release)
    return os_release(root)


@pytest.mark.parametrize(
    ("release", "found"),
    [
        ("rhel8", "Red Hat Enterprise Linux 8.10 (Ootpa): its dnf has bindings only for Python 3.6"),
        ("alma8", "AlmaLinux 8.10 (Cerulean Leopard): its dnf has bindings only for Python 3.6"),
        ("rocky10", "Rocky Linux 10.0 (Red Quartz)"),
        ("focal", "Ubuntu 20.04.6 LTS: its standard support has ended"),
        ("bullseye", "Debian GNU/Linux 11 (bullseye)"),
        ("sid", "Debian GNU/Linux forky/sid"),
        ("sles", "SUSE Linux Enterprise Server 15 SP6"),
        ("arch", "Arch Linux"),
    ],
)
def test_others_are_refused_by_name_with_the_supported_ones(tmp_path: Path, release: str, found: str) -> None:
    refused = refusal(system(tmp_path, RELEASES[release]), COMPAT)
    assert refused is not None
    assert refused.found.startswith(found)
    assert refused.expected == "AlmaLinux 9; Debian 12, 13; RHEL 9; Rocky 9; Ubuntu 22.04, 24.04"
    assert "install one of these" in refused.remedy


def test_supported_ones_are_not_refused() -> None:
    for name, releases in COMPAT["supported_os"].items():
        for release in releases:
            assert refusal({"id": name, "version": release, "name": f"{name} {release}"}, COMPAT) is None


@pytest.mark.parametrize("release", ["rocky9", "rhel9", "alma9"])
def test_a_minor_release_of_rhel_and_its_rebuilds_is_that_of_its_major_one(
    tmp_path: Path, release: str
) -> None:
    assert refusal(system(tmp_path, RELEASES[release]), COMPAT) is None


def test_no_system_is_both_supported_and_refused() -> None:
    for entry in COMPAT["refused_os"]:
        for name in entry["ids"]:
            majors = {release.partition(".")[0] for release in COMPAT["supported_os"].get(name, [])}
            assert entry["version"] not in majors


def test_what_installs_packages_refuses_a_system_without_dpkg_by_name(tmp_path: Path) -> None:
    system(tmp_path, RELEASES["rocky9"])
    refused = result_of(require_apt, PlayedModule(), tmp_path)
    assert "not supported (Rocky Linux 9.4 (Blue Onyx)): it has no dpkg" in refused["msg"]
    assert refused["code"] == CODE
    (tmp_path / "var/lib/dpkg").mkdir(parents=True)
    (tmp_path / "var/lib/dpkg/status").touch()
    require_apt(PlayedModule(), tmp_path)  # type: ignore[arg-type]


def test_the_roles_name_the_same_platforms() -> None:
    supported = {
        (REBUILDS.get(name, name), CODENAMES.get(release, release))
        for name, found in COMPAT["supported_os"].items()
        for release in found
    }
    for file in sorted((ROOT / "roles").glob("*/meta/main.yml")):
        platforms = yaml.safe_load(file.read_text())["galaxy_info"].get("platforms", [])
        named = {(one["name"].lower(), version) for one in platforms for version in one["versions"]}
        of_registry = {("el", "9")} if file.parent.parent.name in ("harbor", "registry") else set()
        assert named == supported - of_registry, file


def test_support_says_what_was_seen_on_each_and_which_are_refused() -> None:
    rows = (ROOT / "docs/support.md").read_text()
    for name, releases in COMPAT["supported_os"].items():
        for release in releases:
            row = next(
                line for line in rows.splitlines() if name_of(name, COMPAT) in line and release in line
            )
            assert row.startswith("| ")
    for entry in COMPAT["refused_os"]:
        assert entry["version"] in next(line for line in rows.splitlines() if line.startswith("| Refused"))
