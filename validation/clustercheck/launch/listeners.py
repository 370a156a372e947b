"""How many nodes this machine can listen to at a time while their jobs run."""

from __future__ import annotations

import contextlib
import resource

# Of a program that waits on a node: both ends of its three pipes, and of the one by which it is started.
FILES_PER_LISTENER = 8
# For what ends jobs, 64 programs at a time, and all else: up to 64 nodes fit into the usual 1,024.
OTHER_FILES = 512


def reserve_listeners(count: int, *, at_least: int) -> int:
    """``count``, or fewer where this process may not open enough files for them.

    Its own limit (usually 1,024) is raised for that as far as needed and allowed.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = OTHER_FILES + count * FILES_PER_LISTENER
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return count
    raised = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    with contextlib.suppress(ValueError, OSError):  # a system may allow less than the hard limit
        resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
        soft = raised
    return min(count, max(at_least, (soft - OTHER_FILES) // FILES_PER_LISTENER))
