"""Indexes come when the first rows are in, and what they hold unsorted stays small."""

import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import psycopg
import pytest

from penstock.adapters.postgres import index_maintenance
from penstock.adapters.postgres.gin_cleanup import CLEANUP_ROW_THRESHOLD
from penstock.adapters.postgres.table_sql import LIVE_INDEX_THRESHOLD
from penstock.domain.dataset import Dataset, FieldType
from penstock.domain.jobs import Mode
from penstock.domain.pages import Record
from penstock.ports import Stores
from tests.support.builders import (
    MINUTE,
    batch,
    claim,
    dataset,
    int_field,
    last,
    plan,
    record,
    run,
    text_field,
    typed_field,
)
from tests.support.postgres import Place, opened, own_schema
from tests.support.racing import in_processes

FIELDS = (
    int_field("id", required=True),
    text_field("title"),
    int_field("points"),
    typed_field("lat", FieldType.FLOAT),
    typed_field("lon", FieldType.FLOAT),
)
POI = dataset(fields=FIELDS, filter=("points",), search=("title",), geo=("lat", "lon"))
SECONDARY = {
    "penstock:poi:points",
    "penstock:poi::words",
    "penstock:poi::sample",
    "penstock:poi::place",
}


@pytest.fixture
def place(postgres_url: str) -> Iterator[Place]:
    with own_schema(postgres_url) as place:
        place.stop_clock()
        yield place


@pytest.fixture
def stores(place: Place) -> Iterator[Stores]:
    with opened(place, clock=place.clock) as (stores, _):
        stores.schema.migrate()
        yield stores


def poi(number: int, title: str = "town") -> Record:
    return record(number, f"{title} {number}", number % 7, 1.5, 2.5, of=POI)


def valid_indexes(place: Place, name: str = "poi") -> set[str]:
    """Return what was built; that of deleted rows is there from the beginning."""
    response = place.ask(
        "select relname from pg_index join pg_class on pg_class.oid = indexrelid "
        "where indisvalid and not indisprimary and relname not like '%%::deleted' "
        "and indrelid = to_regclass(quote_ident(%s))",
        name,
    )
    return {name for (name,) in response}


