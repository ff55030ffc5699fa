"""Convert validated tables into domain objects."""

from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import assert_never

from penstock.domain.budget import Budget
from penstock.domain.dataset import (
    MAX_DUPLICATES,
    ROW_KEY,
    ROW_KEY_FIELD,
    ArchivePolicy,
    Dataset,
    DatasetName,
    Delta,
    Field,
    Missing,
    Tolerance,
)
from penstock.domain.retention import RetentionPolicy
from penstock.domain.sharding.axes import (
    Axis,
    BboxAxis,
    FileAxis,
    ListAxis,
    RangeAxis,
    TimeAxis,
    ValuesFrom,
)
from penstock.domain.source import (
    Auth,
    AuthKind,
    CsvSource,
    HttpSource,
    Pagination,
    Source,
)
from penstock.settings.models.axes import (
    AxisTable,
    BboxTable,
    EdgesTable,
    ListTable,
    RangeTable,
    TimeTable,
    ValuesTable,
)
from penstock.settings.models.base import BudgetTable, RetentionTable
from penstock.settings.models.dataset import AnyDatasetTable, DeltaTable
from penstock.settings.models.field import build_field
from penstock.settings.models.source import (
    AuthTable,
    BasicTable,
    BearerTable,
    CsvTable,
    OAuth2Table,
    PagesTable,
    SourceTable,
)

MIN_TILE = Decimal("0.0001")


def build_budget(name: str, table: BudgetTable) -> Budget:
    return Budget(
        name=name,
        limits=tuple(table.rate),
        burst=table.burst,
        stop_on=frozenset(table.stop_on),
    )


def build_retention(table: RetentionTable) -> RetentionPolicy:
    return RetentionPolicy(
        imports=table.imports,
        changes=table.changes,
        pages=table.pages,
        quarantine=table.quarantine,
        rollups=table.rollups,
    )


def build_dataset(
    name: str, table: AnyDatasetTable, *, folder: Path, spool: Path
) -> Dataset:
    return Dataset(
        name=DatasetName(name),
        fields=build_fields(table),
        key=(ROW_KEY,) if table.has_row_key else tuple(table.key),
        source=build_source(table.source, folder, spool),
        axes=build_axes(table),
        delta=None if table.delta is None else build_delta(table.delta),
        search=tuple(table.search),
        geo=None if table.geo is None else (table.geo[0], table.geo[1]),
        filter=tuple(table.filter),
        missing=Missing(
            do=table.missing.do,
            max_drop=table.missing.max_drop,
            lost_files=table.missing.lost_files,
        ),
        bad=Tolerance(max=table.bad.max, max_ratio=table.bad.max_ratio),
        max_duplicates=build_max_duplicates(table),
        version=table.version,
        partition=table.partition,
        transform=table.transform,
        priority=table.priority,
        region=table.region,
        cache=table.cache,
        archive=None
        if table.archive is None
        else ArchivePolicy(after=table.archive.after, every=table.archive.every),
    )


def build_fields(table: AnyDatasetTable) -> tuple[Field, ...]:
    declared = (
        limit_length(
            build_field(name, field, is_key=name in table.key),
            table.max_text_length(name),
        )
        for name, field in table.fields.items()
    )
    return (ROW_KEY_FIELD, *declared) if table.has_row_key else tuple(declared)


def build_max_duplicates(table: AnyDatasetTable) -> float:
    if table.max_duplicates is not None:
        return table.max_duplicates
    # equal rows are one, as it was declared: nothing is lost
    return 1 if table.has_row_key else MAX_DUPLICATES


def limit_length(field: Field, max_length: int | None) -> Field:
    """Limit a text to the length that its index can hold."""
    if max_length is None:
        return field
    return replace(field, max_length=min(field.max_length or max_length, max_length))


def build_delta(table: DeltaTable) -> Delta:
    return Delta(
        send=table.send, field=table.field, format=table.format, overlap=table.overlap
    )


def build_source(table: SourceTable | CsvTable, folder: Path, spool: Path) -> Source:
    if isinstance(table, CsvTable):
        return build_csv_source(table, folder, spool)
    return build_http_source(table)


