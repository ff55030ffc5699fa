"""Which way a page takes into PostgreSQL, and what its choice may not change."""

from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from penstock.adapters.postgres.page_writes import (
    PageWrite,
    TableState,
    choose_page_write,
)
from penstock.adapters.postgres.sql_templates import NOW, statements
from penstock.adapters.postgres.table_sql import PostgresTableCatalog
from penstock.domain.dataset import Dataset
from tests.support.builders import dataset

POI = dataset()
PARTITIONED = dataset(partition="title")
COMPARES = {"expects_new_rows": False}
FALLS_BACK = {"fallback_pages": 1}


@pytest.mark.parametrize(
    ("of", "state", "page", "expected"),
    [
        (POI, {}, {"is_insert_only": True}, PageWrite.SINGLE_STATEMENT),
        (POI, {}, {}, PageWrite.INSERT),
        (POI, FALLS_BACK, {"is_insert_only": True}, PageWrite.INSERT),
        (POI, {}, {"is_insert_only": True, "rows": 1}, PageWrite.COMPARE),
        (POI, {}, {"is_insert_only": True, "rows": 0}, PageWrite.COMPARE),
        (POI, COMPARES, {"is_insert_only": True}, PageWrite.COMPARE),
        (PARTITIONED, {}, {"is_insert_only": True}, PageWrite.COMPARE),
        (POI, {}, {"is_retry": True}, PageWrite.LOCK_AND_COMPARE),
        (POI, COMPARES, {"is_retry": True}, PageWrite.LOCK_AND_COMPARE),
    ],
)
def test_the_way_of_a_page(
    of: Dataset, state: dict[str, Any], page: dict[str, Any], expected: PageWrite
):
    given = {"rows": 2, **page}

    assert choose_page_write(of, TableState(**state), **given) is expected


def test_only_pages_that_could_be_a_single_statement_count_down_to_the_next_one():
    state = TableState(fallback_pages=2)

    def choose(**page: bool) -> PageWrite:
        return choose_page_write(POI, state, rows=2, **page)

    choose()
    choose(is_retry=True)
    ways = [choose(is_insert_only=True) for _ in range(3)]

    assert ways == [PageWrite.INSERT, PageWrite.INSERT, PageWrite.SINGLE_STATEMENT]


def test_what_is_observed_of_a_table_is_no_part_of_its_statements():
    tables = PostgresTableCatalog(statements(), now=NOW)
    tables.state(POI).expects_new_rows = False

    assert not tables.state(POI).expects_new_rows
    with pytest.raises(FrozenInstanceError):
        tables.of(POI).insert = "select 1"


def test_a_table_that_is_declared_anew_is_observed_anew():
    tables = PostgresTableCatalog(statements(), now=NOW)
    tables.state(POI).expects_new_rows = False

    assert tables.state(dataset()).expects_new_rows