class TestBuilding:
    def test_a_new_table_has_no_index_but_its_keys(self, stores: Stores, place):
        stores.schema.ensure_table(POI)

        assert list(stores.schema.maintain(POI)) == []

        assert valid_indexes(place) == set()

    def test_they_are_built_when_the_first_import_has_ended(
        self, stores: Stores, place
    ):
        import_id = plan(stores, POI)
        lease, _ = stores.ledger.commit_page(POI, claim(stores, POI), batch(poi(1)))
        stores.schema.maintain(POI)
        assert valid_indexes(place) == set()

        stores.ledger.commit_page(POI, lease, last(poi(2)))
        stores.imports.close(POI, import_id, failed=None)
        built = stores.schema.maintain(POI)

        assert len(built) == 4
        assert valid_indexes(place) == SECONDARY

    def test_or_when_it_takes_long(self, stores: Stores, place):
        plan(stores, POI)
        stores.ledger.commit_page(POI, claim(stores, POI), batch(poi(1)))
        place.pass_time(9 * MINUTE)
        stores.schema.maintain(POI)
        assert valid_indexes(place) == set()

        place.pass_time(2 * MINUTE)
        stores.schema.maintain(POI)

        assert valid_indexes(place) == SECONDARY

    def test_what_a_declaration_gains_is_built_at_once(self, stores: Stores, place):
        run(stores, POI, last(poi(1)))
        stores.schema.maintain(POI)
        grown = replace(POI, filter=("points", "title"))
        plan(stores, grown, mode=Mode.DELTA)

        stores.schema.maintain(grown)

        assert valid_indexes(place) == {*SECONDARY, "penstock:poi:title"}

    def test_one_that_was_not_built_to_its_end_is_built_again(
        self, stores: Stores, place
    ):
        run(stores, POI, last(poi(1)))
        stores.schema.maintain(POI)
        place.ask(
            "update pg_index set indisvalid = false where indexrelid = to_regclass(%s)",
            '"penstock:poi::words"',
        )
        assert valid_indexes(place) != SECONDARY

        with opened(place, clock=place.clock) as (again, _):
            again.schema.maintain(POI)

        assert valid_indexes(place) == SECONDARY

    def test_those_of_all_rows_are_replaced_by_those_of_live_ones(
        self, stores: Stores, place
    ):
        """As a table has them that an earlier version has filled."""
        run(stores, POI, last(poi(1)))
        stores.schema.maintain(POI)
        place.ask('drop index "penstock:poi:points", "penstock:poi::words"')
        place.ask('drop index "penstock:poi::deleted"')
        place.ask('create index "penstock:poi:points" on poi (points, id)')
        place.ask(
            'create index "penstock:poi::words" on poi '
            "using gin (penstock_words(coalesce(title, '')))"
        )

        built = set(stores.schema.maintain(POI))

        assert built == {
            "build index penstock:poi::deleted",
            "build index penstock:poi:points",
            "build index penstock:poi::words",
        }
        assert valid_indexes(place) == SECONDARY
        assert place.ask(
            "select count(*) from pg_index where indrelid = 'poi'::regclass "
            "and not indisprimary and indpred is null"
        ) == [(0,)]

    @pytest.mark.parametrize(
        "deleted", [LIVE_INDEX_THRESHOLD - 1, LIVE_INDEX_THRESHOLD]
    )
    def test_where_many_rows_are_deleted_the_others_get_one(
        self, stores: Stores, place, deleted
    ):
        run(
            stores,
            POI,
            last(*(poi(number) for number in range(LIVE_INDEX_THRESHOLD + 10))),
        )
        stores.schema.maintain(POI)
        place.ask("update poi set _deleted_at = now() where id < %s", deleted)

        stores.schema.maintain(POI)

        is_there = "penstock:poi::live" in valid_indexes(place)
        assert is_there == (deleted == LIVE_INDEX_THRESHOLD)

    @pytest.mark.parametrize("small", [0, 1 << 30], ids=["large", "small"])
    def test_writers_go_on_while_somebody_holds_the_table(
        self, stores: Stores, place: Place, monkeypatch, small
    ):
        monkeypatch.setattr(index_maintenance, "MAX_BLOCKING_BUILD", small)
        run(stores, POI, last(*(poi(number) for number in range(100))))

        with psycopg.connect(place.url) as holder, ThreadPoolExecutor(1) as aside:
            holder.execute(f'update "{place.schema}".poi set points = 1 where id = 1')
            built = aside.submit(stores.schema.maintain, POI)
            for number in range(2, 32):
                place.ask(
                    "set lock_timeout = '2s'; "
                    f"update poi set points = 1 where id = {number}"
                )
            # it cannot be ready before whoever holds the table has ended
            is_early = built.done()
            holder.commit()
            results = list(built.result(30))

        assert not is_early
        assert len(results) == 4
        assert valid_indexes(place) == SECONDARY

    def test_words_are_counted_while_they_are_built(self, stores: Stores, place: Place):
        run(stores, POI, last(*(poi(number) for number in range(100))))

        with psycopg.connect(place.url) as holder, ThreadPoolExecutor(1) as aside:
            # none can be ready before whoever holds the table has ended
            holder.execute(f'update "{place.schema}".poi set points = 1 where id = 1')
            built = aside.submit(stores.schema.maintain, POI)
            while not built.done() and not place.ask("select 1 from penstock_word"):
                time.sleep(0.02)
            is_early = built.done()
            holder.commit()
            results = list(built.result(30))

        assert not is_early
        assert len(results) == 4

    def test_what_somebody_left_behind_goes_though_nothing_is_missing(
        self, stores: Stores, place: Place
    ):
        run(stores, POI, last(poi(1)))
        stores.schema.maintain(POI)
        for name in ("new", "replaced", "search"):
            place.ask(f'create index "penstock:poi::{name}" on poi (points)')

        assert list(stores.schema.maintain(POI)) == []

        assert valid_indexes(place) == SECONDARY

    def test_a_table_of_that_name_in_another_schema_is_not_ours(
        self, stores: Stores, place: Place
    ):
        run(stores, POI, last(poi(1)))
        of = dataset(f"poi_{place.schema}", fields=FIELDS, filter=("points",))
        place.ask(f"create table public.{of.name} as table poi")
        try:
            assert list(stores.schema.maintain(of)) == []
            assert valid_indexes(place, of.name) == set()
        finally:
            place.ask(f"drop table public.{of.name}")

    def test_two_processes_may_tend_at_once(self, stores: Stores, place):
        run(stores, POI, last(*(poi(number) for number in range(2000))))

        result = in_processes(tend, [(place,)] * 4)

        assert sorted(map(len, result)) == [0, 0, 0, 4]
        assert valid_indexes(place) == SECONDARY