def build_axes(table: AnyDatasetTable) -> tuple[Axis, ...]:
    if isinstance(table.source, CsvTable):
        return (FileAxis(),)
    return tuple(build_axis(name, axis) for name, axis in table.shards.items())


def build_csv_source(table: CsvTable, folder: Path, spool: Path) -> CsvSource:
    return CsvSource(
        files=tuple(table.files),
        folder=str(folder),
        shard=table.shard,
        null=tuple(table.null),
        delimiter=table.delimiter,
        quote=table.quote,
        escape=table.escape,
        unclosed_quote=table.unclosed_quote,
        encoding=table.encoding,
        header=table.header,
        columns=tuple(table.columns),
        skip=table.skip,
        timeout=table.timeout,
        spool=str(spool),
        max_bytes=table.max_bytes,
        download=table.download,
        private=table.private,
        unsized=table.unsized,
        max_expansion=table.max_expansion,
        max_empty_lines=table.max_empty_lines,
    )


def build_http_source(table: SourceTable) -> HttpSource:
    return HttpSource(
        url=table.url,
        pages=Pagination() if table.pages is None else build_pages(table.pages),
        method=table.method,
        headers=table.headers,
        query=table.query,
        body=table.body,
        auth=None if table.auth is None else build_http_auth(table.auth),
        records=table.records,
        budget=table.budget,
        timeout=table.timeout,
        max_bytes=table.max_bytes,
        cap=table.cap,
        error=table.error,
        total=table.total,
    )


def build_pages(table: PagesTable) -> Pagination:
    return Pagination(
        by=table.by,
        send=table.send,
        field=table.field,
        order=table.order,
        size_send=None if table.size is None else table.size.send,
        size=None if table.size is None else table.size.value,
        first=table.first,
        next=table.next,
        max=table.max,
        end=table.end,
    )


def build_http_auth(table: AuthTable) -> Auth:
    match table:
        case BearerTable():
            return Auth(type=AuthKind.BEARER, token=table.token)
        case BasicTable():
            return Auth(
                type=AuthKind.BASIC, username=table.username, password=table.password
            )
        case OAuth2Table():
            return Auth(
                type=AuthKind.OAUTH2,
                token_url=table.token_url,
                client_id=table.client_id,
                client_secret=table.client_secret,
                scope=table.scope,
            )
        case _:
            assert_never(table)


def build_axis(name: str, table: AxisTable) -> Axis:
    match table:
        case ListTable():
            return ListAxis(
                name=name,
                values=build_values(table.values),
                send=table.send,
                check=table.check,
            )
        case TimeTable():
            return build_time_axis(name, table)
        case RangeTable():
            return RangeAxis(
                name=name,
                start=table.start,
                until=table.until,
                step=table.step,
                send_from=None if table.send is None else table.send.start,
                send_until=None if table.send is None else table.send.until,
                bounds=table.bounds,
                check=table.check,
                smallest=table.smallest,
            )
        case BboxTable():
            return build_bbox_axis(name, table)
        case _:
            assert_never(table)


def build_values(values: list[str] | ValuesTable) -> tuple[str, ...] | ValuesFrom:
    if isinstance(values, ValuesTable):
        return ValuesFrom(dataset=values.dataset, field=values.field)
    return tuple(values)


def build_time_axis(name: str, table: TimeTable) -> TimeAxis:
    axis = TimeAxis(
        name=name,
        start=table.start,
        until=table.until,
        step=table.window,
        send_from=table.send.start,
        send_until=table.send.until,
        format=table.format,
        bounds=table.bounds,
        check=table.check,
    )
    smallest = min(table.smallest or axis.smallest, table.window)
    # half of a window with an open end would read as much as the whole
    return replace(axis, smallest=table.window if table.is_open else smallest)


def build_bbox_axis(name: str, table: BboxTable) -> BboxAxis:
    south, west, north, east = table.area
    edges = table.send
    return BboxAxis(
        name=name,
        area=(south, west, north, east),
        step=table.step,
        send=edges.names if isinstance(edges, EdgesTable) else edges,
        format=table.format,
        check=None if table.check is None else (table.check[0], table.check[1]),
        smallest=min(table.smallest or MIN_TILE, table.step),
    )
