"""Rows divided by a field: each key once, wherever its row has moved."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from penstock.adapters.postgres import partitions
from penstock.domain.dataset import Missing, WhenMissing
from penstock.domain.job import Lease, Mode
from penstock.domain.page import Record
from penstock.errors import Misconfigured
from penstock.ports import Stores
from tests.builders import (
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
from tests.integration.postgres import Place, opened, own_schema
from tests.integration.racing import in_processes, in_threads

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
def stores(place: Place) -> Iterator[Stores]:
    with opened(place, clock=place.clock) as (stores, _):
        stores.schema.migrate()
        yield stores


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
        monkeypatch.setattr(partitions, "MOST", 3)
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

        told = in_processes(bring, [(place, n) for n in range(4)])

        assert sum(told) == 20
        assert ids(stores, SHOPS) == list(range(20))
        assert sum(held(place).values()) == 20

    def test_the_first_rows_of_a_region_may_come_twice_at_once(self, stores: Stores):
        for number in range(8):
            plan(stores, SHOPS, "a", "b", mode=Mode.DELTA)
            leases = [claim(stores, SHOPS), claim(stores, SHOPS)]

            def commit(lease: Lease, region: str, number: int = number) -> int:
                page = last(shop(number, region))
                return stores.ledger.commit_page(SHOPS, lease, page)[1].inserted

            told = in_threads(
                *(
                    lambda n=n, lease=lease, number=number: commit(
                        lease, f"{n} of {number}"
                    )
                    for n, lease in enumerate(leases)
                )
            )
            stores.imports.close(SHOPS, leases[0].import_id, failed=None)

            assert sum(told) == 1
            assert ids(stores, SHOPS) == list(range(number + 1))


class TestTables:
    def test_every_partition_has_the_declared_indexes(self, stores: Stores, place):
        run(stores, SHOPS, last(shop(1, "north"), shop(2, "south")))
        stores.schema.tend(SHOPS)
        # one that comes later, too
        run(stores, SHOPS, last(shop(3, "west")), mode=Mode.DELTA)
        stores.schema.tend(SHOPS)

        for child in partition_names(place):
            told = place.ask(
                "select count(*) from pg_index "
                "where indrelid = %s::regclass and indisvalid",
                child,
            )
            assert told == [(4,)]

    def test_search_indexes_of_partitions_are_tidied(self, stores: Stores, place):
        run(stores, SHOPS, last(shop(1, "north"), shop(2, "south")))
        stores.schema.tend(SHOPS)
        found = [shop(n, "north", f"title of {n}") for n in range(10, 300)]
        run(stores, SHOPS, last(*found), mode=Mode.DELTA)

        stores.schema.tend(SHOPS)

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
                stores.schema.prepare(replace(SHOPS, partition=other))
        stores.schema.prepare(SHOPS)

    def test_so_is_one_where_there_was_none(self, stores: Stores):
        run(stores, dataset(), last(record(1)))

        with pytest.raises(Misconfigured, match="partitioned by nothing"):
            stores.schema.prepare(dataset(partition="title"))

    def test_a_field_is_added_to_all_partitions(self, stores: Stores):
        run(stores, SHOPS, last(shop(1, "north"), shop(2, "south")))
        grown = replace(SHOPS, fields=(*SHOPS.fields, int_field("points")))

        stores.schema.prepare(grown)
        run(stores, grown, last(record(2, "south", "shop", 5, of=grown)))

        assert rows(stores, grown) == [
            (1, "north", "shop", None, None),
            (2, "south", "shop", None, 5),
        ]
