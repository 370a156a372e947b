"""Keeps Open MPI's daemons from listening to the network: they listen at the loopback address alone.

They listen at all of a node's addresses, whatever their settings say, and believe whoever connects. So the
kernel asks (seccomp) before a program binds a socket, and the rank answers: a daemon gets a socket of the
rank's that is bound to the loopback address, and any other program binds what it likes.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import platform
import re
import select
import socket
import struct
import threading
from contextlib import closing, suppress
from pathlib import Path

# Of Open MPI 4 and 5: a name that is not among them is a program that is measured.
DAEMONS = ("mpirun", "mpiexec", "orterun", "orted", "prterun", "prte", "prted")
# By machine: its number in a filter, and those of its system calls bind and seccomp.
MACHINES = {"x86_64": (0xC000003E, 49, 317), "aarch64": (0xC00000B7, 200, 277)}
# By the size of an address in bytes: sockets whose addresses are those of hosts.
FAMILIES = {16: (socket.AF_INET, "127.0.0.1"), 28: (socket.AF_INET6, "::1")}
# [linux/seccomp.h, linux/bpf_common.h]
SET_MODE_FILTER, NEW_LISTENER, CONTINUE, SET_FD = 1, 8, 1, 1
ALLOW, ASK = 0x7FFF0000, 0x7FC00000
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
NUMBER_AT, MACHINE_AT, SIZE_AT = 0, 4, 32  # in what a filter sees of a call
RECEIVE, SEND, ADD_FD = 0xC0502100, 0xC0182101, 0x40182103
ASKED = struct.Struct("=QII iIQ6Q")  # id, process, flags; call, machine, place, arguments
ANSWER, ADDED = struct.Struct("=QqiI"), struct.Struct("=QIIII")


def install_filter() -> int:
    """Have the kernel ask before this process or a child of it binds; returns where. Raises OSError."""
    if platform.machine() not in MACHINES:
        raise OSError(errno.ENOSYS, "no filter is known for this machine", platform.machine())
    machine, bind, seccomp = MACHINES[platform.machine()]
    first, second = FAMILIES
    steps = [
        (LOAD, 0, 0, MACHINE_AT), (JUMP_IF_EQUAL, 0, 6, machine),
        (LOAD, 0, 0, NUMBER_AT), (JUMP_IF_EQUAL, 0, 4, bind),
        (LOAD, 0, 0, SIZE_AT), (JUMP_IF_EQUAL, 1, 0, first), (JUMP_IF_EQUAL, 0, 1, second),
        (RETURN, 0, 0, ASK), (RETURN, 0, 0, ALLOW),
    ]  # fmt: skip
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in steps))
    program = ctypes.create_string_buffer(struct.pack("@HP", len(steps), ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    asks = libc.syscall(
        ctypes.c_long(seccomp), ctypes.c_ulong(SET_MODE_FILTER), ctypes.c_ulong(NEW_LISTENER), program
    )
    if asks < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), "seccomp")
    return int(asks)


class BindSupervisor:
    """Answers the kernel for a user's processes under a filter until the last of them has ended."""

    def __init__(self, asks: int, user: int) -> None:
        self._asks, self._user = asks, user
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        poll = select.poll()
        poll.register(self._asks, select.POLLIN)
        try:
            while not any(events & select.POLLHUP for _, events in poll.poll()):
                with suppress(OSError):  # who asked has ended
                    self._answer()
        finally:
            os.close(self._asks)

    def _answer(self) -> None:
        asked = bytearray(ASKED.size)
        fcntl.ioctl(self._asks, RECEIVE, asked)
        number, process, _, _, _, _, descriptor, _, size, *_ = ASKED.unpack(asked)
        if not is_daemon(process):
            answer = ANSWER.pack(number, 0, 0, CONTINUE)
        else:
            try:
                self._replace(number, descriptor, size)
                answer = ANSWER.pack(number, 0, 0, 0)
            except OSError as error:
                answer = ANSWER.pack(number, 0, -(error.errno or errno.EACCES), 0)
        fcntl.ioctl(self._asks, SEND, answer)

    def _replace(self, number: int, descriptor: int, size: int) -> None:
        """Put a socket that is bound to the loopback address in the place of who asked's. Raises OSError."""
        family, address = FAMILIES[size]
        with closing(socket.socket(family, socket.SOCK_STREAM)) as bound:
            os.fchown(bound.fileno(), self._user, self._user)
            bound.bind((address, 0))
            bound.setblocking(False)  # as daemons set theirs, some before they bind
            added = ADDED.pack(number, SET_FD, bound.fileno(), descriptor, os.O_CLOEXEC)
            fcntl.ioctl(self._asks, ADD_FD, added)


def is_daemon(process: int) -> bool:
    """Whether the program of a thread is one of Open MPI's daemons."""
    with suppress(OSError):
        status = Path(f"/proc/{process}/status").read_text(encoding="utf-8", errors="replace")
        leader = re.search(r"^Tgid:\s*(\d+)$", status, re.M)
        if leader:
            name = Path(f"/proc/{leader[1]}/comm").read_text(encoding="utf-8", errors="replace").strip()
            return name.partition(".")[0] in DAEMONS  # mpirun.openmpi
    return True  # it has ended, or is none that can be known
