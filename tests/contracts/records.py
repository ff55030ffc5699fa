"""What every store of records promises its readers."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import pytest

from penstock.domain.dataset import FieldType, Missing, Reference, WhenMissing
from penstock.domain.jobs import Mode
from penstock.domain.pages import Reason, Rejection, RowLocation
from penstock.domain.search.query import MAX_PAGE_BYTES
from penstock.domain.source import CsvSource
from penstock.ports import ReasonCount, Replay, Stores
from tests.support.builders import (
    A_MOMENT,
    NOON,
    SECOND,
    batch,
    begin,
    claim,
    dataset,
    ids,
    int_field,
    job_of,
    last,
    plan,
    record,
    rejection,
    repeat,
    rows,
    run,
    text_field,
    typed_field,
)

POI = dataset()
KEYED = typed_field("id", FieldType.INT, required=True)


DECIMALS = [
    *(
        "1.10",
        "1.1",
        "0",
        "0.00",
        "-1.5",
        "1000",
        "9999",
        "10000",
        "12345.6789",
        "1E-7",
    ),
    *("-0.00010", "0.00010001", "100000000", "12345678901234567890.12", "5.0000"),
    *("9" * 250 + "." + "9" * 250, "-0." + "0" * 249 + "1", "1" + "0" * 249),
]
KEY_DECIMALS = ["-12", "-1.5", "0", "0.1", "1.1", "1.09", "2", "10", "1" + "0" * 249]


class RecordsContract:
    """Subclasses bring `stores` and `pass_time`."""

    @pytest.mark.parametrize(
        ("kind", "known", "requested"),
        [
            (FieldType.TEXT, ["a", "ü", "'"], ["a", "A", "ü", "'", "b"]),
            (FieldType.INT, [1, 2**62], [1, 2, 2**62]),
            (FieldType.DATE, [date(2026, 2, 28)], [date(2026, 2, 28), date(1, 1, 1)]),
            (FieldType.DECIMAL, [Decimal("0.1")], [Decimal("0.1"), Decimal("0.11")]),
            (FieldType.TIMESTAMP, [NOON], [NOON, NOON + A_MOMENT]),
        ],
    )
    def test_values_that_no_row_has_are_unknown(
        self, stores: Stores, kind, known, requested
    ):
        regions = dataset("regions", fields=(typed_field("code", kind),), key=("code",))
        run(stores, regions, last(*(record(each, of=regions) for each in known)))

        unknown = stores.records.unknown(Reference("regions", "code"), requested)

        assert set(unknown) == set(requested) - set(known)

    def test_a_deleted_row_is_unknown(self, stores: Stores):
        marked = replace(POI, missing=Missing(do=WhenMissing.MARK, max_drop=1.0))
        run(stores, marked, last(record(1), record(2)))
        run(stores, marked, last(record(2)))

        assert set(stores.records.unknown(Reference("poi", "id"), [1, 2])) == {1}

    @pytest.mark.parametrize(
        ("kind", "value"),
        [
            (FieldType.TEXT, "Grüße, 世界 🔌 'quoted' \"twice\" \\ \n"),
            (FieldType.INT, 2**63 - 1),
            (FieldType.INT, -(2**63)),
            (FieldType.FLOAT, 0.1),
            (FieldType.FLOAT, 5e-324),
            (FieldType.FLOAT, 400.0),
            *((FieldType.DECIMAL, Decimal(text)) for text in DECIMALS),
            (FieldType.BOOL, True),
            (FieldType.BOOL, False),
            (FieldType.DATE, date(2026, 2, 28)),
            (FieldType.DATE, date(1, 1, 1)),
            (FieldType.TIMESTAMP, datetime(2026, 2, 28, 1, 2, 3, tzinfo=UTC)),
            (FieldType.TIMESTAMP, datetime(2026, 2, 28, 1, 2, 3, 4, tzinfo=UTC)),
            (FieldType.TIMESTAMP, datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)),
            (FieldType.JSON, '{"a":[1,null,"ü"]}'),
        ],
    )
    def test_a_value_comes_back_as_it_was(self, stores: Stores, kind, value):
        typed = replace(POI, fields=(KEYED, typed_field("it", kind)))

        run(stores, typed, last(record(1, value, of=typed)))

        (row,) = rows(stores, typed)
        assert row == (1, value)
        assert type(row[1]) is type(value)
        # 1.10 and 1.1 are equal
        assert str(row[1]) == str(value)

    @pytest.mark.parametrize("kind", list(FieldType))
    def test_nothing_comes_back_as_nothing(self, stores: Stores, kind):
        typed = replace(POI, fields=(KEYED, typed_field("it", kind)))

        run(stores, typed, last(record(1, None, of=typed)))

        assert rows(stores, typed) == [(1, None)]

    @pytest.mark.parametrize("kind", list(FieldType))
    def test_an_unchanged_value_is_not_written_again(self, stores: Stores, kind):
        values = {
            FieldType.TEXT: "x",
            FieldType.INT: 7,
            FieldType.FLOAT: 0.1,
            FieldType.DECIMAL: Decimal("1.10"),
            FieldType.BOOL: True,
            FieldType.DATE: date(2026, 1, 1),
            FieldType.TIMESTAMP: NOON,
            FieldType.JSON: "[1]",
        }
        typed = replace(POI, fields=(KEYED, typed_field("it", kind)))
        page = last(record(1, values[kind], of=typed))
        run(stores, typed, page)

        ended = run(stores, typed, page)

        assert (ended.counts.updated, ended.counts.unchanged) == (0, 1)

    @pytest.mark.parametrize(
        ("kind", "keys"),
        [
            (FieldType.INT, [-5, 0, 2, 10, 2**63 - 1]),
            (FieldType.TEXT, ["", "10", "2", "a|b", "b", "ü", "世界", "🔌"]),
            (FieldType.DATE, [date(999, 1, 1), date(2026, 1, 1), date(2026, 1, 2)]),
            (FieldType.BOOL, [False, True]),
            (FieldType.DECIMAL, sorted(map(Decimal, KEY_DECIMALS))),
            (
                FieldType.TIMESTAMP,
                [
                    NOON - SECOND,
                    NOON,
                    NOON + timedelta(microseconds=5),
                    NOON + SECOND / 2,
                    NOON + SECOND,
                ],
            ),
        ],
    )
    def test_rows_of_any_key_come_in_its_order(self, stores: Stores, kind, keys):
        keyed = dataset(fields=(typed_field("id", kind, required=True),))
        page = last(*(record(key, of=keyed) for key in reversed(keys)))
        run(stores, keyed, page)

        assert ids(stores, keyed) == keys

        assert run(stores, keyed, page).counts.unchanged == len(keys)

    def test_other_digits_of_an_equal_decimal_are_a_change(self, stores: Stores):
        typed = replace(POI, fields=(KEYED, typed_field("it", FieldType.DECIMAL)))
        run(stores, typed, last(record(1, Decimal("1.1"), of=typed)))

        ended = run(stores, typed, last(record(1, Decimal("1.10"), of=typed)))

        assert ended.counts.updated == 1
        assert [str(row[1]) for row in rows(stores, typed)] == ["1.10"]

    def test_the_greater_decimal_is_the_newer_version(self, stores: Stores):
        typed = replace(
            POI,
            fields=(KEYED, typed_field("v", FieldType.DECIMAL), text_field("t")),
            version="v",
        )
        for text in ("9.9", "10.05", "10.040"):
            run(stores, typed, last(record(1, Decimal(text), text, of=typed)))

        assert [row[2] for row in rows(stores, typed)] == ["10.05"]

    def test_a_timestamp_key_is_the_same_in_every_zone(self, stores: Stores):
        keyed = dataset(fields=(typed_field("id", FieldType.TIMESTAMP),))
        elsewhere = NOON.astimezone(timezone(timedelta(hours=5)))
        run(stores, keyed, last(record(NOON, of=keyed)))

        run(stores, keyed, last(record(elsewhere, of=keyed)))

        assert ids(stores, keyed) == [NOON]

    def test_a_key_of_several_fields_is_one_key(self, stores: Stores):
        pairs = dataset(
            fields=(
                text_field("country"),
                text_field("title"),
                typed_field("day", FieldType.DATE),
            ),
            key=("country", "day"),
        )
        monday, tuesday = date(2026, 3, 2), date(2026, 3, 3)
        run(
            stores,
            pairs,
            batch(
                record("FR", "a", tuesday, of=pairs),
                record("FR", "b", monday, of=pairs),
                record("DE", "c", tuesday, of=pairs),
            ),
            last(record("FR", "B", monday, of=pairs)),
        )

        assert rows(stores, pairs) == [
            ("DE", "c", tuesday),
            ("FR", "B", monday),
            ("FR", "a", tuesday),
        ]

    def test_the_order_of_a_key_is_that_of_its_declaration(self, stores: Stores):
        pairs = dataset(fields=(int_field("a"), int_field("b")), key=("b", "a"))
        run(stores, pairs, last(record(1, 9, of=pairs), record(2, 8, of=pairs)))

        assert rows(stores, pairs) == [(2, 8), (1, 9)]

    def test_keys_that_look_alike_are_different(self, stores: Stores):
        texts = dataset(fields=(text_field("id"), text_field("title")))
        keys = ["1", "01", "1.0", "true", "null", "[1]", '"1"', "A", "a"]
        page = last(*(record(key, "x", of=texts) for key in keys))
        run(stores, texts, page)

        assert set(ids(stores, texts)) == set(keys)
        assert run(stores, texts, page).counts.unchanged == len(keys)

    def test_a_large_page_is_merged_in_one_go(self, stores: Stores):
        page = last(*map(record, range(5_000)))

        run(stores, POI, page)

        assert run(stores, POI, page).counts.unchanged == 5_000

    def test_an_import_never_touches_a_local_field(self, stores: Stores):
        noted = replace(POI, fields=(*POI.fields, text_field("note", local=True)))
        plain = replace(POI, fields=(*POI.fields, text_field("note")))
        run(stores, plain, last(record(1, "a", "ours", of=plain)))

        # an import that sees the field as local changes everything else
        run(stores, noted, last(record(1, "b", of=noted)))

        assert rows(stores, noted) == [(1, "b", "ours")]

    def test_deleted_rows_are_neither_read_nor_counted(self, stores: Stores):
        marked = replace(POI, missing=Missing(do=WhenMissing.MARK, max_drop=1))
        run(stores, marked, last(record(1), record(2)))
        run(stores, marked, last(record(2)))

        assert ids(stores, marked) == [2]
        assert stores.records.count(marked) == 1
        assert list(stores.records.distinct(marked, "title")) == ["title 2"]

    def test_rows_are_counted(self, stores: Stores):
        stores.schema.ensure_table(POI)
        assert stores.records.count(POI) == 0

        run(stores, POI, last(record(1), record(2)))

        assert stores.records.count(POI) == 2

    def test_values_of_a_field_come_once_and_in_order(self, stores: Stores):
        run(
            stores,
            POI,
            last(
                *(record(1, "b"), record(2, "a"), record(3, "b"), record(4, None)),
            ),
        )

        assert list(stores.records.distinct(POI, "title")) == ["a", "b"]
        assert list(stores.records.distinct(POI, "id")) == ["1", "2", "3", "4"]

    def test_whole_numbers_are_ordered_as_numbers(self, stores: Stores):
        run(stores, POI, last(record(10), record(9)))

        assert list(stores.records.distinct(POI, "id")) == ["9", "10"]

    # quarantine

    def test_bad_rows_are_read_page_by_page(self, stores: Stores):
        run(stores, POI, last(rejections=[rejection(n, key=[n]) for n in range(3)]))
        first = stores.records.quarantine(POI, after=0, limit=2)

        second = stores.records.quarantine(POI, after=first[-1].id, limit=2)

        assert [row.rejection.position for row in (*first, *second)] == [0, 1, 2]
        assert stores.records.quarantine(POI, after=second[-1].id, limit=2) == []

    def test_bad_rows_belong_to_their_dataset(self, stores: Stores):
        run(stores, POI, last(rejections=[rejection(key=[1])]))
        shops = dataset("shops")
        stores.schema.ensure_table(shops)

        assert stores.records.quarantine(shops, after=0, limit=9) == []

    def test_the_bad_rows_of_an_import_are_read_page_by_page(self, stores: Stores):
        run(stores, POI, last(rejections=[rejection(7)]))
        bad = [rejection(n) for n in range(3)]
        ended = run(stores, POI, last(rejections=bad), mode=Mode.DELTA)
        first = stores.records.rejected(ended.id, after=0, limit=2)

        second = stores.records.rejected(ended.id, after=first[-1].id, limit=2)

        assert [row.rejection.position for row in (*first, *second)] == [0, 1, 2]
        assert stores.records.rejected(ended.id, after=second[-1].id, limit=2) == []

    def test_fewer_bad_rows_are_read_at_once_where_they_are_large(self, stores: Stores):
        sizes = [3_000_000] * 3 + [9_000_000, 10]
        bad = [replace(rejection(n), raw=b"x" * size) for n, size in enumerate(sizes)]
        ended = run(stores, POI, last(rejections=bad))
        found, after = [], 0
        while some := stores.records.rejected(ended.id, after=after, limit=500):
            raw = sum(len(row.rejection.raw) for row in some)
            assert len(some) == 1 or raw <= MAX_PAGE_BYTES
            found += [row.rejection.position for row in some]
            after = some[-1].id

        assert found == [*range(len(sizes))]

    def test_the_place_of_a_bad_row_is_retained(self, stores: Stores):
        bad = replace(rejection(), place=RowLocation(line=2**33, offset=2**40))

        ended = run(stores, POI, last(rejections=[bad]))

        (stored,) = stores.records.rejected(ended.id, after=0, limit=9)
        assert stored.rejection == bad
        assert stored.shard_key == "all"

    def test_bad_rows_are_counted_by_reason_and_field(self, stores: Stores):
        unread = replace(rejection(), reason=Reason.UNREADABLE, field=None)
        long = replace(rejection(), reason=Reason.LENGTH)
        bad = [unread, long, rejection(), rejection(), replace(unread, field="id")]
        numbered = [replace(each, position=at) for at, each in enumerate(bad)]
        run(stores, POI, last(rejections=numbered))

        ended = run(stores, POI, last(rejections=numbered), mode=Mode.DELTA)

        assert stores.records.rejections_by_reason(ended.id) == [
            ReasonCount(reason=Reason.MISSING, field="title", rows=2),
            ReasonCount(reason=Reason.LENGTH, field="title", rows=1),
            ReasonCount(reason=Reason.UNREADABLE, field=None, rows=1),
            ReasonCount(reason=Reason.UNREADABLE, field="id", rows=1),
        ]

    def test_an_import_without_bad_rows_has_none_to_count(self, stores: Stores):
        ended = run(stores, POI, last(record(1)))

        assert stores.records.rejections_by_reason(ended.id) == []

    def test_a_bad_row_that_is_settled_still_belongs_to_its_import(
        self, stores: Stores
    ):
        ended = run(
            stores, POI, batch(rejections=[rejection(key=[1])]), last(record(1))
        )

        assert stores.records.quarantine(POI, after=0, limit=9) == []
        assert len(stores.records.rejected(ended.id, after=0, limit=9)) == 1
        (counted,) = stores.records.rejections_by_reason(ended.id)
        assert counted.rows == ended.counts.quarantined == 1

    def test_an_import_that_read_nothing_has_the_bad_rows_of_the_one_before(
        self, stores: Stores
    ):
        read = run(stores, POI, last(record(1), rejections=[rejection()]))
        again = begin(stores, POI)
        repeat(stores, POI, again.id, read.id)
        once_more = begin(stores, POI)
        repeat(stores, POI, once_more.id, again.id)

        (row,) = stores.records.rejected(once_more.id, after=0, limit=9)
        (counted,) = stores.records.rejections_by_reason(once_more.id)

        assert row.import_id == read.id
        ended, _ = stores.imports.get(once_more.id)
        assert counted.rows == ended.counts.quarantined == 1

    def test_a_mended_row_is_stored(self, stores: Stores, pass_time):
        run(stores, POI, last(record(1), rejections=[rejection(key=[2])]))
        (bad,) = stores.records.quarantine(POI, after=0, limit=9)
        pass_time(SECOND)

        result = stores.records.replay(POI, [(bad, record(2, "mended"))])

        assert result == Replay(accepted=1)
        assert rows(stores, POI) == [(1, "title 1"), (2, "mended")]
        assert stores.records.quarantine(POI, after=0, limit=9) == []

    def test_a_mended_row_replaces_what_was_stored_before_it(
        self, stores: Stores, pass_time
    ):
        run(stores, POI, last(record(1, "old")))
        pass_time(SECOND)
        run(stores, POI, last(rejections=[rejection(key=[1])]), mode=Mode.DELTA)
        (bad,) = stores.records.quarantine(POI, after=0, limit=9)

        stores.records.replay(POI, [(bad, record(1, "mended"))])

        assert rows(stores, POI) == [(1, "mended")]

    def test_a_row_written_since_is_not_overwritten(self, stores: Stores, pass_time):
        run(stores, POI, last(rejections=[rejection()]))
        (bad,) = stores.records.quarantine(POI, after=0, limit=9)
        pass_time(A_MOMENT)
        run(stores, POI, last(record(1, "newer")), mode=Mode.DELTA)

        result = stores.records.replay(POI, [(bad, record(1, "mended"))])

        assert result == Replay(superseded=1)
        assert rows(stores, POI) == [(1, "newer")]
        assert stores.records.quarantine(POI, after=0, limit=9) == []

    def test_new_and_known_rows_are_mended_together(self, stores: Stores, pass_time):
        run(stores, POI, last(record(1, "old")))
        pass_time(SECOND)
        bad = [rejection(at, key=[at]) for at in range(4)]
        run(stores, POI, last(rejections=bad), mode=Mode.DELTA)
        found = stores.records.quarantine(POI, after=0, limit=9)

        result = stores.records.replay(
            POI, [(row, record(at, "mended")) for at, row in enumerate(found)]
        )

        assert result == Replay(accepted=4)
        assert rows(stores, POI) == [(at, "mended") for at in range(4)]

    def test_a_row_whose_key_its_file_has_again_is_superseded(
        self, stores: Stores, pass_time
    ):
        shops = dataset("shops", source=CsvSource(files=("*.csv",)))
        bad = [rejection(0, key=[1]), rejection(1, key=[2])]
        page = replace(last(record(1, "good"), rejections=bad), rank=7)
        run(stores, shops, page)
        first, second = stores.records.quarantine(shops, after=0, limit=9)
        pass_time(SECOND)

        result = stores.records.replay(
            shops, [(second, record(2, "mended")), (first, record(1, "mended"))]
        )

        assert result == Replay(accepted=1, superseded=1)
        assert rows(stores, shops) == [(1, "good"), (2, "mended")]
        assert stores.records.quarantine(shops, after=0, limit=9) == []

    def test_a_good_record_resolves_older_rejections_of_its_key(
        self, stores: Stores, pass_time
    ):
        run(stores, POI, last(record(1, "good")))
        run(stores, POI, last(rejections=[rejection(key=[1])]), mode=Mode.DELTA)
        pass_time(A_MOMENT)

        run(stores, POI, last(record(1, "good")), mode=Mode.DELTA)

        assert stores.records.quarantine(POI, after=0, limit=9) == []

    def test_new_records_resolve_rejections_of_their_keys(self, stores: Stores):
        bad = [rejection(0, key=[1]), rejection(1, key=[9])]
        run(stores, POI, last(rejections=bad))

        run(stores, POI, last(record(1), record(2)), mode=Mode.DELTA)

        (left,) = stores.records.quarantine(POI, after=0, limit=9)
        assert left.rejection.key == (9,)

    def test_a_good_record_says_nothing_about_a_bad_row_of_its_own_page(
        self, stores: Stores
    ):
        run(stores, POI, last(record(1), rejections=[rejection(key=[1])]))

        assert len(stores.records.quarantine(POI, after=0, limit=9)) == 1

    def test_a_row_that_is_still_bad_keeps_its_new_reason(self, stores: Stores):
        run(stores, POI, last(rejections=[rejection(3, key=[1], raw=b"raw")]))
        (bad,) = stores.records.quarantine(POI, after=0, limit=9)
        again = Rejection(
            position=0, reason=Reason.LENGTH, detail="too long", raw=b"", field="title"
        )

        result = stores.records.replay(POI, [(bad, again)])

        assert result == Replay(still_bad=1)
        (stored,) = stores.records.quarantine(POI, after=0, limit=9)
        assert (stored.rejection.reason, stored.rejection.detail) == (
            Reason.LENGTH,
            "too long",
        )
        assert (stored.id, stored.rejection.position, stored.rejection.raw) == (
            bad.id,
            3,
            b"raw",
        )

    def test_replaying_twice_is_replaying_once(self, stores: Stores, pass_time):
        run(stores, POI, last(rejections=[rejection(key=[1])]))
        tried = [
            (bad, record(1, "mended"))
            for bad in stores.records.quarantine(POI, after=0, limit=9)
        ]
        stores.records.replay(POI, tried)
        pass_time(SECOND)

        assert stores.records.replay(POI, tried) == Replay()

        assert rows(stores, POI) == [(1, "mended")]

    def test_of_two_mended_rows_the_later_one_stays(self, stores: Stores, pass_time):
        run(stores, POI, last(rejections=[rejection(key=[1])]))
        pass_time(SECOND)
        run(stores, POI, last(rejections=[rejection(key=[1])]), mode=Mode.DELTA)
        pass_time(SECOND)
        ((later, earlier),) = stores.records.latest_quarantine(POI, at_once=9)

        result = stores.records.replay(
            POI, [(later, record(1, "later")), (earlier, record(1, "earlier"))]
        )

        assert result == Replay(accepted=1, superseded=1)
        assert rows(stores, POI) == [(1, "later")]

    def test_an_older_version_is_not_accepted_over_a_newer(self, stores: Stores):
        versioned = dataset(fields=(int_field("id"), int_field("v")), version="v")
        run(
            stores,
            versioned,
            last(record(1, 5, of=versioned), rejections=[rejection(key=[1])]),
        )
        (bad,) = stores.records.quarantine(versioned, after=0, limit=9)

        stores.records.replay(versioned, [(bad, record(1, 4, of=versioned))])

        assert rows(stores, versioned) == [(1, 5)]

    def test_a_replay_that_fails_half_way_leaves_no_trace(self, stores: Stores):
        run(stores, POI, last(rejections=[rejection(0, key=[1]), rejection(1)]))
        first, second = stores.records.quarantine(POI, after=0, limit=9)
        broken = record(2)._replace(values=(2, object()))

        with pytest.raises(Exception, match=r"object|argument"):
            stores.records.replay(POI, [(first, record(1)), (second, broken)])

        assert rows(stores, POI) == []
        assert len(stores.records.quarantine(POI, after=0, limit=9)) == 2

    def test_a_replayed_row_is_not_missing_from_a_running_full_import(
        self, stores: Stores, pass_time
    ):
        marked = replace(POI, missing=Missing(do=WhenMissing.MARK, max_drop=1))
        run(stores, marked, last(record(1), rejections=[rejection(key=[2])]))
        (bad,) = stores.records.quarantine(marked, after=0, limit=9)
        pass_time(SECOND)
        import_id = plan(stores, marked)
        lease = claim(stores, marked)
        page = last(record(1), rejections=[rejection(key=[2])])
        stores.ledger.commit_page(marked, lease, page)
        pass_time(SECOND)

        stores.records.replay(marked, [(bad, record(2, "mended"))])
        stores.imports.close(marked, import_id, failed=None)

        assert ids(stores, marked) == [1, 2]
        assert job_of(stores, lease).counts.quarantined == 1
