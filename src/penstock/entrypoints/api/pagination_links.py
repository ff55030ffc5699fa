"""The Link header of a page: its next and previous pages."""

from collections.abc import Mapping
from urllib.parse import urlencode

from penstock.entrypoints.api.cache.response_cache import Headers
from penstock.entrypoints.api.params.request_head import RequestHead


def link_header(head: RequestHead, cursors: Mapping[str, str | None]) -> Headers:
    """Return the Link header for cursors by relation; a cursor of None has no link."""
    others = [(name, value) for name, value in head.query if name != "cursor"]
    targets = [
        f'<{head.path}?{urlencode([*others, ("cursor", cursor)])}>; rel="{rel}"'
        for rel, cursor in cursors.items()
        if cursor is not None
    ]
    return [(b"link", ", ".join(targets).encode())] if targets else []
