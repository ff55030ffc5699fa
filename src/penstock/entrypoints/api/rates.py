"""How often each client asks: counted here, and by all processes together.

Every process holds each client to the whole rate by itself. Where a store is shared, a
process also takes requests from it in chunks, so that most of them ask nobody. Without
the store nobody is stopped: each process goes on by its own count.
"""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from penstock.domain.rates import Rate, Standing, charged, whole_seconds
from penstock.entrypoints.api.problems import Problem
from penstock.errors import StoreUnavailable
from penstock.ports.limits import Chunk, SharedRates

# those who asked last; of others is known that they did not ask for long
MOST_CLIENTS = 10_000
# one request in so many of a burst asks the store
CHUNKS_A_BURST, LARGEST_CHUNK = 20, 100
ASKING = 2
# seconds for which a store that failed is not asked
REST = 1.0


class Account:
    """What one client has used, and what it may use of a chunk."""

    __slots__ = ("asking", "credit", "credit_until", "full_at", "left", "refused_until")

    def __init__(self) -> None:
        self.full_at = self.credit_until = self.refused_until = -1e9
        self.credit = self.left = 0
        self.asking: asyncio.Task[None] | None = None


class Rates:
    def __init__(
        self,
        rate: Rate,
        shared: SharedRates | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.rate = rate
        self.policy = f'"client";q={rate.burst};w={whole_seconds(rate.window)}'.encode()
        # how often somebody was refused
        self.refused = 0
        self._shared = shared
        self._clock = clock
        self._rests_until = -1e9
        self._chunk = max(1, min(rate.burst // CHUNKS_A_BURST, LARGEST_CHUNK))
        # who asked last is at the end
        self._accounts: dict[str, Account] = {}
        self._threads = ThreadPoolExecutor(ASKING, thread_name_prefix="rates")

    async def charge(self, client: str) -> Standing:
        """Count a request; one that is not allowed is told how long to wait."""
        account = self._account(client)
        if self._shared is None:
            return self._charge_here(account)
        wait = await self._draw(client, account)
        if wait > 0:
            self.refused += 1
            return Standing(False, account.full_at, 0, wait)  # noqa: FBT003 (see there)
        standing = self._charge_here(account)
        if account.credit_until > self._clock():
            left = min(standing.left, account.credit + account.left)
            return standing._replace(left=left)
        return standing

    def _charge_here(self, account: Account) -> Standing:
        standing = charged(self.rate, account.full_at, self._clock())
        if standing.is_allowed:
            account.full_at = standing.full_at
        else:
            self.refused += 1
        return standing

    def refusal(self, standing: Standing) -> Problem:
        seconds = whole_seconds(standing.wait)
        often = f"{self.rate.requests} times in {self.rate.period.total_seconds():g} s"
        told = f"one client may ask {often}; ask again in {seconds} s"
        return Problem("rate-limited", told, headers={"retry-after": str(seconds)})

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _account(self, client: str) -> Account:
        account = self._accounts.pop(client, None)
        if account is None:
            account = Account()
            if len(self._accounts) >= MOST_CLIENTS:
                del self._accounts[next(iter(self._accounts))]
        self._accounts[client] = account
        return account

    async def _draw(self, client: str, account: Account) -> float:
        """Use up what was taken from the store, and take more at need.

        Returns how many seconds to wait where there is no more.
        """
        while True:
            now = self._clock()
            if account.credit > 0 and now < account.credit_until:
                account.credit -= 1
                return 0.0
            if now < account.refused_until:
                return account.refused_until - now
            if now < self._rests_until:
                return 0.0
            await self._take(client, account)

    async def _take(self, client: str, account: Account) -> None:
        """Take a chunk; all requests of a client that need one wait for the same."""
        if account.asking is None or account.asking.done():
            account.asking = asyncio.ensure_future(self._ask(client, account))
        await asyncio.shield(account.asking)

    async def _ask(self, client: str, account: Account) -> None:
        loop = asyncio.get_running_loop()
        try:
            chunk = await loop.run_in_executor(self._threads, self._take_chunk, client)
        except StoreUnavailable:
            self._rests_until = self._clock() + REST
            return
        now = self._clock()
        account.credit, account.left = chunk.granted, chunk.left
        # by then the store has as much again
        account.credit_until = now + self.rate.window
        if not chunk.granted:
            account.refused_until = now + max(chunk.wait, self.rate.interval)

    def _take_chunk(self, client: str) -> Chunk:
        if self._shared is None or self._clock() < self._rests_until:
            # it failed while this one waited for a thread
            raise StoreUnavailable("the shared count does not answer")
        return self._shared.take(client, self.rate, most=self._chunk)
