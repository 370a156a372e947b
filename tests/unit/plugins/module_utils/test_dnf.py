"""What dnf and rpm print, read as data; its configuration for one run; locks next to those of others."""

from __future__ import annotations

import configparser
import os
from pathlib import Path

import pytest
from ansible_collections.clusterctl.cluster.plugins.module_utils import dnf_run
from ansible_collections.clusterctl.cluster.plugins.module_utils.apt_view import Proxies
from ansible_collections.clusterctl.cluster.plugins.module_utils.dnf_transaction import (
    Outcome,
    Transaction,
    install,
    parse_table,
    simulate,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.driver_dnf_plan import (
    enabled_stream,
    parse_offers,
    parse_streams,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.driver_reload import initramfs_command
from ansible_collections.clusterctl.cluster.plugins.module_utils.gpu_node import kernels
from ansible_collections.clusterctl.cluster.plugins.module_utils.prebuilt_modules import (
    Build,
    precompiled_builds,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.preflight_facts import rpms_offered
from ansible_collections.clusterctl.cluster.plugins.module_utils.rpm_database import (
    by_key,
    has_rpm,
    leftovers,
    parse_rpms,
    rpm_packages,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.version_locks import (
    is_locked,
    lock_list,
    with_locks,
    write_locks,
)
from hypothesis import given
from hypothesis import strategies as st

KERNEL = "5.14.0-570.12.1.el9_6"
# rpm's answer to QUERY.
RPMS = (
    "nvidia-driver-cuda|3:580.95.05-1.el9|x86_64\n"
    f"kernel-core|{KERNEL}|x86_64\n"
    "kernel-core|5.14.0-611.5.1.el9_7|x86_64\n"
    "kernel-tools|5.14.0-611.5.1.el9_7|x86_64\n"
    "gpg-pubkey|d42d0685-62589a51|(none)\n"
)
# As dnf 4.14 prints it for a change of branch; the first row is broken for its long name.
TABLE = """\
Last metadata expiration check: 0:00:17 ago on Thu Nov 26 09:04:25 2026.
================================================================================
 Package                                Arch   Version              Repo   Size
================================================================================
Installing:
 kmod-nvidia-580.105.08-5.14.0-570.12.1-and-a-name-that-is-as-long-as-no-other-one
                                        x86_64 3:580.105.08-3.el9_6 cuda  5.8 k
     replacing  nvidia-old.x86_64 3:570.172.08-1.el9
Installing dependencies:
 kernel-devel                           x86_64 5.14.0-570.12.1.el9_6 base 5.8 k
Upgrading:
 nvidia-driver-cuda                     x86_64 3:580.105.08-1.el9   cuda  5.5 k
Downgrading:
 libnvidia-ml                           x86_64 3:570.172.08-1.el9   cuda  5.5 k
Removing:
 kmod-nvidia-open-dkms                  noarch 3:580.95.05-1.el9    @cuda   0  
Switching module streams:
 nvidia-driver                                 580-open -> 580                 
Skipping packages with conflicts:
(add '--best --allowerasing' to command line to force their upgrade):
 skipped                                noarch 1-1                  cuda  5.6 k

Transaction Summary
================================================================================
Install  2 Packages
"""  # noqa: W291


def test_the_table_is_read_with_streams_broken_rows_and_what_is_replaced() -> None:
    installed = {"nvidia-driver-cuda": "3:580.95.05-1.el9", "libnvidia-ml": "3:580.95.05-1.el9"}
    assert parse_table(TABLE, installed) == Outcome(
        {
            "kmod-nvidia-580.105.08-5.14.0-570.12.1-and-a-name-that-is-as-long-as-no-other-one": (
                "",
                "3:580.105.08-3.el9_6",
            ),
            "nvidia-old": ("3:570.172.08-1.el9", ""),
            f"kernel-devel-{KERNEL}.x86_64": ("", KERNEL),
            "nvidia-driver-cuda": ("3:580.95.05-1.el9", "3:580.105.08-1.el9"),
            "libnvidia-ml": ("3:580.95.05-1.el9", "3:570.172.08-1.el9"),
            "kmod-nvidia-open-dkms": ("3:580.95.05-1.el9", ""),
        },
        {"nvidia-driver": ("580-open", "580")},
    )
    assert parse_table("Dependencies resolved.\nNothing to do.\nComplete!\n", {}) == Outcome()


@pytest.mark.parametrize(
    ("code", "output", "error", "complaint"),
    [
        (0, TABLE, "Error: Operation aborted.\n", ""),
        (0, "Nothing to do.\n", "Error: Unable to find a match: x-1\n", "Unable to find a match: x-1"),
        (0, " Problem: package a requires b\n", "Error: Operation aborted.\n", "package a requires b"),
        (1, "", "", "dnf ended with 1"),
    ],
)
def test_a_complaint_is_known_although_its_shell_ends_well(
    code: int, output: str, error: str, complaint: str
) -> None:
    scripts = []

    def run(argv: list[str]) -> tuple[int, str, str]:
        scripts.append(Path(argv[-1]).read_text())
        return code, output, error

    found = simulate(run, Transaction(["a-1", "b"], ["c"], "nvidia-driver:580"), {})
    assert scripts == ["module enable nvidia-driver:580\nremove c\ninstall a-1 b\nts run\n"]
    assert complaint in found[1]
    assert bool(found[1]) is bool(complaint)
    assert bool(found[0].changes) is not bool(complaint)


def test_a_missing_plugin_is_no_cause() -> None:
    plugin = "No matches found for the following disable plugin patterns: versionlock\n"
    assert dnf_run.explain(f"{plugin}Error: dnf ended with -9\n") == "Error: dnf ended with -9"
    code, _, error = install(lambda _: (-9, "", plugin), Transaction(["a"]))
    assert (code, dnf_run.explain(error)) == (-9, "Error: dnf ended with -9")


def test_kernels_are_packages_each_of_its_own_and_others_go_by_name() -> None:
    installed = by_key(parse_rpms(RPMS))
    assert installed == {
        "nvidia-driver-cuda": "3:580.95.05-1.el9",
        f"kernel-core-{KERNEL}.x86_64": KERNEL,
        "kernel-core-5.14.0-611.5.1.el9_7.x86_64": "5.14.0-611.5.1.el9_7",
        "kernel-tools": "5.14.0-611.5.1.el9_7",
    }
    running = f"{KERNEL}.x86_64"
    assert kernels(Path("/"), running, installed) == [running, "5.14.0-611.5.1.el9_7.x86_64"]


def test_what_an_interrupted_transaction_left_is_told_from_what_it_brought() -> None:
    rpms = parse_rpms("a|1-10.el9|x86_64\na|1-9.el9|x86_64\nb|2-1|noarch\n")
    assert by_key(rpms)["a"] == "1-9.el9"
    assert leftovers(rpms, {"a": "1-10.el9", "b": "2-1"}) == ["a-1-9.el9.x86_64"]
    assert leftovers(rpms, {"a": "1-11.el9", "b": ""}) == []


def test_a_system_has_one_package_manager(tmp_path: Path) -> None:
    assert not has_rpm(tmp_path)
    (tmp_path / "var/lib/rpm").mkdir(parents=True)
    assert has_rpm(tmp_path)
    (tmp_path / "var/lib/dpkg").mkdir(parents=True)
    (tmp_path / "var/lib/dpkg/status").touch()
    assert not has_rpm(tmp_path)  # a Debian with rpm on it


@pytest.mark.parametrize(
    ("line", "locked"),
    [
        ("nvidia-driver-cuda-3:580.95.05-1.el9.*", True),
        ("nvidia-driver-cuda-3:570.1-1.el9.*", True),  # it may not become what is asked for
        ("nvidia-driver-cuda", True),
        ("nvidia-driver*", True),
        ("nvidia-driver-3:580.95.05-1.el9.*", False),
        ("other-1-1", False),
    ],
)
def test_a_package_is_locked_by_version_name_or_glob(line: str, locked: bool) -> None:
    assert is_locked("nvidia-driver-cuda", "3:580.95.05-1.el9", "x86_64", [line]) is locked


def test_a_kernel_is_locked_at_its_own_version_alone(tmp_path: Path) -> None:
    file = tmp_path / "etc/dnf/plugins/versionlock.list"
    file.parent.mkdir(parents=True)
    file.write_text(f"# Added lock\nkernel-core-0:{KERNEL}.*\n!kernel-tools-0:1-1.*\n")
    _, held = rpm_packages(lambda _: (0, RPMS, ""), tmp_path)
    assert held == {f"kernel-core-{KERNEL}.x86_64"}


def test_our_locks_follow_the_versions_and_everything_else_stays(tmp_path: Path) -> None:
    theirs = "# Added lock on Thu\nbash-0:5.1.8-9.el9.*\nkernel-core-0:5.14.0-1.el9.*\n"
    old, new = "3:580.95.05-1.el9", "3:580.105.08-1.el9"
    kernel = f"kernel-core-{KERNEL}.x86_64"
    first = with_locks(theirs, [], {"nvidia-driver-cuda": old, kernel: KERNEL})
    assert first == f"{theirs}kernel-core-0:{KERNEL}.*\nnvidia-driver-cuda-{old}.*\n"
    second = with_locks(first, ["nvidia-driver-cuda", kernel], {"nvidia-driver-cuda": new})
    assert second == f"{theirs}nvidia-driver-cuda-{new}.*\n"
    assert with_locks(second, ["nvidia-driver-cuda"], {}) == theirs
    write_locks(tmp_path, [], {"a": "1-1"})
    assert (tmp_path / "etc/dnf/plugins/versionlock.list").read_text() == "a-0:1-1.*\n"
    (tmp_path / "etc/dnf/plugins/versionlock.conf").write_text("[main]\nenabled = 1\nlocklist = /etc/locks\n")
    assert lock_list(tmp_path) == tmp_path / "etc/locks"


@given(
    st.dictionaries(
        st.from_regex(r"[a-z]{1,8}(-[a-z0-9]{1,5}){0,2}", fullmatch=True),
        st.from_regex(r"([1-9]:)?[0-9]{1,3}(\.[0-9]{1,3}){0,2}-[0-9]{1,2}\.el9", fullmatch=True),
        max_size=4,
    )
)
def test_what_we_lock_is_locked_and_goes_without_a_trace(wanted: dict[str, str]) -> None:
    text = with_locks("", [], wanted)
    assert all(is_locked(name, evr, "x86_64", text.splitlines()) for name, evr in wanted.items())
    assert with_locks(text, wanted, wanted) == text
    assert with_locks(text, wanted, {}) == ""


def test_offers_streams_and_the_enabled_one(tmp_path: Path) -> None:
    assert parse_offers("a|3:580.95.05-1.el9\na|3:580.105.08-1.el9\nb|0:1-1\na|3:580.95.05-1.el9\n") == {
        "a": ["3:580.105.08-1.el9", "3:580.95.05-1.el9"],
        "b": ["1-1"],
    }
    listed = (
        "cuda-rhel9-x86_64\nName          Stream       Profiles             Summary\n"
        "nvidia-driver latest       default [d], fm, ks, Nvidia driver\n"
        "                           src\n"
        "nvidia-driver 580-open [e] default [d], fm, ks  Nvidia driver\n\nHint: [d]efault, [e]nabled\n"
    )
    assert parse_streams(listed) == ["latest", "580-open"]
    file = tmp_path / "etc/dnf/modules.d/nvidia-driver.module"
    assert enabled_stream(tmp_path) == ""
    file.parent.mkdir(parents=True)
    file.write_text("[nvidia-driver]\nname=nvidia-driver\nstream=580-open\nprofiles=\nstate=enabled\n")
    assert enabled_stream(tmp_path) == "580-open"
    file.write_text(file.read_text().replace("=enabled", " = disabled"))
    assert enabled_stream(tmp_path) == ""


def test_precompiled_modules_say_driver_and_kernel_in_their_names() -> None:
    found = precompiled_builds(
        {
            "kmod-nvidia-580.95.05-5.14.0-570.12.1": ["3:580.95.05-3.el9_6"],
            "kmod-nvidia-open-580.95.05-5.14.0-570.12.1": ["3:580.95.05-1.el9_6"],
            "kmod-nvidia-open-dkms": ["3:580.95.05-1.el9"],
        },
        "x86_64",
    )
    assert found == {
        "kmod-nvidia-580.95.05-5.14.0-570.12.1": {
            "3:580.95.05-3.el9_6": Build("580.95.05", f"{KERNEL}.x86_64")
        },
        "kmod-nvidia-open-580.95.05-5.14.0-570.12.1": {
            "3:580.95.05-1.el9_6": Build("580.95.05", f"{KERNEL}.x86_64")
        },
    }


def test_dnf_keeps_the_nodes_own_configuration_and_no_secret_in_its_environment(tmp_path: Path) -> None:
    (tmp_path / "etc/dnf").mkdir(parents=True)
    (tmp_path / "etc/dnf/dnf.conf").write_text(
        "[main]\ngpgcheck=1\nbest=False\n# %s\n[site]\nbaseurl=http://x/%\n"
    )
    (tmp_path / "etc/yum.repos.d").mkdir()
    (tmp_path / "etc/yum.repos.d/a.repo").write_text("[a]\nbaseurl=http://10.1.2.3/rpms\n")
    proxies = Proxies("http://u:secret@proxy:3128", "", "depot,10.0.0.0/8")
    with dnf_run.environment(proxies, tmp_path, tmp_path / "view") as (dnf, variables):
        assert Path(dnf[2]).stat().st_mode & 0o777 == 0o600
        parser = configparser.ConfigParser(interpolation=None)
        parser.read(dnf[2])
        # curl of RHEL 9 knows no networks.
        assert variables["no_proxy"] == "depot,10.0.0.0/8,10.1.2.3"
        assert "secret" not in str(dnf) + str(variables)
    assert not Path(dnf[2]).exists()
    main = parser["main"]
    assert (main["gpgcheck"], main["best"], main["proxy"]) == ("1", "True", "http://u:secret@proxy:3128")
    assert main["reposdir"] == f"/etc/yum.repos.d,{tmp_path}/view"
    assert parser["site"]["baseurl"] == "http://x/%"
    (tmp_path / "etc/dnf/dnf.conf").write_text("[main]\nproxy=http://theirs\nreposdir=/srv\n")
    assert "proxy = http://theirs" in dnf_run.configuration(proxies, tmp_path)


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("https://developer.download.nvidia.com/compute/cuda/repos/rhel9/x86_64/", "cuda"),
        ("https://Developer.download.nvidia.com/compute/cuda/repos/rhel9/x86_64", "cuda"),
        ("https://download.docker.com/linux/centos/9/x86_64/stable", "docker-ce-stable"),
        ("https://download.docker.com/linux/centos/9/x86_64/test", ""),
        ("https://developer.download.nvidia.com/compute/cuda/repos/rhel8/x86_64/", ""),
    ],
)
def test_a_repository_of_the_operators_is_known_by_its_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, found: str
) -> None:
    monkeypatch.setattr(os, "uname", lambda: os.uname_result(("Linux", "x", "5", "#1", "x86_64")))
    directory = tmp_path / "etc/yum.repos.d"
    directory.mkdir(parents=True)
    (directory / "cuda-rhel9.repo").write_text(
        "[cuda]\nbaseurl=https://developer.download.nvidia.com/compute/cuda/repos/rhel9/x86_64\nenabled=1\n"
    )
    (directory / "docker-ce.repo").write_text(
        "[docker-ce-stable]\nbaseurl=https://download.docker.com/linux/centos/$releasever/$basearch/stable\n\n"
        "[docker-ce-test]\nenabled=0\nbaseurl=https://download.docker.com/linux/centos/9/x86_64/test\n"
    )
    (directory / "broken.repo").write_text("no section\n")
    there = dnf_run.find_repository(tmp_path, url)
    assert (there.name if there else "") == found
    assert dnf_run.find_repository(tmp_path, url, but_not="cuda-rhel9.repo") is None or found != "cuda"


LOGIN_URL = "https://ops:s3cr%65t%3A@mirror.lan:8443/os/"
OLD = f"[x]\nbaseurl={LOGIN_URL}\n"


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("https://mirror.lan/os", {"baseurl": "https://mirror.lan/os"}),
        (
            LOGIN_URL,
            {"baseurl": "https://mirror.lan:8443/os/", "username": "ops", "password": "s3cret:"},
        ),
        ("https://token@mirror.lan/", {"baseurl": "https://mirror.lan/", "username": "token"}),
        # dnf's variables, ends of lines and curl's colon.
        *[(url, {"baseurl": url}) for url in ("http://u:a%24arch@m/", "http://u:a%0Ab@m/", "http://a%3Ab:p@m/")],
    ],
)  # fmt: skip
def test_a_login_stands_beside_the_address_of_a_repository(url: str, options: dict[str, str]) -> None:
    assert dnf_run.address_options(url) == options


