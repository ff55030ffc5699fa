"""Rows divided by a field: each key once, wherever its row has moved."""

import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import psycopg
import pytest

from penstock.adapters.postgres import partitions
from penstock.adapters.sqlstore.stores import build_api_stores
from penstock.domain.dataset import Missing, WhenMissing
from penstock.domain.jobs import Lease, Mode
from penstock.domain.pages import Key, Record
from penstock.errors import Misconfigured
from penstock.ports import Stores
from penstock.ports.record_access import (
    LockedRow,
    RecordWriter,
    Removal,
    Write,
    WriteResult,
)
from tests.support.builders import (
    SECOND,
    batch,
    claim,
    dataset,
    ids,
    int_field,
    last,
    plan,
    record,
    rejection,
    rows,
    run,
    text_field,
)
from tests.support.postgres import Place, deadlocks, opened, own_schema
from tests.support.racing import errors_in, in_processes, in_threads

SHOPS = dataset(
    "shops",
    fields=(
        int_field("id", required=True),
        text_field("region", required=True),
        text_field("title"),
        text_field("note", local=True),
    ),
    filter=("title",),
    search=("title",),
    partition="region",
)
NUMBERED = dataset(
    "numbered",
    fields=(int_field("id", required=True), int_field("zone", required=True)),
    partition="zone",
)


@pytest.fixture
def place(postgres_url: str) -> Iterator[Place]:
    with own_schema(postgres_url) as place:
        place.stop_clock()
        yield place


@pytest.fixture
def both(place: Place) -> Iterator[tuple[Stores, RecordWriter]]:
    with opened(place, clock=place.clock) as (stores, database):
        stores.schema.migrate()
        yield stores, build_api_stores(database).edits


@pytest.fixture
def stores(both: tuple[Stores, RecordWriter]) -> Stores:
    return both[0]


@pytest.fixture
def edits(both: tuple[Stores, RecordWriter]) -> RecordWriter:
    return both[1]


def shop(number: int, region: str, title: str = "shop") -> Record:
    return record(number, region, title, of=SHOPS)


def held(place: Place, name: str = "shops") -> dict[str, int]:
    """Count the rows of each partition."""
    return dict(
        place.ask(
            "select tableoid::regclass::text, count(*)::int "
            f"from {name} group by 1 order by 1"
        )
    )


def partition_names(place: Place, name: str = "shops") -> list[str]:
    return [
        child
        for (child,) in place.ask(
            "select relid::regclass::text from pg_partition_tree(%s) where level = 1",
            name,
        )
    ]


