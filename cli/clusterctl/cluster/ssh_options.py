"""Options of every ssh that we start: a host gets no more of the operator's machine than a login needs.

They come first on its line, where no ~/.ssh/config and no setting can undo them: ssh takes the first value.
"""

from __future__ import annotations

import getopt
import shlex
from collections.abc import Iterable

# No agent, no display, and no command here of the host's or a configuration's choosing.
CLOSED = ("ForwardAgent=no", "ForwardX11=no", "PermitLocalCommand=no")
# For commands alone: whatever else a configuration leads to the host or from there stays out.
ALONE = (*CLOSED, "ClearAllForwardings=yes", "RequestTTY=no")
# Settings whose words we hand to ssh, written as in a shell.
SHELL_WORDS = ("ansible_ssh_common_args", "ansible_ssh_extra_args")
# Of an address or a user, and of all words together: the kernel takes some 128 kB for one.
MAX_WORD, MAX_WORDS = 1024, 64_000
SHELL_WORDS_HINT = (
    "Write it as in a shell, each quote closed, and options of ssh_config(5) with -o; no host gets your "
    "agent, display or ticket, and clusterctl shares connections by itself."
)
# The flags of OpenSSH 9, those with a value with a colon; and those of them that hold wherever they stand.
_FLAGS = "1246AB:CD:E:F:GI:J:KL:MNO:P:Q:R:S:TVW:XYab:c:e:fgi:kl:m:no:p:qstvw:xy"
UNDOING = frozenset({"-A", "-X", "-Y", "-K", "-M", "-S"})


def is_word(text: str) -> bool:
    """Whether ssh can take it for an address or a user; what begins with a dash would be an option."""
    if len(text) > MAX_WORD or text.startswith("-"):
        return False
    return not any(one.isspace() or not one.isprintable() for one in text)


def split_words(text: str) -> list[str]:
    """A setting's words for ssh. Raises ValueError where they are none, or undo what no setting may."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ValueError(f"cannot be split into words: {error}") from None
    rest = words
    while rest:
        try:
            found, rest = getopt.getopt(rest, _FLAGS)
        except getopt.GetoptError:
            break  # ssh itself says so
        for flag in (flag for flag, _ in found if flag in UNDOING):
            raise ValueError(f"has {flag}, which no option undoes: remove it")
        rest = rest[1:]
    return words


def as_words(options: Iterable[str]) -> list[str]:
    """The options as arguments."""
    return [word for option in options for word in ("-o", option)]
