"""Write the reference pages from the code they describe.

`python -m docs.generate` writes them; with `--check` it only lists the stale ones.
"""

import dataclasses
import inspect
import re
import sys
import tomllib
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from enum import Enum
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from prometheus_client import Metric
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from penstock import errors
from penstock.adapters.postgres import schema as postgres
from penstock.adapters.sqlite import schema as sqlite
from penstock.adapters.sqlite.table_sql import INTERNAL_COLUMNS
from penstock.adapters.telemetry import database_metrics
from penstock.adapters.telemetry.log import event_name
from penstock.adapters.telemetry.metrics import EventMetrics
from penstock.adapters.telemetry.specs import MetricSpec
from penstock.adapters.telemetry.store_gauges import GAUGES
from penstock.domain import events
from penstock.domain.client_rate import ClientRate
from penstock.domain.dataset import Dataset, DatasetName, Field, FieldType
from penstock.domain.source import CsvSource
from penstock.entrypoints.api.app import all_endpoints
from penstock.entrypoints.api.cache.response_cache import ResponseCache
from penstock.entrypoints.api.concurrency.lanes import Lanes
from penstock.entrypoints.api.endpoints import Endpoint, OperationDoc
from penstock.entrypoints.api.metrics.http_metrics import Metrics
from penstock.entrypoints.api.middleware.rate_limit import RateLimiter
from penstock.entrypoints.api.openapi import document
from penstock.entrypoints.api.problems import TITLES
from penstock.entrypoints.cli.app import app
from penstock.settings.models.api import ApiTable
from penstock.settings.models.auth import AccessTable
from penstock.settings.models.axes import (
    BboxTable,
    EdgesTable,
    LimitsTable,
    ListTable,
    RangeTable,
    TimeTable,
    ValuesTable,
)
from penstock.settings.models.base import (
    BudgetTable,
    CeleryTable,
    PenstockTable,
    RetentionTable,
)
from penstock.settings.models.dataset import (
    ArchiveTable,
    BadTable,
    DatasetTable,
    DeltaTable,
    MissingTable,
)
from penstock.settings.models.field import FieldTable
from penstock.settings.models.hooks import HookTable
from penstock.settings.models.schedule import ScheduleTable
from penstock.settings.models.source import (
    BasicTable,
    BearerTable,
    CsvTable,
    OAuth2Table,
    PageSizeTable,
    PagesTable,
    SourceTable,
)

REFERENCE = Path(__file__).parent / "reference"
MEANINGS = Path(__file__).parent / "meanings.toml"
NOTICE = "<!-- Written by docs/generate.py (`make docs`); do not edit. -->\n"
WIDTH = 80

# the tables of penstock.toml in the order in which they are declared
TABLES: Mapping[str, type[BaseModel]] = {
    "penstock": PenstockTable,
    "celery": CeleryTable,
    "retention": RetentionTable,
    "hooks.NAME": HookTable,
    "budgets.NAME": BudgetTable,
    "datasets.NAME": DatasetTable,
    "datasets.NAME.missing": MissingTable,
    "datasets.NAME.bad": BadTable,
    "datasets.NAME.archive": ArchiveTable,
    "datasets.NAME.fields.NAME": FieldTable,
    "datasets.NAME.source": SourceTable,
    "datasets.NAME.source.pages": PagesTable,
    "datasets.NAME.source.pages.size": PageSizeTable,
    "datasets.NAME.source.auth (bearer)": BearerTable,
    "datasets.NAME.source.auth (basic)": BasicTable,
    "datasets.NAME.source.auth (oauth2)": OAuth2Table,
    "datasets.NAME.source (csv)": CsvTable,
    "datasets.NAME.shards.NAME (list)": ListTable,
    "datasets.NAME.shards.NAME.values": ValuesTable,
    "datasets.NAME.shards.NAME (time)": TimeTable,
    "datasets.NAME.shards.NAME (range)": RangeTable,
    "datasets.NAME.shards.NAME.send (time, range)": LimitsTable,
    "datasets.NAME.shards.NAME (bbox)": BboxTable,
    "datasets.NAME.shards.NAME.send (bbox)": EdgesTable,
    "datasets.NAME.delta": DeltaTable,
    "schedules.NAME": ScheduleTable,
    "auth": AccessTable,
    "api": ApiTable,
}

# names of the annotated types of the settings for readers
KINDS = {
    "CronExpression": "cron expression",
    "ZoneInfo": "time zone",
    "ExceptionWindow": "window",
    "timedelta": "duration",
    "datetime": "time with zone",
    "str": "text",
    "int": "whole number",
    "float": "number",
    "Decimal": "degrees",
    "bool": "true or false",
    "Limit": "rate",
    "IPv4Network": "address or network",
    "IPv6Network": "address or network",
    "Any": "any value",
    "NoneType": "",
}


