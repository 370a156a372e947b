"""A job that a role starts and roles/background_job awaits, with real ansible-playbook processes."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from clusterctl.engine.events import Event, JobFinished, JobStarted
from clusterctl.engine.journal import Journal, open_jobs
from clusterctl.engine.ledger import HostState
from clusterctl.engine.playbook import PlaybookOutcome, PlaybookRequest, run_playbook

ROLE = """\
- name: Ensure the work is done
  ansible.builtin.command: &work
    argv: [sh, -c, "test {{ inventory_hostname }} = gpu01 && touch {{ site }}/done-{{ inventory_hostname }}"]
    creates: "{{ site }}/done-{{ inventory_hostname }}"
  register: __sample_work
  check_mode: true
  changed_when: ansible_check_mode and __sample_work.changed

- name: Do the work
  when: not ansible_check_mode and 'would have run' in __sample_work.msg | default('')
  block:
    - name: Start the work
      ansible.builtin.command: *work
      async: 60
      poll: 0
      register: __sample_job
      changed_when: false

    - name: Wait for the work
      ansible.builtin.include_tasks: ../../background_job/tasks/main.yml
      vars:
        _background_job:
          id: "{{ __sample_job.ansible_job_id }}"
          name: Ensure the work is done
          timeout_s: 60
          poll_s: 1
"""
TITLE = "sample: Ensure the work is done"


@pytest.fixture
def site(local_site: Path, repository: Path) -> Path:
    """The directory, with a role that lies next to background_job, as those of the collection do."""
    (local_site / "run").mkdir()
    (local_site / "roles/sample/tasks").mkdir(parents=True)
    (local_site / "roles/sample/tasks/main.yml").write_text(ROLE, encoding="utf-8")
    (local_site / "roles/background_job").symlink_to(repository / "roles/background_job")
    book = "- hosts: all\n  gather_facts: false\n  roles: [sample]\n"
    (local_site / "book.yml").write_text(textwrap.dedent(book), encoding="utf-8")
    return local_site


def played(site: Path, *, check: bool) -> tuple[PlaybookOutcome, list[Event]]:
    variables = {"ansible_async_dir": str(site / "async"), "site": str(site)}
    hosts = ("gpu01", "gpu02")
    request = PlaybookRequest(
        site / "book.yml", site / "hosts.yml", hosts, site / "run", extra_vars=variables, check=check
    )
    events: list[Event] = []
    with Journal(site / "run/journal.jsonl") as journal:

        def take(event: Event, _ledger: object) -> None:
            journal.write(event)
            events.append(event)

        return run_playbook(request, take), events


def test_a_plan_and_an_apply_report_a_job_as_the_same_change_of_the_role(site: Path) -> None:
    planned, events = played(site, check=True)
    assert {name: host.changes for name, host in planned.ledger.hosts.items()} == {
        "gpu01": [TITLE],
        "gpu02": [TITLE],
    }
    assert [event for event in events if isinstance(event, JobStarted)] == []
    assert not (site / "async").exists()

    applied, events = played(site, check=False)
    assert applied.states == {"gpu01": HostState.GOOD, "gpu02": HostState.FAILED}
    assert applied.ledger.hosts["gpu01"].changes == [TITLE]
    failure = applied.ledger.hosts["gpu02"].failure
    assert failure is not None
    assert failure.task == TITLE
    jobs = {event.host: event.job_id for event in events if isinstance(event, JobStarted)}
    assert set(jobs) == {"gpu01", "gpu02"}
    assert {event.host: event.failed for event in events if isinstance(event, JobFinished)} == {
        "gpu01": False,
        "gpu02": True,
    }
    assert open_jobs(site / "run/journal.jsonl") == []
    assert [path.name for path in (site / "async").iterdir()] == [jobs["gpu02"]], "of the failed job"

    (site / "done-gpu02").touch()
    again, events = played(site, check=False)
    assert again.good
    assert [host.changes for host in again.ledger.hosts.values()] == [[], []]
    assert [event for event in events if isinstance(event, JobStarted)] == []
