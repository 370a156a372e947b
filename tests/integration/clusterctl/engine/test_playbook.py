"""Real ansible-playbook processes on local-connection hosts: what the engine makes of their ends."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from clusterctl.content import content_root
from clusterctl.engine import playbook
from clusterctl.engine.connections import connections_of
from clusterctl.engine.events import (
    Event,
    HostStarted,
    JobFinished,
    JobStarted,
    Retry,
    TaskResult,
    TaskStarted,
    as_line,
)
from clusterctl.engine.journal import Journal, open_jobs, read
from clusterctl.engine.ledger import HostState
from clusterctl.engine.playbook import PlaybookOutcome, PlaybookRequest, run_playbook
from clusterctl.engine.silence import Watch, limit_of_tasks
from clusterctl.errors import ClusterctlError

CANARY = "s3cr3t {{ canary }}"


@pytest.fixture
def site(local_site: Path) -> Path:
    """The directory, with one for runs."""
    (local_site / "run").mkdir()
    return local_site


def request(site: Path, tasks: str, hosts: tuple[str, ...], **options: object) -> PlaybookRequest:
    book = site / "book.yml"
    head = "- hosts: all:!gpu03\n  gather_facts: false\n  tasks:\n"
    book.write_text(head + textwrap.indent(textwrap.dedent(tasks), "    "))
    variables = {"ansible_async_dir": str(site / "async"), "site": str(site)}
    variables["token"] = CANARY
    return PlaybookRequest(book, site / "hosts.yml", hosts, site / "run", extra_vars=variables, **options)


def run(request: PlaybookRequest) -> tuple[PlaybookOutcome, list[Event]]:
    events: list[Event] = []
    with Journal(request.run_directory / "journal.jsonl") as journal:

        def take(event: Event, _ledger: object) -> None:
            assert not list(request.run_directory.glob("variables-*")), "gone as soon as they are read"
            journal.write(event)
            events.append(event)

        return run_playbook(request, take), events


def with_a_liar(site: Path, says: str, **options: object) -> PlaybookOutcome:
    """Two hosts are asked, of which on gpu01 a shell says this in the place of a module."""
    liar = site / "liar"
    liar.write_text(f"#!/bin/sh\n{says}\n")
    liar.chmod(0o755)
    tasks = """\
        - name: Look
          ansible.builtin.ping:
          vars:
            liar: "{{ site }}/liar"
            ansible_python_interpreter: >-
              {{ liar if inventory_hostname == 'gpu01' else ansible_playbook_python }}
        """
    outcome, _ = run(request(site, tasks, ("gpu01", "gpu02"), **options))
    return outcome


@pytest.mark.parametrize("said", ["5", '{"data": 7}', '{"data": {"x": 1}, "aggregate": true}', "null"])
def test_statistics_that_a_host_returns_count_for_nobody(site: Path, said: str) -> None:
    """Ansible adds them up in its main process, for all hosts, and takes them from any module."""
    outcome = with_a_liar(site, f'echo \'{{"changed": false, "ansible_stats": {said}}}\'')
    assert outcome.states == dict.fromkeys(("gpu01", "gpu02"), HostState.GOOD)


def test_each_host_leaves_in_its_own_state_and_no_secret_leaves_at_all(site: Path) -> None:
    outcome, events = run(
        request(
            site,
            """\
            - name: Change something
              ansible.builtin.copy:
                content: hello
                dest: "{{ site }}/{{ inventory_hostname }}"
                mode: "0600"
            - name: Handle a secret
              ansible.builtin.command:
                argv: ["test", "{{ token }}", "=", "{{ ansible_become_password }}"]
              no_log: true
              changed_when: false
            - name: Start a job
              ansible.builtin.command: {argv: ["true"]}
              async: 30
              poll: 0
              register: job
              changed_when: false
            - name: Wait for the job
              ansible.builtin.async_status: {jid: "{{ job.ansible_job_id }}"}
              register: polled
              until: polled is finished
              retries: 60
              delay: 0
              changed_when: false
            - name: Refuse the second host
              ansible.builtin.command: {argv: [sh, -c, "echo broken >&2; exit 3"]}
              when: inventory_hostname == 'gpu02'
            """,
            ("gpu01", "gpu02", "gpu03", "dead01"),
            secret_vars=json.dumps({"ansible_become_password": {"__ansible_unsafe": CANARY}}).encode(),
        )
    )
    assert outcome.states == {
        "gpu01": HostState.GOOD,
        "gpu02": HostState.FAILED,
        "gpu03": HostState.SILENT,
        "dead01": HostState.UNREACHABLE,
    }
    assert not outcome.good
    assert outcome.ledger.hosts["gpu01"].changed == 1
    failure = outcome.ledger.hosts["gpu02"].failure
    assert failure is not None
    assert failure.message == "the command ended with exit code 3: broken"
    assert failure.task == "Refuse the second host"
    assert failure.detail == ""
    assert failure.where.endswith("book.yml:27")
    dead = outcome.ledger.hosts["dead01"].failure
    assert dead is not None
    assert "Connection refused" in dead.message
    assert "quarantine dead01" in dead.remedy
    started = [e for e in events if isinstance(e, JobStarted)]
    assert {e.host for e in started} == {"gpu01", "gpu02"}
    assert {e.job_id for e in events if isinstance(e, JobFinished)} == {e.job_id for e in started}
    assert open_jobs(site / "run" / "journal.jsonl") == []
    hidden = [e for e in events if isinstance(e, TaskResult) and e.hidden]
    assert len(hidden) == 2
    written = [p.read_bytes() for p in (site / "run").iterdir()]
    assert len(written) == 2, "the files of variables are gone"
    assert all(CANARY.encode() not in content for content in written)
    for name in ("ansible.log", "journal.jsonl"):
        assert (site / "run" / name).stat().st_mode & 0o777 == 0o600
    assert [as_line(e) for e in read(site / "run" / "journal.jsonl")] == [as_line(e) for e in events]


def test_a_playbook_that_ansible_cannot_read_is_no_hosts_fault(site: Path) -> None:
    with pytest.raises(ClusterctlError) as caught:
        run(request(site, "- name: Nonsense\n  no_such_module_of_ours: {}\n", ("gpu01",)))
    assert caught.value.exit_code == 3
    assert "no_such_module_of_ours" in caught.value.what


def test_an_interrupt_ends_all_in_bounded_time_and_names_the_task(site: Path) -> None:
    long = request(site, "- name: Take long\n  ansible.builtin.command: sleep 60\n", ("gpu01", "gpu02"))
    begun = time.monotonic()
    sent = []

    def interrupt(event: Event, ledger: playbook.Ledger) -> None:
        if len(ledger.running()) == 2 and not sent:
            sent.append(True)
            os.kill(os.getpid(), signal.SIGINT)

    outcome = run_playbook(long, interrupt)
    assert time.monotonic() - begun < 50
    assert outcome.interrupted
    assert set(outcome.states.values()) == {HostState.INTERRUPTED}
    assert outcome.reasons["gpu01"] == "stopped in the middle of: Take long"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_child_past_its_time_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    stubborn = "import os, signal, subprocess, sys, time; signal.signal(signal.SIGINT, signal.SIG_IGN); "
    stubborn += "signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    stubborn += "below = subprocess.Popen(['sleep', '60'], start_new_session=True); "
    stubborn += "os.write(int(os.environ['CLUSTERCTL_EVENTS_FD']), b'%d\\n' % below.pid); time.sleep(60)"
    lines: list[bytes] = []
    ended = playbook.process.run(
        [sys.executable, "-c", stubborn],
        cwd=tmp_path,
        environment={},
        log=tmp_path / "log",
        on_line=lines.append,
        on_tick=lambda: None,
        time_limit_s=2.0,  # time to make itself stubborn, also on a busy machine
        grace_s=0.2,
    )
    assert ended.timed_out
    assert not ended.interrupted
    assert ended.exit_code == -signal.SIGKILL
    assert ended.duration_s < 15
    wait_for(lambda: not alive(int(lines[0])))


def test_a_child_without_end_in_its_memory_fails_and_its_limit_is_never_above_ours(tmp_path: Path) -> None:
    def run_limited(program: str, **limit: int) -> tuple[playbook.process.Ended, list[bytes]]:
        lines: list[bytes] = []
        ended = playbook.process.run(
            [sys.executable, "-c", f"import os, resource\n{program}"],
            cwd=tmp_path,
            environment={},
            log=tmp_path / "log",
            on_line=lines.append,
            on_tick=lambda: None,
            time_limit_s=60,
            **limit,
        )
        return ended, lines

    grow = "if os.fork() == 0:\n    kept = b'x'\n    while True: kept += kept\nos._exit(os.wait()[1] >> 8)"
    ended, _ = run_limited(grow, memory_limit_bytes=256 << 20)
    assert (ended.exit_code, ended.timed_out) == (1, False)
    assert "MemoryError" in (tmp_path / "log").read_text()

    show = "limit, _ = resource.getrlimit(resource.RLIMIT_AS)\n"
    show += "os.write(int(os.environ['CLUSTERCTL_EVENTS_FD']), b'%d\\n' % limit)"
    before = resource.getrlimit(resource.RLIMIT_AS)
    assert run_limited(show)[1] == [b"%d" % playbook.process.MEMORY_LIMIT_BYTES]
    ours = playbook.process.MEMORY_LIMIT_BYTES - (1 << 20)
    resource.setrlimit(resource.RLIMIT_AS, (ours, before[1]))
    try:
        assert run_limited(show)[1] == [b"%d" % ours]
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.drawn("nodes that say too much")
def test_a_node_that_prints_without_end_fails_and_the_others_go_on(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ssh = site / "ssh"
    ssh.write_text(
        "#!/bin/sh\nexec 3<&0\ncat <&3 >/dev/null &\nexec yes the .bashrc of this node has no end\n"
    )
    ssh.chmod(0o755)
    hosts = site / "hosts.yml"
    hosts.write_text(hosts.read_text().replace("ansible_port: 9,", f"ansible_ssh_executable: {ssh},"))
    unlimited = playbook.process.run
    monkeypatch.setattr(
        playbook.process, "run", lambda *a, **o: unlimited(*a, memory_limit_bytes=1 << 30, **o)
    )
    outcome, _ = run(request(site, "- name: Ask\n  ansible.builtin.command: id\n", ("gpu01", "dead01")))
    assert outcome.states == {"gpu01": HostState.GOOD, "dead01": HostState.FAILED}
    failure = outcome.ledger.hosts["dead01"].failure
    assert failure is not None
    assert failure.code == "task.out-of-memory"
    assert "Log in to dead01 by hand" in failure.remedy


def test_a_node_that_answers_with_megabytes_fails_before_ansible_copies_them(site: Path) -> None:
    """Ansible's main process takes a minute for some, and all hosts wait for it."""
    print_many = "yes '{},' | head -c 6000000 | tr -d '\\n'"
    begin = """printf '{"changed": false, "x": ['"""
    outcome = with_a_liar(site, f"{begin}\n{print_many}\necho '1]}}'")
    assert outcome.states == {"gpu01": HostState.FAILED, "gpu02": HostState.GOOD}
    assert "and at most 2000000 are read" in outcome.reasons["gpu01"]


