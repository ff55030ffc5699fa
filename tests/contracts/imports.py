"""What every ledger promises planners and finishers."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from random import Random

import pytest

from penstock.domain.dataset import Dataset, LostFiles, Missing, Tolerance, WhenMissing
from penstock.domain.import_scope import ImportScope
from penstock.domain.jobs import Import, ImportId, ImportStatus, JobStatus, Mode, Shards
from penstock.domain.pages import Counts, Proof
from penstock.domain.sharding.axes import FileAxis, TimeAxis
from penstock.domain.sharding.parts import Slice
from penstock.domain.source import CsvSource
from penstock.errors import LeaseLost, NotFound
from penstock.ports import Stores
from tests.support.builders import (
    BEN,
    HOUR,
    MINUTE,
    NOON,
    SECOND,
    TIMEOUT,
    batch,
    begin,
    claim,
    dataset,
    idle,
    ids,
    int_field,
    job_of,
    jobs_of,
    last,
    open_import,
    plan,
    record,
    rejection,
    repeat,
    run,
    text_field,
)

POI = dataset()
MARKED = dataset(missing=Missing(do=WhenMissing.MARK, max_drop=0.5))
LIST = dataset("list", source=CsvSource(files=("list.csv",)), axes=(FileAxis(),))
MARKED_ALL = dataset(missing=Missing(do=WhenMissing.MARK, max_drop=1))


FILES = replace(LIST, missing=MARKED_ALL.missing, max_duplicates=1)


def import_files(
    stores: Stores,
    of: Dataset,
    files: Mapping[str, Sequence[int]],
    *,
    accepts: bool = False,
    mode: Mode = Mode.FULL,
) -> Import:
    """Import files that hold these keys, each in one page."""
    stores.schema.ensure_table(of)
    begun, _ = stores.imports.begin(
        of, ImportScope(mode=mode, accept_lost_files=accepts), declaration="d1"
    )
    parts = [
        Slice(number=number, file=name, size=9, fingerprint="f", start=0, end=9, line=1)
        for number, name in enumerate(sorted(files))
    ]
    open_import(stores, begun.id, [f"file:{part.text}" for part in parts])
    for part in parts:
        page = last(*map(record, files[part.file]))
        lease = claim(stores, of)
        stores.ledger.commit_page(of, lease, replace(page, rank=part.rank(5)))
    ended = stores.imports.close(of, begun.id, failed=None)
    assert ended is not None
    return ended


class ImportsContract:
    """Subclasses bring `stores` and `pass_time`."""

    # beginning

    def test_a_new_import_is_being_planned(self, stores: Stores):
        stores.schema.ensure_table(POI)

        begun, resumed = stores.imports.begin(
            POI,
            ImportScope(mode=Mode.BACKFILL, since=NOON, until=NOON + HOUR),
            declaration="d1",
        )

        assert not resumed
        assert (begun.dataset, begun.mode) == ("poi", Mode.BACKFILL)
        assert (begun.status, begun.declaration) == (ImportStatus.PLANNING, "d1")
        assert (begun.since, begun.until) == (NOON, NOON + HOUR)
        assert (begun.proven, begun.note, begun.finished_at) == (False, None, None)
        assert begun.scan_started_at is None

    def test_an_import_without_end_ends_at_the_time_of_the_database(
        self, stores: Stores, pass_time
    ):
        stores.schema.ensure_table(POI)
        first = begin(stores, POI, Mode.FULL)
        pass_time(HOUR)

        second = begin(stores, POI, Mode.DELTA)

        assert second.until == second.created_at
        assert second.until - first.until == HOUR

    def test_an_unfinished_import_of_the_same_kind_is_resumed(
        self, stores: Stores, pass_time
    ):
        stores.schema.ensure_table(POI)
        begun = begin(stores, POI)
        pass_time(MINUTE)

        found, resumed = stores.imports.begin(
            POI,
            ImportScope(mode=Mode.FULL, since=NOON, until=NOON),
            declaration="another",
        )

        assert resumed
        assert found == begun

    def test_a_running_import_is_resumed(self, stores: Stores):
        import_id = plan(stores, POI)

        found, resumed = stores.imports.begin(
            POI, ImportScope(mode=Mode.FULL), declaration="d1"
        )

        assert (found.id, found.status, resumed) == (
            import_id,
            ImportStatus.RUNNING,
            True,
        )

    def test_another_mode_or_dataset_begins_another_import(self, stores: Stores):
        stores.schema.ensure_table(POI)
        begun = [
            begin(stores, POI, Mode.FULL),
            begin(stores, POI, Mode.DELTA),
            begin(stores, dataset("shops"), Mode.FULL),
        ]

        assert len({each.id for each in begun}) == 3

    def test_a_finished_import_is_not_resumed(self, stores: Stores):
        first = run(stores, POI, last())

        assert begin(stores, POI).id > first.id

    # looking

    def test_an_import_that_does_not_exist_is_not_found(self, stores: Stores):
        with pytest.raises(NotFound):
            stores.imports.get(ImportId(404))

    def test_an_import_tells_the_states_of_its_jobs(self, stores: Stores):
        import_id = plan(stores, POI, "p", "l", "d", "f", "s")
        leases = [claim(stores, POI) for _ in range(5)]
        stores.ledger.release(leases[0])
        stores.ledger.commit_page(POI, leases[2], last())
        stores.ledger.fail(leases[3], TIMEOUT)
        stores.ledger.split(leases[4], ["s1", "s2"])

        _, shards = stores.imports.get(import_id)

        assert shards == Shards(total=7, pending=3, leased=1, done=1, failed=1, split=1)
        assert shards.open == 4

    def test_the_newest_imports_come_first(self, stores: Stores):
        first = plan(stores, POI, mode=Mode.FULL)
        second = plan(stores, dataset("shops"))
        third = plan(stores, POI, mode=Mode.DELTA)

        def recent(name, limit=9):
            found = stores.imports.recent(dataset=name, limit=limit)
            return [each.id for each, _ in found]

        assert recent(None) == [third, second, first]
        assert recent(None, limit=2) == [third, second]
        assert recent("poi") == [third, first]
        assert stores.imports.recent(dataset="poi", limit=1) == [
            stores.imports.get(third)
        ]

    def test_imports_are_found_by_their_state_and_page_by_page(self, stores: Stores):
        first = plan(stores, POI, mode=Mode.FULL)
        second = plan(stores, dataset("shops"))
        third = plan(stores, POI, mode=Mode.DELTA)
        stores.imports.cancel(second, reason="enough")

        def found(**request):
            return [each.id for each, _ in stores.imports.recent(limit=9, **request)]

        assert found(status=ImportStatus.RUNNING) == [third, first]
        assert found(status=ImportStatus.CANCELLED) == [second]
        assert found(before=third) == [second, first]
        assert found(before=third, status=ImportStatus.RUNNING, dataset="poi") == [
            first
        ]
        assert found(before=first) == []

    def test_each_listed_import_is_reported_with_its_own_jobs(self, stores: Stores):
        first = plan(stores, POI, "a", "b", mode=Mode.FULL)
        stores.ledger.fail(claim(stores, POI), TIMEOUT)
        second = begin(stores, dataset("shops")).id
        third = plan(stores, dataset("towns"), *"abc")

        result = {each.id: shards for each, shards in stores.imports.recent(limit=9)}

        assert result == {
            first: Shards(total=2, failed=1, pending=1),
            second: Shards(),
            third: Shards(total=3, pending=3),
        }

    def test_the_newest_import_is_one_that_was_not_cancelled(self, stores: Stores):
        assert stores.imports.newest("poi") is None
        first = plan(stores, POI, mode=Mode.FULL)
        plan(stores, dataset("shops"))
        cancelled = plan(stores, POI, mode=Mode.DELTA)
        assert stores.imports.newest("poi") == stores.imports.peek(cancelled)

        stores.imports.cancel(cancelled, reason="enough")

        assert stores.imports.newest("poi") == stores.imports.peek(first)

    # closing

    def test_an_import_with_an_open_job_is_not_closed(self, stores: Stores):
        import_id = plan(stores, POI, "a", "b")
        stores.ledger.commit_page(POI, claim(stores, POI), last())
        assert stores.imports.close(POI, import_id, failed=None) is None

        claim(stores, POI)

        assert stores.imports.close(POI, import_id, failed=None) is None
        assert stores.imports.get(import_id)[0].status is ImportStatus.RUNNING

    def test_an_import_being_planned_is_not_closed(self, stores: Stores):
        stores.schema.ensure_table(POI)
        import_id = begin(stores, POI).id

        assert stores.imports.close(POI, import_id, failed=None) is None

    def test_an_import_is_done_when_every_job_is_done_or_split(
        self, stores: Stores, pass_time
    ):
        import_id = plan(stores, POI, "a", "b")
        stores.ledger.commit_page(POI, claim(stores, POI), last(record(1)))
        stores.ledger.split(claim(stores, POI), ["b1"])
        stores.ledger.commit_page(POI, claim(stores, POI), last(record(2)))
        pass_time(MINUTE)

        ended = stores.imports.close(POI, import_id, failed=None)

        assert ended == stores.imports.get(import_id)[0]
        assert ended is not None
        assert (ended.status, ended.proven) == (ImportStatus.DONE, True)
        assert ended.finished_at == ended.created_at + MINUTE

    def test_an_import_fails_when_a_job_has_failed(self, stores: Stores):
        import_id = plan(stores, POI, "a", "b")
        stores.ledger.commit_page(POI, claim(stores, POI), last(record(1)))
        stores.ledger.fail(claim(stores, POI), TIMEOUT)

        ended = stores.imports.close(POI, import_id, failed=None)

        assert ended is not None
        assert (ended.status, ended.proven) == (ImportStatus.FAILED, False)
        assert "1 of 2 shards" in str(ended.note)

    def test_an_import_is_closed_once(self, stores: Stores):
        ended = run(stores, POI, last())

        assert stores.imports.close(POI, ended.id, failed=None) is None
        assert stores.imports.close(POI, ended.id, failed="too late") is None
        assert stores.imports.get(ended.id)[0] == ended

    def test_a_reason_fails_an_import_whatever_its_jobs_say(self, stores: Stores):
        import_id = plan(stores, POI, "done", "leased", "pending")
        stores.ledger.commit_page(POI, claim(stores, POI), last(record(1)))
        lease = claim(stores, POI)

        ended = stores.imports.close(POI, import_id, failed="too many bad rows")

        assert ended is not None
        assert (ended.status, ended.proven) == (ImportStatus.FAILED, False)
        assert ended.note == "too many bad rows"
        assert stores.imports.get(import_id)[1] == Shards(total=3, done=1, cancelled=2)
        with pytest.raises(LeaseLost):
            stores.ledger.commit_page(POI, lease, last(record(2)))
        assert ids(stores, POI) == [1]

    @pytest.mark.parametrize(
        ("tolerance", "status"),
        [
            (Tolerance(max=1), ImportStatus.FAILED),
            (Tolerance(max=2), ImportStatus.DONE),
            (Tolerance(max_ratio=0.49), ImportStatus.FAILED),
            (Tolerance(max_ratio=0.5), ImportStatus.DONE),
            (Tolerance(), ImportStatus.DONE),
        ],
    )
    def test_bad_rows_beyond_tolerance_fail_the_import(
        self, stores: Stores, tolerance, status
    ):
        tolerant = replace(POI, bad=tolerance)
        bad = [rejection(0, key=[8]), rejection(1, key=[9])]

        ended = run(stores, tolerant, last(record(1), record(2), rejections=bad))

        assert (ended.status, ended.proven) == (status, status is ImportStatus.DONE)
        assert bool(ended.note) is not ended.proven

    # cancelling

    def test_cancelling_ends_an_import_and_its_open_jobs(self, stores: Stores):
        import_id = plan(stores, POI, "done", "leased", "pending")
        stores.ledger.commit_page(POI, claim(stores, POI), last())
        lease = claim(stores, POI)

        ended = stores.imports.cancel(import_id, reason="no longer wanted")

        assert (ended.status, ended.note) == (
            ImportStatus.CANCELLED,
            "no longer wanted",
        )
        assert stores.imports.get(import_id) == (
            ended,
            Shards(total=3, done=1, cancelled=2),
        )
        assert job_of(stores, lease).lease_owner is None
        assert idle(stores, POI)

    def test_cancelling_what_is_being_planned_leaves_alone_what_runs(
        self, stores: Stores
    ):
        """Whoever could not plan it may have been too late."""
        stores.schema.ensure_table(POI)
        begun = begin(stores, POI)
        only = ImportStatus.PLANNING
        open_import(stores, begun.id, ["a"])

        known = stores.imports.cancel(begun.id, reason="no files", only=only)

        assert known.status is ImportStatus.RUNNING
        assert stores.imports.get(begun.id)[1].pending == 1
        stores.imports.cancel(begun.id, reason="enough")
        other = begin(stores, POI)
        known = stores.imports.cancel(other.id, reason="no files", only=only)
        assert (known.status, known.note) == (ImportStatus.CANCELLED, "no files")

    def test_a_worker_of_a_cancelled_import_is_refused(self, stores: Stores):
        import_id = plan(stores, POI)
        lease = claim(stores, POI)
        stores.imports.cancel(import_id, reason="no")

        with pytest.raises(LeaseLost):
            stores.ledger.commit_page(POI, lease, batch(record(1)))

        assert ids(stores, POI) == []
        assert job_of(stores, lease).status is JobStatus.CANCELLED

    def test_a_finished_import_stays_as_it_ended(self, stores: Stores):
        ended = run(stores, POI, last())

        assert stores.imports.cancel(ended.id, reason="too late") == ended

    def test_cancelling_a_failed_import_gives_it_up(self, stores: Stores):
        import_id = plan(stores, POI, "a", "b")
        lost = claim(stores, POI)
        stores.ledger.fail(lost, TIMEOUT)
        stores.imports.close(POI, import_id, failed="too many bad rows")
        assert [each.failed_jobs for each in stores.jobs.problems()] == [1]

        ended = stores.imports.cancel(import_id, reason="not worth it")

        assert ended.status is ImportStatus.CANCELLED
        assert str(ended.note).endswith("too many bad rows; not worth it")
        assert stores.jobs.problems() == []
        assert not stores.jobs.retry(lost.job)

    def test_an_import_that_does_not_exist_is_not_cancelled(self, stores: Stores):
        with pytest.raises(NotFound):
            stores.imports.cancel(ImportId(404), reason="no")

    def test_a_cancelled_import_makes_room_for_another(self, stores: Stores):
        first = plan(stores, POI)
        stores.imports.cancel(first, reason="no")

        assert begin(stores, POI).id != first

    # the watermark

    def test_there_is_no_watermark_before_the_first_proven_import(self, stores: Stores):
        assert stores.records.watermark(POI) is None
        plan(stores, POI)
        stores.ledger.fail(claim(stores, POI), TIMEOUT)
        stores.jobs.sweep()

        assert stores.records.watermark(POI) is None

    def test_the_watermark_is_the_first_time_the_provider_reported(
        self, stores: Stores
    ):
        run(
            stores,
            POI,
            batch(record(1), provider_time=NOON + 2 * SECOND),
            batch(record(2), provider_time=NOON + SECOND),
            last(provider_time=NOON + 3 * SECOND),
        )

        assert stores.records.watermark(POI) == NOON + SECOND

    def test_a_provider_without_a_clock_leaves_the_start_of_the_import(
        self, stores: Stores, pass_time
    ):
        import_id = plan(stores, POI)
        pass_time(HOUR)
        stores.ledger.commit_page(POI, claim(stores, POI), last())

        ended = stores.imports.close(POI, import_id, failed=None)

        assert ended is not None
        assert stores.records.watermark(POI) == ended.created_at

    def test_a_delta_moves_the_watermark_on(self, stores: Stores):
        run(stores, POI, last(provider_time=NOON))

        run(stores, POI, last(provider_time=NOON + HOUR), mode=Mode.DELTA)

        assert stores.records.watermark(POI) == NOON + HOUR

    def test_a_backfill_does_not_move_the_watermark(self, stores: Stores):
        run(stores, POI, last(provider_time=NOON))

        run(stores, POI, last(provider_time=NOON + HOUR), mode=Mode.BACKFILL)

        assert stores.records.watermark(POI) == NOON

    def test_a_delta_never_moves_the_watermark_back(self, stores: Stores):
        run(stores, POI, last(provider_time=NOON))

        run(stores, POI, last(provider_time=NOON - HOUR), mode=Mode.DELTA)

        assert stores.records.watermark(POI) == NOON

    def test_a_full_import_mends_a_watermark_that_was_too_late(self, stores: Stores):
        run(stores, POI, last(provider_time=NOON + HOUR))

        run(stores, POI, last(provider_time=NOON))

        assert stores.records.watermark(POI) == NOON

    def test_a_provider_whose_clock_runs_far_ahead_is_not_believed(
        self, stores: Stores
    ):
        ended = run(stores, POI, last(provider_time=NOON + 1000 * HOUR))

        assert stores.records.watermark(POI) == ended.created_at + 24 * HOUR

    def test_an_unproven_import_does_not_move_the_watermark(self, stores: Stores):
        run(stores, POI, last(provider_time=NOON))
        import_id = plan(stores, POI, "a", "b")
        late = last(provider_time=NOON + HOUR)
        stores.ledger.commit_page(POI, claim(stores, POI), late)
        stores.ledger.fail(claim(stores, POI), TIMEOUT)

        stores.imports.close(POI, import_id, failed=None)

        assert stores.records.watermark(POI) == NOON

    def test_the_watermark_is_not_beyond_what_the_time_windows_covered(
        self, stores: Stores
    ):
        axis = TimeAxis(name="window", start=NOON - 9 * HOUR, step=HOUR)
        windowed = replace(POI, axes=(axis,))
        stores.schema.ensure_table(windowed)
        begun = begin(stores, windowed)
        open_import(stores, begun.id, ["window:…"])
        page = last(provider_time=begun.until + MINUTE)
        stores.ledger.commit_page(windowed, claim(stores, windowed), page)

        stores.imports.close(windowed, begun.id, failed=None)

        assert stores.records.watermark(windowed) == begun.until

    # missing rows

    def test_rows_missing_from_a_proven_full_import_are_marked(self, stores: Stores):
        run(stores, MARKED, last(record(1), record(2), record(3)))

        ended = run(stores, MARKED, last(record(1), record(2, "changed")))

        assert ids(stores, MARKED) == [1, 2]
        assert ended.counts.deleted == 1
        assert ended.note is None

    def test_missing_rows_are_retained_unless_declared_otherwise(self, stores: Stores):
        run(stores, POI, last(record(1), record(2)))

        ended = run(stores, POI, last(record(1)))

        assert ids(stores, POI) == [1, 2]
        assert ended.counts.deleted == 0

    @pytest.mark.parametrize("mode", [Mode.DELTA, Mode.BACKFILL])
    def test_nothing_is_missing_from_a_part(self, stores: Stores, mode):
        run(stores, MARKED, last(record(1), record(2)))

        run(stores, MARKED, last(record(1)), mode=mode)

        assert ids(stores, MARKED) == [1, 2]

    def test_nothing_is_missing_from_one_file_of_many(self, stores: Stores):
        marked = replace(LIST, missing=MARKED.missing)
        run(stores, marked, last(record(1), record(2)))

        run(stores, marked, last(record(1)), mode=Mode.BACKFILL)

        assert ids(stores, marked) == [1, 2]

    @pytest.mark.parametrize("of", [POI, MARKED, LIST], ids=["api", "marked", "file"])
    def test_too_many_rows_that_overwrite_each_other_fail_it(
        self, stores: Stores, of: Dataset
    ):
        pages = [
            replace(batch(*(record(key, title) for key in range(5))), rank=rank)
            for rank, title in enumerate("abc", start=1)
        ]
        pages.append(replace(last(record(8), record(9)), rank=4))

        ended = run(stores, of, *pages)

        assert (ended.status, ended.proven) == (ImportStatus.FAILED, False)
        assert (
            "10 of 17 rows (58.8%) lost to another row of their key, more than "
            "max_duplicates = 0.1: the key (id) is not unique, as in '0', '1', '2'; "
        ) in str(ended.note)

    @pytest.mark.parametrize("mode", [Mode.DELTA, Mode.BACKFILL])
    def test_changes_may_overwrite_each_other(self, stores: Stores, mode: Mode):
        ended = run(stores, POI, batch(record(1, "a")), last(record(1)), mode=mode)

        assert ended.proven
        assert ended.counts.duplicates == 1

    def test_as_many_rows_as_declared_may_overwrite_each_other(self, stores: Stores):
        a_log = replace(POI, max_duplicates=0.5)

        ended = run(stores, a_log, batch(record(1, "a")), last(record(1, "b")))

        assert ended.proven

    @pytest.mark.parametrize("at_its_start", [True, False])
    def test_who_begins_or_resumes_it_may_accept_them(
        self, stores: Stores, *, at_its_start: bool
    ):
        stores.schema.ensure_table(POI)
        first, resumed = (
            stores.imports.begin(
                POI,
                ImportScope(mode=Mode.FULL, accept_duplicates=accepts),
                declaration="d1",
            )[0]
            for accepts in (at_its_start, not at_its_start)
        )
        assert first.accepts_duplicates is at_its_start
        assert (resumed.id, resumed.accepts_duplicates) == (first.id, True)

        ended = run(stores, POI, batch(record(1, "a")), last(record(1, "b")))

        assert (ended.id, ended.proven, ended.accepts_duplicates) == (
            first.id,
            True,
            True,
        )
        assert ended.counts.duplicates == 1

    @pytest.mark.parametrize("of", [POI, LIST], ids=["api", "file"])
    def test_keys_that_one_page_repeats_are_named(self, stores: Stores, of: Dataset):
        page = replace(last(record(1, "b")), seen=9, repeated_keys=[(1,)], rank=1)

        ended = run(stores, of, page)

        assert not ended.proven
        assert "not unique, as in '1'; " in str(ended.note)

    def test_rows_whose_file_was_not_read_are_not_marked(self, stores: Stores):
        """By a model that knows of each row in which file it was seen last."""
        random, seen, live = Random(7), dict[int, str](), set[int]()
        for _ in range(12):
            files = {
                name: random.sample(range(30), random.randrange(12))
                for name in random.sample(["a.csv", "b.csv", "c.csv"], 2)
            }
            accepts = random.random() < 0.2
            come = {key for keys in files.values() for key in keys}
            gone = {key for key in live - come if accepts or seen[key] in files}
            lost = {seen[key] for key in live - come - gone}

            ended = import_files(stores, FILES, files, accepts=accepts)

            live = live - gone | come
            for name in sorted(files):
                seen.update(dict.fromkeys(files[name], name))
            assert ids(stores, FILES) == sorted(live)
            assert ended.proven
            assert ended.counts.deleted == len(gone)
            assert (ended.note is None) is (not lost)
            assert all(name in str(ended.note) for name in lost)

    def test_a_file_that_was_lost_long_ago_stays_lost(self, stores: Stores):
        import_files(stores, FILES, {"a.csv": [1, 2], "b.csv": [3]})
        for _ in range(3):
            held_back = import_files(stores, FILES, {"a.csv": [1, 2]})
            assert "last seen in b.csv, which this import did not" in str(
                held_back.note
            )

        ended = import_files(stores, FILES, {"a.csv": [1, 2], "b.csv": []})

        assert ids(stores, FILES) == [1, 2]
        assert ended.note is None

    def test_where_files_are_lost_rows_from_elsewhere_are_not_marked_either(
        self, stores: Stores
    ):
        """They may have stood in the lost file, too."""
        import_files(stores, FILES, {"a.csv": [1], "b.csv": [2, 3]})
        import_files(stores, FILES, {"corrections.csv": [3]}, mode=Mode.BACKFILL)

        import_files(stores, FILES, {"a.csv": [1]})
        assert ids(stores, FILES) == [1, 2, 3]
        import_files(stores, FILES, {"a.csv": [1], "b.csv": [2]})
        assert ids(stores, FILES) == [1, 2]

    def test_who_goes_on_with_an_import_may_accept_lost_files(self, stores: Stores):
        import_files(stores, FILES, {"a.csv": [1], "b.csv": [2]})
        begun = begin(stores, FILES)

        ended = import_files(stores, FILES, {"a.csv": [1]}, accepts=True)

        assert (ended.id, ended.note, ids(stores, FILES)) == (begun.id, None, [1])

    def test_an_import_accepts_lost_files_as_was_declared_when_it_began(
        self, stores: Stores
    ):
        accepting = replace(
            FILES, missing=replace(FILES.missing, lost_files=LostFiles.ACCEPT)
        )
        import_files(stores, FILES, {"a.csv": [1], "b.csv": [2]})
        begin(stores, accepting)

        # whoever ends it has an older declaration
        import_files(stores, FILES, {"a.csv": [1]})

        assert ids(stores, FILES) == [1]

    def test_rows_of_a_provider_were_in_no_file(self, stores: Stores):
        run(stores, FILES, replace(last(record(1), record(2)), rank=1))

        import_files(stores, FILES, {"a.csv": [1]})

        assert ids(stores, FILES) == [1]

    def test_nothing_is_marked_by_an_unproven_import(self, stores: Stores):
        run(stores, MARKED, last(record(1), record(2), record(3)))
        import_id = plan(stores, MARKED, "a", "b")
        stores.ledger.commit_page(
            MARKED, claim(stores, MARKED), last(record(1), record(2))
        )
        stores.ledger.fail(claim(stores, MARKED), TIMEOUT)

        stores.imports.close(MARKED, import_id, failed=None)

        assert ids(stores, MARKED) == [1, 2, 3]

    def test_too_large_a_drop_is_retained_and_reported(self, stores: Stores):
        run(stores, MARKED, last(*map(record, range(4))))

        ended = run(stores, MARKED, last(record(0)))

        assert ids(stores, MARKED) == [0, 1, 2, 3]
        assert (ended.status, ended.proven) == (ImportStatus.DONE, True)
        assert ended.counts.deleted == 0
        assert "75.0% of 4" in str(ended.note)

    def test_the_drop_may_be_as_large_as_declared(self, stores: Stores):
        run(stores, MARKED, last(*map(record, range(4))))

        run(stores, MARKED, last(record(0), record(1)))

        assert ids(stores, MARKED) == [0, 1]

    def test_rows_are_retained_when_a_bad_row_may_be_any_of_them(self, stores: Stores):
        run(stores, MARKED, last(record(1), record(2), record(3)))

        ended = run(
            stores, MARKED, last(record(1), record(2), rejections=[rejection()])
        )

        assert ids(stores, MARKED) == [1, 2, 3]
        assert "no readable key" in str(ended.note)

    def test_a_bad_row_with_a_key_is_not_missing(self, stores: Stores):
        run(stores, MARKED, last(record(1), record(2), record(3)))

        ended = run(stores, MARKED, last(record(1), rejections=[rejection(key=[2])]))

        assert ids(stores, MARKED) == [1, 2]
        assert ended.counts.deleted == 1

    def test_an_older_version_is_not_missing(self, stores: Stores):
        versioned = replace(
            MARKED, fields=(int_field("id"), int_field("v")), version="v"
        )
        run(stores, versioned, last(record(1, 5, of=versioned)))

        run(stores, versioned, last(record(1, 4, of=versioned)))

        assert list(stores.records.rows(versioned)) == [(1, 5)]

    def test_missing_rows_with_a_key_of_two_fields_are_marked(self, stores: Stores):
        pairs = replace(
            MARKED,
            fields=(text_field("country"), int_field("number"), text_field("title")),
            key=("country", "number"),
        )
        both = [record("DE", n, "x", of=pairs) for n in (1, 2, 3)]
        run(stores, pairs, last(*both))

        run(stores, pairs, last(both[0], rejections=[rejection(key=["DE", 2])]))

        assert [row[:2] for row in stores.records.rows(pairs)] == [
            ("DE", 1),
            ("DE", 2),
        ]

    def test_a_marked_row_that_comes_back_is_live_again(self, stores: Stores):
        run(stores, MARKED, last(record(1), record(2)))
        run(stores, MARKED, last(record(1)))

        ended = run(stores, MARKED, last(record(1), record(2)))

        assert ids(stores, MARKED) == [1, 2]
        assert (ended.counts.inserted, ended.counts.unchanged) == (1, 1)

    def test_a_row_written_by_a_slower_import_is_not_missing(
        self, stores: Stores, pass_time
    ):
        run(stores, MARKED_ALL, last(record(1), record(2)))
        plan(stores, MARKED_ALL, "changes", mode=Mode.DELTA)
        delta = claim(stores, MARKED_ALL)
        pass_time(SECOND)
        import_id = plan(stores, MARKED_ALL, mode=Mode.FULL)
        full = claim(stores, MARKED_ALL, BEN)
        pass_time(SECOND)
        stores.ledger.commit_page(MARKED_ALL, full, last(record(1), record(2)))

        # the older import writes a row that the full one has seen, and one that came
        # too late for it
        stores.ledger.commit_page(MARKED_ALL, delta, last(record(2, "new"), record(3)))
        stores.imports.close(MARKED_ALL, import_id, failed=None)

        assert ids(stores, MARKED_ALL) == [1, 2, 3]

    def test_a_proven_full_import_resolves_older_rejections(self, stores: Stores):
        run(stores, POI, last(record(1), rejections=[rejection(0, key=[2])]))

        run(stores, POI, last(record(1), rejections=[rejection(5, key=[3])]))

        (stored,) = stores.records.quarantine(POI, after=0, limit=9)
        assert stored.rejection.position == 5

    def test_a_delta_resolves_no_rejection(self, stores: Stores):
        run(stores, POI, last(record(1), rejections=[rejection(0, key=[2])]))

        run(stores, POI, last(), mode=Mode.DELTA)

        assert len(stores.records.quarantine(POI, after=0, limit=9)) == 1

    def test_provider_time_may_lie_before_the_import(self, stores: Stores):
        ended = run(stores, POI, last(provider_time=NOON - timedelta(days=400)))

        assert ended.scan_started_at == NOON - timedelta(days=400)

    # files that have not changed

    def test_the_last_done_import_is_true_until_a_row_changes(self, stores: Stores):
        stores.schema.ensure_table(LIST)
        assert stores.imports.last_reusable(LIST, Mode.FULL) is None
        done = run(stores, LIST, last(record(1), record(2)))

        still_true = stores.imports.last_reusable(LIST, Mode.FULL)

        assert still_true is not None
        assert still_true.id == done.id
        assert stores.imports.last_reusable(LIST, Mode.DELTA) is None
        plan(stores, LIST)
        page = replace(batch(record(2, "changed")), rank=1)
        stores.ledger.commit_page(LIST, claim(stores, LIST), page)
        assert stores.imports.last_reusable(LIST, Mode.FULL) is None

    def test_a_failed_import_that_changed_nothing_makes_nothing_untrue(
        self, stores: Stores
    ):
        run(stores, LIST, last(record(1)))
        import_id = plan(stores, LIST)
        stores.imports.close(LIST, import_id, failed="somebody said so")

        assert stores.imports.last_reusable(LIST, Mode.FULL) is not None

    @pytest.mark.parametrize(
        "terms",
        [
            {"missing": Missing(do=WhenMissing.MARK)},
            {"bad": Tolerance(max=3)},
            {"version": "title"},
        ],
    )
    def test_under_other_terms_nothing_is_known(self, stores: Stores, terms):
        run(stores, LIST, last(record(1)))

        assert stores.imports.last_reusable(replace(LIST, **terms), Mode.FULL) is None

    def test_an_import_that_retained_something_back_is_made_again(self, stores: Stores):
        listed = replace(LIST, missing=Missing(do=WhenMissing.MARK, max_drop=0.1))
        run(stores, listed, last(record(1), record(2)))
        held_back = run(stores, listed, replace(last(record(1)), rank=1))

        assert held_back.note is not None
        assert stores.imports.last_reusable(listed, Mode.FULL) is None

    def test_an_import_of_unchanged_files_ends_as_the_last_one_did(
        self, stores: Stores
    ):
        of = plan(stores, LIST, "a", "b")
        pages = [
            last(record(1), record(2), rejections=[rejection()]),
            last(record(3), seen=3, dropped=2),
        ]
        for page in pages:
            stores.ledger.commit_page(LIST, claim(stores, LIST), page)
        stores.imports.close(LIST, of, failed=None)
        again = begin(stores, LIST, Mode.FULL)

        repeat(stores, LIST, again.id, of)

        ended, shards = stores.imports.get(again.id)
        assert (ended.status, ended.proven) == (ImportStatus.DONE, True)
        assert f"since import {of}" in (ended.note or "")
        assert (shards.total, shards.done) == (2, 2)
        assert ended.counts == Counts(seen=6, unchanged=3, quarantined=1, dropped=2)
        assert list(stores.imports.shard_keys(again.id)) == ["a", "b"]
        assert {job.proof for job in jobs_of(stores, again.id)} == {Proof.UNCHANGED}
        assert stores.imports.last_reusable(LIST, Mode.FULL) is not None
        # nothing is left to be done
        assert idle(stores, LIST)
