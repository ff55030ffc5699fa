"""An import that a client asks for begins once, and leaves nothing behind."""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from typing_extensions import override

from penstock.adapters.csv.file_scanner import FileScanner, find_files
from penstock.adapters.csv.spool import SpooledUploads
from penstock.adapters.sqlite.database import SqliteDatabase
from penstock.domain.dataset import Dataset
from penstock.domain.events import Event, FileSurveyed
from penstock.domain.import_scope import ImportScope
from penstock.domain.jobs import (
    ImportId,
    ImportStatus,
    Job,
    JobKind,
    JobStatus,
    Mode,
    WorkerId,
)
from penstock.domain.sharding.axes import FileAxis, ListAxis, ValuesFrom
from penstock.domain.sharding.parts import Slice
from penstock.domain.source import CsvSource
from penstock.errors import (
    Conflict,
    Misconfigured,
    Rejected,
    SourceUnavailable,
    StoreUnavailable,
)
from penstock.flow.plan import Plan
from penstock.flow.start_import import StartImport
from penstock.ports import JobFilter, KeepAlive, ScannedSlices, Stores, Survey
from penstock.ports.idempotency import IdempotencyStore, IdempotentRequest
from tests.contracts.workers import announce
from tests.support.builders import (
    ANN,
    BEN,
    HOUR,
    LEASE,
    MINUTE,
    NOON,
    SECOND,
    Clock,
    claim_plan,
    dataset,
    int_field,
    jobs_of,
    sqlite_stores,
    text_field,
)

FULL = ImportScope(mode=Mode.FULL)
POI = dataset(axes=(ListAxis(name="country", values=("de", "fr")),))
# of which nothing is known yet
PARENT = ListAxis(name="shop", values=ValuesFrom(dataset="shops", field="id"))
ORPHAN = dataset("orphan", axes=(PARENT,))
ASK = IdempotentRequest(scope="ann imports poi", key="k1", digest=b"full")
ROWS = b"id,title\n1,one\n2,two\n"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def stores(tmp_path: Path, clock: Clock) -> Stores:
    opened = sqlite_stores(SqliteDatabase(tmp_path / "penstock.db", clock=clock))
    opened.schema.migrate()
    return opened


@pytest.fixture
def shops(tmp_path: Path) -> Dataset:
    source = CsvSource(
        files=("shops-*.csv",), folder=str(tmp_path), spool=str(tmp_path / "spool")
    )
    fields = (int_field("id", required=True), text_field("title"))
    return dataset("shops", fields=fields, source=source, axes=(FileAxis(),))


@pytest.fixture
def start(stores: Stores, shops: Dataset) -> StartImport:
    datasets: dict[str, Dataset] = {each.name: each for each in (POI, ORPHAN, shops)}
    for each in datasets.values():
        stores.schema.ensure_table(each)
    return StartImport(
        plan=plan_of(datasets, stores, FileScanner(print)),
        stores=stores,
        uploads=SpooledUploads(),
        datasets=datasets,
        declaration=lambda _: "d1",
        redact=lambda text: text.replace("hush", "${SECRET}"),
        find_files=find_files,
        attempts=3,
    )


def plan_of(
    datasets: Mapping[str, Dataset],
    stores: Stores,
    survey: Survey,
    monotonic: Callable[[], float] = time.monotonic,
) -> Plan:
    return Plan(
        datasets=datasets,
        stores=stores,
        claim=claim_plan(stores, monotonic=monotonic),
        survey=survey,
        emit=print,
    )


def due(stores: Stores) -> list[ImportId]:
    return [*stores.plans.due(declarations={"poi": "d1", "shops": "d1"})]


def status(stores: Stores, import_id: ImportId) -> ImportStatus:
    return stores.imports.peek(import_id).status


def seconds_of(clock: Clock) -> Callable[[], float]:
    return lambda: (clock.now - NOON) / SECOND


