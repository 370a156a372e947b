"""Runs programs as a user who owns nothing: ``python unprivileged.py FD COMMAND ...`` gives up root for it.

Shipped to the node with rank.py: stdlib only. For programs that listen to the network and believe whoever
connects, as Open MPI's: what strangers make them do must be worth nothing. The user has no groups, no
capabilities and no way to get any, and may neither read a rank's files nor signal or trace a rank.
"""

from __future__ import annotations

import ctypes
import errno
import importlib
import os
import pwd
import re
import resource
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clustercheck.jobs import loopback_only
else:  # on a node they are single files, not a package
    loopback_only = importlib.import_module(
        f"{__package__}.loopback_only" if __package__ else "loopback_only"
    )

# In none of the ranges that distributions, systemd, directories (SSSD) and containers take users from, and
# below 2^31, as some programs want it [systemd, Users, Groups, UIDs and GIDs]. Its group has the same number.
USER = 0x7FFF_B5D0
NAME = "clusterctl-mpi"
PASSWD, DEV = Path("/etc/passwd"), Path("/dev")
PLACE = Path("/tmp")  # noqa: S108 - only for names that nobody else can take; TMPDIR may be root's own
SHARED = 0o711  # root's alone to change; others may open what they know the name of
# What programs open of GPUs and RDMA adapters. The drivers make them with mode 0666.
DEVICES = (
    "nvidiactl", "nvidia-uvm", "nvidia[0-9]*", "nvidia-caps-imex-channels/channel*", "infiniband/uverbs*",
)  # fmt: skip
OPEN_TO_ALL = 0o006
CHECK_S, REMOVE_S = 30.0, 20.0
# Prints where a daemon is bound that wants all addresses, and what that user may not run.
CHECK = """import os, socket, sys
with socket.socket() as one:
    one.bind(("", 0))
    print(one.getsockname()[0])
for each in sys.argv[1:]:
    if not os.access(each, os.X_OK):
        print(each)
"""
# [linux/prctl.h]
SET_NO_NEW_PRIVS, GET_NO_NEW_PRIVS, DROP_FROM_BOUNDING_SET = 38, 39, 24
CAPABILITIES = 64  # as many as the kernel has room for


class Workplace:
    """Two directories: root's, in which that user can read, and its own in it, for all that it writes.

    Who runs as that user may write anything there: root opens no file of it through a link.
    """

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=f"{NAME}-", dir=PLACE))
        self.path.chmod(SHARED)
        self.home = self.path / "home"
        self.home.mkdir(mode=0o700)
        with suppress(PermissionError):  # who is not root runs nothing as another user, and is told so
            os.chown(self.home, USER, USER)

    def __enter__(self) -> Workplace:
        """Make no more than was made."""
        return self

    def __exit__(self, *_: object) -> None:
        """Remove all of it; unlike shutil.rmtree, rm does not call itself for each level."""
        with suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(["rm", "-rf", "--", str(self.path)], timeout=REMOVE_S, check=False)

    @property
    def environment(self) -> dict[str, str]:
        """What that user's programs need to know of it."""
        return {"HOME": str(self.home), "TMPDIR": str(self.home), "USER": NAME, "LOGNAME": NAME}

    def start(
        self,
        words: Sequence[str],
        *,
        env: Mapping[str, str] = os.environ,
        pass_fds: Sequence[int] = (),
        **options: Any,
    ) -> subprocess.Popen[bytes]:
        """Start a program as that user, in a session of its own; Open MPI's daemons hear this node alone."""
        options |= {"stdin": subprocess.DEVNULL, "start_new_session": True}
        ours, its = socket.socketpair()
        with ours:
            with its:
                process = subprocess.Popen(
                    make_command(words, its.fileno()), env={**env, **self.environment},
                    pass_fds=[*pass_fds, its.fileno()], **options,
                )  # fmt: skip
            asks = socket.recv_fds(ours, 1, 1)[1]
        if asks:  # else it has said why it does not run
            loopback_only.BindSupervisor(asks[0], USER)
        return process


def make_command(words: Sequence[str], told: int = -1) -> list[str]:
    """The command line that runs these words as that user.

    With ``told``, a socket, it has the kernel ask what the program may bind, and sends there who answers it.
    """
    return [sys.executable, str(Path(__file__).absolute()), str(told), *words]


