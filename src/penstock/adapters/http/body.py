"""Read the rows out of the body of an answer; what is not whole JSON is no data."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from penstock.adapters.http import lenient
from penstock.adapters.http.decode import RowReader, is_index, kind
from penstock.adapters.http.hiding import Hiding
from penstock.adapters.http.lenient import WrongKind
from penstock.domain.page import Row
from penstock.domain.source import Path
from penstock.errors import Misconfigured, SourceUnavailable

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
SHOWN = 80

_ITEMS = msgspec.json.Decoder(list[msgspec.Raw])
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """The rows of one answer, and what it names as next."""

    rows: Sequence[Row] = ()
    next: object = None
    # the place of the next page is there, whatever it holds
    names_next: bool = True


@dataclass(frozen=True, slots=True)
class Cutter:
    """A way to cut a list or an object into the bytes of its parts."""

    items: Callable[[bytes], Sequence[bytes]]
    members: Callable[[bytes], Mapping[str, bytes | msgspec.Raw]]


def strict_items(text: bytes) -> list[bytes]:
    try:
        # a copy a record costs 0.1 µs, and lets go of the body
        return [bytes(each) for each in _ITEMS.decode(text)]
    except msgspec.ValidationError:
        raise WrongKind from None


def strict_members(text: bytes) -> dict[str, msgspec.Raw]:
    try:
        return _MEMBERS.decode(text)
    except msgspec.ValidationError:
        raise WrongKind from None


STRICT = Cutter(strict_items, strict_members)
LENIENT = Cutter(lenient.items, lenient.members)


class BodyReader:
    """The reader of bodies whose list of records stands at one path."""

    def __init__(
        self, records: Path, following: Path | None, *, rows: RowReader, hiding: Hiding
    ) -> None:
        if following is not None and not records:
            raise Misconfigured(
                "source.pages.next names a place in the body, but the body is the list",
                advice=["set source.records to the path of the list"],
            )
        self._records = records
        self._following = following
        self._rows = rows
        self._hiding = hiding

    def read(self, body: bytes, *, content_type: str | None) -> Body:
        """Return what stands in a body, or raise `SourceUnavailable`."""
        text = body.removeprefix(BYTE_ORDER_MARK)
        if not text.strip():
            raise SourceUnavailable("the answer is empty, where JSON was expected")
        broken: Exception | None = None
        for cutter in (STRICT, LENIENT):
            try:
                return self._read(text, cutter)
            except WrongKind as error:
                place = ".".join(self._records) or "its top"
                told = f"the answer has no list at {place} but {error}"
                raise self._no_data(told, body, content_type) from error
            except (ValueError, RecursionError) as error:
                broken = error
        told = "the answer is not whole JSON"
        raise self._no_data(told, body, content_type) from broken

    def _read(self, text: bytes, cutter: Cutter) -> Body:
        top = None if not self._records else descend_once(text, cutter)
        found = text if top is None else descend(top, self._records, cutter)
        if found is None:
            raise WrongKind("nothing")
        try:
            rows = self._read_rows(found, cutter)
        except WrongKind:
            raise WrongKind(name_kind(found)) from None
        if top is None or self._following is None:
            return Body(rows=rows)
        following = descend(top, self._following, cutter)
        if following is None:
            return Body(rows=rows, names_next=False)
        return Body(rows=rows, next=msgspec.json.decode(following))

    def _read_rows(self, text: bytes, cutter: Cutter) -> Sequence[Row]:
        def details(positions: Sequence[int]) -> list[tuple[bytes, None]]:
            raws = cutter.items(text)
            return [(raws[position], None) for position in positions]

        sheet = self._rows.read_sheet(text, details)
        return self._rows.read_all(cutter.items(text)) if sheet is None else sheet

    def _no_data(
        self, told: str, body: bytes, content_type: str | None
    ) -> SourceUnavailable:
        begins = self._hiding.snippet(body, limit=SHOWN)
        kind = (content_type or "no content type").encode(errors="replace")
        kept = self._hiding.snippet(kind, limit=SHOWN)
        return SourceUnavailable(
            f"{told} ({kept}, {len(body)} bytes, begins {begins!r})"
        )


def descend_once(text: bytes, cutter: Cutter) -> Mapping[str, bytes | msgspec.Raw]:
    """Return the parts of an object by name, or of a list by number."""
    try:
        return cutter.members(text)
    except WrongKind:
        pass
    try:
        elements = cutter.items(text)
    except WrongKind:
        return {}
    return {str(index): each for index, each in enumerate(elements)}


def descend(
    top: Mapping[str, bytes | msgspec.Raw], path: Path, cutter: Cutter
) -> bytes | None:
    """Return the bytes at a path below the parts of a body."""
    first, *rest = path
    found = top.get(str(int(first)) if is_index(first) and first not in top else first)
    for step in rest:
        if found is None:
            return None
        found = descend_once(bytes(found), cutter).get(step)
    return None if found is None else bytes(found)


def name_kind(text: bytes) -> str:
    try:
        return kind(msgspec.json.decode(text))
    except (ValueError, RecursionError):
        return "something else"
