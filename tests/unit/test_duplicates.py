"""Which rows of files lost to another of their key, found in the files alone."""

import threading
from pathlib import Path

import pytest

from penstock.adapters.csv.file_scanner import FileScanner
from penstock.adapters.csv.limits import FileLimits
from penstock.adapters.csv.source import CsvSourceReader
from penstock.adapters.sqlite.database import SqliteDatabase
from penstock.domain.dataset import Dataset, FieldType
from penstock.domain.import_scope import ImportScope
from penstock.domain.jobs import Mode
from penstock.domain.sharding.axes import FileAxis
from penstock.domain.source import CsvSource
from penstock.errors import Interrupted
from penstock.flow.find_duplicates import Duplicate, FindDuplicates
from penstock.flow.plan import Plan
from tests.support.builders import (
    claim_plan,
    dataset,
    int_field,
    sqlite_stores,
    text_field,
    typed_field,
)

# so small that the rows of a key stand on different pages
SMALL = FileLimits(rows=2)


def shops(folder: Path, **declared) -> Dataset:
    return dataset(
        "shops",
        **{
            "fields": (int_field("id", min=0), text_field("name")),
            "source": CsvSource(files=("*.csv",), folder=str(folder)),
            "axes": (FileAxis(),),
            **declared,
        },
    )


def find(of: Dataset, folder: Path, *, halted: bool = False) -> list[Duplicate]:
    database = SqliteDatabase(folder / "penstock.db")
    stores = sqlite_stores(database)
    stores.schema.migrate()
    stores.schema.ensure_table(of)
    plan = Plan(
        datasets={of.name: of},
        stores=stores,
        claim=claim_plan(stores),
        survey=FileScanner(lambda _: None),
        emit=lambda _: None,
    )
    planned = plan(of, ImportScope(mode=Mode.FULL), declaration="d").planned
    halt = threading.Event()
    if halted:
        halt.set()
    search = FindDuplicates(imports=stores.imports, records=stores.records)
    try:
        return [*search(of, CsvSourceReader(of, limits=SMALL), planned.id, halt=halt)]
    finally:
        database.close()


def lost(found: list[Duplicate]) -> list[tuple[str, int, str, str, int]]:
    return [
        (each.file, each.line, each.key, each.winner_file, each.winner_line)
        for each in found
    ]


def test_all_but_the_last_row_of_a_key_lost_and_are_reported_in_order(tmp_path):
    (tmp_path / "a.csv").write_bytes(
        b'id,name\n1,a\n2,"two\nlines"\n1,b\n3,c\n4,d\n2,e\n'
    )
    (tmp_path / "b.csv").write_bytes(b"id,name\n4,f\n1,g\n")

    found = find(shops(tmp_path), tmp_path)

    assert lost(found) == [
        ("a.csv", 2, "1", "b.csv", 3),
        ("a.csv", 3, "2", "a.csv", 8),
        ("a.csv", 5, "1", "b.csv", 3),
        ("a.csv", 7, "4", "b.csv", 2),
    ]
    assert [each.offset for each in found] == [8, 12, 26, 34]


def test_bad_rows_and_empty_lines_neither_lose_nor_win(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"id,name\n1,a\n\n1\n1,b\n-1,c\n-1,d\n1,e,f\n")

    assert lost(find(shops(tmp_path), tmp_path)) == [("a.csv", 2, "1", "a.csv", 5)]


def test_the_newest_version_wins_and_of_equal_ones_the_last(tmp_path):
    (tmp_path / "a.csv").write_bytes(
        b"id,at\n1,2026-03-02\n1,2026-03-01\n2,\n2,2026-01-01\n2,\n"
        b"3,2026-05-05\n3,2026-05-05\n"
    )
    fields = (int_field("id"), typed_field("at", FieldType.DATE))

    found = find(shops(tmp_path, fields=fields, version="at"), tmp_path)

    assert lost(found) == [
        ("a.csv", 3, "1", "a.csv", 2),
        ("a.csv", 4, "2", "a.csv", 5),
        ("a.csv", 6, "2", "a.csv", 5),
        ("a.csv", 7, "3", "a.csv", 8),
    ]


def test_a_key_is_what_its_type_says_and_may_have_several_fields(tmp_path):
    (tmp_path / "a.csv").write_bytes(
        b"id,day\n1,2026-03-01\n 01 ,2026-03-01\n1,2026-03-02\n"
    )
    fields = (int_field("id"), typed_field("day", FieldType.DATE))

    found = find(shops(tmp_path, fields=fields, key=("id", "day")), tmp_path)

    assert [each.key for each in found] == ['[1, "2026-03-01"]']


def test_a_search_that_is_requested_to_stop_stops(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"id,name\n1,a\n1,b\n")

    with pytest.raises(Interrupted):
        find(shops(tmp_path), tmp_path, halted=True)
