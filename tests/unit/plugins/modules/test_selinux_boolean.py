"""SELinux's boolean is switched on once, for good, and only where the policy has it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.clusterctl.cluster.plugins.modules import selinux_boolean
from tests.support.played_module import PlayedModule, result_of

NAME = "container_use_devices"


class Node(PlayedModule):
    """A node whose root is a directory; setsebool does what it is asked for, or fails."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        super().__init__({"name": NAME})
        self.root, self.code = root, 0
        self.commands: list[list[str]] = []
        patch.setattr(selinux_boolean, "ROOT", root)
        patch.setattr(selinux_boolean, "AnsibleModule", lambda *_, **__: self)
        patch.setattr(selinux_boolean, "run_bounded", self.run)

    def policy(self, value: str) -> None:
        path = self.root / "sys/fs/selinux/booleans" / NAME
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{value} {value}")

    def run(self, argv: list[str], *_: Any) -> tuple[int, str, str]:
        self.commands.append(argv)
        if self.code == 0:
            self.policy("1")
            store = self.root / "var/lib/selinux/targeted/active/booleans.local"
            store.parent.mkdir(parents=True, exist_ok=True)
            store.write_text(f"# generated\n{NAME}=1\n")
        return self.code, "", "Cannot set persistent booleans"


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(tmp_path, monkeypatch)


def test_it_is_switched_on_for_good_and_once(node: Node) -> None:
    node.policy("0")
    node.check_mode = True
    assert result_of(selinux_boolean.main) == {"changed": True, "present": True}
    node.check_mode = False
    assert result_of(selinux_boolean.main)["changed"] is True
    assert node.commands == [["setsebool", "-P", NAME, "on"]]
    assert result_of(selinux_boolean.main) == {"changed": False, "present": True}


def test_one_that_a_boot_would_switch_off_is_switched_on_again(node: Node) -> None:
    node.policy("1")
    assert result_of(selinux_boolean.main)["changed"] is True


def test_without_selinux_nothing_is_done_and_a_failure_is_said(node: Node) -> None:
    assert result_of(selinux_boolean.main) == {"changed": False, "present": False}
    node.policy("0")
    node.code = 1
    assert "Cannot set persistent booleans" in result_of(selinux_boolean.main)["msg"]
