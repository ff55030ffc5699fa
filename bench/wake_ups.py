"""What Celery costs: the same import beside local workers, its messages, its pauses.

Workers run before an import begins, so that nobody waits for a process to start; what
counts is in the database, from the request for an import until it is done.
"""

import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import psycopg
import redis
from tests.services.private import PrivateRedis

from bench.imports import Setup, declared, shard_step, timed
from bench.pages import PAGE
from bench.server import server
from bench.stage import PENSTOCK, served, verdict

MOST_OF_LOCAL = 1.3
WORKERS = 2
OUTSTANDING = 16
QUEUE = "penstock"
# how long the messages for many jobs are counted, and how often, in seconds
COUNTED_FOR, COUNT_INTERVAL = 20.0, 0.01
TIMEOUT = 1800


@dataclass(frozen=True, kw_only=True)
class Sizes:
    records: int
    jobs: int
    counted_for: float
    slice: str


FULL = Sizes(records=1_000_000, jobs=100_000, counted_for=COUNTED_FOR, slice="1s")
SMALL = Sizes(records=20 * PAGE, jobs=200, counted_for=1, slice="100ms")


@contextlib.contextmanager
def declared_celery(setup, database, broker, *, slice_length="30s"):
    with redis.Redis.from_url(broker) as queues:
        # messages of another database
        queues.flushdb()
    with declared(setup, database) as folder:
        settings = folder / "penstock.toml"
        engine = f'[penstock]\nengine = "celery"\nbroker = "{broker}"\n'
        text = settings.read_text("utf-8").replace("[penstock]\n", engine)
        text += f'\n[celery]\noutstanding = {OUTSTANDING}\nslice = "{slice_length}"\n'
        settings.write_text(text, encoding="utf-8")
        yield folder


@contextlib.contextmanager
def running(command, folder, log=None):
    """Run a command in a process group of its own; end the group."""
    environ = {**os.environ, "PENSTOCK_CONFIG": str(folder / "penstock.toml")}
    with (
        open(log or os.devnull, "w") as output,  # noqa: PTH123 (also of the system)
        subprocess.Popen(
            command,
            cwd=folder,
            env=environ,
            stdout=subprocess.DEVNULL,
            stderr=output,
            start_new_session=True,
        ) as process,
    ):
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(30)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


@contextlib.contextmanager
def local_workers(folder):
    command = [*PENSTOCK, "worker", "--threads", "1"]
    with contextlib.ExitStack() as stack:
        for _ in range(WORKERS):
            stack.enter_context(running(command, folder))
        yield


@contextlib.contextmanager
def celery_workers(folder, log=None):
    command = [
        *(sys.executable, "-m", "celery", "-A", "penstock.tasks", "worker"),
        *("-Q", QUEUE, "-c", str(WORKERS), "-l", "warning"),
        *("--without-gossip", "--without-mingle"),
    ]
    with running(command, folder, log):
        yield


def wait_for(database, statement):
    """Wait until a statement returns true."""
    deadline = time.monotonic() + TIMEOUT
    with psycopg.connect(database, autocommit=True) as connection:
        while connection.execute(statement).fetchall() != [(True,)]:
            assert time.monotonic() < deadline, statement
            time.sleep(0.05)


def import_by(workers, folder, database):
    """Return how long an import takes by workers that are there when it begins."""
    timed([*PENSTOCK, "migrate"], cwd=folder)
    with workers(folder):
        wait_for(
            database, f"select count(*) >= {WORKERS} from penstock.penstock_worker"
        )
        timed([*PENSTOCK, "plan", "points"], cwd=folder)
        wait_for(
            database,
            "select bool_and(finished_at is not null) from penstock.penstock_import",
        )
    with psycopg.connect(database) as connection:
        ((status, seconds),) = connection.execute(
            "select status, extract(epoch from finished_at - created_at) "
            "from penstock.penstock_import"
        ).fetchall()
    assert status == "done", status
    return float(seconds)


