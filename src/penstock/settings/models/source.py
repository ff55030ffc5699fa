"""The [datasets.*.source] tables: request, pages and credentials."""

import codecs
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Annotated, Any, Literal, TypeAlias
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field

from penstock.domain.source import End, Paging, UnclosedQuote, Unsized, is_url
from penstock.settings.models.base import (
    Count,
    CountOrNone,
    Duration,
    Parameter,
    RecordPath,
    RecordPathOrTop,
    Size,
    Text,
    Texts,
    TomlModel,
    as_plain,
)
from penstock.settings.validation_errors import InvalidValue, Problem

# common names of characters, and their TOML form
NAMED_CHARACTERS = {
    **dict.fromkeys(("tab", "\\t", "tabulator"), '"\\t"'),
    "comma": '","',
    "semicolon": '";"',
    "space": '" "',
    **dict.fromkeys(("pipe", "bar"), '"|"'),
}
MIN_SHARD_BYTES = 64 * 1024
# lines above a header
MOST_SKIPPED = 1_000
PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")

# the keys of [pages] that each kind requires, and allows in addition
REQUIRED_KEYS = {
    Paging.KEYSET: ("send", "field"),
    Paging.OFFSET: ("send", "size"),
    Paging.PAGE: ("send",),
    Paging.CURSOR: ("send", "next"),
    Paging.LINK: (),
    Paging.SINGLE: (),
}
OPTIONAL_KEYS = {
    Paging.KEYSET: {"order", "size", "max", "end"},
    Paging.OFFSET: {"order", "max", "end"},
    Paging.PAGE: {"first", "order", "size", "max", "end"},
    Paging.CURSOR: {"order", "size", "max"},
    Paging.LINK: {"next", "order", "size", "max"},
    Paging.SINGLE: {"order", "size"},
}


def as_url(url: str) -> str:
    """Check a URL; no message may show it."""
    try:
        split = urlsplit(url)
        port_is_valid = split.port != 0
    except ValueError:
        raise InvalidValue("is not an address such as 'https://host/path'") from None
    if split.scheme not in {"http", "https"}:
        raise InvalidValue("must begin with http:// or https://")
    if not split.hostname or not port_is_valid or not url.isprintable() or " " in url:
        raise InvalidValue("is not an address such as 'https://host/path'")
    if "@" in split.netloc:
        raise InvalidValue("must hold no password; give auth = { type = 'basic', … }")
    return url


def placeholders(url: str) -> list[str]:
    """Return the axes that a URL names, as {axis}."""
    return PLACEHOLDER.findall(urlsplit(url).path)


def as_header_name(name: str) -> str:
    if HEADER_NAME.fullmatch(name) is None:
        raise InvalidValue("is not a header name")
    return name


def as_header(value: str) -> str:
    if not value.isascii():
        raise InvalidValue("holds a character that no header can carry")
    return as_line(value)


def as_line(value: str) -> str:
    # a secret that was read from a file often ends in a newline
    if not value.isprintable():
        raise InvalidValue("holds a line break or another control character")
    return value


def as_character(value: str) -> str:
    if len(value) != 1 or value in "\r\n\0":
        character = NAMED_CHARACTERS.get(value.casefold())
        remedy = "" if character is None else f"; for a {value} write {character}"
        raise InvalidValue(f"must be one character, and no line break{remedy}")
    return value


def as_encoding(name: str) -> str:
    try:
        codecs.lookup(name)
    except (LookupError, ValueError):
        raise InvalidValue(
            "is no encoding that Python knows, such as 'utf-8'"
        ) from None
    return name


Url: TypeAlias = Annotated[str, AfterValidator(as_url)]
HeaderName: TypeAlias = Annotated[str, AfterValidator(as_header_name)]
Header: TypeAlias = Annotated[str, AfterValidator(as_header)]
Line: TypeAlias = Annotated[str, AfterValidator(as_line)]
Character: TypeAlias = Annotated[str, AfterValidator(as_character)]
Credential: TypeAlias = Annotated[Text, AfterValidator(as_header)]


class PageSizeTable(TomlModel):
    send: Text | None = None
    value: Count


class PagesTable(TomlModel):
    by: Annotated[Paging, Field(strict=False)]
    send: Text | None = None
    field: RecordPath | None = None
    order: dict[Text, Parameter] = Field(default_factory=dict)
    size: PageSizeTable | None = None
    first: CountOrNone = 1
    next: RecordPath | None = None
    max: Count = 10_000
    end: Annotated[End, Field(strict=False)] = End.EMPTY

    def rules(self) -> Iterator[Problem]:
        given = self.model_fields_set - {"by"}
        for key in REQUIRED_KEYS[self.by]:
            if key not in given:
                yield (key,), f'is required with by = "{self.by}"'
        for key in sorted(given - {*REQUIRED_KEYS[self.by], *OPTIONAL_KEYS[self.by]}):
            yield (key,), f'has no meaning with by = "{self.by}"'
        if self.end is End.SHORT and "end" in given and self.size is None:
            message = '"short" needs size: without it no page is known to be short'
            yield ("end",), message


