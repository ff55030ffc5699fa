"""Write a guessed dataset as a `penstock.toml`, with each reason in a comment."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from penstock.domain.dataset import FieldType
from penstock.domain.guess.columns import Column
from penstock.domain.guess.draft import Draft
from penstock.domain.guess.guessed import Guessed
from penstock.domain.guess.layout import Layout

# one line of TOML: what stands in it, and why
Line = tuple[str, str]

HEAD = """\
# penstock.toml, drafted from {file}.
# Everything here is a guess by {rows}; the comments say why.
# Correct what is wrong, then: penstock check

[penstock]
database = "sqlite:///penstock.db"  # a file beside this one
"""
ODD_ROWS = "have more or fewer cells than the first line, and would be bad rows"
# where comments begin, unless a line is longer
WIDEST = 72


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafted:
    """All that was found out about a file."""

    name: str
    file: str
    # all of its columns, also those that become no field
    columns: tuple[str, ...]
    # which rows were looked at, in words
    rows: str
    # rows that no field can be read from
    odd: int
    encoding: Guessed[str]
    layout: Layout
    draft: Draft

    @property
    def doubts(self) -> Iterator[str]:
        """What may well be wrong, a sentence each."""
        if self.encoding.doubt is not None:
            yield self.encoding.doubt
        yield from self.layout.doubts
        if self.odd:
            yield f"{self.odd:,} of the rows looked at {ODD_ROWS}"
        yield from self.draft.doubts


def write_draft(drafted: Drafted) -> str:
    """Return the text of the file."""
    name, draft = drafted.name, drafted.draft
    head = HEAD.format(file=in_comment(drafted.file), rows=drafted.rows)
    tables = (
        (f"[datasets.{name}]", dataset_lines(draft)),
        (f"[datasets.{name}.source]", source_lines(drafted)),
        (f"[datasets.{name}.fields]", field_lines(draft)),
    )
    parts = [head, *("\n".join([title, *aligned(lines)]) for title, lines in tables)]
    left_out = "".join(f"# {in_comment(told)}\n" for told in draft.left_out)
    return "\n\n".join(part.rstrip("\n") for part in (*parts, left_out) if part) + "\n"


def dataset_lines(draft: Draft) -> Iterator[Line]:
    key = draft.key.value
    yield f"key = {text(key[0]) if len(key) == 1 else texts(key)}", draft.key.reason
    if draft.geo is not None:
        yield f"geo = {texts(draft.geo.value)}", draft.geo.reason
    yield from list_lines("search", draft.search)
    yield from list_lines("filter", draft.filter)


def list_lines(name: str, guesses: Sequence[Guessed[str]]) -> Iterator[Line]:
    """Give each name a line of its own, for its reason."""
    if guesses:
        yield f"{name} = [", ""
        yield from ((f"  {text(each.value)},", each.reason) for each in guesses)
        yield "]", ""


def source_lines(drafted: Drafted) -> Iterator[Line]:
    layout, draft = drafted.layout, drafted.draft
    yield 'type = "csv"', ""
    yield f"files = {text(drafted.file)}", "may hold * and ?"
    yield f"encoding = {text(drafted.encoding.value)}", drafted.encoding.reason
    yield f"delimiter = {text(layout.delimiter.value)}", layout.delimiter.reason
    if layout.escape is not None:
        yield f"escape = {text(layout.escape.value)}", layout.escape.reason
    if layout.skip.value:
        yield f"skip = {layout.skip.value}", layout.skip.reason
    has_header = layout.header.value
    yield f"header = {str(has_header).lower()}", layout.header.reason
    if not has_header:
        yield f"columns = {texts(drafted.columns)}", "rename them here and below"
    yield f"null = {texts(draft.null.value)}", draft.null.reason
    if drafted.odd:
        yield f"# {drafted.odd:,} of them {ODD_ROWS}", ""


def field_lines(draft: Draft) -> Iterator[Line]:
    lat, lon = (None, None) if draft.geo is None else draft.geo.value
    degrees = {lat: 90, lon: 180}
    for column in draft.columns:
        told = [f"column = {text(column.column)}"]
        if column.kind.type is not FieldType.TEXT:
            told.append(f'type = "{column.kind.type}"')
        if column.kind.format is not None:
            told.append(f"format = {text(column.kind.format)}")
        if column.kind.decimal is not None:
            told.append(f"decimal = {text(column.kind.decimal)}")
        if column.name in draft.key.value:
            told.append("required = true")
        if column.name in degrees:
            most = degrees[column.name]
            told.append(f"min = -{most}, max = {most}")
        yield f"{column.name} = {{ {', '.join(told)} }}", why(column)


def why(column: Column) -> str:
    empty = column.rows - len(column.values)
    share = f"; {empty:,} of {column.rows:,} empty" if empty and column.values else ""
    return f"{column.kind.reason}{share}"


def aligned(lines: Iterable[Line]) -> Iterator[str]:
    """Write lines with their comments below each other."""
    known = [*lines]
    widths = [len(told) for told, reason in known if reason and len(told) <= WIDEST]
    column = max(widths, default=0)
    for told, reason in known:
        yield f"{told:{column}}  # {in_comment(reason)}" if reason else told


def texts(values: Iterable[str]) -> str:
    return f"[{', '.join(map(text, values))}]"


def text(value: str) -> str:
    """Quote a value; what would be filled from the environment is kept as it is."""
    # JSON's escapes are TOML's, but for one character that only TOML refuses
    quoted = json.dumps(value.replace("${", "$${"), ensure_ascii=False)
    return quoted.replace("\x7f", "\\u007f")


def in_comment(told: str) -> str:
    """Keep a comment on its line: no control character may stand in one."""
    return re.sub(r"[\x00-\x1f\x7f-\x9f]", "\N{REPLACEMENT CHARACTER}", told)
