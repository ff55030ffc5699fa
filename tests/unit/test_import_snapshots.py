"""However many clients follow an import, it is read once in an interval."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from penstock.domain.jobs import ImportId
from penstock.entrypoints.api.cache import import_snapshots as module
from penstock.entrypoints.api.cache.import_snapshots import (
    ImportSnapshot,
    ImportSnapshots,
)
from penstock.errors import StoreUnavailable


class Reader:
    """Counts its reads, in the document too."""

    def __init__(self) -> None:
        self.reads = 0
        self.error: Exception | None = None

    async def __call__(self, import_id: ImportId) -> Mapping[str, Any]:
        self.reads += 1
        done = self.reads
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        progress = {"done": done, "total": 10}
        return {
            "id": import_id,
            "status": "running",
            "progress": progress,
            "waiting": None,
        }


def follow(
    snapshots: ImportSnapshots, reader: Reader, *numbers: int
) -> list[ImportSnapshot]:
    async def get_all() -> list[ImportSnapshot]:
        gets = (snapshots.get(ImportId(number), reader) for number in numbers)
        return await asyncio.gather(*gets)

    return asyncio.run(get_all())


def test_clients_share_a_read_and_its_snapshot_until_it_is_due():
    snapshots, reader = ImportSnapshots(interval=60), Reader()

    first = follow(snapshots, reader, 1, 1, 1)
    later = follow(snapshots, reader, 1, 1)

    assert reader.reads == 1
    assert all(snapshot is first[0] for snapshot in (*first, *later))


def test_each_import_is_read_again_once_it_is_due(monkeypatch):
    monkeypatch.setattr(module, "READ_COST_FACTOR", 0)
    snapshots, reader = ImportSnapshots(interval=0), Reader()

    [one], [other] = follow(snapshots, reader, 1), follow(snapshots, reader, 1)

    found = [snapshot.document["progress"]["done"] for snapshot in (one, other)]
    assert found == [1, 2]
    assert one.mark != other.mark


def test_an_error_is_not_cached():
    snapshots, reader = ImportSnapshots(interval=60), Reader()
    reader.error = StoreUnavailable("away")

    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="away"):
            follow(snapshots, reader, 1)
    reader.error = None

    assert follow(snapshots, reader, 1)[0].document["progress"]["done"] == 3


def test_only_the_last_imports_that_were_read_are_cached(monkeypatch):
    monkeypatch.setattr(module, "MAX_SNAPSHOTS", 2)
    snapshots, reader = ImportSnapshots(interval=60), Reader()
    for number in (1, 2, 3):
        follow(snapshots, reader, number)

    follow(snapshots, reader, 2, 3)
    assert reader.reads == 3
    follow(snapshots, reader, 1)
    assert reader.reads == 4
