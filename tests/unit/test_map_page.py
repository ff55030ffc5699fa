"""What becomes of the rows of a page."""

from collections.abc import Collection
from dataclasses import replace

import pytest

from penstock.domain.dataset import Reference
from penstock.domain.map_page import map_page
from penstock.domain.mapping import Mapper
from penstock.domain.page import Page, Place, Reason, Row
from penstock.domain.shard import never_outside
from penstock.domain.sheet import RawSheet
from tests.builders import dataset, int_field, text_field

SHOPS = dataset(
    "shops",
    fields=(
        int_field("id"),
        text_field("region", references=Reference("regions", "code")),
    ),
)


def known(reference: Reference, values: Collection[object]) -> set[object]:
    assert reference == Reference("regions", "code")
    assert None not in values
    return set(values) - {"north", "south"}


def details(positions):
    return [(b"raw %d" % at, Place(line=at + 2, offset=10 * at)) for at in positions]


def by_column(*rows) -> Page:
    return Page(rows=RawSheet([*zip(*rows, strict=True)], details))


def by_row(*rows) -> Page:
    found = details(range(len(rows)))
    return Page(
        rows=[
            Row(row, raw, at, place=place)
            for at, (row, (raw, place)) in enumerate(zip(rows, found, strict=True))
        ]
    )


@pytest.mark.parametrize("page_of", [by_column, by_row])
def test_rows_that_refer_to_nothing_are_bad(page_of):
    page = page_of((1, "north"), ("x", "south"), (3, "west"), (4, None), (5, "west"))

    records, rejections = map_page(
        Mapper(SHOPS), page, never_outside, known, shard="all"
    )

    assert [record.key for record in records] == [(1,), (4,)]
    told = {each.position: (each.reason, each.detail) for each in rejections}
    assert told[2] == (Reason.REFERENCE, "'west' is not in regions.code")
    assert set(told) == {1, 2, 4}
    assert told[1][0] is Reason.TYPE
    assert {each.position: each.raw for each in rejections}[4] == b"raw 4"
    assert {each.position: each.place for each in rejections}[4] == Place(6, 40)
    assert {each.position: each.key for each in rejections}[4] == (5,)


def test_a_page_of_strangers_alone_has_no_record():
    records, rejections = map_page(
        Mapper(SHOPS), by_column((1, "west")), never_outside, known, shard="all"
    )

    assert list(records) == []
    assert [each.field for each in rejections] == ["region"]


def test_flawed_rows_are_bad_beside_the_others():
    told = ("has 3 values, not 2", Place(9, 99), Reason.TOO_MANY_VALUES)
    flawed = Row((), b"1,2,3", 7, *told)
    page = Page(rows=by_column((1, "north")).rows, flawed=[flawed])

    records, rejections = map_page(
        Mapper(SHOPS), page, never_outside, known, shard="all"
    )

    assert len(records) == 1
    (bad,) = rejections
    assert (bad.reason, bad.raw, bad.place) == (
        *(Reason.TOO_MANY_VALUES, b"1,2,3", Place(9, 99)),
    )


@pytest.mark.parametrize("page_of", [by_column, by_row])
@pytest.mark.parametrize(
    ("rank", "version", "outdone"),
    [(1, None, {0, 3}), (0, None, set()), (1, "region", set())],
    ids=["of a file", "of an api", "by version"],
)
def test_a_bad_row_of_a_file_is_outdone_by_a_good_one_behind_it(
    page_of, rank, version, outdone
):
    page = page_of(
        *((1, "west"), (1, "north"), (1, "west"), (2, "west"), (1, "west")),
        *((2, "north"), (2, "south"), ("x", "north"), (3, "west")),
    )

    _, rejections = map_page(
        Mapper(replace(SHOPS, version=version)),
        replace(page, rank=rank),
        *(never_outside, known),
        shard="all",
    )

    assert {each.position for each in rejections} == {0, 2, 3, 4, 7, 8}
    assert {each.position for each in rejections if each.is_outdone} == outdone
