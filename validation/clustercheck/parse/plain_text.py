"""Text of nodes and registries without what would act on a terminal, and no longer than its reader allows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

# Sequences as a whole (CSI; OSC, DCS, SOS, PM and APC up to their terminator; two characters), ECMA-48.
_SEQUENCES = re.compile(
    "(?:\x1b\\[|\x9b)[0-?]{0,64}[ -/]{0,16}[@-~]"
    "|(?:\x1b[\\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c\n]{0,4096}(?:\x07|\x1b\\\\|\x9c)?"
    "|\x1b[ -/]{0,16}[0-~]"
)
# Then lone controls (C0 but tab and newline, DEL, C1), line separators, what changes the direction of text
# or is invisible (Unicode's Bidi_Control, zero-width characters, tags), and halves of surrogate pairs.
_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
# The same of ASCII, for a quick look: most texts have none.
_ASCII_CONTROLS = bytes(code for code in range(128) if _CONTROLS.match(chr(code)))


def plain_text(text: str) -> str:
    """The text without control sequences and control characters; newlines and tabs stay."""
    if text.isascii():
        if text.isprintable():
            return text
        raw = text.encode()
        if len(raw.translate(None, _ASCII_CONTROLS)) == len(raw):
            return text
    return _CONTROLS.sub("", _SEQUENCES.sub("", text))


def some_of(names: Sequence[str], most: int) -> str:
    """The first of these names in a sentence, and how many more there are."""
    named = ", ".join(names[:most])
    return f"{named} and {len(names) - most} more" if len(names) > most else named


def in_ranges(numbers: Iterable[int], between: str = ", ") -> str:
    """Numbers in order, those that count up as a range: ``0-3, 6``."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return between.join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def shortened(text: str, limit: int) -> str:
    """Plain text of at most ``limit`` characters: its start, and about how many were omitted after it."""
    if len(text) <= limit and text.isascii() and text.isprintable():
        return text
    return _start(plain_text(text[: 4 * limit]), max(0, len(text) - 4 * limit), limit)


def one_line(text: str, limit: int = 300) -> str:
    """Plain text on one line, runs of white space as one space, shortened."""
    start = " ".join(plain_text(text[: 8 * limit]).split())
    return _start(start, max(0, len(text) - 8 * limit), limit)


def _start(cleaned: str, unread: int, limit: int) -> str:
    """What fits of a text of which so many characters were not even read."""
    if not unread and len(cleaned) <= limit:
        return cleaned
    note = f" [... {max(0, len(cleaned) - limit) + unread} characters omitted]"
    # A second space here would be gone where a journal is read again.
    return cleaned[: max(0, limit - len(note))].rstrip(" ") + note
