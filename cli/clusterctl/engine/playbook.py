"""One run of one playbook on named hosts, and how each of them left it."""

from __future__ import annotations

import itertools
import json
import os
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clustercheck.parse.plain_text import plain_text, shortened
from clustercheck.parse.reading import CannotReadError
from clusterctl.cluster import askpass
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.cluster.known_hosts import checking_options
from clusterctl.cluster.ssh_options import CLOSED, as_words
from clusterctl.cluster.state_files import replace_file
from clusterctl.cluster.templating import UNSAFE_KEY
from clusterctl.content import content_root
from clusterctl.engine import process
from clusterctl.engine.bounded_log import BoundedLog
from clusterctl.engine.connections import connections_of
from clusterctl.engine.event_reading import read_event
from clusterctl.engine.events import Event, Interrupted
from clusterctl.engine.failure import remedy_for
from clusterctl.engine.handover import handed_over
from clusterctl.engine.ledger import BAD, HostRecord, HostState, Ledger
from clusterctl.engine.silence import SILENCE_LIMIT_S, Watch, limit_of_tasks
from clusterctl.engine.wording import format_hosts
from clusterctl.errors import EXIT_INCOMPLETE, ClusterctlError
from clusterctl.interpreter import ansible_environment, ignored_variables, python_command

MAX_FORKS = 64
# The sum of what the longest roles allow themselves: a copy of 4 h, a pull of 2 h, an install, a reboot.
TIME_LIMIT_S = 8 * 3600.0
# Under /root, which is root's alone, and not under /tmp: outcomes must survive a reboot and our death.
ASYNC_DIR = "/root/.clusterctl/async"
# ansible-playbook: good, hosts failed, hosts unreachable, both. Anything else broke a play off.
CAME_TO_ITS_END = frozenset({0, 2, 4, 6})
MAX_LOG_READ = 1 << 20
ANSIBLE_LOG = "ansible.log"
MAX_ERROR = 2000
MAX_NOTES = 100  # of events that were dropped: who causes one causes many
ERROR_MARKS = ("[ERROR]", "ERROR!")
# Ansible's warning where our callback cannot be loaded: the playbook runs, and nothing of it is heard.
NO_EVENTS = "callback plugin 'clusterctl_events'"
# As in ansible.cfg, whose ssh_args ours replace.
SHARED_CONNECTION = (
    "-o ControlMaster=auto -o ControlPersist=120s -o ServerAliveInterval=10 -o ServerAliveCountMax=6"
)


@dataclass(frozen=True)
class PlaybookRequest:
    """What to run, where. ``playbook`` is a path, or a name in our playbooks/. Times in seconds.

    ``extra_vars`` are values as they are: no template in them is ever evaluated.
    ``secret_vars`` are passwords as a JSON document of variables.
    ``calls`` is a file to which what is asked of hosts is appended, for those who want to ask it again.
    ``every_host`` says that each host must be heard of; else a host that no play is for is left untouched.
    ``task_limit_s`` ends a task that states no limit of its own, on the host that hangs alone; 0: before the
    limit of silence would end the work of all hosts.
    """

    playbook: str | Path
    inventory: Path
    hosts: tuple[str, ...]
    run_directory: Path
    tags: tuple[str, ...] = ()
    extra_vars: Mapping[str, Any] = field(default_factory=dict)
    check: bool = False
    diff: bool = False
    every_host: bool = True
    secret_vars: bytes = field(default=b"", repr=False)
    time_limit_s: float = TIME_LIMIT_S
    silence_limit_s: float = SILENCE_LIMIT_S
    task_limit_s: int = 0
    forks: int = MAX_FORKS
    calls: Path | None = None

    @property
    def seconds_per_task(self) -> int:
        """The limit of a task that states none."""
        return self.task_limit_s or limit_of_tasks(self.silence_limit_s)

    @property
    def log(self) -> Path:
        """Where Ansible's own output goes."""
        return self.run_directory / ANSIBLE_LOG

    @property
    def limit_file(self) -> Path:
        """Which hosts, one a line: names of thousands are too long for one argument (128 KiB).

        Ansible divides its path at spaces, commas and colons, which a cluster directory may have.
        """
        return self.connections / "limit.txt"

    @property
    def connections(self) -> Path:
        """Where connections to hosts of this cluster are kept open."""
        return connections_of(self.inventory.parent.resolve())


@dataclass(frozen=True)
class PlaybookOutcome:
    """How a playbook ended: ``states`` and ``reasons`` by host, ``ledger`` with all else."""

    states: Mapping[str, HostState]
    reasons: Mapping[str, str]
    ledger: Ledger
    exit_code: int
    interrupted: bool
    timed_out: bool
    duration_s: float

    @property
    def good(self) -> bool:
        """No host failed, was unreachable, or fell silent."""
        return not self.interrupted and not any(state in BAD for state in self.states.values())


# `run_playbook`, or what stands in for it.
Runner = Callable[..., PlaybookOutcome]