class TestPlanning:
    def test_what_has_begun_is_planned_later(self, start: StartImport, stores: Stores):
        begun = start.of_source(POI, FULL, ASK).import_
        assert status(stores, begun.id) is ImportStatus.PLANNING

        start.plan_import(begun.id, threading.Event())

        assert status(stores, begun.id) is ImportStatus.RUNNING
        assert len(jobs_of(stores, begun.id)) == 2

    def test_what_can_be_refused_at_once_is(self, start: StartImport, stores: Stores):
        with pytest.raises(Conflict, match="has no 'id' yet"):
            start.of_source(ORPHAN, FULL, ASK)

        assert stores.imports.recent(limit=9) == []
        assert not start.of_source(POI, FULL, ASK).replayed

    def test_a_file_that_is_missing_is_refused_at_once(
        self, start: StartImport, stores: Stores, shops: Dataset
    ):
        named = replace(shops, source=replace(shops.csv, files=("hush.csv",)))

        with pytest.raises(Conflict, match=r"\$\{SECRET\}\.csv does not exist"):
            start.of_source(named, FULL, ASK)

        assert stores.imports.recent(limit=9) == []

    def test_what_cannot_be_planned_fails_and_can_be_planned_again(
        self, start: StartImport, stores: Stores, shops: Dataset
    ):
        named = replace(shops, source=replace(shops.csv, files=("hush-*.csv",)))
        renamed = replace(start, datasets={"shops": named})
        file = Path(shops.csv.folder, "hush-1.csv")
        file.write_bytes(b"id\n1\n")
        begun = renamed.of_source(named, FULL, ASK).import_
        file.unlink()

        renamed.plan_import(begun.id, threading.Event())

        known = stores.imports.peek(begun.id)
        assert known.status is ImportStatus.FAILED
        assert "could not be planned" in str(known.note)
        assert "no file matches ${SECRET}-*.csv" in str(known.note)
        (failed,) = stores.jobs.find(
            JobFilter(status=JobStatus.FAILED, kind=JobKind.PLAN), after=None, limit=9
        )
        file.write_bytes(ROWS)
        assert stores.jobs.retry(failed.id)
        assert due(stores) == [begun.id]
        renamed.plan_import(begun.id, threading.Event())
        assert status(stores, begun.id) is ImportStatus.RUNNING

    def test_requested_to_stop_it_leaves_the_rest_to_others(
        self, start: StartImport, stores: Stores, clock: Clock
    ):
        begun = start.of_source(POI, FULL, ASK).import_
        halt = threading.Event()
        halt.set()

        start.plan_import(begun.id, halt)

        assert status(stores, begun.id) is ImportStatus.PLANNING
        clock.pass_time(MINUTE)
        assert due(stores) == [begun.id]

    def test_what_was_planned_under_another_declaration_is_left_alone(
        self, start: StartImport, stores: Stores
    ):
        begun = start.of_source(POI, FULL, ASK).import_

        replace(start, declaration=lambda _: "d2").plan_import(
            begun.id, threading.Event()
        )

        assert status(stores, begun.id) is ImportStatus.PLANNING

    def test_what_nobody_expected_ends_it_and_is_reported(
        self, start: StartImport, stores: Stores, shops: Dataset
    ):
        """Or it would be begun again and again."""
        Path(shops.csv.folder, "shops-1.csv").write_bytes(ROWS)
        begun = start.of_source(shops, FULL, ASK).import_

        def stumble(
            dataset: Dataset, still_here: KeepAlive, scanned: ScannedSlices
        ) -> FileAxis:
            raise ZeroDivisionError

        broken = replace(start, plan=plan_of(start.datasets, stores, stumble))
        with pytest.raises(ZeroDivisionError):
            broken.plan_import(begun.id, threading.Event())

        assert status(stores, begun.id) is ImportStatus.FAILED


