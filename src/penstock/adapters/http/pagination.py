"""Decide what follows a page: the next position, or the proof that there is none.

A position is a small JSON object: `{"after": 7}` for keyset, `{"offset": 500}`,
`{"page": 3}`, `{"token": "x"}`, `{"url": "https://…"}`; None is the first page. There
is no input or output here.

Where records share values of a keyset, a position also tells how many records a page
has had at most; `{"after": 7, "below": 5, "most": 9}` follows a page whose records all
had 7, and `{"after": 5, "beyond": 7, "most": 9}` reads it again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple

from penstock.adapters.http.keyset import (
    Key,
    are_ints,
    describe_repeat,
    is_above,
    is_number,
    is_same_value,
    last_value_below,
    ordered_keys,
    short,
)
from penstock.domain.mapping.columnar import ColumnarRows
from penstock.domain.pages import Position, Proof, RawRow
from penstock.domain.sharding.axes import RangeAxis
from penstock.domain.sharding.parts import Span
from penstock.domain.sharding.shard import Shard
from penstock.domain.source import End, Pagination, Paging
from penstock.errors import CursorUnreadable, PageRepeats, Rejected

# members of positions where records share values: the most records that a page had, the
# bound before a page of one value, and the value that a page read again has to exceed
MOST, BELOW, BEYOND = "most", "below", "beyond"
# with end = "short": whether all pages before the position were full
FULL = "full"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientBounds:
    """The bounds that are not sent to the provider, but applied by the client."""

    # the last number before the shard
    after: int | None = None
    # the first number after the shard
    end: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PageFacts:
    """The facts of a response that decide the next request."""

    rows: int
    # keyset: the value of pages.field in each record
    keys: Sequence[object] = ()
    # cursor: the token; link: the resolved URL
    next: object = None
    # link: the URL of the request
    url: str | None = None
    # cursor, link: the response has a next member, even if it is null
    names_next: bool = True
    # keyset: no two records share a value of pages.field
    is_unique: bool = True


class NextStep(NamedTuple):
    """Either the next position, or the proof that the shard ends here."""

    next: Position | None
    proof: Proof | None
    # numbers rise; only the provider knows the order of strings
    rises: bool = False
    # pages share records, so only a repeated position shows a loop
    overlaps: bool = False


def client_bounds(shard: Shard) -> ClientBounds:
    """Return the bounds of the range axis that are not sent."""
    for axis, part in shard:
        if isinstance(axis, RangeAxis) and isinstance(part, Span):
            after = part.start - 1 if axis.send_from is None else None
            end = part.end if axis.send_until is None else None
            if after is not None or end is not None:
                return ClientBounds(after=after, end=end)
    return ClientBounds()


def page_parameters(
    pages: Pagination, position: Position | None, bounds: ClientBounds
) -> dict[str, object]:
    """Return the parameters that request the page at a position."""
    sent: dict[str, object] = dict(pages.order)
    if pages.size_send is not None and pages.size is not None:
        sent[pages.size_send] = pages.size
    value: object
    match pages.by:
        case Paging.KEYSET:
            value = (
                bounds.after if position is None else position_value(position, "after")
            )
        case Paging.OFFSET:
            value = 0 if position is None else position_value(position, "offset")
        case Paging.PAGE:
            value = (
                pages.first if position is None else position_value(position, "page")
            )
        case Paging.CURSOR:
            value = None if position is None else position_value(position, "token")
        case Paging.LINK | Paging.SINGLE:
            value = None
    if pages.send is not None and value is not None:
        sent[pages.send] = value
    return sent


def next_step(
    pages: Pagination,
    position: Position | None,
    facts: PageFacts,
    bounds: ClientBounds,
) -> NextStep:
    """Return what follows a page."""
    match pages.by:
        case Paging.SINGLE:
            return NextStep(None, Proof.WHOLE)
        case Paging.CURSOR:
            require_next_member(pages, position, facts)
            return next_token_step(position, facts.next)
        case Paging.LINK:
            require_next_member(pages, position, facts)
            return next_link_step(facts)
        case Paging.KEYSET:
            return next_keyset_step(pages, position, facts, bounds)
        case Paging.OFFSET:
            offset = 0 if position is None else position_number(position, "offset")
            return advance(pages, position, facts, {"offset": offset + facts.rows})
        case Paging.PAGE:
            page = (
                pages.first if position is None else position_number(position, "page")
            )
            return advance(pages, position, facts, {"page": page + 1})


def advance(
    pages: Pagination, position: Position | None, facts: PageFacts, following: Position
) -> NextStep:
    """Return the next position, unless the number of rows proves the end."""
    if facts.rows == 0:
        return NextStep(None, Proof.EMPTY_PAGE)
    if is_short_end(pages, position, facts):
        return NextStep(None, Proof.SHORT_PAGE)
    return NextStep(with_fullness(pages, position, facts, following), None)


def is_short_end(
    pages: Pagination, position: Position | None, facts: PageFacts
) -> bool:
    """Return whether a page is short although the provider fills its pages.

    Only a full page before it shows that; others may send fewer records than were asked
    for. An exactly full page is no proof: there may be another.
    """
    if pages.end is not End.SHORT or pages.size is None or position is None:
        return False
    return position.get(FULL) is True and facts.rows < pages.size


def with_fullness(
    pages: Pagination, position: Position | None, facts: PageFacts, following: Position
) -> Position:
    """Note in a position that all pages before it were full, if that may be proof."""
    if pages.end is not End.SHORT or pages.size is None:
        return following
    were_full = position is None or position.get(FULL) is True
    is_full = facts.rows >= pages.size
    return {**following, FULL: True} if were_full and is_full else following


def next_keyset_step(
    pages: Pagination,
    position: Position | None,
    facts: PageFacts,
    bounds: ClientBounds,
) -> NextStep:
    if facts.rows == 0:
        return NextStep(None, Proof.EMPTY_PAGE)
    after = bounds.after if position is None else position_value(position, "after")
    name = ".".join(pages.field or ())
    keys = ordered_keys(name, facts.keys, after, is_unique=facts.is_unique)
    last = keys[-1]
    if reaches_end(last, bounds, is_unique=facts.is_unique):
        return NextStep(None, Proof.END_OF_RANGE)
    if facts.is_unique:
        step = advance(pages, position, facts, {"after": last})
        if last == after and step.proof is None:
            raise PageRepeats(describe_repeat(name, after))
        return step._replace(rises=is_number(last))
    if is_short_end(pages, position, facts):
        return NextStep(None, Proof.SHORT_PAGE)
    step = next_tied_step(pages, position, facts, keys, after)
    if step.next is None:
        return step
    following = with_fullness(pages, position, facts, step.next)
    return step._replace(next=following, overlaps=True)


def next_tied_step(
    pages: Pagination,
    position: Position | None,
    facts: PageFacts,
    keys: Sequence[Key],
    after: object,
) -> NextStep:
    """Return the position after a page whose last value other records may share.

    They would follow on the next page, and a request above that value passes over
    them. So it asks for what is above the value before it, and reads the last again.
    """
    name, last = ".".join(pages.field or ()), keys[-1]
    earlier = position_number({MOST: 0, **(position or {})}, MOST)
    position, most = position or {}, max(earlier, facts.rows)
    # only a provider that includes the bound sends it again
    is_inclusive = is_same_value(keys[0], after)
    if BELOW in position and is_same_value(last, after):
        if facts.rows < earlier:
            return NextStep(None, Proof.EMPTY_PAGE)
        raise PageRepeats(describe_repeat(name, after))
    if BELOW in position and not is_inclusive:
        # records follow the value that seemed to be the last: it may be incomplete
        back = {"after": position[BELOW], MOST: most, BEYOND: after}
        return NextStep(back, None)
    below = last_value_below(keys)
    if below is not None and not is_same_value(below, after):
        rises = is_number(below) and (after is None or is_above(below, after))
        return NextStep({"after": below, MOST: most}, None, rises=rises)
    is_full = pages.size is not None and facts.rows >= pages.size
    # without those read again, a last page is smaller than the one before
    is_cut = position.get(BEYOND) == last or (
        not is_inclusive and 0 < earlier <= facts.rows
    )
    if is_full or is_cut:
        raise Rejected(
            f"more records have the {name} {short(last)} than one page shows "
            f"({facts.rows}), so not all of them can be requested; make "
            "source.pages.size larger, or page by another field, best by the key"
        )
    return NextStep({"after": last, MOST: most, BELOW: after}, None)


def require_next_member(
    pages: Pagination, position: Position | None, facts: PageFacts
) -> None:
    """Raise if a full first page has no next member at all.

    Either it is the last page, or source.pages.next is the wrong path; only a page
    that is not full proves the former.
    """
    is_full = pages.size is not None and facts.rows >= pages.size
    if position is None and is_full and not facts.names_next:
        location = "a Link header" if pages.next is None else repr(".".join(pages.next))
        raise Rejected(
            f"the first page is full, and the response has no {location}: there may be "
            "more; check source.pages.next, or set another source.pages.size"
        )


def next_token_step(position: Position | None, token: object) -> NextStep:
    # some providers send false instead of null
    if token is None or token is False or token == "":
        return NextStep(None, Proof.NO_NEXT)
    if isinstance(token, bool) or not isinstance(token, str | int | Decimal):
        raise Rejected("source.pages.next is not a token but an object or a list")
    if position is not None and position.get("token") == token:
        raise PageRepeats("the provider names the token of this page as the next one")
    return NextStep({"token": token}, None)


def next_link_step(facts: PageFacts) -> NextStep:
    if facts.next is None:
        return NextStep(None, Proof.NO_NEXT)
    if facts.next == facts.url:
        raise PageRepeats("the provider names the URL of this page as the next one")
    return NextStep({"url": facts.next}, None)


def reaches_end(last: object, bounds: ClientBounds, *, is_unique: bool) -> bool:
    """Return whether no record of the range can follow."""
    if bounds.end is None or not is_number(last):
        return False
    # a number that is written with a point may be followed by fractions
    is_whole = isinstance(last, int)
    return last >= (bounds.end - 1 if is_unique and is_whole else bounds.end)


def drop_late_rows(
    rows: Sequence[RawRow], keys: Sequence[object], bounds: ClientBounds
) -> Sequence[RawRow]:
    """Return the rows without those of a later shard."""
    if bounds.end is None or (are_ints(keys) and max(keys) < bounds.end):
        return rows
    late = [is_past_end(key, bounds) for key in keys]
    if True not in late:
        return rows
    first = late.index(True)
    if isinstance(rows, ColumnarRows) and all(late[first:]):
        return rows.first_rows(first)
    return [row for row, is_late in zip(rows, late, strict=True) if not is_late]


def is_past_end(key: object, bounds: ClientBounds) -> bool:
    """Return whether a record belongs to a later shard."""
    return bounds.end is not None and is_number(key) and key >= bounds.end


def position_value(position: Position, name: str) -> object:
    try:
        return position[name]
    except KeyError:
        raise CursorUnreadable(
            f"the cursor has no {name!r}: source.pages.by has changed since; "
            "plan a new import"
        ) from None


def position_number(position: Position, name: str) -> int:
    value = position_value(position, name)
    if isinstance(value, bool) or not isinstance(value, int):
        raise CursorUnreadable(f"the cursor's {name!r} is not an integer")
    return value
