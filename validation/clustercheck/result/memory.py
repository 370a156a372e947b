"""What reading a result takes of memory: known before it is read, from its bytes."""

from __future__ import annotations

import re

from clustercheck.parse.document import MIN_BYTES_PER_VALUE, Marks, count_marks
from clustercheck.parse.reading import CannotReadError

# Measured (CPython 3.11, pydantic 2): an object takes 300 bytes, another value 72, a character 1 beside its
# byte in the file. A real result of 4,000 nodes of eight GPUs (860 MB) needs 5.5 GiB by that, and takes 4.4.
OBJECT_BYTES = 300
VALUE_BYTES = 72
BYTES_PER_BYTE = 2
MAX_MEMORY = 6 << 30
# Real results need 7 times their size.
FEW_MEMORY = 128 << 20
MEMORY_PER_BYTE = 10
# A member of an object takes up to 230 bytes where its name is its own; real results have 8 an object.
FEW_MEMBERS = 100_000
MEMBERS_PER_OBJECT = 16
# A text with one character beyond U+00FF takes 2 or 4 bytes for each that it has.
WIDE = re.compile(rb'(?:\\u(?!00)|[\xc4-\xf4])(?:[^"\\]++|\\.)*+', re.DOTALL)
WIDE_BYTES = 3
# Of one result, beyond what its size allows.
FEW_IN_ITEM = 40
FEW_MEMORY_OF_ITEM = 20_000
# How far to look back for the start of such a text; beyond, all since the last one counts.
MAX_QUOTES = 64
MAX_BACKSLASHES = 64


def require_bounded_memory(content: bytes) -> None:
    """Refuse JSON that takes far more memory than a real result, or a result of far too many nodes.

    Raises CannotReadError.
    """
    usual = FEW_MEMORY + MEMORY_PER_BYTE * len(content)
    marks = count_marks(content)
    if _is_beyond(content, marks, usual):  # perhaps by marks in its texts
        marks = count_marks(content, exactly=True)
    if _has_many_members(marks):
        raise CannotReadError("its objects have far more members than clusterctl writes")
    needed = memory_needed(content, marks, min(usual, MAX_MEMORY))
    if needed > usual:
        raise CannotReadError("it would take far more memory than what clusterctl writes")
    if needed > MAX_MEMORY:
        raise CannotReadError(
            f"it would take more than {MAX_MEMORY >> 30} GiB of memory, as that of more than 4,000 nodes"
        )


def is_dense(line: bytes) -> bool:
    """Whether one item of a result has so many values, members or objects for its size that a few hundred of
    them would have the whole refused."""
    return _is_dense(line, count_marks(line)) and _is_dense(line, count_marks(line, exactly=True))


def _is_dense(line: bytes, marks: Marks) -> bool:
    return (
        marks.values > FEW_IN_ITEM + len(line) // MIN_BYTES_PER_VALUE
        or marks.members > FEW_IN_ITEM + MEMBERS_PER_OBJECT * marks.objects
        or memory_needed(line, marks) > FEW_MEMORY_OF_ITEM + MEMORY_PER_BYTE * len(line)
    )


def memory_needed(content: bytes, marks: Marks, limit: int = MAX_MEMORY) -> int:
    """Bytes that reading it takes, about; where they are more than ``limit``, at least more than that."""
    values = marks.values - marks.objects
    needed = BYTES_PER_BYTE * len(content) + OBJECT_BYTES * marks.objects + VALUE_BYTES * values
    return needed + _of_wide_texts(content, limit - needed)


def _is_beyond(content: bytes, marks: Marks, usual: int) -> bool:
    limit = min(usual, MAX_MEMORY)
    return _has_many_members(marks) or memory_needed(content, marks, limit) > limit


def _has_many_members(marks: Marks) -> bool:
    return marks.members > FEW_MEMBERS + MEMBERS_PER_OBJECT * marks.objects


def _of_wide_texts(content: bytes, limit: int) -> int:
    """What texts with wide characters take beyond others, up to where it is more than ``limit``."""
    needed = done = 0
    if content.isascii() and b"\\u" not in content:
        return 0
    for found in WIDE.finditer(content):
        needed += WIDE_BYTES * (found.end() - _start_of_text(content, found.start(), done))
        done = found.end()
        if needed > limit:
            break
    return needed


def _start_of_text(content: bytes, position: int, done: int) -> int:
    """Where the text around a position starts, after ``done``; too early rather than too late."""
    for _ in range(MAX_QUOTES):
        position = content.rfind(b'"', done, position)
        if position < 0:
            return done
        before = content[max(done, position - MAX_BACKSLASHES) : position]
        backslashes = len(before) - len(before.rstrip(b"\\"))
        if backslashes == MAX_BACKSLASHES:
            return done
        if backslashes % 2 == 0:
            return position
    return done
