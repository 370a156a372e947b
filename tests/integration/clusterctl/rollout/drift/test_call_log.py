"""What an apply writes down of the calls of a real playbook."""

from __future__ import annotations

import subprocess
import sys
from base64 import b64encode

from tests.unit.clusterctl.rollout.drift.drift_stage import PREFLIGHT
from tests.unit.clusterctl.rollout.drift.test_call_log import CANARY

from clusterctl.content import content_root
from clusterctl.rollout.drift import calls as drift_calls
from clusterctl.rollout.drift.call_log import read_call_log
from clusterctl.rollout.drift.calls import select_calls

ENCODED = b64encode(CANARY.encode()).decode()


def test_the_playbooks_own_calls_are_written_down(tmp_path, monkeypatch):
    """Real Ansible, on this machine: what it asked can be asked again, and no secret is in the file."""
    monkeypatch.setattr(drift_calls, "READING_COMMANDS", {"true"})
    book = tmp_path / "book.yml"
    book.write_text(
        "- hosts: all\n  gather_facts: false\n  tasks:\n"
        "    - clusterctl.cluster.service_files:\n"
        f"        files: [{{path: {tmp_path}/s, secret_base64: {ENCODED}, mode: '0600'}}]\n"
        "    - ansible.builtin.command: 'true'\n      changed_when: false\n"
        f"    - ansible.builtin.file: {{path: {tmp_path}/d, state: directory, mode: '0700'}}\n"
        "    - ansible.builtin.debug: {msg: hello}\n"
        f"    - ansible.builtin.set_fact: {{password: {CANARY}}}\n"
        "    - clusterctl.cluster.registry_image:\n"
        "        {source: x/y, destination: '127.0.0.1:9/y', digest: 'sha256:0',\n"
        f"        http_proxy: 'http://user:{CANARY}@127.0.0.1:9'}}\n"
        f"      async: 30\n      poll: 0\n      vars: {{ansible_async_dir: {tmp_path}/jobs}}\n"
    )
    here = f"{{ansible_connection: local, ansible_python_interpreter: {sys.executable}}}"
    (tmp_path / "hosts.yml").write_text(f"all: {{hosts: {{gpu01: {here}}}}}\n")
    from clusterctl.engine.playbook import playbook_environment

    calls = tmp_path / "calls.jsonl"
    done = subprocess.run(
        [sys.executable, "-m", "ansible", "playbook", "-i", str(tmp_path / "hosts.yml"), str(book)],
        cwd=content_root(),
        env=playbook_environment(content_root(), calls=calls),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert calls.stat().st_mode & 0o777 == 0o600
    assert CANARY not in calls.read_text()
    assert ENCODED not in calls.read_text()
    found = select_calls("gpu01", [PREFLIGHT, *read_call_log(calls).calls])[1:]
    assert [call.module for call in found] == ["service_files", "command", "file"]
    assert [call.check for call in found] == [True, False, True]
    assert isinstance(found[0].args["files"][0]["secret_base64"], dict)
    assert read_call_log(calls).is_complete({"gpu01": 6}), "as Ansible itself counts them"
    assert not read_call_log(calls).is_complete({"gpu01": 7})