class BearerTable(TomlModel):
    type: Literal["bearer"]
    token: Credential


class BasicTable(TomlModel):
    type: Literal["basic"]
    username: Line
    password: Line

    def rules(self) -> Iterator[Problem]:
        if ":" in self.username:
            yield ("username",), "cannot hold a colon: it ends the name"


class OAuth2Table(TomlModel):
    type: Literal["oauth2"]
    token_url: Url
    client_id: Credential
    client_secret: Credential
    scope: Header = ""


AuthTable: TypeAlias = Annotated[
    BearerTable | BasicTable | OAuth2Table, Field(discriminator="type")
]


class SourceTable(TomlModel):
    type: Literal["http"] = "http"
    url: Url
    method: Literal["GET", "POST"] = "GET"
    headers: dict[HeaderName, Header] = Field(default_factory=dict)
    query: dict[Text, Parameter] = Field(default_factory=dict)
    body: Annotated[dict[str, Any], BeforeValidator(as_plain)] | None = None
    auth: AuthTable | None = None
    records: RecordPathOrTop = ()
    budget: Text | None = None
    timeout: Duration = timedelta(seconds=30)
    max_bytes: Size = 64 * 1024 * 1024
    cap: Count | None = None
    error: RecordPath | None = None
    total: RecordPath | None = None
    pages: PagesTable | None = None

    def rules(self) -> Iterator[Problem]:
        split = urlsplit(self.url)
        if split.query or split.fragment:
            yield ("url",), "must end with its path; put parameters into query"
        elif PLACEHOLDER.search(split.netloc):
            yield ("url",), "may hold {axis} in its path only"
        elif set("{}") & set(PLACEHOLDER.sub("", split.path)):
            yield ("url",), "has a brace without its partner; write {axis}"
        if self.body is not None and self.method == "GET":
            yield ("body",), 'is sent by POST only; give method = "POST"'
        if self.auth is not None and "authorization" in lower(self.headers):
            yield ("auth",), "and headers.Authorization exclude each other"


class CsvTable(TomlModel):
    type: Literal["csv"]
    files: Annotated[Texts, Field(min_length=1)]
    shard: Size = 64 * 1024 * 1024
    null: list[str] = Field(default_factory=lambda: [""])
    delimiter: Character | None = None
    quote: Character | None = '"'
    escape: Character | None = None
    unclosed_quote: Annotated[UnclosedQuote, Field(strict=False)] = UnclosedQuote.FAIL
    encoding: Annotated[Text, AfterValidator(as_encoding)] | None = None
    header: bool = True
    columns: Texts = Field(default_factory=list)
    skip: Annotated[CountOrNone, Field(le=MOST_SKIPPED)] = 0
    timeout: Duration = timedelta(seconds=30)
    max_bytes: Size = 16 * 1024**3
    download: Duration = timedelta(hours=1)
    private: bool = False
    unsized: Annotated[Unsized, Field(strict=False)] = Unsized.FAIL
    max_expansion: Count = 200
    max_empty_lines: CountOrNone = 1_000_000

    def rules(self) -> Iterator[Problem]:
        yield from self.address_rules()
        if self.shard < MIN_SHARD_BYTES:
            yield ("shard",), "is less than 64KiB, and a shard costs more than it saves"
        if self.columns and "header" not in self.model_fields_set:
            message = "are for files without a header; give header = false, or true "
            yield ("columns",), f"{message}where they replace the names in it"
        if not self.header and not self.columns:
            yield ("columns",), "are required with header = false"
        if self.quote is not None and self.quote == self.delimiter:
            yield ("quote",), "is the delimiter as well"
        if self.escape is not None:
            yield from self.escape_rules(self.escape)
        for name, times in Counter(self.columns).items():
            if times > 1:
                yield ("columns",), f"names {name!r} twice"

    def escape_rules(self, escape: str) -> Iterator[Problem]:
        if self.quote is None:
            yield ("escape",), "stands before quotes, and these files have none"
        elif escape == self.quote:
            yield ("escape",), "is the quote as well; doubled quotes need no escape"
        if escape == self.delimiter:
            yield ("escape",), "is the delimiter as well"

    def address_rules(self) -> Iterator[Problem]:
        for file in filter(is_url, self.files):
            try:
                as_url(file)
            except InvalidValue as error:
                yield ("files",), str(error)
            if file.startswith("http://") and not self.private:
                yield ("files",), "must begin with https://, unless private = true"


def lower(names: Mapping[str, object]) -> set[str]:
    return {name.lower() for name in names}