def run_playbook(
    request: PlaybookRequest,
    on_event: Callable[[Event, Ledger], None],
    on_tick: Callable[[Ledger], None] = lambda _: None,
) -> PlaybookOutcome:
    """Run it until it ends; each event is in the ledger when ``on_event`` gets it. Main thread only.

    Raises ClusterctlError (``engine.ansible``, exit 3) where Ansible ended before any play started, with its
    own words: that is not a host's fault.
    """
    ledger = Ledger(request.hosts)
    log_start = request.log.stat().st_size if request.log.is_file() else 0

    watch, dropped = Watch(request.silence_limit_s), itertools.count(1)

    def tell(event: Event) -> None:
        watch.heard(event)
        ledger.record(event)
        on_event(event, ledger)

    def take(line: bytes) -> None:
        variables.withdraw()
        try:
            event = read_event(line)
        except CannotReadError as error:
            if next(dropped) <= MAX_NOTES:
                _note_in_log(request, f"an event of Ansible was dropped: {error}")
            return
        if event is not None:
            tell(event)

    content = content_root()
    with (
        handed_over(request.run_directory, _variables(request)) as variables,
        askpass.program_for_ansible() as gate,
    ):
        _head_of_log(request)
        replace_file(request.limit_file, "".join(f"{host}\n" for host in request.hosts))
        limit_s = request.seconds_per_task
        environment = playbook_environment(content, calls=request.calls, task_limit_s=limit_s)
        ended = process.run(
            arguments(request, variables.paths),
            cwd=content,
            environment={**environment, askpass.GATE: str(gate)},
            log=request.log,
            on_line=take,
            on_tick=lambda: on_tick(ledger),
            time_limit_s=request.time_limit_s,
            hopeless=lambda: watch.hopeless(ledger),
            on_signal=lambda: tell(Interrupted(time.time())),
        )
    if not ledger.tasks and ledger.stats is None and not ended.interrupted and not ended.timed_out:
        raise _ansible_failed(request, log_start, ended.exit_code)
    states, reasons = {}, {}
    for name in request.hosts:
        states[name], reasons[name] = _left(name, request, ledger, ended, watch)
    return PlaybookOutcome(
        states, reasons, ledger, ended.exit_code, ended.interrupted, ended.timed_out, ended.duration_s
    )


def arguments(request: PlaybookRequest, variables: Sequence[Path]) -> list[str]:
    """The command line: no secret and no setting stands in it."""
    playbook = Path(request.playbook)
    if not playbook.is_absolute():
        playbook = content_root() / "playbooks" / playbook
    command = python_command("-m", "ansible", "playbook", "-i", str(request.inventory))
    command += ["--limit", f"@{request.limit_file}", "--forks", str(min(request.forks, len(request.hosts)))]
    command += [word for path in variables for word in ("-e", f"@{path}")]
    if request.tags:
        command += ["--tags", ",".join(request.tags)]
    if request.check:
        command.append("--check")
    if request.diff:
        command.append("--diff")
    return [*command, str(playbook)]


def playbook_environment(
    content: Path,
    environment: Mapping[str, str] | None = None,
    *,
    calls: Path | None = None,
    task_limit_s: int = 0,
) -> dict[str, str]:
    """The environment of an ansible-playbook that reports events: ours, not what the operator's shell holds.

    ``calls`` is the file for what is asked of hosts, where anybody wants that.
    """
    kept = {
        **ansible_environment(content, environment),
        "ANSIBLE_CALLBACK_PLUGINS": str(content / "plugins" / "callback"),
        "ANSIBLE_CALLBACKS_ENABLED": "clusterctl_events",
        # As YAML, Ansible's main process takes hours to print a host's answer with a long run of spaces; with
        # a value a line, one that is deep takes hundreds of times its length.
        "ANSIBLE_CALLBACK_RESULT_FORMAT": "json",
        "ANSIBLE_CALLBACK_FORMAT_PRETTY": "false",
        "PYTHONUNBUFFERED": "1",
    }
    if task_limit_s:
        kept["ANSIBLE_TASK_TIMEOUT"] = str(task_limit_s)
    if calls is not None:
        kept["ANSIBLE_CALLBACKS_ENABLED"] = "clusterctl_events,clusterctl_calls"
        kept["CLUSTERCTL_CALLS"] = str(calls)
        # From ansible-core 2.21 on a result has the arguments of its module only on request.
        kept["ANSIBLE_INJECT_INVOCATION"] = "true"
    return kept


def _variables(request: PlaybookRequest) -> list[bytes]:
    """Variables for Ansible, as the JSON documents that it reads."""
    # sshpass answers whichever ssh asks first: with a jump host, that one.
    ssh = {
        "ansible_ssh_args": _ssh_args(request),
        "ansible_ssh_password_mechanism": "ssh_askpass",
        "ansible_control_path_dir": str(request.connections),
        "ansible_control_path": "",
    }
    variables = {"ansible_async_dir": ASYNC_DIR, **request.extra_vars, **ssh}
    settings = json.dumps(_untrusted(variables)).encode()
    return [content for content in (settings, request.secret_vars) if content]


