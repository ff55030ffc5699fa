"""What becomes of the rows of a page."""

from collections.abc import Collection
from dataclasses import replace

import pytest

from penstock.domain.dataset import Reference
from penstock.domain.mapping.columnar import ColumnarRows
from penstock.domain.mapping.mapper import Mapper
from penstock.domain.mapping.page_mapper import map_page
from penstock.domain.pages import Page, RawRow, Reason, RowLocation
from penstock.domain.sharding.shard import never_outside
from tests.support.builders import dataset, int_field, text_field

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
    return [
        (b"raw %d" % at, RowLocation(line=at + 2, offset=10 * at)) for at in positions
    ]


def by_column(*rows) -> Page:
    return Page(rows=ColumnarRows([*zip(*rows, strict=True)], details))


def by_row(*rows) -> Page:
    found = details(range(len(rows)))
    return Page(
        rows=[
            RawRow(row, raw, at, place=place)
            for at, (row, (raw, place)) in enumerate(zip(rows, found, strict=True))
        ]
    )


@pytest.mark.parametrize("page_of", [by_column, by_row])
def test_rows_that_refer_to_nothing_are_bad(page_of):
    page = page_of((1, "north"), ("x", "south"), (3, "west"), (4, None), (5, "west"))

    records, rejections, _ = map_page(
        Mapper(SHOPS), page, never_outside, known, shard="all"
    )

    assert [record.key for record in records] == [(1,), (4,)]
    result = {each.position: (each.reason, each.detail) for each in rejections}
    assert result[2] == (Reason.REFERENCE, "'west' is not in regions.code")
    assert set(result) == {1, 2, 4}
    assert result[1][0] is Reason.TYPE
    assert {each.position: each.raw for each in rejections}[4] == b"raw 4"
    assert {each.position: each.place for each in rejections}[4] == RowLocation(6, 40)
    assert {each.position: each.key for each in rejections}[4] == (5,)


def test_a_page_of_strangers_alone_has_no_record():
    records, rejections, _ = map_page(
        Mapper(SHOPS), by_column((1, "west")), never_outside, known, shard="all"
    )

    assert list(records) == []
    assert [each.field for each in rejections] == ["region"]


def test_flawed_rows_are_bad_beside_the_others():
    text = ("has 3 values, not 2", RowLocation(9, 99), Reason.TOO_MANY_VALUES)
    flawed = RawRow((), b"1,2,3", 7, *text)
    page = Page(rows=by_column((1, "north")).rows, bad_rows=[flawed])

    records, rejections, _ = map_page(
        Mapper(SHOPS), page, never_outside, known, shard="all"
    )

    assert len(records) == 1
    (bad,) = rejections
    assert (bad.reason, bad.raw, bad.place) == (
        *(Reason.TOO_MANY_VALUES, b"1,2,3", RowLocation(9, 99)),
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

    _, rejections, _ = map_page(
        Mapper(replace(SHOPS, version=version)),
        replace(page, rank=rank),
        *(never_outside, known),
        shard="all",
    )

    assert {each.position for each in rejections} == {0, 2, 3, 4, 7, 8}
    assert {each.position for each in rejections if each.is_superseded} == outdone
