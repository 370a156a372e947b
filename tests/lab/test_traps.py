"""The six traps of Ansible as an engine, and the tests that show for each that we are not in it.

trap                                  | shown by (those without a file are here)
--------------------------------------|-----------------------------------------------------------------
1. a rolling update continues past      | test_a_node_that_dies_in_a_wave_stops_the_next
   a dead host                        | test_apply_manners: test_one_dead_node_stops_a_fleet_...
                                      | unit/.../apply/test_apply_waves: test_a_failure_is_told_in_...
                                      | roles/test_playbook_traps: test_no_play_leaves_waves_to_ansible
2. a killed controller's task runs on,| test_a_killed_controllers_task_is_never_run_beside_its_twin
   and its outcome is lost            | test_apply_manners: test_a_controller_that_ends_in_the_middle_...
3. async that polls loses the result  | the same, and
                                      | roles/test_playbook_traps: test_a_long_task_is_begun_and_...
4. nobody locks                       | test_apply_manners: test_a_second_operator_is_refused_...
                                      | lab/test_leases, .../engine/test_lease, test_lease_races
5. check mode lies                    | test_plan_says_what_apply_then_changes
                                      | test_road: test_plan_finds_nothing_..., test_a_second_apply_...
                                      | roles/test_playbook_traps: test_a_command_only_asks_...
6. no_log does not cover the          | test_a_secret_is_seen_nowhere
   environment of a task              | roles/test_playbook_traps: test_no_secret_can_travel_...
                                      | unit/.../test_apt_run: test_a_proxys_password_is_in_a_file_...
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import threading
from base64 import b64decode, b64encode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from ansible_collections.clusterctl.cluster.plugins.module_utils.apt_transaction import APT_GET

from .conftest import REPOSITORY, RunningLab, json_lines, run_clusterctl
from .on_node import (
    INSTALLS,
    NODE,
    TOOLKIT,
    Apply,
    apply_arguments,
    changes,
    inside,
    lock_held,
    until,
    without_toolkit,
)

pytestmark = pytest.mark.lab

MARKER = "marker-at-the-end-of-a-long-line"
PROXY_SECRET, SUDO_SECRET = "canary-of-a-proxy", "canary-of-sudo"
DOCKERS_PROXIES = "/etc/clusterctl/docker-proxy.env"
# What is gone from an applied node, one thing of each role.
LOSSES = (
    f"apt-mark unhold {TOOLKIT} {TOOLKIT}-base && apt-get remove -y {TOOLKIT} {TOOLKIT}-base",
    "rm /etc/modprobe.d/clusterctl-nouveau.conf",
    "apt-mark unhold nvidia-driver-cuda docker.io",
    "systemctl disable docker",
    "rm -r /etc/docker/certs.d",
    "docker image prune --all --force",
)
# Not the credentials that push: without them nobody can look whether the registry has the image.
LOSSES_OF_REGISTRY = (
    "rm /etc/clusterctl/registry/clusterctl-registry.yml",
    "systemctl stop clusterctl-registry",
)


@pytest.mark.drawn("nodes left out")
def test_a_node_that_dies_in_a_wave_stops_the_next(applied_lab: RunningLab) -> None:
    died, others, lost = "gpu01", ("gpu02", "gpu03"), "/etc/modprobe.d/clusterctl-nouveau.conf"
    for host in (died, *others):
        inside(applied_lab, f"rm {lost}", host=host)
    try:
        with Apply(applied_lab, "apply", "--yes", "--json", "--only", "driver") as running:
            running.read_until(lambda line: line["type"] == "wave_started" and died in line["hosts"])
            inside(
                applied_lab, "systemctl kill --kill-who=all --signal=KILL ssh; systemctl stop ssh", host=died
            )
            code, lines, messages = running.end()
    finally:
        inside(applied_lab, "systemctl start ssh", host=died)
        untouched = [h for h in others if inside(applied_lab, f"test -e {lost} || echo so", host=h) == "so"]
        applied_lab.done("apply", "--yes", "--only", "driver")
    assert code == 1, messages
    assert untouched == list(others)
    assert [line["hosts"] for line in lines if line["type"] == "wave_started"][-1] == [died]
    assert lines[-1]["hosts"][died]["unreachable"] is True
    assert "later waves were not started" in messages


@pytest.mark.drawn("interrupted and concurrent applies")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_controllers_task_is_never_run_beside_its_twin(
    applied_lab: RunningLab, tmp_path: Path, number: signal.Signals
) -> None:
    """The task is one that Ansible itself waits for: it continues without its controller, as the trap says.
    Another controller is kept out meanwhile; the same directory continues."""
    copy = tmp_path / "copy"
    shutil.copytree(applied_lab.cluster, copy, symlinks=True)
    history = f"grep -c '^Install: .*{TOOLKIT}' /var/log/apt/history.log"
    with without_toolkit(applied_lab):
        before = int(inside(applied_lab, history))
        try:
            with lock_held(applied_lab):
                with Apply(applied_lab, *apply_arguments("runtime")) as first:
                    until(applied_lab, f"{INSTALLS} -q")
                    first.kill(number)
                until(applied_lab, f"{INSTALLS} -q")
                other = run_clusterctl("-C", str(copy), *apply_arguments("runtime"))
                with Apply(applied_lab, *apply_arguments("runtime")) as second:
                    task = "Install and hold the toolkit's packages in one version"
                    began = second.read_until(lambda line: line.get("task") == task)
                    second.read_until(
                        lambda line: line["type"] == "host_started" and line["task_id"] == began["task_id"]
                    )
                    most = max(int(inside(applied_lab, f"{INSTALLS} | wc -l")) for _ in range(10))
                    inside(applied_lab, "systemctl stop holder")
                    code, lines, messages = second.end()
        finally:
            applied_lab.done(*apply_arguments("runtime"))
    assert (other.returncode, "engine.leased" in other.stderr) == (2, True), other.stderr
    assert code == 0, messages
    assert "releasing the lease" in messages
    assert inside(applied_lab, "test -e /root/.clusterctl/lease.json || echo free") == "free"
    assert most == 1, "two package transactions ran on one node"
    assert int(inside(applied_lab, history)) == before + 1, "the transaction was run once"
    assert "was interrupted" in messages or number is not signal.SIGKILL
    assert f"{TOOLKIT}" in inside(
        applied_lab, "dpkg-query -W -f '${db:Status-Abbrev}${Package}\\n' | grep ^hi"
    )
    assert lines[-1]["exit"] == 0


@pytest.mark.drawn("interrupted and concurrent applies")
def test_plan_says_what_apply_then_changes(applied_lab: RunningLab) -> None:
    hosts = ("--limit", f"{NODE},registry01")
    for command in LOSSES:
        inside(applied_lab, command)
    for command in LOSSES_OF_REGISTRY:
        inside(applied_lab, command, host="registry01")
    try:
        planned = applied_lab.clusterctl("plan", "--json", *hosts)
    finally:
        applied = applied_lab.clusterctl("apply", "--yes", "--json", *hosts)
    assert (planned.returncode, applied.returncode) == (0, 0), planned.stderr + applied.stderr
    would = {(line["host"], line["task"]) for line in json_lines(planned) if line["type"] == "change"}
    assert would == changes(json_lines(applied))
    roles = {task.partition(":")[0] for host, task in would if host == NODE}
    assert roles >= {
        "nvidia_driver",
        "container_runtime",
        "nvidia_container_toolkit",
        "registry_client",
        "training_image",
    }
    assert any(host == "registry01" for host, _ in would)
    assert changes(json_lines(applied_lab.clusterctl("apply", "--yes", "--json", *hosts))) == set()


class Arguments:
    """All that stood in any process's argv while it looked: of this machine, the lab's nodes among them."""

    def __init__(self) -> None:
        self.seen: set[bytes] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def _look(self) -> None:
        while not self._stop.wait(0.02):
            for entry in Path("/proc").iterdir():
                if entry.name.isdigit():
                    with suppress(OSError):
                        self.seen.add((entry / "cmdline").read_bytes())

    def __enter__(self) -> Arguments:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def with_(self, text: str) -> list[bytes]:
        """Those with this text in them."""
        return [argv for argv in self.seen if text.encode() in argv]


@contextmanager
def secrets_declared(lab: RunningLab, directory: Path) -> Iterator[tuple[Path, Path]]:
    """A proxy with a password, a sudo that wants one; yields that password as a file, and as variables."""
    settings = lab.cluster / "group_vars" / "all.yml"
    before, rule = settings.read_text(), inside(lab, "cat /etc/sudoers.d/ops")
    proxy = f"http://site:{PROXY_SECRET}@proxy.invalid:3128"
    password, variables = directory / "password", directory / "variables.json"
    for path, text in (
        (password, SUDO_SECRET + "\n"),
        (variables, json.dumps({"ansible_become_password": SUDO_SECRET})),
    ):
        path.touch(mode=0o600)
        path.write_text(text)
    settings.write_text(
        f"{before}\nsite_http_proxy: {proxy}\nsite_no_proxy: depot,registry01,localhost,127.0.0.1\n"
    )
    inside(lab, f"echo 'ops:{SUDO_SECRET}' | chpasswd")
    inside(lab, "echo 'ops ALL=(ALL) ALL' >/etc/sudoers.d/ops")
    try:
        yield password, variables
    finally:
        settings.write_text(before)
        inside(lab, f"echo '{rule}' >/etc/sudoers.d/ops")


@pytest.mark.drawn("interrupted and concurrent applies")
def test_a_secret_is_seen_nowhere(applied_lab: RunningLab, tmp_path: Path) -> None:
    state = applied_lab.cluster / ".clusterctl"
    push = json.loads((state / "secrets" / "registry-push.auth.json").read_text())
    encoded = b64encode((state / "secrets" / "registry-push.auth.json").read_bytes().rstrip()).decode()
    credentials = next(iter(push["auths"].values()))["auth"]
    secrets = {
        "a proxy's password": PROXY_SECRET,
        "sudo's password": SUDO_SECRET,
        "the registry's credentials": credentials,
        "the same as a module is given them": encoded[: len(encoded) // 4 * 4 - 8],
        "the registry's password": b64decode(credentials).decode().partition(":")[2],
    }
    inside(applied_lab, "rm /etc/clusterctl/registry/push.auth.json", host="registry01")
    hosts = f"{NODE},registry01"
    try:
        with without_toolkit(applied_lab), secrets_declared(applied_lab, tmp_path) as (password, variables):
            with Arguments() as arguments:
                applied = applied_lab.clusterctl(
                    "apply", "--yes", "--json", "--limit", hosts, "--become-pass-file", str(password)
                )
                plain = subprocess.run(
                    [sys.executable, "-m", "ansible", "playbook", "-vvv", "--diff", "-e", f"@{variables}",
                     "--limit", hosts, "-i", str(applied_lab.cluster / "hosts.yml"), "playbooks/site.yml"],
                    cwd=REPOSITORY, capture_output=True, text=True, timeout=600, check=False,
                )  # fmt: skip
                validated = applied_lab.clusterctl(
                    "validate", "--json", "--limit", NODE, "--become-pass-file", str(password)
                )
            for host in (NODE, "registry01"):
                inside(applied_lab, f"printf '%05000d {MARKER}\\n' 0 | systemd-cat", host=host)
            shown = {
                host: inside(
                    applied_lab, "journalctl --all -o json --no-pager; systemctl show docker", host=host
                )
                for host in (NODE, "registry01")
            }
            kept = inside(applied_lab, f"cat {DOCKERS_PROXIES}; stat -c %a:%U {DOCKERS_PROXIES}")
    finally:
        applied_lab.done("apply", "--yes", "--json", "--limit", hosts)
    assert applied.returncode == 0, applied.stderr
    assert plain.returncode == 0, plain.stdout[-3000:]
    assert PROXY_SECRET in kept, "the secret has been where it belongs"
    assert kept.endswith("600:root")
    assert all(MARKER in text for text in shown.values()), "long lines of the journal were looked at"
    assert arguments.with_("ansible-playbook") or arguments.with_("playbook"), "the controller was looked at"
    assert arguments.with_("\0".join(APT_GET)), "the node was looked at"
    said = applied.stdout + applied.stderr + plain.stdout + plain.stderr + validated.stdout + validated.stderr
    run = state / "runs" / json_lines(validated)[-1]["run"]
    assert {"result.json", "report.html", "report.md"} <= {path.name for path in run.iterdir()}
    files = [path for path in state.rglob("*") if path.is_file() and "secrets" not in path.parts]
    for name, secret in secrets.items():
        assert arguments.with_(secret) == [], name
        assert secret not in said, name
        assert [host for host, text in shown.items() if secret in text] == [], name
        assert [path for path in files if secret.encode() in path.read_bytes()] == [], name
