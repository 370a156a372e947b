"""The depot's packages: names, dependencies, pins, and a repository that apt can verify."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from clusterctl.errors import EXIT_INCOMPLETE, ClusterctlError
from clusterlab.sources import (
    contents,
    deb,
    distribution,
    driver_packages,
    other_packages,
    signing,
    ubuntu_driver,
)
from clusterlab.sources.build import DRIVER_VERSIONS, TOOLKIT_VERSIONS


def by_name(version: str) -> dict[str, deb.Package]:
    return {package.name: package for package in driver_packages.packages(version)}


@pytest.mark.parametrize("version", DRIVER_VERSIONS)
def test_a_driver_is_one_version_throughout(version: str) -> None:
    packages = by_name(version)
    branch = version.split(".", 1)[0]
    numbered = "" if version == "590.48.01" else f"-{branch}"
    assert {package.version for package in packages.values()} == {f"{version}-1"}
    assert {
        "nvidia-open",
        f"nvidia-open{numbered}",
        "cuda-drivers",
        "nvidia-driver-cuda",
        "libcuda1",
        "libnvidia-ml1",
        "nvidia-kernel-open-dkms",
        "nvidia-kernel-dkms",
        "nvidia-persistenced",
        f"nvidia-fabricmanager{numbered}",
        f"libnvidia-nscq{numbered}",
        f"nvidia-driver-pinning-{version}",
    } <= set(packages)


@pytest.mark.parametrize(
    "packages",
    [
        driver_packages.packages("590.48.01"),
        ubuntu_driver.packages("590.48.01", ubuntu_driver.NVIDIA),
    ],
)
def test_from_590_on_only_pinning_packages_name_a_branch_or_version(packages: list[deb.Package]) -> None:
    names = {package.name for package in packages}
    assert [name for name in names if "590" in name] == ["nvidia-driver-pinning-590.48.01"]
    assert {"nvidia-open", "cuda-drivers", "nvidia-fabricmanager", "libnvidia-nscq", "nvidia-imex"} <= names
    (manager,) = [package for package in packages if package.name == "nvidia-fabricmanager"]
    assert manager.fields["Provides"] == "nvidia-fabricmanager-590"
    assert "/usr/bin/nv-fabricmanager" in manager.files
    smi = [package.name for package in packages if "/usr/bin/nvidia-smi" in package.files]
    assert smi in (["nvidia-driver-cuda"], ["libnvidia-compute"])


@pytest.mark.parametrize("version", DRIVER_VERSIONS)
def test_every_exact_dependency_is_served(version: str) -> None:
    packages = by_name(version)
    outside = {"python3", "dkms"}
    for package in packages.values():
        for clause in filter(None, package.fields.get("Depends", "").split(", ")):
            name, _, bound = clause.partition(" ")
            assert name in packages or name in outside, clause
            exact = re.fullmatch(r"\(= (.*)\)", bound)
            assert exact is None or exact[1] == f"{version}-1"


def test_metapackages_bound_from_below_only_as_nvidias_do() -> None:
    depends = by_name("580.95.05")["nvidia-open-580"].fields["Depends"]
    assert depends == "nvidia-driver-cuda (>= 580.95.05), nvidia-kernel-open-dkms (>= 580.95.05)"


def test_the_two_kernel_flavors_exclude_each_other() -> None:
    packages = by_name("580.95.05")
    assert packages["nvidia-kernel-open-dkms"].fields["Conflicts"] == "nvidia-kernel-dkms"
    assert packages["nvidia-kernel-dkms"].fields["Conflicts"] == "nvidia-kernel-open-dkms"


@pytest.mark.parametrize(("target", "pin"), [("580", "580.*"), ("580.95.05", "580.95.05-*")])
def test_a_pinning_package_pins_its_target_and_replaces_the_others(target: str, pin: str) -> None:
    package = driver_packages.pinning(target)
    file = package.files["/usr/share/nvidia-driver-pinning/preferences"]
    assert isinstance(file, deb.PackageFile)
    assert f"Pin: version {pin}\nPin-Priority: 1000" in str(file.content)
    assert package.fields["Conflicts"] == package.fields["Provides"] == "nvidia-driver-pinning"
    assert package.conffiles == []


@pytest.mark.parametrize("version", TOOLKIT_VERSIONS)
def test_the_toolkit_is_four_packages(version: str) -> None:
    packages = {package.name: package for package in other_packages.toolkit(version)}
    assert set(packages) == {
        "nvidia-container-toolkit",
        "nvidia-container-toolkit-base",
        "libnvidia-container-tools",
        "libnvidia-container1",
    }
    units = [path for path in packages["nvidia-container-toolkit-base"].files if "cdi-refresh" in path]
    assert len(units) == (2 if version.startswith("1.18") else 0)


def test_nvml_is_a_zip_that_knows_its_version() -> None:
    content = contents.nvml_library("580.95.05").content
    assert isinstance(content, bytes)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert '"580.95.05"' in archive.read("__main__.py").decode()
        assert "simulated_nvml/smi.py" in archive.namelist()
    assert content == contents.nvml_library("580.95.05").content


def test_python_of_this_version_runs_nvml_without_compiling_it(tmp_path: Path) -> None:
    library = tmp_path / "libnvidia-ml.so"
    content = contents.nvml_library("580.95.05").content
    assert isinstance(content, bytes)
    with zipfile.ZipFile(io.BytesIO(content)) as whole, zipfile.ZipFile(library, "w") as other:
        for name in whole.namelist():
            is_source = name.endswith(".py") and name != "__main__.py"
            other.writestr(name, "raise ImportError" if is_source else whole.read(name))
    done = subprocess.run([sys.executable, "-I", library, "--help"], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_no_placeholder_is_left_in_a_program() -> None:
    packages = [*driver_packages.packages("580.95.05"), *other_packages.toolkit("1.18.1")]
    packages += [other_packages.dkms(), other_packages.kernel_headers("6.1.0-1")]
    for package in packages:
        for path, item in package.files.items():
            if isinstance(item, deb.PackageFile) and isinstance(item.content, str):
                assert "@VERSION@" not in item.content, path
        assert "@KERNEL@" not in "".join(package.scripts.values())


def test_distribution_packages_of_one_release_stay_there() -> None:
    assert "docker-cli" in distribution.wanted("debian13")
    assert "docker-cli" not in distribution.wanted("debian12")
    assert {"docker.io", "skopeo", "docker-registry"} <= set(distribution.wanted("debian12"))


def test_debian_is_trusted_by_its_own_key() -> None:
    line = distribution.signed(["deb http://deb.debian.org/debian bookworm main"])[0]
    assert line == (
        "deb [arch=amd64 signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] "
        "http://deb.debian.org/debian bookworm main"
    )


@pytest.fixture
def apt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An apt-get to be written; Debian's keyring is there."""
    keyring = tmp_path / "keyring.gpg"
    keyring.touch()
    monkeypatch.setattr(distribution, "KEYRING", keyring)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    program = tmp_path / "apt-get"
    program.touch(mode=0o755)
    return program


