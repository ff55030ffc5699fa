"""`penstock.toml` becomes one frozen tree, or sentences that say what is wrong."""

import base64
import json
import tomllib
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from urllib.parse import quote, quote_plus, unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict
from redis.connection import parse_url as parse_redis_url

from penstock.domain.budget import Limit
from penstock.domain.dataset import FieldType, Reference, WhenMissing
from penstock.domain.sharding.axes import (
    BboxAxis,
    FileAxis,
    ListAxis,
    RangeAxis,
    TimeAxis,
    ValuesFrom,
)
from penstock.domain.source import AuthKind, CsvSource, End, Paging
from penstock.errors import Misconfigured, NotFound
from penstock.settings import STARTER, Settings, declaration_digest, load
from penstock.settings.units import parse_duration, parse_rate, parse_size
from penstock.settings.urls import (
    POSTGRES_OPTIONS,
    REFUSED_OPTIONS,
    as_database,
    as_redis,
    read_address,
)
from penstock.settings.validation_errors import InvalidValue

SECRET = "s3cr3t/va+lue"
ENVIRON = {"OCM_API_KEY": SECRET}

MINIMAL = """
[penstock]
[budgets.api]
rate = "5/s"
[datasets.poi]
key = "id"
[datasets.poi.fields]
id = { type = "int" }
name = "Name"
lat = { type = "float" }
lon = { type = "float" }
note = { local = true }
extra = { type = "json" }
[datasets.poi.source]
url = "https://api.example.org/poi"
"""
PAGES = "[datasets.poi.source.pages]\n"
SHARDS = "[datasets.poi.shards]\n"
KEYSET = PAGES + 'by = "keyset"\nsend = "after"\nfield = "id"\n'
WINDOW = 'w = { kind = "time", from = "2026-01-01T00:00:00Z", '


@pytest.fixture
def folder(tmp_path):
    return tmp_path


@pytest.fixture
def read(folder):
    def read_text(text: str, environ=ENVIRON) -> Settings:
        path = folder / "penstock.toml"
        path.write_text(text, encoding="utf-8")
        return load(path, environ)

    return read_text


@pytest.fixture
def refuse(read, folder):
    def refused(text: str, environ=ENVIRON) -> list[str]:
        with pytest.raises(Misconfigured) as caught:
            read(text, environ)
        prefix = f"{folder / 'penstock.toml'}: "
        assert all(each.startswith(prefix) for each in caught.value.problems)
        return [each.removeprefix(prefix) for each in caught.value.problems]

    return refused


def test_the_starter_loads_without_a_problem(read, folder):
    settings = read(STARTER)

    poi = settings.dataset("poi")
    assert settings.sqlite_path == folder / "penstock.db"
    assert settings.lease == timedelta(seconds=60)
    assert settings.longest_wait == timedelta(seconds=10)
    assert settings.commit_timeout == timedelta(seconds=10)
    assert settings.attempts == 8
    assert settings.budgets["ocm"].limits == (
        Limit(requests=10, period=timedelta(seconds=1)),
        Limit(requests=20_000, period=timedelta(days=1)),
    )
    assert settings.budgets["ocm"].stop_on == {401, 403}
    assert [each.name for each in poi.fields][:3] == ["id", "title", "town"]
    assert poi.fields[0].required
    assert poi.fields[2].path == ("AddressInfo", "Town")
    assert poi.geo == ("lat", "lon")
    assert poi.missing.do is WhenMissing.MARK
    assert poi.source.query == {"output": "json", "compact": "true", "verbose": "false"}
    assert poi.source.headers == {"X-API-Key": SECRET}
    assert poi.source.pages.by is Paging.KEYSET
    assert poi.source.pages.size == 500
    assert poi.axes == (
        ListAxis(
            name="country",
            values=("87", "80"),
            send="countryid",
            check=("AddressInfo", "CountryID"),
        ),
    )
    assert poi.delta is not None
    assert poi.delta.overlap == timedelta(hours=2)


def test_a_minimal_file_takes_the_defaults(read):
    poi = read(MINIMAL).dataset("poi")

    assert poi.source.pages.by is Paging.SINGLE
    assert poi.source.timeout == timedelta(seconds=30)
    assert poi.source.budget is None
    assert poi.fields[0].path == ("id",)
    assert [each.name for each in poi.columns] == ["id", "name", "lat", "lon", "extra"]
    assert poi.axes == ()
    assert poi.missing.do is WhenMissing.KEEP


def test_every_axis_keeps_its_exact_bounds_and_order(read):
    settings = read(
        MINIMAL.replace("/poi", "/{region}/poi")
        + KEYSET
        + SHARDS
        + """
region = { kind = "list", values = { dataset = "areas", field = "id" } }
tile = { kind = "bbox", area = [47.1, 5.8, 55, 15.10], step = 0.1, send = "box", check = ["lat", "lon"] }
edges = { kind = "bbox", area = [-10, 170, 10, -170], step = 5, send = { south = "s", west = "w", north = "n", east = "e" } }
window = { kind = "time", from = 2026-01-01T01:00:00+01:00, step = "1h", send = { from = "a", until = "b" }, bounds = "(]" }
ids = { kind = "range", from = 0, until = 100, step = 10, smallest = 5 }

[datasets.areas]
key = "id"
fields = { id = {} }
source = { url = "https://api.example.org/areas" }
"""  # noqa: E501
    )

    region, tile, edges, window, ids = settings.dataset("poi").axes
    assert isinstance(region, ListAxis)
    assert region.values == ValuesFrom(dataset="areas", field="id")
    assert isinstance(tile, BboxAxis)
    assert tile.area == tuple(map(Decimal, ("47.1", "5.8", "55", "15.1")))
    assert tile.step == Decimal("0.1")
    assert tile.check == (("lat",), ("lon",))
    assert isinstance(edges, BboxAxis)
    assert edges.send == {"south": "s", "west": "w", "north": "n", "east": "e"}
    assert isinstance(window, TimeAxis)
    assert window.start == datetime(2026, 1, 1, tzinfo=UTC)
    assert (window.step, window.bounds) == (timedelta(hours=1), "(]")
    assert isinstance(ids, RangeAxis)
    assert (ids.start, ids.until, ids.step, ids.smallest) == (0, 100, 10, 5)


def test_a_time_axis_without_step_is_one_window_that_is_never_split(read):
    axis = read(MINIMAL + SHARDS + WINDOW + "send = { from = 'since' } }").dataset(
        "poi"
    )
    window = axis.axes[0]

    assert isinstance(window, TimeAxis)
    assert window.step == window.smallest == timedelta(days=36_500)


def test_defaults_and_choices_are_stored_as_their_type(read):
    fields = """
[datasets.poi.fields]
points = { type = "int", default = "7", min = 0 }
price = { type = "float", default = 1.5 }
day = { type = "date", default = 2026-01-02 }
at = { type = "timestamp", default = 2026-01-02T03:04:05Z }
status = { enum = ["open", " closed "], default = "open" }
tags = { type = "json", default = { a = [1.5] } }
"""
    poi = read(MINIMAL.replace("[datasets.poi.fields]", fields)).dataset("poi")

    by_name = {each.name: each for each in poi.fields}
    assert by_name["points"].default == 7
    assert by_name["price"].default == 1.5
    assert str(by_name["day"].default) == "2026-01-02"
    assert by_name["at"].default == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert by_name["status"].choices == ("open", "closed")
    assert by_name["tags"].default == '{"a":[1.5]}'
    assert by_name["tags"].type is FieldType.JSON


def test_bounds_defaults_and_choices_of_decimals_keep_their_digits(read):
    fields = """
[datasets.poi.fields]
price = { type = "decimal", min = 0.1, max = 12345678901234567890.12, default = 1.10 }
whole = { type = "decimal", min = 9007199254740993, default = "9007199254740993.0" }
rate = { type = "decimal", choices = [0.10, "19.0", 7] }
comma = { type = "decimal", decimal = ",", default = "1,50" }
"""
    poi = read(MINIMAL.replace("[datasets.poi.fields]", fields)).dataset("poi")

    by_name = {each.name: each for each in poi.fields}
    price, whole = by_name["price"], by_name["whole"]
    assert (price.min, price.max) == (
        Decimal("0.1"),
        Decimal("12345678901234567890.12"),
    )
    assert str(price.default) == "1.10"
    assert (whole.min, str(whole.default)) == (2**53 + 1, "9007199254740993.0")
    assert [str(each) for each in by_name["rate"].choices] == ["0.10", "19.0", "7"]
    assert str(by_name["comma"].default) == "1.50"
    assert not price.is_normalized


def test_a_decimal_may_be_the_key_and_has_one_form_there(read):
    poi = read(
        MINIMAL.replace(
            "[datasets.poi.fields]",
            '[datasets.poi.fields]\ncode = { type = "decimal" }',
        ).replace('key = "id"', 'key = "code"')
    ).dataset("poi")

    assert poi.key == ("code",)
    assert next(each for each in poi.fields if each.name == "code").is_normalized


@pytest.mark.parametrize("default", ["nan", "-inf", "1e400", '"1e250"', '"x"', "true"])
def test_a_default_that_is_no_decimal_is_refused(refuse, default):
    field = f'price = {{ type = "decimal", default = {default} }}'

    message = refuse(
        MINIMAL.replace("[datasets.poi.fields]", f"[datasets.poi.fields]\n{field}")
    )

    assert any("price.default" in each for each in message)


