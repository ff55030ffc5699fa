"""The SQL that `migrate --show-sql` prints, run against the database it is for."""

import re
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from penstock.entrypoints.cli.app import main
from tests.support.workshop import BUGS, Ran

SQLITE = "sqlite:///penstock.db"
# all types of fields, both kinds of sources, and whatever adds to a table's statements
DATASETS = """
[datasets.regions]
key = "code"
[datasets.regions.fields]
code = { path = "Code", required = true }
zone = { path = "Zone", type = "int", required = true }
[datasets.regions.source]
url = "https://example.org/regions"
[datasets.regions.source.pages]
by = "single"

[datasets.poi]
key = ["id", "at"]
version = "changed"
filter = ["open"]
search = ["name"]
geo = ["lat", "lon"]
[datasets.poi.fields]
id = { path = "ID", type = "int", required = true }
at = { path = "At", type = "timestamp", required = true }
changed = { path = "Changed", type = "timestamp" }
since = { path = "Since", type = "date" }
open = { path = "Open", type = "bool" }
name = { path = "Name" }
lat = { path = "Lat", type = "float" }
lon = { path = "Lon", type = "float" }
raw = { path = "Raw", type = "json" }
note = { local = true }
[datasets.poi.source]
url = "https://example.org/poi"
[datasets.poi.source.pages]
by = "single"
[datasets.poi.shards.region]
kind = "list"
values = { dataset = "regions", field = "code" }
send = "region"

[datasets.shops]
key = "id"
[datasets.shops.fields]
id = { required = true }
region = { references = "regions.code" }
[datasets.shops.source]
type = "csv"
files = ["shops.csv"]

[datasets.parted]
key = "id"
partition = "zone"
[datasets.parted.fields]
id = { path = "ID", type = "int", required = true }
zone = { path = "Zone", required = true }
[datasets.parted.source]
url = "https://example.org/parted"
[datasets.parted.source.pages]
by = "single"
"""
NAMES = ["regions", "poi", "shops", "parted"]

Penstock = Callable[..., Ran]


@pytest.fixture
def penstock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Penstock:
    """Run a command as its process would."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Ran:
        monkeypatch.setattr(sys, "argv", ["penstock", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        out, err = capsys.readouterr()
        code = end.value.code
        assert not any(word in err for word in BUGS), err
        return Ran(code if isinstance(code, int) else 0, out, err)

    return run


def declare(folder: Path, database: str) -> None:
    head = f'[penstock]\ndatabase = "{database}"\n'
    (folder / "penstock.toml").write_text(head + DATASETS)


@pytest.mark.parametrize("name", NAMES)
def test_postgres_prepares_and_explains_each_printed_statement(
    penstock, tmp_path, postgres_database, name
):
    declare(tmp_path, postgres_database)
    assert penstock("migrate").code == 0
    found = penstock("migrate", "--show-sql", name, "--json").json["statements"]
    script = penstock("migrate", "--show-sql", name).out

    with psycopg.connect(postgres_database) as server:
        server.execute("set search_path = penstock, public")
        # it prints how its table and view are created, too
        server.execute(f"drop table {name} cascade".encode())
        for statement in found:
            server.execute(statement["sql"].encode())
        prepared = server.execute(
            "select name, cardinality(parameter_types) from pg_prepared_statements "
            "where from_sql"
        ).fetchall()
        server.execute("set plan_cache_mode = force_generic_plan")
        for each, count in prepared:
            given = f"({', '.join(['null'] * count)})" if count else ""
            plan = server.execute(f'explain execute "{each}"{given}'.encode())
            assert plan.fetchall()
        server.rollback()
        server.execute("deallocate all")
        server.execute("set search_path = penstock, public")
        server.execute(f"drop table {name} cascade".encode())
        server.execute(script.encode())
        server.rollback()

    explained = {
        each["name"]: len(each["parameters"])
        for each in found
        if not each["sql"].startswith("create ")
    }
    assert dict(prepared) == explained
    assert {"insert", "merge", "lock_records", "store_page"} <= set(explained)


@pytest.mark.parametrize("name", NAMES)
def test_sqlite_explains_each_printed_statement(penstock, tmp_path, name):
    declare(tmp_path, SQLITE)
    assert penstock("migrate").code == 0
    found = penstock("migrate", "--show-sql", name, "--json").json["statements"]

    with closing(sqlite3.connect(tmp_path / "penstock.db")) as database:
        database.execute(f"drop view {name}_live")
        database.execute(f"drop table {name}")
        for statement in found:
            sql = statement["sql"]
            if sql.startswith("create "):
                database.execute(sql)
                continue
            given = dict.fromkeys(re.findall(r":(\w+)", sql)) or unnamed(sql)
            assert database.execute(f"explain {sql}", given).fetchall()

    assert {"existing", "insert", "update", "lock_records"} <= {
        each["name"] for each in found
    }


def unnamed(sql: str) -> list[None]:
    return [None] * len(set(re.findall(r"\?\d", sql)) or re.findall(r"\?", sql))


def test_statements_are_printed_with_their_use_and_need_no_database(penstock, tmp_path):
    declare(tmp_path, "postgresql://nobody:s3cret@127.0.0.1:1/none")

    ran = penstock("migrate", "--show-sql", "regions")

    assert ran.code == 0
    assert "-- store_page\n-- Commit a page whose rows are expected" in ran.out
    assert "-- $1=import_id, $2=column_0, $3=column_1, $4=digests\n" in ran.out
    assert 'prepare "insert" (bigint, text[], bigint[], bytea[]) as\n' in ran.out
    assert all(each.startswith("-- ") for each in ran.out.split(";\n\n")[:-1])
    assert "s3cret" not in ran.out


def test_no_sqlite_file_is_created(penstock, tmp_path):
    declare(tmp_path, SQLITE)

    assert penstock("migrate", "--show-sql", "poi").code == 0
    assert not (tmp_path / "penstock.db").exists()


def test_statements_that_a_dataset_never_uses_are_not_printed(penstock, tmp_path):
    declare(tmp_path, SQLITE)

    def statements(name: str) -> set[str]:
        found = penstock("migrate", "--show-sql", name, "--json").json["statements"]
        return {each["name"] for each in found}

    files, http = statements("shops"), statements("poi")

    assert files - http >= {"set_rank", "supersede", "existing_values region"}
    assert http - files >= {"set_local_fields", "distinct_values region"}


def test_what_cannot_be_shown_is_refused(penstock, tmp_path):
    missing = penstock("migrate", "--show-sql", "poi")
    declare(tmp_path, SQLITE)
    unknown = penstock("migrate", "--show-sql", "pois")
    both = penstock("migrate", "--show-sql", "poi", "--check")

    assert (missing.code, unknown.code, both.code) == (2, 2, 2)
    assert "penstock.toml" in missing.err
    assert "dataset 'pois' is not declared in penstock.toml" in unknown.err
    assert "did you mean" in unknown.err
    assert "--check and --show-sql are two commands: use one" in both.err