@pytest.mark.parametrize("text", [OLD, dnf_run.repository("x", dnf_run.address_options(LOGIN_URL))])
def test_a_repository_is_known_by_its_login_too(tmp_path: Path, text: str) -> None:
    file = tmp_path / "etc/yum.repos.d/x.repo"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    assert dnf_run.find_repository(tmp_path, LOGIN_URL)
    assert not dnf_run.find_repository(tmp_path, "https://ops:other@mirror.lan:8443/os/")
    assert not dnf_run.find_repository(tmp_path, "https://mirror.lan:8443/os/")
    masked = dnf_run.mask_repository(text)
    assert masked.startswith("[x]\nbaseurl=https://")
    assert not any(word in masked for word in ("ops", "s3cr", "65t"))


def test_preflight_asks_dnf_by_the_sites_proxies(tmp_path: Path) -> None:
    asked: list[list[str]] = []

    def run(argv: list[str]) -> tuple[int, str, str]:
        asked.append(argv)
        return 0, f"kernel-devel|kernel-devel-{KERNEL}.x86_64\n", ""

    names = [f"kernel-devel-{KERNEL}.x86_64", "dkms"]
    assert rpms_offered(run, tmp_path, names, Proxies("", "", "depot")) == {names[0]}
    assert "no_proxy=depot" in asked[0]
    assert rpms_offered(run, tmp_path, [], Proxies()) == set()
    assert len(asked) == 1


