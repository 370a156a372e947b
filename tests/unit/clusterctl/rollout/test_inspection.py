"""Status of a host from what its probe recorded, and how many logins a jump host is given."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest

from clustercheck.evidence.node import NodeEvidence
from clustercheck.launch.transport import Completed, NodeUnreachableError
from clusterctl.rollout.inspection import HostStatus, inspect, status_of

RAW = {
    "probe": 1,
    "errors": {},
    "host": {"kernel": "6.1.0-41-amd64", "os": {"PRETTY_NAME": "Debian GNU/Linux 12 (bookworm)"}},
    "pci": [
        {"vendor": "0x10de", "class": "0x030200", "address": "0000:07:00.0"},
        {"vendor": "0x10de", "class": "0x068000", "address": "0000:c5:00.0"},
        {"vendor": "0x15b3", "class": "0x020000", "address": "0000:0c:00.0"},
    ],
    "module": {"version": "580.95.05", "proc": "NVRM version: ..."},
    "fabric_manager": {
        "unit": {"LoadState": "loaded", "ActiveState": "failed"},
        "version": {"rc": 0, "stdout": "Fabric Manager version is : 580.95.05\n"},
    },
    "toolkit": {"rc": 0, "stdout": "NVIDIA Container Toolkit CLI version 1.18.1\ncommit: 0\n"},
    "docker": {"rc": 0, "stdout": '{"ID":"x","ServerVersion":"26.1.5+dfsg1"}\n'},
    "containerd": {"rc": 0, "stdout": "containerd containerd.io v2.2.1 dea7da592f5d1d2b7755e3a\n"},
    "busy": {"reasons": ["container(s) with GPUs: train-1"]},
}


def test_everything_is_read():
    node = NodeEvidence("gpu01", RAW)
    said = Completed(0, "driver=580.105.08\nimage=present\n", "")
    assert status_of(node, said, wants_image=True) == HostStatus(
        host="gpu01",
        os="Debian GNU/Linux 12 (bookworm)",
        kernel="6.1.0-41-amd64",
        gpus=1,
        driver_loaded="580.95.05",
        driver_installed="580.105.08",
        fabric_manager="580.95.05",
        fabric_manager_state="failed",
        toolkit="1.18.1",
        docker="26.1.5+dfsg1",
        containerd="2.2.1",
        image=True,
        busy="container(s) with GPUs: train-1",
    )


def test_what_is_not_there_is_empty_and_never_guessed():
    bare = NodeEvidence("registry01", {"probe": 1, "errors": {"pci": "OSError: no"}})
    assert status_of(bare, None, wants_image=False) == HostStatus("registry01")
    assert status_of(bare, None, wants_image=True).image is None
    assert status_of(bare, Completed(0, "driver=\n", ""), wants_image=True).image is False


class Wire:
    """A transport to two nodes, one of them dead."""

    def run(self, node, argv, *, stdin="", timeout_s):
        if node == "gpu02":
            raise NodeUnreachableError(node, "it does not answer")
        if argv[0] == "python3":
            assert "def collect" in stdin
            assert json.loads(argv[3])["parts"]
            return Completed(0, json.dumps(RAW) + "\n", "")
        assert argv[-1] == "registry01:5000/library/paddle@sha256:0"
        return Completed(0, "driver=580.95.05\n", "")


def test_a_dead_host_takes_no_other_with_it():
    image = "registry01:5000/library/paddle@sha256:0"
    first, second = inspect(["gpu01", "gpu02"], Wire(), gpu_nodes=["gpu01", "gpu02"], image=image)
    assert (first.driver_loaded, first.driver_installed, first.image) == ("580.95.05", "580.95.05", False)
    assert second == HostStatus("gpu02", unreachable="it does not answer")


@pytest.mark.parametrize(
    "lease", [{}, {"run": ["r"]}, {"run": "\x1b[2Jr" * 900, "who": 1, "x": "y"}, {"run": {"a": "b"}}]
)
def test_a_lease_of_any_form_has_its_texts(lease: dict[str, Any]) -> None:
    found = status_of(NodeEvidence("gpu01", {**RAW, "busy": {"lease": lease}}), None, wants_image=False).lease
    assert found is not None
    assert list(found) == ["run", "what", "who", "where", "since"]
    assert all(len(text) <= 200 and "\x1b" not in text for text in found.values())


@pytest.mark.parametrize("said", ["\x1b]52;c;cm0=\x07", "x" * 5_000_000, "\n" * 100, ["x"], {"a": "b"}])
def test_a_status_is_short_and_plain_whatever_a_host_says(said: object) -> None:
    raw = {
        "host": {"kernel": said, "os": {"PRETTY_NAME": said}},
        "module": {"version": said},
        "fabric_manager": {"unit": {"LoadState": "loaded", "ActiveState": said}, "version": said},
        "toolkit": {"rc": 0, "stdout": "1." + "1" * 5000},
        "docker": {"rc": 0, "stdout": f'{{"ServerVersion":"{said}"}}'},
        "busy": {"reasons": said},
    }
    found = status_of(NodeEvidence("gpu01", raw), Completed(0, f"driver={said}\n", ""), wants_image=True)
    texts = [value for value in asdict(found).values() if isinstance(value, str)]
    assert sum(map(len, texts)) < 2000
    assert not any("\x1b" in text or "\n" in text for text in texts)
