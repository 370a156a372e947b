"""daemon.json: what an operator put there stays, and the daemon is disturbed no more than it must be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.clusterctl.cluster.plugins.module_utils import docker_daemon
from ansible_collections.clusterctl.cluster.plugins.modules import docker_daemon_config as module
from hypothesis import given
from hypothesis import strategies as st

SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=8)
NAMES = st.text("abcdefghij-", min_size=1, max_size=6)
CONFIGS = st.dictionaries(
    NAMES,
    st.recursive(
        SCALARS,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
        max_leaves=8,
    ),
    max_size=5,
)


def paths(value: Any, prefix: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """Every leaf of nested dictionaries by its path; an empty dictionary is a leaf."""
    if not isinstance(value, dict) or (prefix and not value):
        return {prefix: value}
    return {path: leaf for key, inner in value.items() for path, leaf in paths(inner, (*prefix, key)).items()}


@given(CONFIGS, CONFIGS)
def test_an_operators_keys_always_survive(operator: dict[str, Any], ours: dict[str, Any]) -> None:
    merged = paths(module.merge(operator, ours))
    our_paths = paths(ours)
    for path, value in paths(operator).items():
        touched = any(path[: len(mine)] == mine or mine[: len(path)] == path for mine in our_paths)
        if not touched:
            assert merged[path] == value


@given(CONFIGS, CONFIGS)
def test_ours_are_there_afterwards_and_a_second_merge_changes_nothing(
    operator: dict[str, Any], ours: dict[str, Any]
) -> None:
    once = module.merge(operator, ours)
    assert module.merge(once, ours) == once
    assert module.changed_keys(once, module.merge(once, ours)) == []
    assert ours.keys() <= once.keys()


@given(CONFIGS, CONFIGS)
def test_merging_leaves_its_arguments_alone(operator: dict[str, Any], ours: dict[str, Any]) -> None:
    before = json.dumps([operator, ours])
    module.merge(operator, ours)
    assert json.dumps([operator, ours]) == before


def test_lists_grow_and_name_value_items_are_replaced_by_name() -> None:
    operator = {"registry-mirrors": ["https://mirror.site"], "exec-opts": ["native.cgroupdriver=cgroupfs"]}
    ours = {"registry-mirrors": ["https://registry01:5000"], "exec-opts": ["native.cgroupdriver=systemd"]}
    assert module.merge(operator, ours) == {
        "registry-mirrors": ["https://mirror.site", "https://registry01:5000"],
        "exec-opts": ["native.cgroupdriver=systemd"],
    }


def test_another_runtime_of_the_operator_stays_beside_ours() -> None:
    operator = {"runtimes": {"kata": {"path": "/usr/bin/kata"}}, "features": {"buildkit": True}}
    ours = {
        "runtimes": {"nvidia": {"path": "nvidia-container-runtime", "args": []}},
        "features": {"cdi": True},
    }
    merged = module.merge(operator, ours)
    assert merged["runtimes"].keys() == {"kata", "nvidia"}
    assert merged["features"] == {"buildkit": True, "cdi": True}


@pytest.mark.parametrize(
    ("before", "after", "restart"),
    [
        ({}, {"runtimes": {"nvidia": {}}}, []),
        ({}, {"registry-mirrors": ["https://m"], "live-restore": True}, []),
        ({"features": {"buildkit": True}}, {"features": {"buildkit": True, "cdi": True}}, ["features.cdi"]),
        ({}, {"log-driver": "journald", "debug": True}, ["log-driver"]),
        ({"data-root": "/a"}, {"data-root": "/b"}, ["data-root"]),
    ],
)
def test_only_keys_that_a_reload_does_not_take_want_a_restart(
    before: dict[str, Any], after: dict[str, Any], restart: list[str]
) -> None:
    keys = module.changed_keys(before, after)
    assert keys
    assert module.restart_keys(keys) == restart


def test_a_daemon_that_lost_a_reload_is_found_by_what_it_shows() -> None:
    options = {
        "runtimes": {"nvidia": {"path": "nvidia-container-runtime"}},
        "registry-mirrors": ["https://registry01:5000"],
        "features": {"cdi": True},
        "live-restore": True,
    }
    fresh = {
        "Runtimes": {"runc": {"path": "runc"}},
        "LiveRestoreEnabled": False,
        "RegistryConfig": {"Mirrors": []},
    }
    assert module.unmet(options, fresh) == {
        "reload": ["runtimes.nvidia", "registry-mirrors https://registry01:5000", "live-restore"],
        "restart": ["features.cdi"],
    }
    taken = {
        "Runtimes": {"runc": {"path": "runc"}, "nvidia": {"path": "nvidia-container-runtime"}},
        "LiveRestoreEnabled": True,
        "RegistryConfig": {"Mirrors": ["https://registry01:5000/"]},
        "CDISpecDirs": ["/etc/cdi", "/var/run/cdi"],
    }
    assert module.unmet(options, taken) == {"reload": [], "restart": []}


@pytest.mark.parametrize(
    ("said", "running", "lacks"),
    [
        (["native.cgroupdriver=cgroupfs"], "systemd", ["native.cgroupdriver=cgroupfs"]),
        (["native.cgroupdriver=cgroupfs"], "cgroupfs", []),
        (["native.cgroupdriver=systemd", "native.cgroupdriver=cgroupfs"], "cgroupfs", []),
        (["isolation=default"], "systemd", []),
        ([], "systemd", []),
    ],
)
def test_another_cgroup_driver_wants_a_restart(said: list[str], running: str, lacks: list[str]) -> None:
    assert module.unmet({"exec-opts": said}, {"CgroupDriver": running})["restart"] == lacks


@pytest.mark.parametrize("content", ["{", "[]", '"text"'])
def test_a_file_that_is_no_object_is_refused_and_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "daemon.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=r"daemon\.json.*was not changed"):
        module.read_config(path)


def test_no_file_and_an_empty_one_are_an_empty_configuration(tmp_path: Path) -> None:
    assert module.read_config(tmp_path / "daemon.json") == {}
    (tmp_path / "daemon.json").write_text("\n", encoding="utf-8")
    assert module.read_config(tmp_path / "daemon.json") == {}


class RunningDaemon:
    """What `apply` sees of a daemon, and what it does to it."""

    def __init__(self, **info: Any) -> None:
        self.info = {"Runtimes": {}, "ContainersRunning": 0, "LiveRestoreEnabled": False, **info}
        self.pid, self.started = 4711, 1000.0
        self.verbs: list[str] = []
        self.state: dict[str, Any] = {"pid": 4711, "seen": [], "pending": []}

    def control(self, verb: str) -> int:
        """Remember what was asked for."""
        self.verbs.append(verb)
        return 0

    def settle(self, _options: dict[str, Any], _gone: dict[str, list[str]]) -> list[str]:
        """Everything is taken at once."""
        return []

    def recall(self) -> dict[str, Any]:
        """The state that was kept."""
        return {**self.state, "pending": []} if "restart" in self.verbs else self.state

    def remember(self, state: dict[str, Any]) -> None:
        """Keep the state."""
        self.state = state


class Asked:
    """A module's parameters and mode."""

    def __init__(self, *, check: bool = False, **params: Any) -> None:
        self.check_mode = check
        self.warnings: list[str] = []
        defaults = {
            "options": {},
            "without": {},
            "reads_at_start": [],
            "needs_at_start": [],
            "restart_for": [],
            "force_busy": False,
        }
        self.params = {"path": "/etc/docker/daemon.json", **defaults, **params}

    def warn(self, text: str) -> None:
        """Keep a warning."""
        self.warnings.append(text)


