"""The neighbours of a page, as the Link header names them."""

from collections.abc import Mapping
from urllib.parse import urlencode

from penstock.entrypoints.api.answers import Asked, Headers


def links(asked: Asked, ways: Mapping[str, str | None]) -> Headers:
    """Return the addresses of neighbours by their cursors; those of None are none."""
    others = [(name, value) for name, value in asked.query if name != "cursor"]
    found = [
        f'<{asked.path}?{urlencode([*others, ("cursor", cursor)])}>; rel="{way}"'
        for way, cursor in ways.items()
        if cursor is not None
    ]
    return [(b"link", ", ".join(found).encode())] if found else []
