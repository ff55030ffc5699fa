"""Compare the names in a header with the declared columns."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from penstock.domain.formats import MAX_NAMES_SHOWN, shorten, summarize_names
from penstock.domain.inference.dialect import DELIMITERS

# the most problems reported for one file
MAX_PROBLEMS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnCheck:
    """What is wrong with a header."""

    # rows cannot be mapped
    problems: tuple[str, ...] = ()
    # warnings: rows can be mapped all the same
    warnings: tuple[str, ...] = ()


def check_columns(
    found: Sequence[str], expected: Iterable[str], *, delimiter: str = ","
) -> ColumnCheck:
    """Report missing, duplicated and undeclared columns of a header."""
    if not found:
        return ColumnCheck(problems=("the file has no columns: it is empty",))
    counts = Counter(found)
    expected = dict.fromkeys(expected)
    other = find_other_delimiter(found, expected)
    if other is not None:
        problem = (
            f"with delimiter {delimiter!r} its header is one column, "
            f"{shorten(found[0], 40)}; the delimiter looks like {other!r}"
        )
        return ColumnCheck(problems=(problem,))
    undeclared = [name for name in counts if name and name not in expected]
    missing = [name for name in expected if name not in counts]
    duplicated = [name for name in expected if counts[name] > 1]
    # finding a similar name costs one comparison for each column
    problems = [describe_missing(name, undeclared) for name in missing[:MAX_PROBLEMS]]
    problems += [
        f"column {name!r} occurs {counts[name]} times: {positions_of(name, found)}"
        for name in duplicated[:MAX_PROBLEMS]
    ]
    more = len(missing) + len(duplicated) - len(problems)
    if more:
        problems.append(f"and {more:,} more columns are missing or duplicated")
    warnings = []
    if counts[""]:
        warnings.append(f"column {positions_of('', found)} has no name")
    if len(undeclared) > MAX_NAMES_SHOWN:
        named = summarize_names([*map(repr, undeclared)])
        warnings.append(f"{len(undeclared):,} columns are not declared: {named}")
    else:
        warnings += [f"column {name!r} is not declared" for name in undeclared]
    return ColumnCheck(problems=tuple(problems), warnings=tuple(warnings))


def compare_with_declared(
    found: Sequence[str], declared: Sequence[str], *, behind: int
) -> ColumnCheck:
    """Report names in a header that are at another position in `columns`.

    `behind` is the line of the header. If the header is one name short, any of the
    names may be the missing one.
    """
    is_short = len(found) == len(declared) - 1
    moved = find_moved(found, declared, shift=int(is_short))
    if moved:
        problem = (
            f"its header has {summarize_names([*map(repr, moved)])} at another "
            f"position than `columns`: the header is {summarize_names(found)}; "
            f"`columns` are {summarize_names(declared)}; declare them in the order "
            f"of the file, or, if its header is wrong, declare "
            f"header = false and skip = {behind}"
        )
        return ColumnCheck(problems=(problem,))
    if is_short or len(found) == len(declared):
        return ColumnCheck()
    warning = f"its header has {len(found):,} names, `columns` has {len(declared):,}"
    return ColumnCheck(warnings=(warning,))


def find_moved(
    found: Sequence[str], declared: Sequence[str], *, shift: int
) -> list[str]:
    """Return the names of declared columns that are not at their position.

    A column may be up to `shift` positions before its own.
    """
    names, columns = [*map(str.casefold, found)], [*map(str.casefold, declared)]
    near = {
        name for at, name in enumerate(names) if name in columns[at : at + 1 + shift]
    }
    elsewhere = {*columns} - near
    return [name for name in found if name.casefold() in elsewhere]


def positions_of(name: str, found: Sequence[str]) -> str:
    return summarize_names(
        [str(at) for at, other in enumerate(found, 1) if other == name]
    )


def find_other_delimiter(found: Sequence[str], expected: Collection[str]) -> str | None:
    """Return the delimiter that would split a header of one column as expected."""
    if len(found) > 1 or found[0] in expected:
        return None
    for delimiter in DELIMITERS:
        names = [name.strip(' "') for name in found[0].split(delimiter)]
        if len(names) > 1 and any(name in expected for name in names):
            return delimiter
    return None


def describe_missing(name: str, undeclared: Iterable[str]) -> str:
    """Report a missing column, and the most similar name."""
    by_folded_name = {other.casefold(): other for other in undeclared}
    matches = get_close_matches(name.casefold(), by_folded_name, n=1)
    guess = f"; did you mean {by_folded_name[matches[0]]!r}?" if matches else ""
    return f"column {name!r} is missing{guess}"
