"""What apt says, read as data; what a transaction may not do; proxies and sources."""

from __future__ import annotations

import pwd
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from ansible_collections.clusterctl.cluster.plugins.module_utils import apt_sources
from ansible_collections.clusterctl.cluster.plugins.module_utils.apt_packages import (
    matching,
    parse_madison,
    parse_simulation,
    upstream,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.apt_sources import find_source
from ansible_collections.clusterctl.cluster.plugins.module_utils.apt_view import (
    Proxies,
    make_view,
    proxy_configuration,
    source_stanza,
)
from ansible_collections.clusterctl.cluster.plugins.modules import nvidia_driver_packages, nvidia_driver_plan
from hypothesis import given
from hypothesis import strategies as st
from tests.support.tree import ROOT

COMPAT = yaml.safe_load((ROOT / "roles/nvidia_driver/files/compat.yml").read_text())
PARAMS = {"compat": COMPAT, "source": "cuda", "version": "580.105.08", "hold": True, "hold_kernel": True}


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("580.95.05-1", "580.95.05"),
        ("535.309.01-1~deb12u1", "535.309.01"),
        ("1:2.3-4ubuntu1", "2.3"),
        ("580", "580"),
        ("", ""),
    ],
)
def test_upstream_is_the_version_without_epoch_and_revision(version: str, expected: str) -> None:
    assert upstream(version) == expected


def test_madison_is_read_for_one_source_alone() -> None:
    printed = (
        " nvidia-open-580 | 580.105.08-1 | http://depot/cuda/repos/debian12/x86_64  Packages\n"
        " nvidia-open-580 | 580.95.05-1 | http://depot/cuda/repos/debian12/x86_64  Packages\n"
        "      libcuda1 | 535.309.01-1~deb12u1 | http://deb.debian.org/debian bookworm/non-free Packages\n"
    )
    assert parse_madison(printed, "http://depot/") == {"nvidia-open-580": ["580.105.08-1", "580.95.05-1"]}
    assert parse_madison(printed)["libcuda1"] == ["535.309.01-1~deb12u1"]


@pytest.mark.parametrize("version", ["580.*-1", "580.105.08-1 x", "?version(580)", "/tmp/x.deb", ""])
def test_what_is_no_version_is_not_offered(version: str) -> None:
    """The index of a source that is not configured yet is anybody's; apt takes these for patterns."""
    assert parse_madison(f" nvidia-open-580 | {version} | http://depot/cuda/  Packages\n") == {}


def test_a_source_with_a_login_is_known_by_what_apt_prints_of_it() -> None:
    printed = " nvidia-open-580 | 580.105.08-1 | http://depot/cuda  Packages\n"
    module = SimpleNamespace(
        params={"repository_url": "http://ops:secret@depot/cuda/", "source": "cuda"},
        run_command=lambda _: (0, printed, ""),
    )
    versions, _ = nvidia_driver_plan.offered(module, ["nvidia-open-580"], [])
    assert versions == {"nvidia-open-580": ["580.105.08-1"]}


def test_a_simulation_is_read_with_installs_upgrades_and_removals() -> None:
    printed = (
        "Reading package lists...\n"
        "Remv nvidia-open-570 [570.148.08-1]\n"
        "Inst libcuda1 [570.148.08-1] (580.95.05-1 depot [amd64]) []\n"
        "Inst nvidia-open-580 (580.95.05-1 depot [amd64])\n"
        "Conf nvidia-open-580 (580.95.05-1 depot [amd64])\n"
    )
    assert parse_simulation(printed) == {
        "nvidia-open-570": ("570.148.08-1", ""),
        "libcuda1": ("570.148.08-1", "580.95.05-1"),
        "nvidia-open-580": ("", "580.95.05-1"),
    }


def test_the_drivers_packages_are_told_from_their_namesakes() -> None:
    names = ["libcuda1", "libnvidia-container1", "libnvidia-ml1", "nvidia-container-toolkit", "nvidia-smi"]
    found = matching(names, COMPAT["driver_packages"], COMPAT["other_packages"])
    assert found == ["libcuda1", "libnvidia-ml1", "nvidia-smi"]


