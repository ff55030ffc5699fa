"""Rows as Parquet, in row groups of bounded size."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import IO, Any

from penstock.domain.dataset import Dataset, FieldType
from penstock.errors import Misconfigured

# held as Python values, which are many times larger than Arrow's
ROWS_AT_ONCE = 2_000
# held as Arrow's before they are written: large enough to be read fast
BYTES_A_GROUP = 64 * 2**20


def write_parquet(
    dataset: Dataset,
    rows: Iterable[tuple[object, ...]],
    file: IO[bytes],
    *,
    bytes_a_group: int = BYTES_A_GROUP,
) -> int:
    """Write rows as Parquet; return how many.

    Raises `Misconfigured` where the library for it is not installed.
    """
    arrow, parquet = libraries()
    schema = schema_of(dataset, arrow)
    written = 0
    with parquet.ParquetWriter(file, schema) as writer:
        for group in groups(batches(rows, schema, arrow), bytes_a_group):
            table = arrow.Table.from_batches(group)
            writer.write_table(table, row_group_size=table.num_rows)
            written += table.num_rows
    return written


def libraries() -> tuple[Any, Any]:
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise Misconfigured(
            "--format parquet needs pyarrow: pip install 'penstock[parquet]'"
        ) from error
    return pa, parquet


def schema_of(dataset: Dataset, arrow: Any) -> Any:
    types: dict[FieldType, Any] = {
        FieldType.TEXT: arrow.string(),
        FieldType.INT: arrow.int64(),
        FieldType.FLOAT: arrow.float64(),
        FieldType.BOOL: arrow.bool_(),
        FieldType.DATE: arrow.date32(),
        FieldType.TIMESTAMP: arrow.timestamp("us", tz="UTC"),
        FieldType.JSON: arrow.string(),
    }
    return arrow.schema([(field.name, types[field.type]) for field in dataset.fields])


def batches(
    rows: Iterable[tuple[object, ...]], schema: Any, arrow: Any
) -> Iterator[Any]:
    """Yield rows by columns, a few at a time."""
    waiting = iter(rows)
    while some := list(islice(waiting, ROWS_AT_ONCE)):
        columns = [
            arrow.array(column, type=field.type)
            for column, field in zip(zip(*some, strict=True), schema, strict=True)
        ]
        yield arrow.record_batch(columns, schema=schema)


def groups(batches: Iterable[Any], enough: int) -> Iterator[list[Any]]:
    """Gather batches until they are worth a row group."""
    group: list[Any] = []
    size = 0
    for batch in batches:
        group.append(batch)
        size += batch.nbytes
        if size >= enough:
            yield group
            group, size = [], 0
    if group:
        yield group