@pytest.mark.parametrize("blank", [" ", "\\t"], ids=["spaces", "tabs"])
def test_a_failure_with_a_long_run_of_blanks_keeps_nobody_waiting(site: Path, blank: str) -> None:
    """Ansible's main process prints it, and as YAML that takes the square of the run."""
    run_of_blanks = f"yes '{blank}' | head -n 200000 | tr -d '\\n'"
    says = f"""printf '{{"failed": true, "msg": "no\\\\n'\n{run_of_blanks}\necho 'x"}}'"""
    outcome = with_a_liar(site, says, time_limit_s=60.0)
    assert outcome.states == {"gpu01": HostState.FAILED, "gpu02": HostState.GOOD}


def test_a_failure_with_a_deep_answer_is_written_in_proportion_to_its_length(site: Path) -> None:
    """With a value a line, each stands after as many blanks as it is deep in the answer."""
    zeros = "yes 0, | head -n 20000 | tr -d '\\n'"
    says = f"""printf '{{"failed": true, "msg": "no", "x": {"[" * 100}'\n{zeros}\necho '0{"]" * 100}}}'"""
    outcome = with_a_liar(site, says)
    assert outcome.states == {"gpu01": HostState.FAILED, "gpu02": HostState.GOOD}
    assert (site / "run" / "ansible.log").stat().st_size < 500_000