def test_a_source_is_read_with_its_body_auth_and_limits(read):
    settings = read(
        MINIMAL
        + """
method = "POST"
body = { area = [1.5, 2], name = "x" }
query = { limit = 5, all = true, lat = 47.50 }
auth = { type = "oauth2", token_url = "https://id.example.org/", client_id = "me", client_secret = "${OCM_API_KEY}", scope = "a b" }
records = "data.items"
max_bytes = "10MB"
cap = 1000
[datasets.poi.source.pages]
by = "page"
send = "page"
first = 0
end = "short"
size = { value = 50 }
"""  # noqa: E501
    )

    source = settings.dataset("poi").source
    assert source.body == {"area": [1.5, 2], "name": "x"}
    assert source.query == {"limit": "5", "all": "true", "lat": "47.50"}
    assert source.auth is not None
    assert source.auth.type is AuthKind.OAUTH2
    assert source.auth.client_secret == SECRET
    assert source.records == ("data", "items")
    assert (source.max_bytes, source.cap) == (10_000_000, 1000)
    assert (source.pages.first, source.pages.end) == (0, End.SHORT)
    assert (source.pages.size, source.pages.size_send) == (50, None)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("60s", 60), ("250ms", 0.25), ("1h30m", 5400), ("2h", 7200), ("365d", 31_536_000),
     ("1.5s", 1.5), ("5 min", 300), ("0s", 0)],
)  # fmt: skip
def test_durations_are_read_as_people_write_them(text, seconds):
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("text", "spelled"),
    [("10/s", "10/s"), ("600/min", "600/min"), ("1000/h", "1000/h"), ("1/2s", "1/2s"),
     ("20000/day", "20000/day"), ("5 per second", "5/s"), ("60 / 60 s", "60/min")],
)  # fmt: skip
def test_rates_are_read_as_people_write_them(text, spelled):
    assert str(parse_rate(text)) == spelled


@pytest.mark.parametrize(
    ("text", "size"),
    [("64MiB", 2**26), ("10MB", 10**7), ("1.5 KiB", 1536), ("7B", 7), (512, 512)],
)
def test_sizes_are_read_as_people_write_them(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("parse", [parse_duration, parse_rate, parse_size])
@pytest.mark.parametrize(
    "value",
    ["", "s", "60", "-5s", "5/", "0/s", "5 parsecs", "٣s", "1e9s", True, None, 1.5,
     "9" * 30 + "d", "9" * 30 + "/s", "9" * 30 + "MB", "9" * 5000, [], "5/0s"],
)  # fmt: skip
def test_other_units_are_refused_with_what_is_allowed(parse, value):
    with pytest.raises(ValueError, match=r"such as|longer|between|allow"):
        parse(value)


BAD_KEYS = {
    "unknown section": ("[budget.x]\n", "budget: unknown key; did you mean 'budgets'?"),
    "unknown key": (
        "[datasets.poi.missing]\ndoo = 'keep'",
        "datasets.poi.missing.doo: unknown key; did you mean 'do'?",
    ),
    "unknown key in a variant": (
        SHARDS + "c = { kind = 'list', sent = 'c', values = [1] }",
        "datasets.poi.shards.c.sent: unknown key; did you mean 'send'?",
    ),
    "nearest kind": (
        SHARDS + "c = { kind = 'lists', values = [1] }",
        (
            "datasets.poi.shards.c.kind: 'lists' is not one of list, time, range, "
            "bbox; did you mean 'list'?"
        ),
    ),
    "no kind": (SHARDS + "c = { values = [1] }", "datasets.poi.shards.c.kind: is req"),
    "wrong type": (
        "[datasets.poi.delta]\nsend = 5\nfield = 'x'",
        "datasets.poi.delta.send: must be text in quotes, not a whole number",
    ),
    "missing key": (PAGES, "datasets.poi.source.pages.by: is required"),
    "no unknown key without a list": (
        "[datasets.poi.bad]\nzzzzz = 1",
        "datasets.poi.bad.zzzzz: unknown key; known here are max, max_ratio",
    ),
    "ratio": ("[datasets.poi.bad]\nmax_ratio = 2", "bad.max_ratio: must be at most 1"),
    "bad name": (
        "[budgets.'My API']\nrate = '1/s'",
        'budgets."My API": is no name',
    ),
    "our name": (
        "[datasets.penstock_x]\n",
        "datasets.penstock_x: names that begin with penstock_ or sqlite_ are taken",
    ),
    "bad axis name": (
        SHARDS + "'A|b' = { kind = 'list', send = 'x', values = [1] }",
        'datasets.poi.shards."A|b": is no name',
    ),
    "stop_on": (
        "[budgets.b]\nrate = '1/s'\nstop_on = [200]",
        "budgets.b.stop_on[0]: must be at least 400",
    ),
    "same limit": (
        "[budgets.b]\nrate = ['60/min', '60/60s']",
        "budgets.b.rate: names two limits for the same period",
    ),
    "rate as number": (
        "[budgets.b]\nrate = 20",
        "budgets.b.rate: must be text such as '20/s', or a list of them, not a whole",
    ),
    "no rate": ("[budgets.b]\nrate = []", "budgets.b.rate: must have at least 1"),
    "csv": (
        "[datasets.r.source]\ntype = 'csv'\nfile = 'x'",
        "datasets.r.source.file: unknown key; did you mean 'files'?",
    ),
    "schedules": ("[schedules.x]\ndataset = 'poi'", "schedules.x: nothing says when"),
}


@pytest.mark.parametrize(("added", "problem"), BAD_KEYS.values(), ids=list(BAD_KEYS))
def test_a_wrong_key_is_named_with_the_nearest_word(refuse, added, problem):
    assert any(problem in each for each in refuse(MINIMAL + added))


HOOK_SECRET = "whsec_aG9vay1zZWNyZXQtb2YtdGhlLXRlc3RzLTEyMzQ="
HOOK_URL = f"url = 'https://example.org/hook'\nsecret = '{HOOK_SECRET}'"
BAD_PENSTOCK = {
    "memory": ("database = 'sqlite:///:memory:'", "database: must name a file"),
    "no file": ("database = 'sqlite://'", "database: must name a file"),
    "options": ("database = 'sqlite:///x.db?mode=ro'", "takes a file name only"),
    "folder": ("database = 'sqlite:///data/'", "database: names a folder"),
    "no text": ("database = 5", "database: must be text in quotes, such as 'sqlite"),
    "no redis text": ("redis = 6379", "redis: must be text in quotes, such as 'redis"),
    "replicas of a file": (
        "replicas = ['postgresql://u@h/d']",
        "penstock.replicas: SQLite has no replicas; remove it, or name a PostgreSQL",
    ),
    "a replica that is none": (
        "replicas = ['redis://h']",
        "penstock.replicas[0]: must be the address of a replica, such as 'postgresql",
    ),
    "engine": ("engine = 'rq'", "penstock.engine: 'rq' is not one of local, celery"),
    "retention": (
        "[retention]\nimports = '90s'",
        "retention.imports: '90s' is shorter than 3600s",
    ),
    "a hook that leads nowhere": (
        "[hooks.pager]\non = ['import_failed']",
        "hooks.pager: leads nowhere; add url, or call = 'module:function'",
    ),
    "a hook that leads to two": (
        f"[hooks.pager]\non = 'import_done'\n{HOOK_URL}\ncall = 'a:b'",
        "hooks.pager.call: and url exclude each other; declare two hooks",
    ),
    "a hook of an unknown fact": (
        f"[hooks.pager]\non = 'import_fails'\n{HOOK_URL}",
        "hooks.pager.on: 'import_fails' is not one of import_failed, import_done",
    ),
    "a hook of no fact": (
        f"[hooks.pager]\non = []\n{HOOK_URL}",
        "hooks.pager.on: is empty; name some of import_failed, import_done",
    ),
    "a hook without TLS": (
        f"[hooks.pager]\non = 'import_done'\n{HOOK_URL.replace('https', 'http')}",
        "hooks.pager.url: must begin with https://: others could read messages",
    ),
    "a hook with a password": (
        f"[hooks.pager]\non = 'import_done'\n{HOOK_URL.replace('//', '//u:p@')}",
        "hooks.pager.url: must hold neither a password nor a '#'",
    ),
    "a hook at no address": (
        f"[hooks.pager]\non = 'import_done'\n{HOOK_URL.replace('https:', 'ftp:')}",
        "hooks.pager.url: is not an address such as 'https://example.org/hook'",
    ),
    "a hook without a secret": (
        "[hooks.pager]\non = 'import_done'\nurl = 'https://example.org/hook'",
        "hooks.pager.secret: is required by url, so that the receiver can verify",
    ),
    "a hook with a short secret": (
        f"[hooks.pager]\non = 'import_done'\n{HOOK_URL.replace(HOOK_SECRET, 'aGk=')}",
        "hooks.pager.secret: must be base64 of 24 to 64 bytes; make one: openssl",
    ),
    "a hook with a password for a secret": (
        f"[hooks.pager]\non = 'import_done'\n{HOOK_URL.replace(HOOK_SECRET, 'hm!')}",
        "hooks.pager.secret: is not base64; make one: openssl rand -base64 32",
    ),
    "a hook that calls no function": (
        "[hooks.pager]\non = 'import_done'\ncall = 'alerts.send'",
        "hooks.pager.call: must be 'module:function', such as 'alerts:send'",
    ),
    "a function with a secret": (
        f"[hooks.pager]\non = 'import_done'\ncall = 'a:b'\nsecret = '{HOOK_SECRET}'",
        "hooks.pager.secret: has no meaning with call; remove it",
    ),
    "celery on a file": (
        "engine = 'celery'\nbroker = 'redis://h'",
        "penstock.engine: Celery's workers need a database server; name a PostgreSQL",
    ),
    "celery without a broker": (
        "engine = 'celery'",
        "penstock.broker: is required by engine = 'celery'",
    ),
    "a broker of another kind": (
        "broker = 'sqs://h'",
        "penstock.broker: sqs:// is not the address of a broker that this version",
    ),
    "an AMQP broker without a host": (
        "broker = 'amqp:///v'",
        "penstock.broker: must name one host; write 'amqp://user:password@host:5672/v",
    ),
    "an AMQP broker without a password": (
        "broker = 'amqps://me@h/v'",
        "penstock.broker: has a user and no password; write amqps://user:password@",
    ),
    "an AMQP broker with options": (
        "broker = 'amqp://h/v?heartbeat=1'",
        "penstock.broker: takes no options",
    ),
    "a broker that is none": ("broker = 5", "penstock.broker: is not the address of"),
    "schema of a file": (
        "schema = 'tenant'",
        "penstock.schema: SQLite has no schemas; remove it, or name a PostgreSQL",
    ),
    "lease": ("lease = '5'", "lease: '5' is not a duration such as"),
    "lease number": ("lease = 60", "lease: must be a duration such as"),
    "attempts": ("attempts = 0", "attempts: must be at least 1"),
    "sum": (
        "lease = '50s'",
        (
            "datasets.poi.source.timeout: timeout 30s + penstock.wait 10s + "
            "penstock.commit_timeout 10s = 50s does not fit in penstock.lease = 50s"
        ),
    ),
}


@pytest.mark.parametrize(
    ("added", "problem"), BAD_PENSTOCK.values(), ids=list(BAD_PENSTOCK)
)
def test_a_wrong_common_setting_is_refused(refuse, added, problem):
    text = MINIMAL.replace("[penstock]", f"[penstock]\n{added}")

    assert [each for each in refuse(text) if problem in each]


def in_penstock(*lines: str) -> str:
    return MINIMAL.replace("[penstock]", "\n".join(["[penstock]", *lines]))


ON_POSTGRES = "database = 'postgresql://u@h/d'"
PERCENT_ENCODE = "percent-encode its user and password"
BAD_DATABASES = {
    "mysql": ("mysql://u@h/d", "mysql:// is not supported; write 'sqlite:///"),
    "driver": ("postgresql+psycopg://u@h/d", "driver; write postgresql://"),
    "capitals": ("POSTGRES://u@h/d", "small letters; write postgresql://"),
    "no scheme": ("host=h dbname=d", "is not the address of a database; write"),
    "no slashes": ("postgresql:u@h/d", "is not the address of a database; write"),
    "no host": ("postgresql://u@/d", "names no host; write 'postgresql://user@host"),
    "nothing": ("postgresql://", "names no host; write 'postgresql://user@host"),
    "empty host option": ("postgresql:///d?host=", "names no host"),
    "no database": ("postgresql://u@h", "names no database behind the host; write"),
    "slash only": ("postgresql://u@h/", "names no database behind the host; write"),
    "two names": ("postgresql://u@h/a/b", "goes on behind the name of the database"),
    "hosts": ("postgresql://u@h,,i/d", "has an empty host between its commas"),
    "no number": ("postgresql://u@h:pg/d", "port that is no number from 1 to 65535"),
    "port 0": ("postgresql://u@h:0/d", "port that is no number from 1 to 65535"),
    "high port": ("postgresql://u@h:65536/d", "port that is no number from 1 to"),
    "empty port": ("postgresql://u@h:/d", "port that is no number from 1 to 65535"),
    "port option": ("postgresql://u@h/d?port=1,x", "port that is no number from 1 to"),
    "bracket": ("postgresql://u@[::1/d", "brackets around what is no IPv6 address"),
    "no IPv6": ("postgresql://u@[h]/d", "brackets around what is no IPv6 address"),
    "fragment": ("postgresql://u@h/d#x", "must have no fragment; write %23 for a #"),
    "space": ("postgresql://u@h/my db", "holds a space, a line break or"),
    "letter": ("postgresql://ü@h/d", "or a character outside ASCII; remove it, or"),
    "no escape": ("postgresql://u:100%@h/d", "write %25 for a plain %"),
    "no text": ("postgresql://u:%ff@h/d", "holds escapes that are not UTF-8 text"),
    "escaped line": ("postgresql://u:a%0A@h/d", "the escape of a control character"),
    "at": ("postgresql://u:a@b@h/d", PERCENT_ENCODE),
    "slash": ("postgresql://u:a/b@h/d", PERCENT_ENCODE),
    "question": ("postgresql://u:a?b@h/d", PERCENT_ENCODE),
    "brackets": ("postgresql://u:a[b]@h/d", PERCENT_ENCODE),
    "option": ("postgresql://u@h/d?sslmod=x", "did you mean 'sslmode'?"),
    "odd option": ("postgresql://u@h/d?qqqq=x", "'qqqq' is no option of PostgreSQL; r"),
    "no value": ("postgresql://u@h/d?sslmode", "not written as name=value&name=value"),
    "end": ("postgresql://u@h/d?sslmode=require&", "not written as name=value"),
    "equals": ("postgresql://u@h/d?host=a=b", "not written as name=value"),
    "twice": ("postgresql://u@h/d?user=a", "says user before and behind the '?'"),
    "option twice": (
        "postgresql://u@h/d?sslmode=require&sslmode=disable",
        "gives option 'sslmode' twice; keep one",
    ),
    "options": (
        "postgresql://u@h/d?options=-csearch_path%3Dx",
        "option 'options' is set by Penstock itself; remove it, and set it for the ro",
    ),
    "name": ("postgresql://u@h/d?application_name=x", "is set by Penstock itself"),
    "encoding": ("postgresql://u@h/d?client_encoding=x", "is set by Penstock itself"),
    "replication": ("postgresql://u@h/d?replication=1", "opens no session that can"),
    "ssl": ("postgresql://u@h/d?ssl=true", "write sslmode=require"),
}


@pytest.mark.parametrize(
    ("url", "problem"), BAD_DATABASES.values(), ids=list(BAD_DATABASES)
)
def test_a_wrong_database_is_refused_with_a_remedy(refuse, url, problem):
    [found] = refuse(in_penstock(f"database = '{url}'"))

    assert found.startswith("penstock.database: ")
    assert problem in found


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("postgresql://u@h/d", "postgresql://u@h/d"),
        ("postgres://h/d", "postgres://h/d"),
        ("postgresql://u:pass@h:5433/d", "postgresql://u@h:5433/d"),
        ("postgresql://u:a:b%40@[::1]:1/d", "postgresql://u@[::1]:1/d"),
        ("postgresql://h,i:5433/d", "postgresql://h,i:5433/d"),
        ("postgresql://%2Ftmp/d", "postgresql://%2Ftmp/d"),
        ("postgresql:///d?host=/tmp&port=5433", "postgresql:///d?host=/tmp&port=5433"),
        ("postgresql://?service=main", "postgresql://?service=main"),
        ("postgresql://h?dbname=d", "postgresql://h?dbname=d"),
        (
            "postgresql://u@h/d?password=pass&sslmode=verify-full&sslpassword=key",
            "postgresql://u@h/d?sslmode=verify-full",
        ),
        (
            "postgresql://u@h/d?connect_timeout=5",
            "postgresql://u@h/d?connect_timeout=5",
        ),
    ],
)
def test_a_database_may_be_a_server(read, url, place):
    settings = read(in_penstock(f"database = '{url}'"))

    assert settings.postgres_url == settings.database == url
    assert settings.sqlite_path is None
    assert settings.place == place
    assert settings.schema == "penstock"


