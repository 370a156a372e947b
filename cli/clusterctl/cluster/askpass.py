"""The program that ssh asks for a password: it answers an ssh of ours, and none that this one starts.

ssh hands its environment on to the ssh of ProxyJump or ProxyCommand: a jump host that asks for a password
would get the nodes' own.
"""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from clusterctl.cluster.user_path import user_path
from clusterctl.interpreter import python_command

TMP = Path("/tmp")  # noqa: S108 - for a directory with a name that nobody else can take
# The variable with the id of the process whose own ssh is answered.
PARENT = "CLUSTERCTL_SSH_PARENT"
# The variable with this program, for the callback clusterctl_events, which has Ansible's ssh ask it.
GATE = "CLUSTERCTL_ASKPASS"
# Ansible's own answer, which it gives under this name; it would look for its program in PATH.
OF_ANSIBLE = "import sys; sys.argv[0] = 'ansible'; import ansible.cli"
# From ssh upwards: ours, or through the sftp or scp that Ansible starts. What we start leads a session; what
# lost its parent does not, and may be a child of ours by that alone: of process 1, in a container.
SCRIPT = """#!/bin/sh
look_at() {{
    while read -r key value rest; do
        case $key in Name:) name=$value ;; PPid:) parent=$value ;; NSsid:) session=$value ;; esac
    done < "/proc/$1/status"
}}
started=$PPID
look_at "$started"
asking=$session
if [ "$parent" != "${parent}" ]; then
    started=$parent
    look_at "$started"
    case $name in sftp | scp) ;; *) exit 1 ;; esac
fi
[ "$parent" = "${parent}" ] && [ "$asking" = "$started" ] || exit 1
exec {answer}
"""


@contextmanager
def program(answer: str) -> Iterator[Path]:
    """The program, its owner's alone; ``answer``: words, quoted for a shell, that print the password."""
    with tempfile.TemporaryDirectory(prefix="cctl-", dir=_place(), ignore_cleanup_errors=True) as directory:
        written = Path(directory, "askpass")
        written.touch(mode=0o700)
        written.write_text(SCRIPT.format(parent=PARENT, answer=answer), encoding="utf-8")
        yield written


def program_for_ansible() -> AbstractContextManager[Path]:
    """The program that hands questions on to Ansible."""
    return program(f'{shlex.join(python_command("-c", OF_ANSIBLE))} "$@"')


def _place() -> Path:
    """A directory of which the system runs programs: hardened machines mount /tmp with noexec."""
    tried = (TMP, user_path(os.environ.get("XDG_RUNTIME_DIR") or TMP), user_path("~"))
    return next((place for place in tried if _runs_programs(place)), TMP)


def _runs_programs(place: Path) -> bool:
    with suppress(OSError):
        is_ours = place == TMP or place.stat().st_uid == os.geteuid()  # not after `su`, or `sudo -E`
        may_write = os.access(place, os.W_OK | os.X_OK)
        return is_ours and may_write and not os.statvfs(place).f_flag & os.ST_NOEXEC
    return False
