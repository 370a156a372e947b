"""GPUs in containers whose user is not root, and after systemd read its units anew."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clustercheck import sample
from clustercheck.checks import seeding
from clustercheck.checks.all import BY_ID
from clustercheck.checks.base import evaluate
from clustercheck.model import Result, Verdict
from clustercheck.probe.containers import NOBODY, container_gpus, device_links

PASS, FAIL, NOT_RUN = Verdict.PASS, Verdict.FAIL, Verdict.NOT_RUN
BY_HOOK, BY_CDI = ("--gpus", "all"), ("--device", "nvidia.com/gpu=all")


def judged(check: str, change: Any, arguments: tuple[str, ...] = BY_HOOK) -> Result:
    evidence = seeding.edit("gpu01", change)(sample.healthy(1))
    spec = replace(evidence.spec, container_gpu_arguments=arguments)
    return evaluate(BY_ID[check], replace(evidence, spec=spec))[0]


def test_the_container_is_started_as_the_user_and_by_another_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, docker = tmp_path / "log", tmp_path / "docker"
    docker.write_text(f'#!/bin/sh\necho "$@" >> {log}\n')
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    for user in ("0:0", NOBODY):
        assert container_gpus({"image": "own/paddle@sha256:0"}, 5.0, user)["rc"] == 0
    _, as_root, _, as_nobody = log.read_text().splitlines()
    assert "--user 0:0 " in as_root and "--user 65534:65534 " in as_nobody
    names = [line.split("--name ")[1].split()[0] for line in (as_root, as_nobody)]
    assert len(set(names)) == 2


def test_device_files_and_their_links_are_read(tmp_path: Path) -> None:
    device = tmp_path / "dev"
    (device / "char").mkdir(parents=True)
    for name in ("nvidia0", "nvidiactl", "nvidia-uvm", "nvidia-caps", "null", "nvidia0.old"):
        (device / name).touch()
    found = device_links(str(tmp_path))  # ordinary files have the number 0:0
    assert [each["path"] for each in found] == ["/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidiactl"]
    assert not any(each["there"] for each in found)
    (device / "char/0:0").touch()
    assert all(each["there"] for each in device_links(str(tmp_path)))
    assert device_links(str(tmp_path / "nothing")) == []


def links(*, there: bool) -> list[dict[str, Any]]:
    return [{"path": "/dev/nvidia0", "link": "/dev/char/195:0", "there": there}]


@pytest.mark.parametrize(
    ("driver", "runtime", "arguments", "there", "verdict"),
    [
        ("cgroupfs", "runc", BY_HOOK, False, PASS),
        ("systemd", "runc", BY_HOOK, True, FAIL),  # links do not help where systemd is not told
        ("systemd", "runc", BY_CDI, True, PASS),
        ("systemd", "runc", BY_CDI, False, NOT_RUN),
        ("systemd", "nvidia", BY_HOOK, True, NOT_RUN),
        ("none", "runc", BY_HOOK, False, PASS),  # rootless: no cgroups, and so no list of devices
        ("", "runc", BY_HOOK, True, NOT_RUN),
        (None, None, BY_CDI, True, NOT_RUN),
    ],
)
def test_who_keeps_the_list_of_devices_decides(
    driver: str | None, runtime: str | None, arguments: tuple[str, ...], there: bool, verdict: Verdict
) -> None:
    def change(raw: seeding.Raw) -> None:
        raw["docker"]["stdout"] = json.dumps({"CgroupDriver": driver, "DefaultRuntime": runtime})
        raw["device_links"] = links(there=there)

    assert judged("container-reload", change, arguments).verdict is verdict


@pytest.mark.parametrize(
    ("version", "directories", "verdict"),
    [
        ("28.3.3", ["/etc/cdi"], FAIL),  # --gpus is the hook's, whatever else Docker knows
        ("29.1.0", ["/etc/cdi"], NOT_RUN),
        ("29.1.0", [], FAIL),
        ("dev", ["/etc/cdi"], FAIL),
    ],
)
def test_a_docker_that_may_give_gpus_either_way_is_not_blamed_for_one(
    version: str, directories: list[str], verdict: Verdict
) -> None:
    info = {"CgroupDriver": "systemd", "ServerVersion": version, "CDISpecDirs": directories}
    result = judged("container-reload", lambda raw: raw["docker"].update(stdout=json.dumps(info)))
    assert result.verdict is verdict


@pytest.mark.parametrize("stdout", ["[]", "no JSON", '"text"', ""])
def test_a_docker_that_does_not_describe_itself_is_open(stdout: str) -> None:
    assert judged("container-reload", lambda raw: raw["docker"].update(stdout=stdout)).verdict is NOT_RUN


def test_what_fails_as_root_is_not_blamed_on_the_user() -> None:
    def both_see_seven(raw: seeding.Raw) -> None:
        for part in ("container_gpus", "container_gpus_as_user"):
            raw[part]["stdout"] = "".join(raw[part]["stdout"].splitlines(keepends=True)[:-1])

    assert judged("container-gpus", both_see_seven).verdict is FAIL
    assert judged("container-user", both_see_seven).verdict is PASS


def test_more_gpus_than_root_sees_or_none_at_all_is_no_pass() -> None:
    def cut(raw: seeding.Raw) -> None:
        raw["container_gpus"]["stdout"] = "".join(
            raw["container_gpus"]["stdout"].splitlines(keepends=True)[:-1]
        )

    def empty(raw: seeding.Raw) -> None:
        for part in ("container_gpus", "container_gpus_as_user"):
            raw[part]["stdout"] = "No devices found\n"

    assert judged("container-user", cut).verdict is NOT_RUN
    assert judged("container-user", empty).verdict is NOT_RUN