def test_the_initramfs_is_written_by_the_systems_own_program(tmp_path: Path) -> None:
    assert initramfs_command(tmp_path)[0] == "update-initramfs"
    (tmp_path / "usr/bin").mkdir(parents=True)
    (tmp_path / "usr/bin/dracut").touch()
    assert initramfs_command(tmp_path) == ["dracut", "--force", "--regenerate-all"]


def test_what_has_no_form_of_a_package_is_no_offer() -> None:
    odd = ("1-1.el9 http://x/evil.rpm", "1-1;2", "http://x/evil.rpm", "1-1'", "", "--installroot")
    lines = "".join(f"driver|{version}\n" for version in odd) + "a b|1-1\ndriver|3:580.95.05-1.el9~rc1^git\n"
    assert parse_offers(lines) == {"driver": ["3:580.95.05-1.el9~rc1^git"]}


@pytest.mark.parametrize(
    "asked",
    [
        Transaction(["driver-1-1 http://x/evil.rpm"]),
        Transaction(["driver"], ["old\nremove glibc"]),
        Transaction(["driver"], stream="nvidia-driver:580 base"),
        Transaction(["/tmp/evil.rpm"]),
    ],
    ids=str,
)
def test_dnfs_shell_is_given_no_word_that_it_would_split_or_fetch(asked: Transaction) -> None:
    def run(argv: list[str]) -> tuple[int, str, str]:
        raise AssertionError(argv)

    assert "is no package" in simulate(run, asked, {})[1]
    assert install(run, asked)[0] == 1
