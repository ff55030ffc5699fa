"""Where records come from: a provider and its pages, or files of rows."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import TypeAlias

from penstock.errors import Misconfigured

# the steps from the top of a raw record to a value: ("AddressInfo", "Town")
Path: TypeAlias = tuple[str, ...]


def path_of(text: str) -> Path:
    """Read `AddressInfo.Town` as steps; the empty text is the top itself."""
    return tuple(text.split(".")) if text else ()


class Paging(StrEnum):
    KEYSET = "keyset"
    OFFSET = "offset"
    PAGE = "page"
    CURSOR = "cursor"
    LINK = "link"
    SINGLE = "single"


class End(StrEnum):
    """What proves the end of a shard where the provider names no next page."""

    EMPTY = "empty"
    SHORT = "short"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pages:
    """How one page follows another."""

    by: Paging = Paging.SINGLE
    # the parameter that carries the position: greaterthanid, offset, page, token
    send: str | None = None
    # keyset: the field whose last value is the next position
    field: Path | None = None
    # fixed parameters that make the order stable
    order: Mapping[str, str] = dataclasses.field(default_factory=dict)
    size_send: str | None = None
    size: int | None = None
    first: int = 1
    # cursor and link: where the body names the next token or URL
    next: Path | None = None
    max: int = 10_000
    end: End = End.EMPTY


class AuthKind(StrEnum):
    BEARER = "bearer"
    BASIC = "basic"
    OAUTH2 = "oauth2"


@dataclass(frozen=True, slots=True, kw_only=True)
class Auth:
    """How requests are signed; nothing here is ever printed."""

    type: AuthKind
    token: str = dataclasses.field(default="", repr=False)
    username: str = dataclasses.field(default="", repr=False)
    password: str = dataclasses.field(default="", repr=False)
    token_url: str = dataclasses.field(default="", repr=False)
    client_id: str = dataclasses.field(default="", repr=False)
    client_secret: str = dataclasses.field(default="", repr=False)
    scope: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSource:
    """One HTTP endpoint that yields pages of records."""

    url: str = dataclasses.field(repr=False)
    pages: Pages = dataclasses.field(default_factory=Pages)
    method: str = "GET"
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)
    query: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)
    body: Mapping[str, object] | None = dataclasses.field(default=None, repr=False)
    auth: Auth | None = None
    records: Path = ()
    budget: str | None = None
    timeout: timedelta = timedelta(seconds=30)
    max_bytes: int = 64 * 1024 * 1024
    # the provider never gives more than this for one query
    cap: int | None = None

    @property
    def is_budgeted(self) -> bool:
        """Whether a page costs a token; without a budget it can still be closed."""
        return True

    @property
    def max_empty_lines(self) -> None:
        """What a transform drops is not counted."""

    @property
    def most_pages(self) -> int:
        """How many pages a shard may have before it is taken for cut off."""
        return self.pages.max

    @property
    def order(self) -> Path | None:
        """Where in a raw record the value stands that pages are ordered by."""
        return self.pages.field


class Unsized(StrEnum):
    """What to do with a fetched file whose end nothing proves."""

    FAIL = "fail"
    ACCEPT = "accept"


class UnclosedQuote(StrEnum):
    """What becomes of a quote that is open at the end of a file."""

    FAIL = "fail"
    # all behind it is one bad row
    ROW = "row"


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvSource:
    """Files of rows, found by their names; None is to be found out for each file."""

    # patterns, below the folder unless they begin with /, and addresses
    files: tuple[str, ...]
    folder: str = "."
    # where files are kept that come from elsewhere
    spool: str = "spool"
    max_bytes: int = 16 * 1024**3
    # how long a file may take to come
    download: timedelta = timedelta(hours=1)
    # whether addresses inside of one's own network may be asked
    private: bool = False
    # what a fetched file means whose end only the end of its connection tells
    unsized: Unsized = Unsized.FAIL
    # how many times as large as it is a packed file may become
    max_expansion: int = 200
    # how many empty lines the files may have, if there are more than rows
    max_empty_lines: int = 1_000_000
    # about how many bytes a shard has
    shard: int = 64 * 1024 * 1024
    # what stands for no value
    null: tuple[str, ...] = ("",)
    delimiter: str | None = None
    quote: str | None = '"'
    # what stands before a quote within quotes, beside doubled ones
    escape: str | None = None
    # what becomes of a file with a quote that is never closed
    unclosed_quote: UnclosedQuote = UnclosedQuote.FAIL
    encoding: str | None = None
    header: bool = True
    # the names of the columns where files have no header
    columns: tuple[str, ...] = ()
    # lines above the header, or above the first row
    skip: int = 0
    # how long reading a chunk may take
    timeout: timedelta = timedelta(seconds=30)
    budget: None = None
    cap: None = None
    most_pages: int = 2**62
    order: None = None

    @property
    def is_budgeted(self) -> bool:
        """Whether a page costs a token: nobody limits how fast a file is read."""
        return False


def is_address(file: str) -> bool:
    """Say whether a file of a source is elsewhere, and no pattern of names."""
    return file.startswith(("http://", "https://"))


def refuse_odd_name(file: str) -> None:
    """Refuse a name that neither a configuration nor a ledger could hold."""
    try:
        file.encode()
    except UnicodeEncodeError:
        shown = file.encode(errors="backslashreplace").decode()
        raise Misconfigured(
            f"the name {shown} is not UTF-8, so no configuration can name it; rename "
            "the file or its folder first"
        ) from None


Source: TypeAlias = HttpSource | CsvSource
