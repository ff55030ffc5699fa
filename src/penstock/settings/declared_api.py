"""What the HTTP API allows its clients, as it is written."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Annotated, TypeAlias
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator

from penstock.domain.budget import Limit
from penstock.domain.rates import Rate
from penstock.settings import units
from penstock.settings.declared import Declared, Size, Text, as_list
from penstock.settings.declared import Rate as DeclaredRate
from penstock.settings.problems import Problem, Unfit

Network: TypeAlias = IPv4Network | IPv6Network

DEFAULT_RATE = Limit(requests=1000, period=timedelta(seconds=1))
LARGEST_BODY = 8 * 1024 * 1024
# beyond this a body does not belong into memory
LARGEST_BODY_ALLOWED = 256 * 1024 * 1024


def as_origin(value: str) -> str:
    """Accept an origin as a browser sends it."""
    wrong = f"{value!r} is not an origin such as 'https://app.example.org'"
    if value == "*":
        raise Unfit("'*' would let every page ask in a user's name; name each origin")
    try:
        split = urlsplit(value)
        has_port = split.port is not None
    except ValueError:
        raise Unfit(wrong) from None
    host = split.hostname or ""
    shown = f"[{host}]" if ":" in host else host
    told = f"{split.scheme}://{shown}" + (f":{split.port}" if has_port else "")
    if split.scheme not in {"http", "https"} or not host or not value.isascii():
        raise Unfit(wrong)
    if value != told:
        raise Unfit(f"{value!r} holds more than an origin; write {told!r}")
    return value


def as_network(value: object) -> Network:
    """Accept an address, or a network of them."""
    try:
        return ip_network(str(value))
    except ValueError:
        told = (
            "is not an address such as '127.0.0.1', or a network such as '10.0.0.0/8'"
        )
        raise Unfit(f"{value!r} {told}") from None


Origin: TypeAlias = Annotated[Text, AfterValidator(as_origin)]
AnyNetwork: TypeAlias = Annotated[Network, PlainValidator(as_network)]


class ApiTable(Declared):
    rate: DeclaredRate = DEFAULT_RATE
    burst: Annotated[int, Field(ge=1, le=units.MOST_REQUESTS)] | None = None
    body: Size = LARGEST_BODY
    cors: Annotated[list[Origin], BeforeValidator(as_list)] = Field(
        default_factory=list
    )
    proxies: Annotated[list[AnyNetwork], BeforeValidator(as_list)] = Field(
        default_factory=list
    )

    def rules(self) -> Iterator[Problem]:
        if self.body > LARGEST_BODY_ALLOWED:
            told = "is more than 256MiB, and a body is read into memory; files are not"
            yield ("body",), told


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiSettings:
    """What the HTTP API allows its clients."""

    # how often one of them may ask
    rate: Rate
    # bytes of a body that is read into memory
    largest_body: int
    # pages of other sites that may ask in a browser
    origins: frozenset[str]
    # who is believed when it says for whom it asks
    proxies: tuple[Network, ...]


def built_api(table: ApiTable) -> ApiSettings:
    requests, period = table.rate.requests, table.rate.period
    burst = requests if table.burst is None else table.burst
    return ApiSettings(
        rate=Rate(requests=requests, period=period, burst=burst),
        largest_body=table.body,
        origins=frozenset(table.cors),
        proxies=tuple(table.proxies),
    )
