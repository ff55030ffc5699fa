"""A claim costs the same whether a ledger is small or large, and so does a page."""

import json
import statistics
import time
import uuid
from collections.abc import Iterator
from urllib.parse import urlsplit

import psycopg
import pytest

from penstock.adapters.postgres.database import PostgresDatabase
from penstock.domain.jobs import MAX_RESCUES, MAX_STORED_ERRORS
from penstock.ports import Stores
from tests.support.builders import (
    batch,
    claim,
    claim_any,
    dataset,
    known_page,
    last,
    plan,
    record,
    repeated,
    run,
    text_field,
)
from tests.support.postgres import Place, explained, nodes, opened

POI = dataset()
SMALL = dataset("small")
FINISHED, PENDING = 1_000_000, 100_000
REQUESTED = {
    "declarations": json.dumps({"poi": "d1"}),
    "region": None,
    "max_rescues": MAX_RESCUES,
    "tried": "[]",
    "max_errors": MAX_STORED_ERRORS,
    "import_id": 1,
    # none of which has many jobs
    "imports": json.dumps([*range(2, 102)]),
    "most": 4,
    "owner": "ann",
    "lease": 60_000_000,
    "job": 1,
    "fence": 1,
}


@pytest.fixture(scope="module")
def place(postgres_url: str) -> Iterator[Place]:
    """Create a database of its own, since others would disturb its statistics."""
    name = f"penstock_test_{uuid.uuid4().hex}"
    with psycopg.connect(postgres_url, autocommit=True) as server:
        server.execute(f"create database {name} template template0".encode())
        yield Place(urlsplit(postgres_url)._replace(path=f"/{name}").geturl(), "big")
        server.execute(f"drop database {name} with (force)".encode())


@pytest.fixture(scope="module")
def opened_here(place: Place) -> Iterator[tuple[Stores, PostgresDatabase]]:
    with opened(place, most_connections=1) as both:
        both[0].schema.migrate()
        yield both


@pytest.fixture(scope="module")
def stores(opened_here: tuple[Stores, PostgresDatabase]) -> Stores:
    return opened_here[0]


@pytest.fixture(scope="module")
def database(opened_here: tuple[Stores, PostgresDatabase]) -> PostgresDatabase:
    return opened_here[1]


@pytest.fixture(scope="module")
def ledger(stores: Stores, place: Place) -> Stores:
    """Fill the ledger with the jobs of a year, most of them done."""
    plan(stores, POI, "first")
    place.ask(
        "insert into penstock_job (import_id, dataset, shard_key, status, fence, "
        "page_seq, run_at, created_at, finished_at) "
        "select 1, 'poi', 'shard ' || n, "
        f"case when n <= {FINISHED} then 'done' else 'pending' end, 1, 1, "
        "now() - interval '1 day', now(), now() "
        f"from generate_series(1, {FINISHED + PENDING}) as n"
    )
    place.ask("vacuum analyze penstock_job")
    place.ask("analyze penstock_import")
    return stores


def reads(database: PostgresDatabase, name: str) -> set[tuple[str, str | None]]:
    """Tell how a statement reads the jobs: the kind of scan, and its index."""
    statement = f"explain (format json) {database._statements[name]}"
    with database.connections.one() as connection:
        row = connection.execute(statement.encode(), REQUESTED).fetchone()
    assert row is not None
    return {
        (node["Node Type"], node.get("Index Name"))
        for node in nodes(row["QUERY PLAN"][0]["Plan"])
        if node.get("Relation Name") == "penstock_job"
        and node["Node Type"] != "ModifyTable"
    }


@pytest.mark.parametrize(
    "name",
    [
        *("find_due_import", "claim_jobs", "has_open_jobs", "next_due"),
        *("settled_imports", "count_lost_jobs", "bury_lost_jobs"),
        *("renew_lease", "count_outstanding", "cancel_jobs"),
    ],
)
def test_no_statement_of_a_worker_reads_finished_jobs(
    ledger: Stores, database: PostgresDatabase, name: str
):
    found = reads(database, name)

    assert found
    partial = {"penstock_job_pending", "penstock_job_leased", "penstock_job_failed"}
    assert {index for _, index in found if index is not None} <= {
        *partial,
        "penstock_job_pkey",
        # one row an import
        "penstock_job_plan",
    }
    assert not {kind for kind, _ in found} & {"Seq Scan", "Parallel Seq Scan"}


