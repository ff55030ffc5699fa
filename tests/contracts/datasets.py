"""What every store promises of datasets as a whole."""

from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from penstock.domain.dataset import FieldType, Missing, WhenMissing
from penstock.domain.history import HistoryPosition
from penstock.domain.import_scope import ImportScope
from penstock.domain.jobs import ImportStatus, Lease, Mode
from penstock.domain.record_validation import Precondition
from penstock.domain.scheduling.fires import FireOutcome
from penstock.errors import Conflict, DatasetGone, Misconfigured, NotFound
from penstock.flow.edit_records import EditRecords
from penstock.ports import Stores
from penstock.ports.idempotency import IdempotentRequest, ImportSpec, RequestClaim
from penstock.ports.record_access import ApiStores
from tests.contracts.schedules import advanced, declared, fire_request
from tests.contracts.schema import Ask
from tests.contracts.search import find
from tests.support.builders import (
    TIMEOUT,
    begin,
    claim,
    dataset,
    known_page,
    last,
    plan,
    record,
    rejection,
    repeated,
    rows,
    run,
    text_field,
    typed_field,
)

POI = dataset(search=("title",))
MARKED = dataset(missing=Missing(do=WhenMissing.MARK, max_drop=1))
LEDGER = (
    *("import", "job", "claim", "page"),
    *("quarantine", "change", "word", "vocabulary"),
)


def titled(kind: FieldType, **declared):
    """Return the plain dataset with a title of another type."""
    return dataset(fields=(POI.fields[0], typed_field("title", kind, **declared)))


def dropped(stores: Stores, name: str = "poi") -> int:
    return sum(stores.schema.datasets.drop(name))


def fail(stores: Stores) -> Lease:
    """Let an import fail by its only job."""
    plan(stores, POI)
    lease = claim(stores, POI)
    stores.ledger.fail(lease, TIMEOUT)
    ended = stores.imports.close(POI, lease.import_id, failed=None)
    assert ended is not None
    assert ended.status is ImportStatus.FAILED
    return lease


# the tables with a row after an import of one page
HAS_ROWS = {"import", "claim", "page", "change"}


