"""The declared source of records: an HTTP provider with pages, or CSV files."""

import base64
import dataclasses
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import TypeAlias

from penstock.errors import Misconfigured

# the names from the root of a raw record to a value: ("AddressInfo", "Town")
Path: TypeAlias = tuple[str, ...]


def parse_path(text: str) -> Path:
    """Parse `AddressInfo.Town`; the empty text is the root itself."""
    return tuple(text.split(".")) if text else ()


class Paging(StrEnum):
    KEYSET = "keyset"
    OFFSET = "offset"
    PAGE = "page"
    CURSOR = "cursor"
    LINK = "link"
    SINGLE = "single"


class End(StrEnum):
    """What proves the end of a shard where the provider gives no next page."""

    EMPTY = "empty"
    SHORT = "short"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pagination:
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
    # cursor and link: the path of the next token or URL in the body
    next: Path | None = None
    max: int = 10_000
    end: End = End.EMPTY


class AuthKind(StrEnum):
    BEARER = "bearer"
    BASIC = "basic"
    OAUTH2 = "oauth2"


@dataclass(frozen=True, slots=True, kw_only=True)
class Auth:
    """How requests are authenticated; secrets are never printed."""

    type: AuthKind
    token: str = dataclasses.field(default="", repr=False)
    username: str = dataclasses.field(default="", repr=False)
    password: str = dataclasses.field(default="", repr=False)
    token_url: str = dataclasses.field(default="", repr=False)
    client_id: str = dataclasses.field(default="", repr=False)
    client_secret: str = dataclasses.field(default="", repr=False)
    scope: str = ""


def basic_token(username: str, password: str) -> str:
    """Return the credentials of HTTP's basic authentication."""
    return base64.b64encode(f"{username}:{password}".encode()).decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSource:
    """One HTTP endpoint that returns pages of records."""

    url: str = dataclasses.field(repr=False)
    pages: Pagination = dataclasses.field(default_factory=Pagination)
    method: str = "GET"
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)
    query: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)
    body: Mapping[str, object] | None = dataclasses.field(default=None, repr=False)
    auth: Auth | None = None
    records: Path = ()
    budget: str | None = None
    timeout: timedelta = timedelta(seconds=30)
    max_bytes: int = 64 * 1024 * 1024
    # the provider never returns more records than this for one query
    cap: int | None = None
    # where a response reports an error, and how many records there are; None: members
    # with such names
    error: Path | None = None
    total: Path | None = None

    @property
    def is_budgeted(self) -> bool:
        """Whether a page costs a token of a budget."""
        return True

    @property
    def max_empty_lines(self) -> None:
        """No limit: this source has no empty lines."""

    @property
    def most_pages(self) -> int:
        """The number of pages after which a shard counts as cut off, and is divided."""
        return self.pages.max

    @property
    def order(self) -> Path | None:
        """The path of the value that pages are ordered by."""
        return self.pages.field


class Unsized(StrEnum):
    """What to do with a downloaded file whose size the server did not state."""

    FAIL = "fail"
    ACCEPT = "accept"


class UnclosedQuote(StrEnum):
    """What to do with a quote that is still open at the end of a file."""

    FAIL = "fail"
    # everything after it is one bad row
    ROW = "row"


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvSource:
    """CSV files; a setting that may be None is detected for each file."""

    # patterns, relative to the folder unless they start with /, and URLs
    files: tuple[str, ...]
    folder: str = "."
    # where downloaded and uploaded files are stored
    spool: str = "spool"
    max_bytes: int = 16 * 1024**3
    # timeout of the download of one file
    download: timedelta = timedelta(hours=1)
    # whether URLs in private networks are allowed
    private: bool = False
    # what to do with a download that ends with its connection, without a stated size
    unsized: Unsized = Unsized.FAIL
    # the largest ratio of decompressed to compressed size
    max_expansion: int = 200
    # how many empty lines the files may have, if there are more of them than rows
    max_empty_lines: int = 1_000_000
    # approximate bytes of a shard
    shard: int = 64 * 1024 * 1024
    # cells that mean no value
    null: tuple[str, ...] = ("",)
    delimiter: str | None = None
    quote: str | None = '"'
    # the character that escapes a quote within quotes, in addition to doubling
    escape: str | None = None
    unclosed_quote: UnclosedQuote = UnclosedQuote.FAIL
    encoding: str | None = None
    header: bool = True
    # column names of files without a header
    columns: tuple[str, ...] = ()
    # lines to skip above the header, or above the first row
    skip: int = 0
    # timeout of reading one chunk
    timeout: timedelta = timedelta(seconds=30)
    budget: None = None
    cap: None = None
    most_pages: int = 2**62
    order: None = None

    @property
    def is_budgeted(self) -> bool:
        """Whether a page costs a token of a budget."""
        return False


def is_url(file: str) -> bool:
    """Return whether a file of a source is a URL rather than a pattern."""
    return file.startswith(("http://", "https://"))


def refuse_undecodable_name(file: str) -> None:
    """Raise `Misconfigured` for a name that is not UTF-8, so that none is stored."""
    try:
        file.encode()
    except UnicodeEncodeError:
        shown = file.encode(errors="backslashreplace").decode()
        encoding = sys.getfilesystemencoding()
        if encoding != "utf-8" and is_utf_8(os.fsencode(file)):
            raise Misconfigured(
                f"the name {os.fsencode(file).decode()} cannot be written in "
                f"{encoding}, which this locale uses for names; set PYTHONUTF8=1"
            ) from None
        raise Misconfigured(
            f"the name {shown} is not UTF-8, so no configuration can name it; rename "
            "the file or its folder first"
        ) from None


def is_utf_8(name: bytes) -> bool:
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True


Source: TypeAlias = HttpSource | CsvSource
