"""Simulated by clusterlab: pg_dump and psql over the file that the stand-in's API keeps its state in."""

from __future__ import annotations

import sqlite3
import sys
from pathlib import Path

STATE = "/database/state.sqlite"
END = "-- PostgreSQL database dump complete"
QUIET = ("BEGIN TRANSACTION;", "COMMIT;")


def dump() -> None:
    """As text, with the words that a whole dump of PostgreSQL starts and ends with."""
    if not Path(STATE).is_file():
        sys.exit('pg_dump: error: connection to server failed: FATAL: database "registry" does not exist')
    base = sqlite3.connect(STATE)
    out = ["--\n-- PostgreSQL database dump\n--\n"]
    if "--clean" in sys.argv:
        tables = base.execute(
            "select name from sqlite_master where type = 'table' and name not like 'sqlite_%'"
        )
        out += [f"DROP TABLE IF EXISTS {name};" for (name,) in tables.fetchall()]
    out += [line for line in base.iterdump() if line not in QUIET]
    sys.stdout.write("\n".join([*out, f"\n--\n{END}\n--\n"]))


def load() -> None:
    """What comes, as psql with ON_ERROR_STOP: what is not committed when the input ends is undone.

    With -1 it is all of one transaction, with -c nothing but an answer, as from a database that is up.
    """
    if "-c" in sys.argv[1:]:
        return
    text = sys.stdin.read()
    base = sqlite3.connect(STATE, isolation_level=None)
    try:
        base.executescript(f"BEGIN;\n{text}\nCOMMIT;" if "-1" in sys.argv[1:] else text)
    except sqlite3.Error as error:
        if base.in_transaction:
            base.execute("ROLLBACK")
        sys.exit(f"ERROR:  {error}")
    base.close()
