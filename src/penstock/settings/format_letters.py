"""Refuse formats that read times wrongly, and translate those of other programs."""

import re
from collections.abc import Iterator

from penstock.domain.time_formats import is_time_format

# the format letters of spreadsheets and other languages
STRPTIME_DIRECTIVES = {
    **dict.fromkeys(("YYYY", "yyyy"), "%Y"),
    **dict.fromkeys(("YY", "yy"), "%y"),
    **dict.fromkeys(("MMMM", "mmmm"), "%B"),
    **dict.fromkeys(("MMM", "mmm"), "%b"),
    "MM": "%m",
    **dict.fromkeys(("DD", "dd"), "%d"),
    **dict.fromkeys(("HH", "hh"), "%H"),
    "mm": "%M",
    **dict.fromkeys(("SS", "ss"), "%S"),
}
LETTER_FORMAT = re.compile("|".join(STRPTIME_DIRECTIVES))
HOUR, SECOND, DAYS = "%H", "%S", frozenset({"%d", "%Y", "%y"})
DIRECTIVE = re.compile(r"%(.)", re.DOTALL)
# directives from which the month follows, and those that tell a time of day
MONTHS = frozenset("mbBhjcxDFsQUWV")
TIMES_OF_DAY = frozenset("HIMRTX")


def describe_wrong_format(form: str) -> str:
    """Return the message for a wrong format; suggest a translation if there is one."""
    guess = translate_letters(form)
    if guess != form and is_time_format(guess):
        return f"is not a format of strptime; did you mean {guess!r}?"
    message = "is not a format by which times can be read; write one such as"
    return f"{message} '%d.%m.%Y %H:%M', or '%s' for seconds since 1970"


def translate_letters(form: str) -> str:
    """Translate a format such as `dd.mm.yyyy hh:mm`.

    Two letters m are minutes behind hours or before seconds, and the month beside a day
    or a year, in either case of the letters.
    """
    found = [*LETTER_FORMAT.finditer(form)]
    directives = ["", *(STRPTIME_DIRECTIVES[each[0]] for each in found), ""]
    parts, end = [], 0
    for index, match in enumerate(found, start=1):
        before, directive, after = directives[index - 1 : index + 2]
        if directive in {"%m", "%M"}:
            if before == HOUR or after == SECOND:
                directive = "%M"
            elif {before, after} & DAYS:
                directive = "%m"
        parts += [form[end : match.start()], directive]
        end = match.end()
    return "".join([*parts, form[end:]])


def find_format_problems(form: str, *, is_date: bool) -> Iterator[str]:
    """Yield why a format would read each time as another one."""
    letters = set(DIRECTIVE.findall(form))
    has_month = bool(letters & MONTHS)
    if not has_month and (is_date or "d" in letters):
        guess = form.replace("%M", "%m")
        remedy = f"did you mean {guess!r}?" if guess != form else "write %m for it"
        yield f"has no month, so all of them would be in January; {remedy}"
    elif is_date and letters & TIMES_OF_DAY:
        yield 'has hours or minutes, and a date has none; declare type = "timestamp"'