@pytest.mark.drawn("nodes that say too much")
def test_facts_of_all_tasks_of_a_node_fill_no_memory_of_the_others(site: Path) -> None:
    """Ansible's main process keeps them all, and each task of each host starts as a copy of it."""
    liar = site / "liar"
    text = "head -c 1900000 /dev/zero | tr '\\0' x"
    liar.write_text(f"""#!/bin/sh\nprintf '{{"ansible_facts": {{"x%s": "' $$\n{text}\necho '"}}}}'\n""")
    liar.chmod(0o755)
    task = """\
        - name: Look
          ansible.builtin.ping:
          vars:
            ansible_python_interpreter: >-
              {{ site ~ '/liar' if inventory_hostname == 'gpu01' else ansible_playbook_python }}
        """
    outcome, events = run(request(site, textwrap.dedent(task) * 20, ("gpu01", "gpu02")))
    assert outcome.states == {"gpu01": HostState.FAILED, "gpu02": HostState.GOOD}
    assert "more than 256 MiB of Ansible's memory" in outcome.reasons["gpu01"]
    results = [event for event in events if isinstance(event, TaskResult) and event.host == "gpu01"]
    assert 10 < len(results) < 20


@pytest.mark.drawn("nodes that say too much")
def test_a_node_that_prints_megabytes_where_a_file_is_put_on_it_fails_as_soon(site: Path) -> None:
    """An asynchronous task is put there as a file, and the error repeats what the node printed."""
    liar = site / "ssh"
    liar.write_text(
        "#!/bin/sh\nfor last; do :; done\n"
        'case "$*$last" in *gpu01*"dd of="*)\n'
        "cat >/dev/null; head -c 20000000 /dev/zero | tr '\\0' x; exit 1 ;;\nesac\n"
        'exec sh -c "$last"\n'
    )
    liar.chmod(0o755)
    tasks = f"""\
        - name: Start a job
          ansible.builtin.command: {{argv: ["true"]}}
          async: 30
          poll: 1
          vars:
            ansible_connection: ssh
            ansible_ssh_executable: {liar}
            ansible_sftp_executable: /bin/false
            ansible_scp_executable: /bin/false
            ansible_host: "{{{{ inventory_hostname }}}}"
            ansible_remote_tmp: "{{{{ site }}}}/{{{{ inventory_hostname }}}}"
        """
    asked = request(site, tasks, ("gpu01", "gpu02"))
    outcome, _ = run(asked)
    assert outcome.states == {"gpu01": HostState.FAILED, "gpu02": HostState.GOOD}
    assert "and at most 6000000 are read" in outcome.reasons["gpu01"]
    assert asked.log.stat().st_size < 1_000_000


