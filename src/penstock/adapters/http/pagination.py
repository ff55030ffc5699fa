"""Decide what follows a page: the next position, or the proof that there is none.

A position is a small JSON object: `{"after": 7}` for keyset, `{"offset": 500}`,
`{"page": 3}`, `{"token": "x"}`, `{"url": "https://…"}`; None is the first page. There
is no input or output here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeGuard

from penstock.domain.formats import parse_instant
from penstock.domain.mapping.columnar import ColumnarRows
from penstock.domain.pages import Position, Proof, RawRow
from penstock.domain.sharding.axes import RangeAxis
from penstock.domain.sharding.parts import Span
from penstock.domain.sharding.shard import Shard
from penstock.domain.source import End, Pagination, Paging
from penstock.errors import CursorUnreadable, PageRepeats, Rejected, SourceUnavailable


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


class NextStep(NamedTuple):
    """Either the next position, or the proof that the shard ends here."""

    next: Position | None
    proof: Proof | None
    # numbers rise; only the provider knows the order of strings
    rises: bool = False


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
            return advance(pages, facts, {"offset": offset + facts.rows})
        case Paging.PAGE:
            page = (
                pages.first if position is None else position_number(position, "page")
            )
            return advance(pages, facts, {"page": page + 1})


def advance(pages: Pagination, facts: PageFacts, position: Position) -> NextStep:
    """Return the next position, unless the number of rows proves the end."""
    if facts.rows == 0:
        return NextStep(None, Proof.EMPTY_PAGE)
    if is_short(pages, facts):
        return NextStep(None, Proof.SHORT_PAGE)
    return NextStep(position, None)


def is_short(pages: Pagination, facts: PageFacts) -> bool:
    # an exactly full page is no proof: there may be another
    return pages.end is End.SHORT and pages.size is not None and facts.rows < pages.size


def next_keyset_step(
    pages: Pagination,
    position: Position | None,
    facts: PageFacts,
    bounds: ClientBounds,
) -> NextStep:
    if facts.rows == 0:
        return NextStep(None, Proof.EMPTY_PAGE)
    after = bounds.after if position is None else position_value(position, "after")
    last = last_key(pages, facts, after)
    if reaches_end(last, bounds):
        return NextStep(None, Proof.END_OF_RANGE)
    step = advance(pages, facts, {"after": last})
    return step._replace(rises=is_number(last))


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
    if isinstance(token, bool) or not isinstance(token, str | int | float):
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


def last_key(pages: Pagination, facts: PageFacts, after: object) -> int | float | str:
    """Return the last key of a page that is in order, and above the requested one."""
    name = ".".join(pages.field or ())
    texts: Sequence[str] = ()
    if are_ints(facts.keys):
        numbers: Sequence[int | float] = facts.keys
    else:
        numbers = [key for key in facts.keys if is_number(key)]
        texts = [key for key in facts.keys if isinstance(key, str) and key]
    if numbers and not isinstance(after, str):
        check_numbers(name, numbers, after if is_number(after) else None)
        return numbers[-1]
    if texts and not is_number(after):
        check_texts(name, texts, after if isinstance(after, str) else None)
        if texts[-1] == after and not is_short(pages, facts):
            raise PageRepeats(describe_repeat(name, after))
        return texts[-1]
    if numbers or texts:
        raise Rejected(
            f"{name} is no longer of the type that it had on earlier pages, "
            "so the next page cannot be requested; check source.pages.field"
        )
    raise Rejected(
        f"none of {facts.rows} records has a value at {name}; check source.pages.field"
    )


def check_numbers(name: str, keys: Sequence[int | float], after: float | None) -> None:
    if after is not None and max(keys) <= after:
        raise PageRepeats(describe_repeat(name, after))
    if sorted(keys) == list(keys) and (after is None or keys[0] > after):
        return
    lowest = after
    for index, key in enumerate(keys):
        # neighbours may be equal: providers do send a record twice
        if lowest is not None and (key < lowest or (index == 0 and key == lowest)):
            raise out_of_order_error(name, lowest, key)
        lowest = key


def check_texts(name: str, keys: Sequence[str], after: str | None) -> None:
    """Check the order of timestamps; only the provider knows that of other strings."""
    lowest = None if after is None else parse_instant(after)
    lowest_key = after
    for key in keys:
        instant = parse_instant(key)
        if instant is not None and lowest is not None and instant < lowest:
            raise out_of_order_error(name, lowest_key, key)
        lowest, lowest_key = instant, key


def out_of_order_error(name: str, lower: object, key: object) -> SourceUnavailable:
    return SourceUnavailable(
        f"the records came out of order: {name} {short(key)} after {short(lower)}; "
        "continuing from here would lose records"
    )


def describe_repeat(name: str, after: object) -> str:
    return (
        f"no {name} of the page lies above {short(after)}, which was requested: "
        "the provider repeats itself; check source.pages"
    )


def short(value: object) -> str:
    return repr(value)[:60]


def reaches_end(last: object, bounds: ClientBounds) -> bool:
    return bounds.end is not None and is_number(last) and last >= bounds.end - 1


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


def are_ints(values: Sequence[object]) -> TypeGuard[Sequence[int]]:
    """Return whether all keys are ints, which nearly all are."""
    return set(map(type, values)) == {int}


def is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


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