def test_a_database_in_a_file_is_no_server(read):
    settings = read(MINIMAL)

    assert settings.postgres_url is None
    assert settings.place == "sqlite:///penstock.db"
    assert settings.redis is None


def test_every_option_of_libpq_is_either_known_or_refused():
    of_libpq = {each.keyword.decode() for each in pq.Conninfo.get_defaults()}

    assert of_libpq <= POSTGRES_OPTIONS | REFUSED_OPTIONS.keys()
    assert not POSTGRES_OPTIONS & REFUSED_OPTIONS.keys()


BAD_REDIS = {
    "scheme": ("valkey://h", "valkey:// is not the address of a Redis server; write"),
    "no scheme": ("127.0.0.1:6379", "is not the address of a Redis server; write 're"),
    "no host": ("redis://", "names no host; write 'redis://127.0.0.1:6379/0'"),
    "database only": ("redis:///0", "names no host; write 'redis://127.0.0.1:6379/0'"),
    "hosts": ("redis://h,i", "must name one host"),
    "port": ("redis://h:redis", "port that is no number from 1 to 65535"),
    "database": ("redis://h/main", "must end with the number of a database, as"),
    "two databases": ("redis://h/1/2", "must end with the number of a database, as"),
    "minus": ("redis://h/-1", "must end with the number of a database, as"),
    "option": ("redis://h/0?db=1", "takes no options; write 'redis://"),
    "tls option": ("rediss://h?ssl_ca_cert=x", "did you mean 'ssl_ca_certs'?"),
    "cert": ("rediss://h?ssl_cert_reqs=no", "must be one of none, optional, required"),
    "user only": ("redis://pass@h", "has a user and no password; write redis://user:"),
    "at": ("redis://:a@b@h", PERCENT_ENCODE),
    "fragment": ("redis://h#0", "must have no fragment"),
    "space": ("redis://h /0", "holds a space, a line break or"),
    "no socket": ("unix://", "must name a socket by its whole path, as 'unix:///run"),
    "root": ("unix:///", "must name a socket by its whole path, as 'unix:///run"),
    "folder": ("unix:///run/", "must name a socket by its whole path, as 'unix:///run"),
    "relative": ("unix://run/r.sock", "must name a socket by its whole path, as"),
    "socket option": ("unix:///r.sock?dbb=0", "did you mean 'db'?"),
    "socket database": ("unix:///r.sock?db=x", "db must be the number of a database"),
}


@pytest.mark.parametrize(("url", "problem"), BAD_REDIS.values(), ids=list(BAD_REDIS))
def test_a_wrong_redis_is_refused_with_a_remedy(refuse, url, problem):
    [found] = refuse(in_penstock(f"redis = '{url}'"))

    assert found.startswith("penstock.redis: ")
    assert problem in found


@pytest.mark.parametrize(
    "url",
    ["redis://h", "redis://127.0.0.1:6379/0", "redis://:pass@h/15", "redis://[::1]/",
     "rediss://u:pass@h?ssl_ca_certs=/ca.pem&ssl_cert_reqs=required",
     "unix:///run/redis.sock", "unix://u:pass@/run/redis.sock?db=3"],
)  # fmt: skip
@pytest.mark.parametrize("database", ["sqlite:///x.db", "postgresql://u@h/d"])
def test_redis_stands_beside_any_database(read, database, url):
    settings = read(in_penstock(f"database = '{database}'", f"redis = '{url}'"))

    assert settings.redis == url