@pytest.mark.parametrize(
    ("changes", "held", "words"),
    [
        ({"libcuda1": ("580.95.05-1", "580.105.08-1")}, set(), ""),
        ({"nvidia-fabricmanager-570": ("570.148.08-1", "")}, set(), ""),
        ({"docker.io": ("20.10.24", "")}, set(), "would remove docker.io"),
        ({"libcuda1": ("580.95.05-1", "570.148.08-1")}, set(), "mix versions: libcuda1 570.148.08-1"),
        ({"libcuda1": ("580.95.05-1", "580.105.08-1")}, {"libcuda1"}, "held by someone else: libcuda1"),
        ({"nvidia-container-toolkit": ("1.18.1-1", "")}, set(), "would remove nvidia-container-toolkit"),
    ],
)
def test_a_transaction_is_refused_for_what_it_would_break(changes, held, words: str) -> None:
    reasons = nvidia_driver_packages.refusals(changes, PARAMS, held, {"held": []})
    assert (words in "; ".join(reasons)) if words else reasons == []


def test_our_own_hold_is_no_reason_to_refuse() -> None:
    changes = {"libcuda1": ("580.95.05-1", "580.105.08-1")}
    assert nvidia_driver_packages.refusals(changes, PARAMS, {"libcuda1"}, {"held": ["libcuda1"]}) == []


def test_the_kernel_is_held_with_the_driver_unless_told_otherwise() -> None:
    installed = {"libcuda1": "1", "linux-image-amd64": "1", "nvidia-container-toolkit": "1", "bash": "1"}
    assert nvidia_driver_packages.wanted_holds(PARAMS, installed) == {"libcuda1", "linux-image-amd64"}
    assert nvidia_driver_packages.wanted_holds({**PARAMS, "hold_kernel": False}, installed) == {"libcuda1"}
    assert nvidia_driver_packages.wanted_holds({**PARAMS, "hold": False}, installed) == set()


def test_a_proxy_is_for_one_host_and_not_for_those_named() -> None:
    proxies = Proxies("http://proxy:3128", "", "depot, .internal")
    assert proxy_configuration("http://mirror.example/cuda/", proxies) == (
        'Acquire::http::Proxy::mirror.example "http://proxy:3128";\n'
    )
    for url in ("http://depot/cuda/", "http://apt.internal/x", "https://mirror.example/"):
        assert proxy_configuration(url, proxies) == ""


def test_a_proxys_password_with_a_quote_is_no_further_line_of_apts() -> None:
    proxies = Proxies('http://u:a"; x "b\n@proxy:3128', "", "")
    assert proxy_configuration("http://mirror.example/", proxies) == (
        'Acquire::http::Proxy::mirror.example "http://u:a%22;%20x%20%22b%0A@proxy:3128";\n'
    )


@pytest.mark.parametrize(
    ("host", "direct"),
    [("10.1.2.3", True), ("192.168.1.9", False), ("[fd00::7]", True), ("10.1.2.3.example", False)],
)
def test_a_network_in_no_proxy_holds_for_addresses_in_it(host: str, direct: bool) -> None:
    proxies = Proxies("http://proxy:3128", "", "10.0.0.0/8, fd00::/8, nonsense/99")
    assert (proxies.for_url(f"http://{host}/cuda/") == "") is direct


@given(st.text(alphabet="abc.", min_size=1, max_size=12))
def test_a_host_named_in_no_proxy_is_never_proxied(host: str) -> None:
    name = host.strip(".") or "a"
    assert Proxies("http://p", "http://p", f"x,{name}").for_url(f"http://sub.{name}/") == ""


def test_a_source_that_the_operator_has_is_found_in_either_format(tmp_path: Path) -> None:
    lists = tmp_path / "etc/apt/sources.list.d"
    lists.mkdir(parents=True)
    url = "http://mirror/cuda/debian12/x86_64/"
    assert find_source(tmp_path, url) == ""
    (lists / "old.list").write_text(f"# deb {url} /\ndeb http://other/ /\n")
    assert find_source(tmp_path, url) == ""
    (lists / "old.list").write_text("deb [signed-by=/k.gpg] http://mirror/cuda/debian12/x86_64 /\n")
    assert find_source(tmp_path, url) == str(lists / "old.list")
    (lists / "old.list").unlink()
    (lists / "ours.sources").write_text(source_stanza(url, "/", "", "Signed-By: /k"))
    assert find_source(tmp_path, url) == str(lists / "ours.sources")
    assert find_source(tmp_path, url, but_not="ours.sources") == ""