class DatasetsContract:
    """Subclasses bring `stores`, `served` and `ask`."""

    # listing

    def test_a_dataset_is_listed_with_what_is_stored_of_it(self, stores: Stores):
        run(stores, MARKED, last(record(1), record(2), record(3)))
        run(stores, MARKED, last(record(1), rejections=[rejection(9, key=[7])]))
        stores.schema.ensure_table(dataset("other"))

        other, poi = stores.schema.datasets.stored()

        assert (other.name, other.rows, other.last_import) == ("other", 0, None)
        assert (poi.name, poi.rows, poi.deleted, poi.bad_rows) == ("poi", 1, 2, 1)
        assert poi.last_import is not None
        assert poi.imported_at == poi.last_import.finished_at

    # dropping

    def test_nothing_is_left_of_a_dropped_dataset(self, stores: Stores, ask: Ask):
        known = [known_page(record(1)), last(record(2), rejections=[rejection(9)])]
        run(stores, POI, *known)
        run(stores, dataset("other"), last(record(1)))
        stores.schema.maintain(POI)

        assert dropped(stores) > 0

        assert [each.name for each in stores.schema.datasets.stored()] == ["other"]
        for table in LEDGER:
            left = ask(f"select count(*) from penstock_{table}")[0][0]
            # the shard's and the plan's
            ours = 2 if table in {"job", "claim"} else int(table in HAS_ROWS)
            assert (table, left) == (table, ours)
        assert rows(stores, dataset("other")) == [(1, "title 1")]
        with pytest.raises(NotFound):
            dropped(stores)

    def test_a_correction_goes_with_its_import(self, stores: Stores, ask: Ask):
        corrected = run(stores, POI, last(rejections=[rejection(9)]))
        request = IdempotentRequest(scope="ann", key="one", digest=b"digest")
        claimed = stores.requests.claim(request)
        assert isinstance(claimed, RequestClaim)
        spec = ImportSpec(
            scope=ImportScope(mode=Mode.BACKFILL),
            declaration="digest",
            approve=lambda *_: None,
            corrects=corrected.id,
        )
        begun = stores.requests.begin(claimed, POI, spec).import_
        assert ask("select open_rows from penstock_correction")[0][0] == 1
        stores.imports.cancel(begun.id, reason="the dataset is dropped")

        dropped(stores)

        assert ask("select count(*) from penstock_correction")[0][0] == 0

    def test_fires_outlive_the_imports_that_they_began(self, stores: Stores):
        stores.schema.ensure_table(POI)
        stores.schedules.declare([declared()], at=stores.jobs.now())
        hourly = stores.schedules.get("poi")
        request = fire_request(hourly.considered_until)
        begun = stores.fires.begin(hourly, advanced(hourly), POI, request)
        assert begun is not None
        stores.imports.cancel(begun.id, reason="no")

        dropped(stores)

        (fire,) = stores.schedules.fires("poi", limit=2)
        assert (fire.outcome, fire.import_id) == (FireOutcome.STARTED, None)

    def test_a_dataset_is_not_dropped_while_an_import_is_unfinished(
        self, stores: Stores
    ):
        run(stores, POI, last(record(1)))
        begun = begin(stores, POI)

        with pytest.raises(Conflict, match=f"import {begun.id} of poi is unfinished"):
            dropped(stores)

        assert rows(stores, POI) == [(1, "title 1")]

    def test_a_drop_that_was_interrupted_goes_on(self, stores: Stores, ask: Ask):
        run(stores, POI, last(record(1), rejections=[rejection(9)]))
        next(iter(stores.schema.datasets.drop("poi")))

        (half,) = stores.schema.datasets.stored()
        assert (half.name, half.rows) == ("poi", None)
        dropped(stores)

        assert ask("select count(*) from penstock_job") == [(0,)]
        assert not stores.schema.datasets.stored()

    def test_a_dataset_that_is_declared_again_has_another_history(
        self, stores: Stores, served: ApiStores
    ):
        run(stores, POI, last(record(1)))
        before = served.reads.dataset_versions()["poi"]
        dropped(stores)
        assert served.reads.dataset_versions()["poi"].watermark is None

        run(stores, POI, last(record(2)))

        after = served.reads.dataset_versions()["poi"]
        assert after.generation > before.generation
        # the number behind the last one is missing, so whoever follows notices
        (change,) = served.reads.changes(POI, after=0, limit=9)
        assert change.seq > before.change_seq + 1

    @pytest.mark.parametrize("command", ["drop", "retype"])
    def test_who_begins_at_a_new_history_follows_it(
        self, stores: Stores, served: ApiStores, command: str
    ):
        new = titled(FieldType.INT)
        run(stores, dataset(), last(record(1, "1"), record(2, "2")))
        lost = served.reads.dataset_versions()["poi"].position
        if command == "drop":
            dropped(stores)
        else:
            stores.schema.datasets.retype(new)
        begun = served.reads.dataset_versions()["poi"].position

        for number in (3, 4):
            run(stores, new, last(record(number, number, of=new)), mode=Mode.DELTA)

            assert served.reads.knows("poi", [begun])
            assert not served.reads.knows("poi", [HistoryPosition(begun.seq, 1)])
            assert not served.reads.knows("poi", [lost])
        result = served.reads.changes(new, after=begun.seq, limit=9)
        assert [each.seq for each in result] == [begun.seq + 1, begun.seq + 2]

    def test_a_process_that_did_not_hear_of_a_drop_begins_no_import(
        self, stores: Stores
    ):
        run(stores, POI, last(record(1)))
        dropped(stores)

        with pytest.raises(DatasetGone, match="start the process again"):
            begin(stores, POI)

    # tables without rows

    @pytest.mark.parametrize(
        "declared",
        [
            titled(FieldType.INT),
            titled(FieldType.JSON),
            replace(POI, key=("title",), fields=(POI.fields[0], text_field("title"))),
        ],
    )
    def test_a_table_without_rows_becomes_what_is_declared(
        self, stores: Stores, ask: Ask, declared
    ):
        run(stores, POI, last(rejections=[rejection(0)]))

        (step,) = stores.schema.pending_table_changes(declared)
        assert step == "create table poi anew: it has no rows"
        stores.schema.ensure_table(declared)

        assert list(stores.schema.pending_table_changes(declared)) == []
        title = {FieldType.INT: 7, FieldType.JSON: "{}"}
        value = title.get(declared.fields[1].type, "seven")
        run(stores, declared, last(record(1, value, of=declared)))
        assert rows(stores, declared) == [(1, value)]
        assert ask("select id from poi_live") == [(1,)]

    def test_the_rows_of_a_table_with_another_key_are_found_by_their_words(
        self, stores: Stores, served: ApiStores
    ):
        fields = (POI.fields[0], text_field("title", required=True))
        run(stores, POI, last(rejections=[rejection(0)]))
        stores.schema.maintain(POI)
        declared = replace(POI, key=("title",), fields=fields)

        stores.schema.ensure_table(declared)

        run(stores, declared, last(record(1, "lighthouse", of=declared)))
        stores.schema.maintain(declared)
        assert find(served, declared, q="lighthouse") == [1]

    def test_a_table_is_not_replaced_under_an_unfinished_import(self, stores: Stores):
        plan(stores, POI)

        with pytest.raises(Conflict, match="unfinished"):
            stores.schema.ensure_table(titled(FieldType.INT))

    # converting

    @pytest.mark.parametrize(
        ("stored", "declared", "pairs"),
        [
            (FieldType.TEXT, FieldType.INT, [("7", 7), ("-12", -12)]),
            (FieldType.TEXT, FieldType.FLOAT, [("1.50", 1.5), ("7", 7.0)]),
            (FieldType.TEXT, FieldType.BOOL, [("yes", True), ("0", False)]),
            (FieldType.TEXT, FieldType.DATE, [("2026-02-28", date(2026, 2, 28))]),
            (FieldType.TEXT, FieldType.JSON, [('{"b": 1}', '{"b":1}')]),
            (FieldType.INT, FieldType.TEXT, [(7, "7")]),
            (FieldType.INT, FieldType.FLOAT, [(2**53, float(2**53))]),
            (FieldType.FLOAT, FieldType.INT, [(7.0, 7)]),
            (
                FieldType.TEXT,
                FieldType.DECIMAL,
                [("1.50", Decimal("1.50")), ("-7", Decimal(-7))],
            ),
            (FieldType.INT, FieldType.DECIMAL, [(2**53 + 1, Decimal(2**53 + 1))]),
            (FieldType.FLOAT, FieldType.DECIMAL, [(0.1, Decimal("0.1"))]),
            (FieldType.BOOL, FieldType.DECIMAL, [(True, Decimal(1))]),
            (FieldType.JSON, FieldType.DECIMAL, [("1.10", Decimal("1.10"))]),
            (FieldType.JSON, FieldType.FLOAT, [("1.10", 1.1), ("1e5", 1e5)]),
            (
                FieldType.DECIMAL,
                FieldType.TEXT,
                [(Decimal("1.10"), "1.10"), (Decimal("1E-7"), "0.0000001")],
            ),
            (FieldType.DECIMAL, FieldType.INT, [(Decimal("5.00"), 5)]),
            (FieldType.DECIMAL, FieldType.FLOAT, [(Decimal("1.10"), 1.1)]),
            (FieldType.DECIMAL, FieldType.JSON, [(Decimal("1.10"), "1.10")]),
            (FieldType.BOOL, FieldType.TEXT, [(True, "true")]),
            (
                FieldType.DATE,
                FieldType.TIMESTAMP,
                [(date(2026, 2, 28), datetime(2026, 2, 28, tzinfo=UTC))],
            ),
            (
                FieldType.TIMESTAMP,
                FieldType.TEXT,
                [(datetime(2026, 2, 28, 1, tzinfo=UTC), "2026-02-28T01:00:00Z")],
            ),
        ],
    )
    def test_values_are_converted_as_an_import_would_bring_them(
        self, stores: Stores, served: ApiStores, ask: Ask, stored, declared, pairs
    ):
        old, new = titled(stored), titled(declared)
        before = [record(at, value, of=old) for at, (value, _) in enumerate(pairs)]
        after = [record(at, value, of=new) for at, (_, value) in enumerate(pairs)]
        run(stores, old, last(*before, record(99, None, of=old)))
        state = served.reads.dataset_versions()["poi"]

        done = stores.schema.datasets.retype(new)

        assert (done.rows, done.lost) == (len(pairs) + 1, 0)
        assert list(stores.schema.pending_table_changes(new)) == []
        again = run(stores, new, last(*after, record(99, None, of=new)))
        assert again.counts.unchanged == len(pairs) + 1
        assert rows(stores, new) == [*(each.values for each in after), (99, None)]
        assert len(ask("select id, title from poi_live")) == len(pairs) + 1
        # followers have to begin again
        assert served.reads.dataset_versions()["poi"].generation > state.generation
        assert not served.reads.changes(new, after=0, limit=9)

    @pytest.mark.parametrize(
        ("stored", "declared", "value"),
        [
            (FieldType.TEXT, FieldType.INT, "seven"),
            (FieldType.TEXT, FieldType.INT, "007"),
            (FieldType.TEXT, FieldType.INT, "+49301234"),
            (FieldType.TEXT, FieldType.FLOAT, "0.12345678901234567890"),
            (FieldType.TEXT, FieldType.TIMESTAMP, "2026-01-01T00:00:00.123456789Z"),
            (FieldType.INT, FieldType.FLOAT, 2**53 + 1),
            (FieldType.TEXT, FieldType.DECIMAL, "007"),
            (FieldType.TEXT, FieldType.DECIMAL, "NaN"),
            (FieldType.FLOAT, FieldType.DECIMAL, 1e300),
            (FieldType.DECIMAL, FieldType.INT, Decimal("1.5")),
            (FieldType.DECIMAL, FieldType.FLOAT, Decimal("0.12345678901234567890")),
            (FieldType.DECIMAL, FieldType.DATE, Decimal(7)),
            (FieldType.JSON, FieldType.FLOAT, "12345678901234567890.123"),
            (FieldType.INT, FieldType.BOOL, 2),
            (FieldType.FLOAT, FieldType.INT, 1.5),
            (FieldType.BOOL, FieldType.DATE, True),
            # what an import would take for no value
            (FieldType.TEXT, FieldType.INT, "  "),
            (FieldType.TEXT, FieldType.JSON, "null"),
            (FieldType.JSON, FieldType.INT, '""'),
            (
                FieldType.TIMESTAMP,
                FieldType.DATE,
                datetime(2026, 2, 28, 1, tzinfo=UTC),
            ),
        ],
    )
    def test_a_value_that_would_be_lost_is_listed_and_nothing_is_changed(
        self, stores: Stores, stored, declared, value
    ):
        old = titled(stored)
        run(stores, old, last(record(1, None, of=old), record(2, value, of=old)))

        done = stores.schema.datasets.retype(titled(declared))

        assert done.lost == 1
        assert [(each.key, each.field) for each in done.losses] == [((2,), "title")]
        assert rows(stores, old) == [(1, None), (2, value)]
        assert run(stores, old, last(record(2, value, of=old))).counts.unchanged == 1

    def test_the_list_of_lost_values_is_bounded(self, stores: Stores):
        run(stores, POI, last(*(record(at) for at in range(50))))

        done = stores.schema.datasets.retype(titled(FieldType.INT))

        assert (done.lost, len(done.losses)) == (50, 20)

    def test_a_key_can_be_converted(self, stores: Stores):
        run(stores, POI, last(record(1), record(2), rejections=[rejection(key=[3])]))
        fields = (text_field("id", required=True), text_field("title"))
        new = replace(POI, fields=fields)

        stores.schema.datasets.retype(new)

        assert rows(stores, new) == [("1", "title 1"), ("2", "title 2")]
        again = run(stores, new, last(record("2", "two", of=new)), mode=Mode.DELTA)
        assert again.counts.updated == 1

    def test_rows_that_are_deleted_stay_so(self, stores: Stores):
        run(stores, MARKED, last(record(1, "1"), record(2, "2")))
        run(stores, MARKED, last(record(1, "1")))
        new = replace(titled(FieldType.INT), missing=MARKED.missing)

        stores.schema.datasets.retype(new)

        assert rows(stores, new) == [(1, 1)]
        assert run(stores, new, last(record(2, 2, of=new))).counts.inserted == 1

    def test_a_known_page_is_read_again_after_a_conversion(self, stores: Stores):
        run(stores, POI, known_page(record(1, "1")), last())
        new = replace(titled(FieldType.INT), search=())
        stores.schema.datasets.retype(new)
        plan(stores, new)

        assert repeated(stores, claim(stores, new), of=new) is None

    def test_columns_of_lost_fields_stay(self, stores: Stores, ask: Ask):
        wide = replace(POI, fields=(*POI.fields, text_field("town")))
        run(stores, wide, last(record(1, "1", "Bonn", of=wide)))

        stores.schema.datasets.retype(titled(FieldType.INT))

        assert ask("select id, title, town from poi") == [(1, 1, "Bonn")]

    def test_nothing_is_converted_while_an_import_is_unfinished(self, stores: Stores):
        run(stores, POI, last(record(1, "1")))
        begin(stores, POI)

        with pytest.raises(Conflict, match="unfinished"):
            stores.schema.datasets.retype(titled(FieldType.INT))

    def test_another_key_is_no_change_of_types(self, stores: Stores):
        run(stores, POI, last(record(1, "1")))

        with pytest.raises(Misconfigured, match=r"datasets\.poi\.key"):
            stores.schema.datasets.retype(
                replace(titled(FieldType.INT), key=("title",))
            )

    def test_a_process_with_the_old_types_writes_nothing_more(
        self, stores: Stores, served: ApiStores
    ):
        run(stores, POI, last(record(1, "1")))
        new = titled(FieldType.INT)
        stores.schema.datasets.retype(new)
        edit = EditRecords(served.edits, stores.records)

        with pytest.raises(Conflict, match="start the process again"):
            begin(stores, POI)
        with pytest.raises(Exception, match=r"start the process again|type|refuse"):
            edit.put(POI, (1,), {"title": "text"}, Precondition())

        assert rows(stores, new) == [(1, 1)]

    @pytest.mark.parametrize("is_empty", [True, False])
    def test_what_failed_before_a_conversion_is_not_run_again(
        self, stores: Stores, is_empty
    ):
        if not is_empty:
            run(stores, POI, last(record(1, "1")))
        lease = fail(stores)
        new = titled(FieldType.INT)
        if is_empty:
            stores.schema.ensure_table(new)
        else:
            stores.schema.datasets.retype(new)

        assert not stores.jobs.retry(lease.job)
        assert not stores.jobs.retry_failed(lease.import_id, after=None, most=9)

        ended = stores.imports.peek(lease.import_id)
        assert ended.status is ImportStatus.CANCELLED
        assert ended.note is not None
        assert "import it again" in ended.note

    def test_what_failed_is_run_again_where_nothing_was_converted(self, stores: Stores):
        run(stores, POI, last(record(1, "one")))
        lease = fail(stores)

        assert stores.schema.datasets.retype(titled(FieldType.INT)).lost == 1

        assert stores.jobs.retry(lease.job)

    @pytest.mark.parametrize(
        ("stored", "declared", "value", "converted"),
        [
            (FieldType.INT, FieldType.TEXT, 1, "1"),
            (FieldType.TEXT, FieldType.INT, "1", 1),
        ],
    )
    def test_bad_rows_are_not_replayed_with_the_old_types(
        self, stores: Stores, stored, declared, value, converted
    ):
        old, new = titled(stored), titled(declared)
        run(stores, old, last(record(1, value, of=old), rejections=[rejection(0)]))
        (bad,) = stores.records.quarantine(old, after=0, limit=9)
        stores.schema.datasets.retype(new)

        with pytest.raises(Conflict, match="start the process again"):
            stores.records.replay(old, [(bad, record(2, value, of=old))])

        assert rows(stores, new) == [(1, converted)]
        assert len(stores.records.quarantine(new, after=0, limit=9)) == 1

    def test_a_process_goes_on_though_another_has_dropped_a_dataset(
        self, stores: Stores
    ):
        searched = replace(POI, filter=("title",))
        run(stores, searched, last(record(1)))
        stores.schema.maintain(searched)
        dropped(stores)

        assert list(stores.schema.maintain(searched)) == []
        run(stores, searched, last(record(1)))
        stores.schema.maintain(searched)

        # the indexes of the new table were made, too
        assert list(stores.schema.pending_maintenance(searched)) == []