def test_a_list_of_small_imports_does_not_read_the_jobs_of_a_large_one(
    ledger: Stores, database: PostgresDatabase
):
    found = reads(database, "count_jobs")

    assert found
    assert "Seq Scan" not in {kind for kind, _ in found}


def test_a_claim_takes_no_longer_with_a_million_jobs(ledger: Stores):
    plan(ledger, SMALL, *map(str, range(1000)))

    small, large = [], []
    for _ in range(60):
        # in turn, so that what else the machine does slows both
        small.append(seconds_of_claim(ledger, "small"))
        large.append(seconds_of_claim(ledger, "poi"))

    assert min(large) < 2 * min(small)
    assert statistics.median(large) < 2 * statistics.median(small)


def seconds_of_claim(stores: Stores, name: str) -> float:
    began = time.perf_counter()
    lease = claim_any(stores, {name: "d1"})
    took = time.perf_counter() - began
    assert lease is not None
    assert lease.dataset == name
    return took


class TestAPage:
    """What the server really does is told by itself, for each statement."""

    @pytest.mark.parametrize(
        "key", [("id",), ("town", "id")], ids=["one field", "two fields"]
    )
    def test_it_finds_its_rows_by_key_however_young_its_plan(
        self, stores: Stores, database: PostgresDatabase, place, key
    ):
        name = f"rows_{len(key)}"
        fields = (*POI.fields, text_field("town"))
        of = dataset(name, fields=fields, key=key)
        run(stores, of, last())
        import_id = plan(stores, of)
        lease = claim(stores, of)
        result = explained(database)

        def commit(*numbers: int) -> set[tuple[str, str]]:
            nonlocal lease
            result.clear()
            found = (record(n, f"new {n}", "here", of=of) for n in numbers)
            lease, _ = stores.ledger.commit_page(of, lease, batch(*found))
            return scans(result, name)

        commit(1_000_000)
        # the server knows that it is small
        place.ask(f"analyze {name}")
        # often enough for the driver to prepare its statements
        for number in range(1, 9):
            commit(1_000_000 + number)
        place.ask(
            f"insert into {name} (id, title, town, _digest, _import, _created_at, "
            "_updated_at) select n, 'old', 'here', '\\x00', 1, now(), now() "
            "from generate_series(1, 200000) as n"
        )

        before = commit(*range(0, 200_000, 400))
        place.ask(f"analyze {name}")
        after = commit(*range(100, 200_000, 400))

        for found in (before, after):
            assert ("Index Scan", f"{name}_pkey") in found
            kinds = {kind for kind, _ in found}
            assert kinds.isdisjoint({"Seq Scan", "Whole Index Scan"})
        assert stores.imports.get(import_id)[0].counts.updated == 999

    def test_a_known_page_finds_its_rows_by_key(
        self, stores: Stores, database: PostgresDatabase
    ):
        of = dataset("known")
        stores.schema.ensure_table(of)
        plan(stores, of)
        result = explained(database)
        page = known_page(record(1), record(2))
        lease, _ = stores.ledger.commit_page(of, claim(stores, of), page)
        result.clear()

        assert repeated(stores, lease, of=of) is not None

        assert scans(result, "known", "penstock_page") == {
            ("Index Scan", "known_pkey"),
            ("Index Scan", "penstock_page_imprint"),
            ("ModifyTable", ""),
        }


def scans(results: list[str], *names: str) -> set[tuple[str, str]]:
    """Tell how the rows of tables were read, as the server explained it."""
    found = set()
    for each in results:
        _, _, explained = each.partition("plan:")
        if explained:
            for node in nodes(json.loads(explained)["Plan"]):
                if node.get("Relation Name") in names:
                    kind = node["Node Type"]
                    if "Index Name" in node and "Index Cond" not in node:
                        kind = f"Whole {kind}"
                    found.add((kind, node.get("Index Name", "")))
    return found