class TestTwoPlanners:
    """One process may lack the files, or the line to a provider, that another has."""

    def begun(self, start: StartImport, shops: Dataset, tmp_path: Path) -> ImportId:
        (tmp_path / "shops-1.csv").write_bytes(ROWS)
        return start.of_source(shops, FULL, ASK).import_.id

    def without_files(self, start: StartImport, shops: Dataset) -> StartImport:
        lost = replace(shops, source=replace(shops.csv, files=("gone-*.csv",)))
        return replace(start, datasets={"shops": lost})

    def test_what_somebody_plans_is_left_to_them(
        self, start: StartImport, stores: Stores, shops: Dataset, tmp_path: Path
    ):
        begun = self.begun(start, shops, tmp_path)
        assert stores.plans.claim(begun, ANN)

        self.without_files(start, shops).plan_import(begun, threading.Event())

        assert status(stores, begun) is ImportStatus.PLANNING

    def test_a_failure_does_not_end_what_another_has_planned_meanwhile(
        self, start: StartImport, stores: Stores, shops: Dataset, tmp_path: Path, clock
    ):
        begun = self.begun(start, shops, tmp_path)

        class Slow(Plan):
            """One whose look at the files takes so long that another has done it."""

            @override
            def axes(self, dataset, *, files=(), still_here=print, scanned=None):
                clock.pass_time(2 * LEASE)
                start.plan_import(begun, threading.Event())
                raise Misconfigured("no file matches")

        slow = Slow(
            datasets=start.datasets,
            stores=stores,
            claim=claim_plan(stores),
            survey=FileScanner(print),
            emit=print,
        )

        replace(start, plan=slow).plan_import(begun, threading.Event())

        assert status(stores, begun) is ImportStatus.RUNNING

    def test_whoever_is_gone_is_followed_by_another(
        self,
        start: StartImport,
        stores: Stores,
        shops: Dataset,
        tmp_path: Path,
        clock: Clock,
    ):
        begun = self.begun(start, shops, tmp_path)
        assert stores.plans.claim(begun, ANN)
        clock.pass_time(2 * LEASE)
        assert due(stores) == [begun]

        start.plan_import(begun, threading.Event())

        assert status(stores, begun) is ImportStatus.RUNNING

    def test_a_planner_that_was_held_up_stops_when_another_has_begun(
        self, start: StartImport, stores: Stores, shops: Dataset, tmp_path: Path, clock
    ):
        begun = self.begun(start, shops, tmp_path)

        def stand_still(
            dataset: Dataset, still_here: KeepAlive, scanned: ScannedSlices
        ) -> FileAxis:
            clock.pass_time(2 * LEASE)
            assert stores.plans.claim(begun, BEN)
            still_here()
            raise AssertionError("it went on")

        slow = plan_of(start.datasets, stores, stand_still, seconds_of(clock))
        held_up = replace(start, plan=slow)

        held_up.plan_import(begun, threading.Event())

        assert status(stores, begun) is ImportStatus.PLANNING
        assert due(stores) == []

    def test_a_planner_that_goes_on_for_long_keeps_it(
        self, start: StartImport, stores: Stores, shops: Dataset, tmp_path: Path, clock
    ):
        begun = self.begun(start, shops, tmp_path)
        rivals: list[ImportId] = []

        def fetch_for_long(
            dataset: Dataset, still_here: KeepAlive, scanned: ScannedSlices
        ) -> FileAxis:
            for _ in range(120):
                clock.pass_time(LEASE / 2)
                still_here()
                rivals.extend(due(stores))
            return FileScanner(print)(dataset, still_here, scanned)

        slow = plan_of(start.datasets, stores, fetch_for_long, seconds_of(clock))
        held = replace(start, plan=slow)

        held.plan_import(begun, threading.Event())

        assert status(stores, begun) is ImportStatus.RUNNING
        assert rivals == []

    def test_a_check_at_files_ends_when_it_is_to_stop(
        self, start: StartImport, stores: Stores, shops: Dataset, tmp_path: Path
    ):
        """And another process may go on at once."""
        begun = self.begun(start, shops, tmp_path)
        halt = threading.Event()

        def stop(
            dataset: Dataset, still_here: KeepAlive, scanned: ScannedSlices
        ) -> FileAxis:
            halt.set()
            return FileScanner(print)(dataset, still_here, scanned)

        stopped = plan_of(start.datasets, stores, stop)

        replace(start, plan=stopped).plan_import(begun, halt)

        assert status(stores, begun) is ImportStatus.PLANNING
        assert due(stores) == [begun]


OTHER = WorkerId("other:1:-:-:x")


