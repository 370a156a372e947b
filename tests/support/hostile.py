"""Texts as a hostile host or registry sends them, and what must not be left of them on a terminal."""

from __future__ import annotations

import re
import unicodedata

TEXTS = (
    "\x1b[2J\x1b[1;1H",
    "\x1b]0;title\x07\x1b]52;c;cm0gLXJm\x1b\\",
    "\x1b]8;;http://evil.example\x1b\\gpu01\x1b]8;;\x1b\\",
    "\x9b31mred\x9d0;title\x9c\x90q\x9c",
    "\x1bPq#0\x1b\\\x1b_G\x1b\\\x1b^x\x1b\\\x1bc\x1b(0",
    "over\rwritten\x08\x08\x7f\x00\x05\x0e\x0f",
    "\u202egnp.exe\u2066\u200f\u061c\u200b\ufeff",
    "line\u2028separated\u2029twice\x85thrice\x0b\x0c\x1c",
    "\ud800half\udfff\U000e0041tag",
    "[/red][bold]x[/] [link=http://evil.example]y[/link] :boom: [red",
    "\x1b",
    "\x1b]",
    "\n\nPASS on 8 nodes\n\x1b[32mPASS\x1b[0m",
)
# Styles as rich writes them: ours, where colours are on.
OUR_STYLES = re.compile(r"\x1b\[[0-9;]*m")


BIDIRECTIONAL = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def acting_characters(text: str, *, styled: bool = False) -> list[str]:
    """What in a text would act on a terminal; ``styled``: our own colours are on, and may be in it."""
    plain = OUR_STYLES.sub("", text) if styled else text
    return [one for one in plain if one not in "\n\t" and (_is_control(one) or one in BIDIRECTIONAL)]


def _is_control(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp")
