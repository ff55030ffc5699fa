"""Penstock on empty jobs: `python -m bench.jobs CONFIG THREADS`, after `plan`.

The ledger alone: claim, and commit the last page of a shard that has no records.
"""

import os
import sys
import threading
from pathlib import Path

from penstock.domain.pages import Batch, Proof
from penstock.flow.job_claimer import Worker
from penstock.settings import load
from penstock.wiring import build_runtime, new_worker_id, open_container

EMPTY = Batch(records=(), seen=0, proof=Proof.EMPTY_PAGE)


def empty(penstock, dataset, claims, declarations):
    while (claim := claims.take(declarations)) is not None:
        penstock.stores.ledger.commit_page(dataset, claim.lease, EMPTY)


def main():
    settings, threads = load(Path(sys.argv[1]), os.environ), int(sys.argv[2])
    with open_container(settings, lambda _: None, threads=threads) as penstock:
        dataset = settings.dataset("points")
        claims = penstock.claims(
            Worker(owner=new_worker_id()), build_runtime(threading.Event())
        )
        declarations = penstock.declarations(["points"])
        running = [
            threading.Thread(
                target=empty, args=(penstock, dataset, claims, declarations)
            )
            for _ in range(threads)
        ]
        print("ready", flush=True)
        sys.stdin.readline()
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()


if __name__ == "__main__":
    main()
