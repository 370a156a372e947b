"""Hostile inputs from good ones: structure, numbers, texts, bytes and size; repeatable by seed."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

from tests.support import hostile
from tests.support.json_changes import places, value_at

DEEP = 900
LONG = 300_000
# What acts on a terminal or on rich's markup, leads elsewhere, or is no text at all.
TEXTS = (
    *hostile.TEXTS, "", "\x00", "-oProxyCommand=x", "../../etc",
    "/dev/zero", "${x}", "{{ 1/0 }}", "$(id)", "`id`", "<script>", "%s%n", "\ufeff", "A" * LONG,
    "a\n" * 5000,
    "169.254.169.254", "::ffff:127.0.0.1", "0x7f000001", "http://127.0.0.1:1/", "file:///etc/passwd",
    "sha256:0",
)  # fmt: skip
NUMBERS = (
    0,
    -1,
    1,
    2**31,
    2**63,
    2**64,
    10**9,
    10**30,
    -(10**30),
    0.1,
    1e308,
    float("inf"),
    float("-inf"),
    float("nan"),
)
SNIPPETS = (
    *(text.encode(errors="surrogatepass") for text in TEXTS),
    b"[" * DEEP, b"{\"a\":" * DEEP, b"\xff\xfe", b"\xc3\x28", b"- &a [*a]\n",
    b"!!python/object:os.system x\n", b",", b"}",
    b"NaN", b"1e999", b"9" * 5000, b"\x00" * 64,
)  # fmt: skip
WHOLE = (
    b"", b"[1]", b"{}", b"[]", b"null", b"true", b"0", b'""', b"\x00", b"\xff" * 100, b"[" * 100_000,
    b'{"a":' * 20_000,
    b"a" * LONG, b"\n" * LONG, b"a: &a [x]\nb: [*a, *a]\n", hostile.BOMB.encode(),
    b"{" + b'"a":1,' * 50_000 + b'"a":1}',
)  # fmt: skip
# Names of values that are too deep to be made by way of Python's own.
NESTS = {f"@{depth} deep": b'[{"a":' * depth + b"[]" + b"}]" * depth for depth in (3, 20, DEEP // 2)}


def mutant(seeds: list[bytes], chosen: random.Random) -> bytes:
    """One input: a seed with one to three changes, or now and then something else altogether."""
    if chosen.random() < 0.03:
        return chosen.choice(WHOLE)
    data = chosen.choice(seeds)
    for _ in range(chosen.choice((1, 1, 1, 2, 3))):
        data = _structural(data, chosen) if chosen.random() < 0.7 else _bytewise(data, chosen)
    return data


def _structural(data: bytes, chosen: random.Random) -> bytes:
    try:
        document = json.loads(data)
        found = list(places(document))
    except (ValueError, RecursionError, MemoryError):  # not JSON, or by now too deep or too large
        return _bytewise(data, chosen)
    if not found:
        return json.dumps(_other(chosen)).encode(errors="surrogatepass")
    place = chosen.choice(found)
    parent, key = value_at(document, place[:-1]), place[-1]
    match chosen.randrange(6):
        case 0:
            del parent[key]
        case 1 if isinstance(parent, dict):
            parent[chosen.choice(TEXTS)] = _other(chosen)
        case 2 if isinstance(parent, list):
            parent.extend([parent[key]] * chosen.choice((1, 10, 5000)))
        case 3 if isinstance(parent[key], str) and parent[key]:
            parent[key] = _stretched(parent[key], chosen)
        case _:
            parent[key] = _other(chosen)
    changed = json.dumps(document).encode(errors="surrogatepass")
    for name, nest in NESTS.items():
        changed = changed.replace(json.dumps(name).encode(), nest)
    return changed


def _stretched(text: str, chosen: random.Random) -> str:
    """With a part of it repeated: a pattern may take the square or the cube of a text's length."""
    at = chosen.randrange(len(text))
    part = text[at : at + chosen.choice((1, 2, 8, 30))]
    return text[:at] + part * (chosen.choice((1_000, 5_000, 16_000, LONG)) // len(part)) + text[at:]


def _other(chosen: random.Random) -> Any:
    """A value of any kind."""
    makers: tuple[Callable[[], Any], ...] = (
        lambda: chosen.choice(TEXTS),
        lambda: chosen.choice(NUMBERS),
        lambda: chosen.choice((None, True, False, [], {}, [1], [None], [[]], {"a": 1}, [{}], {"": {}})),
        lambda: chosen.choice(tuple(NESTS)),
        lambda: [chosen.choice(NUMBERS)] * chosen.choice((3, 5000)),
        lambda: {str(number): number for number in range(chosen.choice((3, 5000)))},
    )
    return chosen.choice(makers)()


def _bytewise(data: bytes, chosen: random.Random) -> bytes:  # noqa: PLR0911 - a table of changes
    at = chosen.randint(0, len(data))
    end = min(len(data), at + chosen.choice((1, 1, 4, 40, 400)))
    match chosen.randrange(7):
        case 0:
            return data[:at]
        case 1:
            return data[:at] + data[end:]
        case 2:
            return data[:at] + chosen.choice(SNIPPETS) + data[at:]
        case 3:
            return data[:at] + chosen.choice(SNIPPETS) + data[end:]
        case 4:
            return (
                data[:at] + bytes(chosen.randrange(256) for _ in range(chosen.choice((1, 2, 8)))) + data[end:]
            )
        case 5:
            return data[:end] + data[at:end] * chosen.choice((1, 3, 200)) + data[end:]
        case _:
            lines = data.splitlines(keepends=True)
            chosen.shuffle(lines)
            return b"".join(lines)
