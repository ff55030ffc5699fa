"""Decide what follows a page: the next position, or the proof that there is none.

A position is a small JSON object: `{"after": 7}` for keyset, `{"offset": 500}`,
`{"page": 3}`, `{"token": "x"}`, `{"url": "https://…"}`; none of them for the first
page. Nothing here sends or reads anything.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeGuard

from penstock.domain.axes import RangeAxis
from penstock.domain.page import Position, Proof, Row
from penstock.domain.parts import Span
from penstock.domain.shard import Shard
from penstock.domain.sheet import RawSheet
from penstock.domain.source import End, Pages, Paging
from penstock.domain.text import parse_instant
from penstock.errors import CursorUnreadable, PageRepeats, Rejected, SourceUnavailable


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """The bounds that the provider is not told, and that we keep ourselves."""

    # the greatest number below the shard
    after: int | None = None
    # the first number behind the shard
    end: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What of an answer decides about the next request."""

    rows: int
    # keyset: the value of pages.field in each record
    keys: Sequence[object] = ()
    # cursor: the token; link: the resolved address
    next: object = None
    # link: the address that was asked
    asked: str | None = None
    # cursor, link: the answer speaks of a next page at all, if only to say none
    names_next: bool = True


class Step(NamedTuple):
    """Either where to go on, or what proves that the shard ends here."""

    next: Position | None
    proof: Proof | None
    # numbers are known to rise; of texts only the provider knows the order
    rises: bool = False


def reach_of(shard: Shard) -> Reach:
    """Return the bounds of a range axis that are not sent."""
    for axis, part in shard:
        if isinstance(axis, RangeAxis) and isinstance(part, Span):
            after = part.start - 1 if axis.send_from is None else None
            end = part.end if axis.send_until is None else None
            if after is not None or end is not None:
                return Reach(after=after, end=end)
    return Reach()


def parameters(
    pages: Pages, position: Position | None, reach: Reach
) -> dict[str, object]:
    """Return what asks for the page at a position."""
    sent: dict[str, object] = dict(pages.order)
    if pages.size_send is not None and pages.size is not None:
        sent[pages.size_send] = pages.size
    value: object
    match pages.by:
        case Paging.KEYSET:
            value = reach.after if position is None else told(position, "after")
        case Paging.OFFSET:
            value = 0 if position is None else told(position, "offset")
        case Paging.PAGE:
            value = pages.first if position is None else told(position, "page")
        case Paging.CURSOR:
            value = None if position is None else told(position, "token")
        case Paging.LINK | Paging.SINGLE:
            value = None
    if pages.send is not None and value is not None:
        sent[pages.send] = value
    return sent


def follow(pages: Pages, position: Position | None, seen: Seen, reach: Reach) -> Step:
    """Return what comes after a page."""
    match pages.by:
        case Paging.SINGLE:
            return Step(None, Proof.WHOLE)
        case Paging.CURSOR:
            refuse_silence(pages, position, seen)
            return follow_token(position, seen.next)
        case Paging.LINK:
            refuse_silence(pages, position, seen)
            return follow_link(seen)
        case Paging.KEYSET:
            return follow_keys(pages, position, seen, reach)
        case Paging.OFFSET:
            offset = 0 if position is None else number(position, "offset")
            return go_on(pages, seen, {"offset": offset + seen.rows})
        case Paging.PAGE:
            page = pages.first if position is None else number(position, "page")
            return go_on(pages, seen, {"page": page + 1})


def go_on(pages: Pages, seen: Seen, following: Position) -> Step:
    """Take the next position, unless the number of rows proves the end."""
    if seen.rows == 0:
        return Step(None, Proof.EMPTY_PAGE)
    if is_short(pages, seen):
        return Step(None, Proof.SHORT_PAGE)
    return Step(following, None)


def is_short(pages: Pages, seen: Seen) -> bool:
    # an exactly full page is not proof: nothing says that it was the last
    return pages.end is End.SHORT and pages.size is not None and seen.rows < pages.size


def follow_keys(
    pages: Pages, position: Position | None, seen: Seen, reach: Reach
) -> Step:
    if seen.rows == 0:
        return Step(None, Proof.EMPTY_PAGE)
    after = reach.after if position is None else told(position, "after")
    last = last_key(pages, seen, after)
    if reaches_end(last, reach):
        return Step(None, Proof.END_OF_RANGE)
    step = go_on(pages, seen, {"after": last})
    return step._replace(rises=is_number(last))


def refuse_silence(pages: Pages, position: Position | None, seen: Seen) -> None:
    """Refuse to take a full first page for all there is.

    An answer that never speaks of a next page may end here, or may be read at the
    wrong place; only a page that is not full tells the difference.
    """
    is_full = pages.size is not None and seen.rows >= pages.size
    if position is None and is_full and not seen.names_next:
        place = "a Link header" if pages.next is None else repr(".".join(pages.next))
        raise Rejected(
            f"the first page is full, and the answer has no {place}: there may be "
            "more; check source.pages.next, or set another source.pages.size"
        )


