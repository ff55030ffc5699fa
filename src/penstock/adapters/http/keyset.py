"""Check the order of the values that a keyset follows."""

from collections.abc import Sequence
from decimal import Decimal
from typing import TypeAlias, TypeGuard

from penstock.domain.exact_decimals import write_briefly
from penstock.domain.formats import parse_instant
from penstock.errors import PageRepeats, Rejected, SourceUnavailable

Number: TypeAlias = int | Decimal
Key: TypeAlias = Number | str


def ordered_keys(
    name: str, keys: Sequence[object], after: object, *, is_unique: bool
) -> Sequence[Key]:
    """Return the values of a page that is in order, and above the requested one.

    Where several records may share a value, the first may be equal to the bound.
    """
    texts: Sequence[str] = ()
    if are_ints(keys):
        numbers: Sequence[Number] = keys
    else:
        numbers = [key for key in keys if is_number(key)]
        texts = [key for key in keys if isinstance(key, str) and key]
    if numbers and not isinstance(after, str):
        bound = after if is_number(after) else None
        check_numbers(name, numbers, bound, is_unique=is_unique)
        return numbers
    if texts and not is_number(after):
        check_texts(name, texts, after if isinstance(after, str) else None)
        return texts
    if numbers or texts:
        raise Rejected(
            f"{name} is no longer of the type that it had on earlier pages, "
            "so the next page cannot be requested; check source.pages.field"
        )
    raise Rejected(
        f"none of {len(keys)} records has a value at {name}; check source.pages.field"
    )


def check_numbers(
    name: str, keys: Sequence[Number], after: Number | None, *, is_unique: bool
) -> None:
    if after is not None and is_unique and max(keys) <= after:
        raise PageRepeats(describe_repeat(name, after))
    if sorted(keys) == list(keys) and (after is None or keys[0] > after):
        return
    lowest = after
    for index, key in enumerate(keys):
        # neighbours may be equal: providers do send a record twice
        is_at_bound = is_unique and index == 0 and key == lowest
        if lowest is not None and (key < lowest or is_at_bound):
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


def last_value_below(keys: Sequence[Key]) -> Key | None:
    """Return the last value that is not the one at the end; None if there is none."""
    last = keys[-1]
    return next((key for key in reversed(keys) if not is_same_value(key, last)), None)


def is_same_value(one: object, other: object) -> bool:
    """Return whether a provider may hold two values for equal."""
    if one == other:
        return True
    if not isinstance(one, str) or not isinstance(other, str):
        return False
    # most databases compare texts without case and trailing spaces
    if one.casefold().strip() == other.casefold().strip():
        return True
    instant = parse_instant(one)
    return instant is not None and instant == parse_instant(other)


def is_above(key: object, bound: object) -> bool:
    return is_number(key) and is_number(bound) and key > bound


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
    text = write_briefly(value) if isinstance(value, Decimal) else repr(value)
    return text[:60]


def are_ints(values: Sequence[object]) -> TypeGuard[Sequence[int]]:
    """Return whether all keys are ints, which nearly all are."""
    return set(map(type, values)) == {int}


def is_number(value: object) -> TypeGuard[Number]:
    return isinstance(value, int | Decimal) and not isinstance(value, bool)
