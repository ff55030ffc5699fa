"""How the audit of an import grows with its shards: ten times as many, in one run."""

import contextlib
import sqlite3
import tempfile
from dataclasses import dataclass
from pathlib import Path

import psycopg

from bench.imports import timed
from bench.server import server
from bench.stage import PENSTOCK, verdict


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How many shards are audited first, and then."""

    few: int
    many: int


FULL = Sizes(few=10_000, many=100_000)
SMALL = Sizes(few=10, many=100)
# times as long, beside the start of the command
GOAL, SECOND = 5.0, 1.0

CONFIG = """\
[penstock]
database = "{database}"

[datasets.points]
key = "id"
fields = {{ id = {{ path = "ID", type = "int" }} }}
shards = {{ ids = {{ kind = "range", from = 0, until = {shards}, step = 1 }} }}

[datasets.points.source]
url = "http://127.0.0.1:1/points"
pages = {{ by = "keyset", send = "after", field = "ID", \
size = {{ send = "most", value = 10 }} }}
"""
# what workers leave behind who found an empty page in each shard
WORKED = (
    """update penstock_job set status = 'done', proof = 'end_of_range', page_seq = 1
    where kind = 'shard'""",
    """insert into penstock_page (job_id, page_seq, fence, seen, committed_at)
    select id, 1, 1, 0, created_at from penstock_job where kind = 'shard'""",
    "update penstock_import set status = 'done', proven = true",
)


def audit(database, shards, connect, counted):
    """Return how long an audit of so many shards takes."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as name:
        place = database or f"sqlite:///{name}/bench.db"
        text = CONFIG.format(database=place, shards=shards)
        Path(name, "penstock.toml").write_text(text, encoding="utf-8")
        timed([*PENSTOCK, "migrate"], cwd=name)
        timed([*PENSTOCK, "plan", "points"], cwd=name)
        with contextlib.closing(connect(name)) as connection:
            for statement in (*WORKED, counted.format(shards=shards)):
                connection.execute(statement)
            connection.commit()
        return timed([*PENSTOCK, "audit", "points"], cwd=name)[0]


def on_postgres(postgres, shards):
    with postgres.database() as database:
        return audit(
            database,
            shards,
            lambda _: psycopg.connect(database, options="-c search_path=penstock"),
            "insert into penstock_import_count (import_id, slot, pages) "
            "values (1, 0, {shards})",
        )


def on_sqlite(shards):
    return audit(
        None,
        shards,
        lambda folder: sqlite3.connect(f"{folder}/bench.db"),
        "update penstock_import set pages = {shards}",
    )


def judge(name, sizes, few, many):
    return verdict(
        f"audit of {sizes.many:,} shards, {name}",
        holds=many <= GOAL * few + SECOND,
        message=f"{many:.1f} s; {sizes.few:,} shards {few:.1f} s: "
        f"{many / few:.1f} times (at most {GOAL:g}, and a second)",
    )


def measure(*, small=False):
    sizes = SMALL if small else FULL
    counts = (sizes.few, sizes.many)
    with server(small=small) as postgres:
        times = [on_postgres(postgres, shards) for shards in counts]
    held = [judge("PostgreSQL", sizes, *times)]
    held.append(judge("SQLite", sizes, *map(on_sqlite, counts)))
    return all(held)
