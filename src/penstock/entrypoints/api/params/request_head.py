"""The head of a request: all that its parameters are parsed from."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from starlette.datastructures import Headers, QueryParams
from starlette.types import Scope

# bytes of memory beside the text itself: per request, parameter and value of a list
HEAD_OVERHEAD, PARAM_OVERHEAD, VALUE_OVERHEAD = 1_500, 400, 60


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestHead:
    path: str
    # the variable parts of the path, and the path as it was sent
    parts: Mapping[str, str]
    raw_path: bytes
    query: Sequence[tuple[str, str]]
    # of a request whose response is cached, only those that are part of its key
    headers: Headers

    @property
    def size(self) -> int:
        """Return about how many bytes of memory it takes, with the parsed query."""
        texts = [self.path, *self.parts.values(), *chain(*self.query)]
        texts += self.headers.values()
        # twice: as text, and parsed
        text_bytes = 2 * sum(map(sys.getsizeof, texts)) + len(self.raw_path)
        values = sum(value.count(",") for _, value in self.query)
        overhead = PARAM_OVERHEAD * len(self.query) + VALUE_OVERHEAD * values
        return HEAD_OVERHEAD + text_bytes + overhead


def head_of_request(scope: Scope, headers: Headers) -> RequestHead:
    return RequestHead(
        path=scope["path"],
        parts=scope["path_params"],
        raw_path=scope["raw_path"],
        query=QueryParams(scope["query_string"]).multi_items(),
        headers=headers,
    )