class Undescribed(Exception):
    """Something exists that docs/meanings.toml does not describe."""


def meaning(section: str, name: str) -> str:
    known = meanings()[section]
    if name not in known:
        raise Undescribed(f"{name} has no meaning in docs/meanings.toml, [{section}]")
    return known[name]


@lru_cache
def meanings() -> dict[str, dict[str, str]]:
    return tomllib.loads(MEANINGS.read_text("utf-8"))


def cli_page() -> str:
    """Show the help of every command as a user sees it."""
    parts = [
        "# Commands\n",
        (
            "Exit codes: 0 done, 1 work failed or incomplete, "
            "2 wrong use or configuration.\n"
        ),
        (
            "`imports`, `jobs`, `quarantine` and `budgets` run their command `list` "
            "by default.\n"
        ),
    ]
    for path, text in commands():
        parts.append(f"## `{path}`\n")
        parts.append(f"```text\n{text.strip()}\n```\n")
    return "\n".join(parts)


def commands() -> Iterator[tuple[str, str]]:
    """Yield every command with its help, groups before their members."""
    root = typer.main.get_command(app)
    waiting: list[tuple[str, Any, Any]] = [("penstock", root, None)]
    while waiting:
        path, command, parent = waiting.pop(0)
        context = command.make_context(
            path.rpartition(" ")[2],
            [],
            parent=parent,
            resilient_parsing=True,
            max_content_width=WIDTH,
            terminal_width=WIDTH,
        )
        yield path, command.get_help(context)
        if hasattr(command, "list_commands"):
            waiting[:0] = [
                (f"{path} {name}", command.get_command(context, name), context)
                for name in command.list_commands(context)
            ]


def settings_page() -> str:
    parts = [
        "# Settings\n",
        "One TOML file, `penstock.toml`, read once; unknown keys are rejected.",
        (
            "`${NAME}` is read from the environment and never shown; "
            "`$${` is a literal `${`. "
            "`$NAME` in capitals is rejected in credentials: "
            "put a value that contains it into a variable, and write `${NAME}`.\n"
        ),
        (
            "A duration is written as `250ms`, `60s`, `5m`, `1h30m` or `365d`; "
            "a rate as `10/s`, `600/min`, `1000/h`, `20000/day` or `1/2s`; "
            "a size as `64MiB`, `10MB` or a number of bytes; "
            "a path as `AddressInfo.Town`.\n"
        ),
    ]
    for title, model in TABLES.items():
        parts.append(f"## `[{title}]`\n")
        parts.append("| key | type | default | meaning |")
        parts.append("|---|---|---|---|")
        for key, kind, default, result in setting_rows(title, model):
            parts.append(f"| `{key}` | {kind} | {default} | {result} |")
        parts.append("")
    return "\n".join(parts)


def setting_rows(
    title: str, model: type[BaseModel]
) -> Iterator[tuple[str, str, str, str]]:
    for name, field in model.model_fields.items():
        key = field.alias or name
        result = field.description or meaning("settings", f"{title}.{key}")
        kind = kind_of(name, model)
        yield key, kind, default_of(field, kind), result


def kind_of(name: str, model: type[BaseModel]) -> str:
    """Return the name of a type as a reader of the settings knows it."""
    hint = typing.get_type_hints(model, include_extras=True)[name]
    known = dict.fromkeys(each for each in spell(hint) if each)
    return " or ".join(known)


def spell(hint: Any) -> Iterator[str]:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        validator = " ".join(
            getattr(getattr(each, "func", None), "__name__", "")
            for each in arguments[1:]
        )
        special = {
            "as_path": "path",
            "as_path_or_top": "path",
            "parse_size": "size",
            "as_parameter": "text, number or boolean",
        }
        for function, word in special.items():
            if function in validator.split():
                yield word
                return
        yield from spell(arguments[0])
    elif origin in {typing.Union, types.UnionType}:
        for each in arguments:
            yield from spell(each)
    elif origin is Literal:
        yield " \\| ".join(f"`{each}`" for each in arguments)
    elif origin is list:
        yield f"list of {' or '.join(dict.fromkeys(spell(arguments[0])))}"
    elif origin is dict or (isinstance(hint, type) and issubclass(hint, BaseModel)):
        yield "table"
    elif isinstance(hint, type) and issubclass(hint, Enum):
        yield " \\| ".join(f"`{each.value}`" for each in hint)
    else:
        name = getattr(hint, "__name__", str(hint))
        yield KINDS.get(name, name)


