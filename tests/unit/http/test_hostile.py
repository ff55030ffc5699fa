"""What a hostile provider sends costs little, and reaches nobody else."""

import time

import pytest

from penstock.adapters.http import body_parser
from penstock.adapters.http.pagination import ClientBounds, PageFacts, next_step
from penstock.adapters.http.urls import is_same_origin, next_link, server_of
from penstock.domain.dataset import Field, FieldType
from penstock.domain.mapping.converters import BadValue, compile_cast
from penstock.domain.pages import Proof
from penstock.domain.source import Pagination, Paging
from penstock.errors import Rejected

HERE = "http://127.0.0.1:8811/poi"
# linear patterns need a few hundredths of this; quadratic ones many times as much
SOON = 5.0


@pytest.mark.parametrize(
    "address",
    [
        "http://127.0.0.2:9999\\@127.0.0.1:8811/stolen",
        "http://127.0.0.2:9999\\\\@127.0.0.1:8811/stolen",
        "http://me@127.0.0.1:8811/poi",
        "http://127.0.0.1:8811 @127.0.0.2/",
        "http://127.0.0.2/",
        "https://127.0.0.1:8811/poi",
        "http://127.0.0.1:8811\n.evil.example/",
        "//127.0.0.2/",
        "not an address",
    ],
)
def test_an_address_that_could_lead_elsewhere_is_not_the_same_place(address):
    assert not is_same_origin(HERE, address)


@pytest.mark.parametrize("address", ["http://127.0.0.1:8811/", HERE + "?a=1&b=%5C"])
def test_other_pages_of_the_same_host_are_the_same_place(address):
    assert is_same_origin(HERE, address)


def test_a_string_that_never_ends_is_refused_soon():
    body = b'["' + b'\\"' * 500_000
    began = time.monotonic()

    with pytest.raises(ValueError, match="brackets"):
        body_parser.split_items(body)

    assert time.monotonic() - began < SOON


def test_a_number_of_a_million_digits_is_refused_soon():
    cast = compile_cast(Field(name="x", path=("x",), type=FieldType.FLOAT))
    began = time.monotonic()

    with pytest.raises(BadValue):
        cast("1" * 1_000_000 + "x")

    assert time.monotonic() - began < SOON


def test_a_header_full_of_brackets_is_read_soon():
    began = time.monotonic()

    assert next_link("<" * 60_000) is None

    assert time.monotonic() - began < SOON


CURSOR = Pagination(by=Paging.CURSOR, send="t", next=("meta", "nxt"), size=100)
LINK = Pagination(by=Paging.LINK, size=100)


@pytest.mark.parametrize("pages", [CURSOR, LINK])
def test_a_full_first_page_that_speaks_of_no_next_is_not_taken_for_all(pages):
    with pytest.raises(Rejected, match="first page is full"):
        next_step(pages, None, PageFacts(rows=100, names_next=False), ClientBounds())


@pytest.mark.parametrize(
    ("position", "seen"),
    [
        (None, PageFacts(rows=99, names_next=False)),
        (None, PageFacts(rows=100, names_next=True)),
        ({"token": "b"}, PageFacts(rows=100, names_next=False)),
    ],
)
def test_otherwise_no_next_is_the_end(position, seen):
    assert next_step(CURSOR, position, seen, ClientBounds()).proof is Proof.NO_NEXT


@pytest.mark.parametrize(
    ("address", "server"),
    [
        ("http://127.0.0.1:8855/poi?key=s3cr3t", "127.0.0.1:8855"),
        ("https://user:s3cr3t@api.example.org/", "api.example.org"),
        ("http://[::1]:8855/", "[::1]:8855"),
        ("http://api.example.org:99999/", "api.example.org"),
        ("http://[::1/", "(none)"),
    ],
)
def test_a_server_is_named_by_its_host_and_port_alone(address, server):
    assert server_of(address) == server
