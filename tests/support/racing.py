"""Let threads or processes do things at the same moment, and look at what they did."""

import multiprocessing
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Barrier
from typing import Any

from penstock.domain.jobs import ImportStatus, WorkerId
from penstock.errors import PenstockError
from penstock.ports import Stores
from tests.support.builders import batch, claim_any, dataset, ids, last, record

Results = list[Any]
POI = dataset()
PAGES = 4


def in_threads(*works: Callable[[], Any]) -> list[Any]:
    """Run these at the same moment; return what each returned, or our own error."""
    start = threading.Barrier(len(works))

    def together(work: Callable[[], Any]) -> Any:
        start.wait()
        try:
            return work()
        except PenstockError as error:
            return error

    with ThreadPoolExecutor(len(works)) as pool:
        return list(pool.map(together, works))


def errors_in(results: Iterable[Any]) -> list[Exception]:
    return [each for each in results if isinstance(each, Exception)]


def in_processes(
    work: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]
) -> list[Any]:
    """Run a function of a module in processes, at the same moment, once for each."""
    # forked from a process that has loaded everything, and has no threads or lines
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([work.__module__])
    results: SimpleQueue[Any] = context.SimpleQueue()
    start = context.Barrier(len(arguments))
    processes = [
        context.Process(target=tell, args=(work, each, results, start))
        for each in arguments
    ]
    for process in processes:
        process.start()
    found = [results.get() for _ in processes]
    for process in processes:
        process.join()
    results.close()
    for error in errors_in(found):
        raise error
    return found


def tell(
    work: Callable[..., Any],
    arguments: tuple[Any, ...],
    results: SimpleQueue[Any],
    start: Barrier,
) -> None:
    # a process takes longer to start than to work
    start.wait()
    try:
        results.put(work(*arguments))
    except Exception as error:  # noqa: BLE001 (told to whoever started us)
        results.put(RuntimeError(repr(error)))


def work_off(stores: Stores, worker: str) -> Results:
    """Work until nothing is left; tell each claim, and each page committed."""
    done: Results = []
    while lease := claim_any(stores, {"poi": "d1"}, owner=WorkerId(worker)):
        done.append(("claim", lease.job, lease.fence))
        number = lease.page_seq
        while number < PAGES:
            number += 1
            found = record(int(lease.shard_key) * 100 + number)
            page = last(found) if number == PAGES else batch(found)
            lease, _ = stores.ledger.commit_page(POI, lease, page)
            done.append(("page", lease.job, number))
            if number == PAGES // 2:
                # let somebody else go on
                stores.ledger.release(lease)
                break
        stores.imports.close(POI, lease.import_id, failed=None)
    return done


def assert_each_once(stores: Stores, done: Iterable[Any], shards: int) -> None:
    counted = Counter(done)
    assert set(counted.values()) == {1}
    pages = [page for page in counted if page[0] == "page"]
    assert len(pages) == shards * PAGES
    expected = [n * 100 + page for n in range(shards) for page in range(1, PAGES + 1)]
    assert ids(stores, POI) == expected
    (ended, found), *_ = stores.imports.recent(dataset="poi", limit=1)
    assert (ended.status, ended.proven) == (ImportStatus.DONE, True)
    assert (ended.counts.pages, ended.counts.inserted) == (len(pages), len(pages))
    assert found.done == shards