def test_replicas_stand_beside_a_server_and_their_passwords_are_hidden(read):
    url = "postgresql://u:hidden-word@replica/d"
    settings = read(in_penstock(ON_POSTGRES, f"replicas = ['{url}']"))

    assert settings.replicas == (url,)
    assert "hidden-word" not in settings.redact(f"cannot reach {url}")


@pytest.mark.parametrize("name", ["public", "tenant_7", "penstock_test"])
def test_a_server_may_hold_several_schemas(read, name):
    assert read(in_penstock(ON_POSTGRES, f"schema = '{name}'")).schema == name


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("pg_temp", "is PostgreSQL's own; choose another, such as 'penstock'"),
        ("information_schema", "is PostgreSQL's own; choose another"),
        ("My Schema", "is no name"),
        ("", "is no name"),
        ("x" * 49, "is no name"),
    ],
)
def test_a_wrong_schema_is_refused(refuse, name, problem):
    [found] = refuse(in_penstock(ON_POSTGRES, f"schema = '{name}'"))

    assert found.startswith("penstock.schema: ")
    assert problem in found


BAD_FIELDS = {
    "min for text": ("x = { min = 1 }", "x.min: has no meaning for type text"),
    "pattern for int": ("x = { type='int', pattern='a' }", "x.pattern: has no meaning"),
    "pattern": ("x = { pattern = '(' }", "x.pattern: is not a regular expression"),
    "type": ("x = { type = 'flaot' }", "did you mean 'float'?"),
    "min over max": ("x = { type='int', min=2, max=1 }", "x.min: 2 is greater than"),
    "default type": ("x = { type='int', default='a' }", "x.default: 'a' is not of"),
    "default range": ("x = { type='int', default=5, max=1 }", "x.default: 5 is not in"),
    "choice type": ("x = { type='int', enum=['a'] }", "x.enum: 'a' is not of type"),
    "default choice": ("x = { enum=['a'], default='b' }", "x.default: 'b' is not one"),
    "two choices": ("x = { enum=['a'], choices=['a'] }", "x.enum: means the same as"),
    "default, required": ("x = { required=true, default='b' }", "x.default: is never"),
    "local path": ("x = { path='a', local=true }", "x.path: has no meaning for a loc"),
    "local required": ("x = { required=true, local=true }", "x.required: is impossib"),
    "empty step": ("x = 'a..b'", "x: 'a..b' has an empty step"),
    "top": ("x = ''", "x.path: '' is the whole record"),
    "format": ("x = { type='date', format='%E' }", "x.format: is not a form"),
    "minutes for months": (
        "x = { type='date', format='%d.%M.%Y' }",
        "of them would be in January; did you mean '%d.%m.%Y'?",
    ),
    "minutes for months of a time": (
        "x = { type='timestamp', format='%d.%M.%Y' }",
        "did you mean '%d.%m.%Y'?",
    ),
    "no month": ("x = { type='date', format='%Y' }", "has no month, so all of them"),
    "hours of a date": (
        "x = { type='date', format='%d.%m.%Y %H:%M' }",
        'x.format: has hours or minutes, and a date has none; declare type = "timest',
    ),
    "shape": ("x = 5", "x: must be a table, not a whole number"),
    "column": ("x = { column='a' }", "x.column: is for csv; give 'path'"),
    "name": ("X = 'a'", "fields.X: is no name"),
    "decimal": ("x = { decimal = ',' }", "x.decimal: has no meaning for type text"),
    "reference": ("x = { references = 'poi' }", "'poi' is not 'dataset.field'"),
    "reference to": ("x = { references = 'po.id' }", "did you mean 'poi'?"),
    "reference at": ("x = { references = 'poi.ID' }", "did you mean 'id'?"),
    "reference type": ("x = { references = 'poi.id' }", "poi.id is of type int, not"),
    "reference index": ("x = { references = 'poi.name' }", "poi.name has no index"),
}


@pytest.mark.parametrize(
    ("added", "problem"), BAD_FIELDS.values(), ids=list(BAD_FIELDS)
)
def test_a_wrong_field_is_refused(refuse, added, problem):
    fields = "[datasets.poi.fields]\n"

    found = refuse(MINIMAL.replace(fields, fields + added + "\n"))

    assert len(found) == 1
    assert problem in found[0]
    assert found[0].startswith("datasets.poi.fields.")


BAD_USES = {
    "key": ("key = 'id'", "key = 'idd'", "key: 'idd' is not a declared field; did you"),
    "local key": ("key = 'id'", "key = 'note'", "key: 'note' is a local field"),
    "key type": ("key = 'id'", "key = 'lat'", "key: 'lat' is of type float, not date"),
    "key twice": ("key = 'id'", "key = ['id', 'id']", "key: names 'id' twice"),
    "no key": ("key = 'id'", "key = []", "key: must have at least 1"),
    "search": ("key = 'id'", "key = 'id'\nsearch = ['id']", "search: 'id' is of type"),
    "geo": ("key = 'id'", "key = 'id'\ngeo = ['lat', 'lonn']", "did you mean 'lon'?"),
    "one geo": ("key = 'id'", "key = 'id'\ngeo = ['lat']", "geo: must have at least 2"),
    "filter": ("key = 'id'", "key = 'id'\nfilter = ['extra']", "'extra' is of type js"),
    "version": ("key = 'id'", "key = 'id'\nversion = 'note'", "version: 'note' is a l"),
    "transform": ("key = 'id'", "key = 'id'\ntransform = 'x.y'", "not 'module:functi"),
    "archive": ("key = 'id'", "key = 'id'\narchive = {}", "archive.after: is required"),
    "partition": ("key = 'id'", "key = 'id'\npartition = 'nam'", "did you mean 'name'"),
    "local partition": (
        "key = 'id'",
        "key = 'id'\npartition = 'note'",
        "partition: 'note' is a local field, which no import brings",
    ),
    "partition type": (
        "key = 'id'",
        "key = 'id'\npartition = 'lat'",
        "partition: 'lat' is of type float, not int or text",
    ),
    "empty partition": (
        "key = 'id'",
        "key = 'id'\npartition = 'name'",
        (
            "partition: 'name' may be missing, and then a row has no partition; "
            "give it required = true or a default"
        ),
    ),
    "row and field": ("key = 'id'", "key = ['*', 'id']", "key: '*' is the whole row"),
    "local beside the row": ("key = 'id'", "key = '*'", 'note.local: with key = "*",'),
    "version of the row": (
        "key = 'id'",
        "key = '*'\nversion = 'id'",
        "version: with ke",
    ),
    "key default": ('type = "int"', 'type = "int", default = 1', "id.default: is nev"),
}


def test_a_field_with_the_name_of_the_key_of_a_row_is_refused(read, refuse):
    text = MINIMAL.replace("note = { local = true }", "row_key = 'Note'")

    assert len(read(text).dataset("poi").fields) == 6
    [problem] = refuse(text.replace('key = "id"', "key = '*'"))
    assert problem.startswith("datasets.poi.fields.row_key: ")
    assert problem.endswith("; call the field row_key_value")


def test_equal_rows_are_no_loss_where_the_whole_row_is_the_key(read):
    text = MINIMAL.replace("note = { local = true }", "")
    whole = text.replace('key = "id"', "key = '*'")
    declared = whole.replace("key = '*'", "key = '*'\nmax_duplicates = 0.5")

    limits = [
        read(each).dataset("poi").max_duplicates for each in (text, whole, declared)
    ]

    assert limits == [0.1, 1, 0.5]


@pytest.mark.parametrize(
    ("uses", "declared", "longest"),
    [
        ("key = 'name'", "'Name'", 300),
        ("key = ['id', 'name']", "'Name'", 300),
        ("key = 'id'\nfilter = ['name']", "'Name'", 300),
        ("key = 'id'\nfilter = ['name']", "{ max_length = 20 }", 20),
        ("key = 'id'\nfilter = ['name']", "{ max_length = 300 }", 300),
        # one index holds them together
        ("key = ['name', 'town']", "'Name'", 150),
        ("key = 'town'\npartition = 'name'", "{ required = true }", 150),
        ("key = 'id'\npartition = 'name'", "{ required = true }", 300),
        ("key = ['name', 'town']\nfilter = ['name']", "'Name'", 150),
        ("key = 'id'\nsearch = ['name']", "'Name'", None),
        ("key = 'id'\nsearch = ['name']", "{ max_length = 9000 }", 9000),
    ],
)
def test_a_text_is_no_longer_than_its_index_can_hold(read, uses, declared, longest):
    text = MINIMAL.replace('key = "id"', uses).replace(
        'name = "Name"', f"name = {declared}\ntown = 'Town'"
    )

    (name,) = [each for each in read(text).dataset("poi").fields if each.name == "name"]

    assert name.max_length == longest


@pytest.mark.parametrize(
    ("uses", "declared", "problem"),
    [
        (
            "key = 'id'\nfilter = ['name']",
            "{ max_length = 301 }",
            (
                "name.max_length: 301 is more than an index holds of this text; "
                "give at most 300, or remove it from key and filter"
            ),
        ),
        ("key = ['name', 'town']", "{ max_length = 151 }", "give at most 150"),
        (
            "key = 'id'\nfilter = ['name']",
            f"{{ default = '{'x' * 601}' }}",
            "name.default: is longer than the 300 characters that an index holds",
        ),
    ],
)
def test_a_text_that_no_index_can_hold_is_refused(refuse, uses, declared, problem):
    text = MINIMAL.replace('key = "id"', uses).replace(
        'name = "Name"', f"name = {declared}\ntown = 'Town'"
    )

    assert [each for each in refuse(text) if problem in each]


@pytest.mark.parametrize(
    ("old", "new", "problem"), BAD_USES.values(), ids=list(BAD_USES)
)
def test_a_use_of_a_field_is_held_against_its_declaration(refuse, old, new, problem):
    text = MINIMAL.replace(old.replace("'", '"'), new, 1)

    assert [each for each in refuse(text) if problem in each]