UNPACK = """\
    - name: Unpack
      clusterctl.cluster.harbor_installer:
        archive: "{{ site }}/none.tgz"
        sha256: "0"
        version: v2.15.2
        directory: "{{ site }}/opt"
"""
WAIT = """\
      async: 60
      poll: 0
      register: job
    - name: Wait for it
      ansible.builtin.async_status: {jid: "{{ job.ansible_job_id }}"}
      register: polled
      until: polled is finished
      retries: 100
      delay: 1
"""
TASK = """\
    - name: Require
      ansible.builtin.fail: {msg: No space left on device}
      vars: {clusterctl_failure_code: harbor.installer}
"""


@pytest.mark.parametrize("tasks", [UNPACK, UNPACK + '      loop: ["1"]\n', UNPACK + WAIT, TASK],
                         ids=["module", "loop", "job", "task"])  # fmt: skip
def test_the_code_of_a_failure_reaches_the_ledger(site: Path, tasks: str) -> None:
    outcome, events = run(request(site, textwrap.dedent(tasks), ("gpu01",)))
    assert outcome.states == {"gpu01": HostState.FAILED}
    failure = outcome.ledger.hosts["gpu01"].failure
    assert failure is not None
    assert failure.code == "harbor.installer"
    jobs = [event.code for event in events if isinstance(event, JobFinished)]
    assert jobs == (["harbor.installer"] if "async" in tasks else [])
    if jobs:
        from ansible_collections.clusterctl.cluster.plugins.modules import async_jobs

        (job,) = (event.job_id for event in events if isinstance(event, JobStarted))
        assert async_jobs.look([job], site / "async")[0]["code"] == "harbor.installer"


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 90
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_a_killed_controller_takes_its_playbook_along_and_the_jobs_outcome_is_found(site: Path) -> None:
    tasks = """\
        - name: Start a long job
          ansible.builtin.command:
            argv: [sh, -c, "while [ ! -e {{ site }}/go ]; do sleep 0.1; done; exit 4"]
          async: 60
          poll: 0
          register: job
          changed_when: false
        - name: Wait for it
          ansible.builtin.async_status: {jid: "{{ job.ansible_job_id }}"}
          register: polled
          until: polled is finished
          retries: 100
          delay: 1
        """
    wanted = request(site, tasks, ("gpu01",))
    program = f"""
from pathlib import Path
from clusterctl.engine.journal import Journal
from clusterctl.engine.playbook import PlaybookRequest, run_playbook
journal = Journal(Path({str(site / "run" / "journal.jsonl")!r}))
run_playbook(
    PlaybookRequest({str(wanted.playbook)!r}, Path({str(wanted.inventory)!r}), ("gpu01",),
                    Path({str(wanted.run_directory)!r}), extra_vars={dict(wanted.extra_vars)!r}),
    lambda event, ledger: journal.write(event))
"""
    controller = subprocess.Popen([sys.executable, "-c", program])
    journal = site / "run" / "journal.jsonl"
    wait_for(lambda: bool(open_jobs(journal)))
    below = playbook.process.descendants(controller.pid)
    controller.kill()
    controller.wait()
    wait_for(lambda: not any(alive(pid) for pid in below))
    (job,) = open_jobs(journal)

    from ansible_collections.clusterctl.cluster.plugins.modules import async_jobs

    first = async_jobs.look([job.job_id], site / "async")
    assert [one["state"] for one in first] == ["running"]
    (site / "go").touch()
    wait_for(lambda: async_jobs.look([job.job_id], site / "async")[0]["state"] != "running")
    (ended,) = async_jobs.look([job.job_id], site / "async")
    assert "non-zero return code" in ended.pop("msg")
    assert ended == {
        "id": job.job_id,
        "state": "finished",
        "failed": True,
        "changed": True,
        "rc": 4,
        "code": "",
    }


