"""Let threads or processes do things at the same moment."""

import multiprocessing
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Barrier
from typing import Any

from penstock.errors import PenstockError

Told = list[Any]


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


def in_processes(
    work: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]
) -> list[Any]:
    """Run a function of a module in processes, at the same moment, once for each."""
    # forked from a process that has loaded everything, and has no threads or lines
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([work.__module__])
    told: SimpleQueue[Any] = context.SimpleQueue()
    start = context.Barrier(len(arguments))
    processes = [
        context.Process(target=tell, args=(work, each, told, start))
        for each in arguments
    ]
    for process in processes:
        process.start()
    found = [told.get() for _ in processes]
    for process in processes:
        process.join()
    told.close()
    for each in found:
        if isinstance(each, Exception):
            raise each
    return found


def tell(
    work: Callable[..., Any],
    arguments: tuple[Any, ...],
    told: SimpleQueue[Any],
    start: Barrier,
) -> None:
    # a process takes longer to start than to work
    start.wait()
    try:
        told.put(work(*arguments))
    except Exception as error:  # noqa: BLE001 (told to whoever started us)
        told.put(RuntimeError(repr(error)))
