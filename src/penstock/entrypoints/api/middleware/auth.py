"""Authentication, authorization and rate limits of requests."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

from starlette.types import Scope

from penstock.domain.auth_claims import Principal
from penstock.domain.client_rate import RateDecision, ceil_seconds
from penstock.entrypoints.api.client_identity import (
    bearer_token,
    client_address,
    is_allowed_origin,
    is_local_host,
)
from penstock.entrypoints.api.concurrency.thread_shares import Lane
from penstock.entrypoints.api.endpoints import AnyEndpoint
from penstock.entrypoints.api.middleware.rate_limit import RateLimiter
from penstock.entrypoints.api.problems import CHALLENGE, Problem
from penstock.entrypoints.api.request_context import RequestContext
from penstock.errors import Forbidden, Overloaded
from penstock.ports.auth import Verifier
from penstock.settings.models.api import ApiSettings

# threads that verify tokens by cached keys, and others that fetch keys first
VERIFY_THREADS, FETCH_THREADS = 4, 4
# tokens that may wait for each kind of thread
MAX_WAITING = 64
# seconds between two checks whether keys are due for renewal
RENEWAL_INTERVAL = 5.0

Outcome = TypeVar("Outcome")

SAFE = frozenset({"GET", "HEAD", "OPTIONS"})


class AccessControl:
    """Runs before everything else, the response cache included."""

    def __init__(
        self,
        settings: ApiSettings,
        verifier: Verifier | None,
        rate_limiter: RateLimiter,
    ) -> None:
        self._settings = settings
        self._verifier = verifier
        self._rate_limiter = rate_limiter
        # separate, so that a token of a cached key waits for no fetch
        self._verifying = VerifierThreads(VERIFY_THREADS, "verify")
        self._fetching = VerifierThreads(FETCH_THREADS, "keys")

    async def authorize(
        self, endpoint: AnyEndpoint, scope: Scope, context: RequestContext
    ) -> str | None:
        """Raise a problem if the client may not call the endpoint.

        Returns whom to charge for the request, if anybody.
        """
        if self._verifier is None:
            self._refuse_other_sites(scope, context)
        elif endpoint.scope is not None:
            principal = await self._principal(self._verifier, scope, context)
            # for endpoints whose result depends on the client
            scope["principal"] = principal.subject
            client = "token " + principal.subject
            is_charged = endpoint.lane is not Lane.HEALTH
            try:
                principal.require(endpoint.scope)
            except Forbidden:
                await self.charge(client if is_charged else None, context)
                raise
            return client if is_charged else None
        if endpoint.lane is Lane.HEALTH:
            return None
        return client_address(scope, self._settings.proxies)

    async def charge(self, client: str | None, context: RequestContext) -> None:
        """Count a request; raises a problem if the client has sent too many."""
        if client is not None:
            self._apply(await self._rate_limiter.charge(client), context)

    def charge_locally(self, client: str | None, context: RequestContext) -> None:
        """Count a request that is refused anyway, without a trip to Redis."""
        if client is not None:
            self._apply(self._rate_limiter.charge_locally(client), context)

    def charge_address(self, scope: Scope) -> None:
        """Count a request that matches no route, by the address of its client."""
        client = client_address(scope, self._settings.proxies)
        self.charge_locally(client, scope["context"])

    def address_of(self, scope: Scope) -> str:
        return client_address(scope, self._settings.proxies)

    async def renew_keys(self) -> None:
        """Renew the issuer's keys in time, also while there are no requests."""
        while self._verifier is not None:
            with suppress(Overloaded):
                await self._fetching.run(self._verifier.renew)
            await asyncio.sleep(RENEWAL_INTERVAL)

    def close(self) -> None:
        self._verifying.close()
        self._fetching.close()

    async def _principal(
        self, verifier: Verifier, scope: Scope, context: RequestContext
    ) -> Principal:
        token = bearer_token(context.headers)
        cached = None if token is None else verifier.cached(token)
        if cached is not None:
            return cached
        # a client that guesses tokens is identified by nothing but its address
        await self.charge(client_address(scope, self._settings.proxies), context)
        if token is None:
            text = "send the header Authorization: Bearer …, with a token of yours"
            headers = {"www-authenticate": CHALLENGE}
            raise Problem("unauthenticated", text, headers=headers)
        return await self._verify(verifier, token)

    async def _verify(self, verifier: Verifier, token: str) -> Principal:
        principal = await self._verifying.run(lambda: verifier.verify_locally(token))
        if principal is not None:
            return principal
        return await self._fetching.run(lambda: verifier.verify(token))

    def _apply(self, decision: RateDecision, context: RequestContext) -> None:
        context.rate_headers = (
            (b"ratelimit-policy", self._rate_limiter.policy),
            (b"ratelimit", format_ratelimit(decision)),
        )
        if not decision.is_allowed:
            raise self._rate_limiter.refusal(decision)

    def _refuse_other_sites(self, scope: Scope, context: RequestContext) -> None:
        """Refuse pages of other sites that only reach this API by a local browser."""
        host = context.headers.get(b"host")
        if host is not None and not is_local_host(host):
            raise Problem(
                "misdirected",
                "without [auth] this API serves its own machine only, by the names "
                "127.0.0.1, [::1] and localhost",
            )
        origin = context.headers.get(b"origin")
        if scope["method"] in SAFE or origin is None:
            return
        if not is_allowed_origin(origin, self._settings.origins):
            raise Problem(
                "forbidden",
                "a page of another site may change nothing here; name its origin in "
                "cors of [api] if it should",
            )


class VerifierThreads:
    """Threads for tokens, with a limited queue."""

    def __init__(self, number: int, name: str) -> None:
        self._executor = ThreadPoolExecutor(number, thread_name_prefix=name)
        self._waiting = 0

    async def run(self, work: Callable[[], Outcome]) -> Outcome:
        if self._waiting >= MAX_WAITING:
            raise Overloaded("tokens to be verified")
        loop = asyncio.get_running_loop()
        self._waiting += 1
        try:
            return await loop.run_in_executor(self._executor, work)
        finally:
            self._waiting -= 1

    def close(self) -> None:
        self._executor.shutdown(wait=False, cancel_futures=True)


def format_ratelimit(decision: RateDecision) -> bytes:
    return b'"client";r=%d;t=%d' % (decision.left, ceil_seconds(decision.wait))
