"""Rows as Parquet, in row groups of bounded size."""

from collections.abc import Iterable, Iterator
from decimal import Decimal
from itertools import islice
from typing import IO, Any

from penstock.domain.dataset import Dataset, FieldType
from penstock.domain.exact_decimals import write_decimal
from penstock.errors import Misconfigured

# rows in memory as Python values, which are many times larger than Arrow's
BATCH_ROWS = 2_000
# of a row group, in memory until it is written: large enough to be read fast
GROUP_BYTES = 64 * 2**20


def write_parquet(
    dataset: Dataset,
    rows: Iterable[tuple[object, ...]],
    file: IO[bytes],
    *,
    bytes_a_group: int = GROUP_BYTES,
) -> int:
    """Write rows as Parquet; return how many.

    Raises `Misconfigured` if pyarrow is not installed.
    """
    arrow, parquet = import_pyarrow()
    schema = build_schema(dataset, arrow)
    if any(field.type is FieldType.DECIMAL for field in dataset.fields):
        rows = map(with_texts, rows)
    count = 0
    with parquet.ParquetWriter(file, schema) as writer:
        for group in group_batches(to_batches(rows, schema, arrow), bytes_a_group):
            table = arrow.Table.from_batches(group)
            writer.write_table(table, row_group_size=table.num_rows)
            count += table.num_rows
    return count


def import_pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise Misconfigured(
            "--format parquet needs pyarrow: pip install 'penstock[parquet]'"
        ) from error
    return pa, parquet


def build_schema(dataset: Dataset, arrow: Any) -> Any:
    types: dict[FieldType, Any] = {
        FieldType.TEXT: arrow.string(),
        FieldType.INT: arrow.int64(),
        FieldType.FLOAT: arrow.float64(),
        # a decimal of Parquet has at most 76 digits, and one scale for all rows
        FieldType.DECIMAL: arrow.string(),
        FieldType.BOOL: arrow.bool_(),
        FieldType.DATE: arrow.date32(),
        FieldType.TIMESTAMP: arrow.timestamp("us", tz="UTC"),
        FieldType.JSON: arrow.string(),
    }
    return arrow.schema([(field.name, types[field.type]) for field in dataset.fields])


def to_batches(
    rows: Iterable[tuple[object, ...]], schema: Any, arrow: Any
) -> Iterator[Any]:
    """Yield record batches of a few rows each."""
    remaining = iter(rows)
    while chunk := list(islice(remaining, BATCH_ROWS)):
        columns = [
            arrow.array(column, type=field.type)
            for column, field in zip(zip(*chunk, strict=True), schema, strict=True)
        ]
        yield arrow.record_batch(columns, schema=schema)


def with_texts(row: tuple[object, ...]) -> tuple[object, ...]:
    """Return a row with decimals as their texts."""
    return tuple(
        write_decimal(value) if isinstance(value, Decimal) else value for value in row
    )


def group_batches(batches: Iterable[Any], min_bytes: int) -> Iterator[list[Any]]:
    """Yield groups of batches, each large enough for a row group."""
    group: list[Any] = []
    size = 0
    for batch in batches:
        group.append(batch)
        size += batch.nbytes
        if size >= min_bytes:
            yield group
            group, size = [], 0
    if group:
        yield group