def _untrusted(value: Any) -> Any:
    """A value whose texts Ansible never evaluates: it trusts what stands in a file of variables, and a node
    may have had its say in ours (a lease, a job's id)."""
    if isinstance(value, str):
        return {UNSAFE_KEY: value}
    if isinstance(value, Mapping):
        return {str(key): _untrusted(each) for key, each in value.items()}
    if isinstance(value, Sequence):
        return [_untrusted(each) for each in value]
    return value


def _ssh_args(request: PlaybookRequest) -> str:
    """ssh takes the first value it is given, and Ansible puts these first: no setting can undo them."""
    known_hosts = ClusterDirectory(request.inventory.parent).known_hosts
    words = as_words([*checking_options(known_hosts), *CLOSED])
    return f"{shlex.join(words)} {SHARED_CONNECTION}"


def _head_of_log(request: PlaybookRequest) -> None:
    """Name what the operator's shell asked for and does not get."""
    ignored = ignored_variables(os.environ)
    _note_in_log(request, f"{request.playbook} on {', '.join(request.hosts)}", before="\n")
    if ignored:
        _note_in_log(request, f"not passed to Ansible: {', '.join(ignored)}")


def _note_in_log(request: PlaybookRequest, note: str, *, before: str = "") -> None:
    with BoundedLog(request.log) as log:
        log.write(f"{before}# {note}\n".encode())


def _left(
    name: str, request: PlaybookRequest, ledger: Ledger, ended: process.Ended, watch: Watch
) -> tuple[HostState, str]:
    """How one host left, fail closed: a host that nothing is known of is not good."""
    one = ledger.hosts[name]
    if one.unreachable or one.failed:
        because = one.failure.headline if one.failure else "it failed and gave no reason"
        return (HostState.UNREACHABLE if one.unreachable else HostState.FAILED), because
    if ledger.stats is None or ended.exit_code not in CAME_TO_ITS_END:
        return _cut_off(one, request, ledger, ended, watch)
    if one.busy:
        return HostState.BUSY, one.busy
    if not one.aimed and not request.every_host:
        return HostState.UNTOUCHED, "nothing in this playbook applies to it"
    if not one.heard or name not in ledger.stats:
        return HostState.SILENT, "no result was received from it"
    return HostState.GOOD, ""


def _cut_off(
    one: HostRecord, request: PlaybookRequest, ledger: Ledger, ended: process.Ended, watch: Watch
) -> tuple[HostState, str]:
    at = f" in the middle of: {one.doing}" if one.running else f" after: {one.doing}" if one.heard else ""
    if ended.interrupted:
        return HostState.INTERRUPTED, f"stopped{at or ' before its first task'}"
    if one.name in watch.silent:
        return HostState.SILENT, f"no result for {watch.limit_s / 60:.3g} min in: {watch.silent[one.name]}"
    if watch.silent:
        return HostState.INTERRUPTED, f"aborted because {', '.join(watch.silent)} stopped responding{at}"
    late = [other.name for other in ledger.running()]
    if ended.timed_out and late and not one.running:
        return HostState.INTERRUPTED, f"aborted because {format_hosts(late)} did not finish in time{at}"
    if ended.timed_out:
        return HostState.SILENT, f"not done within {request.time_limit_s:.0f} s{at}"
    return HostState.SILENT, f"Ansible ended (exit code {ended.exit_code}) before it was done{at}"


def _ansible_failed(request: PlaybookRequest, log_start: int, exit_code: int) -> ClusterctlError:
    """Ansible's own error, for people: the first [ERROR] and what follows it, without the wall."""
    with request.log.open("rb") as stream:
        stream.seek(log_start)
        text_of_log = plain_text(stream.read(MAX_LOG_READ).decode(errors="replace"))
    lines = [line.rstrip() for line in text_of_log.splitlines()]
    lines = [
        line for line in lines if line and (NO_EVENTS in line or not line.startswith(("#", "[WARNING]")))
    ]
    silent = [line for line in lines if NO_EVENTS in line]
    first = next((i for i, line in enumerate(lines) if line.startswith(ERROR_MARKS)), None)
    answer = silent[:1] or (lines[first : first + 4] if first is not None else lines[-3:])
    text = " ".join(answer).replace("[ERROR]:", "").replace("[WARNING]:", "").strip()
    text = shortened(text, MAX_ERROR)
    what = "reported nothing" if silent else "did not start"
    return ClusterctlError(
        f"Ansible {what} (exit code {exit_code}): {text or 'no output'}",
        code="engine.ansible",
        where=str(request.log),
        hint=remedy_for(text, "the controller") or "Its full output is in that file.",
        exit_code=EXIT_INCOMPLETE,
    )
