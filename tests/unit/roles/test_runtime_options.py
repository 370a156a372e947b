"""Docker's options as the roles ask for them: locked memory if there is RDMA, CDI, cgroups."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from tests.support.role_variables import templated

MEMLOCK = {"Name": "memlock", "Soft": -1, "Hard": -1}


@pytest.mark.parametrize(
    ("found", "settings", "expected"),
    [
        ({"matched": 8}, {}, {"default-ulimits": {"memlock": MEMLOCK}}),
        ({"matched": 0}, {}, {}),
        ({"skipped": True}, {}, {}),  # the kernel knows no RDMA at all
        ({"matched": 8}, {"container_runtime_lock_memory": False}, {}),
        (
            {"matched": 8},
            {"container_runtime_daemon_options": {"default-ulimits": {"memlock": {"Hard": 65536}}}},
            {"default-ulimits": {"memlock": {**MEMLOCK, "Hard": 65536}}},
        ),
        (
            {"matched": 1},
            {"container_runtime_daemon_options": {"log-driver": "journald"}},
            {"log-driver": "journald", "default-ulimits": {"memlock": MEMLOCK}},
        ),
    ],
)
def test_memory_may_be_locked_where_there_is_rdma_and_the_operator_has_the_last_word(
    repository: Path, found: dict[str, Any], settings: dict[str, Any], expected: dict[str, Any]
) -> None:
    variables = {
        "__container_runtime_rdma": found,
        **settings,
    }
    assert templated(repository, "container_runtime", "_container_runtime_options", variables) == expected


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        ({"kubelet": True, "version": ""}, "is a node of Kubernetes, whose kubelet uses containerd"),
        ({"kubelet": False, "version": "29.1.3"}, "has Docker 29.1.3, which may use containerd"),
    ],
)
def test_who_uses_containerd_is_said_where_it_is_refused(
    repository: Path, engine: dict[str, Any], words: str
) -> None:
    name, variables = (
        "_container_runtime_user_of_containerd",
        {"__container_runtime_engine": {"engine": engine}},
    )
    assert str(templated(repository, "container_runtime", name, variables)).startswith(words)


@pytest.mark.parametrize(
    ("check", "removed", "proxy", "reasons"),
    [
        (True, False, {"written": ["/a"], "started": []}, ["its proxy settings change"]),
        # The daemon that starts only then has read them.
        (True, False, {"written": ["/a"], "started": ["docker.service"]}, []),
        (True, False, {"written": [], "started": []}, []),
        # Outside of check mode the files themselves are newer than the daemon.
        (False, False, {"written": ["/a"], "started": []}, []),
        (False, True, {"written": [], "started": []}, ["its proxy settings were removed"]),
    ],
)
def test_docker_restarts_for_its_proxies_in_check_mode_too(
    repository: Path, check: bool, removed: bool, proxy: dict[str, list[str]], reasons: list[str]
) -> None:
    variables = {
        "ansible_check_mode": check,
        "__container_runtime_no_proxy": {"changed": removed},
        "__container_runtime_proxy": proxy,
    }
    name = "_container_runtime_restart_for"
    assert templated(repository, "container_runtime", name, variables) == reasons


@pytest.mark.parametrize(("adapters", "limit"), [({"matched": 2}, True), ({"skipped": True}, False)])
def test_containerd_alone_gets_proxies_and_next_to_rdma_locked_memory(
    repository: Path, adapters: dict[str, Any], limit: bool
) -> None:
    variables = {"__container_runtime_rdma": adapters, "container_runtime_lock_memory": True}
    files = templated(repository, "container_runtime", "_container_runtime_containerd_limits", variables)
    assert files == ("LimitMEMLOCK=infinity" if limit else "")


def test_mirrors_are_those_of_the_declared_engine(repository: Path) -> None:
    found = templated(
        repository, "registry_client", "registry_client_engines", {"container_runtime_engine": "containerd"}
    )
    assert found == ["containerd"]
    assert templated(repository, "registry_client", "registry_client_engines", {}) == ["docker"]


@pytest.mark.parametrize(
    ("check", "before", "told"),
    [
        (True, ["registry01"], True),
        (True, ["login01"], False),
        (True, [], False),
        (False, ["registry01"], False),
    ],
)
def test_the_authority_is_reported_once_also_where_the_registrys_host_was_of_an_earlier_wave(
    repository: Path, check: bool, before: list[str], told: bool
) -> None:
    variables = {
        "ansible_check_mode": check,
        "clusterctl_waves_before": before,
        "groups": {"registry": ["registry01"]},
        "hostvars": {"registry01": {}},
    }
    name = "_registry_client_authority_told"
    assert templated(repository, "registry_client", name, variables) is told


CGROUPFS = {"exec-opts": ["native.cgroupdriver=cgroupfs"]}
ASKED = {"nvidia_container_toolkit_cgroup_driver": "cgroupfs"}
CDI = {"features": {"cdi": True}}
ANOTHER = {"container_runtime_daemon_options": {"exec-opts": ["isolation=x"]}}
SYSTEMD = {"container_runtime_daemon_options": {"exec-opts": ["native.cgroupdriver=systemd"]}}


@pytest.mark.parametrize(
    ("engine", "settings", "expected"),
    [
        (("never", "systemd"), {}, CGROUPFS),
        (("option", "systemd"), {}, {**CDI, **CGROUPFS}),
        (("default", "systemd"), {}, CGROUPFS),
        (("never", "cgroupfs"), {}, {}),
        (("never", ""), {}, {}),
        (("option", "systemd"), {"nvidia_container_toolkit_mode": "hook"}, CGROUPFS),
        (("option", "systemd"), {"nvidia_container_toolkit_mode": "cdi"}, CDI),
        (("never", "systemd"), {"nvidia_container_toolkit_cgroup_driver": ""}, {}),
        (("never", "systemd"), SYSTEMD, {}),
        (("never", "systemd"), {"asked": "systemd"}, {}),
        (("never", "systemd"), {"asked": "cgroupfs"}, CGROUPFS),  # written, and the restart is yet to come
        (("never", "systemd"), ANOTHER, CGROUPFS),
        (("never", "systemd"), {"adopted": True}, {}),  # another party's engine: never unasked
        (("never", "systemd"), {"adopted": True, **ASKED}, CGROUPFS),
        (("never", "systemd"), {"kubelet": True}, {}),
        (("default", "systemd"), {"reload_keeps_devices": True}, {}),  # from Docker 29.2 on
        (("never", "systemd"), {"container_runtime_daemon_options": {"log-driver": "journald"}}, CGROUPFS),
    ],
)  # fmt: skip
def test_docker_keeps_cgroups_itself_where_a_hook_gives_gpus_and_systemd_would_take_them(
    repository: Path, engine: tuple[str, str], settings: dict[str, Any], expected: dict[str, Any]
) -> None:
    asked = settings.get("asked", "")
    known = {name: settings.get(name, False) for name in ("adopted", "kubelet", "reload_keeps_devices")}
    variables = {
        "nvidia_container_toolkit_mode": "auto",
        "nvidia_container_toolkit_cgroup_driver": "auto",
        "__nvidia_container_toolkit_engine": {
            "engine": {"cdi": engine[0], "cgroup_driver": engine[1], "cgroup_driver_asked": asked, **known}
        },
        **settings,
    }
    made = templated(repository, "nvidia_container_toolkit", "_nvidia_container_toolkit_options", variables)
    assert made.pop("runtimes")["nvidia"]["path"] == "nvidia-container-runtime"
    assert made == expected


@pytest.mark.parametrize(
    ("declared", "adopted"),
    [
        (["docker.io"], ["docker-ce", "moby-engine"]),
        (["docker-ce"], ["moby-engine"]),
        (["docker-ce=5:28.0.1-1~debian.12~bookworm", "docker-ce-cli"], ["moby-engine"]),
    ],
)
def test_an_engine_that_the_site_declares_itself_is_not_adopted_whatever_its_version(
    repository: Path, declared: list[str], adopted: list[str]
) -> None:
    variables = {"container_runtime_packages": declared}
    name = "_nvidia_container_toolkit_adopt"
    assert sorted(templated(repository, "nvidia_container_toolkit", name, variables)) == adopted


@pytest.mark.parametrize(
    ("distribution", "major", "client"),
    [
        ("Debian", "12", []),
        ("Debian", "13", ["docker-cli"]),
        ("Ubuntu", "24", []),
        ("../../tmp/evil", "9", []),
    ],
)
def test_the_packages_of_each_distribution(
    repository: Path, distribution: str, major: str, client: list[str]
) -> None:
    facts = {
        "ansible_facts": {
            "os_family": "Debian",
            "distribution": distribution,
            "distribution_major_version": major,
        }
    }
    found = templated(repository, "container_runtime", "_container_runtime_packages", facts)
    assert found == ["docker.io", *client, "containerd", "runc"]


@pytest.mark.parametrize(
    ("family", "packages"), [("Debian", ["containerd", "runc"]), ("RedHat", ["containerd.io"])]
)
def test_containerd_alone_is_the_distributions_and_on_rhel_dockers(
    repository: Path, family: str, packages: list[str]
) -> None:
    facts = {"ansible_facts": {"os_family": family}}
    name = "_container_runtime_containerd_packages"
    assert templated(repository, "container_runtime", name, facts) == packages


@pytest.mark.parametrize(
    ("by_apt", "by_dnf", "planned"),
    [
        ({"changes": {"containerd": ["", "1.6.20-1"], "runc": ["", "1.1"]}}, {"skipped": True}, "1.6.20-1"),
        ({"skipped": True}, {"changes": {"containerd.io": ["", "2.1.4-1.el9"]}}, "2.1.4-1.el9"),
        ({"changes": {}}, {"skipped": True}, ""),
    ],
)
def test_check_mode_judges_by_the_containerd_that_this_play_would_install(
    repository: Path, by_apt: dict[str, Any], by_dnf: dict[str, Any], planned: str
) -> None:
    variables = {
        "__container_runtime_containerd_by_apt": by_apt,
        "__container_runtime_containerd_by_dnf": by_dnf,
    }
    name = "_nvidia_container_toolkit_planned_containerd"
    assert templated(repository, "nvidia_container_toolkit", name, variables) == planned


def test_no_fact_of_a_node_names_a_file_that_ansible_reads_on_the_controller(repository: Path) -> None:
    """A node says what it likes: with `..` in it, any file would be read as variables that are trusted."""
    tasks = [*repository.glob("roles/*/tasks/**/*.yml"), *repository.glob("playbooks/**/*.yml")]
    reading = re.compile(
        r"include_vars|first_found|vars_files|(include|import)_(tasks|role|playbook)|lookup\("
    )
    found = [
        f"{path.relative_to(repository)}: {line.strip()}"
        for path in tasks
        for block in re.split(r"\n\s*\n", path.read_text(encoding="utf-8"))
        if reading.search(block)
        for line in block.splitlines()
        if re.search(r"ansible_(facts|distribution|hostname|os_family|architecture)", line)
    ]
    assert tasks
    assert found == []
