"""Whatever the mapping accepts is stored, and comes back as it was."""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.domain.dataset import (
    Dataset,
    DatasetName,
    FieldType,
    Missing,
    WhenMissing,
)
from penstock.domain.jobs import JobError, Mode
from penstock.domain.mapping.mapper import Mapper
from penstock.domain.pages import RawRow, Record
from penstock.errors import LeaseLost, StoreRefused
from penstock.ports import Stores
from tests.support.builders import (
    A_MOMENT,
    BEN,
    LEASE,
    SECOND,
    batch,
    budget,
    claim,
    dataset,
    int_field,
    job_of,
    last,
    per_second,
    plan,
    record,
    rejection,
    rows,
    run,
    text_field,
    typed_field,
)
from tests.support.postgres import Place, opened, own_schema

POI = dataset()
MARKED = replace(POI, missing=Missing(do=WhenMissing.MARK, max_drop=1))
EVERY = dataset(
    "every",
    fields=(
        int_field("id", required=True),
        *(typed_field(kind.value, kind, trim=False) for kind in FieldType),
    ),
)
EARLIEST = datetime(1, 1, 1, tzinfo=UTC)
LATEST = datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)


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


VALUES: dict[FieldType, list[object]] = {
    FieldType.TEXT: [
        *("it's", 'a "b"', "back\\slash", "\\N", "\t\n\r", "%s {} $1", "🦔ü\u200b"),
        *("\x01\x1f\x7f", "null", "x" * 100_000, "\ufffe\U0010ffff"),
    ],
    FieldType.INT: [0, -(2**63), 2**63 - 1],
    FieldType.FLOAT: [0.0, 5e-324, -1.7976931348623157e308, 0.1 + 0.2, 2.0**53],
    FieldType.DECIMAL: [*map(Decimal, ("1.10", "-0.0001", "9" * 250, "1e-250"))],
    FieldType.BOOL: [True, False],
    FieldType.DATE: [date.min, date.max, date(2024, 2, 29)],
    FieldType.TIMESTAMP: [EARLIEST, LATEST, datetime(1970, 1, 1, tzinfo=UTC)],
    FieldType.JSON: ['{"b":[1,null],"a":"🦔"}', "[]", '"\\\\u0000"', "1e400", "null"],
}


def test_the_extremes_of_every_type_come_back(stores: Stores):
    found = [
        (number, *(value if kind is each else None for each in FieldType))
        for number, (kind, value) in enumerate(
            (kind, value) for kind, values in VALUES.items() for value in values
        )
    ]
    run(stores, EVERY, last(*(record(*values, of=EVERY) for values in found)))

    assert rows(stores, EVERY) == found
    again = run(stores, EVERY, last(*(record(*v, of=EVERY) for v in found)))
    assert again.counts.unchanged == len(found)


LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
ANYTHING = st.recursive(
    LEAVES,
    lambda below: (
        st.lists(below, max_size=3)
        | st.dictionaries(st.text(max_size=5), below, max_size=3)
    ),
    max_leaves=5,
)


