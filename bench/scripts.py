"""The scripts that an import of a file is held against: copy, then merge.

They copy into a table beside, and merge from there what differs, in the order of the
key. They check no row, and know neither bad ones nor where an import was interrupted.
"""

import contextlib
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import psycopg

from bench.stage import PENSTOCK
from penstock.adapters.postgres.table_sql import indexes
from penstock.settings import load

COLUMNS = 'uid text collate "C", name text, phone text, region text, points bigint'
SETS = ", ".join(
    f"{name} = excluded.{name}" for name in ("name", "phone", "region", "points")
)


@dataclass(frozen=True, kw_only=True)
class Target:
    """A table to merge into, and how."""

    table: str
    digest: str
    # our own columns that every row fills
    more: str = ""
    values: str = ""

    @property
    def merge(self):
        return (
            f"insert into {self.table} as kept "
            f"(uid, name, phone, region, points, {self.digest}{self.more}) "
            f"select *, decode(md5(incoming::text), 'hex'){self.values} "
            "from incoming order by uid "
            f"on conflict (uid) do update set {SETS}, "
            f"{self.digest} = excluded.{self.digest} "
            f"where kept.{self.digest} <> excluded.{self.digest}"
        )


# the very table that an import writes to, and one as anybody would make it
SAME = Target(
    table="penstock.retailers",
    digest="_digest",
    more=", _import, _created_at, _updated_at, _rank",
    values=", 1, now(), now(), 1",
)
BARE = Target(table="retailers", digest="digest")


def create(target, database, folder):
    """Create a table with a key and the indexes of the same filters."""
    if target is SAME:
        subprocess.run([*PENSTOCK, "migrate"], cwd=folder, check=True)
        dataset = load(folder / "penstock.toml", {}).dataset("retailers")
        built = [f'"{name}" on {what}' for name, what in indexes(dataset).items()]
    else:
        built = [f"{name} on retailers ({name})" for name in ("region", "points")]
    with psycopg.connect(database) as connection:
        if target is BARE:
            connection.execute(
                f"create table retailers ({COLUMNS}, digest bytea, primary key (uid))"
            )
        connection.execute("set search_path to penstock, public")
        for index in built:
            connection.execute(f"create index if not exists {index}")


def run_psql(target, database, path):
    """Return the seconds that psql takes."""
    steps = [
        f"create temp table incoming ({COLUMNS})",
        f"\\copy incoming from '{path}' with (format csv, header)",
        target.merge,
        f"analyze {target.table}",
    ]
    chosen = [option for step in steps for option in ("-c", step)]
    return seconds(["psql", "-q", "-v", "ON_ERROR_STOP=1", database, *chosen])


PGLOADER = """\
load csv
    from '{path}' with encoding utf-8 (uid, name, phone, region, points)
    into {database}
    target table incoming (uid, name, phone, region, points)
    with skip header = 1, fields terminated by ',', fields optionally enclosed by '"',
        fields escaped by double-quote
    before load do
        $$ drop table if exists incoming; $$,
        $$ create table incoming ({columns}); $$
    after load do
        $$ {merge}; $$,
        $$ analyze {table}; $$;
"""


def has_pgloader():
    return shutil.which("pgloader") is not None


def run_pgloader(target, database, path):
    """Return the seconds that pgloader takes: its copy uses several threads."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as name:
        script = Path(name, "retailers.load")
        script.write_text(
            PGLOADER.format(
                path=path,
                database=database,
                columns=COLUMNS,
                merge=target.merge,
                table=target.table,
            ),
            encoding="utf-8",
        )
        command = ["pgloader", "--quiet", "--root-dir", name, script]
        return seconds(command, stdout=subprocess.DEVNULL)


def seconds(command, **options):
    began = time.monotonic()
    with contextlib.suppress(FileNotFoundError):
        subprocess.run(command, check=True, **options)
        return time.monotonic() - began
    raise SystemExit(f"{command[0]} is missing: install it to run this benchmark")
