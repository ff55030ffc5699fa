"""A client's place in a list: readable by us alone, and good for that list only."""

import hmac
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from hashlib import blake2b, sha256

from penstock.domain.dataset import Field, FieldType
from penstock.domain.history import Position, parse_position
from penstock.domain.queries.query import Place, Query
from penstock.domain.text import format_instant, parse_instant
from penstock.errors import BadRequest, Flaw

VERSION = 1
SEAL_BYTES = 16
# two texts of 300 characters, the longest that an index holds, and their escapes
LONGEST = 6_000
# what begins so is no place in a list
NUMBER, CHANGE = "number:", "change:"


@dataclass(frozen=True, slots=True)
class Seal:
    """The key by which all processes of an installation know their own cursors."""

    secret: bytes

    def write(self, query: Query, place: Place, *, backward: bool = False) -> str:
        """Return a place as a client carries it."""
        body = json.dumps(
            [VERSION, digest(query), int(backward), [plain(each) for each in place]],
            separators=(",", ":"),
            ensure_ascii=False,
        ).encode()
        return self._sealed(body)

    def read(self, query: Query, text: str) -> Query:
        """Return the query from a place on; refuse what we did not write for it."""
        body = self._opened(text)
        if body is None or body.startswith((NUMBER.encode(), CHANGE.encode())):
            raise refusal("cursor", "is not one that was given out here")
        version, known, backward, values = json.loads(body)
        if version != VERSION or known != digest(query):
            told = "belongs to another list; keep sort and filters, or begin anew"
            raise refusal("cursor-mismatch", told)
        place = typed(query.order, values)
        return query.from_here(place, backward=bool(backward))

    def write_number(self, name: str, number: int) -> str:
        """Return a number as a client carries it, good for one name."""
        body = f"{NUMBER}{name}:{number:d}".encode()
        return self._sealed(body)

    def read_number(self, name: str, text: str) -> int | None:
        """Return such a number; None for what we did not write."""
        body = self._opened(text)
        begin = f"{NUMBER}{name}:".encode()
        if body is None or not body.startswith(begin):
            return None
        return int(body.removeprefix(begin))

    def write_position(self, name: str, position: Position) -> str:
        """Return a change of a dataset as a client carries it."""
        return self._sealed(f"{CHANGE}{name}:{position}".encode())

    def read_position(self, name: str, text: str) -> Position | None:
        """Return such a change; None for what we did not write.

        Earlier versions wrote numbers alone.
        """
        body = self._opened(text)
        begin = f"{CHANGE}{name}:".encode()
        if body is not None and body.startswith(begin):
            return parse_position(body.removeprefix(begin).decode())
        number = self.read_number(name, text)
        return None if number is None else Position(number)

    def _sealed(self, body: bytes) -> str:
        return urlsafe_b64encode(self._sign(body) + body).decode().rstrip("=")

    def _opened(self, text: str) -> bytes | None:
        if len(text) > LONGEST or not text.isascii():
            return None
        try:
            raw = urlsafe_b64decode(text + "=" * (-len(text) % 4))
        except ValueError:
            return None
        body = raw[SEAL_BYTES:]
        # the texts, not the bytes: decoding passes over letters that it does not know
        is_ours = hmac.compare_digest(self._sealed(body), text)
        return body if is_ours else None

    def _sign(self, body: bytes) -> bytes:
        return hmac.digest(self.secret, body, sha256)[:SEAL_BYTES]


def refusal(code: str, detail: str) -> BadRequest:
    return BadRequest(Flaw(pointer="?cursor", code=code, detail=detail))


def digest(query: Query) -> str:
    """Return what a cursor is bound to: all that decides which rows come, in order."""
    told = [
        query.dataset.name,
        None if query.sort is None else query.sort.name,
        query.descending,
        sorted(
            [each.field.name, each.op, json.dumps(plain_all(each.value))]
            for each in query.conditions
        ),
    ]
    return blake2b(json.dumps(told).encode(), digest_size=12).hexdigest()


def plain_all(value: object) -> object:
    return [*map(plain, value)] if isinstance(value, tuple) else plain(value)


def plain(value: object) -> object:
    if isinstance(value, datetime):
        return format_instant(value)
    return value.isoformat() if isinstance(value, date) else value


def typed(order: Sequence[Field], values: Sequence[object]) -> Place:
    return tuple(
        again(field, value) for field, value in zip(order, values, strict=True)
    )


def again(field: Field, value: object) -> object:
    if field.type is FieldType.TIMESTAMP:
        return parse_instant(value)
    if field.type is FieldType.DATE and isinstance(value, str):
        return date.fromisoformat(value)
    return value
