"""A dataset as clients see it, and a digest of that."""

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import msgspec

from penstock import __version__
from penstock.domain.dataset import Dataset, Field
from penstock.domain.search.query import filterable_fields

encode = msgspec.json.Encoder().encode


def dataset_document(dataset: Dataset) -> Mapping[str, Any]:
    return {
        "name": dataset.name,
        "key": list(dataset.key),
        "fields": [describe_field(field) for field in dataset.fields],
        "filter": list(filterable_fields(dataset)),
        "search": list(dataset.search),
        "geo": None if dataset.geo is None else list(dataset.geo),
    }


def describe_field(field: Field) -> Mapping[str, Any]:
    return {
        "name": field.name,
        "type": field.type,
        "required": field.required,
        "local": field.local,
    }


def edition_of(dataset: Dataset) -> str:
    """Return a digest of the declaration and the version, on which responses depend."""
    content = encode([__version__, dataset_document(dataset)])
    return blake2b(content, digest_size=8).hexdigest()