TOOLKIT = "https://nvidia.github.io/libnvidia-container"
DOCKER = "https://download.docker.com/linux/ubuntu"
# As NVIDIA publishes it for the container toolkit.
TOOLKIT_LIST = (
    "deb [signed-by=/usr/share/keyrings/nvidia-container-toolkit-keyring.gpg] "
    "https://nvidia.github.io/libnvidia-container/stable/deb/$(ARCH) /\n"
    "#deb [signed-by=/usr/share/keyrings/nvidia-container-toolkit-keyring.gpg] "
    "https://nvidia.github.io/libnvidia-container/experimental/deb/$(ARCH) /\n"
)
DEB822 = """\
X-Repolib-Name: Docker
Types: deb deb-src
URIs: https://download.docker.com/linux/ubuntu
 https://mirror.example/docker
Suites: jammy
 noble
Components: stable
Architectures: amd64
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 mQINBF
"""


@pytest.fixture
def at_x86(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(apt_sources.os, "uname", lambda: SimpleNamespace(machine="x86_64"))
    return tmp_path


@pytest.mark.parametrize(
    ("name", "text", "wanted", "found"),
    [
        ("a.list", TOOLKIT_LIST, f"{TOOLKIT}/stable/deb/amd64 /", True),
        ("a.list", TOOLKIT_LIST, f"{TOOLKIT.replace('nvidia', 'NVIDIA')}/stable/deb/amd64/ ./", False),
        ("a.list", TOOLKIT_LIST, f"{TOOLKIT.replace('nvidia.g', 'NVIDIA.g')}/stable/deb/amd64/ ./", True),
        ("a.list", TOOLKIT_LIST, f"{TOOLKIT}/stable/deb/arm64 /", False),
        ("a.list", TOOLKIT_LIST, f"{TOOLKIT}/experimental/deb/amd64 /", False),
        ("a.list", "deb https://m/deb ./$(ARCH)/\n", "https://m/deb/amd64 /", True),
        ("a.list", "deb-src https://m/deb /\n", "https://m/deb /", False),
        ("a.list", "deb http://m/deb /\n", "https://m/deb /", False),
        ("a.sources", DEB822, f"{DOCKER} noble", True),
        ("a.sources", DEB822, "https://mirror.example/docker/ jammy", True),
        ("a.sources", DEB822, f"{DOCKER} focal", False),
        ("a.sources", f"Enabled: no\n{DEB822}", f"{DOCKER} noble", False),
        ("a.sources", f"# gone\n\n{DEB822}", f"{DOCKER} noble", True),
        ("a.list.save", TOOLKIT_LIST, f"{TOOLKIT}/stable/deb/amd64 /", False),
    ],
)
def test_an_archive_is_known_however_its_source_is_written(
    at_x86: Path, name: str, text: str, wanted: str, *, found: bool
) -> None:
    lists = at_x86 / "etc/apt/sources.list.d"
    lists.mkdir(parents=True)
    (lists / name).write_text(text)
    assert find_source(at_x86, *wanted.split()) == (str(lists / name) if found else "")


def test_a_view_keeps_the_nodes_sources_and_its_secrets_to_itself(tmp_path: Path) -> None:
    lists = tmp_path / "root/etc/apt/sources.list.d"
    lists.mkdir(parents=True)
    (lists / "site.sources").write_text("Types: deb\n")
    view = tmp_path / "view"
    view.mkdir()
    options = make_view(
        tmp_path / "root",
        view,
        preferences="Package: *\n",
        source="Types: deb\n",
        proxy="Acquire;\n",
        fresh_lists=True,
    )
    assert options == ["-c", str(view / "apt.conf")]
    assert (view / "apt.conf").stat().st_mode & 0o777 == 0o600
    assert f'Dir::State::lists "{view}/lists";' in (view / "apt.conf").read_text()
    assert sorted(p.name for p in (view / "sources.list.d").iterdir()) == ["site.sources", "view.sources"]
    assert [p.name for p in lists.iterdir()] == ["site.sources"]


@pytest.mark.needs("root", "apt-get")
def test_apts_own_user_gets_to_what_a_view_fetches_and_to_nothing_else(tmp_path: Path) -> None:
    view = tmp_path / "view"
    view.mkdir(mode=0o700)
    make_view(tmp_path, view, source="URIs: https://ops:s3cret@mirror\n", fresh_lists=True)
    for name in ("sources.list.d", "preferences.d"):
        assert (view / name).stat().st_mode & 0o777 == 0o700
    user = pwd.getpwnam("_apt").pw_uid
    assert (view.stat().st_mode & 0o777, (view / "apt.conf").stat().st_uid) == (0o711, 0)
    for name in ("cache/archives/partial", "lists/partial"):
        assert ((view / name).stat().st_uid, (view / name).stat().st_mode & 0o777) == (user, 0o700)