def run(daemon: RunningDaemon, asked: Asked, keys: list[str]) -> dict[str, Any]:
    result: dict[str, Any] = {"changed": bool(keys), "keys": keys, "action": "none", "because": []}
    module.apply(asked, daemon, result, daemon.recall(), waits=module.must_wait(asked, daemon))
    return result


def test_a_runtime_is_taken_by_a_reload() -> None:
    daemon = RunningDaemon(ContainersRunning=3)
    options = {"runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}}
    assert run(daemon, Asked(options=options), ["runtimes"])["action"] == "reload"
    assert daemon.verbs == ["reload"]


def test_running_containers_are_never_stopped_unasked_and_the_restart_is_tried_again() -> None:
    daemon = RunningDaemon(ContainersRunning=2)
    asked = Asked(options={"log-driver": "journald"})
    result = run(daemon, asked, ["log-driver"])
    assert result["action"] == "pending"
    assert "2 containers" in result["clusterctl"]["busy"]
    assert daemon.verbs == []
    assert asked.warnings
    # The next run finds the file as it was, and the containers gone.
    daemon.info["ContainersRunning"] = 0
    again = run(daemon, Asked(options={"log-driver": "journald"}), ["log-driver"])
    assert again["action"] == "restart"
    assert again["changed"] is True
    assert run(daemon, Asked(options={"log-driver": "journald"}), [])["action"] == "none"


@pytest.mark.parametrize(("info", "params"), [({"LiveRestoreEnabled": True}, {}), ({}, {"force_busy": True})])
def test_live_restore_or_the_operators_word_allow_a_restart(
    info: dict[str, Any], params: dict[str, Any]
) -> None:
    daemon = RunningDaemon(ContainersRunning=2, **info)
    assert (
        run(daemon, Asked(options={"log-driver": "journald"}, **params), ["log-driver"])["action"]
        == "restart"
    )


def test_a_remedy_names_the_settings_that_ask_for_a_contradicted_key() -> None:
    asked_by = {
        "container_runtime_debug": {"debug": True},
        "nvidia_container_toolkit_cgroup_driver": {"exec-opts": ["native.cgroupdriver=cgroupfs"]},
        "container_runtime_lock_memory": {},
    }
    assert module.asking_settings(asked_by, ["debug", "log-driver"]) == ["container_runtime_debug for debug"]
    assert module.asking_settings(asked_by, ["log-driver"]) == []


def test_what_wants_a_restart_is_written_with_the_restart_alone() -> None:
    before = {"debug": True, "labels": ["a"], "features": {"buildkit": False, "x": 1}, "data-root": "/a"}
    after = {
        "labels": ["b"],
        "features": {"buildkit": True, "cdi": True},
        "data-root": "/b",
        "runtimes": {"n": {}},
    }
    assert module.taken_by_a_reload(before, after) == {
        "labels": ["b"], "features": {"buildkit": True, "x": 1}, "data-root": "/a", "runtimes": {"n": {}},
    }  # fmt: skip
    assert module.taken_by_a_reload({}, {"features": {"buildkit": True}}) == {"features": {"buildkit": True}}
    assert module.taken_by_a_reload({}, {"log-driver": "journald"}) == {}


@pytest.mark.parametrize(
    ("info", "params", "waits"),
    [
        ({"ContainersRunning": 2}, {}, True),
        ({"ContainersRunning": 0}, {}, False),
        ({"ContainersRunning": 2, "LiveRestoreEnabled": True}, {}, False),
        ({"ContainersRunning": 2}, {"options": {"live-restore": True}}, False),
        ({"ContainersRunning": 2}, {"force_busy": True}, False),
    ],
)
def test_a_restart_waits_for_containers_that_it_would_stop(
    info: dict[str, Any], params: dict[str, Any], waits: bool
) -> None:
    assert module.must_wait(Asked(**params), RunningDaemon(**info)) is waits


def test_check_mode_touches_no_daemon() -> None:
    daemon = RunningDaemon()
    result = run(daemon, Asked(check=True, options={"log-driver": "journald"}), ["log-driver"])
    assert result["action"] == "restart"
    assert daemon.verbs == []


def test_a_program_that_came_after_the_daemon_started_wants_one_restart(tmp_path: Path) -> None:
    hook = tmp_path / "nvidia-container-runtime-hook"
    hook.touch()
    daemon = RunningDaemon()  # started in 1970, long before the hook
    asked = {"needs_at_start": [str(hook)]}
    assert run(daemon, Asked(**asked), [])["action"] == "restart"
    assert run(daemon, Asked(**asked), [])["action"] == "none"
    daemon.started = hook.stat().st_ctime + 1
    daemon.state = {"pid": 4711, "seen": [], "pending": []}
    assert run(daemon, Asked(**asked), [])["action"] == "none"
    # The toolkit's upgrade touches the hook; the daemon knows it already.
    daemon.started = 1000.0
    assert run(daemon, Asked(**asked), [])["action"] == "none"


def test_the_daemons_own_last_word_is_what_a_person_reads() -> None:
    journal = [
        'time="x" level=info msg="Daemon shutdown complete"',
        "Starting docker.service - Docker Application Container Engine...",
        "unable to configure the Docker daemon: directives don't match any option: nonsense-key",
        "docker.service: Main process exited, code=exited, status=1/FAILURE",
        "Failed to start docker.service - Docker Application Container Engine.",
    ]
    assert docker_daemon.blame(journal).endswith("nonsense-key")
    assert docker_daemon.blame([]) == "its journal says nothing"


def test_the_diff_shows_what_changes_and_no_secret() -> None:
    before = {
        "proxies": {"https-proxy": "http://user:secret@proxy:3128"},
        "log-opts": {"splunk-token": "secret", "tag": "a"},
        "runtimes": {"kata": {"path": "/usr/bin/kata"}},
    }
    ours = {
        "log-opts": {"tag": "b"},
        "registry-mirrors": ["https://pull:secret@registry01:5000"],
        "runtimes": {"nvidia": {"path": "nvidia-container-runtime"}},
    }
    assert module.only_changes(before, module.merge(before, ours)) == (
        {"log-opts": {"tag": "a"}, "runtimes": {}},
        {
            "log-opts": {"tag": "b"},
            "registry-mirrors": ["https://***@registry01:5000"],
            "runtimes": {"nvidia": {"path": "nvidia-container-runtime"}},
        },
    )


@given(CONFIGS, CONFIGS)
def test_the_diff_names_every_key_that_changes_and_no_other(
    before: dict[str, Any], ours: dict[str, Any]
) -> None:
    after = module.merge(before, ours)
    old, new = module.only_changes(before, after)
    differing = {k for k in before.keys() | after.keys() if k not in before or before[k] != after.get(k)}
    assert old.keys() | new.keys() == differing