def tend(place: Place) -> list[str]:
    with opened(place, clock=place.clock) as (stores, _):
        return list(stores.schema.maintain(POI))


def unsorted_pages(place: Place, index: str = "penstock:poi::words") -> int:
    place.ask("create extension if not exists pgstattuple with schema public")
    response = place.ask("select pending_pages from pgstatginindex(%s)", f'"{index}"')
    return int(response[0][0])


def words(count: int, *, first: int) -> list[Record]:
    dice = random.Random(first)
    return [
        poi(first + n, "".join(dice.choices("abcdefghijklmnop", k=30)))
        for n in range(count)
    ]


class TestTidying:
    @pytest.fixture
    def searched(self, stores: Stores) -> Dataset:
        run(stores, POI, last(poi(0)))
        stores.schema.maintain(POI)
        return POI

    def test_a_worker_sorts_in_what_it_has_written(
        self, stores: Stores, place, searched
    ):
        plan(stores, searched, mode=Mode.DELTA)
        lease = claim(stores, searched)
        most = 0
        for page in range(3 * CLEANUP_ROW_THRESHOLD // 1000 - 1):
            found = words(1000, first=1000 * (page + 1))
            lease, _ = stores.ledger.commit_page(searched, lease, batch(*found))
            most = max(most, unsorted_pages(place))

        # a page of 8 KB holds the words of some 11 of these rows
        assert 0 < most < CLEANUP_ROW_THRESHOLD // 10
        assert unsorted_pages(place) > 0

        found = words(1000, first=100_000)
        stores.ledger.commit_page(searched, lease, last(*found))
        assert unsorted_pages(place) == 0

    def test_the_end_of_an_import_sorts_in_the_rest(
        self, stores: Stores, place, searched
    ):
        import_id = plan(stores, searched, mode=Mode.DELTA)
        lease = claim(stores, searched)
        stores.ledger.commit_page(searched, lease, last(*words(500, first=1000)))
        stores.schema.maintain(searched)
        assert unsorted_pages(place) > 0

        stores.imports.close(searched, import_id, failed=None)
        with opened(place, clock=place.clock) as (another, _):
            another.schema.maintain(searched)

        assert unsorted_pages(place) == 0

    def test_what_goes_wrong_there_breaks_no_page(
        self, stores: Stores, place, searched
    ):
        """An index may be missing, or be another than we think."""
        plan(stores, searched, mode=Mode.DELTA)
        lease = claim(stores, searched)
        place.ask('drop index "penstock:poi::words"')

        lease, counts = stores.ledger.commit_page(
            searched, lease, batch(*words(CLEANUP_ROW_THRESHOLD, first=1000))
        )

        assert counts.inserted == CLEANUP_ROW_THRESHOLD
        place.ask('create index "penstock:poi::words" on poi using btree (title)')
        lease, counts = stores.ledger.commit_page(
            searched, lease, batch(*words(CLEANUP_ROW_THRESHOLD, first=50_000))
        )
        assert counts.inserted == CLEANUP_ROW_THRESHOLD
