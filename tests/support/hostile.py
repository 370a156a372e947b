"""Texts as a hostile host or registry sends them, and what must not be left of them on a terminal."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping

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
# Twelve lines of YAML that unfold to a billion values.
BOMB = "site_a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"site_a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12)
)
# Styles as rich writes them: ours, where colours are on.
OUR_STYLES = re.compile(r"\x1b\[[0-9;]*m")
ACTING_CATEGORIES = frozenset(("Cc", "Cs", "Zl", "Zp"))
BIDIRECTIONAL = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
INVISIBLE = frozenset("\u200b\u200c\u200d\u2060\ufeff") | frozenset(map(chr, range(0xE0000, 0xE0080)))


def acting_characters(text: str, *, styled: bool = False) -> list[str]:
    """What in a text would act on a terminal; ``styled``: our own colours are on, and may be in it."""
    plain = OUR_STYLES.sub("", text) if styled else text
    if plain.isprintable():
        return []
    return [one for one in plain if one not in "\n\t" and _acts(one)]


def _acts(character: str) -> bool:
    if character in BIDIRECTIONAL or character in INVISIBLE:
        return True
    return unicodedata.category(character) in ACTING_CATEGORIES


def texts_of(value: object) -> Iterator[str]:
    """Every text in a document, names included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from texts_of(key)
            yield from texts_of(each)
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from texts_of(each)


def require_plain(*values: object, styled: bool = False) -> None:
    """Fail where a text, or one in a document, would act on a terminal."""
    for text in texts_of(values):
        acting = acting_characters(text, styled=styled)
        assert not acting, f"{sorted(set(map(ascii, acting)))} in {text[:80]!a} would act on a terminal"
