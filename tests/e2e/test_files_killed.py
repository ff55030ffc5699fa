"""Kill workers in the middle of a large file; then hold it against the file itself."""

from random import Random

import pytest

from tests.support.shops import (
    committed,
    counts_of,
    lines,
    only,
    shops,
    some_shops,
    stored,
    write,
)
from tests.support.stores import everywhere
from tests.support.workshop import Workshop, wait_until

# so many rows come again with other values, in other shards
REPEATED = 1_000


def check_kills(workshop: Workshop, *, rows: int, kills: int, pages: int) -> None:
    """Kill one of two workers after every so many pages, then let it be finished."""
    known = some_shops(rows)
    chosen = Random(1).sample(sorted(known), REPEATED)
    again = {key: (f"again {key}", None) for key in chosen}
    write(workshop.folder / "a.csv", lines(known), lines(again))
    workshop.declare(shops(source='shard = "512KiB"'), lease="2500ms")
    assert workshop.penstock("plan", "shops").code == 0

    killed = kill_again_and_again(workshop, kills=kills, pages=pages)
    workshop.penstock("jobs", "retry", "--failed")
    ran = workshop.penstock("run", "shops", "--json", timeout=1_000)

    assert killed >= kills / 2
    assert ran.code == 0, ran.err
    assert ran.json["rescues"] >= 1
    assert only(counts_of(ran)) == {
        "seen": rows + REPEATED,
        "inserted": rows,
        "duplicates": REPEATED,
    }
    assert stored(workshop) == known | again
    assert sum(page["seen"] for page in committed(workshop)) == rows + REPEATED
    assert workshop.penstock("audit", "shops").code == 0


def kill_again_and_again(workshop: Workshop, *, kills: int, pages: int) -> int:
    workers = [workshop.worker(threads=2) for _ in range(2)]
    wait_until(workshop.pages)
    killed = 0
    while killed < kills and not workshop.is_finished():
        go_on(workshop, pages)
        workers[killed % 2].kill()
        workers[killed % 2].wait()
        workers[killed % 2] = workshop.worker(threads=2)
        killed += 1
    for worker in workers:
        worker.kill()
        worker.wait()
    return killed


def go_on(workshop: Workshop, pages: int) -> None:
    """Wait for so many more pages, or the end."""
    aim = workshop.pages() + pages
    wait_until(lambda: workshop.pages() >= aim or workshop.is_finished())


@everywhere
def test_workers_killed_in_the_middle_of_a_file_lose_and_double_nothing(file_workshop):
    check_kills(file_workshop, rows=150_000, kills=4, pages=3)


@pytest.mark.slow
@everywhere
def test_workers_killed_in_two_million_rows_lose_and_double_nothing(file_workshop):
    check_kills(file_workshop, rows=2_000_000, kills=40, pages=8)
