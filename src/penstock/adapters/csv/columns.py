"""Compare the names in a header with those that are wanted."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from penstock.domain.guess.layout import DELIMITERS
from penstock.domain.text import SHOWN, in_short, shorten

# sentences about one file
MOST_PROBLEMS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnCheck:
    """What is wrong with a header."""

    # with these no row can be mapped
    problems: tuple[str, ...] = ()
    # these are passed over, but a user may like to know
    remarks: tuple[str, ...] = ()


def check_columns(
    found: Sequence[str], wanted: Iterable[str], *, delimiter: str = ","
) -> ColumnCheck:
    """Say what the header lacks, what it has twice, and what nobody asked for."""
    if not found:
        return ColumnCheck(problems=("the file has no columns: it is empty",))
    counts = Counter(found)
    wanted = dict.fromkeys(wanted)
    other = other_delimiter(found, wanted)
    if other is not None:
        told = f"its header is one column, {shorten(found[0], 40)}"
        told = f"with delimiter {delimiter!r} {told}; it looks like {other!r}"
        return ColumnCheck(problems=(told,))
    unknown = [name for name in counts if name and name not in wanted]
    missing = [name for name in wanted if name not in counts]
    twice = [name for name in wanted if counts[name] > 1]
    # to find what was meant costs as many comparisons as there are columns
    problems = [tell_missing(name, unknown) for name in missing[:MOST_PROBLEMS]]
    problems += [
        f"column {name!r} is there {counts[name]} times: {places_of(name, found)}"
        for name in twice[:MOST_PROBLEMS]
    ]
    more = len(missing) + len(twice) - len(problems)
    if more:
        problems.append(f"and {more:,} more columns are missing or there twice")
    remarks = []
    if counts[""]:
        remarks.append(f"column {places_of('', found)} has no name")
    if len(unknown) > SHOWN:
        named = in_short([*map(repr, unknown)])
        remarks.append(f"{len(unknown):,} columns are not declared: {named}")
    else:
        remarks += [f"column {name!r} is not declared" for name in unknown]
    return ColumnCheck(problems=tuple(problems), remarks=tuple(remarks))


def compare_with_declared(
    found: Sequence[str], declared: Sequence[str], *, behind: int
) -> ColumnCheck:
    """Say if a header has names of declared columns elsewhere than these stand.

    The rows begin behind that line. If the header is one name short, any may lack.
    """
    is_short = len(found) == len(declared) - 1
    moved = find_moved(found, declared, shift=int(is_short))
    if moved:
        told = (
            f"its header has {in_short([*map(repr, moved)])} at another place than "
            f"`columns`: the header is {in_short(found)}; `columns` are "
            f"{in_short(declared)}; declare them in the order of the file, or, if its "
            f"header is wrong, declare header = false and skip = {behind}"
        )
        return ColumnCheck(problems=(told,))
    if is_short or len(found) == len(declared):
        return ColumnCheck()
    told = f"its header has {len(found):,} names, `columns` has {len(declared):,}"
    return ColumnCheck(remarks=(told,))


def find_moved(
    found: Sequence[str], declared: Sequence[str], *, shift: int
) -> list[str]:
    """Return names of declared columns that stand nowhere near their place.

    A column may stand so many places before its own.
    """
    names, columns = [*map(str.casefold, found)], [*map(str.casefold, declared)]
    near = {
        name for at, name in enumerate(names) if name in columns[at : at + 1 + shift]
    }
    elsewhere = {*columns} - near
    return [name for name in found if name.casefold() in elsewhere]


def places_of(name: str, found: Sequence[str]) -> str:
    return in_short([str(at) for at, each in enumerate(found, 1) if each == name])


def other_delimiter(found: Sequence[str], wanted: Collection[str]) -> str | None:
    """Return what would cut a header of one column into columns that are wanted."""
    if len(found) > 1 or found[0] in wanted:
        return None
    for delimiter in DELIMITERS:
        names = [each.strip(' "') for each in found[0].split(delimiter)]
        if len(names) > 1 and any(each in wanted for each in names):
            return delimiter
    return None


def tell_missing(name: str, unknown: Iterable[str]) -> str:
    """Say that a column is missing, and which of the others may be meant."""
    folded = {each.casefold(): each for each in unknown}
    close = get_close_matches(name.casefold(), folded, n=1)
    guess = f"; did you mean {folded[close[0]]!r}?" if close else ""
    return f"column {name!r} is missing{guess}"
