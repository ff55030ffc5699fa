"""Write an inferred dataset as a `penstock.toml`, with each reason in a comment."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from penstock.domain.dataset import FieldType
from penstock.domain.inference.columns import Column
from penstock.domain.inference.dialect import CsvLayout
from penstock.domain.inference.draft import Draft
from penstock.domain.inference.guess import Guess

# one line of TOML: its code and its comment
Line = tuple[str, str]

HEAD = """\
# penstock.toml, drafted from {file}.
# Everything here is a guess by {rows}; the comments say why.
# Correct what is wrong, then: penstock check

[penstock]
database = "sqlite:///penstock.db"  # a file beside this one
"""
ODD_ROWS_NOTE = "have more or fewer cells than the first line, and would be bad rows"
# comments are aligned up to this column
MAX_ALIGNED_WIDTH = 72


@dataclass(frozen=True, slots=True, kw_only=True)
class InferredDataset:
    """Everything that was inferred from a file."""

    name: str
    file: str
    # all of its columns, including those that become no field
    columns: tuple[str, ...]
    # a description of the sampled rows
    rows: str
    # rows with the wrong number of cells
    odd: int
    encoding: Guess[str]
    layout: CsvLayout
    draft: Draft

    @property
    def doubts(self) -> Iterator[str]:
        """Uncertain guesses, one sentence each."""
        if self.encoding.doubt is not None:
            yield self.encoding.doubt
        yield from self.layout.doubts
        if self.odd:
            yield f"{self.odd:,} of the rows looked at {ODD_ROWS_NOTE}"
        yield from self.draft.doubts


def write_draft(dataset: InferredDataset) -> str:
    """Return the text of the file."""
    head = HEAD.format(file=clean_comment(dataset.file), rows=dataset.rows)
    return head.rstrip("\n") + "\n\n" + write_tables(dataset)


def write_tables(dataset: InferredDataset) -> str:
    """Return the tables of the dataset alone, for a file that has others."""
    name, draft = dataset.name, dataset.draft
    tables = (
        (f"[datasets.{name}]", dataset_lines(draft)),
        (f"[datasets.{name}.source]", source_lines(dataset)),
        (f"[datasets.{name}.fields]", field_lines(draft)),
    )
    parts = ["\n".join([title, *align_comments(lines)]) for title, lines in tables]
    left_out = "".join(f"# {clean_comment(note)}\n" for note in draft.left_out)
    return "\n\n".join(part.rstrip("\n") for part in (*parts, left_out) if part) + "\n"


def dataset_lines(draft: Draft) -> Iterator[Line]:
    key = draft.key.value
    yield (
        f"key = {quote(key[0]) if len(key) == 1 else quote_list(key)}",
        draft.key.reason,
    )
    if draft.geo is not None:
        yield f"geo = {quote_list(draft.geo.value)}", draft.geo.reason
    yield from list_lines("search", draft.search)
    yield from list_lines("filter", draft.filter)


def list_lines(name: str, guesses: Sequence[Guess[str]]) -> Iterator[Line]:
    """Write one name per line, each with its reason."""
    if guesses:
        yield f"{name} = [", ""
        yield from ((f"  {quote(guess.value)},", guess.reason) for guess in guesses)
        yield "]", ""


def source_lines(dataset: InferredDataset) -> Iterator[Line]:
    layout, draft = dataset.layout, dataset.draft
    yield 'type = "csv"', ""
    yield f"files = {quote(dataset.file)}", "may hold * and ?"
    yield f"encoding = {quote(dataset.encoding.value)}", dataset.encoding.reason
    yield f"delimiter = {quote(layout.delimiter.value)}", layout.delimiter.reason
    if layout.escape is not None:
        yield f"escape = {quote(layout.escape.value)}", layout.escape.reason
    if layout.skip.value:
        yield f"skip = {layout.skip.value}", layout.skip.reason
    has_header = layout.header.value
    yield f"header = {str(has_header).lower()}", layout.header.reason
    if not has_header:
        yield f"columns = {quote_list(dataset.columns)}", "rename them here and below"
    yield f"null = {quote_list(draft.null.value)}", draft.null.reason
    if dataset.odd:
        yield f"# {dataset.odd:,} of them {ODD_ROWS_NOTE}", ""


def field_lines(draft: Draft) -> Iterator[Line]:
    lat, lon = (None, None) if draft.geo is None else draft.geo.value
    degrees = {lat: 90, lon: 180}
    for column in draft.columns:
        settings = [f"column = {quote(column.column)}"]
        if column.kind.type is not FieldType.TEXT:
            settings.append(f'type = "{column.kind.type}"')
        if column.kind.format is not None:
            settings.append(f"format = {quote(column.kind.format)}")
        if column.kind.decimal is not None:
            settings.append(f"decimal = {quote(column.kind.decimal)}")
        if column.kind.type is not FieldType.TEXT and column.kind.exact:
            settings.append("exact = true")
        if column.name in draft.key.value:
            settings.append("required = true")
        if column.name in degrees:
            limit = degrees[column.name]
            settings.append(f"min = -{limit}, max = {limit}")
        yield f"{column.name} = {{ {', '.join(settings)} }}", describe_column(column)


def describe_column(column: Column) -> str:
    empty = column.rows - len(column.values)
    share = f"; {empty:,} of {column.rows:,} empty" if empty and column.values else ""
    return f"{column.kind.reason}{share}"


def align_comments(lines: Iterable[Line]) -> Iterator[str]:
    """Join code and comments, with the comments aligned."""
    all_lines = [*lines]
    widths = [
        len(code)
        for code, reason in all_lines
        if reason and len(code) <= MAX_ALIGNED_WIDTH
    ]
    column = max(widths, default=0)
    for code, reason in all_lines:
        yield f"{code:{column}}  # {clean_comment(reason)}" if reason else code


def quote_list(values: Iterable[str]) -> str:
    return f"[{', '.join(map(quote, values))}]"


def quote(value: str) -> str:
    """Quote a value; `${` is escaped, so that it is not filled."""
    # TOML has the escapes of JSON, and in addition refuses DEL
    quoted = json.dumps(value.replace("${", "$${"), ensure_ascii=False)
    return quoted.replace("\x7f", "\\u007f")


def clean_comment(comment: str) -> str:
    """Replace control characters, which a TOML comment must not contain."""
    return re.sub(r"[\x00-\x1f\x7f-\x9f]", "\N{REPLACEMENT CHARACTER}", comment)