@pytest.mark.parametrize("code", [0, 100])
def test_without_a_network_the_mirror_is_named_and_the_way_out(apt: Path, code: int) -> None:
    said = "W: Failed to fetch http://deb.debian.org/debian/dists/bookworm/InRelease  Could not resolve"
    apt.write_text(f"#!/bin/sh\necho '{said}' >&2\nexit {code}\n")
    with pytest.raises(distribution.DistributionError) as caught:
        distribution.download(["skopeo"], "debian12", apt.parent)
    error = caught.value
    assert isinstance(error, ClusterctlError)
    assert (error.code, error.exit_code) == ("lab.distribution", EXIT_INCOMPLETE)
    assert "Could not resolve" in error.what
    assert error.where == "http://deb.debian.org/debian"
    assert "CLUSTERCTL_LAB_MIRROR" in error.hint


def test_an_apt_that_hangs_is_ended_and_said(apt: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distribution, "LONGEST_S", 0.2)
    apt.write_text("#!/bin/sh\nexec sleep 60\n")
    with pytest.raises(ClusterctlError, match="no end within") as caught:
        distribution.download(["skopeo"], "debian12", apt.parent)
    assert caught.value.code == "lab.distribution"


def test_without_debians_keyring_its_package_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(distribution, "KEYRING", tmp_path / "nowhere.gpg")
    with pytest.raises(ClusterctlError) as caught:
        distribution.download(["skopeo"], "debian12", tmp_path)
    assert caught.value.hint == "apt-get install debian-archive-keyring"


@pytest.mark.parametrize(
    ("program", "code"), [("dpkg-deb", "lab.package-failed"), ("gpg", "lab.signing-failed")]
)
def test_a_tool_that_fails_is_no_failure_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, code: str
) -> None:
    (tmp_path / program).write_text("#!/bin/sh\necho 'No space left on device' >&2\nexit 2\n")
    (tmp_path / program).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(ClusterctlError, match="No space left on device") as caught:
        if program == "gpg":
            signing.ensure(tmp_path / "key")
        else:
            deb.build(by_name("580.95.05")["nvidia-kernel-support"], tmp_path)
    assert caught.value.code == code
    assert caught.value.hint
