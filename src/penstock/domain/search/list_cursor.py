"""Signed cursors of lists and change feeds, each valid for one list only."""

import hmac
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from hashlib import blake2b, sha256

from penstock.domain.dataset import Field, FieldType
from penstock.domain.exact_decimals import write_decimal
from penstock.domain.formats import format_instant, parse_instant
from penstock.domain.history import HistoryPosition, parse_position
from penstock.domain.search.query import KeysetPosition, Query
from penstock.errors import BadRequest, FieldError

VERSION = 1
SIGNATURE_BYTES = 16
# two texts of 300 characters, the longest that an index holds, and their escapes
MAX_CURSOR_LENGTH = 6_000
# prefixes of cursors that are not positions in a list
NUMBER, CHANGE = "number:", "change:"


@dataclass(frozen=True, slots=True)
class CursorSigner:
    """Signs and verifies cursors with the secret of an installation."""

    secret: bytes

    def write(
        self, query: Query, position: KeysetPosition, *, backward: bool = False
    ) -> str:
        """Return the cursor of a position in a list."""
        values = [to_json_value(value) for value in position]
        body = json.dumps(
            [VERSION, digest_query(query), int(backward), values],
            separators=(",", ":"),
            ensure_ascii=False,
        ).encode()
        return self._encode(body)

    def read(self, query: Query, text: str) -> Query:
        """Return the query continued at a cursor; rejects cursors of other queries."""
        body = self._decode(text)
        if body is None or body.startswith((NUMBER.encode(), CHANGE.encode())):
            raise cursor_error("cursor", "is not one that was given out here")
        version, digest, backward, values = json.loads(body)
        if version != VERSION or digest != digest_query(query):
            detail = "belongs to another list; keep sort and filters, or start again"
            raise cursor_error("cursor-mismatch", detail)
        position = tuple(
            from_json_value(field, value)
            for field, value in zip(query.order, values, strict=True)
        )
        return query.starting_after(position, backward=bool(backward))

    def write_number(self, name: str, number: int) -> str:
        """Return the cursor of a number, valid for one name."""
        return self._encode(f"{NUMBER}{name}:{number:d}".encode())

    def read_number(self, name: str, text: str) -> int | None:
        """Return the number of a cursor; None if it is not valid."""
        body = self._decode(text)
        prefix = f"{NUMBER}{name}:".encode()
        if body is None or not body.startswith(prefix):
            return None
        return int(body.removeprefix(prefix))

    def write_position(self, name: str, position: HistoryPosition) -> str:
        """Return the cursor of a position in the history of a dataset."""
        return self._encode(f"{CHANGE}{name}:{position}".encode())

    def read_position(self, name: str, text: str) -> HistoryPosition | None:
        """Return the history position of a cursor; None if it is not valid.

        Earlier versions wrote numbers alone.
        """
        body = self._decode(text)
        prefix = f"{CHANGE}{name}:".encode()
        if body is not None and body.startswith(prefix):
            return parse_position(body.removeprefix(prefix).decode())
        number = self.read_number(name, text)
        return None if number is None else HistoryPosition(number)

    def _encode(self, body: bytes) -> str:
        return urlsafe_b64encode(self._sign(body) + body).decode().rstrip("=")

    def _decode(self, text: str) -> bytes | None:
        if len(text) > MAX_CURSOR_LENGTH or not text.isascii():
            return None
        try:
            raw = urlsafe_b64decode(text + "=" * (-len(text) % 4))
        except ValueError:
            return None
        body = raw[SIGNATURE_BYTES:]
        # compares texts, not bytes: the decoder ignores unknown characters
        is_valid = hmac.compare_digest(self._encode(body), text)
        return body if is_valid else None

    def _sign(self, body: bytes) -> bytes:
        return hmac.digest(self.secret, body, sha256)[:SIGNATURE_BYTES]


def cursor_error(code: str, detail: str) -> BadRequest:
    return BadRequest(FieldError(pointer="?cursor", code=code, detail=detail))


def digest_query(query: Query) -> str:
    """Digest everything that decides the rows of a query and their order."""
    document = [
        query.dataset.name,
        None if query.sort is None else query.sort.name,
        query.descending,
        sorted(
            [condition.field.name, condition.op, json.dumps(plain_all(condition.value))]
            for condition in query.conditions
        ),
    ]
    return blake2b(json.dumps(document).encode(), digest_size=12).hexdigest()


def plain_all(value: object) -> object:
    if isinstance(value, tuple):
        return [*map(to_json_value, value)]
    return to_json_value(value)


def to_json_value(value: object) -> object:
    if isinstance(value, datetime):
        return format_instant(value)
    if isinstance(value, Decimal):
        return write_decimal(value)
    return value.isoformat() if isinstance(value, date) else value


def from_json_value(field: Field, value: object) -> object:
    if field.type is FieldType.TIMESTAMP:
        return parse_instant(value)
    if field.type is FieldType.DATE and isinstance(value, str):
        return date.fromisoformat(value)
    if field.type is FieldType.DECIMAL and isinstance(value, str):
        return Decimal(value)
    return value
