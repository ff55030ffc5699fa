"""CORS for the origins that the settings name.

Other origins get no CORS headers, and browsers hide the responses from their pages.
Cookies are never used, so credentials are never allowed.
"""

from starlette.responses import Response
from starlette.types import Scope

from penstock.entrypoints.api.request_context import RequestContext

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
# seconds for which a browser may cache a preflight response
MAX_AGE = "600"


class CorsPolicy:
    def __init__(self, origins: frozenset[str]) -> None:
        self._origins = frozenset(origin.encode() for origin in origins)

    def apply(self, scope: Scope, context: RequestContext) -> Response | None:
        """Add the CORS headers; returns the response to a preflight request."""
        if not self._origins:
            return None
        context.extra_headers.append(VARY)
        origin = context.headers.get(b"origin")
        if origin not in self._origins:
            return None
        context.extra_headers.append((b"access-control-allow-origin", origin))
        has_method = b"access-control-request-method" in context.headers
        if scope["method"] == "OPTIONS" and has_method:
            headers = {
                "access-control-allow-methods": METHODS,
                "access-control-allow-headers": ALLOWED,
                "access-control-max-age": MAX_AGE,
            }
            return Response(status_code=204, headers=headers)
        context.extra_headers.append(
            (b"access-control-expose-headers", EXPOSED.encode())
        )
        return None
