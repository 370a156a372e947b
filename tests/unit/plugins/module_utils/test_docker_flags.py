"""What Docker's unit gives as a flag is not written to daemon.json."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.clusterctl.cluster.plugins.module_utils.docker_flags import (
    exec_start,
    flags_of,
    said_already,
)
from ansible_collections.clusterctl.cluster.plugins.modules import docker_daemon_config

UNIT = """\
# /lib/systemd/system/docker.service
[Service]
Type=notify
ExecStart=/usr/bin/dockerd -H fd:// --containerd=/run/containerd/containerd.sock
# /etc/systemd/system/docker.service.d/site.conf
[Service]
ExecStart=
ExecStart=/usr/bin/dockerd -H fd:// \\
    --default-ulimit memlock=-1:-1 --default-ulimit=nofile=1024:2048 \\
    --exec-opt native.cgroupdriver=systemd --live-restore --log-driver "json-file" \\
    --add-runtime kata=/usr/bin/kata --registry-mirror=https://mirror.site/ $DOCKER_OPTS
"""
FLAGS = flags_of(exec_start(UNIT))


def test_flags_are_read_from_the_unit_and_its_drop_ins() -> None:
    assert FLAGS == {
        "hosts": ["fd://"],
        "default-ulimits": ["memlock=-1:-1", "nofile=1024:2048"],
        "exec-opts": ["native.cgroupdriver=systemd"],
        "live-restore": ["true"],
        "log-driver": ["json-file"],
        "registry-mirrors": ["https://mirror.site/"],
    }
    assert flags_of(exec_start("")) == {}


MEMLOCK = {"memlock": {"Name": "memlock", "Soft": -1, "Hard": -1}}


@pytest.mark.parametrize(
    ("options", "left", "contradicted"),
    [
        ({"default-ulimits": MEMLOCK}, {}, []),
        ({"default-ulimits": {"memlock": {"Soft": 5, "Hard": 5}}}, {}, ["default-ulimits"]),
        ({"exec-opts": ["native.cgroupdriver=systemd"]}, {}, []),
        ({"exec-opts": ["native.cgroupdriver=cgroupfs"]}, {}, ["exec-opts"]),
        ({"registry-mirrors": ["https://mirror.site"]}, {}, []),
        ({"registry-mirrors": ["https://registry01:5000"]}, {}, ["registry-mirrors"]),
        ({"live-restore": True, "debug": True}, {"debug": True}, []),
        ({"live-restore": False}, {}, ["live-restore"]),
        (
            {"runtimes": {"nvidia": {}}, "features": {"cdi": True}},
            {"runtimes": {"nvidia": {}}, "features": {"cdi": True}},
            [],
        ),
    ],
)
def test_what_a_flag_says_is_left_to_it_and_what_contradicts_it_is_refused(
    options: dict[str, Any], left: dict[str, Any], contradicted: list[str]
) -> None:
    assert docker_daemon_config.without_flags(options, FLAGS) == (left, contradicted)


def test_short_flags_and_options_of_logs_are_known() -> None:
    flags = flags_of(["/usr/bin/dockerd", "-D", "-l", "warn", "--log-opt", "max-size=10m"])
    assert flags == {"debug": ["true"], "log-level": ["warn"], "log-opts": ["max-size=10m"]}
    assert said_already("log-opts", {"max-size": "10m"}, flags["log-opts"])
    assert not said_already("log-opts", {"max-size": "20m"}, flags["log-opts"])


def test_one_number_is_the_soft_and_the_hard_limit() -> None:
    assert said_already("default-ulimits", MEMLOCK, ["memlock=-1"])
    assert not said_already("default-ulimits", MEMLOCK, ["memlock=64:-1"])
