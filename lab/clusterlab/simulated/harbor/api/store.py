"""All that the stand-in knows: objects by kind and number, in one SQLite file that outlives a kill."""

from __future__ import annotations

import contextlib
import datetime
import json
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Object = dict[str, Any]

SCHEMA = """
create table if not exists object (kind text, id integer, body text not null, primary key (kind, id));
create index if not exists by_name on object (kind, json_extract(body, '$.name'));
create index if not exists by_project on object (kind, json_extract(body, '$.project_id'));
create table if not exists sequence (kind text primary key, last integer not null);
"""


class Store:
    """Objects are JSON. Numbers are never given twice, as with a database's sequence."""

    def __init__(self, path: Path | str) -> None:
        self._lock = threading.RLock()
        self._base = sqlite3.connect(str(path), check_same_thread=False, isolation_level=None)
        self._base.execute("pragma journal_mode=wal")
        self._base.execute("pragma synchronous=off")
        self._base.executescript(SCHEMA)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """All of a request, or nothing of it."""
        with self._lock:
            self._base.execute("begin immediate")
            try:
                yield
            except BaseException:
                self._base.execute("rollback")
                raise
            self._base.execute("commit")

    def add(self, kind: str, body: Object, *, key: str = "id") -> int:
        """A new object; ``key`` is the field that gets its number."""
        with self._lock:
            (number,) = self._base.execute(
                "insert into sequence values (?, 1) "
                "on conflict (kind) do update set last = last + 1 returning last",
                (kind,),
            ).fetchone()
            stamped = {**body, key: number, "creation_time": now(), "update_time": now()}
            self._base.execute("insert into object values (?, ?, ?)", (kind, number, json.dumps(stamped)))
            return int(number)

    def put(self, kind: str, number: int, body: Object) -> None:
        """Replace it, or write it under a number that is given."""
        with self._lock:
            self._base.execute(
                "insert or replace into object values (?, ?, ?)",
                (kind, number, json.dumps({**body, "update_time": now()})),
            )

    def get(self, kind: str, number: int) -> Object | None:
        """One, or None."""
        with self._lock:
            row = self._base.execute(
                "select body from object where kind = ? and id = ?", (kind, number)
            ).fetchone()
        return json.loads(row[0]) if row else None

    def all(self, kind: str) -> list[Object]:
        """All of a kind, by number."""
        with self._lock:
            rows = self._base.execute(
                "select body from object where kind = ? order by id", (kind,)
            ).fetchall()
        return [json.loads(row[0]) for row in rows]

    def named(self, kind: str, name: str) -> list[Object]:
        """Those of a kind that have this name, by number."""
        return self._where(kind, "$.name", name)

    def of_project(self, kind: str, number: int) -> list[Object]:
        """Those of a kind that belong to this project, by number."""
        return self._where(kind, "$.project_id", number)

    def _where(self, kind: str, path: str, value: str | int) -> list[Object]:
        # The path stands in the text, as it does in the index: a parameter would not use it.
        query = f"select body from object where kind = ? and json_extract(body, '{path}') = ? order by id"  # noqa: S608
        with self._lock:
            rows = self._base.execute(query, (kind, value)).fetchall()
        return [json.loads(row[0]) for row in rows]

    def remove(self, kind: str, number: int) -> None:
        """Forget it."""
        with self._lock:
            self._base.execute("delete from object where kind = ? and id = ?", (kind, number))

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            self._base.close()


def now() -> str:
    """The time as Harbor writes it."""
    text = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")
