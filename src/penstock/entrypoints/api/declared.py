"""What clients hear of a declaration, and a name for all that it decides."""

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import msgspec

from penstock import __version__
from penstock.domain.dataset import Dataset, Field
from penstock.domain.queries.query import filterable

encode = msgspec.json.Encoder().encode


def described(dataset: Dataset) -> Mapping[str, Any]:
    return {
        "name": dataset.name,
        "key": list(dataset.key),
        "fields": [described_field(each) for each in dataset.fields],
        "filter": list(filterable(dataset)),
        "search": list(dataset.search),
        "geo": None if dataset.geo is None else list(dataset.geo),
    }


def described_field(field: Field) -> Mapping[str, Any]:
    return {
        "name": field.name,
        "type": field.type,
        "required": field.required,
        "local": field.local,
    }


def edition_of(dataset: Dataset) -> str:
    """Tell apart what another declaration of a dataset would answer, or other code."""
    told = encode([__version__, described(dataset)])
    return blake2b(told, digest_size=8).hexdigest()