def import_locally(setup, postgres):
    with postgres.database() as database, declared(setup, database) as folder:
        return import_by(local_workers, folder, database)


def import_through_celery(setup, postgres, broker):
    with (
        postgres.database() as database,
        declared_celery(setup, database, broker) as folder,
    ):
        return import_by(celery_workers, folder, database)


def compare_engines(setup, postgres, broker):
    before = import_locally(setup, postgres)
    through = import_through_celery(setup, postgres, broker)
    after = import_locally(setup, postgres)
    ratio = 2 * through / (before + after)
    return verdict(
        f"the same import through Celery, {WORKERS} processes",
        holds=ratio <= MOST_OF_LOCAL,
        message=f"{through:.1f} s, {ratio:.2f} of local workers "
        f"({before:.1f} and {after:.1f} s)",
    )


def count_messages(sizes, url, postgres, broker):
    """Return whether a broker keeps few messages while many jobs are due."""
    setup = Setup(url=url, records=sizes.jobs, step=1)
    with (
        postgres.database() as database,
        declared_celery(setup, database, broker) as folder,
        redis.Redis.from_url(broker) as queue,
    ):
        timed([*PENSTOCK, "migrate"], cwd=folder)
        timed([*PENSTOCK, "plan", "points"], cwd=folder)
        depths = []
        with celery_workers(folder):
            wait_for(
                database, f"select count(*) >= {WORKERS} from penstock.penstock_worker"
            )
            deadline = time.monotonic() + sizes.counted_for
            while time.monotonic() < deadline:
                depths.append(int(queue.llen(QUEUE)))
                time.sleep(COUNT_INTERVAL)
    most = max(depths)
    return verdict(
        f"messages for {sizes.jobs:,} due jobs",
        holds=0 < most <= OUTSTANDING,
        message=f"at most {most} of {OUTSTANDING} in the broker, "
        f"counted {len(depths):,} times",
    )


def pauses(log):
    """Return the seconds from the end of a slice to the next claim of a process."""
    events = defaultdict(list)
    for line in log.read_text("utf-8").splitlines():
        with contextlib.suppress(json.JSONDecodeError):
            event = json.loads(line)
            if event["event"] in {"job_released", "job_claimed"}:
                events[event["worker"]].append(event)
    return [
        (
            datetime.fromisoformat(claimed["timestamp"])
            - datetime.fromisoformat(released["timestamp"])
        ).total_seconds()
        for each in events.values()
        for released, claimed in pairwise(each)
        if released["event"] == "job_released" and claimed["event"] == "job_claimed"
    ]


def measure_pauses(sizes, setup, postgres, broker):
    with (
        postgres.database() as database,
        declared_celery(setup, database, broker, slice_length=sizes.slice) as folder,
        tempfile.TemporaryDirectory(prefix="penstock-bench-") as name,
    ):
        log = Path(name, "worker.log")
        import_by(lambda of: celery_workers(of, log), folder, database)
        found = sorted(pauses(log))
    if not found:
        return verdict(
            "from a slice to the next claim",
            holds=False,
            message="0 slices ended before their job",
        )
    tail = found[int(0.95 * len(found))]
    return verdict(
        "from a slice to the next claim",
        holds=True,
        message=f"{statistics.median(found) * 1000:.0f} ms, 95 % within "
        f"{tail * 1000:.0f} ms, {len(found)} slices of {sizes.slice}",
    )


def measure(*, small=False):
    sizes = SMALL if small else FULL
    records = max(sizes.records, sizes.jobs)
    with (
        served("bench.pages", str(records)) as url,
        server(small=small) as postgres,
        PrivateRedis() as broker,
    ):
        setup = Setup(url=url, records=sizes.records, step=shard_step(sizes.records))
        held = [
            compare_engines(setup, postgres, broker.url),
            measure_pauses(sizes, setup, postgres, broker.url),
            count_messages(sizes, url, postgres, broker.url),
        ]
    return all(held)