class TestRows:
    def test_partitions_are_made_from_the_data(self, stores: Stores, place):
        run(
            stores,
            SHOPS,
            batch(shop(1, "north"), shop(2, "south")),
            last(shop(3, "Öst")),
        )

        assert len(partition_names(place)) == 3
        assert sorted(held(place).values()) == [1, 1, 1]

    def test_order_and_counts_are_those_of_one_table(self, stores: Stores):
        found = [shop(n, "north" if n % 3 else "south", f"t{n}") for n in range(50)]
        run(stores, SHOPS, last(*reversed(found)))

        assert ids(stores, SHOPS) == list(range(50))
        assert stores.records.count(SHOPS) == 50
        assert rows(stores, SHOPS)[0] == (0, "south", "t0", None)
        assert list(stores.records.distinct(SHOPS, "region")) == ["north", "south"]

    def test_a_row_whose_region_changed_moves_with_all_it_had(
        self, stores: Stores, place
    ):
        run(stores, SHOPS, last(shop(1, "north"), shop(2, "north")))
        place.ask("update shops set note = 'ours' where id = 1")
        before = place.ask("select _created_at from shops where id = 1")
        place.pass_time(SECOND)

        ended = run(stores, SHOPS, last(shop(1, "south"), shop(2, "north")))

        assert (ended.counts.updated, ended.counts.unchanged) == (1, 1)
        assert rows(stores, SHOPS) == [
            (1, "south", "shop", "ours"),
            (2, "north", "shop", None),
        ]
        assert place.ask("select _created_at from shops where id = 1") == before
        assert sorted(held(place).values()) == [1, 1]

    def test_a_region_may_be_a_number(self, stores: Stores, place):
        found = [record(n, n % 2 - 1, of=NUMBERED) for n in range(10)]
        run(stores, NUMBERED, last(*found))
        run(stores, NUMBERED, last(record(0, 7, of=NUMBERED), *found[1:]))

        assert ids(stores, NUMBERED) == list(range(10))
        assert sorted(held(place, "numbered").values()) == [1, 4, 5]

    def test_regions_with_odd_names_are_regions(self, stores: Stores):
        odd = ["it's", 'a "b"', "back\\slash", "%s", "{}", "null", "🦔" * 40, " "]
        run(stores, SHOPS, last(*(shop(n, name) for n, name in enumerate(odd))))

        assert [row[1] for row in stores.records.rows(SHOPS)] == odd

    def test_what_is_missing_is_marked_in_every_partition(self, stores: Stores):
        marked = replace(SHOPS, missing=Missing(do=WhenMissing.MARK, max_drop=1))
        run(stores, marked, last(*(shop(n, f"r{n}") for n in range(4))))

        ended = run(stores, marked, last(shop(1, "r1"), shop(3, "r0")))

        assert ended.counts.deleted == 2
        assert ids(stores, marked) == [1, 3]

    def test_a_row_from_quarantine_moves_too(self, stores: Stores, place):
        run(
            stores,
            SHOPS,
            batch(shop(1, "north")),
            last(rejections=[rejection(key=[1])]),
        )
        (bad,) = stores.records.quarantine(SHOPS, after=0, limit=9)

        stores.records.replay(SHOPS, [(bad, shop(1, "west"))])

        assert rows(stores, SHOPS) == [(1, "west", "shop", None)]

    def test_many_regions_share_one_partition(self, stores: Stores, place, monkeypatch):
        monkeypatch.setattr(partitions, "MAX_PARTITIONS", 3)
        found = [shop(n, f"region {n:02}") for n in range(12)]
        run(stores, SHOPS, batch(*found[:4]), batch(*found[4:8]), last(*found[8:]))
        assert len(partition_names(place)) == 4

        # from one of their own into the shared one, and back
        run(stores, SHOPS, last(shop(0, "region 11"), shop(11, "region 00")))

        assert ids(stores, SHOPS) == list(range(12))
        assert rows(stores, SHOPS)[0][1] == "region 11"
        assert len(partition_names(place)) == 4
        assert max(held(place).values()) == 9


def bring(place: Place, worker: int) -> int:
    """Claim the same keys for a region of our own, page after page."""
    with opened(place, clock=place.clock) as (stores, _):
        lease = claim(stores, SHOPS)
        inserted = 0
        for number in range(8):
            region = f"region {(worker + number) % 3}"
            page = batch(*(shop(n, region, f"{worker}:{number}") for n in range(20)))
            lease, counts = stores.ledger.commit_page(SHOPS, lease, page)
            inserted += counts.inserted
        return inserted


class TestRaces:
    def test_workers_with_the_same_keys_store_each_once(self, stores: Stores, place):
        plan(stores, SHOPS, *map(str, range(4)), mode=Mode.DELTA)

        result = in_processes(bring, [(place, n) for n in range(4)])

        assert sum(result) == 20
        assert ids(stores, SHOPS) == list(range(20))
        assert sum(held(place).values()) == 20

    def test_the_first_rows_of_a_region_may_come_twice_at_once(self, stores: Stores):
        for number in range(8):
            plan(stores, SHOPS, "a", "b", mode=Mode.DELTA)
            leases = [claim(stores, SHOPS), claim(stores, SHOPS)]

            def commit(lease: Lease, region: str, number: int = number) -> int:
                page = last(shop(number, region))
                return stores.ledger.commit_page(SHOPS, lease, page)[1].inserted

            results = in_threads(
                *(
                    lambda n=n, lease=lease, number=number: commit(
                        lease, f"{n} of {number}"
                    )
                    for n, lease in enumerate(leases)
                )
            )
            stores.imports.close(SHOPS, leases[0].import_id, failed=None)

            assert sum(results) == 1
            assert ids(stores, SHOPS) == list(range(number + 1))


