"""Whatever of a declaration clients can notice makes another edition of it."""

from dataclasses import replace

import pytest

from penstock.domain.dataset import Dataset, Field, FieldType
from penstock.entrypoints.api import dataset_description as module
from penstock.entrypoints.api.dataset_description import edition_of
from tests.support.builders import dataset, int_field, text_field, typed_field

POI = dataset(
    fields=(
        int_field("id", required=True),
        text_field("title"),
        text_field("town"),
        typed_field("lat", FieldType.FLOAT),
        typed_field("lon", FieldType.FLOAT),
        Field(name="note"),
    ),
)


def with_field(at: int, **changed: object) -> Dataset:
    fields = [*POI.fields]
    fields[at] = replace(fields[at], **changed)  # type: ignore[arg-type]
    return replace(POI, fields=tuple(fields))


@pytest.mark.parametrize(
    "other",
    [
        replace(POI, search=("title",)),
        replace(POI, geo=("lat", "lon")),
        replace(POI, filter=("town",)),
        replace(POI, key=("id", "title")),
        replace(POI, fields=POI.fields[:-1]),
        replace(POI, fields=POI.fields[::-1]),
        with_field(1, required=True),
        with_field(5, local=True),
        with_field(1, type=FieldType.JSON),
        with_field(1, name="headline"),
    ],
    ids=[
        "search",
        "geo",
        "filter",
        "key",
        "fewer fields",
        "another order",
        "required",
        "local",
        "type",
        "name",
    ],
)
def test_what_is_declared_otherwise_is_another_edition(other: Dataset):
    assert edition_of(other) != edition_of(POI)


def test_another_version_of_the_code_is_another_edition(monkeypatch):
    before = edition_of(POI)
    monkeypatch.setattr(module, "__version__", "999")

    assert edition_of(POI) != before


def test_what_clients_cannot_notice_changes_nothing():
    assert edition_of(replace(POI, priority=9)) == edition_of(POI)