@pytest.mark.parametrize(
    ("field", "declared"),
    [
        ("id", "{ type = 'int' }"),
        ("area", "{ required = true }"),
        ("area", "{ type = 'int', required = true }"),
        ("area", "{ default = 'none' }"),
        ("area", "{ type = 'int', default = 0 }"),
    ],
)
@pytest.mark.parametrize("database", ["sqlite:///x.db", "postgresql://u@h/d"])
def test_a_dataset_is_divided_by_a_field_that_is_never_empty(
    read, database, field, declared
):
    text = in_penstock(f"database = '{database}'").replace(
        'id = { type = "int" }\n', ""
    )
    text = text.replace("[datasets.poi]", f"[datasets.poi]\npartition = '{field}'")
    fields = {"id": "{ type = 'int' }", field: declared}
    lines = "\n".join(f"{name} = {each}" for name, each in fields.items())

    settings = read(text.replace("poi.fields]", f"poi.fields]\n{lines}"))

    assert settings.dataset("poi").partition == field


def test_a_default_of_spaces_leaves_a_row_without_partition(refuse):
    text = MINIMAL.replace("[datasets.poi]", "[datasets.poi]\npartition = 'area'")

    [found] = refuse(
        text.replace("poi.fields]", "poi.fields]\narea = { default = ' ' }")
    )

    assert "partition: 'area' may be missing" in found


BAD_SOURCES = {
    "scheme": ("url = 'ftp://x/y'", "url: must begin with http:// or https://"),
    "host": ("url = 'https:///y'", "url: is not an address"),
    "port": ("url = 'https://x:99999/y'", "url: is not an address"),
    "ipv6": ("url = 'https://[x/y'", "url: is not an address"),
    "password": ("url = 'https://a:b@x/y'", "url: must hold no password"),
    "query": ("url = 'https://x/y?a=b'", "url: must end with its path"),
    "brace": ("url = 'https://x/{y'", "url: has a brace without its partner"),
    "host axis": ("url = 'https://{y}/'", "url: may hold {axis} in its path only"),
    "unknown axis": ("url = 'https://x/{y}'", "url: {y} names no shard axis"),
    "method": ("method = 'get'", "method: 'get' is not one of GET, POST; did you mean"),
    "body": ("body = { a = 1 }", "body: is sent by POST only"),
    "query value": ("query = { a = [1] }", "query.a: must be text, a number, true"),
    "header": ("headers = { A = 'a\\nb' }", "headers.A: holds a line break"),
    "header name": ("headers = { 'a b' = 'c' }", 'headers."a b": is not a header name'),
    "records": ("records = '.'", "records: '.' has an empty step"),
    "budget": ("budget = 'apy'", "budget: budget 'apy' is not declared; did you mean"),
    "timeout": ("timeout = '0s'", "timeout: '0s' must be longer than nothing"),
    "size": ("max_bytes = '1 ton'", "max_bytes: '1 ton' is not a size such as"),
    "cap": ("cap = 0", "cap: must be at least 1"),
    "auth": ("auth = { type = 'beaver' }", "auth.type: 'beaver' is not one of bearer"),
    "token": ("auth = { type = 'bearer' }", "auth.token: is required"),
    "auth key": (
        "auth = { type = 'bearer', token = 'x', user = 'y' }",
        "auth.user: unknown key",
    ),
    "auth twice": (
        "auth = { type = 'bearer', token = 'x' }\nheaders = { authorization = 'y' }",
        "auth: and headers.Authorization exclude each other",
    ),
}


@pytest.mark.parametrize(
    ("added", "problem"), BAD_SOURCES.values(), ids=list(BAD_SOURCES)
)
def test_a_wrong_source_is_refused(refuse, added, problem):
    text = MINIMAL + added.replace("'a\\nb'", '"a\\nb"')
    if added.startswith("url"):
        text = MINIMAL.replace('url = "https://api.example.org/poi"', added)

    found = refuse(text)

    assert len(found) == 1
    assert f"datasets.poi.source.{problem}" in found[0]


BAD_PAGES = {
    "keyset": ("by = 'keyset'", ["send: is required", "field: is required"]),
    "offset": ("by = 'offset'\nsend = 'o'", ["size: is required"]),
    "cursor": ("by = 'cursor'\nsend = 'c'", ["next: is required"]),
    "page": ("by = 'page'", ["send: is required"]),
    "unused": (
        "by = 'keyset'\nsend = 'a'\nfield = 'id'\nfirst = 1",
        ['first: has no meaning with by = "keyset"'],
    ),
    "single": ("by = 'single'\nmax = 5", ["max: has no meaning with by"]),
    "short": ("by = 'page'\nsend = 'p'\nend = 'short'", ['end: "short" needs size']),
    "kind": ("by = 'keysets'", ["by: 'keysets' is not one of keyset"]),
    "order": ("by = 'single'\norder = { a = [] }", ["order.a: must be text, a numb"]),
    "sent twice": (
        "by = 'page'\nsend = 'p'\norder = { p = 1 }",
        ["order.p: parameter 'p' is sent by source.pages.send too"],
    ),
}


@pytest.mark.parametrize(("added", "problems"), BAD_PAGES.values(), ids=list(BAD_PAGES))
def test_wrong_pages_are_refused(refuse, added, problems):
    found = refuse(MINIMAL + PAGES + added)

    assert len(found) == len(problems)
    for each, problem in zip(found, problems, strict=True):
        assert each.startswith(f"datasets.poi.source.pages.{problem}")


BOTH = "send = { from = 'a', until = 'b' }, "
BOX = "w = { kind = 'bbox', send = 'x', "
BAD_AXES = {
    "never sent": (
        "w = { kind = 'list', values = [1] }",
        "axis 'w' is never sent: give it send, or put {w} into the url",
    ),
    "no values": ("w = { kind = 'list', send = 'x', values = [] }", "at least 1"),
    "twice": ("w = { kind='list', send='x', values=[1, '1'] }", "names a value twice"),
    "bool": ("w = { kind='list', send='x', values=[true] }", "values[0]: must be text"),
    "shape": (
        "w = { kind='list', send='x', values=5 }",
        "values: must be a list, or {",
    ),
    "dataset": (
        "w = { kind='list', send='x', values={ dataset='pois', field='id' } }",
        "values.dataset: dataset 'pois' is not declared; did you mean 'poi'?",
    ),
    "dataset field": (
        "w = { kind='list', send='x', values={ dataset='poi', field='idd' } }",
        "values.field: 'idd' is not a field of 'poi'; did you mean 'id'?",
    ),
    "itself": (
        "w = { kind='list', send='x', values={ dataset='poi', field='id' } }",
        "values.dataset: dataset 'poi' would have to wait for itself",
    ),
    "lower bound only": (
        WINDOW + "step = '1h', send = { from = 'a' } }",
        "send: names only a parameter for from, so every window would read up to now",
    ),
    "upper bound only": (
        WINDOW + "step = '1h', send = { until = 'a' } }",
        "send: names only a parameter for until, so every window would read from the",
    ),
    "no send": (WINDOW + "step = '1h' }", "send: is required"),
    "empty send": (WINDOW + "send = {} }", "send: must name a parameter for from"),
    "naive": (
        "w = { kind = 'time', from = 2026-01-01T00:00:00, " + BOTH + "step = '1h' }",
        "from: '2026-01-01 00:00:00' does not say its zone; say the zone, e.g. Z",
    ),
    "no time": (
        "w = { kind = 'time', from = 'soon', " + BOTH + "step = '1h' }",
        "from: 'soon' is",
    ),
    "until": (WINDOW + BOTH + "until = 2025-01-01T00:00:00Z }", "until: must be later"),
    "step": (WINDOW + BOTH + "step = '1500ms' }", "step: must be whole seconds"),
    "unit of step": (
        WINDOW + BOTH + "step = '1h', format = '%Y-%m-%d' }",
        "step: must be whole units of 86400s: format '%Y-%m-%d' tells no finer time",
    ),
    "unit of from": (
        "w = { kind='time', from=2026-01-01T00:00:30Z, format='%F %H:%M', "
        + BOTH
        + "step = '1h' }",
        "from: must be whole units of 60s",
    ),
    "no date": (WINDOW + BOTH + "format = '%H:%M:%S' }", "apart alike"),
    "bounds": (WINDOW + BOTH + "bounds = '[[' }", "bounds: '[[' is not one of"),
    "smallest": (WINDOW + BOTH + "step='1h', smallest='2h' }", "smallest: must not be"),
    "area": (BOX + "area=[50, 0, 40, 1], step=1 }", "area: must be [south, west, nor"),
    "meridians": (BOX + "area=[0, 5, 1, 5], step=1 }", "area: west and east must diff"),
    "edges": (BOX + "area=[0, 5, 1], step=1 }", "area: must have at least 4"),
    "nan": (BOX + "area=[0, 5, 1, nan], step=1 }", "area[3]: is no number of degrees"),
    "tiny": (BOX + "area=[0, 5, 1, 6], step=1e-99 }", "step: must have at most 9"),
    "no step": (BOX + "area=[0, 5, 1, 6], step=0 }", "step: must be greater than 0"),
    "box format": (
        BOX + "area=[0, 5, 1, 6], step=1, format='{south.real}' }",
        "format: must hold {south} {west} {north} {east}, and no other braces",
    ),
    "one check": (BOX + "area=[0, 5, 1, 6], step=1, check=['a'] }", "check: must have"),
    "range": (
        "w = { kind='range', from=5, until=5, " + BOTH + "step = 1 }",
        "until: must be greater than from",
    ),
    "range without keyset": (
        "w = { kind='range', from=0, until=5, step=1 }",
        'send: needs from and until without pages.by = "keyset"',
    ),
    "range smallest": (
        "w = { kind='range', from=0, until=5, smallest=2, " + BOTH + "step = 1 }",
        "smallest: must not be greater than step",
    ),
    "sent twice": (
        (
            "v = { kind='list', send='x', values=[1] }\n"
            "w = { kind='list', send='x', values=[1] }"
        ),
        "send: parameter 'x' is sent by shards.v too",
    ),
}


@pytest.mark.parametrize(("added", "problem"), BAD_AXES.values(), ids=list(BAD_AXES))
def test_a_wrong_axis_is_refused(refuse, added, problem):
    found = refuse(MINIMAL + SHARDS + added)

    assert any(problem in each for each in found)
    assert all(each.startswith("datasets.poi.shards.w") for each in found)