Pause = Callable[[], object]


def put(edits: RecordWriter, found: Record, pause: Pause = lambda: None) -> WriteResult:
    """Store a record as a client does that stops to think about what it has read."""

    def decide(current: Mapping[Key, LockedRow]) -> list[Write]:
        del current
        pause()
        return [Write(found)]

    return edits.change(SHOPS, [found.key], decide)


def waits_for_others(place: Place) -> bool:
    """Say whether somebody waits for who merges."""
    found = place.ask(
        "select 1 from pg_locks where locktype = 'advisory' "
        "and not granted and database = "
        "(select oid from pg_database where datname = current_database())"
    )
    return bool(found)


def until(is_true: Callable[[], bool], *, most: float = 5.0) -> None:
    deadline = time.monotonic() + most
    while time.monotonic() < deadline and not is_true():
        time.sleep(0.01)


class TestClients:
    """Clients change rows while others do, or an import brings the same ones."""

    def test_a_client_makes_the_partition_that_its_row_needs(
        self, stores: Stores, edits: RecordWriter, place
    ):
        run(stores, SHOPS, last(shop(1, "north")))

        put(edits, shop(2, "south"))
        moved = put(edits, shop(1, "west"))

        assert (moved.created, moved.updated) == (0, 1)
        assert [row[:2] for row in rows(stores, SHOPS)] == [(1, "west"), (2, "south")]
        assert len(partition_names(place)) == 3

    def test_two_who_create_a_row_in_different_regions_store_it_once(
        self, stores: Stores, edits: RecordWriter, place
    ):
        stores.schema.ensure_table(SHOPS)
        both_have_looked = threading.Barrier(2)

        def read() -> None:
            with suppress(threading.BrokenBarrierError):
                both_have_looked.wait(0.5)

        results = in_threads(
            partial(put, edits, shop(1, "north"), read),
            partial(put, edits, shop(1, "south"), read),
        )

        assert not errors_in(results)
        assert [each.created for each in results] in ([0, 1], [1, 0])
        assert sum(held(place).values()) == 1

    def test_a_client_and_a_page_store_a_new_row_once(
        self, stores: Stores, edits: RecordWriter, place
    ):
        plan(stores, SHOPS)
        lease = claim(stores, SHOPS)
        has_looked, is_stored = threading.Event(), threading.Event()

        def read() -> None:
            has_looked.set()
            is_stored.wait(0.5)

        def bring() -> int:
            assert has_looked.wait(10)
            page = last(shop(1, "south"))
            _, counts = stores.ledger.commit_page(SHOPS, lease, page)
            is_stored.set()
            return counts.inserted

        results = in_threads(partial(put, edits, shop(1, "north"), read), bring)

        assert not errors_in(results)
        assert results[0].created + results[1] == 1
        assert [row[:2] for row in rows(stores, SHOPS)] == [(1, "south")]
        assert sum(held(place).values()) == 1

    def test_a_client_and_a_page_do_not_wait_in_a_circle(self, postgres_database):
        place = Place(postgres_database, "penstock")
        with opened(place) as (stores, database):
            stores.schema.migrate()
            edits = build_api_stores(database).edits
            run(stores, SHOPS, last(shop(1, "north")))
            plan(stores, SHOPS)
            lease = claim(stores, SHOPS)
            has_looked = threading.Event()

            def read() -> None:
                has_looked.set()
                # the page is about to change the row that is held here
                time.sleep(0.5)

            def bring() -> None:
                assert has_looked.wait(10)
                page = last(shop(1, "south", "of the page"))
                stores.ledger.commit_page(SHOPS, lease, page)

            put_and_bring = partial(put, edits, shop(1, "west", "ours"), read), bring
            assert not errors_in(in_threads(*put_and_bring))

            assert [row[:3] for row in rows(stores, SHOPS)] == [
                (1, "south", "of the page")
            ]
        # told when its sessions have ended
        assert deadlocks(place) == 0

    def test_a_replay_does_not_undo_what_a_client_writes_meanwhile(
        self, stores: Stores, edits: RecordWriter, place
    ):
        run(stores, SHOPS, last(rejections=[rejection(key=[1])]))
        (bad,) = stores.records.quarantine(SHOPS, after=0, limit=9)
        place.pass_time(SECOND)
        has_looked = threading.Event()

        def read() -> None:
            has_looked.set()
            until(lambda: waits_for_others(place))

        def replay() -> Any:
            assert has_looked.wait(10)
            return stores.records.replay(SHOPS, [(bad, shop(1, "west", "old"))])

        results = in_threads(partial(put, edits, shop(1, "north", "new"), read), replay)

        assert not errors_in(results)
        assert results[1].superseded == 1
        assert [row[:3] for row in rows(stores, SHOPS)] == [(1, "north", "new")]

    def test_whatever_meets_each_row_is_stored_once(self, postgres_database):
        place = Place(postgres_database, "penstock")
        dice = random.Random(11)
        regions = [f"region {n}" for n in range(6)]
        with opened(place) as (stores, database):
            stores.schema.migrate()
            edits = build_api_stores(database).edits

            def some() -> list[Record]:
                numbers = dice.sample(range(12), 6)
                return [
                    shop(n, dice.choice(regions), str(dice.random())) for n in numbers
                ]

            def upsert(found: list[Record]) -> None:
                keys = [each.key for each in found]
                edits.change(SHOPS, keys, lambda _: [*map(Write, found)])

            def delete(key: Key) -> None:
                edits.change(
                    SHOPS, [key], lambda live: [Removal(key)] if key in live else []
                )

            plan(stores, SHOPS, *map(str, range(3)), mode=Mode.DELTA)
            leases = [claim(stores, SHOPS) for _ in range(3)]

            def bring(at: int, found: list[Record]) -> None:
                leases[at], _ = stores.ledger.commit_page(
                    SHOPS, leases[at], batch(*found)
                )

            for _ in range(12):
                results = in_threads(
                    *(partial(bring, at, some()) for at in range(3)),
                    *(partial(upsert, some()) for _ in range(2)),
                    partial(delete, (dice.randrange(12),)),
                )

                assert not errors_in(results)
                doubled = "select id from shops group by id having count(*) > 1"
                assert place.ask(doubled) == []
        assert deadlocks(place) == 0


