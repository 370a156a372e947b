"""The program that ssh asks for a password: it answers an ssh of ours, and none that this one starts.

ssh hands its environment on to the ssh of ProxyJump or ProxyCommand: a jump host that asks for a password
would get the nodes' own.
"""

from __future__ import annotations

import shlex
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from clusterctl.interpreter import python_command

# The variable with the id of the process whose own ssh is answered.
PARENT = "CLUSTERCTL_SSH_PARENT"
# The variable with this program, for the callback clusterctl_events, which has Ansible's ssh ask it.
GATE = "CLUSTERCTL_ASKPASS"
# Ansible's own answer, which it gives under this name; it would look for its program in PATH.
OF_ANSIBLE = "import sys; sys.argv[0] = 'ansible'; import ansible.cli"
# From ssh upwards: ours, or through the sftp or scp that Ansible starts.
SCRIPT = """#!/bin/sh
parent_of() {{
    while read -r key value; do
        case $key in Name:) name=$value ;; PPid:) parent=$value && return ;; esac
    done < "/proc/$1/status"
}}
parent_of "$PPID"
if [ "$parent" != "${parent}" ]; then
    parent_of "$parent"
    case $name in sftp | scp) ;; *) exit 1 ;; esac
    [ "$parent" = "${parent}" ] || exit 1
fi
exec {answer}
"""


def write_program(program: Path, answer: str) -> None:
    """Write it, its owner's alone; ``answer`` are the words, quoted for a shell, that print the password."""
    program.touch(mode=0o700)
    program.write_text(SCRIPT.format(parent=PARENT, answer=answer), encoding="utf-8")


@contextmanager
def gate_for_ansible() -> Iterator[Path]:
    """A program that hands questions on to Ansible."""
    directory = Path(tempfile.mkdtemp(prefix="cctl-", dir="/tmp"))
    try:
        answer = shlex.join(python_command("-c", OF_ANSIBLE))
        write_program(directory / "askpass", f'{answer} "$@"')
        yield directory / "askpass"
    finally:
        shutil.rmtree(directory, ignore_errors=True)