@settings(
    max_examples=150,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(values=st.lists(ANYTHING | st.datetimes().map(str), min_size=8, max_size=8))
def test_whatever_the_mapping_accepts_is_stored(stores: Stores, values):
    stores.schema.ensure_table(EVERY)
    outcome = Mapper(EVERY)(RawRow((1, *values), b"raw", 0))
    if not isinstance(outcome, Record):
        return
    import_id = plan(stores, EVERY, mode=Mode.DELTA)
    stores.ledger.commit_page(EVERY, claim(stores, EVERY), last(outcome))
    stores.imports.close(EVERY, import_id, failed=None)

    assert rows(stores, EVERY) == [outcome.values]


KEYS: dict[FieldType, list[Any]] = {
    FieldType.TEXT: [
        '"',
        "\\",
        "\n\x01\x7f",
        "🦔",
        "é" * 600,
        "🦔" * 600,
        "A",
        "a",
        "Z",
    ],
    FieldType.INT: [-(2**63), -1, 0, 2**63 - 1],
    FieldType.DECIMAL: [*map(Decimal, ("-10", "-9.5", "0", "0.1", "9", "10"))],
    FieldType.DATE: [date.min, date(999, 1, 2), date.max],
    FieldType.TIMESTAMP: [
        EARLIEST,
        datetime(999, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
        datetime(2026, 3, 1, 12, tzinfo=UTC),
        LATEST,
    ],
}


def keyed(kind: FieldType) -> Dataset:
    fields = (typed_field("at", kind, required=True), text_field("title"))
    return replace(MARKED, name=DatasetName(f"by_{kind}"), fields=fields, key=("at",))


@pytest.mark.parametrize("kind", KEYS)
def test_every_key_is_found_again_and_reported_in_one_form(
    stores: Stores, place: Place, kind: FieldType
):
    of = keyed(kind)
    found = [record(value, "one", of=of) for value in KEYS[kind]]
    run(stores, of, last(*found))

    assert [row[0] for row in rows(stores, of)] == sorted(KEYS[kind])
    again = run(stores, of, last(*(record(v, "two", of=of) for v in KEYS[kind])))
    assert again.counts.updated == len(found)
    run(stores, of, last())

    response = place.ask(
        "select kind, key from penstock_change where dataset = %s order by seq",
        of.name,
    )
    keys: dict[str, list[object]] = {"created": [], "updated": [], "deleted": []}
    for what, key in response:
        keys[what].append(json.loads(key))
    # the server writes those of deletions itself
    assert sorted(map(str, keys["deleted"])) == sorted(map(str, keys["created"]))
    assert len(keys["updated"]) == len(found)


class TestWhatIsReportedOfErrors:
    """It comes from anywhere, and must never keep the ledger from being written."""

    ODD = JobError(code="odd", message="a\x00b \ud800 🦔 \\u0000")

    def test_a_job_is_postponed_whatever_its_error_says(self, stores: Stores):
        plan(stores, POI)
        lease = claim(stores, POI)

        stores.ledger.postpone(lease, self.ODD, delay=0 * SECOND, blame=True)

        (fault,) = job_of(stores, lease).errors
        assert fault.message == "a\ufffdb ? 🦔 \\u0000"

    def test_and_failed(self, stores: Stores):
        plan(stores, POI)
        lease = claim(stores, POI)

        stores.ledger.fail(lease, self.ODD)

        assert job_of(stores, lease).errors[0].code == "odd"

    def test_an_import_ends_whatever_its_note_says(self, stores: Stores):
        import_id = plan(stores, POI)
        ended = stores.imports.close(POI, import_id, failed="bad \x00")
        assert ended is not None
        assert ended.note == "bad \ufffd"

        ended = stores.imports.cancel(plan(stores, POI), reason="\ud800")
        assert ended.note == "?"

    def test_a_budget_is_closed_whatever_the_reason(self, stores: Stores):
        slow = budget(per_second(1))
        stores.budgets.take(slow, longest=SECOND)

        stores.budgets.stop(slow.name, reason="\x00")
        stores.budgets.close(slow.name, wait=SECOND, reason="\x00")

        assert stores.budgets.state(slow).stopped == "\ufffd"

    def test_a_bad_row_is_retained_whatever_is_wrong_with_it(self, stores: Stores):
        bad = replace(
            rejection(key=["\x00", "🦔"], raw=b"\x00\xff"), detail="has \x00 and \udfff"
        )
        run(stores, POI, last(record(1), rejections=[bad]))

        (stored,) = stores.records.quarantine(POI, after=0, limit=9)

        assert stored.rejection.raw == b"\x00\xff"
        assert stored.rejection.key == ("\x00", "🦔")
        assert stored.rejection.detail == "has \ufffd and ?"


def changes(place: Place, name: str = "poi") -> list[tuple[int, str, list[Any]]]:
    """Read the change events, which no port shows yet."""
    found = place.ask(
        "select seq, kind, key from penstock_change where dataset = %s order by seq",
        name,
    )
    return [(seq, kind, json.loads(key)) for seq, kind, key in found]


class TestChangeEvents:
    def test_each_change_is_an_event_in_the_order_of_commits(
        self, stores: Stores, place
    ):
        run(
            stores,
            POI,
            batch(record(2), record(1)),
            last(record(2, "changed"), record(3), record(1)),
        )

        found = [change[1:] for change in changes(place)]
        assert sorted(found[:2]) == [("created", [1]), ("created", [2])]
        assert found[2:] == [("created", [3]), ("updated", [2])]

    def test_the_sequence_has_no_gaps(self, stores: Stores, place):
        plan(stores, POI, "a", "b")
        stale = claim(stores, POI)
        lease = claim(stores, POI, BEN)
        stores.ledger.commit_page(POI, lease, batch(record(1)))
        place.pass_time(LEASE + A_MOMENT)
        claim(stores, POI)
        with pytest.raises(LeaseLost):
            stores.ledger.commit_page(POI, stale, batch(record(2)))
        again = [rejection(0), rejection(0)]
        lease = claim(stores, POI)
        with pytest.raises(StoreRefused):
            stores.ledger.commit_page(POI, lease, batch(record(3), rejections=again))
        stores.ledger.commit_page(POI, lease, batch(record(4), record(5)))

        assert changes(place) == [
            (1, "created", [1]),
            (2, "created", [4]),
            (3, "created", [5]),
        ]

    def test_deletion_and_return_are_events(self, stores: Stores, place):
        run(stores, MARKED, last(record(1), record(2)))
        run(stores, MARKED, last(record(1)))
        run(stores, MARKED, last(record(1), record(2)))

        assert [change[1:] for change in changes(place)][2:] == [
            ("deleted", [2]),
            ("created", [2]),
        ]

    def test_many_deletions_are_numbered_without_a_gap(self, stores: Stores, place):
        run(stores, MARKED, last(*(record(n) for n in range(12_000))))
        run(stores, MARKED, last())

        found = changes(place)
        assert [seq for seq, _, _ in found] == list(range(1, 24_001))
        assert {key[0] for _, kind, key in found if kind == "deleted"} == set(
            range(12_000)
        )

    def test_an_unchanged_page_is_no_event(self, stores: Stores, place):
        run(stores, POI, last(record(1)))
        run(stores, POI, last(record(1)))

        assert len(changes(place)) == 1

    def test_a_replayed_row_is_an_event(self, stores: Stores, place):
        run(stores, POI, last(rejections=[rejection(key=[1])]))
        (bad,) = stores.records.quarantine(POI, after=0, limit=9)

        stores.records.replay(POI, [(bad, record(1))])

        assert changes(place) == [(1, "created", [1])]

    def test_each_dataset_has_its_own_sequence(self, stores: Stores, place):
        shops = dataset("shops")
        run(stores, POI, last(record(1)))
        run(stores, shops, last(record(7)))

        assert changes(place) == [(1, "created", [1])]
        assert changes(place, "shops") == [(1, "created", [7])]