def test_only_a_list_axis_can_stand_in_the_url(refuse):
    text = MINIMAL.replace("/poi", "/{w}") + SHARDS + WINDOW + BOTH + "step = '1h' }"

    assert refuse(text) == [
        "datasets.poi.source.url: {w}: only the value of a list axis can stand in a url"
    ]


def test_a_parameter_is_not_sent_by_the_query_and_an_axis(refuse, read):
    axis = SHARDS + "w = { kind = 'list', send = 'x', values = [1] }"
    query = "query = { x = 1 }\n"

    assert refuse(MINIMAL + query + axis) == [
        "datasets.poi.shards.w.send: parameter 'x' is sent by source.query too"
    ]
    assert read(MINIMAL + "method = 'POST'\n" + query + axis)


def test_a_delta_may_be_requested_in_epoch_seconds(read):
    delta = "[datasets.poi.delta]\nsend = 'since'\nfield = 'at'\nformat = '%s'"

    assert read(MINIMAL + delta).dataset("poi").delta.format == "%s"


def test_datasets_do_not_wait_for_each_other(refuse):
    values = "w = { kind='list', send='x', values={ dataset='%s', field='id' } }\n"
    other = MINIMAL[MINIMAL.index("[datasets.poi]") :] + SHARDS + values % "poi"

    found = refuse(
        MINIMAL
        + SHARDS
        + values % "two"
        + other.replace("datasets.poi", "datasets.two")
    )

    assert [each.partition(": ")[2] for each in found] == [
        "dataset 'poi' would have to wait for itself, through 'two'",
        "dataset 'two' would have to wait for itself, through 'poi'",
    ]


def test_all_problems_of_a_file_are_reported_at_once(refuse):
    text = (
        STARTER.replace("[penstock]", "[penstock]\nleese = '60s'")
        .replace('"20000/day"', '"5/parsec"')
        .replace('type = "float", min = -90', 'typ = "float", min = -90')
        .replace('by    = "keyset"', 'by    = "keyst"')
    )

    assert refuse(text, {}) == [
        (
            "datasets.poi.source.headers.X-API-Key: "
            "environment variable 'OCM_API_KEY' is not set"
        ),
        "penstock.leese: unknown key; did you mean 'lease'?",
        (
            "budgets.ocm.rate[1]: '5/parsec' is not a rate such as '10/s', '600/min', "
            "'1000/h', '20000/day' or '1/2s'"
        ),
        "datasets.poi.fields.lat.typ: unknown key; did you mean 'type'?",
        (
            "datasets.poi.source.pages.by: 'keyst' is not one of keyset, offset, page, "
            "cursor, link, single; did you mean 'keyset'?"
        ),
    ]


def test_a_file_without_datasets_says_how_to_declare_one(refuse):
    assert refuse("") == ["datasets: is required; declare a dataset as [datasets.NAME]"]


@pytest.mark.parametrize(
    ("content", "result"),
    [
        (b"[a\n", "line 1, column 3: expected ']'"),
        (b"a = 1\nb = [", "line 2, the end of the file: invalid value"),
        (b"a = 1\na = 2\n", "line 2, column 6: cannot overwrite a value"),
        (b"a = 1\nb = '\xff'\n", "line 2: is not UTF-8 text"),
        (b"a = " + b"[" * 5000, "is nested too deeply"),
        (b"a = " + b"9" * 5000, "holds a number that is too long"),
        (b"a" + b".a" * 500 + b" = 1", "a.a.a: is nested too deeply"),
    ],
    ids=["bracket", "end", "twice", "bytes", "lists", "digits", "tables"],
)
def test_what_is_not_toml_is_reported_with_its_line(folder, content, result):
    path = folder / "penstock.toml"
    path.write_bytes(content)

    with pytest.raises(Misconfigured) as caught:
        load(path, {})

    assert caught.value.problems[0].startswith(f"{path}: {result}")


def test_a_missing_file_suggests_init(folder):
    with pytest.raises(
        Misconfigured, match="no such file; write one with: penstock init"
    ):
        load(folder / "penstock.toml", {})


def test_a_folder_is_no_settings_file(folder):
    with pytest.raises(Misconfigured, match="is a folder, not a file"):
        load(folder, {})


def test_an_impossible_path_is_a_sentence(folder):
    with pytest.raises(Misconfigured, match="cannot be read"):
        load(Path("a\x00b"), {})


def test_an_unknown_dataset_suggests_the_nearest(read):
    with pytest.raises(NotFound, match=r"'poy' is not declared in .* mean 'poi'"):
        read(MINIMAL).dataset("poy")


@pytest.mark.parametrize(
    ("database", "expected"),
    [("sqlite:///data/x.db", "data/x.db"), ("sqlite:////var/x.db", "/var/x.db")],
)
def test_a_relative_database_lies_beside_the_file(read, folder, database, expected):
    settings = read(MINIMAL.replace("[penstock]", f"[penstock]\ndatabase='{database}'"))

    assert settings.sqlite_path == folder / expected


def test_secrets_are_filled_anywhere_and_dollars_can_be_escaped(read):
    source = (
        read(
            MINIMAL
            + 'query = { a = "x-${OCM_API_KEY}-y", b = "$${OCM_API_KEY}", c = "$" }'
        )
        .dataset("poi")
        .source
    )

    assert source.query == {"a": f"x-{SECRET}-y", "b": "${OCM_API_KEY}", "c": "$"}


@pytest.mark.parametrize("text", ["${}", "${1A}", "${A", "${A B}"])
def test_a_placeholder_without_a_name_is_refused(refuse, text):
    [problem] = refuse(MINIMAL + f"query = {{ a = '{text}' }}")

    assert problem.startswith("datasets.poi.source.query.a: ")
    assert "names no variable" in problem


def test_a_variable_that_is_not_text_is_refused(refuse):
    [problem] = refuse(STARTER, {"OCM_API_KEY": "\udcff\udcfe12"})

    assert "does not hold UTF-8 text" in problem


def test_a_gap_is_not_reported_twice(refuse):
    [problem] = refuse(MINIMAL.replace("[penstock]", "[penstock]\nlease = '${GONE}'"))

    assert problem == "penstock.lease: environment variable 'GONE' is not set"


def test_redact_hides_every_form_of_a_secret(read):
    secret = 'p/ü+ "x\\y'
    settings = read(
        MINIMAL + 'auth = { type = "basic", username = "ann", password = "${PASS}" }',
        {"PASS": secret},
    )
    pair = base64.b64encode(f"ann:{secret}".encode()).decode()

    for form in (
        secret,
        quote(secret),
        quote(secret, safe=""),
        quote_plus(secret),
        json.dumps(secret)[1:-1],
        repr(secret)[1:-1],
    ):
        assert settings.redact(f"<{form}>") == "<${PASS}>"
    hidden = settings.redact(f"Basic {pair}")
    assert hidden == "Basic ${datasets.poi.source.auth.password}"


def test_redact_hides_the_longest_secret_first_and_ignores_tiny_ones(read):
    query = 'query = { a = "${A}", b = "${B}", c = "${C}", d = "${D}" }'
    environ = {"A": "abcd", "B": "abcdefgh", "C": "x", "D": ""}

    settings = read(MINIMAL + query, environ)

    assert settings.redact("abcdefgh abcd x") == "${B} ${A} x"


def test_a_credential_written_in_the_file_is_a_secret_too(read):
    settings = read(MINIMAL + 'auth = { type = "bearer", token = "open-token" }')

    hidden = settings.redact("Bearer open-token")
    assert hidden == "Bearer ${datasets.poi.source.auth.token}"


CANARY = "c4nary/Ünd+x"
WRITTEN = quote(CANARY, safe="").lower()


@pytest.mark.parametrize(
    ("key", "url"),
    [
        ("database", f"postgresql://u:{WRITTEN}@h/d"),
        ("database", f"postgres://u@h/d?password={WRITTEN}"),
        ("database", f"postgresql://u@h/d?sslmode=require&sslpassword={WRITTEN}"),
        ("redis", f"redis://:{WRITTEN}@h/0"),
        ("redis", f"unix://u:{WRITTEN}@/run/redis.sock"),
        ("redis", f"rediss://h?ssl_password={WRITTEN}"),
    ],
)
def test_a_password_written_in_an_address_is_a_secret_too(read, key, url):
    settings = read(in_penstock(f"{key} = '{url}'"))

    assert "c4nary" not in f"{settings!r} {settings} {settings.place}"
    for form in (
        WRITTEN,
        CANARY,
        quote(CANARY),
        quote_plus(CANARY),
        repr(CANARY)[1:-1],
    ):
        assert settings.redact(f"<{form}>") == f"<${{penstock.{key}}}>"
    assert "c4nary" not in settings.redact(url).lower()


@pytest.mark.parametrize("key", ["database", "redis"])
@pytest.mark.parametrize(
    "url",
    ["%s://u:c4nary@h:x/1", "%s://u:c4nary@x@h/1", "%s://u:c4/nary@h/1",
     "%s://u:12/c4nary?c4nary@h/1", "%s://u:c4nary?c4nary@h/1", "%s://u:c4nary#@h/1",
     "%s://u:c4nary%%@h/1", "%s://u:c4nary %%0A@h/1", "%s://u:c4nary@/?c4nary=1@2",
     "%s://c4nary@h/a/b", "%s://u:c4nary[@h/1", "mongo%s://u:c4nary@h/1",
     "%s+x://u:c4nary@h/1", "u:c4nary@h", "c4nary", "%s://h/1?password=c4nary&x=1"],
)  # fmt: skip
def test_a_refused_address_is_not_repeated(refuse, key, url):
    scheme = {"database": "postgresql", "redis": "redis"}[key]
    written = url % scheme if "%s" in url else url

    problems = refuse(in_penstock(f"{key} = '{written}'"))

    assert any(each.startswith(f"penstock.{key}: ") for each in problems)
    assert "c4" not in "".join(problems)
    assert "nary" not in "".join(problems)


