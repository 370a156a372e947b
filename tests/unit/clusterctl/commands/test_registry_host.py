"""`clusterctl registry backup|restore|upgrade` from the operator's side, with Ansible played by data."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.engine.events import PlayStarted, Stats, TaskResult, TaskStarted
from clusterctl.engine.ledger import HostState, Ledger
from clusterctl.engine.playbook import PlaybookOutcome, PlaybookRequest
from clusterctl.main import run
from clusterctl.runs.store import RunStore

SAID = {
    "backup": "/var/backups/clusterctl/harbor/20260131T120000Z", "version": "v2.15.2", "files": 12,
    "bytes": 3_000_000_000, "database": "own", "read_only_s": 4.2, "damaged": [],
}  # fmt: skip


class Ansible:
    """Stands where ansible-playbook would."""

    def __init__(self) -> None:
        self.requests: list[PlaybookRequest] = []
        self.leases: list[str] = []
        self.said: dict[str, Any] = SAID
        self.fails = self.code = ""

    def __call__(self, request: PlaybookRequest, on_event: Any, on_tick: Any = None) -> PlaybookOutcome:
        if request.playbook == "leases.yml":
            return self._lease(request)
        self.requests.append(request)
        ledger = Ledger(request.hosts)
        (host,) = request.hosts
        status = "failed" if self.fails else "changed"
        counts = {"ok": 1, "changed": 1, "failures": int(bool(self.fails)), "unreachable": 0, "skipped": 0,
                  "rescued": 0, "ignored": 0}  # fmt: skip
        for event in (
            PlayStarted(1.0, "play", request.hosts),
            TaskStarted(1.0, "t", "Back Harbor up", "harbor", "harbor_backup", "x.yml:1"),
            TaskResult(
                2.0, host, "t", status, self.fails, self.code, clusterctl={"facts": {"backup": self.said}}
            ),
            Stats(3.0, {host: counts}),
        ):
            ledger.record(event)
            on_event(event, ledger)
        state = HostState.FAILED if self.fails else HostState.GOOD
        return PlaybookOutcome({host: state}, {host: self.fails}, ledger, 0, False, False, 1.0)

    def _lease(self, request: PlaybookRequest) -> PlaybookOutcome:
        """The same for leases.yml."""
        state = request.extra_vars["clusterctl_lease_state"]
        self.leases.append(state)
        ledger = Ledger(request.hosts)
        for host in request.hosts:
            holder = request.extra_vars["clusterctl_lease"] if state == "taken" else None
            said = {"taken": state == "taken", "freed": state == "freed", "holder": holder}
            ledger.hosts[host].facts["lease"] = said
        states = dict.fromkeys(request.hosts, HostState.GOOD)
        return PlaybookOutcome(states, dict.fromkeys(states, ""), ledger, 0, False, False, 1.0)


@pytest.fixture
def ansible() -> Ansible:
    return Ansible()


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClusterDirectory:
    (tmp_path / "hosts.yml").write_text("registry: {hosts: {registry01: {ansible_host: 192.0.2.4}}}\n")
    declare(monkeypatch, registry_kind="harbor", harbor_version="v2.15.2")
    return ClusterDirectory(tmp_path)


@pytest.fixture
def registry(cluster: ClusterDirectory, ansible: Ansible) -> Callable[..., int]:
    """`clusterctl registry ...` on that cluster, from its arguments to its exit code."""

    def call(*arguments: str) -> int:
        return run(["-C", str(cluster.root), "registry", *arguments], runner=ansible)

    return call


def declare(monkeypatch: pytest.MonkeyPatch, **values: Any) -> None:
    """The settings as Ansible lists them."""
    listing = {
        "all": {"children": ["registry"]},
        "registry": {"hosts": ["registry01"]},
        "_meta": {"hostvars": {"registry01": {"ansible_host": "192.0.2.4", **values}}},
    }
    monkeypatch.setattr("clusterctl.cluster.inventory._listing", lambda _directory: listing)


def test_a_backup_is_a_run_that_says_what_was_kept(
    registry: Callable[..., int],
    cluster: ClusterDirectory,
    ansible: Ansible,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert registry("backup", "--yes") == 0
    said = capsys.readouterr().out
    assert "20260131T120000Z on registry01: 12 files, 3.00 GB of Harbor v2.15.2, verified" in said
    assert "read-only for 4.2 s" in said
    assert [request.playbook for request in ansible.requests] == ["registry_backup.yml"]
    assert ansible.leases == ["taken", "freed"]
    kept = RunStore(cluster).get("last")
    assert (kept.kind, kept.exit_code) == ("registry backup", 0)


def test_what_a_backup_does_not_have_is_said(
    registry: Callable[..., int], ansible: Ansible, capsys: pytest.CaptureFixture[str]
) -> None:
    assert registry("backup", "--yes") == 0
    assert "not in it" not in capsys.readouterr().err
    ansible.said = {**SAID, "database": "external", "storage": "s3"}
    assert registry("backup", "--yes") == 0
    err = capsys.readouterr().err
    assert "the database is the site's own, and is not in it" in err
    assert "images are in the site's own storage (s3), and are not in it" in err


@pytest.mark.parametrize("odd", [{"files": "12"}, {"damaged": "x"}, {"backup": None}, {"bytes": -1}], ids=str)
def test_a_backup_of_which_nothing_can_be_read_is_no_good_one(
    registry: Callable[..., int], ansible: Ansible, capsys: pytest.CaptureFixture[str], odd: dict[str, Any]
) -> None:
    ansible.said = {**SAID, **odd}
    assert registry("backup", "--yes") == 1
    captured = capsys.readouterr()
    assert "verified" not in captured.out
    assert "what it says of the backup cannot be read" in captured.err
    assert "code:  task.unreadable" in captured.err


def test_the_last_line_of_json_is_the_summary(
    registry: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert registry("backup", "--yes", "--json") == 0
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (last["type"], last["host"], last["exit"]) == ("summary", "registry01", 0)
    assert last["backup"]["version"] == "v2.15.2"


def test_damaged_layers_are_named_and_make_the_exit_code_1(
    registry: Callable[..., int], ansible: Ansible, capsys: pytest.CaptureFixture[str]
) -> None:
    ansible.said = {**SAID, "damaged": ["sha256:aa", "sha256:bb", "sha256:cc", "sha256:dd"]}
    assert registry("backup", "--yes") == 1
    assert "sha256:aa, sha256:bb, sha256:cc and 1 more" in capsys.readouterr().err


def test_a_failure_is_told_in_the_modules_words_with_its_code(
    registry: Callable[..., int], ansible: Ansible, capsys: pytest.CaptureFixture[str]
) -> None:
    ansible.fails = "Harbor's backup could not be taken: the database's dump was interrupted."
    ansible.code = "harbor.backup"
    assert registry("backup", "--yes") == 1
    err = capsys.readouterr().err
    assert "the database's dump was interrupted" in err
    assert "harbor.backup" in err
    assert ansible.leases == ["taken", "freed"]


def test_verify_reads_one_and_neither_asks_nor_takes_a_lease(
    registry: Callable[..., int], ansible: Ansible
) -> None:
    name = "20260131T120000Z"
    assert registry("backup", "--verify", "--name", name) == 0
    told = ansible.requests[0].extra_vars
    assert told == {"clusterctl_registry_backup": "verify_backup", "harbor_backup_name": name}
    assert ansible.leases == []
    for none in ("../etc", "2026T0131120000Z", "2026013112000000", "20260131T12000٠Z"):
        assert registry("backup", "--verify", "--name", none) == 2
    assert registry("backup", "--name", name) == 2
    assert len(ansible.requests) == 1


@pytest.mark.parametrize("verb", ["backup", "restore", "upgrade"])
def test_nothing_is_done_unasked_and_check_changes_nothing(
    registry: Callable[..., int], ansible: Ansible, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: False)
    assert registry(verb) == 1
    assert ansible.requests == []
    assert registry(verb, "--check") == 0
    assert [request.check for request in ansible.requests] == [True]
    assert ansible.leases == []


def test_an_operators_word_for_a_database_of_the_site_goes_to_the_role(
    registry: Callable[..., int], ansible: Ansible
) -> None:
    assert registry("upgrade", "--yes") == 0
    assert registry("upgrade", "--yes", "--database-backed-up") == 0
    assert [request.extra_vars for request in ansible.requests] == [{}, {"harbor_database_backed_up": True}]


def test_an_embedded_registry_and_none_at_all_are_refused(
    registry: Callable[..., int], ansible: Ansible, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    declare(monkeypatch, registry_kind="embedded")
    assert registry("backup", "--yes") == 2
    assert "registry_kind: harbor" in capsys.readouterr().err
    assert ansible.requests == []