class TestTables:
    def test_every_partition_has_the_declared_indexes(self, stores: Stores, place):
        run(stores, SHOPS, last(shop(1, "north"), shop(2, "south")))
        stores.schema.maintain(SHOPS)
        # one that comes later, too
        run(stores, SHOPS, last(shop(3, "west")), mode=Mode.DELTA)
        stores.schema.maintain(SHOPS)

        for child in partition_names(place):
            response = place.ask(
                "select count(*) from pg_index "
                "where indrelid = %s::regclass and indisvalid",
                child,
            )
            assert response == [(5,)]

    def test_an_index_that_is_replaced_keeps_no_reader_waiting(
        self, stores: Stores, place: Place
    ):
        def replaced() -> int:
            return len(
                place.ask(
                    "select 1 from pg_class where relname = 'penstock:shops::replaced' "
                    "and relnamespace = current_schema()::regnamespace"
                )
            )

        run(stores, SHOPS, last(shop(1, "north"), shop(2, "south")))
        stores.schema.maintain(SHOPS)
        place.ask('drop index "penstock:shops:title"')
        place.ask('create index "penstock:shops:title" on shops (title)')

        with psycopg.connect(place.url) as reader, ThreadPoolExecutor(1) as aside:
            reader.execute(f'select * from "{place.schema}".shops')
            tended = aside.submit(stores.schema.maintain, SHOPS)
            try:
                # it does not wait until who reads has ended
                built = list(tended.result(30))
            finally:
                reader.rollback()
        assert built == ["build index penstock:shops:title"]
        assert replaced() == 1

        assert list(stores.schema.maintain(SHOPS)) == []
        assert replaced() == 0

    def test_search_indexes_of_partitions_are_tidied(self, stores: Stores, place):
        run(stores, SHOPS, last(shop(1, "north"), shop(2, "south")))
        stores.schema.maintain(SHOPS)
        found = [shop(n, "north", f"title of {n}") for n in range(10, 300)]
        run(stores, SHOPS, last(*found), mode=Mode.DELTA)

        stores.schema.maintain(SHOPS)

        place.ask("create extension if not exists pgstattuple with schema public")
        assert {
            pages
            for (pages,) in place.ask(
                "select (pgstatginindex(relid)).pending_pages "
                "from pg_partition_tree('\"penstock:shops::words\"') where isleaf"
            )
        } == {0}

    def test_a_changed_partition_is_refused(self, stores: Stores):
        run(stores, SHOPS, last(shop(1, "north")))

        for other in (None, "title"):
            with pytest.raises(Misconfigured, match="partitioned by region"):
                stores.schema.ensure_table(replace(SHOPS, partition=other))
        stores.schema.ensure_table(SHOPS)

    def test_so_is_one_where_there_was_none(self, stores: Stores):
        run(stores, dataset(), last(record(1)))

        with pytest.raises(Misconfigured, match="partitioned by nothing"):
            stores.schema.ensure_table(dataset(partition="title"))

    def test_a_field_is_added_to_all_partitions(self, stores: Stores):
        run(stores, SHOPS, last(shop(1, "north"), shop(2, "south")))
        grown = replace(SHOPS, fields=(*SHOPS.fields, int_field("points")))

        stores.schema.ensure_table(grown)
        run(stores, grown, last(record(2, "south", "shop", 5, of=grown)))

        assert rows(stores, grown) == [
            (1, "north", "shop", None, None),
            (2, "south", "shop", None, 5),
        ]


