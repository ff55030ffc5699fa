"""PgQueuer on empty jobs: `prepare DATABASE JOBS`, `work DATABASE CONCURRENCY`."""

import asyncio
import sys

import asyncpg
from pgqueuer import AsyncpgDriver, PgQueuer
from pgqueuer.queries import Queries
from pgqueuer.types import QueueExecutionMode


async def prepare(database, jobs):
    connection = await asyncpg.connect(database)
    queries = Queries(AsyncpgDriver(connection))
    await queries.install()
    for start in range(0, jobs, 1000):
        count = min(1000, jobs - start)
        await queries.enqueue(["nothing"] * count, [None] * count, [0] * count)
    await connection.close()


async def work(database, concurrency):
    connection = await asyncpg.connect(database)
    queue = PgQueuer(AsyncpgDriver(connection))

    @queue.entrypoint("nothing")
    async def nothing(_):
        pass

    print("ready", flush=True)
    sys.stdin.readline()
    await queue.run(batch_size=concurrency, mode=QueueExecutionMode.drain)
    await connection.close()


if __name__ == "__main__":
    name, database, number = sys.argv[1:]
    asyncio.run({"prepare": prepare, "work": work}[name](database, int(number)))
