"""The [api] table."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Annotated, TypeAlias
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator

from penstock.domain.budget import Limit
from penstock.domain.client_rate import ClientRate
from penstock.settings import units
from penstock.settings.models.base import Rate as DeclaredRate
from penstock.settings.models.base import Size, Text, TomlModel, as_list
from penstock.settings.validation_errors import InvalidValue, Problem

Network: TypeAlias = IPv4Network | IPv6Network

DEFAULT_RATE = Limit(requests=1000, period=timedelta(seconds=1))
DEFAULT_MAX_BODY = 8 * 1024 * 1024
# bodies are read into memory
MAX_BODY_LIMIT = 256 * 1024 * 1024


def as_origin(value: str) -> str:
    """Check an origin: it must be as browsers send it."""
    invalid = f"{value!r} is not an origin such as 'https://app.example.org'"
    if value == "*":
        raise InvalidValue(
            "'*' would let every page ask in a user's name; name each origin"
        )
    try:
        split = urlsplit(value)
        has_port = split.port is not None
    except ValueError:
        raise InvalidValue(invalid) from None
    host = split.hostname or ""
    shown = f"[{host}]" if ":" in host else host
    expected = f"{split.scheme}://{shown}" + (f":{split.port}" if has_port else "")
    if split.scheme not in {"http", "https"} or not host or not value.isascii():
        raise InvalidValue(invalid)
    if value != expected:
        raise InvalidValue(f"{value!r} holds more than an origin; write {expected!r}")
    return value


def as_network(value: object) -> Network:
    """Parse an IP address or a network."""
    try:
        return ip_network(str(value))
    except ValueError:
        message = (
            "is not an address such as '127.0.0.1', or a network such as '10.0.0.0/8'"
        )
        raise InvalidValue(f"{value!r} {message}") from None


Origin: TypeAlias = Annotated[Text, AfterValidator(as_origin)]
AnyNetwork: TypeAlias = Annotated[Network, PlainValidator(as_network)]


class ApiTable(TomlModel):
    rate: DeclaredRate = DEFAULT_RATE
    burst: Annotated[int, Field(ge=1, le=units.MAX_REQUESTS)] | None = None
    body: Size = DEFAULT_MAX_BODY
    cors: Annotated[list[Origin], BeforeValidator(as_list)] = Field(
        default_factory=list
    )
    proxies: Annotated[list[AnyNetwork], BeforeValidator(as_list)] = Field(
        default_factory=list
    )
    fast_path: bool = True

    def rules(self) -> Iterator[Problem]:
        if self.body > MAX_BODY_LIMIT:
            message = (
                "is more than 256MiB, and a body is read into memory; files are not"
            )
            yield ("body",), message


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiSettings:
    """The limits of the HTTP API."""

    # of one client
    rate: ClientRate
    # in bytes
    largest_body: int
    # the allowed CORS origins
    origins: frozenset[str]
    # proxies whose forwarded client address is trusted
    proxies: tuple[Network, ...]
    # whether responses from the cache are written past uvicorn
    fast_path: bool = True


def build_api_settings(table: ApiTable) -> ApiSettings:
    requests, period = table.rate.requests, table.rate.period
    burst = requests if table.burst is None else table.burst
    return ApiSettings(
        rate=ClientRate(requests=requests, period=period, burst=burst),
        largest_body=table.body,
        origins=frozenset(table.cors),
        proxies=tuple(table.proxies),
        fast_path=table.fast_path,
    )