class TestSetbacks:
    """What may be over soon, or is no trouble elsewhere, does not end an import."""

    def plan_job(self, stores: Stores) -> Job:
        (job,) = stores.jobs.find(JobFilter(kind=JobKind.PLAN), after=None, limit=9)
        return job

    def lacking(self, start: StartImport, stores: Stores, shops: Dataset) -> ImportId:
        """Begin an import whose files are gone when it is planned."""
        file = Path(shops.csv.folder, "shops-1.csv")
        file.write_bytes(ROWS)
        begun = start.of_source(shops, FULL, ASK).import_
        file.unlink()
        start.plan_import(begun.id, threading.Event())
        return begun.id

    def test_files_that_another_host_may_see_are_left_to_it(
        self, start: StartImport, stores: Stores, shops: Dataset, clock: Clock
    ):
        announce(stores, OTHER, lasting=HOUR)

        begun = self.lacking(start, stores, shops)

        assert status(stores, begun) is ImportStatus.PLANNING
        job = self.plan_job(stores)
        assert (job.status, job.attempts) == (JobStatus.PENDING, 0)
        assert [entry.code for entry in job.errors] == ["files_missing"]
        assert due(stores) == []
        clock.pass_time(MINUTE)
        assert due(stores) == [begun]

    def test_files_that_no_host_sees_end_it_and_the_hosts_are_named(
        self, start: StartImport, stores: Stores, shops: Dataset, clock: Clock
    ):
        announce(stores, OTHER, lasting=HOUR)
        begun = self.lacking(start, stores, shops)
        clock.pass_time(MINUTE)

        start.plan.claim = replace(start.plan.claim, new_owner=lambda: OTHER)
        start.plan_import(begun, threading.Event())

        ended = stores.imports.peek(begun)
        assert ended.status is ImportStatus.FAILED
        assert "no file matches shops-*.csv" in str(ended.note)
        assert "on other, planner" in str(ended.note)

    def test_a_provider_that_is_away_is_tried_again(
        self, start: StartImport, stores: Stores, shops: Dataset, clock: Clock
    ):
        Path(shops.csv.folder, "shops-1.csv").write_bytes(ROWS)
        begun = start.of_source(shops, FULL, ASK).import_.id

        def fail(
            dataset: Dataset, still_here: KeepAlive, scanned: ScannedSlices
        ) -> FileAxis:
            raise SourceUnavailable("no answer from hush")

        away = replace(start, plan=plan_of(start.datasets, stores, fail))
        for attempt in range(2):
            away.plan_import(begun, threading.Event())
            assert status(stores, begun) is ImportStatus.PLANNING
            assert self.plan_job(stores).attempts == attempt + 1
            assert due(stores) == []
            clock.pass_time(MINUTE)
        assert due(stores) == [begun]

        away.plan_import(begun, threading.Event())

        ended = stores.imports.peek(begun)
        assert ended.status is ImportStatus.FAILED
        assert "no answer from ${SECRET}" in str(ended.note)


