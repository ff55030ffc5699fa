"""Procrastinate on empty jobs: `prepare DATABASE JOBS`, `work DATABASE CONCURRENCY`."""

import asyncio
import sys

import procrastinate


def app_for(database):
    app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=database))

    @app.task(name="nothing")
    async def nothing():
        pass

    return app, nothing


async def prepare(database, jobs):
    app, nothing = app_for(database)
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        for start in range(0, jobs, 1000):
            await nothing.batch_defer_async(*[{}] * min(1000, jobs - start))


async def work(database, concurrency):
    app, _ = app_for(database)
    async with app.open_async():
        print("ready", flush=True)
        sys.stdin.readline()
        await app.run_worker_async(concurrency=concurrency, wait=False)


if __name__ == "__main__":
    name, database, number = sys.argv[1:]
    asyncio.run({"prepare": prepare, "work": work}[name](database, int(number)))
