"""What every store promises of the archive of rows that are gone from the source."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from penstock.domain.dataset import ArchivePolicy, Dataset, FieldType, Missing
from penstock.domain.jobs import Mode
from penstock.domain.search.filter_params import read_query
from penstock.errors import Conflict
from penstock.flow.archive_rows import ROW_BATCH, ArchiveRows
from penstock.ports import Stores
from penstock.ports.record_access import ApiStores, CountKind, Write
from tests.contracts.imports import FILES, import_files
from tests.support.builders import (
    A_MOMENT,
    batch,
    begin,
    claim,
    dataset,
    ids,
    int_field,
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

DAY = timedelta(days=1)
YEAR = 365 * DAY
ALL = Missing(max_drop=1)
ARCHIVED = ArchivePolicy(after=YEAR)
POI = dataset(archive=ARCHIVED, missing=ALL)
NOTED = replace(POI, fields=(*POI.fields, text_field("note", local=True)))
# a key that each database stores in its own way
DATED = dataset(
    "dated",
    fields=(
        typed_field("at", FieldType.TIMESTAMP, required=True),
        int_field("id", required=True),
        text_field("title"),
    ),
    key=("at", "id"),
    archive=ARCHIVED,
    missing=ALL,
)


def archive_of(stores: Stores) -> ArchiveRows:
    return ArchiveRows(archive=stores.archive, jobs=stores.jobs)


def archive(stores: Stores, of: Dataset = POI) -> int:
    """Archive what may be; what was said before must be what was done."""
    said = archive_of(stores).preview(of)
    done = archive_of(stores)(of)
    assert done == said
    return done.rows


def archived(stores: Stores, of: Dataset = POI) -> list[object]:
    return ids(stores, of.archived)


def put(served: ApiStores, of: Dataset, *values: Any, **local: object) -> None:
    stored = record(*values, of=of)

    def decide(live: object) -> Sequence[Write]:
        del live
        return [Write(record=stored, local=local)]

    served.edits.change(of, [stored.key], decide)


def kinds(served: ApiStores, of: Dataset = POI) -> list[tuple[str, object]]:
    changes = served.reads.changes(of, after=0, limit=1_000)
    return [(change.kind, change.key) for change in changes]


class ArchiveContract:
    @pytest.fixture
    def import_of(
        self, stores: Stores, pass_time: Callable[[timedelta], None]
    ) -> Callable[..., None]:
        """Import rows with these ids, and let time pass."""

        def import_ids(
            *numbers: int, then: timedelta = A_MOMENT, mode: Mode = Mode.FULL
        ) -> None:
            run(stores, POI, last(*map(record, numbers)), mode=mode)
            pass_time(then)

        return import_ids

    def test_a_row_that_was_not_seen_for_so_long_is_archived(
        self, stores, served, import_of
    ):
        import_of(1, 2, 3, then=YEAR)
        import_of(1, 3)
        before = served.reads.dataset_versions()[POI.name].generation

        assert archive(stores) == 1

        assert rows(stores, POI) == [(1, "title 1"), (3, "title 3")]
        assert rows(stores, POI.archived) == [(2, "title 2")]
        assert kinds(served)[-1] == ("deleted", [2])
        assert served.reads.dataset_versions()[POI.name].generation > before
        assert archive(stores) == 0

    def test_a_row_stays_until_the_time_is_over(self, stores, import_of, pass_time):
        import_of(1, 2, then=YEAR - DAY)
        import_of(1, then=DAY - 2 * A_MOMENT)
        assert archive(stores) == 0
        pass_time(2 * A_MOMENT)
        assert archive(stores) == 1

    def test_nothing_is_archived_without_a_later_proven_import(self, stores, import_of):
        import_of(1, 2, then=2 * YEAR)
        assert archive(stores) == 0
        # deltas see only what changed, and a failed import not everything
        import_of(1, mode=Mode.DELTA)
        failing = plan(stores, POI)
        stores.ledger.commit_page(POI, claim(stores, POI), batch(record(1)))
        stores.imports.close(POI, failing, failed="no")
        assert archive(stores) == 0
        import_of(1)
        assert archive(stores) == 1

    def test_a_failed_import_has_seen_its_rows(self, stores, import_of, pass_time):
        import_of(1, 2, then=YEAR)
        failing = plan(stores, POI)
        stores.ledger.commit_page(POI, claim(stores, POI), batch(record(2)))
        stores.imports.close(POI, failing, failed="no")
        import_of(1, then=YEAR - DAY)
        import_of(1)
        assert archive(stores) == 0
        pass_time(DAY)
        assert archive(stores) == 1

    def test_a_row_that_a_delta_brought_is_seen(self, stores, import_of, pass_time):
        import_of(1, then=YEAR)
        import_of(2, mode=Mode.DELTA)
        import_of(1, then=YEAR - DAY)
        import_of(1)
        assert archive(stores) == 0
        pass_time(DAY)
        assert archive(stores) == 1

    def test_time_before_imports_were_tracked_does_not_count(
        self, stores, import_of, pass_time
    ):
        untracked = replace(POI, archive=None)
        run(stores, untracked, last(record(1), record(2)))
        pass_time(2 * YEAR)
        run(stores, untracked, last(record(1), record(2)))
        import_of(1, then=YEAR - DAY)
        import_of(1)
        assert archive(stores) == 0
        pass_time(DAY)
        assert archive(stores) == 1

    def test_an_import_of_unchanged_files_has_seen_all_rows(self, stores, pass_time):
        files = replace(FILES, archive=ARCHIVED, missing=ALL)
        import_files(stores, files, {"a.csv": [1, 2]})
        pass_time(YEAR)
        earlier = stores.imports.last_reusable(files, Mode.FULL)
        assert earlier is not None
        begun = begin(stores, files)
        repeat(stores, files, begun.id, earlier.id)
        pass_time(A_MOMENT)
        import_files(stores, files, {"a.csv": [1]})
        assert archive(stores, files) == 0
        pass_time(YEAR)
        assert archive(stores, files) == 1

    def test_a_key_that_returns_comes_back(self, stores, served, import_of):
        import_of(1, 2, then=YEAR)
        import_of(1)
        archive(stores)

        import_of(1, 2)

        assert ids(stores, POI) == [1, 2]
        assert archived(stores) == []
        assert kinds(served)[-2:] == [("deleted", [2]), ("created", [2])]
        assert archive(stores) == 0

    @pytest.mark.parametrize("mode", [Mode.FULL, Mode.DELTA, Mode.BACKFILL])
    def test_it_comes_back_in_any_page(self, stores, import_of, mode):
        many = range(1, 40)
        import_of(*many, then=YEAR)
        import_of(1)
        assert archive(stores) == 38
        import_of(*many, mode=mode)
        assert ids(stores, POI) == [*many]
        assert archived(stores) == []

    def test_it_may_leave_and_return_again(self, stores, import_of):
        for _ in range(2):
            import_of(1, 2, then=YEAR)
            import_of(1)
            assert archive(stores) == 1
            assert archived(stores) == [2]

    def test_rows_that_clients_have_written_stay(self, stores, served, pass_time):
        run(stores, NOTED, last(*(record(n, "x", of=NOTED) for n in range(1, 6))))
        put(served, NOTED, 2, "ours")
        put(served, NOTED, 3, "x", note="call them")
        put(served, NOTED, 9, "new")
        pass_time(YEAR)
        run(stores, NOTED, last(record(1, "x", of=NOTED)))
        assert archive(stores, NOTED) == 2
        assert ids(stores, NOTED) == [1, 2, 3, 9]

    def test_local_values_from_before_it_was_declared_stay(
        self, stores, served, pass_time
    ):
        before = replace(NOTED, archive=None)
        run(stores, before, last(record(1, "x", of=NOTED), record(2, "x", of=NOTED)))
        put(served, before, 2, "x", note="call them")
        for _ in range(2):
            run(stores, NOTED, last(record(1, "x", of=NOTED)))
            pass_time(YEAR)
        assert archive(stores, NOTED) == 0

    def test_a_client_brings_a_row_back(self, stores, served, import_of):
        import_of(1, 2, then=YEAR)
        import_of(1)
        archive(stores)
        put(served, POI, 2, "again")
        assert rows(stores, POI)[-1] == (2, "again")
        assert archived(stores) == []

    def test_a_row_that_changed_since_it_was_found_stays(
        self, stores, served, import_of
    ):
        import_of(1, 2, 3, 4, then=YEAR)
        import_of(1)
        found = archive_of(stores).preview(POI)
        assert found.cut is not None
        keys = stores.archive.expired(POI, found.cut, after=None, limit=9)
        assert keys == [(2,), (3,), (4,)]

        put(served, POI, 2, "ours")
        import_of(3, mode=Mode.FULL)

        assert stores.archive.move(POI, found.cut, keys) == 1
        assert ids(stores, POI) == [1, 2, 3]

    def test_more_than_one_batch_moves(self, stores, import_of):
        import_of(*range(ROW_BATCH + 3), then=YEAR)
        import_of(1)
        assert archive(stores) == ROW_BATCH + 2
        assert ids(stores, POI) == [1]

    def test_a_shift_archives_as_well(self, stores, import_of):
        import_of(1, 2, then=YEAR)
        import_of(1)
        assert archive_of(stores).run_shift(POI) is None
        assert archived(stores) == [2]

    def test_a_drop_that_is_too_large_is_refused(self, stores, import_of, pass_time):
        import_of(*range(10), then=YEAR)
        import_of(*range(7))
        careful = replace(POI, missing=Missing(max_drop=0.2))
        report = archive_of(stores)(careful)
        assert report.rows == 0
        assert report.note == (
            "3 rows were not archived: 30.0% of 10 is more than missing.max_drop = 0.2"
        )
        assert archive_of(stores)(replace(POI, missing=Missing(max_drop=0.3))).rows == 3

    def test_a_shift_fails_where_rows_have_to_stay(self, stores, import_of):
        import_of(*range(10), then=YEAR)
        import_of(*range(7))
        careful = replace(POI, missing=Missing(max_drop=0.2))
        with pytest.raises(Conflict, match="3 rows were not archived"):
            archive_of(stores).run_shift(careful)

    def test_the_archive_is_read_like_its_dataset(self, stores, served, import_of):
        import_of(*range(1, 9), then=YEAR)
        import_of(1)
        archive(stores)
        query, _ = read_query(POI, [("archived", "true"), ("id", "gt.3")])
        page = served.reads.page(query)
        assert [json.loads(row)["id"] for row in page.rows] == [4, 5, 6, 7, 8]
        assert served.reads.count(query, CountKind.EXACT).value == 5
        assert served.reads.one(POI.archived, (4,), POI.fields) is not None
        assert served.reads.one(POI.archived, (1,), POI.fields) is None

    def test_bad_rows_without_a_key_could_be_the_missing_ones(
        self, stores, import_of, pass_time
    ):
        import_of(1, 2, then=YEAR)
        run(stores, POI, last(record(1), rejections=[rejection()]))
        note = archive_of(stores)(POI).note
        assert note is not None
        assert "have no readable key" in note
        assert ids(stores, POI) == [1, 2]

    def test_earlier_sightings_are_forgotten(self, stores, import_of):
        for _ in range(3):
            import_of(1, 2, then=YEAR)
        import_of(1)
        archive(stores)
        assert len(stores.archive.sightings(POI)) == 2

    def test_a_composed_key_keeps_its_values(self, stores, served, pass_time):
        at = stores.jobs.now()
        gone = record(at + A_MOMENT, 2, "b", of=DATED)
        stays = record(at, 1, "a", of=DATED)
        run(stores, DATED, last(stays, gone))
        pass_time(YEAR)
        run(stores, DATED, last(stays))
        assert archive(stores, DATED) == 1
        assert rows(stores, DATED.archived) == [gone.values]
        run(stores, DATED, last(stays, gone))
        assert [kind for kind, _ in kinds(served, DATED)][-2:] == ["deleted", "created"]
        assert rows(stores, DATED.archived) == []

    def test_a_partition_is_no_obstacle(self, stores, pass_time):
        of = replace(POI, partition="title", filter=("title",))
        run(stores, of, last(record(1, "a"), record(2, "b")))
        pass_time(YEAR)
        run(stores, of, last(record(1, "a")))
        assert archive(stores, of) == 1
        assert rows(stores, of.archived) == [(2, "b")]
        run(stores, of, last(record(1, "a"), record(2, "c")))
        assert rows(stores, of) == [(1, "a"), (2, "c")]
        assert rows(stores, of.archived) == []

    def test_it_can_be_declared_later(self, stores):
        plain = replace(POI, archive=None)
        stores.schema.ensure_table(plain)
        assert stores.schema.pending_table_changes(POI) == [
            "add column _edited_at to poi",
            "create table poi:archive",
        ]
        stores.schema.ensure_table(POI)
        assert stores.schema.pending_table_changes(POI) == []

    def test_fields_are_added_to_the_archive(self, stores, import_of):
        import_of(1, 2, then=YEAR)
        import_of(1)
        archive(stores)
        wider = replace(POI, fields=(*POI.fields, int_field("points")))
        stores.schema.ensure_table(wider)
        assert rows(stores, wider.archived) == [(2, "title 2", None)]

    def test_a_drop_includes_the_archive(self, stores, import_of):
        import_of(1, 2, then=YEAR)
        import_of(1)
        archive(stores)
        list(stores.schema.datasets.drop(POI.name))
        assert stores.archive.sightings(POI) == []
        import_of(1)
        assert archived(stores) == []
        assert [each.import_id for each in stores.archive.sightings(POI)] != []

    def test_a_conversion_includes_the_archive(self, stores, import_of):
        import_of(1, 2, then=YEAR)
        import_of(1)
        archive(stores)
        as_text = text_field("id", required=True)
        other = replace(POI, fields=(as_text, *POI.fields[1:]))
        assert stores.schema.datasets.retype(other).rows == 2
        stores.schema.ensure_table(other)
        assert rows(stores, other) == [("1", "title 1")]
        assert rows(stores, other.archived) == [("2", "title 2")]

    def test_values_of_the_archive_are_not_lost(self, stores, pass_time):
        run(stores, POI, last(record(1, "7"), record(2, "two")))
        pass_time(YEAR)
        run(stores, POI, last(record(1, "7")))
        archive(stores)
        other = replace(POI, fields=(POI.fields[0], int_field("title")))
        assert stores.schema.datasets.retype(other).lost == 1
        assert rows(stores, POI) == [(1, "7")]
        assert rows(stores, POI.archived) == [(2, "two")]

    def test_a_dataset_that_is_not_prepared_has_nothing_to_archive(self, stores):
        assert archive_of(stores).preview(POI).rows == 0