def explain_unusable(programs: Sequence[str]) -> str:
    """Why that user cannot run these programs of Open MPI as root could; empty if it can."""
    because = _explain_devices() or _explain_programs(programs)
    return f"Open MPI cannot run without root here: {because}" if because else ""


def _explain_devices() -> str:
    closed = [f"{path} ({mode:04o})" for path, mode in _list_devices() if mode & OPEN_TO_ALL != OPEN_TO_ALL]
    if closed:
        return f"other users may not use {', '.join(closed)}"
    _, locked = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if locked != resource.RLIM_INFINITY and any(DEV.glob("infiniband/uverbs*")):
        return f"other users may lock no more than {locked} bytes of memory for RDMA adapters"
    return ""


def _explain_programs(programs: Sequence[str]) -> str:
    try:
        _add_user()
        with Workplace() as place:
            daemon = place.path / loopback_only.DAEMONS[0]
            daemon.symlink_to(sys.executable)
            process = place.start(
                [str(daemon), "-c", CHECK, *programs], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )
            try:
                lines = process.communicate(timeout=CHECK_S)[0].decode("utf-8", "replace").splitlines()
            finally:
                process.kill()
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if process.returncode != 0:
        return lines[-1] if lines else f"exit code {process.returncode}"
    address, *closed = lines
    if address != "127.0.0.1":
        return "the kernel lets its daemons listen to the network"
    return f"other users may not run {', '.join(closed)}" if closed else ""


def _list_devices() -> list[tuple[Path, int]]:
    found = []
    for pattern in DEVICES:
        for path in sorted(DEV.glob(pattern)):
            with suppress(OSError):
                found.append((path, path.stat().st_mode & 0o777))
    return found


def _add_user() -> None:
    """Name that user in this container: Open MPI runs for nobody without a name. Raises OSError."""
    with suppress(KeyError):
        pwd.getpwuid(USER)
        return
    mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    if {str(PASSWD), str(PASSWD.parent)} & {line.split(" ")[4] for line in mounts}:
        raise OSError(errno.EROFS, "it is not the container's own", str(PASSWD))
    with PASSWD.open("ab+") as stream:
        stream.seek(max(0, stream.tell() - 1))
        before = b"" if stream.read() in (b"", b"\n") else b"\n"
        stream.write(before + f"{NAME}:x:{USER}:{USER}::/:/bin/sh\n".encode())


def give_up_root() -> None:
    """Become that user for good. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    none = ctypes.c_ulong(0)
    libc.prctl(SET_NO_NEW_PRIVS, ctypes.c_ulong(1), none, none, none)
    for number in range(CAPABILITIES):  # the last ones do not exist; not all containers may drop any
        libc.prctl(DROP_FROM_BOUNDING_SET, ctypes.c_ulong(number), none, none, none)
    os.setgroups([])
    os.setresgid(USER, USER, USER)
    os.setresuid(USER, USER, USER)
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    kept = [int(each, 16) for each in re.findall(r"^Cap(?:Prm|Eff|Amb):\s*([0-9a-f]+)$", status, re.M)]
    is_user = os.getresuid() == os.getresgid() == (USER,) * 3 and not os.getgroups()
    has_settled = libc.prctl(GET_NO_NEW_PRIVS, none, none, none, none) == 1
    if not is_user or not has_settled or any(kept) or len(kept) < 2:
        raise PermissionError(errno.EPERM, "root's rights were not given up")


def main(argv: Sequence[str]) -> int:
    """Give up root, and become the program; returns only if that fails."""
    told, *words = argv
    os.umask(0o077)
    try:
        give_up_root()
        if int(told) >= 0:
            with socket.socket(fileno=int(told)) as tells:
                asks = loopback_only.install_filter()
                socket.send_fds(tells, [b"."], [asks])
                os.close(asks)
        os.chdir("/")  # a directory that all nodes have, which Open MPI wants; root's are closed
        # A proxy's password may be in them.
        environment = {
            name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")
        }
        os.execvpe(words[0], words, environment)  # noqa: S606 - the shell that is meant is in them
    except OSError as error:
        print(f"{words[0]}: {error}", file=sys.stderr)
    return 126


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