def follow_token(position: Position | None, token: object) -> Step:
    # some providers say false instead of null
    if token is None or token is False or token == "":
        return Step(None, Proof.NO_NEXT)
    if isinstance(token, bool) or not isinstance(token, str | int | float):
        raise Rejected("source.pages.next does not lead to a token but to a structure")
    if position is not None and position.get("token") == token:
        raise PageRepeats("the provider names the token of this page as the next one")
    return Step({"token": token}, None)


def follow_link(seen: Seen) -> Step:
    if seen.next is None:
        return Step(None, Proof.NO_NEXT)
    if seen.next == seen.asked:
        raise PageRepeats("the provider names the address of this page as the next one")
    return Step({"url": seen.next}, None)


def last_key(pages: Pages, seen: Seen, after: object) -> int | float | str:
    """Return the last key of a page that is in order, and above what was asked for."""
    name = ".".join(pages.field or ())
    texts: Sequence[str] = ()
    if are_ints(seen.keys):
        numbers: Sequence[int | float] = seen.keys
    else:
        numbers = [each for each in seen.keys if is_number(each)]
        texts = [each for each in seen.keys if isinstance(each, str) and each]
    if numbers and not isinstance(after, str):
        check_numbers(name, numbers, after if is_number(after) else None)
        return numbers[-1]
    if texts and not is_number(after):
        check_texts(name, texts, after if isinstance(after, str) else None)
        if texts[-1] == after and not is_short(pages, seen):
            raise PageRepeats(repeats(name, after))
        return texts[-1]
    if numbers or texts:
        raise Rejected(
            f"{name} is no longer of the type that it had on earlier pages, "
            "so the next page cannot be asked for; check source.pages.field"
        )
    raise Rejected(
        f"none of {seen.rows} records has a value at {name}; check source.pages.field"
    )


def check_numbers(name: str, keys: Sequence[int | float], after: float | None) -> None:
    if after is not None and max(keys) <= after:
        raise PageRepeats(repeats(name, after))
    if sorted(keys) == list(keys) and (after is None or keys[0] > after):
        return
    lowest = after
    for index, key in enumerate(keys):
        # neighbours may be equal: providers do send a record twice
        if lowest is not None and (key < lowest or (index == 0 and key == lowest)):
            raise out_of_order(name, lowest, key)
        lowest = key


def check_texts(name: str, keys: Sequence[str], after: str | None) -> None:
    """Check the order of instants; only the provider knows the order of other texts."""
    lowest = None if after is None else parse_instant(after)
    told_lowest = after
    for key in keys:
        instant = parse_instant(key)
        if instant is not None and lowest is not None and instant < lowest:
            raise out_of_order(name, told_lowest, key)
        lowest, told_lowest = instant, key


def out_of_order(name: str, lower: object, key: object) -> SourceUnavailable:
    return SourceUnavailable(
        f"the records came out of order: {name} {shown(key)} after {shown(lower)}; "
        "going on from here would lose records"
    )


def repeats(name: str, after: object) -> str:
    return (
        f"no {name} of the page lies above {shown(after)}, which was asked for: "
        "the provider repeats itself; check source.pages"
    )


def shown(value: object) -> str:
    return repr(value)[:60]


def reaches_end(last: object, reach: Reach) -> bool:
    return reach.end is not None and is_number(last) and last >= reach.end - 1


def within(rows: Sequence[Row], keys: Sequence[object], reach: Reach) -> Sequence[Row]:
    """Return the rows that do not belong to a later shard."""
    if reach.end is None or (are_ints(keys) and max(keys) < reach.end):
        return rows
    behind = [is_behind(key, reach) for key in keys]
    if True not in behind:
        return rows
    first = behind.index(True)
    if isinstance(rows, RawSheet) and all(behind[first:]):
        return rows.upto(first)
    return [row for row, is_late in zip(rows, behind, strict=True) if not is_late]


def is_behind(key: object, reach: Reach) -> bool:
    """Tell a record that belongs to a later shard."""
    return reach.end is not None and is_number(key) and key >= reach.end


def are_ints(values: Sequence[object]) -> TypeGuard[Sequence[int]]:
    """Tell what nearly all keys are, without a look at each."""
    return set(map(type, values)) == {int}


def is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def told(position: Position, name: str) -> object:
    try:
        return position[name]
    except KeyError:
        raise CursorUnreadable(
            f"the cursor has no {name!r}: source.pages.by has changed since; "
            "plan a new import"
        ) from None


def number(position: Position, name: str) -> int:
    value = told(position, name)
    if isinstance(value, bool) or not isinstance(value, int):
        raise CursorUnreadable(f"the cursor's {name!r} is not a whole number")
    return value