def default_of(field: FieldInfo, kind: str) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True, validated_data={})
    return f"`{value // 2**20}MiB`" if kind == "size" else shown(value)


def shown(value: object) -> str:
    if value is None or value in ("", [], {}, ()) or isinstance(value, BaseModel):
        return "none"
    if isinstance(value, Enum):
        return f"`{value.value}`"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, list) and all(isinstance(each, Enum) for each in value):
        return ", ".join(map(shown, value))
    if hasattr(value, "total_seconds"):
        return f"`{value.total_seconds():g}s`"
    return f"`{value}`"


def events_page() -> str:
    parts = [
        "# Events\n",
        "Workers and the API emit events; the log is one listener.",
        (
            "Processes that run until stopped write one line per event to standard "
            "error: text on a terminal, JSON otherwise or with `--json`, and then "
            "nothing but JSON."
        ),
        ("[How to feed them to a log store](../howto/monitor.md)."),
        (
            "Each line has the level of its event; those of the level `debug` are "
            "logged only with `penstock worker --verbose`.\n"
        ),
    ]
    for event in event_classes():
        parts.append(f"## `{name_of_class(event)}`\n")
        parts.append(f"{meaning('events', event.__name__)}")
        parts.append(f"Class `{event.__name__}`, level {level_text(event)}.\n")
        parts.append("| field | type |\n|---|---|")
        for field in dataclasses.fields(event):
            hint = typing.get_type_hints(event)[field.name]
            parts.append(f"| `{field.name}` | {type_name(hint)} |")
        parts.append("")
    return "\n".join(parts)


def event_classes() -> list[type[events.Event]]:
    found = [each for _, each in inspect.getmembers(events, inspect.isclass)]
    mine = [
        each
        for each in found
        # not the bases of others
        if issubclass(each, events.Event) and not each.__subclasses__()
    ]
    return sorted(mine, key=lambda each: inspect.getsourcelines(each)[1])


def level_text(event: type[events.Event]) -> str:
    others = (
        f"`{rule.level}` if `{rule.field}` is `{rule.value}`"
        for rule in event.level_rules
    )
    return "; ".join([f"`{event.level}`", *others])


def name_of_class(event: type[events.Event]) -> str:
    return event_name(event.__new__(event))


def type_name(hint: object) -> str:
    if typing.get_origin(hint) is tuple:
        # as it is logged: JSON has no tuples
        return f"list of {type_name(typing.get_args(hint)[0])}"
    names = [getattr(each, "__name__", str(each)) for each in typing.get_args(hint)]
    text = " or ".join(names) or getattr(hint, "__name__", str(hint))
    return text.replace("NoneType", "None")


def metrics_page() -> str:
    """List all metrics, by the processes that have them."""
    parts = [
        "# Metrics\n",
        (
            "`GET /metrics` of `penstock serve`, and of `penstock worker` and "
            "`penstock scheduler` with `--metrics-port`, in the format of Prometheus; "
            "[how to scrape it](../howto/monitor.md)."
        ),
        (
            "Labels are names of `penstock.toml`, codes and classes of status, never "
            "jobs, workers or texts.\n"
        ),
    ]
    for title, text, families in metric_groups():
        parts.append(f"## {title}\n\n{text}\n")
        parts.append("| metric | type | labels | meaning |\n|---|---|---|---|")
        for family in families:
            labels = ", ".join(f"`{label}`" for label in family.labels) or "none"
            parts.append(
                f"| `{family.name}` | {family.kind} | {labels} | {family.text} |"
            )
        parts.append("")
    return "\n".join(parts)


def metric_groups() -> Iterator[tuple[str, str, list[MetricSpec]]]:
    yield (
        "Events",
        (
            "Counted by each process that works; `serve` counts what it does itself, "
            "and its processes have a label `process` if there are several."
        ),
        sorted(EventMetrics().specs),
    )
    yield (
        "Stores",
        (
            "Read from the database when scraped, at most every five seconds: "
            "the same from each process, so take their maximum. "
            "Only disks are those of the process that is scraped, and replicas are "
            "those that `serve` reads from."
        ),
        sorted(GAUGES.values()),
    )
    yield (
        "Database",
        (
            "Of each process, which observes only its own statements and connections. "
            "`statement` is a name of a file in `sql/` of the adapter, several joined "
            "by `+` where they are sent as one, `records:` with a name of what "
            "`penstock migrate --show-sql` lists, or with the first word of what is "
            "composed for a request. "
            "On SQLite the time is that until the first row, and there are no pools; "
            "on PostgreSQL a statement that is sent in a batch takes the time of "
            "sending it. "
            "`pool` is `ledger`, `api` or the name of a replica."
        ),
        sorted(database_metrics.SPECS),
    )
    yield (
        "HTTP",
        (
            "Of `penstock serve`; with the metrics of the process that the Prometheus "
            "client has, `process_*` and `python_*`, which all processes expose."
        ),
        [spec for spec in http_metrics() if spec.name.startswith("penstock_")],
    )


