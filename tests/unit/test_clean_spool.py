"""Files that came from elsewhere go when no import reads them any more."""

import os
import time
from datetime import timedelta
from pathlib import Path

import pytest

from penstock.adapters.csv.file_scanner import FileScanner
from penstock.adapters.csv.spool import Spool, SpooledUploads
from penstock.adapters.sqlite.database import SqliteDatabase
from penstock.domain.dataset import Dataset
from penstock.domain.jobs import ImportId, ImportStatus
from penstock.domain.sharding.axes import FileAxis
from penstock.domain.sharding.shard import Shard
from penstock.domain.source import CsvSource
from penstock.flow.clean_spool import FAILED_IMPORT_RETENTION, MIN_FILE_AGE, CleanSpool
from penstock.ports import Stores
from tests.support.builders import (
    HOUR,
    TIMEOUT,
    Clock,
    claim,
    dataset,
    int_field,
    sqlite_stores,
)
from tests.support.builders import plan as planned

UPLOADS = SpooledUploads()


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
    fields = (int_field("id", required=True),)
    return dataset("shops", fields=fields, source=source, axes=(FileAxis(),))


@pytest.fixture
def tidy(stores: Stores, shops: Dataset) -> CleanSpool:
    return CleanSpool(datasets={"shops": shops}, stores=stores, uploads=UPLOADS)


def aged(path: Path, age: timedelta = MIN_FILE_AGE + HOUR) -> Path:
    written = time.time() - age.total_seconds()
    os.utime(path, (written, written))
    return path


def uploaded(shops: Dataset) -> Path:
    return Path(shops.csv.folder, UPLOADS.save(shops, [b"id\n1\n"], label="a.csv"))


def fetched(shops: Dataset) -> Path:
    return Spool(Path(shops.csv.spool), 100).save(
        [b"id\n2\n"], dataset="shops", name="b.csv"
    )


def imported(stores: Stores, shops: Dataset, path: Path) -> ImportId:
    """Begin an import of a file, by the name that its planner gave it."""
    source = shops.csv
    name = path if path.parent.name == "shops" else path.relative_to(source.folder)
    of = dataset(
        "shops",
        fields=shops.fields,
        source=CsvSource(files=(str(name),), folder=source.folder),
    )
    axis = FileScanner(print)(of)
    keys = [Shard((axis,), (part,)).key for part in axis.slices]
    return planned(stores, shops, *keys)


@pytest.fixture(params=["uploaded", "fetched"])
def spooled(request: pytest.FixtureRequest, shops: Dataset) -> Path:
    return {"uploaded": uploaded, "fetched": fetched}[request.param](shops)


class TestTidying:
    def test_what_no_import_reads_is_removed(self, tidy: CleanSpool, spooled: Path):
        """Its import was never stored, or nobody knows whether it was."""
        aged(spooled)

        tidy()

        assert not spooled.exists()

    def test_what_has_just_come_is_retained(self, tidy: CleanSpool, spooled: Path):
        """Its import may be about to be stored."""
        aged(spooled, MIN_FILE_AGE - HOUR)

        tidy()

        assert spooled.exists()

    def test_what_an_import_reads_is_retained_until_it_is_over(
        self, tidy: CleanSpool, stores: Stores, shops: Dataset, spooled: Path
    ):
        begun = imported(stores, shops, spooled)
        aged(spooled)
        tidy()
        assert spooled.exists()

        stores.imports.cancel(begun, reason="enough")
        tidy()

        assert not spooled.exists()

    def test_what_a_failed_import_reads_is_retained_for_a_while(
        self,
        tidy: CleanSpool,
        stores: Stores,
        shops: Dataset,
        spooled: Path,
        clock: Clock,
    ):
        begun = imported(stores, shops, spooled)
        stores.ledger.fail(claim(stores, shops), TIMEOUT)
        stores.imports.close(shops, begun, failed=None)
        assert stores.imports.peek(begun).status is ImportStatus.FAILED
        aged(spooled, FAILED_IMPORT_RETENTION)
        clock.pass_time(FAILED_IMPORT_RETENTION - HOUR)
        tidy()
        assert spooled.exists()

        clock.pass_time(2 * HOUR)
        tidy()

        assert not spooled.exists()

    def test_the_rest_of_what_broke_off_is_removed(
        self, tidy: CleanSpool, shops: Dataset
    ):
        """Its process was killed, and left it."""
        rests: list[Path] = []

        def chunks():
            yield b"id\n"
            rests.extend(Path(shops.csv.spool).rglob("*.part"))
            os.link(rests[0], rests[0].with_name("penstock-killed.part"))
            yield b"1\n"

        UPLOADS.save(shops, chunks(), label="a.csv")
        assert rests[0].name.startswith("penstock-")
        rest = aged(rests[0].with_name("penstock-killed.part"))

        tidy()

        assert not rest.exists()

    def test_what_others_have_put_there_is_left_alone(
        self, tidy: CleanSpool, spooled: Path
    ):
        theirs = spooled.with_name("shops-1.csv")
        theirs.write_bytes(b"id\n1\n")
        aged(theirs)

        tidy()

        assert theirs.exists()

    def test_a_dataset_that_was_none_of_files_is_no_failure(
        self, tidy: CleanSpool, stores: Stores, shops: Dataset, spooled: Path
    ):
        planned(stores, shops, "country:DE")
        aged(spooled)

        tidy()

        assert not spooled.exists()
