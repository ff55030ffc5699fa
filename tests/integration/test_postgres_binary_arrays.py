"""Columns that travel as binary arrays arrive as they were."""

from datetime import UTC, date
from decimal import Decimal

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.adapters.postgres.binary_arrays import (
    ARRAYS,
    DIGESTS,
    register_array_dumpers,
)
from penstock.domain.dataset import FieldType

TEXT = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]))
VALUES = {
    FieldType.TEXT: TEXT | st.just("x" * 5000),
    FieldType.INT: st.integers(-(2**63), 2**63 - 1),
    FieldType.FLOAT: st.floats(allow_nan=False, allow_infinity=False),
    FieldType.DECIMAL: st.decimals(allow_nan=False, allow_infinity=False, places=7)
    | st.decimals(-(10**40), 10**40, places=0)
    | st.sampled_from([*map(Decimal, ("0.00", "10000", "0.0001", "-12345.678900"))]),
    FieldType.BOOL: st.booleans(),
    FieldType.DATE: st.dates(),
    FieldType.TIMESTAMP: st.datetimes(timezones=st.just(UTC)),
    FieldType.JSON: TEXT,
}
NAMES = {
    FieldType.TEXT: "text",
    FieldType.INT: "int8",
    FieldType.FLOAT: "float8",
    FieldType.DECIMAL: "numeric",
    FieldType.BOOL: "bool",
    FieldType.DATE: "date",
    FieldType.TIMESTAMP: "timestamptz",
    FieldType.JSON: "text",
}


@pytest.fixture(scope="module")
def connection(postgres_url):
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("set timezone = 'UTC'")
        register_array_dumpers(connection)
        yield connection


@pytest.mark.parametrize("kind", [*FieldType])
@given(data=st.data())
def test_a_column_arrives_as_it_was(connection, kind, data):
    values = VALUES[kind]
    column = data.draw(st.lists(values) | st.lists(values | st.none()))

    (found,) = connection.execute(
        f"select %s::{NAMES[kind]}[]", (ARRAYS[kind](column),), binary=True
    ).fetchone()

    assert found == column
    if kind is FieldType.DECIMAL:
        # zero has no sign
        unsigned = [value if value is None or value else abs(value) for value in column]
        assert [*map(str, found)] == [*map(str, unsigned)]


@pytest.mark.parametrize("column", [[], [bytes(16), b"\xff" * 16]])
def test_digests_arrive_as_they_were(connection, column):
    (found,) = connection.execute("select %s", (DIGESTS(column),)).fetchone()

    assert found == column


def test_a_day_and_a_time_before_the_server_counts(connection):
    days = ARRAYS[FieldType.DATE]([date(1, 1, 1), date(1999, 12, 31)])

    (found,) = connection.execute("select %s::text[]", (days,)).fetchone()

    assert found == ["0001-01-01", "1999-12-31"]