def test_a_password_is_in_no_problem_of_another_key(refuse):
    database = "database = 'postgresql://u:c4nary@h/d'"

    [problem] = refuse(in_penstock(database, "lease = 'c4nary'"))

    assert problem.startswith("penstock.lease: '${penstock.database}' is not")


def test_a_password_from_the_environment_keeps_its_name(read):
    url = "postgresql://u:${PGPASSWORD}@${PGHOST}/d"
    environ = {"PGPASSWORD": "c4%40nary", "PGHOST": "db.internal"}

    settings = read(in_penstock(f"database = '{url}'"), environ)

    assert settings.postgres_url == "postgresql://u:c4%40nary@db.internal/d"
    assert settings.place == "postgresql://u@${PGHOST}/d"
    assert settings.redact("c4%40nary") == "${PGPASSWORD}"
    assert settings.redact("c4@nary") == "${penstock.database}"


@pytest.mark.parametrize("login", ["someone:someone", "u:penstock", "u:data", "u:host"])
def test_a_password_that_is_shown_as_a_name_hides_no_name(read, login):
    settings = read(in_penstock(f"database = 'postgresql://{login}@host/data'"))

    assert settings.redact("someone data host penstock") == "someone data host penstock"
    assert settings.place == f"postgresql://{login.partition(':')[0]}@host/data"


def test_a_password_does_not_make_an_address_of_a_dataset_secret(read):
    text = in_penstock("database = 'postgresql://u:example@h/d'")

    assert read(text + PAGES + "by = 'link'").redact("example") != "example"


def test_an_address_in_a_traceback_has_no_password():
    address = read_address("redis://u:c4nary@h/0", such_as="redis://h/0")

    assert repr(address) == "ServerAddress('redis://u@h/0')"


escapes = st.sampled_from(["%40", "%2f", "%C3%BC", "%", "%00", "%ff", "%0A"])
parts = st.one_of(
    escapes,
    st.sampled_from(
        [":", "@", "/", "?", "&", "=", ",", "[", "]", "#", "+", "::1", "5432", "0",
         "host=", "port=", "password=", "sslmode=", "ssl_password=", "db=", "ü", " "]
    ),
    st.text(alphabet="abcXYZ019._-~!$'()*;", min_size=1, max_size=5),
)  # fmt: skip
tails = st.one_of(
    st.lists(parts, max_size=12).map("".join),
    st.tuples(*[st.lists(parts, max_size=3).map("".join)] * 4).map(
        lambda each: "{}:{}@h{}/1?{}".format(*each)
    ),
)


@given(tail=tails)
def test_what_is_accepted_means_the_same_to_libpq(tail):
    url = f"postgresql://{tail}"
    try:
        as_database(url)
    except InvalidValue:
        return

    meant = conninfo_to_dict(url)
    address = read_address(url, such_as=url)
    said = dict(address.options)
    for name, written in {
        "user": address.user,
        "password": address.password,
        "dbname": address.path.removeprefix("/"),
        "host": ",".join(each.name.strip("[]") for each in address.hosts),
    }.items():
        assert meant.get(name, "") == unquote(said.get(name, written))


@given(tail=tails, scheme=st.sampled_from(["redis", "rediss", "unix"]))
def test_what_is_accepted_means_the_same_to_redis(tail, scheme):
    url = f"{scheme}://{tail}"
    try:
        as_redis(url)
    except InvalidValue:
        return

    meant = parse_redis_url(url)
    address = read_address(url, such_as=url)
    assert meant.get("username", "") == unquote(address.user)
    assert meant.get("password", "") == unquote(address.password)
    host = unquote(address.hosts[0].name.strip("[]"))
    assert meant.get("host", "").lower() == host.lower()
    assert meant.get("port", 0) == int(address.hosts[0].port or 0)


@pytest.mark.parametrize(
    "place",
    [
        "lease = '${S}'",
        "database = '${S}'",
        "attempts = '${S}'",
        "${S} = 1",
    ],
)
def test_a_secret_is_in_no_problem(refuse, place):
    secret = "hush 'hush' \\ hush" * 60
    text = MINIMAL.replace("[penstock]", f"[penstock]\n{place}")

    problems = refuse(text.replace("${S} =", "s ="), {"S": secret})

    assert "hush" not in "".join(problems)


@pytest.mark.parametrize(
    "place",
    [
        "url = '${S}'",
        "url = 'https://x/{${S}}'",
        "timeout = '${S}'",
        "method = '${S}'",
        "auth = { type = '${S}' }",
        "budget = '${S}'",
        "records = '..${S}'",
    ],
)
def test_a_secret_is_in_no_problem_of_a_source(refuse, place):
    text = MINIMAL + place
    if place.startswith("url"):
        text = MINIMAL.replace('url = "https://api.example.org/poi"', place)

    assert SECRET not in "".join(refuse(text, {"S": SECRET}))


def test_a_secret_is_not_in_the_text_of_settings(read):
    settings = read(STARTER.replace("/v3/poi/", "/${OCM_API_KEY}/"))

    assert SECRET in settings.dataset("poi").source.url
    assert SECRET not in f"{settings!r} {settings}"


def test_the_fingerprint_is_stable(read):
    first, second = read(STARTER).dataset("poi"), read(STARTER).dataset("poi")

    assert declaration_digest(first) == declaration_digest(second)
    assert len(declaration_digest(first)) == 32


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('type = "float"', 'type = "text"'),
        ("[87, 80]", "[87]"),
        ("/v3/poi/", "/v4/poi/"),
        ('output = "json"', 'output = "xml"'),
        ("value = 500", "value = 100"),
        ('records = ""', 'records = "data"'),
        ('overlap = "2h"', 'overlap = "3h"'),
        ("# cap       = 1000", "cap = 1000"),
    ],
)
def test_the_fingerprint_changes_with_what_is_imported(read, old, new):
    text = STARTER.replace("geo     =", "# geo =").replace(", min = -90, max = 90", "")
    text = text.replace(", min = -180, max = 180", "")
    assert old in text

    changed = read(text.replace(old, new)).dataset("poi")

    assert declaration_digest(changed) != declaration_digest(read(text).dataset("poi"))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('timeout = "30s"', 'timeout = "20s"'),
        ("X-API-Key", "X-Other-Key"),
        ("max_drop = 0.2", "max_drop = 0.3"),
        ("max = 1000, ", "max = 2000, "),
        ("max   = 10000 ", "max   = 20000 "),
        ("# note     =", "note ="),
        ('key     = "id"', 'key     = "id"\npartition = "id"'),
    ],
)
def test_the_fingerprint_ignores_what_may_change_on_the_way(read, old, new):
    assert old in STARTER

    changed = read(STARTER.replace(old, new)).dataset("poi")

    assert declaration_digest(changed) == declaration_digest(
        read(STARTER).dataset("poi")
    )


def test_a_new_secret_keeps_a_redacted_fingerprint(read):
    text = MINIMAL + 'query = { key = "${KEY}" }'
    old, new = read(text, {"KEY": "old-key"}), read(text, {"KEY": "new-key"})

    first, second = old.dataset("poi"), new.dataset("poi")
    assert declaration_digest(first, redact=old.redact) == declaration_digest(
        second, redact=new.redact
    )
    assert declaration_digest(replace(first, key=("name",))) != declaration_digest(
        first
    )


words = st.one_of(
    st.sampled_from(
        ["", "id", "poi", "list", "time", "60s", "5/s", "${X}", "{x}", "%Y", "http",
         "https://x/{a}", "a..b", "é", "x" * 60, "sqlite:///a", "2026-01-01T00:00:00Z"]
    ),
    st.text(alphabet="az09._-{}$%/[]()\\ ", max_size=8),
)  # fmt: skip
keys = st.one_of(
    st.sampled_from(
        ["penstock", "budgets", "datasets", "poi", "fields", "source", "shards", "id",
         "kind", "type", "list", "values", "send", "from", "until", "step", "pages"]
    ),
    words.filter(bool),
)  # fmt: skip
leaves = st.one_of(
    words,
    st.booleans(),
    st.integers(),
    st.just(10**400),
    st.sampled_from(["nan", "inf", "-0.0", "1e999", "1e-999", "1.5"]).map(Decimal),
    st.datetimes(),
    st.dates(),
    st.times(),
)
garbage = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(keys, inner, max_size=3)
    ),
    max_leaves=8,
)


def dump(value: object) -> str:
    if isinstance(value, dict):
        pairs = (f"{dump(str(key))} = {dump(each)}" for key, each in value.items())
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(dump, value)) + "]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Decimal | int):
        return str(value).lower().replace("infinity", "inf")
    return str(value.isoformat())  # type: ignore[attr-defined]


def settle(folder: Path, tree: dict[str, object]) -> None:
    path = folder / "penstock.toml"
    lines = (f"{dump(str(key))} = {dump(each)}" for key, each in tree.items())
    path.write_text("\n".join(lines), encoding="utf-8")
    try:
        settings = load(path, ENVIRON)
    except Misconfigured:
        return
    assert all(declaration_digest(each) for each in settings.datasets.values())


@given(tree=st.dictionaries(keys, garbage, max_size=4))
def test_any_tree_gives_settings_or_sentences(tmp_path_factory, tree):
    settle(tmp_path_factory.getbasetemp(), tree)


FULL = tomllib.loads(
    STARTER.replace("# version", "version")
    + """
[datasets.poi.shards.tile]
kind = "bbox"
area = [47.2, 5.8, 55.1, 15.1]
step = 1.0
send = "boundingbox"
[datasets.poi.shards.window]
kind = "time"
from = "2026-01-01T00:00:00Z"
step = "1h"
send = { from = "since", until = "before" }
[datasets.poi.shards.ids]
kind = "range"
from = 0
until = 500000
step = 20000
""",
    parse_float=Decimal,
)


@given(data=st.data())
def test_any_damage_to_a_good_tree_gives_settings_or_sentences(tmp_path_factory, data):
    tree = deepcopy(FULL)
    node = tree
    for _ in range(data.draw(st.integers(0, 5))):
        inner = [each for each in node.values() if isinstance(each, dict) and each]
        if not inner:
            break
        node = data.draw(st.sampled_from(inner))
    key = data.draw(st.one_of(st.sampled_from([*node]), keys))
    node[key] = data.draw(garbage)

    settle(tmp_path_factory.getbasetemp(), tree)


