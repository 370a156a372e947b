"""GPUs in containers whose user is not root, and after systemd read its units again."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clustercheck.checks.all import BY_ID
from clustercheck.checks.base import evaluate
from clustercheck.checks.support import seeding
from clustercheck.checks.support.docker import START
from clustercheck.launch.model import RankState
from clustercheck.model import Result, Verdict
from clustercheck.probe.containers import NOBODY, container_gpus, device_links
from clustercheck.samples import sample

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
        ("systemd", "nvidia", BY_CDI, True, PASS),  # CDI tells systemd, whatever runtime is the default
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

    def change(raw: seeding.Raw) -> None:
        raw["docker"]["stdout"] = json.dumps(info)
        raw["device_links"] = links(there=True)

    assert judged("container-reload", change).verdict is verdict
    assert judged("container-reload", change, BY_CDI).verdict is PASS


@pytest.mark.parametrize("stdout", ["[]", "no JSON", '"text"', ""])
def test_a_docker_that_does_not_describe_itself_is_open(stdout: str) -> None:
    assert judged("container-reload", lambda raw: raw["docker"].update(stdout=stdout)).verdict is NOT_RUN


STOPPED = (
    seeding.NO_DOCKER,
    f"docker: {seeding.NO_DOCKER}\n\nRun 'docker run --help' for more information",
    "failed to connect to the docker API at unix:///var/run/docker.sock; check if the path is correct",
    "error during connect: Get http://%2Fvar%2Frun%2Fdocker.sock/v1.50/info: EOF",
)


@pytest.mark.parametrize("said", STOPPED)
@pytest.mark.parametrize("skipped", [{}, {"skipped": "docker failed"}], ids=["in between", "from the first"])
@pytest.mark.parametrize("check", ["container-gpus", "container-user", "container-reload"])
def test_a_docker_that_is_stopped_is_said_and_neither_toolkit_nor_image_is_blamed(
    check: str, skipped: dict[str, str], said: str
) -> None:
    def stop(raw: seeding.Raw) -> None:
        for part in ("container_gpus", "container_gpus_as_user", "docker"):
            raw[part].update(rc=125, stdout="[]\n", stderr=said, **skipped)

    result = judged(check, stop)
    assert result.verdict is NOT_RUN
    assert (
        result.because
        == f"the Docker daemon does not answer: {said.splitlines()[0].removeprefix('docker: ')}"
    )
    assert "systemctl start docker" in result.remedy


def test_docker_info_that_describes_an_absent_daemon_is_not_taken_at_its_exit_code() -> None:
    empty = json.dumps({"CgroupDriver": "", "ServerVersion": "", "CDISpecDirs": None})
    result = judged(
        "container-reload",
        lambda raw: raw["docker"].update(rc=0, stdout=empty, stderr=seeding.NO_DOCKER),
    )
    assert (result.verdict, result.because.partition(":")[0]) == (
        NOT_RUN,
        "the Docker daemon does not answer",
    )


def test_docker_info_that_hangs_asks_for_docker_and_not_for_another_cgroup_driver() -> None:
    result = judged("container-reload", lambda raw: raw["docker"].update(rc=None, stdout="", timed_out=True))
    assert result.verdict is NOT_RUN
    assert "did not answer" in result.because and "systemctl start docker" in result.remedy


@pytest.mark.parametrize(
    ("how", "because", "remedy"),
    [
        ({"missing": True, "rc": None}, "docker is not installed", "--only runtime"),
        (
            {"timed_out": True, "rc": None, "skipped": "docker did not answer"},
            "did not answer",
            "start docker",
        ),
        ({"rc": 1, "skipped": "the training image is not on this node"}, "not on this node", "--only images"),
    ],
)
@pytest.mark.parametrize("check", ["container-gpus", "container-user"])
def test_what_is_missing_is_what_is_to_be_brought(
    check: str, how: dict[str, Any], because: str, remedy: str
) -> None:
    def lose(raw: seeding.Raw) -> None:
        for part in ("container_gpus", "container_gpus_as_user"):
            raw[part].update({"stdout": "", **how})

    result = judged(check, lose)
    assert result.verdict is NOT_RUN and because in result.because and remedy in result.remedy


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


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        ("docker version: Cannot connect to the Docker daemon at unix:///var/run/docker.sock.", START),
        ("exit code 139 while training step 3", BY_ID["all-reduce"].remedy),
    ],
)
def test_a_job_on_a_node_whose_docker_is_stopped_ends_with_how_to_start_it(said: str, remedy: str) -> None:
    evidence = seeding.rank("all_reduce", "gpu02", RankState.FAILED, said)(sample.healthy())
    results = {result.subject.node: result for result in evaluate(BY_ID["all-reduce"], evidence)}
    assert (results["gpu02"].verdict, results["gpu02"].remedy) == (FAIL, remedy)
