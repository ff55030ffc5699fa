"""Who may come in, how often, and how many at a time."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.types import Scope

from penstock.entrypoints.api.endpoints import Endpoint


class Gate:
    """Open to all."""

    async def let_in(self, endpoint: Endpoint, scope: Scope) -> None:
        """Raise a problem for whoever may not come in."""

    @asynccontextmanager
    async def lane(self, endpoint: Endpoint) -> AsyncIterator[None]:
        """Hold a place in the lane of an endpoint."""
        del endpoint
        yield
