"""firewalld trusts the declared sources, now and after a boot; what others bound stays."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.clusterctl.cluster.plugins.modules import firewalld_sources
from tests.support.played_module import PlayedModule, result_of

NETWORK = "10.0.0.0/24"


class Firewall(PlayedModule):
    """firewall-cmd over two dictionaries, zones by source: the running firewall and the permanent one."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.root, self.running = root, True
        self.zones: dict[bool, dict[str, str]] = {False: {}, True: {}}
        patch.setattr(firewalld_sources, "ROOT", root)
        patch.setattr(firewalld_sources, "AnsibleModule", lambda *_, **__: self)
        patch.setattr(firewalld_sources, "run_bounded", self.run)

    def run(self, argv: list[str], *_: Any) -> tuple[int, str, str]:
        words = argv[1:]
        if words == ["--state"]:
            return (0, "running\n", "") if self.running else (252, "", "not running\n")
        zones = self.zones["--permanent" in words]
        verb, _, source = words[-1].partition("=")
        if verb == "--get-zone-of-source":
            return (0, f"{zones[source]}\n", "") if source in zones else (2, "", "no zone\n")
        if source == "nonsense":
            return 110, "", "Error: INVALID_ADDR: nonsense\n"
        if verb == "--add-source":
            zones[source] = words[-2].partition("=")[2]
        else:
            del zones[source]
        return 0, "success\n", ""

    def call(self, *sources: str, check: bool = False) -> dict[str, Any]:
        self.params, self.check_mode = {"sources": list(sources)}, check
        return result_of(firewalld_sources.main)


@pytest.fixture
def firewall(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Firewall:
    return Firewall(tmp_path, monkeypatch)


def test_sources_are_trusted_now_and_after_a_boot_once(firewall: Firewall) -> None:
    assert firewall.call(NETWORK, check=True)["added"] == [NETWORK]
    assert firewall.zones == {False: {}, True: {}}
    assert firewall.call(NETWORK)["changed"] is True
    assert firewall.zones == {False: {NETWORK: "trusted"}, True: {NETWORK: "trusted"}}
    assert firewall.call(NETWORK)["changed"] is False


def test_one_that_a_boot_would_lose_is_a_change(firewall: Firewall) -> None:
    firewall.zones[False][NETWORK] = "trusted"
    assert firewall.call(NETWORK)["added"] == [NETWORK]
    assert firewall.zones[True] == {NETWORK: "trusted"}


def test_ours_go_when_they_are_declared_no_more_and_others_stay(firewall: Firewall) -> None:
    for zones in firewall.zones.values():
        zones |= {"192.0.2.1": "trusted", "192.0.2.2": "drop"}
    assert firewall.call(NETWORK, "192.0.2.1", "192.0.2.2")["added"] == [NETWORK]
    assert "192.0.2.2 to its zone drop" in firewall.warned[0]
    assert json.loads((firewall.root / firewalld_sources.RECORD).read_text()) == [NETWORK]
    assert firewall.call()["removed"] == [NETWORK]
    assert firewall.zones[True] == {"192.0.2.1": "trusted", "192.0.2.2": "drop"}
    assert firewall.call()["changed"] is False


def test_where_firewalld_does_not_run_nothing_is_done_and_nonsense_is_said(firewall: Firewall) -> None:
    assert "INVALID_ADDR" in firewall.call("nonsense")["msg"]
    firewall.running = False
    assert firewall.call("nonsense") == {"changed": False, "added": [], "removed": [], "running": False}
