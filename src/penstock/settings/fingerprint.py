"""Tell whether two declarations of a dataset would be imported alike."""

import dataclasses
import json
from collections.abc import Mapping
from hashlib import blake2b

from penstock.domain.dataset import Dataset
from penstock.domain.source import CsvSource, Source
from penstock.ports import Redact

DIGEST_BYTES = 16

# where files lie, and how long and large they may be
PLACES = frozenset(
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

# guardrails: an operator raises them to let the same import go on
GUARDRAILS = {"pages": {"max"}, "axis": {"smallest"}}

# what an earlier version did not know: at its default it is left out, so that imports
# which that version left unfinished are still recognised
ADDED = frozenset({"escape", "skip", "unclosed_quote"})


def fingerprint(dataset: Dataset, *, redact: Redact = str) -> str:
    """Digest what decides the shards, the pages and the meaning of a dataset.

    Credentials, limits and thresholds may change while an import is unfinished, and
    so may the order of the fields. Give `redact` where a secret may stand in the URL,
    query or body, so that a new one changes nothing.
    """
    decisive = {
        "name": dataset.name,
        "key": dataset.key,
        "fields": sorted((plain(each) for each in dataset.columns), key=str),
        "axes": [plain(each, without=GUARDRAILS["axis"]) for each in dataset.axes],
        "delta": plain(dataset.delta),
        "transform": dataset.transform,
        **source_facts(dataset.source),
    }
    text = json.dumps(decisive, sort_keys=True, ensure_ascii=False)
    return blake2b(redact(text).encode(), digest_size=DIGEST_BYTES).hexdigest()


def source_facts(source: Source) -> dict[str, object]:
    if isinstance(source, CsvSource):
        # where files lie may differ from machine to machine
        return {"csv": plain(source, without=PLACES)}
    return {
        "url": source.url,
        "method": source.method,
        "query": plain(source.query),
        "body": plain(source.body),
        "records": source.records,
        "cap": source.cap,
        "pages": plain(source.pages, without=GUARDRAILS["pages"]),
    }


def plain(value: object, *, without: set[str] | frozenset[str] = frozenset()) -> object:
    """Return a value as JSON has it, the same in every process."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        kept = {
            each.name: plain(getattr(value, each.name))
            for each in dataclasses.fields(value)
            if each.name not in without
            and not (each.name in ADDED and getattr(value, each.name) == each.default)
        }
        # axes of two kinds may have the same fields
        return {"is": type(value).__name__, **kept}
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    # decimals, times and durations
    return str(value)
