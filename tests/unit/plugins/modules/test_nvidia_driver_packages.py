"""The driver's transaction on a fake node: when the pin, the record and the holds are written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from ansible_collections.clusterctl.cluster.plugins.module_utils import nvidia_driver_planner
from ansible_collections.clusterctl.cluster.plugins.module_utils.driver_plan import Facts, Request
from ansible_collections.clusterctl.cluster.plugins.module_utils.driver_record import (
    read_record,
    write_record,
)
from ansible_collections.clusterctl.cluster.plugins.modules import nvidia_driver_packages as transaction
from tests.support.played_module import PlayedModule, result_of
from tests.support.tree import ROOT

COMPAT = yaml.safe_load((ROOT / "roles/nvidia_driver/files/compat.yml").read_text())
NEW, OLD = "580.105.08-1", "580.95.05-1"
PARAMS = {
    "packages": {"libcuda1": NEW},
    "remove": [],
    "version": "580.105.08",
    "source": "cuda",
    "hold": True,
    "hold_kernel": True,
    "refresh": False,
    "warnings": [],
    "repository_url": "http://depot/",
    "http_proxy": "http://proxy:3128",
    "https_proxy": "",
    "no_proxy": "",
    "compat": COMPAT,
}


class Node(PlayedModule):
    """dpkg and apt over a directory; `removes` is a package that apt would take away."""

    def __init__(self, root: Path, **params: object) -> None:
        super().__init__({**PARAMS, **params})
        self.root = root
        self.packages = {"libcuda1": [OLD, False]}
        self.commands: list[str] = []
        self.removes = ""
        self.state = "installed"
        self.fails = self.policy = self.simulated = ""
        self.seen: dict[str, dict] = {}
        self.write()

    def write(self) -> None:
        """dpkg's status file."""
        text = "".join(
            f"Package: {name}\nVersion: {version}\n"
            f"Status: {'hold' if held else 'install'} ok {self.state}\n\n"
            for name, (version, held) in self.packages.items()
        )
        path = self.root / "var/lib/dpkg/status"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def run_command(self, argv: list[str], environ_update: dict[str, str]) -> tuple[int, str, str]:
        # Dependencies come from the distribution's archive: every call has the site's proxies.
        assert 'Acquire::http::Proxy "http://proxy:3128";' in Path(environ_update["APT_CONFIG"]).read_text()
        if argv[0] == "dpkg-query":  # nothing is unpacked in part
            return 0, "", ""
        step = next((word for word in ("--simulate", "--download-only") if word in argv), argv[0])
        if argv[0] == "apt-mark":
            step = f"apt-mark {argv[1]}"
            self.seen[step] = read_record(self.root)
            for name in argv[2:]:
                self.packages[name][1] = argv[1] == "hold"
        self.commands.append(step)
        if step == self.fails:
            return 100, "", "E: it is broken"
        if step == "apt-cache":
            return 0, self.policy, ""
        if step == "--simulate":
            view = next(
                word.partition("=")[2] for word in argv if word.startswith("Dir::Etc::preferencesparts")
            )
            assert "580.105.08" in (Path(view) / "clusterctl-nvidia-driver").read_text()
            said = (
                f"Inst libcuda1 [{OLD}] ({NEW} depot [amd64])\n"
                if self.packages["libcuda1"][0] == OLD
                else ""
            )
            return 0, said + self.simulated + (f"Remv {self.removes} [1.0]\n" if self.removes else ""), ""
        if step == "apt-get":
            self.packages["libcuda1"][0] = NEW
            self.state = "installed"
        self.write()
        return 0, "", ""


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    fake = Node(tmp_path)
    monkeypatch.setattr(transaction, "ROOT", tmp_path)
    monkeypatch.setattr(
        transaction, "PREFERENCES", tmp_path / "etc/apt/preferences.d/clusterctl-nvidia-driver"
    )
    real = transaction.alone
    monkeypatch.setattr(transaction, "alone", lambda name, seconds: real(name, seconds, tmp_path / "locks"))
    monkeypatch.setattr(transaction, "AnsibleModule", lambda *_, **__: fake)
    return fake


def bring(node: Node) -> dict:
    node.commands.clear()
    return result_of(transaction.main)


def test_a_refused_transaction_leaves_no_pin_behind(node: Node) -> None:
    node.removes = "docker.io"
    assert "would remove docker.io" in bring(node)["msg"]
    assert not transaction.PREFERENCES.exists()
    assert node.commands == ["--simulate"]


def test_a_transaction_that_cannot_be_downloaded_leaves_none_either(node: Node) -> None:
    transaction.PREFERENCES.parent.mkdir(parents=True)
    transaction.PREFERENCES.write_text("the old pin")
    node.fails = "--download-only"
    assert "could not download" in bring(node)["msg"]
    assert transaction.PREFERENCES.read_text() == "the old pin"