def http_metrics() -> list[MetricSpec]:
    """List what one request leaves behind; labels are those of its samples."""
    metrics, lanes = Metrics(), Lanes(1)
    rate = ClientRate(requests=1, period=timedelta(seconds=1), burst=1)
    cache = ResponseCache(lanes=lanes, shared=None, knows=lambda *_: True)
    metrics.collect_from(lanes, cache, RateLimiter(rate))
    metrics.unrouted.count(200, 0.0)
    return sorted(map(metric_spec, metrics.families()))


def metric_spec(family: Metric) -> MetricSpec:
    suffix = "_total" if family.type == "counter" else ""
    labels = dict.fromkeys(name for sample in family.samples for name in sample.labels)
    return MetricSpec(
        f"{family.name}{suffix}",
        family.type,
        family.documentation,
        tuple(name for name in labels if name != "le"),
    )


def errors_page() -> str:
    parts = [
        "# Errors\n",
        (
            "Each error has a stable code, which appears in the history of a job, "
            "in log lines and in `--json` output."
        ),
        (
            "Errors are grouped by what the worker does next; the last column says "
            "what an operator should do.\n"
        ),
        "```text",
        tree_of(errors.__doc__ or ""),
        "```\n",
        "| class | code | what it means | what to do |",
        "|---|---|---|---|",
    ]
    for error in error_classes():
        result = (inspect.getdoc(error) or "").splitlines()[0]
        remedy = meaning("errors", error.__name__)
        parts.append(f"| `{error.__name__}` | `{error.code}` | {result} | {remedy} |")
    parts.append("")
    return "\n".join(parts)


def error_classes() -> list[type[errors.PenstockError]]:
    found = [
        each
        for _, each in inspect.getmembers(errors, inspect.isclass)
        if issubclass(each, errors.PenstockError)
    ]
    return sorted(found, key=lambda each: inspect.getsourcelines(each)[1])


def tree_of(text: str) -> str:
    return "\n".join(
        line
        for line in text.splitlines()
        if line.startswith(("PenstockError", "├", "│", "└", "    └"))
    )


def schema_page() -> str:
    parts = [
        "# Schema\n",
        "The ledger and the records are stored in one database.",
        "Read it with any tool; write to it only with `penstock`.",
        (
            "`penstock migrate` applies pending migrations; on SQLite so does every "
            "command that opens the file.\n"
        ),
    ]
    for database, found, stored in (
        ("SQLite", sqlite.MIGRATIONS, "`pragma user_version` holds"),
        ("PostgreSQL", postgres.MIGRATIONS, "the table `penstock_migration` lists"),
    ):
        parts.append(f"## {database}\n\nHere {stored} the applied migrations.\n")
        for number, name, text in found:
            parts.append(f"### {database} migration {number}: `{name}`\n")
            parts.append(f"```sql\n{text.strip()}\n```\n")
    parts += [
        "## The table of a dataset\n",
        (
            "Each dataset has a table with its name: the declared fields in their "
            "order, the key as primary key, an index for every field of `filter`, and "
            "these system columns:\n"
        ),
        *(f"- `{column}`" for column in INTERNAL_COLUMNS),
        "",
        (
            "`_import` is the import that wrote the row last or, if missing rows "
            "are marked, the full import that saw it last."
        ),
        (
            "A row with `_deleted_at` is marked as deleted: it stays in the table, "
            "but is neither exported nor served."
        ),
        (
            "So a query on the table also returns deleted rows, unless it has "
            "`where _deleted_at is null`.\n"
        ),
        (
            "The view `DATASET_live` has this condition: it shows the fields of the "
            "live rows, with `_created_at` and `_updated_at`, which are timestamps "
            "there on SQLite, too."
        ),
        (
            "Fields that are added to the declaration are appended to its columns, and "
            "other views may be built on it."
        ),
        (
            "No dataset can have this name; if another object in the database has "
            "it, the view is not created.\n"
        ),
        (
            "On SQLite timestamps are text in UTC, booleans are 0 and 1, JSON is "
            "text; on PostgreSQL all have their own types, and the system columns are "
            "`timestamptz`, `bigint` and `bytea`."
        ),
        "",
    ]
    return "\n".join(parts)


