"""What is stored per minute is what the ledger and the provider counted."""

import pytest

from penstock.domain.rollups import LATENCY_SERIES, REQUEST_SERIES
from tests.support.stores import everywhere
from tests.support.workshop import Workshop, wait_until

RECORDS = ("seen", "inserted", "updated", "unchanged", "quarantined", "dropped")


def sums(workshop: Workshop, kind: str) -> dict[str, int]:
    """Add up all samples and rollups of a kind, by series."""
    found = workshop.ask(
        "select series, sum(value) as total from ("
        "select kind, series, value from penstock_rollup "
        "union all select kind, series, value from penstock_sample) as found "
        "where kind = ? group by series",
        kind,
    )
    return {row["series"]: int(row["total"]) for row in found}


@everywhere
@pytest.mark.parametrize("workers", [1, 2])
def test_a_run_ends_with_the_counts_of_its_ledger(open_workshop, workers):
    workshop = open_workshop(records=400)
    workshop.declare(workshop.by_country(size=20))

    ran = workshop.penstock("run", "poi", "--workers", str(workers), "--json")

    assert ran.code == 0
    counts = workshop.ask(f"select * from {workshop.store.totals}")[0]
    found, budget = sums(workshop, "dataset"), sums(workshop, "budget")
    assert found["pages"] == counts["pages"]
    assert {name: found.get(name, 0) for name in RECORDS} == {
        name: counts[name] for name in RECORDS
    }
    requests = sum(found.get(name, 0) for name in REQUEST_SERIES)
    assert requests == counts["requests"] == len(workshop.sandbox.requests)
    assert requests == found["requests_2xx"] == budget["tokens"]
    assert requests == sum(found.get(name, 0) for name in LATENCY_SERIES)
    assert found["latency_us"] > 0


@everywhere
def test_a_killed_worker_doubles_nothing(open_workshop):
    workshop = open_workshop(records=400)
    workshop.declare(workshop.by_country(size=20), rate=20, burst=1)
    workshop.penstock("plan", "poi")
    killed = workshop.worker()
    wait_until(lambda: workshop.pages() > 3)

    killed.kill()
    assert workshop.penstock("worker", "--until-idle").code == 0

    found = sums(workshop, "dataset")
    counts = workshop.ask(f"select * from {workshop.store.totals}")[0]
    assert 0 < found["pages"] <= counts["pages"]
    assert found["seen"] <= counts["seen"]