class TestManyFiles:
    """What a planner that is killed has scanned is not scanned again."""

    def scan(self, start: StartImport, stores: Stores, begun: ImportId) -> list[str]:
        """Plan an import; return which files that scanned."""
        surveyed: list[str] = []

        def note(event: Event) -> None:
            if isinstance(event, FileSurveyed):
                surveyed.append(event.file)

        plan = plan_of(start.datasets, stores, FileScanner(note))
        replace(start, plan=plan).plan_import(begun, threading.Event())
        return surveyed

    def killed_at(
        self, start: StartImport, stores: Stores, shops: Dataset, file: str
    ) -> ImportId:
        """Begin an import of three files, whose planner is killed at one of them."""
        for number in range(3):
            Path(shops.csv.folder, f"shops-{number}.csv").write_bytes(ROWS)
        begun = start.of_source(shops, FULL, ASK).import_.id

        class Killed(BaseException):
            """It handles nothing more."""

        def kill(event: Event) -> None:
            if isinstance(event, FileSurveyed) and event.file == file:
                raise Killed

        plan = plan_of(start.datasets, stores, FileScanner(kill))
        with pytest.raises(Killed):
            replace(start, plan=plan).plan_import(begun, threading.Event())
        return begun

    def test_the_next_one_scans_the_others(
        self, start: StartImport, stores: Stores, shops: Dataset, clock: Clock
    ):
        begun = self.killed_at(start, stores, shops, "shops-1.csv")
        clock.pass_time(2 * LEASE)

        assert self.scan(start, stores, begun) == ["shops-1.csv", "shops-2.csv"]

        assert status(stores, begun) is ImportStatus.RUNNING
        parts = [Slice.of_key(job.shard_key) for job in jobs_of(stores, begun)]
        assert [part.file for part in parts] == [f"shops-{n}.csv" for n in range(3)]
        assert [part.number for part in parts] == [0, 1, 2]

    def test_other_files_are_all_scanned_anew(
        self, start: StartImport, stores: Stores, shops: Dataset, clock: Clock
    ):
        """Their numbers decide which row of a key is the last."""
        begun = self.killed_at(start, stores, shops, "shops-1.csv")
        Path(shops.csv.folder, "shops--.csv").write_bytes(ROWS)
        clock.pass_time(2 * LEASE)

        assert len(self.scan(start, stores, begun)) == 4

        parts = [Slice.of_key(job.shard_key) for job in jobs_of(stores, begun)]
        assert parts[0].file == "shops--.csv"
        assert [part.number for part in parts] == [0, 1, 2, 3]

    def test_a_file_of_another_size_is_scanned_anew(
        self, start: StartImport, stores: Stores, shops: Dataset, clock: Clock
    ):
        begun = self.killed_at(start, stores, shops, "shops-2.csv")
        Path(shops.csv.folder, "shops-0.csv").write_bytes(ROWS + b"3,three\n")
        clock.pass_time(2 * LEASE)

        assert len(self.scan(start, stores, begun)) == 3

        parts = [Slice.of_key(job.shard_key) for job in jobs_of(stores, begun)]
        assert [part.size for part in parts] == [len(ROWS) + 8, len(ROWS), len(ROWS)]


class TestFiles:
    def send(self, start: StartImport, shops: Dataset, content: bytes = ROWS) -> str:
        return start.uploads.save(shops, [content], label="../list.csv")

    def test_a_file_lies_where_workers_find_it(
        self, start: StartImport, shops: Dataset, tmp_path: Path
    ):
        file = self.send(start, shops)

        assert file.startswith("spool/shops/uploads/")
        assert file.endswith("-list.csv")
        assert (tmp_path / file).read_bytes() == ROWS
        assert self.send(start, shops) != file

    def test_a_spool_elsewhere_is_named_in_full(
        self, start: StartImport, shops: Dataset, tmp_path: Path
    ):
        folder = str(tmp_path / "settings")
        elsewhere = replace(shops, source=replace(shops.csv, folder=folder))

        file = self.send(start, elsewhere)

        assert Path(file).is_absolute()
        start.uploads.remove(elsewhere, file)
        assert not Path(file).exists()

    def test_no_other_file_is_removed(
        self, start: StartImport, shops: Dataset, tmp_path: Path
    ):
        (tmp_path / "shops-1.csv").touch()

        start.uploads.remove(shops, "shops-1.csv")
        start.uploads.remove(shops, "spool/shops/uploads/../../../shops-1.csv")

        assert (tmp_path / "shops-1.csv").exists()

    def test_too_large_a_file_is_refused(self, start: StartImport, shops: Dataset):
        small = replace(shops, source=replace(shops.csv, max_bytes=10))

        with pytest.raises(Rejected, match="more than 10 bytes"):
            self.send(start, small)

    def test_a_store_that_is_away_costs_no_file(
        self, start: StartImport, shops: Dataset, tmp_path: Path, stores: Stores
    ):
        """Perhaps the import was stored, and only the answer was lost."""

        class Away:
            def __getattr__(self, name: str) -> object:
                return getattr(stores.requests, name)

            def begin(self, *_: object) -> None:
                raise StoreUnavailable("away")

        file = self.send(start, shops)
        away: IdempotencyStore = Away()  # type: ignore[assignment]
        broken = replace(start, stores=replace(stores, requests=away))

        with pytest.raises(StoreUnavailable):
            broken.of_file(shops, file, replace(ASK, file=file))

        assert (tmp_path / file).exists()
