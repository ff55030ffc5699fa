"""Turn checked tables into the values of the domain."""

import base64
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import assert_never

from penstock.domain.axes import (
    Axis,
    BboxAxis,
    FileAxis,
    ListAxis,
    RangeAxis,
    TimeAxis,
    ValuesFrom,
)
from penstock.domain.budget import Budget
from penstock.domain.dataset import (
    Dataset,
    DatasetName,
    Delta,
    Field,
    Missing,
    Tolerance,
)
from penstock.domain.source import (
    Auth,
    AuthKind,
    CsvSource,
    HttpSource,
    Pages,
    Source,
)
from penstock.settings.declared import BudgetTable
from penstock.settings.declared_axes import (
    AxisTable,
    BboxTable,
    EdgesTable,
    ListTable,
    RangeTable,
    TimeTable,
    ValuesTable,
)
from penstock.settings.declared_dataset import (
    AnyDatasetTable,
    DeltaTable,
)
from penstock.settings.declared_field import built_field
from penstock.settings.declared_source import (
    AuthTable,
    BasicTable,
    BearerTable,
    CsvTable,
    OAuth2Table,
    PagesTable,
    SourceTable,
)
from penstock.settings.problems import KeyPath

SMALLEST_TILE = Decimal("0.0001")

# names under which a credential is sent, written in the file or not
CREDENTIAL_NAMES = frozenset(
    {
        "authorization",
        "proxy-authorization",
        "cookie",
        "x-api-key",
        "api-key",
        "apikey",
        "api_key",
        "key",
        "token",
        "access_token",
    }
)


def built_budget(name: str, table: BudgetTable) -> Budget:
    return Budget(
        name=name,
        limits=tuple(table.rate),
        burst=table.burst,
        stop_on=frozenset(table.stop_on),
    )


def built_dataset(
    name: str, table: AnyDatasetTable, *, folder: Path, spool: Path
) -> Dataset:
    return Dataset(
        name=DatasetName(name),
        fields=tuple(
            shortened(
                built_field(each, field, is_key=each in table.key),
                table.longest_text(each),
            )
            for each, field in table.fields.items()
        ),
        key=tuple(table.key),
        source=source_of(table.source, folder, spool),
        axes=axes_of(table),
        delta=None if table.delta is None else built_delta(table.delta),
        search=tuple(table.search),
        geo=None if table.geo is None else (table.geo[0], table.geo[1]),
        filter=tuple(table.filter),
        missing=Missing(
            do=table.missing.do,
            max_drop=table.missing.max_drop,
            lost_files=table.missing.lost_files,
        ),
        bad=Tolerance(max=table.bad.max, max_ratio=table.bad.max_ratio),
        version=table.version,
        partition=table.partition,
        transform=table.transform,
        priority=table.priority,
        region=table.region,
        cache=table.cache,
    )


def shortened(field: Field, longest: int | None) -> Field:
    """Let no text be longer than its index can hold."""
    if longest is None:
        return field
    return replace(field, max_length=min(field.max_length or longest, longest))


def built_delta(table: DeltaTable) -> Delta:
    return Delta(
        send=table.send, field=table.field, format=table.format, overlap=table.overlap
    )


def source_of(table: SourceTable | CsvTable, folder: Path, spool: Path) -> Source:
    if isinstance(table, CsvTable):
        return built_files(table, folder, spool)
    return built_source(table)


def axes_of(table: AnyDatasetTable) -> tuple[Axis, ...]:
    if isinstance(table.source, CsvTable):
        return (FileAxis(),)
    return tuple(built_axis(each, axis) for each, axis in table.shards.items())


def built_files(table: CsvTable, folder: Path, spool: Path) -> CsvSource:
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


def built_source(table: SourceTable) -> HttpSource:
    return HttpSource(
        url=table.url,
        pages=Pages() if table.pages is None else built_pages(table.pages),
        method=table.method,
        headers=table.headers,
        query=table.query,
        body=table.body,
        auth=None if table.auth is None else built_auth(table.auth),
        records=table.records,
        budget=table.budget,
        timeout=table.timeout,
        max_bytes=table.max_bytes,
        cap=table.cap,
    )


def built_pages(table: PagesTable) -> Pages:
    return Pages(
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


def built_auth(table: AuthTable) -> Auth:
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


def built_axis(name: str, table: AxisTable) -> Axis:
    match table:
        case ListTable():
            return ListAxis(
                name=name,
                values=built_values(table.values),
                send=table.send,
                check=table.check,
            )
        case TimeTable():
            return built_time_axis(name, table)
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
            return built_bbox_axis(name, table)
        case _:
            assert_never(table)


def built_values(values: list[str] | ValuesTable) -> tuple[str, ...] | ValuesFrom:
    if isinstance(values, ValuesTable):
        return ValuesFrom(dataset=values.dataset, field=values.field)
    return tuple(values)


def built_time_axis(name: str, table: TimeTable) -> TimeAxis:
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
    # half of a window with one open end would be read as far as the whole
    return replace(axis, smallest=table.window if table.is_open else smallest)


def built_bbox_axis(name: str, table: BboxTable) -> BboxAxis:
    south, west, north, east = table.area
    edges = table.send
    return BboxAxis(
        name=name,
        area=(south, west, north, east),
        step=table.step,
        send=edges.names if isinstance(edges, EdgesTable) else edges,
        format=table.format,
        check=None if table.check is None else (table.check[0], table.check[1]),
        smallest=min(table.smallest or SMALLEST_TILE, table.step),
    )


def credentials(source: SourceTable) -> Iterator[tuple[KeyPath, str]]:
    """Yield what signs a request, even where the file says it openly."""
    match source.auth:
        case None:
            pass
        case BearerTable(token=token):
            yield ("auth", "token"), token
        case BasicTable(username=username, password=password):
            yield ("auth", "password"), password
            pair = f"{username}:{password}".encode()
            yield ("auth", "password"), base64.b64encode(pair).decode()
        case OAuth2Table(client_secret=client_secret):
            yield ("auth", "client_secret"), client_secret
        case _:
            assert_never(source.auth)
    for where, named in (("headers", source.headers), ("query", source.query)):
        for name, value in named.items():
            if name.lower() in CREDENTIAL_NAMES:
                yield (where, name), value
