"""Render pages: templates, their filters, and the headers of every page."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import Response

from penstock import __version__
from penstock.domain.formats import format_instant
from penstock.domain.mapping.documents import write_spaced
from penstock.entrypoints.api.cache.response_cache import etag_matches
from penstock.entrypoints.api.context import AppContext

# nothing comes from elsewhere, and nothing inline runs or styles
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
# sent by the page itself, which only needs its content
FRAGMENT_HEADER = "x-penstock-fragment"
# its value after an action
FRESH = "fresh"
# control characters and marks of direction, which could disguise a text
CONTROL: Mapping[int, str] = {
    **{code: chr(0x2400 + code) for code in range(32) if chr(code) not in "\t\n"},
    0x7F: chr(0x2421),
    **dict.fromkeys(
        [*range(0x202A, 0x202F), *range(0x2066, 0x206A)], "\N{SYMBOL FOR SUBSTITUTE}"
    ),
    0x200E: "\N{SYMBOL FOR SUBSTITUTE}",
    0x200F: "\N{SYMBOL FOR SUBSTITUTE}",
}
UNITS = (
    ("d", timedelta(days=1)),
    ("h", timedelta(hours=1)),
    ("min", timedelta(minutes=1)),
    ("s", timedelta(seconds=1)),
)
# from here on, tenths of a second are of no interest
SHOWN_WHOLE = timedelta(seconds=10)


class View(NamedTuple):
    """What a page shows: a template and its values."""

    template: str
    title: str
    # the entry of the navigation
    place: str
    values: Mapping[str, Any]


async def send_page(
    api: AppContext, request: Request, build: Callable[[], View]
) -> Response:
    """Send a page, or only its content to the page itself."""
    is_fragment = FRAGMENT_HEADER in request.headers
    is_fresh = request.headers.get(FRAGMENT_HEADER) == FRESH
    key = f"{is_fragment} {request.url.path}?{request.url.query}"

    def render() -> str:
        page = build()
        values = {**shared_values(api), **page._asdict(), **page.values}
        layout = "fragment.html" if is_fragment else "layout.html"
        return environment().get_template(page.template).render(layout=layout, **values)

    rendered = await api.in_thread(
        lambda: api.pages.get(key, render, is_fresh=is_fresh)
    )
    headers = {
        "content-security-policy": CONTENT_SECURITY_POLICY,
        "cache-control": "no-store" if not is_fragment else "private, no-cache",
        "etag": rendered.etag,
        "vary": FRAGMENT_HEADER,
        "referrer-policy": "no-referrer",
    }
    tags = request.headers.get("if-none-match")
    if tags is not None and etag_matches(
        rendered.etag.encode(), tags.encode("latin-1")
    ):
        return Response(status_code=304, headers=headers)
    return Response(rendered.html, media_type="text/html", headers=headers)


def shared_values(api: AppContext) -> Mapping[str, Any]:
    settings = api.penstock.settings
    return {
        # whether the page asks for its content again and again
        "live": "on",
        # a module of the page's own
        "script": None,
        "quarantine_link": f"/quarantine/{min(settings.datasets)}",
        "records_link": f"/datasets/{min(settings.datasets)}",
        "instance": settings.path.resolve().parent.name,
        "version": __version__,
        "database": "SQLite" if settings.postgres_url is None else "PostgreSQL",
    }


@cache
def environment() -> Environment:
    env = Environment(
        loader=PackageLoader("penstock.entrypoints.dashboard"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.filters.update(
        number=number,
        duration=duration,
        instant=instant,
        precise=format_instant,
        span=span,
        ago=ago,
        visible=visible,
        json_text=json_text,
    )
    env.globals["now"] = lambda: datetime.now(UTC)
    return env


def number(value: float | None) -> str:
    """Write a number with thin groups: `12 345`."""
    if value is None:
        return "\N{EN DASH}"
    text = f"{value:,}" if value == int(value) else f"{value:,.1f}"
    return text.replace(",", "\N{NARROW NO-BREAK SPACE}")


def duration(value: timedelta | float | None) -> str:
    """Write the two largest units: `2 h 5 min`."""
    if value is None:
        return "\N{EN DASH}"
    left = value if isinstance(value, timedelta) else timedelta(seconds=value)
    if left < timedelta(seconds=1):
        return "0 s"
    parts: list[str] = []
    for name, unit in UNITS:
        count, left = divmod(left, unit)
        # `2 d 5 s` would say more than is meant
        if count or parts:
            parts.append(f"{count} {name}")
    shown = [part for part in parts[:2] if not part.startswith("0 ")]
    return " ".join(shown).replace(" ", "\N{NO-BREAK SPACE}")


def span(value: timedelta) -> str:
    """Write how long something took, also if that was less than a second."""
    if value >= SHOWN_WHOLE:
        return duration(value)
    seconds = value.total_seconds()
    text = f"{seconds:.1f} s" if value >= UNITS[-1][1] else f"{seconds * 1000:.0f} ms"
    return text.replace(" ", "\N{NO-BREAK SPACE}")


def instant(value: datetime | None) -> str:
    return "" if value is None else format_instant(value.replace(microsecond=0))


def ago(value: datetime | None, now: datetime) -> str:
    """Write a time as seen from now: `5 min ago`, `in 2 h`."""
    if value is None:
        return "never"
    distance = now - value
    if abs(distance) < timedelta(seconds=1):
        return "now"
    if distance < timedelta():
        return f"in {duration(-distance)}"
    return f"{duration(distance)} ago"


def visible(value: object) -> str:
    """Show control characters and marks of direction as symbols."""
    return str(value).translate(CONTROL)


def json_text(value: object) -> str:
    return write_spaced(value)