def test_no_setting_of_the_inventory_comes_before_our_checks_of_host_keys(site: Path) -> None:
    """Ansible's own ssh line, as a stand-in for ssh saw it."""
    fake, seen = site / "ssh", site / "seen"
    fake.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > "{seen}"\nexit 255\n')
    fake.chmod(0o755)
    (site / "hosts.yml").write_text(
        f"all: {{hosts: {{gpu01: {{ansible_ssh_executable: '{fake}', ansible_ssh_retries: 0,\n"
        "  ansible_ssh_common_args: '-F /x -o StrictHostKeyChecking=accept-new',\n"
        "  ansible_control_path: /elsewhere, ansible_control_path_dir: /elsewhere,\n"
        "  ansible_ssh_args: '-o UserKnownHostsFile=/elsewhere', ansible_host_key_checking: false}}}\n"
    )
    outcome, _ = run(request(site, "- ansible.builtin.ping:\n", ("gpu01",)))
    assert outcome.states == {"gpu01": HostState.UNREACHABLE}
    words = seen.read_text().splitlines()
    options = [following for word, following in pairwise(words) if word == "-o"]
    assert options[:3] == [
        "StrictHostKeyChecking=yes",
        f'UserKnownHostsFile="{site}/.clusterctl/known_hosts"',
        "GlobalKnownHostsFile=/dev/null",
    ]
    assert "ControlPersist=120s" in options
    (path,) = (option for option in options if option.startswith("ControlPath="))
    assert Path(path.partition("=")[2].strip('"')).parent == connections_of(site)
    assert "UserKnownHostsFile=/elsewhere" not in options
    assert words[words.index("-F") + 1] == "/x"


