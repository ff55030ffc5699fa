"""Let pages of other sites ask in a browser, if the settings name their origins.

Without a name nothing is said, and browsers keep what we answer from such pages. No
cookie is ever looked at, so credentials are never allowed.
"""

from starlette.responses import Response
from starlette.types import Scope

from penstock.entrypoints.api.exchange import Exchange

EXPOSED = (
    "ETag, Link, Location, Preference-Applied, RateLimit, RateLimit-Policy, "
    "Retry-After, X-Consistency-Token, X-Trace-Id"
)
ALLOWED = (
    "Authorization, Content-Type, Idempotency-Key, If-Match, If-None-Match, "
    "Last-Event-ID, Prefer, Traceparent, X-Consistency-Token"
)
METHODS = "GET, HEAD, POST, PUT, PATCH, DELETE"
VARY = (b"vary", b"origin")
# seconds for which a browser need not ask again
LONGEST = "600"


class Cors:
    def __init__(self, origins: frozenset[str]) -> None:
        self._origins = frozenset(each.encode() for each in origins)

    def greet(self, scope: Scope, exchange: Exchange) -> Response | None:
        """Say who may read the answer; return it if only that was asked."""
        if not self._origins:
            return None
        exchange.extra.append(VARY)
        origin = exchange.headers.get(b"origin")
        if origin not in self._origins:
            return None
        exchange.extra.append((b"access-control-allow-origin", origin))
        asked = b"access-control-request-method" in exchange.headers
        if scope["method"] == "OPTIONS" and asked:
            headers = {
                "access-control-allow-methods": METHODS,
                "access-control-allow-headers": ALLOWED,
                "access-control-max-age": LONGEST,
            }
            return Response(status_code=204, headers=headers)
        exchange.extra.append((b"access-control-expose-headers", EXPOSED.encode()))
        return None
