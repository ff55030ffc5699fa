"""What rows that were deleted may cost those who read the others: nothing."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest

from penstock.domain.dataset import (
    Dataset,
    DatasetName,
    FieldType,
    Missing,
    WhenMissing,
)
from penstock.domain.pages import Record
from penstock.domain.search.search_params import read_facets
from penstock.ports import Records, Stores
from penstock.ports.record_access import ApiStores, CountKind
from tests.contracts.record_access import list_query, walk
from tests.contracts.search import ids
from tests.contracts.search import search_query as searched
from tests.support.builders import (
    dataset,
    int_field,
    last,
    record,
    rows,
    run,
    text_field,
    typed_field,
)

STORED, LIVE = range(1, 6_001), range(3_001, 3_041)
PLACES = dataset(
    fields=(
        int_field("id", required=True),
        text_field("title"),
        int_field("points", required=True),
        typed_field("lat", FieldType.FLOAT),
        typed_field("lon", FieldType.FLOAT),
    ),
    filter=("title", "points"),
    search=("title",),
    geo=("lat", "lon"),
    missing=Missing(do=WhenMissing.MARK, max_drop=1),
)


@dataclass(frozen=True)
class Observed:
    """Stores of one database, and how much they do for an answer."""

    stores: Stores
    records: Records
    served: ApiStores
    # rows that are touched, or steps of a program: compared with others of its kind
    work: Callable[[Callable[[], object]], int]
    # returns when every index that was built can be used
    settle: Callable[[], object] = lambda: None


def place(number: int, of: Dataset) -> Record:
    title = None if number % 5 == 0 else f"Station {number}"
    lat, lon = 47 + number % 100 / 1_000, 8 + number % 90 / 1_000
    return record(number, title, number % 3, lat, lon, of=of)


def store(stores: Stores, of: Dataset, numbers: Iterable[int]) -> None:
    run(stores, of, last(*(place(number, of) for number in numbers)))
    stores.schema.maintain(of)


class DeletionsContract:
    """Subclasses bring `observed`, of a database that is migrated, for all tests."""

    declared: ClassVar[dict[str, Any]] = {}

    @pytest.fixture(scope="class")
    @classmethod
    def few(cls, observed: Observed) -> Dataset:
        """Return a dataset that never had any other rows."""
        of = replace(PLACES, **cls.declared, name=DatasetName("few"))
        store(observed.stores, of, LIVE)
        observed.settle()
        return of

    @pytest.fixture(scope="class")
    @classmethod
    def deep(cls, observed: Observed) -> Dataset:
        """Return one with as many, behind and before many that are deleted."""
        of = replace(PLACES, **cls.declared, name=DatasetName("deep"))
        store(observed.stores, of, STORED)
        store(observed.stores, of, LIVE)
        assert len(rows(observed.stores, of)) == len(LIVE)
        observed.settle()
        return of

    @pytest.mark.parametrize(
        "parameters",
        [
            {},
            {"sort": "-id"},
            {"id": "gt.500"},
            {"sort": "title"},
            {"sort": "-title"},
            {"sort": "-points"},
            {"points": "eq.1"},
            {"points": "eq.1", "sort": "-id"},
            {"title": "prefix.Station", "sort": "-title"},
        ],
        ids=str,
    )
    def test_a_walk_touches_live_rows_only(
        self, observed: Observed, few, deep, parameters
    ):
        def work(of: Dataset) -> int:
            query = list_query(of, limit="15", **parameters)
            return observed.work(lambda: [*walk(observed.served, query)])

        assert 0 < work(deep) <= 2 * work(few)

    @pytest.mark.parametrize("kind", [CountKind.EXACT, CountKind.PLANNED])
    @pytest.mark.parametrize("parameters", [{}, {"points": "eq.1"}], ids=str)
    def test_a_count_counts_live_rows_only(
        self, observed: Observed, few, deep, parameters, kind
    ):
        def work(of: Dataset) -> int:
            query = list_query(of, **parameters)
            return observed.work(lambda: observed.served.reads.count(query, kind))

        assert work(deep) <= 2 * work(few)

    def test_an_export_reads_live_rows_only(self, observed: Observed, few, deep):
        def work(of: Dataset) -> int:
            return observed.work(lambda: [*observed.records.rows(of)])

        assert 0 < work(deep) <= 2 * work(few)

    @pytest.mark.parametrize(
        "parameters",
        [
            {"q": "station"},
            {"q": "statoin"},
            {"q": "station", "points": "eq.1"},
            {"near": "47.05,8.05"},
            {"near": "47.05,8.05", "within": "3", "q": "sta"},
        ],
        ids=str,
    )
    def test_a_search_judges_live_rows_only(
        self, observed: Observed, few, deep, parameters
    ):
        def find(of: Dataset) -> list[int]:
            return ids(observed.served.search.search(searched(of, **parameters)))

        assert find(deep) == find(few)
        assert observed.work(lambda: find(deep)) <= 2 * observed.work(lambda: find(few))

    @pytest.mark.parametrize("parameters", [{}, {"q": "station"}], ids=str)
    def test_facets_count_live_rows_only(
        self, observed: Observed, few, deep, parameters
    ):
        def work(of: Dataset) -> int:
            query = read_facets(of, {**parameters, "by": "points"}.items())
            return observed.work(lambda: observed.served.search.facets(query))

        assert 0 < work(deep) <= 2 * work(few)
