"""Compare the names in a header with those that are wanted."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from penstock.domain.guess.layout import DELIMITERS
from penstock.domain.text import shorten


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
    problems = [tell_missing(name, unknown) for name in wanted if name not in counts]
    remarks = []
    for name, count in counts.items():
        if not name:
            places = [str(at) for at, each in enumerate(found, 1) if not each]
            remarks.append(f"column {', '.join(places)} has no name")
        elif name not in wanted:
            remarks.append(f"column {name!r} is not declared")
        elif count > 1:
            places = [str(at) for at, each in enumerate(found, 1) if each == name]
            problems.append(
                f"column {name!r} is there {count} times: {', '.join(places)}"
            )
    return ColumnCheck(problems=tuple(problems), remarks=tuple(remarks))


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