def test_the_pin_is_written_with_the_transaction_and_a_second_run_changes_nothing(node: Node) -> None:
    assert bring(node)["changed"] is True
    assert node.commands == ["--simulate", "--download-only", "apt-get", "apt-mark hold"]
    assert "Pin: version 580.105.08-*" in transaction.PREFERENCES.read_text()
    assert bring(node)["changed"] is False
    assert node.commands == ["--simulate"]


def test_what_an_interrupted_transaction_only_unpacked_is_configured_and_held(node: Node) -> None:
    """apt simulates no change of such packages."""
    node.packages, node.state = {"libcuda1": [NEW, False]}, "unpacked"
    node.write()
    result = bring(node)
    assert (result["changed"], result["changes"]) == (True, {})
    assert node.commands == ["--simulate", "--download-only", "apt-get", "apt-mark hold"]
    assert (node.packages["libcuda1"], result["held"]) == ([NEW, True], ["libcuda1"])
    assert bring(node)["changed"] is False


def test_holds_are_on_record_before_they_are_set(node: Node) -> None:
    bring(node)
    assert node.seen["apt-mark hold"]["held"] == read_record(node.root)["held"] == ["libcuda1"]


def test_hold_false_releases_what_we_held_and_nothing_else(node: Node) -> None:
    node.packages = {"libcuda1": [NEW, True], "linux-image-amd64": ["1", True]}
    node.write()
    write_record(node.root, {"libcuda1"}, {"libcuda1"})
    node.params["hold"] = False
    node.check_mode = False
    result = bring(node)
    assert (result["changed"], result["released"]) == (True, ["libcuda1"])
    assert node.packages["linux-image-amd64"][1] is True
    assert read_record(node.root)["held"] == []
    assert bring(node)["changed"] is False


@pytest.mark.parametrize(("recorded", "transacts"), [(["libcuda1"], True), ([], False)])
def test_a_hold_of_ours_that_is_declared_no_more_is_a_transaction(
    recorded: list[str], transacts: bool
) -> None:
    request = Request("cuda", "open", "580", "", "full", "false", False, True, [], False, "refuse")
    names = [alternatives[0] for alternatives in COMPAT["packages"]["cuda"]["debian"]["full"]["open"]]
    installed = {name.format(branch="580"): NEW for name in names} | {"libcuda1": NEW}
    system = dict.fromkeys(COMPAT["packages"]["cuda"]["debian"]["with_driver"], "1")
    facts = Facts(
        os={"id": "debian", "version": "12", "name": "Debian"},
        kernels=["6.1.0-38-amd64"],
        headers={"6.1.0-38-amd64": True},
        gpus=[],
        nvswitches=0,
        installed=installed | system,
        held={"libcuda1"},
        record={"packages": sorted(installed), "held": recorded},
        loaded="",
        loaded_flavor="",
        nouveau=False,
        runfile=False,
        available={},
    )
    plan = nvidia_driver_planner.make_plan(request, facts, COMPAT)
    assert json.dumps(plan.problems) == "[]"
    assert plan.transaction is transacts


NEWER_DKMS = "Inst dkms [2.8.7-2ubuntu2.2] (1:3.2.1-1 cuda [all])\n"


@pytest.mark.parametrize(
    ("others", "simulated", "warns"),
    [
        (["mlnx-ofed-kernel-dkms", "knem-dkms"], NEWER_DKMS, True),
        ([], NEWER_DKMS, False),
        (["mlnx-ofed-kernel-dkms"], "Inst dkms (1:3.2.1-1 cuda [all])\n", False),
        (["mlnx-ofed-kernel-dkms"], "", False),
    ],
)
def test_a_dkms_that_takes_over_the_modules_of_others_stands_in_the_plan(
    node: Node, others: list[str], simulated: str, warns: bool
) -> None:
    # The driver's own module is built anew anyway.
    node.packages |= {name: ["1.0", False] for name in [*others, "nvidia-kernel-open-dkms"]}
    node.write()
    node.simulated = simulated
    result = bring(node)
    said = "dkms 1:3.2.1-1 replaces dkms 2.8.7-2ubuntu2.2 and builds the modules of "
    assert (
        f"Warning: {said}knem-dkms, mlnx-ofed-kernel-dkms from now on.\n" in result["diff"]["after"]
    ) is warns
    assert [text.startswith(said) for text in node.warned] == ([True] if warns else [])


@pytest.mark.parametrize(
    ("system", "components", "asks"),
    [
        ("debian", "c=main", True),
        ("debian", "c=main\n release o=Debian,c=contrib", False),
        ("ubuntu", "c=main", False),
    ],
)
def test_contrib_is_the_remedy_where_debian_lacks_it(
    node: Node, system: str, components: str, asks: bool
) -> None:
    (node.root / "etc").mkdir(exist_ok=True)
    (node.root / "etc/os-release").write_text(f"ID={system}\n")
    node.fails, node.policy = (
        "--simulate",
        f" release o=Debian,a=oldstable,n=bookworm,l=Debian,{components},b=amd64\n",
    )
    assert ("Add contrib" in bring(node)["msg"]) is asks
