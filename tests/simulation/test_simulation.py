"""Hundreds of small worlds, each from a seed, in which promises have to hold.

`PENSTOCK_SEEDS=453` or `PENSTOCK_SEEDS=0-5000` runs those seeds instead of the usual
ones; `make soak` runs thousands.
"""

import os
import subprocess
import sys
from collections import Counter
from hashlib import blake2b

import pytest

from tests.simulation.simulation import Sabotage, simulate
from tests.simulation.world import SimulationFailed

USUAL = range(300)
MORE = range(1_000, 6_000)
CHUNK = 25
# how many seeds may pass before a sabotaged world has to fail
SEARCHED = 300


def wanted_seeds() -> range:
    response = os.environ.get("PENSTOCK_SEEDS")
    if response is None:
        return USUAL
    first, _, last = response.partition("-")
    return range(int(first), int(last or first) + 1)


def chunks(seeds: range, size: int) -> list[range]:
    return [seeds[at : at + size] for at in range(0, len(seeds), size)]


def name_of(seeds: range) -> str:
    return f"{seeds[0]}-{seeds[-1]}"


def find_failure(sabotage: Sabotage) -> str | None:
    """Return what the first seed that fails complains of."""
    for seed in range(SEARCHED):
        try:
            simulate(seed, sabotage=sabotage)
        except SimulationFailed as failed:
            return failed.failure
    return None


@pytest.mark.parametrize("seeds", chunks(wanted_seeds(), CHUNK), ids=name_of)
def test_promises_hold_in_every_world(seeds: range):
    for seed in seeds:
        simulate(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", chunks(MORE, 500), ids=name_of)
def test_promises_hold_in_many_more_worlds(seeds: range):
    for seed in seeds:
        simulate(seed)


def test_the_same_seed_gives_the_same_trace():
    for seed in range(15):
        assert simulate(seed).trace == simulate(seed).trace


def test_another_process_gives_the_same_trace():
    results = []
    for hash_seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-m", "tests.simulation.test_simulation"],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        results.append(done.stdout.strip())
    assert results == [digest_of_traces()] * 2


def digest_of_traces() -> str:
    traces = [simulate(seed).trace for seed in range(5)]
    return blake2b("\n".join(traces).encode()).hexdigest()


def test_different_seeds_give_different_worlds():
    assert len({simulate(seed).trace for seed in range(10)}) == 10


def test_the_storm_brings_every_fault_and_the_work_goes_on():
    total: Counter[str] = Counter()
    for seed in range(60):
        tally = simulate(seed).tally
        total.update(tally.faults)
        total.update(
            requests=tally.requests,
            pages=tally.pages,
            rescues=tally.rescues,
            splits=tally.splits,
        )
    expected = {
        *("crash", "pause", "terminate", "cancel"),
        *("unavailable", "lost_reply", "torn", "replay"),
        *("source_unavailable", "throttled", "stopped", "request_refused", "moved"),
        *("rescues", "splits"),
    }
    assert {name for name in expected if total[name] < 3} == set()
    assert total["pages"] > 500
    assert total["requests"] < 2 * total["pages"]


FENCED = (
    *("renew_lease", "advance_job", "postpone_job"),
    *("release_job", "fail_job", "split_job"),
)
WITHOUT_FENCE = Sabotage(statements=dict.fromkeys(FENCED, (" and fence = :fence", "")))
WITHOUT_PAGE_NUMBER = Sabotage(
    statements={"advance_job": (" and page_seq = :page_seq", "")}
)
WITHOUT_TRANSACTIONS = Sabotage(without_transactions=True)
WITHOUT_RENEWAL = Sabotage(
    statements={"renew_lease": ("lease_until = :now + :lease", "fence = fence")}
)
COMMITS_WITHOUT_RENEWAL = Sabotage(
    statements={"advance_job": ("then :now + :lease", "then lease_until")}
)


def test_without_the_fence_the_simulation_fails():
    assert "while" in (find_failure(WITHOUT_FENCE) or "")


def test_without_the_page_number_the_simulation_fails():
    assert "a page replayed" in (find_failure(WITHOUT_PAGE_NUMBER) or "")


def test_without_transactions_the_simulation_fails():
    assert find_failure(WITHOUT_TRANSACTIONS) is not None


def test_without_renewed_leases_the_simulation_fails():
    assert "held it" in (find_failure(WITHOUT_RENEWAL) or "")


def test_with_commits_that_renew_no_lease_the_simulation_fails():
    assert "held it" in (find_failure(COMMITS_WITHOUT_RENEWAL) or "")


@pytest.mark.parametrize(
    "sabotage",
    [
        pytest.param(
            Sabotage(statements={"claim_jobs": ("fence = fence + 1", "fence = fence")}),
            id="a claim does not raise the fence",
        ),
        pytest.param(
            Sabotage(
                statements={
                    "find_due_import": ("lease_until < :now", "lease_until > 0"),
                    "claim_jobs": ("lease_until < :now", "lease_until > 0"),
                }
            ),
            id="a lease that still runs is taken over",
        ),
        pytest.param(
            Sabotage(statements={"advance_job": ("cursor = :cursor", "cursor = null")}),
            id="the cursor is not kept",
        ),
        pytest.param(
            Sabotage(
                statements={
                    "cancel_jobs": ("('pending', 'leased')", "('pending')"),
                }
            ),
            id="a cancelled import leaves its leased jobs",
        ),
        pytest.param(
            Sabotage(
                statements={"count_import": ("seen = seen + :seen", "seen = seen")}
            ),
            id="rows are not counted",
        ),
        pytest.param(
            Sabotage(
                statements={
                    "advance_dataset": (
                        "change_seq = change_seq + :changes",
                        "change_seq = change_seq + :changes + 1",
                    )
                }
            ),
            id="the change feed has gaps",
        ),
        pytest.param(
            Sabotage(
                statements={"set_usage": ("set usage = :usage", "set usage = usage")}
            ),
            id="a token costs nothing",
        ),
        pytest.param(
            Sabotage(deaf=frozenset({"budgets.close"})),
            id="a throttled budget stays open",
        ),
        pytest.param(
            Sabotage(deaf=frozenset({"budgets.stop"})),
            id="a stopped budget stays open",
        ),
        pytest.param(
            Sabotage(deaf=frozenset({"budgets.confirm"})),
            id="a token is not confirmed after its wait",
        ),
        pytest.param(
            Sabotage(deaf=frozenset({"imports.close"})),
            id="nobody closes an import",
        ),
    ],
)
def test_a_sabotaged_world_fails(sabotage: Sabotage):
    assert find_failure(sabotage) is not None


if __name__ == "__main__":
    print(digest_of_traces())  # noqa: T201 (read by the test of another process)