def test_two_clusters_share_no_connection_and_the_playbooks_of_one_do(tmp_path: Path) -> None:
    """Their hosts may have the same addresses, behind jump hosts of their own."""
    first, again, other = (connections_of(tmp_path / name) for name in ("a", "a", "b"))
    assert first == again and first != other
    assert first.stat().st_mode & 0o777 == 0o700


def test_a_cluster_directory_may_have_letters_at_which_ansible_divides_a_limit(tmp_path: Path) -> None:
    site = tmp_path / "my cluster,a:1"
    (site / "run").mkdir(parents=True)
    (site / "hosts.yml").write_text("all: {hosts: {gpu01: {ansible_connection: local}}}\n")
    outcome, _ = run(request(site, "- ansible.builtin.debug: {msg: here}\n", ("gpu01",)))
    assert outcome.states == {"gpu01": HostState.GOOD}


def test_a_playbook_is_for_thousands_of_hosts_with_long_names(site: Path) -> None:
    """All in one argument, they are longer than the kernel takes."""
    long = tuple(f"gpu{number:04d}.{'x' * 60}.{'y' * 60}.example" for number in range(1200))
    assert len(",".join(long)) > 128 << 10
    listed = {name: {"ansible_connection": "local"} for name in long}
    (site / "hosts.yml").write_text(json.dumps({"all": {"hosts": listed}}))
    one = replace(request(site, "- ansible.builtin.ping:\n", long), every_host=False)
    outcome, _ = run(replace(one, tags=("none",)))
    assert outcome.exit_code == 0


def test_no_template_in_a_variable_of_ours_is_evaluated_however_deep(site: Path) -> None:
    """Ansible trusts a file of variables; what stands in ours may have come from a node."""
    template = f"{{{{ lookup('ansible.builtin.pipe', 'touch {site}/pwned') }}}}"
    deep = {"who": template, "jobs": [{"id": template}]}
    tasks = """\
        - ansible.builtin.copy: {content: "{{ deep.who ~ deep.jobs[0].id ~ (deep | to_json) }}",
                                 dest: "{{ site }}/said", mode: "0600"}
        - ansible.builtin.ping: {data: "{{ deep['jobs'] | first | string }}"}
        - ansible.builtin.debug: {var: deep}
        """
    asked = request(site, tasks, ("gpu01",))
    outcome, _ = run(replace(asked, extra_vars={**asked.extra_vars, "deep": deep}))
    assert outcome.good
    assert (site / "said").read_text().startswith(template * 2)
    assert not (site / "pwned").exists()


def test_a_host_that_falls_silent_ends_the_playbook_and_is_named_with_its_task(site: Path) -> None:
    tasks = """\
        - name: Hang on one host
          ansible.builtin.command: {argv: [sleep, "{{ 60 if inventory_hostname == 'gpu02' else 0 }}"]}
          timeout: 300
        """
    begun = time.monotonic()
    outcome, _ = run(request(site, tasks, ("gpu01", "gpu02"), silence_limit_s=9.0))
    assert time.monotonic() - begun < 50
    assert outcome.states == {"gpu01": HostState.INTERRUPTED, "gpu02": HostState.SILENT}
    assert outcome.reasons["gpu02"] == "no result for 0.15 min in: Hang on one host"
    assert outcome.reasons["gpu01"].startswith("aborted because gpu02 stopped responding")
    assert not outcome.interrupted


HANG = """\
    - name: Hang on one host
      ansible.builtin.command: {argv: [sleep, "{{ 60 if inventory_hostname == 'gpu02' else 0 }}"]}
    """


