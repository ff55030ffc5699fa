"""Who may come in, and how often."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

from starlette.types import Scope

from penstock.domain.access import Principal
from penstock.domain.lanes import Lane
from penstock.domain.rates import Standing, whole_seconds
from penstock.entrypoints.api.access import (
    bearer_token,
    client_of,
    is_from_here,
    is_here,
)
from penstock.entrypoints.api.endpoints import Endpoint
from penstock.entrypoints.api.exchange import Exchange
from penstock.entrypoints.api.problems import CHALLENGE, Problem
from penstock.entrypoints.api.rates import Rates
from penstock.errors import Overloaded
from penstock.ports.access import Verifier
from penstock.settings.declared_api import ApiSettings

# threads that verify tokens by the keys at hand, and others that fetch keys for them
JUDGING, FETCHING = 4, 4
# tokens that may wait for each kind of thread
MOST_TO_VERIFY = 64
# seconds between two looks whether keys are due
RENEWED_EVERY = 5.0

Outcome = TypeVar("Outcome")

SAFE = frozenset({"GET", "HEAD", "OPTIONS"})


class Gate:
    """Decides before anything else is looked at, the answers that are kept included."""

    def __init__(
        self, settings: ApiSettings, verifier: Verifier | None, rates: Rates
    ) -> None:
        self._settings = settings
        self._verifier = verifier
        self._rates = rates
        # apart, so that a token of a known key waits for no fetch
        self._judging = Threads(JUDGING, "verify")
        self._fetching = Threads(FETCHING, "keys")

    async def let_in(
        self, endpoint: Endpoint, scope: Scope, exchange: Exchange
    ) -> None:
        """Raise a problem for whoever may not come in."""
        if self._verifier is None:
            self._refuse_other_sites(scope, exchange)
        elif endpoint.scope is not None:
            principal = await self._principal(self._verifier, scope, exchange)
            # who asks, for those who tell clients apart
            scope["principal"] = principal.subject
            if endpoint.lane is not Lane.HEALTH:
                await self._charge("token " + principal.subject, exchange)
            principal.demand(endpoint.scope)
            return
        if endpoint.lane is not Lane.HEALTH:
            await self._charge(client_of(scope, self._settings.proxies), exchange)

    async def charge_address(self, scope: Scope) -> None:
        """Count a request that no route takes, by the address of its client."""
        client = client_of(scope, self._settings.proxies)
        await self._charge(client, scope["exchange"])

    async def renew_keys(self) -> None:
        """Keep the issuer's keys fresh, also while nobody comes with a token."""
        while self._verifier is not None:
            with suppress(Overloaded):
                await self._fetching.run(self._verifier.renew)
            await asyncio.sleep(RENEWED_EVERY)

    def close(self) -> None:
        self._judging.close()
        self._fetching.close()

    async def _principal(
        self, verifier: Verifier, scope: Scope, exchange: Exchange
    ) -> Principal:
        token = bearer_token(exchange.headers)
        known = None if token is None else verifier.known(token)
        if known is not None:
            return known
        # whoever tries tokens is known by nothing but its address
        await self._charge(client_of(scope, self._settings.proxies), exchange)
        if token is None:
            told = "send the header Authorization: Bearer …, with a token of yours"
            headers = {"www-authenticate": CHALLENGE}
            raise Problem("unauthenticated", told, headers=headers)
        return await self._verify(verifier, token)

    async def _verify(self, verifier: Verifier, token: str) -> Principal:
        principal = await self._judging.run(lambda: verifier.judge(token))
        if principal is not None:
            return principal
        return await self._fetching.run(lambda: verifier.verify(token))

    async def _charge(self, client: str, exchange: Exchange) -> None:
        standing = await self._rates.charge(client)
        exchange.rate = (
            (b"ratelimit-policy", self._rates.policy),
            (b"ratelimit", told(standing)),
        )
        if not standing.is_allowed:
            raise self._rates.refusal(standing)

    def _refuse_other_sites(self, scope: Scope, exchange: Exchange) -> None:
        """Keep pages of other sites from asking what this machine alone may ask."""
        host = exchange.headers.get(b"host")
        if host is not None and not is_here(host):
            raise Problem(
                "misdirected",
                "without [auth] this API serves its own machine only, by the names "
                "127.0.0.1, [::1] and localhost",
            )
        origin = exchange.headers.get(b"origin")
        if scope["method"] in SAFE or origin is None:
            return
        if not is_from_here(origin, self._settings.origins):
            raise Problem(
                "forbidden",
                "a page of another site may change nothing here; name its origin in "
                "cors of [api] if it should",
            )


class Threads:
    """Threads for tokens, for which only so many may wait."""

    def __init__(self, number: int, name: str) -> None:
        self._executor = ThreadPoolExecutor(number, thread_name_prefix=name)
        self._waiting = 0

    async def run(self, work: Callable[[], Outcome]) -> Outcome:
        if self._waiting >= MOST_TO_VERIFY:
            raise Overloaded("tokens to be verified")
        loop = asyncio.get_running_loop()
        self._waiting += 1
        try:
            return await loop.run_in_executor(self._executor, work)
        finally:
            self._waiting -= 1

    def close(self) -> None:
        self._executor.shutdown(wait=False, cancel_futures=True)


def told(standing: Standing) -> bytes:
    return b'"client";r=%d;t=%d' % (standing.left, whole_seconds(standing.wait))
