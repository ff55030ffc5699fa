"""Processes that open a new SQLite file at the same moment wait for each other."""

import sqlite3
import threading
from datetime import timedelta
from pathlib import Path

from tests.support.builders import open_sqlite


def test_a_new_file_that_another_process_writes_is_waited_for(tmp_path: Path):
    path = tmp_path / "penstock.db"
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("begin immediate")
    opened = threading.Event()

    def migrate() -> None:
        open_sqlite(path, busy=timedelta(milliseconds=10)).schema.migrate()
        opened.set()

    process = threading.Thread(target=migrate)
    process.start()
    assert not opened.wait(0.5)
    other.execute("commit")
    other.close()

    process.join()
    assert opened.is_set()


def test_a_file_that_another_process_migrates_is_waited_for(tmp_path: Path):
    path = tmp_path / "penstock.db"
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("pragma journal_mode = wal")
    other.execute("begin immediate")
    stores = open_sqlite(path, busy=timedelta(milliseconds=10))
    assert stores.schema.pending()
    release = threading.Timer(0.5, other.execute, ["commit"])
    release.start()

    assert stores.schema.migrate()

    release.join()
    other.close()