def test_at_the_limit_of_the_playbook_those_are_named_that_did_not_finish(site: Path) -> None:
    outcome, _ = run(request(site, HANG, ("gpu01", "gpu02"), time_limit_s=12.0, task_limit_s=300))
    assert outcome.states == {"gpu01": HostState.INTERRUPTED, "gpu02": HostState.SILENT}
    assert outcome.reasons["gpu01"].startswith("aborted because gpu02 did not finish in time after: Hang")
    assert outcome.timed_out


def test_a_limit_of_tasks_ends_the_host_that_hangs_alone(site: Path) -> None:
    outcome, _ = run(request(site, HANG, ("gpu01", "gpu02"), task_limit_s=8))
    assert outcome.states == {"gpu01": HostState.GOOD, "gpu02": HostState.FAILED}
    assert "Timed out after 8" in outcome.reasons["gpu02"]


def test_a_host_whose_module_never_answers_fails_before_the_limit_of_silence(site: Path) -> None:
    tasks = "".join(f"- {{name: Step {step}, ansible.builtin.ping: }}\n" for step in range(3))
    asked = request(site, tasks, ("gpu01", "gpu02"), silence_limit_s=30.0)
    hangs = site / "hangs"
    hangs.write_text("#!/bin/sh\nexec sleep 300\n")
    hangs.chmod(0o755)
    interpreter = f"{{{{ '{hangs}' if inventory_hostname == 'gpu02' else ansible_playbook_python }}}}"
    book = Path(asked.playbook)
    variables = f'  vars: {{ansible_python_interpreter: "{interpreter}"}}\n'
    book.write_text(book.read_text().replace("  tasks:\n", f"{variables}  tasks:\n", 1))
    outcome, _ = run(asked)
    assert outcome.states == {"gpu01": HostState.GOOD, "gpu02": HostState.FAILED}
    assert "Timed out after 27" in outcome.reasons["gpu02"]
    assert outcome.ledger.hosts["gpu01"].ok == 3


def test_tasks_end_before_a_silent_host_ends_its_wave() -> None:
    assert [limit_of_tasks(limit) for limit in (20 * 60.0, 30.0, 0.6)] == [1080, 27, 1]


def test_each_look_at_a_job_is_a_sign_of_life_and_a_reboot_bounds_itself() -> None:
    now = 0.0
    watch, ledger = Watch(10.0, clock=lambda: now), playbook.Ledger(["gpu01", "gpu02"])

    def tell(event: Event) -> None:
        watch.heard(event)
        ledger.record(event)

    tell(TaskStarted(0.0, "t1", "Wait for the job", action="ansible.builtin.async_status"))
    tell(TaskStarted(0.0, "t2", "Reboot", action="ansible.builtin.reboot"))
    tell(HostStarted(0.0, "gpu01", "t1"))
    tell(HostStarted(0.0, "gpu02", "t2"))
    for now in (8.0, 16.0, 24.0):
        assert not watch.hopeless(ledger)
        tell(Retry(now, "gpu01", "t1", 1, 9))
    now = 33.0
    assert not watch.hopeless(ledger)
    now = 35.0
    assert watch.hopeless(ledger)
    assert watch.silent == {"gpu01": "Wait for the job"}


def test_an_inventory_that_is_executable_is_read_and_never_run(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts.yml"
    variables = {"hostvars": {"gpu01": {"ansible_host": "6.6.6.6"}}}
    (tmp_path / "other.json").write_text(json.dumps({"all": {"hosts": ["gpu01"]}, "_meta": variables}))
    shebang = f"#!/usr/bin/env -S sh -c 'touch {tmp_path}/ran; cat {tmp_path}/other.json'"
    hosts.write_text(f"{shebang}\nall: {{hosts: {{gpu01: {{ansible_host: 10.0.0.1}}}}}}\n")
    hosts.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-m", "ansible", "inventory", "-i", str(hosts), "--host", "gpu01"],
        env=playbook.playbook_environment(content_root()),
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert json.loads(done.stdout)["ansible_host"] == "10.0.0.1"
    assert not (tmp_path / "ran").exists()
