"""Work on the registry's host outside the site playbook: a backup of Harbor, its restore, its upgrade."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import Field

from clustercheck.parse.reading import CannotReadError
from clusterctl.cluster.access import Passwords
from clusterctl.cluster.inventory import Host
from clusterctl.cluster.spec import setting
from clusterctl.cluster.untrusted import Count, HostAnswer, Message, Seconds, Sentence, read_answer_as
from clusterctl.engine import mutex
from clusterctl.engine.failure import Failure
from clusterctl.engine.failure_kinds import UNREADABLE
from clusterctl.engine.playbook import ANSIBLE_LOG, PlaybookOutcome, Runner, run_playbook
from clusterctl.engine.silence import SILENCE_LIMIT_S
from clusterctl.errors import EXIT_CLUSTER_BAD, EXIT_GOOD, EXIT_INTERRUPTED, ClusterctlError
from clusterctl.rollout import leases, opening
from clusterctl.rollout.session import WaveLimits, play
from clusterctl.runs.store import RunStore
from clusterctl.runs.syslog import anchored_store

# A registry of many terabytes is read twice by a backup, and nothing is said meanwhile.
TIME_LIMIT_S = 24 * 3600.0
SILENT_S = max(SILENCE_LIMIT_S, 12 * 3600.0)
HARBOR = "harbor"
# Where Harbor keeps images as files of its host, which alone a backup has.
HARBORS_FILES = "filesystem"


@dataclass(frozen=True)
class RegistryOperation:
    """What is done by which playbook. ``lasting`` says that it changes the host, and needs its lease."""

    kind: str
    playbook: str
    lasting: bool = True
    check: bool = False
    extra_vars: Mapping[str, Any] = field(default_factory=dict)


class BackupReport(HostAnswer, extra="allow"):
    """What `harbor_backup` and `harbor_restore` say of a backup; ``files`` with its size and release."""

    backup: Message
    files: Count = 0
    bytes: Count = 0
    version: Sentence = ""
    database: Sentence = ""
    storage: Sentence = HARBORS_FILES
    read_only_s: Seconds | None = None
    damaged: list[Sentence] = Field(default=[])


@dataclass(frozen=True)
class OperationResult:
    """How it ended; ``said`` is what the host said of the backup."""

    run: str
    host: str
    exit_code: int
    changed: int
    said: Mapping[str, Any]
    failures: tuple[Failure, ...] = ()

    def as_record(self) -> dict[str, Any]:
        """The last line of --json."""
        return {"type": "summary", "run": self.run, "host": self.host, "changed": self.changed,
                "exit": self.exit_code, **({"backup": dict(self.said)} if self.said else {}),
                "failures": [one.headline for one in self.failures]}  # fmt: skip


def harbor_host(chosen: opening.Selection) -> Host:
    """The host that runs Harbor. Raises ClusterctlError (``registry.no-harbor``, exit 2)."""
    hosts = [host for host in chosen.hosts if host in chosen.inventory.registry_hosts]
    where = str(chosen.directory.hosts_file)
    if not hosts:
        raise ClusterctlError(
            "no host of the group registry can be worked on",
            code="registry.no-harbor",
            where=where,
            hint="Put the registry's host there, or release it: clusterctl hosts release HOST",
        )
    if setting(hosts[0], "registry_kind") != HARBOR:
        raise ClusterctlError(
            "this cluster's registry is the embedded one, which has no database to keep",
            code="registry.no-harbor",
            where=f"{hosts[0].name}: registry_kind",
            hint="Set registry_kind: harbor. The embedded one's images are plain files in registry_data_dir.",
        )
    return hosts[0]


def run_operation(
    chosen: opening.Selection,
    host: Host,
    operation: RegistryOperation,
    *,
    passwords: Passwords,
    as_json: bool,
    runner: Runner = run_playbook,
) -> OperationResult:
    """Run it on the registry's host, as a run that is kept. Raises ClusterctlError where it cannot start."""
    arguments = [f"{name}={value}" for name, value in operation.extra_vars.items()]
    with (
        mutex.held(chosen.directory, operation.kind),
        opening.session(chosen, operation.kind, arguments, passwords=passwords, as_json=as_json,
                        extra_vars=operation.extra_vars, runner=runner) as session,
    ):  # fmt: skip
        held = operation.lasting and not operation.check
        holding = leases.held(session, (host.name,)) if held else contextlib.nullcontext(leases.Holding(None))
        with holding as ours:
            if ours.failures:
                result = OperationResult(
                    session.run.id, host.name, EXIT_CLUSTER_BAD, 0, {}, tuple(ours.failures)
                )
            else:
                limits = WaveLimits(TIME_LIMIT_S, SILENT_S)
                outcome = play(session, operation.playbook, [host.name], check=operation.check, limits=limits)
                result = _result(session.run.id, host.name, outcome)
        anchored_store(chosen.inventory).finish(session.run, result.exit_code, result.as_record())
    return result


def _result(run: str, host: str, outcome: PlaybookOutcome) -> OperationResult:
    one = outcome.ledger.hosts[host]
    answer, failure = {}, one.failure
    try:
        answer = read_backup(one.facts.get("backup"))
    except CannotReadError as error:
        remedy = UNREADABLE.remedy.format(host=host)
        failure = failure or Failure(host, one.doing, str(error), remedy=remedy, code=UNREADABLE.code)
    good = outcome.good and failure is None
    code = EXIT_INTERRUPTED if outcome.interrupted else EXIT_GOOD if good else EXIT_CLUSTER_BAD
    # Layers that were damaged before are in the backup as they were: it is whole, the registry is not.
    if code == EXIT_GOOD and answer.get("damaged"):
        code = EXIT_CLUSTER_BAD
    return OperationResult(run, host, code, one.changed, answer, (failure,) if failure else ())


def read_backup(answer: object) -> dict[str, Any]:
    """What the host says of a backup, cleaned; nothing where it says nothing. Raises CannotReadError."""
    if not answer:
        return {}
    read = read_answer_as(BackupReport, answer, "what it says of the backup")
    return read.model_dump(exclude_unset=True)


def log_of(chosen: opening.Selection, result: OperationResult) -> Path:
    """All that Ansible printed."""
    return RunStore(chosen.directory).get(result.run).path(ANSIBLE_LOG)
