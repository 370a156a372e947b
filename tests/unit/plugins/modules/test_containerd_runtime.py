"""NVIDIA's runtime in containerd's configuration: what is added, what stays, what is refused."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from ansible_collections.clusterctl.cluster.plugins.module_utils import containerd_config
from ansible_collections.clusterctl.cluster.plugins.modules import containerd_runtime

BINARY = "/usr/bin/nvidia-container-runtime"
# As `containerd config dump` prints them, shortened.
V2 = """\
version = 2
[plugins]
  [plugins."io.containerd.grpc.v1.cri"]
    enable_cdi = false
    [plugins."io.containerd.grpc.v1.cri".containerd]
      default_runtime_name = "runc"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
        runtime_type = "io.containerd.runc.v2"
        [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
          BinaryName = ""
          SystemdCgroup = true
"""
V3 = """\
version = 3
[plugins]
  [plugins.'io.containerd.cri.v1.runtime']
    enable_cdi = true
    cdi_spec_dirs = ['/etc/cdi', '/var/run/cdi']
    [plugins.'io.containerd.cri.v1.runtime'.containerd]
      default_runtime_name = 'runc'
      [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
        BinaryName = ''
        SystemdCgroup = false
  [plugins.'io.containerd.grpc.v1.cri']
    disable_tcp_service = true
"""
OF_16 = V2.replace("    enable_cdi = false\n", "")
THEIRS = V2 + (
    '      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]\n'
    '        [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]\n'
    '          BinaryName = "/opt/nvidia/toolkit/nvidia-container-runtime"\n'
)
OPERATORS = (
    '# theirs\nversion = 2\n[plugins."io.containerd.grpc.v1.cri"]\n  sandbox_image = "pause"  # theirs\n'
)


def runtimes(text: str, version: int) -> dict[str, Any]:
    plugin = tomllib.loads(text)["plugins"][containerd_config.RUNTIME_PLUGINS[version]]
    return plugin["containerd"]["runtimes"]


@pytest.mark.parametrize(("dumped", "version", "systemd"), [(V2, 2, True), (V3, 3, False)])
def test_the_runtime_is_added_and_its_cgroups_are_managed_as_those_of_runc(
    dumped: str, version: int, systemd: bool
) -> None:
    after = containerd_config.with_runtime("", version, "nvidia", BINARY, dumped)
    options = {"BinaryName": BINARY} | ({"SystemdCgroup": True} if systemd else {})
    assert tomllib.loads(after)["version"] == version
    kind = {"runtime_type": "io.containerd.runc.v2"}
    own = {name: value for name, value in options.items() if name != "BinaryName"}
    # Without runc's own table containerd would know the new runtime alone, and CRI would not start.
    assert runtimes(after, version) == {
        "runc": {**kind, "options": own}, "nvidia": {**kind, "options": options},
    }  # fmt: skip
    again = containerd_config.with_runtime(dumped, version, "nvidia", BINARY, dumped)
    assert set(runtimes(again, version)) == {"runc", "nvidia"}
    assert containerd_config.runtime_binary(after, "nvidia") == BINARY


def test_what_an_operator_wrote_stays_and_cdi_is_set_in_his_table() -> None:
    after = containerd_config.with_runtime(OPERATORS, 2, "nvidia", BINARY, V2)
    after = containerd_config.with_cdi(after, 2)
    assert [line for line in OPERATORS.splitlines() if line not in after.splitlines()] == []
    plugin = tomllib.loads(after)["plugins"]["io.containerd.grpc.v1.cri"]
    assert (plugin["enable_cdi"], plugin["sandbox_image"]) == (True, "pause")
    assert containerd_config.cdi_state(after) == "true"
    switched = containerd_config.with_cdi(V2, 2)
    assert switched == V2.replace("    enable_cdi = false\n", "  enable_cdi = true\n")
    assert tomllib.loads(containerd_config.with_cdi("version = 3\n", 3))["plugins"] == {
        "io.containerd.cri.v1.runtime": {"enable_cdi": True}
    }


@pytest.mark.parametrize(
    ("dumped", "mode", "expected"),
    [
        (V2, "auto", (True, True)),
        (V2, "hook", (True, False)),
        (V2, "cdi", (False, True)),
        (V3, "auto", (True, False)),
        (V3, "cdi", (False, False)),
        (OF_16, "auto", (True, False)),  # it knows no CDI
        (THEIRS, "cdi", (False, True)),
        (THEIRS.replace("/opt/nvidia/toolkit", "/usr/bin"), "auto", (False, True)),
    ],
)
def test_what_is_missing_is_by_the_mode_and_by_what_containerd_knows(
    dumped: str, mode: str, expected: tuple[bool, bool]
) -> None:
    assert containerd_runtime.lacks(dumped, mode, BINARY) == expected


@pytest.mark.parametrize(
    ("dumped", "mode", "words"),
    [
        (THEIRS, "auto", "its runtime nvidia has the program /opt/nvidia/toolkit/nvidia-container-runtime"),
        (OF_16, "cdi", "containerd 1.7 or newer"),
    ],
)
def test_what_cannot_be_is_refused_with_a_reason(dumped: str, mode: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        containerd_runtime.lacks(dumped, mode, BINARY)


def test_a_format_without_such_tables_is_refused() -> None:
    with pytest.raises(ValueError, match="config migrate"):
        containerd_config.with_runtime("root = '/x'\n", 1, "nvidia", BINARY, V2)


DOCKERS = '# Docker Inc.\ndisabled_plugins = ["cri"]\n\n#root = "/var/lib/containerd"\n'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (DOCKERS, True),
        ("disabled_plugins = [ 'cri' ]", True),
        (DOCKERS + "root = '/x'\n", False),
        ('disabled_plugins = ["cri", "aufs"]\n', False),
        ('# disabled_plugins = ["cri"]\n', False),
        ("", False),
    ],
)
def test_only_the_file_of_dockers_package_is_taken_for_it(text: str, expected: bool) -> None:
    assert containerd_config.only_disables_cri(text) is expected


def test_the_file_of_dockers_package_gets_the_plugin_and_keeps_its_comments() -> None:
    after = containerd_config.with_cri(DOCKERS, 3)
    assert tomllib.loads(after) == {"version": 3}
    assert [line for line in after.splitlines() if line.startswith("#")] == [
        line for line in DOCKERS.splitlines() if line.startswith("#")
    ]


@pytest.mark.parametrize(
    ("mode", "version", "lacking"),
    [
        ("auto", "1.6.20~ds1-1", True),
        ("hook", "2.1.9-1~debian.12~bookworm", True),
        ("cdi", "1.7.24~ds1-6", True),
        ("cdi", "2.2.1-0ubuntu1", False),
        ("cdi", "", True),  # that version is not known
    ],
)
def test_what_a_new_containerd_lacks_is_foretold(mode: str, version: str, lacking: bool) -> None:
    assert containerd_runtime.new_one_lacks(mode, version) is lacking