class TestLifecycle:
    def test_a_divided_dataset_has_a_live_view_and_can_be_converted_and_dropped(
        self, stores: Stores, place
    ):
        run(
            stores,
            SHOPS,
            last(*(record(at, f"r{at % 3}", "7", of=SHOPS) for at in (1, 2, 3))),
        )
        new = replace(
            SHOPS,
            fields=(*SHOPS.fields[:2], int_field("title"), SHOPS.fields[3]),
            search=(),
        )

        done = stores.schema.datasets.retype(new)
        again = run(
            stores,
            new,
            last(*(record(at, f"r{at % 3}", 7, of=new) for at in (1, 2, 3))),
        )

        assert (done.rows, again.counts.unchanged) == (3, 3)
        assert place.ask("select sum(title) from shops_live") == [(21,)]
        sum(stores.schema.datasets.drop("shops"))
        assert place.ask(LEFT, place.schema) == [(0,)]

    def test_what_divides_the_rows_is_not_converted(self, stores: Stores):
        run(stores, NUMBERED, last(record(1, 7, of=NUMBERED)))
        new = replace(
            NUMBERED, fields=(NUMBERED.fields[0], text_field("zone", required=True))
        )

        with pytest.raises(Misconfigured, match=r"datasets\.numbered\.partition"):
            stores.schema.datasets.retype(new)

        assert rows(stores, NUMBERED) == [(1, 7)]

    def test_a_view_of_somebody_else_that_stands_in_the_way_is_named(
        self, stores: Stores, place
    ):
        run(stores, NUMBERED, last(record(1, 7, of=NUMBERED)))
        place.ask("create view report as select count(*) from numbered_live")

        with pytest.raises(Misconfigured, match=r"report.*drop that view first"):
            sum(stores.schema.datasets.drop("numbered"))

        assert rows(stores, NUMBERED) == [(1, 7)]

    def test_so_is_one_of_a_table_without_rows(self, stores: Stores, place):
        stores.schema.ensure_table(dataset())
        place.ask("create view report as select count(*) from poi_live")

        with pytest.raises(Misconfigured, match=r"report.*drop that view first"):
            stores.schema.ensure_table(dataset(key=("title",)))


# tables, partitions, indexes and views of a dropped dataset
LEFT = """
select count(*) from pg_class join pg_namespace on pg_namespace.oid = relnamespace
where nspname = %s and relname ~ 'shops'
"""
