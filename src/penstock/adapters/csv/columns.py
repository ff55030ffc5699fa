"""Compare the names in a header with those that are wanted."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnCheck:
    """What is wrong with a header."""

    # with these no row can be mapped
    problems: tuple[str, ...] = ()
    # these are passed over, but a user may like to know
    remarks: tuple[str, ...] = ()


def check_columns(found: Sequence[str], wanted: Iterable[str]) -> ColumnCheck:
    """Say what the header lacks, what it has twice, and what nobody asked for."""
    if not found:
        return ColumnCheck(problems=("the file has no columns: it is empty",))
    counts = Counter(found)
    wanted = dict.fromkeys(wanted)
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


def tell_missing(name: str, unknown: Iterable[str]) -> str:
    """Say that a column is missing, and which of the others may be meant."""
    folded = {each.casefold(): each for each in unknown}
    close = get_close_matches(name.casefold(), folded, n=1)
    guess = f"; did you mean {folded[close[0]]!r}?" if close else ""
    return f"column {name!r} is missing{guess}"
