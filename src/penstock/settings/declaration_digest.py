"""A digest of a dataset's declaration: equal digests mean equal imports."""

import dataclasses
import json
from collections.abc import Mapping
from hashlib import blake2b

from penstock.domain.dataset import Dataset
from penstock.domain.source import CsvSource, Source
from penstock.ports import Redact

DIGEST_SIZE = 16

# locations and limits of files, which do not change their meaning
LOCAL_KEYS = frozenset(
    {
        "folder",
        "spool",
        "timeout",
        "max_bytes",
        "download",
        "private",
        "unsized",
        "max_expansion",
        "max_empty_lines",
    }
)

# limits that an operator may raise so that the same import can continue
GUARDRAILS = {"pages": {"max"}, "axis": {"smallest"}}

# keys that earlier versions did not have: left out at their defaults, so that
# unfinished imports of those versions are still recognised
LATER_ADDED_KEYS = frozenset(
    {
        *("error", "escape", "exact", "is_normalized", "is_row_key", "skip", "total"),
        "unclosed_quote",
    }
)

# the names that classes had when the first digests were stored
FORMER_NAMES = {"Pagination": "Pages"}


def declaration_digest(dataset: Dataset, *, redact: Redact = str) -> str:
    """Digest what decides the shards, the pages and the meaning of a dataset.

    Credentials, limits and thresholds may change while an import is unfinished, and
    so may the order of the fields. Pass `redact` if the URL, query or body may contain
    a secret, so that a new secret does not change the digest.
    """
    content = {
        "name": dataset.name,
        "key": dataset.key,
        "fields": sorted(map(to_json_value, dataset.read_columns), key=str),
        "axes": [
            to_json_value(part, without=GUARDRAILS["axis"]) for part in dataset.axes
        ],
        "delta": to_json_value(dataset.delta),
        "transform": dataset.transform,
        **source_content(dataset.source),
    }
    text = json.dumps(content, sort_keys=True, ensure_ascii=False)
    return blake2b(redact(text).encode(), digest_size=DIGEST_SIZE).hexdigest()


def source_content(source: Source) -> dict[str, object]:
    if isinstance(source, CsvSource):
        # locations may differ between machines
        return {"csv": to_json_value(source, without=LOCAL_KEYS)}
    later = {"error": source.error, "total": source.total}
    return {
        "url": source.url,
        "method": source.method,
        "query": to_json_value(source.query),
        "body": to_json_value(source.body),
        "records": source.records,
        "cap": source.cap,
        "pages": to_json_value(source.pages, without=GUARDRAILS["pages"]),
        **{name: path for name, path in later.items() if path is not None},
    }


def to_json_value(
    value: object, *, without: set[str] | frozenset[str] = frozenset()
) -> object:
    """Convert a value to JSON types, the same in every process."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        content = {
            item.name: to_json_value(getattr(value, item.name))
            for item in dataclasses.fields(value)
            if item.name not in without
            and not (
                item.name in LATER_ADDED_KEYS
                and getattr(value, item.name) == item.default
            )
        }
        # axes of two kinds may have the same fields
        name = type(value).__name__
        return {"is": FORMER_NAMES.get(name, name), **content}
    if isinstance(value, Mapping):
        return {str(key): to_json_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json_value(item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    # decimals, times and durations
    return str(value)
