"""Read the records of a response body; a body that is not complete JSON is no data.

A single unpaired surrogate, a NaN or one overly deep record makes `msgspec` refuse a
whole page. Such a page is split by its brackets only; each part must still be JSON to
Python's own parser, so that a broken response is never taken for data.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from penstock.adapters.http.end_claims import (
    ClaimPaths,
    EndClaims,
    read_end_claims,
)
from penstock.adapters.http.record_decoder import (
    RecordDecoder,
    RepeatedName,
    decode_written,
    is_index,
    kind,
    sample_repeats_names,
)
from penstock.adapters.http.response_status import snippet
from penstock.domain.mapping.written_numbers import to_exact
from penstock.domain.pages import RawRow
from penstock.domain.redaction import Redactor
from penstock.domain.source import Path
from penstock.errors import Misconfigured, SourceUnavailable

# possessive, and an unclosed string runs to the end: hostile input must cost one pass
TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[\[\]{},]', re.DOTALL)
MEMBER = re.compile(rb'\s*+("[^"\\]*+(?:\\.[^"\\]*+)*+")\s*+:', re.DOTALL)
SPACE = re.compile(rb"\s*+")
COMMA = re.compile(rb"\s*+,?\s*+")
CLOSING = {b"[": b"]", b"{": b"}"}


class UnexpectedType(ValueError):
    """The text is JSON, but not of the expected type."""


def split_items(text: bytes) -> list[bytes]:
    """Return the elements of a list."""
    elements = list(split_parts(text.strip(), b"["))
    for element in elements:
        check_json(element)
    return elements


def split_members(text: bytes) -> dict[str, bytes]:
    """Return the members of an object, or raise `RepeatedName`."""
    found: dict[str, bytes] = {}
    for part in split_parts(text.strip(), b"{"):
        match = MEMBER.match(part)
        if match is None:
            raise ValueError("a member without a name")
        name = json.loads(match[1])
        if name in found:
            raise RepeatedName(name)
        found[name] = part[match.end() :].strip()
    return found


def split_parts(text: bytes, bracket: bytes) -> Iterator[bytes]:
    """Yield the texts between the commas of the outermost brackets."""
    if text[:1] != bracket:
        raise UnexpectedType if text[:1] in CLOSING else ValueError("no brackets")
    closing: list[bytes] = []
    start = 1
    for match in TOKEN.finditer(text):
        token = match[0]
        if token in CLOSING:
            closing.append(CLOSING[token])
        elif token in CLOSING.values() and token != closing.pop():
            raise ValueError("a bracket is closed by another kind")
        if not closing or (len(closing) == 1 and token == b","):
            part = text[start : match.start()].strip()
            if part:
                yield part
            elif closing or start > 1:
                raise ValueError("a comma without a value")
            start = match.end()
        if not closing:
            break
    if closing or start != len(text):
        raise ValueError("the brackets do not close at the end")


def check_json(element: bytes) -> None:
    """Raise `ValueError` if an element is not JSON to a lenient parser."""
    try:
        # the length of a number is checked when its row is read
        json.loads(element.decode(errors="replace"), parse_int=str)
    except RecursionError:
        # too deep to parse, but its brackets match
        return


BYTE_ORDER_MARK = b"\xef\xbb\xbf"
MAX_SNIPPET_LENGTH = 80

_ITEMS = msgspec.json.Decoder(list[msgspec.Raw])
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """The rows of one response, and its next token or link."""

    rows: Sequence[RawRow] = ()
    next: object = None
    # the member for the next page is present, whatever its value
    names_next: bool = True


@dataclass(frozen=True, slots=True)
class RecordSplitter:
    """A way to split a list or an object into the bytes of its parts."""

    items: Callable[[bytes], Sequence[bytes]]
    members: Callable[[bytes], Mapping[str, bytes | msgspec.Raw]]


def strict_items(text: bytes) -> list[bytes]:
    try:
        # a copy costs 0.1 µs a record, and releases the body
        return [bytes(item) for item in _ITEMS.decode(text)]
    except msgspec.ValidationError:
        raise UnexpectedType from None


def strict_members(text: bytes) -> dict[str, msgspec.Raw]:
    try:
        members = _MEMBERS.decode(text)
    except msgspec.ValidationError:
        raise UnexpectedType from None
    if not is_made_of(text, members):
        # a name occurs twice, which this raises, or has two spellings
        split_members(text)
    return members


def is_made_of(text: bytes, members: Mapping[str, msgspec.Raw]) -> bool:
    """Return whether an object consists of these members alone, in this order."""
    position = text.index(b"{") + 1
    for name, value in members.items():
        match = MEMBER.match(text, position)
        if match is None or json.loads(match[1]) != name:
            return False
        begin = skip(SPACE, text, match.end())
        written = bytes(value)
        if not text.startswith(written, begin):
            return False
        position = skip(COMMA, text, begin + len(written))
    return text.startswith(b"}", skip(SPACE, text, position))


def skip(pattern: re.Pattern[bytes], text: bytes, position: int) -> int:
    """Return where what may be missing ends."""
    match = pattern.match(text, position)
    return position if match is None else match.end()


STRICT = RecordSplitter(strict_items, strict_members)
LENIENT = RecordSplitter(split_items, split_members)


class BodyReader:
    """Reads bodies that have their list of records at one path."""

    def __init__(
        self,
        records: Path,
        next_path: Path | None,
        *,
        rows: RecordDecoder,
        redactor: Redactor,
        error: Path | None = None,
        total: Path | None = None,
    ) -> None:
        if next_path is not None and not records:
            raise Misconfigured(
                "source.pages.next is a path in the body, but the body is the list",
                advice=["set source.records to the path of the list"],
            )
        self._records = records
        self._next_path = next_path
        self._rows = rows
        self._redactor = redactor
        self._claim_paths = ClaimPaths(records, error=error, total=total)

    def read(self, body: bytes, *, content_type: str | None) -> Body:
        """Return the rows of a body, or raise `SourceUnavailable`."""
        text = body.removeprefix(BYTE_ORDER_MARK)
        if not text.strip():
            raise SourceUnavailable("the response is empty, where JSON was expected")
        broken: Exception | None = None
        for splitter in (STRICT, LENIENT):
            try:
                return self._read(text, splitter)
            except UnexpectedType as error:
                location = ".".join(self._records) or "the top level"
                reason = f"the response has no list at {location} but {error}"
                raise self._unusable(reason, body, content_type) from error
            except RepeatedName as repeated:
                raise self._unusable(
                    say_repeated(repeated), body, content_type
                ) from None
            except (ValueError, RecursionError) as error:
                broken = error
        reason = "the response is not complete JSON"
        raise self._unusable(reason, body, content_type) from broken

    def read_end_claims(self, body: bytes) -> EndClaims:
        """Return what a body that was read says of errors and further pages."""
        text = body.removeprefix(BYTE_ORDER_MARK)
        try:
            return read_end_claims(text, self._claim_paths, split_object)
        except RepeatedName as repeated:
            raise self.refuse_end(say_repeated(repeated), body) from None

    def refuse_end(self, reason: str, body: bytes) -> SourceUnavailable:
        """Return the error of a body that says that it is not the last page."""
        begin = snippet(body, self._redactor)
        return SourceUnavailable(f"{reason} ({len(body)} bytes, begins {begin!r})")

    def _read(self, text: bytes, splitter: RecordSplitter) -> Body:
        top = None if not self._records else split_top_level(text, splitter)
        found = text if top is None else find_at_path(top, self._records, splitter)
        if found is None:
            raise UnexpectedType("nothing")
        try:
            rows = self._read_rows(found, splitter)
        except UnexpectedType:
            raise UnexpectedType(describe_kind(found)) from None
        if top is None or self._next_path is None:
            return Body(rows=rows)
        following = find_at_path(top, self._next_path, splitter)
        if following is None:
            return Body(rows=rows, names_next=False)
        return Body(rows=rows, next=to_exact(decode_written(following)))

    def _read_rows(self, text: bytes, splitter: RecordSplitter) -> Sequence[RawRow]:
        raws = splitter.items(text)
        if sample_repeats_names(raws):
            return self._rows.read_all(raws, check_names=True)

        def details(positions: Sequence[int]) -> list[tuple[bytes, None]]:
            # split anew: all records of a page would double its memory
            raws = splitter.items(text)
            return [(raws[position], None) for position in positions]

        columnar = self._rows.read_columns(text, details)
        return self._rows.read_all(raws) if columnar is None else columnar

    def _unusable(
        self, reason: str, body: bytes, content_type: str | None
    ) -> SourceUnavailable:
        begin = snippet(body, self._redactor, limit=MAX_SNIPPET_LENGTH)
        kind = (content_type or "no content type").encode(errors="replace")
        shown_type = snippet(kind, self._redactor, limit=MAX_SNIPPET_LENGTH)
        return SourceUnavailable(
            f"{reason} ({shown_type}, {len(body)} bytes, begins {begin!r})"
        )


def split_top_level(
    text: bytes, splitter: RecordSplitter
) -> Mapping[str, bytes | msgspec.Raw]:
    """Return the parts of an object by name, or of a list by index."""
    try:
        return splitter.members(text)
    except UnexpectedType:
        pass
    try:
        elements = splitter.items(text)
    except UnexpectedType:
        return {}
    return {str(index): element for index, element in enumerate(elements)}


def split_object(text: bytes) -> Mapping[str, bytes | msgspec.Raw]:
    """Return the members of an object; of anything else, none."""
    for splitter in (STRICT, LENIENT):
        try:
            return splitter.members(text.strip())
        except UnexpectedType:
            return {}
        except RepeatedName:
            raise
        except (ValueError, RecursionError):
            continue
    return {}


def find_at_path(
    top: Mapping[str, bytes | msgspec.Raw], path: Path, splitter: RecordSplitter
) -> bytes | None:
    """Return the bytes at a path below the parts of a body."""
    first, *rest = path
    found = top.get(str(int(first)) if is_index(first) and first not in top else first)
    for step in rest:
        if found is None:
            return None
        found = split_top_level(bytes(found), splitter).get(step)
    return None if found is None else bytes(found)


def say_repeated(repeated: RepeatedName) -> str:
    return f"the response has the name {repeated.name!r} twice in one object"


def describe_kind(text: bytes) -> str:
    try:
        return kind(msgspec.json.decode(text))
    except (ValueError, RecursionError):
        return "something else"
