"""Rate limits of clients, per process and across processes.

Every process enforces the whole rate by itself. With a shared store, a process also
takes requests from it in batches, so that most requests need no round trip. While the
store is unreachable, each process enforces the rate alone.
"""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from penstock.domain.client_rate import (
    ClientRate,
    RateDecision,
    ceil_seconds,
    charge_request,
)
from penstock.entrypoints.api.concurrency.single_flight import SingleFlight
from penstock.entrypoints.api.problems import Problem
from penstock.errors import StoreUnavailable
from penstock.ports.rate_limits import RequestBatch, SharedRateLimiter

# the most recent clients; others have been idle for long
MAX_CLIENTS = 10_000
# a burst is taken from the store in so many batches
BATCHES_PER_BURST, MAX_BATCH_SIZE = 20, 100
STORE_THREADS = 2
# seconds for which a store that failed is not used
STORE_RETRY_DELAY = 1.0


class ClientBucket:
    """The token bucket of one client, and what is left of its batch."""

    __slots__ = ("credit", "credit_until", "full_at", "left", "refused_until")

    def __init__(self) -> None:
        self.full_at = self.credit_until = self.refused_until = -1e9
        self.credit = self.left = 0


class RateLimiter:
    def __init__(
        self,
        rate: ClientRate,
        shared: SharedRateLimiter | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.rate = rate
        self.policy = f'"client";q={rate.burst};w={ceil_seconds(rate.window)}'.encode()
        # number of refused requests
        self.refused = 0
        self._shared = shared
        self._clock = clock
        self._paused_until = -1e9
        self._batch_size = max(1, min(rate.burst // BATCHES_PER_BURST, MAX_BATCH_SIZE))
        # least recently used first
        self._buckets: dict[str, ClientBucket] = {}
        self._refills: SingleFlight[None] = SingleFlight()
        self._threads = ThreadPoolExecutor(STORE_THREADS, thread_name_prefix="rates")

    async def charge(self, client: str) -> RateDecision:
        """Count a request, and decide whether it is allowed."""
        bucket = self._bucket(client)
        has_store = self._shared is not None
        wait = await self._use_credit(client, bucket) if has_store else 0.0
        return self._decide(bucket, wait)

    def charge_locally(self, client: str) -> RateDecision:
        """Count a request that is refused anyway, without a trip to the store.

        It uses the batch at hand, but takes no other.
        """
        bucket = self._bucket(client)
        wait = bucket.refused_until - self._clock()
        if wait <= 0 < bucket.credit:
            bucket.credit -= 1
        return self._decide(bucket, wait)

    def _decide(self, bucket: ClientBucket, wait: float) -> RateDecision:
        if wait > 0:
            self.refused += 1
            return RateDecision(False, bucket.full_at, 0, wait)  # noqa: FBT003 (see there)
        decision = self._charge_local(bucket)
        if bucket.credit_until > self._clock():
            left = min(decision.left, bucket.credit + bucket.left)
            return decision._replace(left=left)
        return decision

    def _charge_local(self, bucket: ClientBucket) -> RateDecision:
        decision = charge_request(self.rate, bucket.full_at, self._clock())
        if decision.is_allowed:
            bucket.full_at = decision.full_at
        else:
            self.refused += 1
        return decision

    def refusal(self, decision: RateDecision) -> Problem:
        seconds = ceil_seconds(decision.wait)
        rate = (
            f"{self.rate.requests} requests in {self.rate.period.total_seconds():g} s"
        )
        text = f"a client may send {rate}; try again in {seconds} s"
        return Problem("rate-limited", text, headers={"retry-after": str(seconds)})

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _bucket(self, client: str) -> ClientBucket:
        bucket = self._buckets.pop(client, None)
        if bucket is None:
            bucket = ClientBucket()
            if len(self._buckets) >= MAX_CLIENTS:
                del self._buckets[next(iter(self._buckets))]
        self._buckets[client] = bucket
        return bucket

    async def _use_credit(self, client: str, bucket: ClientBucket) -> float:
        """Use a request of the batch, and take another batch if there is none.

        Returns the seconds to wait if the store grants no more.
        """
        while True:
            now = self._clock()
            if bucket.credit > 0 and now < bucket.credit_until:
                bucket.credit -= 1
                return 0.0
            if now < bucket.refused_until:
                return bucket.refused_until - now
            if now < self._paused_until:
                return 0.0
            # concurrent requests of a client wait for the same batch
            await self._refills.run(partial(self._take, client, bucket), key=bucket)

    async def _take(self, client: str, bucket: ClientBucket) -> None:
        loop = asyncio.get_running_loop()
        try:
            batch = await loop.run_in_executor(self._threads, self._take_batch, client)
        except StoreUnavailable:
            self._paused_until = self._clock() + STORE_RETRY_DELAY
            return
        now = self._clock()
        bucket.credit, bucket.left = batch.granted, batch.left
        # by then the store has as much again
        bucket.credit_until = now + self.rate.window
        if not batch.granted:
            bucket.refused_until = now + max(batch.wait, self.rate.interval)

    def _take_batch(self, client: str) -> RequestBatch:
        if self._shared is None or self._clock() < self._paused_until:
            # it failed while this one waited for a thread
            raise StoreUnavailable("the shared rate limiter does not respond")
        return self._shared.take(client, self.rate, most=self._batch_size)