def test_a_secret_in_an_address_that_links_repeat_is_refused(tmp_path):
    path = tmp_path / "penstock.toml"
    path.write_text(
        "[datasets.poi]\nkey = 'id'\n[datasets.poi.fields]\nid = 'ID'\n"
        "[datasets.poi.source]\nurl = 'https://example.org/${KEY}/poi'\n"
        "pages = { by = 'link' }\n",
        encoding="utf-8",
    )

    with pytest.raises(Misconfigured) as refused:
        load(path, {"KEY": "very-secret-value"})

    assert "datasets.poi.source.url: holds a secret" in str(refused.value)
    assert "very-secret-value" not in str(refused.value)


SHOPS = """
[datasets.shops]
key = "uid"
[datasets.shops.source]
type = "csv"
{source}
[datasets.shops.fields]
uid = {{ column = "Shop Id" }}
name = {{}}
{fields}
"""


def test_a_dataset_may_come_from_files(read, folder):
    shops = read(
        MINIMAL
        + SHOPS.format(
            source='files = "shops-*.csv"\nshard = "1MiB"\n'
            'null = ["", "NULL"]\ndelimiter = ";"',
            fields='region = { references = "poi.id", type = "int" }',
        )
    ).dataset("shops")

    assert shops.csv == CsvSource(
        files=("shops-*.csv",),
        folder=str(folder),
        spool=str(folder / "spool"),
        shard=1024 * 1024,
        null=("", "NULL"),
        delimiter=";",
    )
    assert shops.paths == (("Shop Id",), ("name",), ("region",))
    assert shops.axes == (FileAxis(),)
    assert shops.fields[2].references == Reference("poi", "id")


@pytest.mark.parametrize(
    ("source", "fields", "problem"),
    [
        ("delimiter = ';;'", "", "source.delimiter: must be one character"),
        ("delimiter = '\"'", "", "source.quote: is the delimiter as well"),
        ("encoding = 'latin-99'", "", "source.encoding: is no encoding"),
        ("shard = '1KiB'", "", "source.shard: is less than 64KiB"),
        ("header = false", "", "source.columns: are required"),
        ("columns = ['a']", "", "source.columns: are for files without a header"),
        ("escape = '\"'", "", "source.escape: is the quote as well"),
        (
            "escape = ';'\ndelimiter = ';'",
            "",
            "source.escape: is the delimiter as well",
        ),
        ("unclosed_quote = 'skip'", "", "source.unclosed_quote: 'skip' is not one of"),
        ("header = false\ncolumns = ['a', 'a']", "", "source.columns: names 'a' twice"),
        ("url = 'https://example.org'", "", "source.url: unknown key"),
        ("files = 'http://example.org/a.csv'", "", "must begin with https://, unless"),
        ("", "x = 'a'", "fields.x.path: is for http; give 'column'"),
        ("", "[datasets.shops.delta]\nsend='s'\nfield='f'", "delta: has no meaning"),
    ],
)
def test_a_wrong_declaration_of_files_is_reported(read, source, fields, problem):
    files = "" if source.startswith("files") else "files = 'a.csv'\n"

    with pytest.raises(Misconfigured) as caught:
        read(SHOPS.format(source=files + source, fields=fields))

    assert problem in str(caught.value)


SERVER = '[penstock]\ndatabase = "postgresql://localhost/penstock"\n'


def declared(*fields: str, on: str = "[penstock]\n") -> str:
    """Return the smallest file with these fields more."""
    more = "".join(f'\n{name} = "Other"' for name in fields)
    text = MINIMAL.replace("[penstock]\n", on)
    return text.replace('name = "Name"', f'name = "Name"{more}')


@pytest.mark.parametrize("name", ["ctid", "xmin", "xmax", "cmin", "cmax", "tableoid"])
def test_a_field_that_every_table_of_postgresql_has_is_refused(refuse, read, name):
    found = refuse(declared(name, on=SERVER))

    assert [
        each
        for each in found
        if f"datasets.poi.fields.{name}: every table of PostgreSQL has" in each
        and f"call the field {name}_value" in each
    ]
    # a file of SQLite may have such a column already
    assert read(declared(name))


@pytest.mark.parametrize(("on", "most"), [("[penstock]\n", 1_990), (SERVER, 1_590)])
def test_a_dataset_has_no_more_fields_than_a_table_has_columns(refuse, read, on, most):
    others = [f"f{at}" for at in range(most - 6)]

    assert len(read(declared(*others, on=on)).dataset("poi").fields) == most
    assert [
        each
        for each in refuse(declared(*others, "one_more", on=on))
        if f"datasets.poi.fields: {most + 1:,} fields are more than" in each
    ]


def test_a_dataset_is_not_called_as_the_live_view_of_another(refuse, read):
    other = MINIMAL[MINIMAL.index("[datasets") :].replace("poi", "poi_live")

    assert [
        each
        for each in refuse(MINIMAL + other)
        if "datasets.poi_live: is the name of the view" in each
    ]
    assert read(other)


FILES = """
[datasets.shops]
key = "id"
{dataset}
[datasets.shops.source]
{source}
[datasets.shops.fields]
id = {{ type = "int" }}
{fields}
"""
CSV = 'type = "csv"\nfiles = "a.csv"\n'
# what people write, where it is refused, and the remedy that they are told
REMEDIES = {
    "a spreadsheet": (
        {"source": 'type = "excel"\nfiles = "a.xlsx"'},
        "source.type: 'excel' is not one of csv, http",
        'save the sheet as CSV, and declare type = "csv"',
    ),
    "a type of nothing": (
        {"source": 'type = "cvs"\nfiles = "a.csv"'},
        "source.type: 'cvs' is not one of csv, http",
        "did you mean 'csv'?",
    ),
    "no type for files": (
        {"source": 'files = "a.csv"'},
        "source.type: is required for files",
        'add type = "csv"',
    ),
    "a tab in words": (
        {"source": CSV + 'delimiter = "tab"'},
        "source.delimiter: must be one character, and no line break",
        'for a tab write "\\t"',
    ),
    "a tab in a literal": (
        {"source": CSV + "delimiter = '\\t'"},
        "source.delimiter: must be one character, and no line break",
        'for a \\t write "\\t"',
    ),
    "what to do with missing rows": (
        {"dataset": 'missing = "mark"'},
        "missing: must be a table, not text",
        'write it as missing = { do = "mark" }',
    ),
    "a format of a spreadsheet": (
        {"fields": 'd = { type = "date", format = "DD.MM.YYYY" }'},
        "fields.d.format: is not a format of strptime",
        "did you mean '%d.%m.%Y'?",
    ),
    "no format": (
        {"fields": 'd = { type = "date", format = "day first" }'},
        "fields.d.format: is not a format by which times can be read",
        "write one such as '%d.%m.%Y %H:%M', or '%s' for seconds since 1970",
    ),
    "no pattern": (
        {"fields": 'd = { pattern = "[a-" }'},
        "fields.d.pattern: is not a regular expression",
        "write one such as '^[0-9]{5}$'",
    ),
}


@pytest.mark.parametrize("written", REMEDIES)
def test_what_people_write_is_refused_with_its_remedy(refuse, written):
    parts, problem, remedy = REMEDIES[written]
    table = {"dataset": "", "source": CSV.strip(), "fields": "", **parts}

    found = refuse(FILES.format(**table))

    assert found == [f"datasets.shops.{problem}; {remedy}"]


@pytest.mark.parametrize("quotes", ["\u201c\u201d", "\u201e\u201c", "\u2018\u2019"])
def test_the_quotes_of_word_processors_are_named(refuse, quotes):
    field = f"d = {{ type = {quotes[0]}date{quotes[1]} }}"

    (result,) = refuse(FILES.format(dataset="", source=CSV.strip(), fields=field))

    assert result.startswith("line 10, column 14: invalid value")
    assert result.endswith(f"{quotes[0]} is no quote of TOML: write \" or ' instead")


@pytest.mark.parametrize(
    ("place", "at"),
    [
        ('headers = { X-API-Key = "$OCM_API_KEY" }', "headers.X-API-Key"),
        ('headers = { Authorization = "Token $OCM_API_KEY" }', "headers.Authorization"),
        ('query = { key = "$OCM_API_KEY" }', "query.key"),
        ('auth = { type = "bearer", token = "$OCM_API_KEY" }', "auth.token"),
    ],
)
def test_a_variable_without_braces_is_not_taken_for_a_secret(refuse, place, at):
    (result,) = refuse(f"{MINIMAL}{place}\n")

    assert result.startswith(
        f"datasets.poi.source.{at}: names OCM_API_KEY without braces"
    )
    assert result.endswith("; write ${OCM_API_KEY}")


@pytest.mark.parametrize(
    ("place", "at"),
    [
        ('auth = { type = "bearer", token = "$SECRETPW99" }', "auth.token"),
        ('headers = { X-API-Key = "key-$SECRETPW99" }', "headers.X-API-Key"),
        ('query = { key = "$SECRETPW99" }', "query.key"),
    ],
)
def test_a_secret_that_resembles_a_variable_is_not_shown(refuse, read, place, at):
    (message,) = refuse(f"{MINIMAL}{place}\n")

    assert "SECRETPW99" not in message
    assert message == (
        f"datasets.poi.source.{at}: holds $ and capitals where a credential stands; "
        "put the value into an environment variable and write ${NAME}"
    )
    # as it says, the value itself can be used
    place = place.replace("$SECRETPW99", "${PASSWORD}")
    settings = read(f"{MINIMAL}{place}\n", {**ENVIRON, "PASSWORD": "$SECRETPW99"})
    assert settings.secrets["$SECRETPW99"] == "${PASSWORD}"


@pytest.mark.parametrize("value", ["$filter", "US$5", "$$HOME", "a$", "$1"])
def test_a_dollar_that_names_no_variable_stays(read, value):
    settings = read(f'{MINIMAL}query = {{ key = "{value}" }}\n')

    assert settings.dataset("poi").http.query["key"] == value