# a dataset with every option, to show all parameters
SHOWN = Dataset(
    name=DatasetName("DATASET"),
    fields=(
        Field(name="KEY", type=FieldType.INT, required=True),
        Field(name="FIELD"),
        Field(name="lat", type=FieldType.FLOAT),
        Field(name="lon", type=FieldType.FLOAT),
    ),
    key=("KEY",),
    source=CsvSource(files=("files",)),
    search=("FIELD",),
    geo=("lat", "lon"),
    filter=("FIELD",),
)


def api_page() -> str:
    """List every endpoint of the route table."""
    parts = [
        "# HTTP API\n",
        (
            "These are the routes of `penstock serve`; `/openapi.json` describes them "
            "for programs, with the fields of the datasets, and `/docs` for people."
        ),
        (
            "Here `DATASET` is any dataset, `KEY` the fields of its key, separated by "
            "commas, `FIELD` any field of its key or of `filter`.\n"
        ),
        "A scope is required if `[auth]` is declared.\n",
        "| | scope | |",
        "|---|---|---|",
    ]
    endpoints = all_endpoints()
    for each in endpoints:
        scope = "none" if each.scope is None else f"`{each.scope}`"
        parts.append(
            f"| `{each.method} {shown_path(each)}` | {scope} | {each.summary} |"
        )
    parts.append("")
    for each in endpoints:
        result = document.describe_operation(
            each, SHOWN if "{dataset}" in each.path else None
        )
        if result is not None and each.path.startswith(document.PREFIX):
            parts += endpoint_parts(each, result)
    return "\n".join([*parts, *problem_parts()])


def shown_path(endpoint: Endpoint[Any]) -> str:
    return document.openapi_path(
        endpoint, SHOWN if "{dataset}" in endpoint.path else None
    )


def endpoint_parts(endpoint: Endpoint[Any], result: OperationDoc) -> Iterator[str]:
    yield f"## `{endpoint.method} {shown_path(endpoint)}`\n"
    yield f"{endpoint.summary}.\n"
    if result.parameters:
        yield "| parameter | in | meaning |\n|---|---|---|"
        for each in result.parameters:
            meant = each.get("description", "Part of the key.").replace("|", "\\|")
            yield f"| `{each['name']}` | {each['in']} | {meant} |"
        yield ""
    answered = document.responses(endpoint, result, is_guarded=True)
    for status, response in sorted(answered.items()):
        if "description" in response:
            yield f"- {status}: {response['description']}"
    problems = [
        str(status) for status, each in sorted(answered.items()) if "$ref" in each
    ]
    yield f"- Problems: {', '.join(problems)}.\n"


def problem_parts() -> Iterator[str]:
    yield "## Problems\n"
    yield (
        "Errors are `application/problem+json` (RFC 9457) with `type`, `title`, "
        "`status`, `detail`, `instance`, `code`, `trace_id` and, if the request is "
        "invalid, `errors` with `pointer`, `code` and `detail` of each error."
    )
    yield (
        "A pointer `?name` is a parameter, `/name` a location in the body, `#Name` a "
        "header, `{name}` a part of the URL.\n"
    )
    yield "| code | status | meaning |\n|---|---|---|"
    for code, (status, title) in sorted(TITLES.items(), key=lambda each: each[1]):
        yield f"| `{code}` | {status} | {title} |"
    yield ""


PAGES: Mapping[str, Callable[[], str]] = {
    "cli.md": cli_page,
    "settings.md": settings_page,
    "events.md": events_page,
    "metrics.md": metrics_page,
    "errors.md": errors_page,
    "schema.md": schema_page,
    "api.md": api_page,
}


def stale_pages() -> list[str]:
    """Return the names of pages that differ from the code."""
    return [
        name
        for name, text in rendered()
        if not (REFERENCE / name).is_file()
        or (REFERENCE / name).read_text("utf-8") != text
    ]


def rendered() -> Iterator[tuple[str, str]]:
    for name, page in PAGES.items():
        yield name, NOTICE + re.sub(r"[ \t]+$", "", page(), flags=re.MULTILINE)


def main(arguments: list[str]) -> int:
    if arguments not in ([], ["--check"]):
        sys.stderr.write("usage: python -m docs.generate [--check]\n")
        return 2
    if arguments:
        stale = stale_pages()
        for name in stale:
            sys.stderr.write(f"docs/reference/{name} is stale: make docs\n")
        return 1 if stale else 0
    REFERENCE.mkdir(exist_ok=True)
    for name, text in rendered():
        (REFERENCE / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
