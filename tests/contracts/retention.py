"""What every store promises of the removal of old entries."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any

import pytest

from penstock.domain.dataset import Dataset
from penstock.domain.history import HistoryPosition
from penstock.domain.jobs import Import, ImportId, ImportStatus, Mode
from penstock.domain.retention import KeepReason, RetentionPolicy
from penstock.domain.rollups import Sample, Subject, SubjectKind
from penstock.errors import NotFound
from penstock.flow.apply_retention import NOTICE, ApplyRetention
from penstock.flow.audit import Audit
from penstock.flow.flush_samples import FoldSamples
from penstock.ports import Stores
from penstock.ports.record_access import ApiStores
from tests.contracts.imports import FILES, import_files
from tests.contracts.schedules import advanced, declared, fire_request
from tests.contracts.schema import Ask
from tests.contracts.search import find
from tests.support.builders import (
    A_MOMENT,
    ANN,
    HOUR,
    TIMEOUT,
    batch,
    begin,
    claim,
    dataset,
    idle,
    jobs_of,
    known_page,
    last,
    open_import,
    plan,
    record,
    rejection,
    repeat,
    run,
)

POI = dataset()
SHOPS = dataset("shops")
SEARCHED = dataset("searched", search=("title",))
DAY = timedelta(days=1)
POLICY = RetentionPolicy()
SEEDS = range(6)
PAGES = (batch(record(1)), batch(record(2)), last(record(3)))


def retention_of(stores: Stores, **changed: timedelta) -> ApplyRetention:
    return ApplyRetention(
        retention=stores.retention,
        claims=stores.claims,
        rollups=stores.rollups,
        actions=stores.actions,
        jobs=stores.jobs,
        policy=replace(POLICY, **changed),
    )


def exists(stores: Stores, import_id: ImportId) -> bool:
    try:
        stores.imports.peek(import_id)
    except NotFound:
        return False
    return True


def which_stay(import_: Import) -> str:
    """Return which bad rows of an import always stay, as SQL."""
    ended = {ImportStatus.DONE, ImportStatus.CANCELLED}
    return "resolved is null" if import_.status in ended else "true"


def fail(stores: Stores, of: Dataset, mode: Mode = Mode.FULL) -> ImportId:
    import_id = plan(stores, of, mode=mode)
    lease, _ = stores.ledger.commit_page(
        of, claim(stores, of), batch(record(7), rejections=[rejection(8)])
    )
    stores.ledger.fail(lease, TIMEOUT)
    stores.imports.close(of, import_id, failed=None)
    return import_id


def repeat_files(stores: Stores) -> ImportId | None:
    """Import unchanged files, if the last import allows it."""
    earlier = stores.imports.last_reusable(FILES, Mode.FULL)
    if earlier is None:
        return None
    begun = begin(stores, FILES)
    repeat(stores, FILES, begun.id, earlier.id)
    return begun.id


class DrawnLedger:
    """A ledger of drawn imports, in a drawn order, at drawn times."""

    def __init__(
        self, stores: Stores, pass_time: Callable[[timedelta], None], seed: int
    ) -> None:
        self._stores = stores
        self._random = Random(seed)
        for each in (POI, FILES):
            stores.schema.ensure_table(each)
        for _ in range(18):
            self._random.choice(self.steps)(self)
            pass_time(self._random.choice([0, 1, 10, 20, 60]) * DAY)
        if self._random.random() < 0.5:
            # unfinished, and its first page is stored
            plan(stores, POI)
            stores.ledger.commit_page(POI, claim(stores, POI), batch(record(1)))
            pass_time(self._random.randint(0, 200) * DAY)

    def _rows(self) -> Any:
        return last(*map(record, self._random.sample(range(9), 4)))

    def _import(self) -> None:
        mode = self._random.choice([Mode.FULL, Mode.DELTA])
        pages = [batch(record(1)), self._rows()]
        run(self._stores, POI, *pages, mode=mode)

    def _import_known_page(self) -> None:
        run(self._stores, POI, known_page(record(1)), self._rows())

    def _import_bad_rows(self) -> None:
        bad = rejection(9, key=[self._random.randint(1, 9)])
        mode = self._random.choice([Mode.FULL, Mode.DELTA])
        run(self._stores, POI, last(record(1), rejections=[bad]), mode=mode)

    def _fail(self) -> None:
        fail(self._stores, POI)

    def _cancel(self) -> None:
        cancelled = plan(self._stores, POI, "a", "b")
        self._stores.ledger.commit_page(POI, claim(self._stores, POI), batch(record(1)))
        self._stores.imports.cancel(cancelled, reason="no")

    def _split(self) -> None:
        import_id = plan(self._stores, POI)
        self._stores.ledger.split(claim(self._stores, POI), ["x", "y"])
        for _ in range(2):
            self._stores.ledger.commit_page(
                POI, claim(self._stores, POI), last(record(1))
            )
        self._stores.imports.close(POI, import_id, failed=None)

    def _import_files(self) -> None:
        names = self._random.sample("abc", self._random.randint(1, 3))
        files = {f"{name}.csv": self._random.sample(range(9), 2) for name in names}
        import_files(self._stores, FILES, files)

    def _repeat_files(self) -> None:
        repeat_files(self._stores)

    steps = (
        *(_import, _import_known_page, _import_bad_rows, _fail, _cancel, _split),
        *(_import_files, _import_files, _repeat_files, _repeat_files),
    )


class Observed:
    """What an operator can see of a ledger, and what it stores."""

    def __init__(self, stores: Stores, ask: Ask) -> None:
        self._stores = stores
        self._ask = ask
        self.imports = [found for found, _ in stores.imports.recent(limit=1_000)]

    def audit(self, import_: Import) -> Sequence[object]:
        audit = Audit(imports=self._stores.imports, jobs=self._stores.jobs)
        of = FILES if import_.dataset == FILES.name else POI
        report = audit(of, declaration="d1", wanted=import_.id)
        return (report.findings, report.shards, report.pages)

    def entries(self, import_id: ImportId, *, which: str = "true") -> Sequence[object]:
        """Return what is stored of an import, with these of its bad rows."""
        jobs = f"select id from penstock_job where import_id = {import_id:d}"
        return [
            self._ask(f"{jobs} order by id"),
            self._ask(
                "select job_id, page_seq from penstock_page "
                f"where job_id in ({jobs}) order by 1, 2"
            ),
            self._ask(
                "select id, resolved from penstock_quarantine "
                f"where import_id = {import_id:d} and {which} order by id"
            ),
        ]

    def named_by_rows(self, of: Dataset) -> set[object]:
        found = self._ask(
            f"select distinct _import from {of.name} where _deleted_at is null"
        )
        return {row[0] for row in found}

    def size(self) -> dict[str, object]:
        tables = ("import", "job", "page", "claim", "fire", "change")
        counts = {
            f"{table}s": self._ask(f"select count(*) from penstock_{table}")[0][0]
            for table in tables
        }
        bad_rows = self._ask("select count(*) from penstock_quarantine")[0][0]
        return {**counts, "bad_rows": bad_rows}


class RetentionContract:
    """Subclasses bring `stores`, `served`, `ask` and `pass_time`."""

    # what always stays, whatever the ledger

    @pytest.mark.parametrize("seed", SEEDS)
    def test_what_is_needed_stays_in_any_ledger(
        self, stores: Stores, ask: Ask, pass_time, seed
    ):
        DrawnLedger(stores, pass_time, seed)
        before = Observed(stores, ask)
        audits = {found.id: before.audit(found) for found in before.imports}
        entries = {
            found.id: before.entries(found.id, which=which_stay(found))
            for found in before.imports
        }
        open_rows = ask("select id from penstock_quarantine where resolved is null")
        now = stores.jobs.now()

        retention_of(stores)()

        after = Observed(stores, ask)
        left = {found.id: found for found in after.imports}
        # the audit of every import that is left is the same, with or without its pages
        assert {each: after.audit(left[each]) for each in left} == {
            each: audits[each] for each in left
        }
        newest: dict[tuple[str, Mode], Import] = {}
        for found in before.imports:
            if found.status is ImportStatus.DONE:
                newest.setdefault((found.dataset, found.mode), found)
        for found in before.imports:
            is_old = (
                found.finished_at is not None
                and found.finished_at < now - POLICY.imports
            )
            is_ended = found.status in {ImportStatus.DONE, ImportStatus.CANCELLED}
            if not (is_old and is_ended):
                assert found.id in left
            is_paged = found.finished_at is not None and (
                found.finished_at < now - POLICY.pages
            )
            if not (is_ended and is_paged) or found in newest.values():
                stays = after.entries(found.id, which=which_stay(found))
                assert stays == entries[found.id]
        # lists of files that tell rows of missing files from removed ones
        for found in before.imports:
            if found.dataset == FILES.name and found.id in before.named_by_rows(FILES):
                assert after.entries(found.id)[0] == entries[found.id][0]
        for import_ in newest.values():
            assert self.import_that_read(ask, import_) in left
        rest = ask("select id from penstock_quarantine where resolved is null")
        assert rest == open_rows

    def import_that_read(self, ask: Ask, import_: Import) -> object:
        """Return the import whose pages and bad rows are those of another."""
        found = ask(
            "select max(id) from penstock_import as earlier "
            f"where dataset = '{import_.dataset}' and mode = '{import_.mode}' "
            f"and id <= {import_.id:d} and status = 'done' and not exists ("
            "select 1 from penstock_job "
            "where import_id = earlier.id and proof = 'unchanged')"
        )
        return found[0][0]

    @pytest.mark.parametrize("seed", SEEDS)
    def test_the_preview_is_what_is_removed(
        self, stores: Stores, ask: Ask, pass_time, seed
    ):
        DrawnLedger(stores, pass_time, seed)
        size = Observed(stores, ask).size()
        retention = retention_of(stores)
        preview = retention.preview()
        assert Observed(stores, ask).size() == size

        report = retention()

        assert +report.removed == +preview.removed
        assert report.stays == preview.stays
        left = Observed(stores, ask).size()
        assert left == {
            kind: int(str(count)) - report.removed[kind] for kind, count in size.items()
        }
        assert not +retention().removed

    # which imports

    def test_an_old_import_goes_once_there_is_a_newer_one(
        self, stores: Stores, ask: Ask, pass_time
    ):
        first = run(stores, POI, *PAGES)
        pass_time(2 * POLICY.imports)
        retention = retention_of(stores)
        assert not retention().removed["imports"]
        assert exists(stores, first.id)

        second = run(stores, POI, *PAGES)
        report = retention()

        assert report.removed["imports"] == 1
        assert report.removed["pages"] == len(PAGES)
        assert not exists(stores, first.id)
        # the shard's and the plan's
        assert Observed(stores, ask).size()["jobs"] == 2
        assert stores.imports.newest("poi") == second

    def test_an_import_stays_for_the_time_that_is_set(self, stores: Stores, pass_time):
        first = run(stores, POI, *PAGES)
        run(stores, POI, *PAGES)
        pass_time(DAY)

        retention_of(stores, imports=DAY)()
        assert exists(stores, first.id)

        pass_time(A_MOMENT)
        retention_of(stores, imports=DAY)()
        assert not exists(stores, first.id)

    def test_each_mode_has_a_newest_import(self, stores: Stores, pass_time):
        full = run(stores, POI, *PAGES)
        delta = run(stores, POI, *PAGES, mode=Mode.DELTA)
        pass_time(2 * POLICY.imports)

        retention_of(stores)()

        assert exists(stores, full.id)
        assert exists(stores, delta.id)

    def test_failed_imports_stay_with_their_pages_and_can_be_retried(
        self, stores: Stores, ask: Ask, pass_time
    ):
        failed = fail(stores, POI)
        entries = Observed(stores, ask).entries(failed)
        pass_time(10 * POLICY.quarantine)

        retention_of(stores)()

        assert Observed(stores, ask).entries(failed) == entries
        (job,) = jobs_of(stores, failed)
        assert stores.jobs.retry(job.id)
        assert not idle(stores, POI)

    def test_unchanged_files_refer_to_the_import_that_read_them(
        self, stores: Stores, pass_time
    ):
        read = import_files(stores, FILES, {"a.csv": [1, 2]}).id
        repeats = []
        for _ in range(3):
            pass_time(POLICY.imports)
            repeats.append(repeat_files(stores))
        pass_time(A_MOMENT)

        report = retention_of(stores)()

        assert report.stays[KeepReason.REPEATED] == 1
        stay = [exists(stores, each) for each in (read, *filter(None, repeats))]
        # the first repeat is old, and nothing refers to it
        assert stay == [True, False, False, True]

    def test_rows_of_missing_files_are_recognised_after_the_removal(
        self, stores: Stores, pass_time
    ):
        first = import_files(stores, FILES, {"a.csv": [1], "b.csv": [2, 3]})
        pass_time(2 * POLICY.imports)
        import_files(stores, FILES, {"a.csv": [1]})

        report = retention_of(stores)()

        assert report.stays[KeepReason.ROWS] == 1
        assert exists(stores, first.id)
        again = import_files(stores, FILES, {"a.csv": [1]})
        assert "b.csv" in (again.note or "")
        # the rows are gone: nothing names the file any more
        import_files(stores, FILES, {"a.csv": [1]}, accepts=True)
        assert retention_of(stores)().removed["imports"] == 1

    def test_an_import_stays_as_long_as_its_bad_rows(self, stores: Stores, pass_time):
        run(stores, POI, last(record(1), rejections=[rejection(9)]), mode=Mode.DELTA)
        run(stores, POI, *PAGES, mode=Mode.DELTA)
        pass_time(2 * POLICY.quarantine)

        report = retention_of(stores)()

        assert report.stays[KeepReason.BAD_ROWS] == 1
        assert stores.jobs.problems()[0].bad_rows == 1

    # pages

    def test_pages_go_before_their_import(self, stores: Stores, ask: Ask, pass_time):
        first = run(stores, POI, *PAGES)
        run(stores, POI, *PAGES)
        before = Observed(stores, ask).audit(first)
        pass_time(POLICY.pages + A_MOMENT)

        report = retention_of(stores)()

        assert report.removed["pages"] == len(PAGES)
        assert stores.imports.peek(first.id).pages_removed
        assert Observed(stores, ask).audit(first) == before
        assert Observed(stores, ask).size()["pages"] == len(PAGES)

    def test_an_interrupted_removal_of_pages_is_continued(
        self, stores: Stores, ask: Ask, pass_time
    ):
        first = run(stores, POI, *PAGES)
        run(stores, POI, *PAGES)
        pass_time(POLICY.pages + A_MOMENT)
        # noted, but no page is removed
        removal = stores.retention.remove_pages(first.id)
        next(removal)
        ask(f"update penstock_import set pages_removed = 1 where id = {first.id:d}")
        before = Observed(stores, ask).audit(stores.imports.peek(first.id))

        retention = retention_of(stores)
        assert [*retention.paged_imports()] == [first.id]
        retention()

        assert not [*retention.paged_imports()]
        assert Observed(stores, ask).audit(first) == before

    def test_claims_go_with_pages(self, stores: Stores, pass_time):
        first = run(stores, POI, *PAGES)
        pass_time(POLICY.pages + A_MOMENT)
        second = run(stores, POI, *PAGES)

        retention_of(stores)()

        assert not stores.claims.find(first.id, after=None, limit=9)
        # the plan's and the shard's
        assert len(stores.claims.find(second.id, after=None, limit=9)) == 2

    def test_sums_per_minute_go_after_a_time_of_their_own(
        self, stores: Stores, pass_time
    ):
        sample = Sample(Subject(SubjectKind.DATASET, "poi"), "pages", 1)
        for number in (1, 2):
            stores.rollups.flush("a", number, [sample])
            pass_time(DAY)
        FoldSamples(stores.rollups)()
        retention = retention_of(stores, rollups=DAY + HOUR)

        shown = retention.show().removed["rollups"]
        pass_time(NOTICE)
        retention.run_shift()

        assert shown == 1
        assert retention.preview().removed["rollups"] == 0
        assert stores.rollups.count_expired(age=DAY) == 0

    # fires

    @pytest.mark.parametrize(("pause_after", "stay"), [(None, 1), (3, 3)])
    def test_the_fires_stay_that_count_failures_in_a_row(
        self, stores: Stores, pass_time, pause_after, stay
    ):
        fields: dict[str, Any] = {"dataset": "poi", "every": "1h"}
        if pause_after is not None:
            fields["pause_after"] = pause_after
        stores.schema.ensure_table(POI)
        stores.schedules.declare([declared(fields=fields)], at=stores.jobs.now())
        imports = []
        for _ in range(5):
            pass_time(HOUR)
            schedule = stores.schedules.get("poi")
            assert schedule.next_run_at is not None
            begun = stores.fires.begin(
                schedule, advanced(schedule), POI, fire_request(schedule.next_run_at)
            )
            assert begun is not None
            open_import(stores, begun.id, ["all"])
            leases = stores.ledger.claim(ANN, declarations={"poi": "d"}, region=None)
            stores.ledger.commit_page(POI, leases[0], last(record(1)))
            stores.imports.close(POI, begun.id, failed=None)
            imports.append(begun.id)
        pass_time(POLICY.imports + HOUR)

        report = retention_of(stores)()

        assert report.removed["fires"] == len(imports) - stay
        fires = stores.schedules.fires("poi", limit=10)
        assert [fire.import_id for fire in fires] == imports[: -stay - 1 : -1]
        assert [exists(stores, each) for each in imports] == [
            *[False] * (5 - stay),
            *[True] * stay,
        ]

    # changes

    def test_old_changes_are_gone_for_who_was_at_them(
        self, stores: Stores, served: ApiStores, pass_time
    ):
        run(stores, POI, last(record(1), record(2)))
        old = served.reads.dataset_versions()["poi"].position
        pass_time(POLICY.changes)
        run(stores, POI, last(record(1, "new")))
        latest = served.reads.dataset_versions()["poi"].position
        pass_time(A_MOMENT)
        start = HistoryPosition(old.seq - 1, old.tag)

        assert retention_of(stores)().removed["changes"] == old.seq

        (change,) = served.reads.changes(POI, after=0, limit=9)
        assert change.position == latest
        # who has seen the last of them goes on
        assert served.reads.knows("poi", [old])
        assert served.reads.knows("poi", [latest])
        assert not served.reads.knows("poi", [start])

    def test_the_last_position_is_known_without_any_change(
        self, stores: Stores, served: ApiStores, pass_time
    ):
        run(stores, POI, last(record(1)))
        position = served.reads.dataset_versions()["poi"].position
        pass_time(2 * POLICY.changes)

        retention_of(stores)()

        assert not served.reads.changes(POI, after=0, limit=9)
        assert served.reads.knows("poi", [position])

    def test_changes_stay_that_a_feeder_needs(
        self, stores: Stores, served: ApiStores, pass_time
    ):
        for number in range(4):
            run(stores, POI, last(record(1, f"{number}")))
            run(stores, SHOPS, last(record(1, f"{number}")))
        pass_time(2 * POLICY.changes)
        stores.feeders.move("copy", "poi", change_seq=1)
        stores.feeders.move("slower", "poi", change_seq=0)
        retention = retention_of(stores)

        # all of the other dataset
        assert retention.preview().removed["changes"] == 4
        assert retention().removed["changes"] == 4
        assert len(served.reads.changes(POI, after=0, limit=9)) == 4

        stores.feeders.move("slower", "poi", change_seq=3)
        assert retention().removed["changes"] == 1
        assert [found.name for found in stores.feeders.all()] == ["copy", "slower"]
        assert stores.feeders.remove("copy")
        assert not stores.feeders.remove("copy")
        assert retention().removed["changes"] == 2

    def test_rows_are_found_whose_changes_are_gone_before_their_words_are_known(
        self, stores: Stores, served: ApiStores, pass_time
    ):
        run(stores, SEARCHED, last(record(1, "river")))
        stores.schema.maintain(SEARCHED)
        run(stores, SEARCHED, last(record(1, "river"), record(2, "mountain")))
        pass_time(2 * POLICY.changes)

        retention_of(stores)()
        while stores.schema.maintain(SEARCHED):
            pass

        assert find(served, SEARCHED, q="mountan") == [2]

    # bad rows

    def test_resolved_bad_rows_go_and_then_their_import(
        self, stores: Stores, ask: Ask, pass_time
    ):
        bad = last(record(1), rejections=[rejection(9, key=[7])])
        first = run(stores, POI, bad)
        run(stores, POI, last(record(7)))
        pass_time(POLICY.quarantine)
        retention = retention_of(stores)
        retention()
        assert exists(stores, first.id)

        pass_time(A_MOMENT)
        removed = retention().removed
        assert +removed == {"bad_rows": 1, "imports": 1, "jobs": 2}

        assert not exists(stores, first.id)
        assert Observed(stores, ask).size()["bad_rows"] == 0

    def test_bad_rows_of_an_import_that_may_run_again_stay(
        self, stores: Stores, ask: Ask, pass_time
    ):
        fail(stores, POI)
        run(stores, POI, *PAGES)
        # the rows are read again: what was bad is resolved
        assert ask("select resolved from penstock_quarantine") == [("superseded",)]
        pass_time(2 * POLICY.quarantine)

        assert not retention_of(stores)().removed["bad_rows"]

    # the first time

    def test_nothing_is_removed_before_it_was_shown(
        self, stores: Stores, ask: Ask, pass_time
    ):
        first = run(stores, POI, *PAGES)
        run(stores, POI, *PAGES)
        pass_time(2 * POLICY.imports)
        # as in a database of an earlier version
        ask("delete from penstock_retention")
        retention = retention_of(stores)

        assert retention.run_shift() is None
        assert retention.begins_at is None
        assert retention.show().removed["imports"] == 1
        assert retention.run_shift() is None
        assert exists(stores, first.id)

        pass_time(DAY)
        assert retention.run_shift() is None
        assert not exists(stores, first.id)

    def test_it_is_shown_once(self, stores: Stores, ask: Ask, pass_time):
        ask("delete from penstock_retention")
        retention = retention_of(stores)
        retention.show()
        begins_at = retention.begins_at
        pass_time(HOUR)

        retention.show()

        assert retention.begins_at == begins_at

    def test_a_shift_ends_between_two_batches(
        self, stores: Stores, ask: Ask, pass_time
    ):
        for _ in range(4):
            run(stores, POI, *PAGES)
        pass_time(2 * POLICY.imports)
        times = iter(range(0, 1_000, 10))
        retention = ApplyRetention(
            retention=stores.retention,
            claims=stores.claims,
            rollups=stores.rollups,
            actions=stores.actions,
            jobs=stores.jobs,
            policy=POLICY,
            monotonic=lambda: next(times),
        )

        shifts = 0
        while retention.run_shift() is not None:
            shifts += 1

        assert shifts > 1
        assert Observed(stores, ask).size()["imports"] == 1
