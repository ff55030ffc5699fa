"""How an import compares with dlt, which merges the same pages by the same key."""

import subprocess

import psycopg

from bench.imports import Setup, run_penstock, shard_step, timed
from bench.pages import PAGE
from bench.server import server
from bench.stage import RIVALS, served, verdict

FULL, SMALL = 200 * PAGE, 2 * PAGE


def run_dlt(setup, server):
    """Return the records a second of dlt, first and again."""
    command = [*RIVALS, "bench/rivals/dlt_import.py", setup.url]
    rates = []
    with server.database() as database:
        for _ in range(2):
            seconds, _ = timed(
                [*command, database, str(setup.records)], stderr=subprocess.DEVNULL
            )
            rates.append(setup.records / seconds)
        with psycopg.connect(database) as connection:
            counted = connection.execute("select count(*) from bench.points").fetchone()
    assert counted == (setup.records,), counted
    return rates


def measure(*, small=False):
    records = SMALL if small else FULL
    with served("bench.pages", str(records)) as url, server(small=small) as postgres:
        setup = Setup(url=url, records=records, step=shard_step(records))
        first, again = run_penstock(setup, postgres, times=2)
        dlt_first, dlt_again = run_dlt(setup, postgres)
    return verdict(
        "import beside dlt",
        holds=True,
        message=f"{first:,.0f} records/s, {first / dlt_first:.1f} times dlt "
        f"({dlt_first:,.0f}/s); again {again:,.0f}/s, "
        f"{again / dlt_again:.1f} times dlt ({dlt_again:,.0f}/s)",
    )
