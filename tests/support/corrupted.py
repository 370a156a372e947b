"""What disks, editors and other users make of a file: each damage with its name."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml
from tests.support.hostile import BOMB

Damage = Callable[[Path], object]


def _written(content: str | bytes) -> Damage:
    return lambda path: path.write_bytes(content if isinstance(content, bytes) else content.encode())


def _replaced(make: Damage) -> Damage:
    def replace(path: Path) -> None:
        path.unlink()
        make(path)

    return replace


def _of_other_types(value: Any) -> Any:
    """The same document with each of its values of another type."""
    if isinstance(value, dict):
        return {key: _of_other_types(part) for key, part in value.items()} or []
    if isinstance(value, list):
        return {"0": _of_other_types(value[0])} if value else {}
    return [value] if isinstance(value, str) else "text"


def _retyped(path: Path) -> None:
    text = path.read_text()
    lines = text.splitlines()
    try:
        changed = "\n".join(json.dumps(_of_other_types(json.loads(line))) for line in lines)
    except ValueError:
        changed = yaml.safe_dump(_of_other_types(yaml.safe_load(text)))
    path.write_text(changed + "\n")


DAMAGE: Mapping[str, Damage] = {
    "empty": _written(""),
    "binary": _written(bytes(range(256)) * 10),
    "cut short": lambda path: os.truncate(path, max(1, path.stat().st_size // 2)),
    "a list": _written("[]\n"),
    "a mapping": _written("{}\n"),
    "null": _written("null\n"),
    "other types": _retyped,
    "nested lists": _written("[" * 1_000_000),
    "nested mappings": _written('{"a":' * 200_000),
    "aliases": _written(BOMB),
    "huge": lambda path: os.truncate(path, 1 << 41),
    "a FIFO": _replaced(os.mkfifo),
    "a directory": _replaced(Path.mkdir),
    "a link to nothing": _replaced(lambda path: path.symlink_to("nowhere")),
    "a link to itself": _replaced(lambda path: path.symlink_to(path.name)),
    "a device": _replaced(lambda path: path.symlink_to("/dev/zero")),
}


def restore(path: Path, content: bytes, mode: int) -> None:
    """Have the file as it was before its damage."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.write_bytes(content)
    path.chmod(mode)
